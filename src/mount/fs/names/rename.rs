//! Renaming: scratch files onto the file that they replace, and arrays and groups within the store.
//!
//! Invariants: a scratch file that cannot replace its target keeps its name and its bytes; no node replaces another one; a node is
//! moved in one step, after everything that was written to it is stored.

use std::sync::Arc;

use crate::array::Array;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::formats::{CompanionPlace, Role};
use crate::hierarchy::author;
use crate::mount::fs::array_files::file::ArrayFile;
use crate::mount::fs::attributes::Attributes;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::names::make::promoted_kind;
use crate::mount::fs::names::node_name::NodeName;
use crate::mount::fs::names::scratch::{Caller, ScratchContent, ScratchFile};
use crate::mount::fs::open_file::OpenFile;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::journal::record::IS_RESENT;

/// The bytes that are copied at a time.
const BLOCK_BYTES: u64 = 1 << 20;

/// A name in a folder.
#[derive(Clone, Copy, Debug)]
pub struct FolderName<'n> {
    /// The folder's inode.
    pub folder: u64,
    /// The name.
    pub name: &'n str,
}

/// Pages that the kernel must drop before the reply, and their inode.
pub type ReplacedPages = Option<(u64, PageDrop)>;

impl NameChanges {
    /// Renames a file or folder. With `keeps`, nothing is replaced. Returns the pages of a replaced array.
    pub fn rename(
        &self,
        from: FolderName<'_>,
        to: FolderName<'_>,
        keeps: bool,
        caller: Caller,
    ) -> FsResult<ReplacedPages> {
        let (from_path, to_path) = (self.path_of(from.folder)?, self.path_of(to.folder)?);
        if !self.is_one_member(&from_path, &to_path) {
            let refused = self.refuse_between_members(from, NodeName { group: &to_path, name: to.name });
            return refused.map(|()| None);
        }
        let _changing = self.table.lock_changes(&from_path);
        let (from_group, to_group) = (self.group_to_change(from.folder)?, self.group_to_change(to.folder)?);
        let target = self.find_name(to.folder, to.name)?;
        let Some(source) = self.find_name(from.folder, from.name)? else {
            // A daemon that has died may have renamed it for this request.
            let is_renamed = target.is_some() && self.intents.has_begun(caller.request);
            return if is_renamed { Ok(None) } else { Err(Failure::Errno(libc::ENOENT)) };
        };
        if target.is_some() && keeps {
            return Err(Failure::Errno(libc::EEXIST));
        }
        // A daemon that has died may have given the file the other name, and nothing more.
        let is_resent = caller.request & IS_RESENT != 0;
        if target.as_ref() == Some(&source) && !(is_resent && matches!(source.kind, EntityKind::Scratch(_))) {
            return Ok(None);
        }
        let from = NodeName { group: &from_group, name: from.name };
        let to = NodeName { group: &to_group, name: to.name };
        let renamed = match source.kind {
            EntityKind::Scratch(_) => match self.table.file(from.group, from.name) {
                Some(file) => self.rename_scratch(&file, from, to, target, caller),
                None => Err(Failure::Errno(libc::ENOENT)),
            },
            EntityKind::Array | EntityKind::Group if self.may_delete(&source.path) => {
                self.rename_node(&source, to, target, caller).map(|()| None)
            }
            EntityKind::Companion(format, CompanionPlace::NextToNode)
                if format.role == Role::Sidecar && source.view.is_none() =>
            {
                self.rename_sidecar(&source, from, to, target, caller).map(|()| None)
            }
            _ => Err(Failure::Errno(libc::EPERM)),
        };
        renamed.map_err(|failure| self.log.record_failed_name("rename", &to.path(), failure))
    }

    /// Fails because a name cannot leave its member. On EXDEV, mv copies a group or a scratch file. It must not copy one of the two files of an
    /// array alone.
    fn refuse_between_members(&self, from: FolderName<'_>, to: NodeName<'_>) -> FsResult<()> {
        let source = self.find_name(from.folder, from.name)?.ok_or(Failure::Errno(libc::ENOENT))?;
        match source.kind {
            EntityKind::Group | EntityKind::Scratch(_) => Err(Failure::Errno(libc::EXDEV)),
            _ => self.refuse_rename(&source, &to.path()),
        }
    }

