//! Changes of names through FUSE: create, mkdir, unlink, rmdir, rename, link. All of them run on threads that may block.

use std::ffi::OsStr;

use fuser::{
    Errno, FileHandle, FopenFlags, INodeNo, RenameFlags, ReplyCreate, ReplyEmpty, ReplyEntry, Request,
};

use crate::mount::fs::FileSystem;
use crate::mount::fs::attributes::Stat;
use crate::mount::fs::names::{FolderName, ReplacedPages};
use crate::mount::fs::request::Request as FsRequest;
use crate::mount::fuse::adapter::{Fuse, GENERATION};
use crate::mount::fuse::attr::file_attr;
use crate::mount::fuse::executor::{Deadline, Reply};
use crate::mount::fuse::invalidate::drop_pages_then;
use crate::mount::fuse::open::{caller, record_open};

/// Replies to a request that made a name.
pub(super) fn reply_entry(reply: ReplyEntry, found: Stat) {
    let Stat { attributes, valid_for, entry_valid_for } = found;
    reply.entry_with_ttls(&valid_for, &entry_valid_for, &file_attr(&attributes), GENERATION);
}

fn done(reply: ReplyEmpty, (): ()) {
    reply.ok();
}

impl Fuse {
    /// Returns a name as text. A name that is not Unicode cannot be in the hierarchy.
    fn name(&self, name: &OsStr) -> Result<String, Errno> {
        let refused = if self.fs.options().writable { Errno::EILSEQ } else { Errno::EROFS };
        name.to_str().map(str::to_owned).ok_or(refused)
    }

    pub(super) fn reply_create(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = match self.name(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let undelivered = self.fs.recovery().take_undelivered(request.unique().0);
        let (fs, caller, asker) = (self.fs.clone(), caller(request), self.asker(request));
        let request = FsRequest::new(folder.0, "create");
        self.executor.submit(request, Deadline::WhileProgress, reply, move |slot| {
            if let Some(handle) = undelivered {
                fs.opens().cancel_open(handle);
            }
            let created = fs.opens().create(folder.0, &name, mode, flags, caller);
            if let Ok((stat, opened)) = &created {
                record_open(&fs, stat.attributes.inode, opened, asker);
            }
            match (slot.take(), created) {
                (Some(reply), Ok((stat, opened))) => {
                    let mut open_flags = FopenFlags::empty();
                    open_flags.set(FopenFlags::FOPEN_NOFLUSH, !opened.writes);
                    open_flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.is_direct);
                    open_flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keeps_cache);
                    let (attr, handle) = (file_attr(&stat.attributes), FileHandle(opened.handle));
                    reply.created(&stat.entry_valid_for, &attr, GENERATION, handle, open_flags);
                }
                (Some(reply), Err(failure)) => reply.fail(failure.errno()),
                (None, Ok((stat, opened))) => {
                    fs.opens().cancel_open(opened.handle);
                    fs.inodes().forget(stat.attributes.inode, 1);
                }
                (None, Err(_)) => {}
            }
        });
    }

    pub(super) fn reply_mkdir(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        reply: ReplyEntry,
    ) {
        let name = match self.name(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let caller = caller(request);
        let make = move |fs: &FileSystem| fs.names().make_folder(folder.0, &name, mode, caller);
        self.store_with(FsRequest::new(folder.0, "mkdir"), reply, make, reply_entry);
    }

    pub(super) fn reply_unlink(&self, request: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = match self.name(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let caller = caller(request);
        let remove = move |fs: &FileSystem| fs.names().unlink(folder.0, &name, caller);
        self.store_with(FsRequest::new(folder.0, "unlink"), reply, remove, done);
    }

    pub(super) fn reply_rmdir(&self, request: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = match self.name(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let caller = caller(request);
        let remove = move |fs: &FileSystem| fs.names().remove_folder(folder.0, &name, caller);
        self.store_with(FsRequest::new(folder.0, "rmdir"), reply, remove, done);
    }

    pub(super) fn reply_rename(
        &self,
        request: &Request,
        from: INodeNo,
        from_name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from_name, to_name) = match (self.name(from_name), self.name(to_name)) {
            (Ok(from_name), Ok(to_name)) => (from_name, to_name),
            (Err(errno), _) | (_, Err(errno)) => return reply.error(errno),
        };
        let keeps = flags.contains(RenameFlags::RENAME_NOREPLACE);
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (caller, notifier) = (caller(request), self.notifier.clone());
        let rename = move |fs: &FileSystem| {
            let from = FolderName { folder: from.0, name: &from_name };
            fs.names().rename(from, FolderName { folder: to.0, name: &to_name }, keeps, caller)
        };
        let send = move |reply: ReplyEmpty, replaced: ReplacedPages| match replaced {
            Some((inode, drop)) => drop_pages_then(&notifier, INodeNo(inode), drop, move || reply.ok()),
            None => reply.ok(),
        };
        self.store_with(FsRequest::new(from.0, "rename"), reply, rename, send);
    }

    pub(super) fn reply_link(&self, inode: INodeNo, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = match self.name(name) {
            Ok(name) => name,
            Err(errno) => return reply.error(errno),
        };
        let link = move |fs: &FileSystem| fs.names().link(inode.0, folder.0, &name);
        self.store_with(FsRequest::new(folder.0, "link"), reply, link, reply_entry);
    }
}
