//! Changes of owners, modes and sizes, as in setattr.
//!
//! This file uses the rooms of the kinds of files that have a size or a mode that can be changed.

use std::sync::Arc;

use crate::mount::fs::array_files::open::{ArrayFiles, SizeChange};
use crate::mount::fs::attributes::{SetAttr, Stat};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::names::open::ScratchFiles;
use crate::mount::fs::names::permissions::NodePermissions;
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::fs::stat::FileAttributes;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::options::Options;

/// Changes the attributes of files and folders.
pub struct AttributeChanges {
    pub(in crate::mount::fs) options: Arc<Options>,
    pub(in crate::mount::fs) inodes: Arc<InodeTable>,
    pub(in crate::mount::fs) gate: Arc<RequestGate>,
    pub(in crate::mount::fs) attributes: Arc<FileAttributes>,
    pub(in crate::mount::fs) permissions: Arc<NodePermissions>,
    pub(in crate::mount::fs) array_files: Arc<ArrayFiles>,
    pub(in crate::mount::fs) scratch_files: Arc<ScratchFiles>,
    pub(in crate::mount::fs) drafts: Arc<Drafts>,
    pub(in crate::mount::fs) table: Arc<NameTable>,
}

impl AttributeChanges {
    /// Changes the attributes of an inode. Returns the new ones, and the pages that the kernel must drop.
    pub fn apply(&self, inode: u64, change: &SetAttr) -> FsResult<(Stat, Option<PageDrop>)> {
        if !self.options.writable {
            return Err(Failure::Errno(libc::EROFS));
        }
        let inode = self.inodes.live(inode)?;
        if let EntityKind::Scratch(number) = inode.entity.kind {
            self.scratch_files.set_attributes(number, change)?;
            return Ok((self.table.stat(number)?, None));
        }
        let found = self.set_owner_and_mode(&inode.entity, change)?;
        match change.size_bytes {
            Some(size_bytes) => self.set_size(&inode, change, size_bytes, found),
            None => Ok((found, None)),
        }
    }

    fn set_owner_and_mode(&self, entity: &Entity, change: &SetAttr) -> FsResult<Stat> {
        let found = self.attributes.get(entity, Blocking::Yes)?;
        let now = found.attributes;
        // A mode is unchanged if it is the shown one, or the one in the store: programs set modes that they have read from either.
        let changes_mode = match change.mode.map(|mode| mode & 0o7777) {
            Some(mode) => mode != u32::from(now.mode) && Some(mode) != self.attributes.stored_mode(entity)?,
            None => false,
        };
        let changes_owner =
            change.uid.is_some_and(|uid| uid != now.uid) || change.gid.is_some_and(|gid| gid != now.gid);
        let is_set = changes_mode && self.permissions.set_mode(entity, change)?;
        if (changes_owner || changes_mode != is_set) && !self.options.ignores_chmod {
            return Err(Failure::Errno(libc::EPERM));
        }
        if is_set { self.attributes.get(entity, Blocking::Yes) } else { Ok(found) }
    }

    fn set_size(
        &self,
        inode: &Arc<Inode>,
        change: &SetAttr,
        size_bytes: u64,
        found: Stat,
    ) -> FsResult<(Stat, Option<PageDrop>)> {
        let entity = &inode.entity;
        if entity.kind == EntityKind::Commit {
            // The shell empties a file before it writes.
            return if size_bytes == 0 { Ok((found, None)) } else { Err(Failure::Errno(libc::EINVAL)) };
        }
        let _entered = self.gate.wait_to_enter(&entity.path);
        if entity.is_sidecar() {
            self.drafts.resize(inode, size_bytes, change.by_handle)?;
            return Ok((self.attributes.get(entity, Blocking::Yes)?, None));
        }
        if entity.kind != EntityKind::Array {
            return Err(Failure::Errno(libc::EPERM));
        }
        let shown_bytes = found.attributes.size_bytes;
        let changed = self.array_files.set_size(inode, size_bytes, shown_bytes, change.process)?;
        let SizeChange { page_drop, has_new_attributes } = changed;
        let found = if has_new_attributes { self.attributes.get(entity, Blocking::Yes)? } else { found };
        Ok((found, page_drop))
    }
}