    fn rename_scratch(
        &self,
        file: &Arc<ScratchFile>,
        from: NodeName<'_>,
        to: NodeName<'_>,
        target: Option<Entity>,
        caller: Caller,
    ) -> FsResult<ReplacedPages> {
        if self.promotions.finish_former(file, to)? {
            self.table.remove(from.group, from.name);
            return Ok(None);
        }
        let Some(target) = target.filter(|target| !matches!(target.kind, EntityKind::Scratch(_))) else {
            return self.move_scratch(file, from, to).map(|()| None);
        };
        let path = to.path();
        // Locked until the target has the bytes: a write that came in between would be lost.
        let mut content = file.content();
        let replaced = match target.kind {
            EntityKind::Array => {
                // The elements are written in place, into objects that may belong to another user.
                self.permissions.check_writable(&target.path, caller)?;
                self.replace_content(file, &content, &target)?
            }
            _ if target.is_sidecar() && file.meta().size_bytes == 0 => {
                return self.log.refuse_name("rename", &path, libc::EINVAL, "an empty file is not a sidecar");
            }
            _ if target.is_sidecar() => {
                self.promotions.edit(file, &mut content, &target, caller)?;
                None
            }
            EntityKind::Group => return Err(Failure::Errno(libc::EISDIR)),
            _ => {
                let reason = "this file is made from its array: replace the array, or edit NAME.json";
                return self.log.refuse_name("rename", &path, libc::EPERM, reason);
            }
        };
        file.end(&mut content);
        self.table.remove(from.group, from.name);
        Ok(replaced)
    }

    /// Gives a scratch file another name, and promotes it to what that says.
    fn move_scratch(&self, file: &Arc<ScratchFile>, from: NodeName<'_>, to: NodeName<'_>) -> FsResult<()> {
        if let Some(reason) = self.objection(to.name) {
            return self.log.refuse_name("rename", &to.path(), libc::EPERM, reason);
        }
        let replaced = self.table.file(to.group, to.name);
        self.table.insert_file(to.group, to.name, file.clone());
        file.touch();
        if let Err(failure) = self.promotions.promote_locked(file, "rename", usize::MAX) {
            match replaced {
                Some(replaced) => self.table.insert_file(to.group, to.name, replaced),
                None => self.table.remove(to.group, to.name),
            }
            file.set_place(from.group, from.name);
            // The promotion has logged the reason.
            return Err(Failure::Errno(failure.errno()));
        }
        self.table.remove(from.group, from.name);
        Ok(())
    }

    fn child_in(&self, name: NodeName<'_>) -> FsResult<Option<Entity>> {
        self.entries.find(&Entity::new(EntityKind::Group, name.group), name.name, Blocking::Yes)
    }

    /// Writes the bytes of a file over an array of the same size.
    fn replace_content(
        &self,
        file: &ScratchFile,
        content: &ScratchContent,
        target: &Entity,
    ) -> FsResult<ReplacedPages> {
        let inode = self.inodes.get_or_add(target);
        let opened = self.open_to_write(target)?;
        let written = self.write_over(file, content, target).and_then(|()| opened.flush(0, 0));
        opened.release();
        written?;
        inode.state().page_cache_users.drops.mark_outdated();
        Ok(Some((inode.number, inode.state().page_cache_users.drops.begin(None))))
    }

    fn write_over(&self, file: &ScratchFile, content: &ScratchContent, target: &Entity) -> FsResult<()> {
        let array = self.inodes.get_or_add(target).array()?;
        let (has, wanted) = (file.meta().size_bytes, array.size_bytes());
        if has != wanted {
            let sentence = format!("the file has {has} bytes, and the array {wanted}: nothing is replaced");
            return Err(Error::Usage(sentence).into());
        }
        let each = |write: &dyn Fn(u64, &[u8]) -> FsResult<()>| -> FsResult<()> {
            let mut offset = 0;
            while offset < wanted {
                let block = file.bytes(content, offset, BLOCK_BYTES)?;
                write(offset, &block)?;
                offset += (block.len() as u64).max(1);
            }
            Ok(())
        };
        // Values that the data type does not have are refused before anything changes.
        each(&|offset, block| Ok(array.writer().check_write(offset, block)?))?;
        each(&|offset, block| Ok(array.writer().write_at(offset, block)?))
    }

    /// Opens an array for writing. The first open after another program changed its size is ESTALE, for the kernel to look it up.
    fn open_to_write(&self, target: &Entity) -> FsResult<ArrayFile> {
        let open = || {
            let inode = self.inodes.get_or_add(target);
            self.array_files.open(&inode, true, libc::O_WRONLY, &Cancellation::never())
        };
        match open() {
            Err(Failure::Errno(libc::ESTALE)) => Ok(open()?.file),
            opened => Ok(opened?.file),
        }
    }

