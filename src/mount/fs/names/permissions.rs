//! Owners and modes of the nodes that programs make: a node has those that its file or folder had under its first name.
//!
//! This file uses `hierarchy::author`. Invariants: a node grants nothing that the program which made it did not grant; no user
//! changes a node that the store does not let this user write.

use std::sync::Arc;

use crate::hierarchy::Node;
use crate::hierarchy::author::{self, Place, check_name};
use crate::metadata::ZarrFormat;
use crate::mount::fs::attributes::SetAttr;
use crate::mount::fs::attributes::permissions::Permissions;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::names::node_name::NodeName;
use crate::mount::fs::names::scratch::Caller;
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::parts::MountParts;
use crate::mount::options::{Options, Ownership};
use crate::store::{Posix, SET_GROUP};

/// The permissions that the owner of a new node always has.
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
    /// Creates the owners and modes of a mount's nodes.
    pub fn new(parts: &MountParts, names: Arc<NameTable>) -> Self {
        NodePermissions {
            nodes: parts.nodes.clone(),
            inodes: parts.inodes.clone(),
            names,
            permissions: parts.permissions.clone(),
            options: parts.options.clone(),
        }
    }

    /// Returns a place for a new node of a user, with the permissions that a program gave the file or folder.
    pub fn new_place(&self, name: NodeName<'_>, caller: Caller, mode: u16) -> FsResult<Place> {
        let mut place = Place::find(&self.nodes.store_at(name.group), &name.path())?;
        check_name(name.name, place.parent_format.unwrap_or(ZarrFormat::V3))?;
        if let Some(posix) = &mut place.like.posix {
            // Whatever mode the program gave, the owner may write: it may not be able to change the mode later.
            posix.mode = (posix.mode & SET_GROUP) | OWNER_MODE | (u32::from(mode) & 0o1666);
            if crate::sys::effective_ids().0 == 0 {
                (posix.uid, posix.gid) = (caller.uid, caller.gid);
            }
        }
        Ok(place)
    }

    /// Returns a user with the POSIX group that a new file in a group's folder has: that of the folder if its setgid bit is set.
    pub fn with_group_of(&self, group: &str, caller: Caller) -> FsResult<Caller> {
        let cached = self.nodes.get(group, Blocking::Yes)?;
        let posix = cached.node.as_deref().and_then(|node| node.info().posix);
        let inherited = posix.filter(|posix| posix.mode & SET_GROUP != 0).map(|posix| posix.gid);
        Ok(Caller { gid: inherited.unwrap_or(caller.gid), ..caller })
    }

    /// Restricts the mode of an array that this user has just declared to that of its file, which the user creates now.
    pub fn restrict_mode(&self, path: &str, mode: u32, caller: Caller) -> FsResult<()> {
        let cached = self.nodes.current(path)?;
        let posix = cached.node.as_deref().and_then(|node| node.info().posix);
        // A daemon that is not root gives all nodes its own user.
        let is_theirs = |uid| uid == caller.uid || crate::sys::effective_ids().0 != 0;
        let Some(posix) = posix.filter(|posix| cached.is_array() && is_theirs(posix.uid)) else {
            return Ok(());
        };
        if posix.mode & 0o077 & !mode != 0 {
            let like = Posix { mode: posix.mode & (mode | OWNER_MODE), ..posix };
            author::give_all(self.nodes.store_at(path).as_ref(), path, posix.uid, &like)?;
            self.nodes.forget(path);
        }
        Ok(())
    }

    /// Changes the mode of a node in the store. Returns `false` if the node keeps its mode.
    pub fn set_mode(&self, entity: &Entity, change: &SetAttr) -> FsResult<bool> {
        let Some(mode) = change.mode.filter(|_| entity.view.is_none()).map(|mode| mode & 0o7777) else {
            return Ok(false);
        };
        // If the mount shows other owners, the user that the kernel lets change the mode is not the owner.
        if !self.options.create || self.options.ownership != Ownership::default() {
            return Ok(false);
        }
        let _changing = self.names.lock_changes(&entity.path);
        let cached = self.nodes.current(&entity.path)?;
        let Some(posix) = cached.node.as_deref().and_then(|node| node.info().posix) else { return Ok(false) };
        // The kernel has checked the owner that it knew, but another node may have taken the name meanwhile.
        if ![0, posix.uid].contains(&change.user) {
            return Ok(false);
        }
        let like = Posix { mode: mode & 0o1666, ..posix };
        let store = self.nodes.store_at(&entity.path);
        let store = store.as_ref();
        let is_set = match cached.node.as_deref() {
            // The users that may read the document may search the folder. No other mode can be kept.
            Some(Node::Group { .. }) if entity.kind == EntityKind::Group && like.folder_mode() == mode => {
                author::give_group(store, &entity.path, &like)?
            }
            Some(Node::Array { .. }) if entity.kind == EntityKind::Array && like.mode == mode => {
                // An object that is stored later would get the mode of the one that it replaces.
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

    /// Fails if the user may not write the node's document.
    pub fn check_writable(&self, path: &str, caller: Caller) -> FsResult<()> {
        let cached = self.nodes.current(path)?;
        let info = cached.node.as_deref().ok_or(Failure::Errno(libc::ENOENT))?.info();
        let mut groups = vec![caller.gid];
        if self.permissions.lets_write(info, caller.uid, &groups) {
            return Ok(());
        }
        // A request names the primary group alone.
        groups.extend(supplementary_groups(caller.thread));
        if self.permissions.lets_write(info, caller.uid, &groups) {
            Ok(())
        } else {
            Err(Failure::Errno(libc::EACCES))
        }
    }
}

/// Returns the supplementary groups of a thread, which waits for the reply meanwhile. An unknown thread has none.
fn supplementary_groups(thread: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}
