//! Owners and modes of what programs make: a node has those that its file or folder had under its first name.
//!
//! Uses `hierarchy::author`. Invariant: nobody gets a permission that the program which made the name did not give.

use std::sync::Arc;

use crate::hierarchy::Node;
use crate::hierarchy::author::{self, Place, check_name};
use crate::metadata::ZarrFormat;
use crate::mount::fs::attributes::SetAttr;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, EntityKind, InodeTable};
use crate::mount::fs::names::node_name::NodeName;
use crate::mount::fs::names::scratch::Caller;
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::permissions::Permissions;
use crate::mount::options::{Options, Ownership};
use crate::store::{Posix, SET_GROUP};

/// What a new node's document lets its owner do in any case.
const OWNER_MODE: u32 = 0o600;

/// The owners and modes of a mount's nodes.
pub struct NodePermissions {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    names: Arc<NameTable>,
    permissions: Arc<Permissions>,
    options: Arc<Options>,
}

impl NodePermissions {
    /// Of these nodes.
    pub fn new(
        nodes: Arc<NodeCache>,
        inodes: Arc<InodeTable>,
        names: Arc<NameTable>,
        permissions: Arc<Permissions>,
        options: Arc<Options>,
    ) -> Self {
        NodePermissions { nodes, inodes, names, permissions, options }
    }

    /// A place for a new node of a user, with the permissions that a program gave the file or folder.
    pub fn new_place(&self, name: NodeName<'_>, caller: Caller, mode: u16) -> FsResult<Place> {
        let mut place = Place::find(self.nodes.store(), &name.path())?;
        check_name(name.name, place.parent_format.unwrap_or(ZarrFormat::V3))?;
        if let Some(posix) = &mut place.like.posix {
            // No mode of an array changes later, so that its owner can always write it.
            posix.mode = (posix.mode & SET_GROUP) | OWNER_MODE | (u32::from(mode) & 0o1666);
            if crate::sys::effective_ids().0 == 0 {
                (posix.uid, posix.gid) = (caller.uid, caller.gid);
            }
        }
        Ok(place)
    }

    /// A user that makes something in a group's folder, in the group that a new file there has.
    pub fn in_group(&self, group: &str, caller: Caller) -> FsResult<Caller> {
        let cached = self.nodes.get(group, Blocking::Yes)?;
        let posix = cached.node.as_deref().and_then(|node| node.info().posix);
        let inherited = posix.filter(|posix| posix.mode & SET_GROUP != 0).map(|posix| posix.gid);
        Ok(Caller { gid: inherited.unwrap_or(caller.gid), ..caller })
    }

    /// An array that a user declared a moment before, for a file that is less open than the declaration was.
    pub fn close_to_others(&self, path: &str, mode: u32, caller: Caller) -> FsResult<()> {
        let cached = self.nodes.current(path)?;
        let posix = cached.node.as_deref().and_then(|node| node.info().posix);
        let is_theirs = |posix: &Posix| posix.uid == caller.uid || crate::sys::effective_ids().0 != 0;
        let Some(posix) = posix.filter(|posix| cached.is_array() && is_theirs(posix)) else { return Ok(()) };
        if posix.mode & 0o077 & !mode != 0 {
            let like = Posix { mode: posix.mode & (mode | OWNER_MODE), ..posix };
            author::give_all(self.nodes.store().as_ref(), path, posix.uid, &like)?;
            self.nodes.forget(path);
        }
        Ok(())
    }

    /// Gives a node another mode in the store; `false` where it keeps the one that it has.
    pub fn set_mode(&self, entity: &Entity, change: &SetAttr) -> FsResult<bool> {
        let Some(mode) = change.mode.filter(|_| entity.view.is_none()).map(|mode| mode & 0o7777) else {
            return Ok(false);
        };
        // Under another owner, it is not the owner that the kernel lets change it.
        if !self.options.create || self.options.ownership != Ownership::default() {
            return Ok(false);
        }
        let _changing = self.names.hold();
        let cached = self.nodes.current(&entity.path)?;
        let Some(posix) = cached.node.as_deref().and_then(|node| node.info().posix) else { return Ok(false) };
        // The kernel has compared the owner that it knew, and another node may have taken the name meanwhile.
        if ![0, posix.uid].contains(&change.user) {
            return Ok(false);
        }
        let like = Posix { mode: mode & 0o1666, ..posix };
        let store = self.nodes.store().as_ref();
        let is_set = match cached.node.as_deref() {
            // A folder is searched by those who may read its document.
            Some(Node::Group { .. }) if entity.kind == EntityKind::Group && like.folder_mode() == mode => {
                author::give_group(store, &entity.path, &like)?
            }
            Some(Node::Array { .. }) if entity.kind == EntityKind::Array && like.mode == mode => {
                // An object that is being replaced would keep its mode.
                self.inodes
                    .open_arrays_below(&entity.path)
                    .iter()
                    .try_for_each(|(_, array)| array.writer().flush())?;
                author::give_all(store, &entity.path, posix.uid, &like)?
            }
            _ => false,
        };
        self.nodes.forget(&entity.path);
        Ok(is_set)
    }

    /// Fails where the user may not write the node's document.
    pub fn check_writable(&self, path: &str, caller: Caller) -> FsResult<()> {
        let cached = self.nodes.current(path)?;
        let node = cached.node.as_deref().ok_or(Failure::Errno(libc::ENOENT))?;
        if self.permissions.lets_write(node.info(), caller.uid, caller.gid) {
            Ok(())
        } else {
            Err(Failure::Errno(libc::EACCES))
        }
    }
}