    /// Renames a sidecar. To the name of another sidecar, the array moves with it, if nodes may be renamed. To another name, a
    /// scratch file gets its text, and its own name is free for the file that takes its place.
    fn rename_sidecar(
        &self,
        source: &Entity,
        from: NodeName<'_>,
        to: NodeName<'_>,
        target: Option<Entity>,
        caller: Caller,
    ) -> FsResult<()> {
        let is_array = self.nodes.current(&source.path)?.is_array();
        let stem = to.name.strip_suffix(".json").filter(|stem| !stem.is_empty());
        if let (true, true, Some(stem)) = (self.may_delete(&source.path), is_array, stem) {
            if matches!(target.map(|target| target.kind), Some(EntityKind::Scratch(_))) {
                return Err(Failure::Errno(libc::EEXIST));
            }
            let target = self.child_in(NodeName { name: stem, ..to })?;
            return self.rename_node(
                &Entity::new(EntityKind::Array, source.path.clone()),
                NodeName { name: stem, ..to },
                target,
                caller,
            );
        }
        match target {
            Some(target) if !matches!(target.kind, EntityKind::Scratch(_)) => {
                return Err(Failure::Errno(libc::EPERM));
            }
            _ if promoted_kind(to.name).is_some() => return Err(Failure::Errno(libc::EPERM)),
            _ => {}
        }
        if let Some(reason) = self.objection(to.name) {
            return self.log.refuse_name("rename", &to.path(), libc::EPERM, reason);
        }
        let cached = self.nodes.current(&source.path)?;
        let text = self.drafts.text(source, &cached)?;
        let Attributes { mode, uid, gid, .. } = self.attributes.get(source, Blocking::Yes)?.attributes;
        let file = self.table.new_file(mode.into(), Caller { uid, gid, thread: 0, request: 0 });
        file.fill(&text)?;
        self.table.insert_file(to.group, to.name, file);
        self.table.vacate(from.group, from.name, source);
        Ok(())
    }

    /// Moves an array or a group.
    fn rename_node(
        &self,
        source: &Entity,
        to: NodeName<'_>,
        target: Option<Entity>,
        caller: Caller,
    ) -> FsResult<()> {
        let path = to.path();
        if source.path.is_empty() {
            return Err(Failure::Errno(libc::EBUSY));
        }
        if path.strip_prefix(&*source.path).is_some_and(|rest| rest.starts_with('/')) {
            return Err(Failure::Errno(libc::EINVAL));
        }
        if target.is_some() || self.table.find(to.group, to.name).is_some() {
            let reason = format!("'{path}' exists, and no array or group replaces another: remove it first");
            return self.log.refuse_name("rename", &path, libc::EEXIST, reason);
        }
        let store = self.nodes.store_at(&source.path);
        if !Arc::ptr_eq(&store, &self.nodes.store_at(&path)) {
            return self.refuse_rename(source, &path);
        }
        let writer = store.writer().ok_or(Failure::Errno(libc::EROFS))?;
        if !writer.can_rename(&source.path)? {
            return self.refuse_rename(source, &path);
        }
        if source.kind == EntityKind::Array {
            self.permissions.check_writable(&source.path, caller)?;
        }
        // The mode does not matter: the node keeps its owner and mode.
        let place = self.permissions.new_place(to, caller, 0)?;
        let open = || self.inodes.open_arrays_below(&source.path);
        let is_ours =
            || open().iter().any(|(_, array)| array.writer().has_writers() || array.writer().is_dirty());
        let _lock = match source.kind {
            EntityKind::Array => self.lock_against_others(&source.path, is_ours)?,
            _ => None,
        };
        let open = open();
        let stored = open.iter().try_for_each(|(_, array)| {
            array.writer().refuse_writes();
            array.writer().flush()
        });
        let renamed = stored.and_then(|()| {
            self.intents.begin(caller.request);
            author::rename(&store, &source.path, &place)
        });
        self.nodes.expire();
        if let Err(error) = renamed {
            open.iter().for_each(|(_, array)| array.writer().accept_writes());
            return Err(error.into());
        }
        // Arrays may have been opened since the list above was made: what is written to them has no place any more.
        for (inode, array) in &self.end_nodes(&source.path) {
            end(&inode.entity, array)?;
        }
        self.table.move_group(&source.path, &path);
        Ok(())
    }

    /// Fails because the store cannot rename: a bucket cannot, an overlay changes nothing in its base, and a member of a catalogue
    /// ends at its folder. On EXDEV, mv copies the
    /// parts of a group. An array gets another errno, because mv would copy its file without its sidecar.
    fn refuse_rename(&self, source: &Entity, path: &str) -> FsResult<()> {
        if source.kind == EntityKind::Group {
            return Err(Failure::Errno(libc::EXDEV));
        }
        let sentence = "the store cannot rename it: copy the array with its NAME.json, then remove it";
        self.log.refuse_name("rename", path, libc::EPERM, sentence)
    }
}

/// Ends an array that has another name now: nothing is stored for it under the old one.
fn end(entity: &Entity, array: &Array) -> FsResult<()> {
    if array.writer().end_here()? {
        log::warn!("/{}: renamed while it was written: a write that came in between is dropped", entity.path);
    }
    Ok(())
}
