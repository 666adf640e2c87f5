//! The thin adapter between fuser and [`FileSystem`]. It translates, and decides which thread replies.
//!
//! The session thread replies at once if memory is enough; otherwise the request moves with its reply to the executor. This module
//! uses `fs`, not `daemon`.
//!
//! Invariants: a session thread never blocks on the store; no panic leaves a callback; every request gets a reply (fuser replies EIO
//! when a reply is dropped).

pub mod adapter;
pub mod attr;
pub mod executor;
pub mod invalidate;
pub mod lseek;
pub mod names;
pub mod open;
pub mod passthrough;
pub mod read;
pub mod resent;
pub mod write;
pub mod xattr;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::mount::fs::FileSystem;
use crate::mount::fs::attributes::SetAttr;
use crate::mount::fs::error::Failure;
use crate::mount::fs::open_file::FileRange;
use crate::mount::fs::request::Request as FsRequest;
use crate::mount::journal::record::IS_RESENT;

use crate::mount::fuse::adapter::{Fuse, GENERATION};
use crate::mount::fuse::attr::{file_attr, no_entry};
use crate::mount::fuse::executor::{Deadline, Reply, guard};
use crate::mount::fuse::read::ReadRequest;
use crate::mount::fuse::write::{CopyRequest, WriteRequest};

/// The number of requests that the kernel keeps in flight by itself (read-ahead).
const MAX_BACKGROUND: u16 = 64;
/// The longest write, in bytes, and the longest read unless `attach.rs` sets a smaller limit.
const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// Callbacks that always reply with one errno.
macro_rules! always {
    ($errno:ident: $($name:ident($($argument:ty),*) -> $reply:ty;)*) => {$(
        fn $name(&self, _: &Request, $(_: $argument,)* reply: $reply) {
            reply.error(Errno::$errno);
        }
    )*};
}

/// Callbacks that are always refused.
macro_rules! refused {
    ($($name:ident($($argument:ty),*) -> $reply:ty;)*) => {$(
        fn $name(&self, _: &Request, $(_: $argument,)* reply: $reply) {
            reply.error(self.refusal());
        }
    )*};
}

impl Filesystem for Fuse {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            // Without these features, an older kernel is only slower.
            if config.add_capabilities(capability).is_err() {
                log::debug!("this kernel lacks {capability:?}");
            }
        }
        self.negotiate_cache_modes(config);
        self.supports_xattrs = self.negotiate_xattrs(config);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_max_write(MAX_REQUEST_BYTES);
        // The kernel returns its maximum; `mount/daemon/readiness.rs` raises it later where permitted.
        if let Err(most) = config.set_max_readahead(MAX_REQUEST_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, asked: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.is_fatal(asked, "lookup") {
            return reply.error(Errno::EIO);
        }
        guard("lookup", || {
            let Some(name) = name.to_str().map(str::to_owned) else {
                return reply.error(Errno::ENOENT);
            };
            let request = FsRequest::for_name(parent.0, "lookup", &name);
            let (forget_after, thread) = (self.fs.negative_valid_for(), asked.pid());
            let find = move |fs: &FileSystem, blocking| match fs.lookup_by(parent.0, &name, thread, blocking)
            {
                Ok(found) => Ok(Some(found)),
                Err(Failure::Errno(libc::ENOENT)) => Ok(None),
                Err(failure) => Err(failure),
            };
            self.reply_with(request, reply, find, move |reply: ReplyEntry, found| match found {
                Some(found) => names::reply_entry(reply, found),
                None => reply.entry(&forget_after, &no_entry(), GENERATION),
            });
        });
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        guard("forget", || self.fs.inodes().forget(inode.0, lookups));
    }

    fn getattr(&self, request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        if self.is_fatal(request, "stat") {
            return reply.error(Errno::EIO);
        }
        guard("getattr", || {
            let look = move |fs: &FileSystem, blocking| fs.attributes(inode.0, blocking);
            self.reply_with(FsRequest::new(inode.0, "stat"), reply, look, |reply: ReplyAttr, found| {
                reply.attr(&found.valid_for, &file_attr(&found.attributes));
            });
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.is_fatal(request, "open") {
            return reply.error(Errno::EIO);
        }
        guard("open", || self.reply_open(request, inode, flags, reply));
    }

    fn read(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if self.is_fatal(request, "read") {
            return reply.error(Errno::EIO);
        }
        // Only direct reads carry a lock owner.
        let is_of_pages = lock_owner.is_none();
        let read = ReadRequest { inode, handle, offset, size, is_of_pages, reply };
        guard("read", || self.reply_read(read));
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        guard("release", || {
            self.reply_release(inode, handle, reply);
        });
    }

    fn opendir(&self, asked: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.is_fatal(asked, "opendir") {
            return reply.error(Errno::EIO);
        }
        guard("opendir", || {
            let (fs, caller) = (self.fs.clone(), open::caller(asked));
            let undelivered = fs.recovery().take_undelivered(asked.unique().0);
            let request = FsRequest::new(inode.0, "opendir");
            self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
                if let Some(handle) = undelivered {
                    fs.opens().cancel_open(handle);
                }
                let opened = fs.opens().open_folder_by(inode.0, caller);
                match (slot.take(), opened) {
                    (Some(reply), Ok(handle)) => reply.opened(FileHandle(handle), FopenFlags::empty()),
                    (Some(reply), Err(failure)) => {
                        reply.fail(fs.log().record_failed_request(request, &failure))
                    }
                    (None, Ok(handle)) => fs.opens().release(handle),
                    (None, Err(_)) => {}
                }
            });
        });
    }

    fn readdir(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        if self.is_fatal(request, "readdir") {
            return reply.error(Errno::EIO);
        }
        guard("readdir", || {
            self.reply_readdir(inode, handle, offset, reply);
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        if self.is_fatal(request, "readdir") {
            return reply.error(Errno::EIO);
        }
        guard("readdirplus", || {
            self.reply_readdirplus(inode, handle, offset, reply);
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        guard("releasedir", || {
            self.fs.opens().release(handle.0);
            reply.ok();
        });
    }

    fn statfs(&self, request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        if self.is_fatal(request, "statfs") {
            return reply.error(Errno::EIO);
        }
        guard("statfs", || self.reply_statfs(inode, reply));
    }

    fn flush(&self, request: &Request, inode: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if self.is_fatal(request, "close") {
            return reply.error(Errno::EIO);
        }
        self.reply_flush(inode, handle, request.pid(), reply);
    }

    fn fsync(&self, request: &Request, inode: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.is_fatal(request, "fsync") {
            return reply.error(Errno::EIO);
        }
        self.reply_fsync(inode, handle, reply);
    }

    fn fsyncdir(&self, request: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.is_fatal(request, "fsync") {
            return reply.error(Errno::EIO);
        }
        self.reply_fsyncdir(inode, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size_bytes: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if self.is_fatal(request, "setattr") {
            return reply.error(Errno::EIO);
        }
        let by_handle = handle.is_some();
        let change = SetAttr { mode, uid, gid, size_bytes, user: request.uid(), by_handle, process: 0 };
        guard("setattr", || self.reply_setattr(inode, request.pid(), change, reply));
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.is_fatal(request, "write") {
            return reply.error(Errno::EIO);
        }
        let is_page = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        guard("write", || {
            let file = match self.fs.file(handle.0) {
                Ok(file) => file,
                Err(failure) => return reply.fail(failure.errno()),
            };
            let number = request.unique().0 & !IS_RESENT;
            let write = WriteRequest { inode, file, offset, data, is_page, number, reply };
            if !is_page && write.file.is_synchronous(flags.0) {
                self.reply_synchronous_write(write);
            } else {
                self.reply_write(write);
            }
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if self.is_fatal(request, "fallocate") {
            return reply.error(Errno::EIO);
        }
        guard("fallocate", || self.reply_allocate(inode, handle, FileRange { offset, length }, mode, reply));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _from_inode: INodeNo,
        from: FileHandle,
        from_offset: u64,
        inode: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        if self.is_fatal(request, "copy_file_range") {
            return reply.error(Errno::EIO);
        }
        guard("copy_file_range", || {
            self.reply_copy(CopyRequest { inode, from, from_offset, to, to_offset, length, reply });
        });
    }

    fn getxattr(&self, request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.is_fatal(request, "getxattr") {
            return reply.error(Errno::EIO);
        }
        guard("getxattr", || self.reply_xattr(inode, name, size, reply));
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        if self.is_fatal(request, "listxattr") {
            return reply.error(Errno::EIO);
        }
        guard("listxattr", || self.reply_xattr_names(inode, size, reply));
    }

    fn lseek(
        &self,
        request: &Request,
        inode: INodeNo,
        to: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        if self.is_fatal(request, "lseek") {
            return reply.error(Errno::EIO);
        }
        guard("lseek", || self.reply_lseek(inode, to, offset, whence, reply));
    }

    // On ENOSYS the kernel stops asking: setting extended attributes fails with EOPNOTSUPP, and the mode bits
    // decide access.
    always!(ENOSYS:
        setxattr(INodeNo, &OsStr, &[u8], i32, u32) -> ReplyEmpty;
        removexattr(INodeNo, &OsStr) -> ReplyEmpty;
        access(INodeNo, AccessFlags) -> ReplyEmpty;
        ioctl(INodeNo, FileHandle, IoctlFlags, u32, &[u8], u32) -> ReplyIoctl;
    );

    fn create(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if self.is_fatal(request, "create") {
            return reply.error(Errno::EIO);
        }
        guard("create", || self.reply_create(request, folder, name, mode, flags, reply));
    }

    fn mkdir(&self, request: &Request, folder: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        if self.is_fatal(request, "mkdir") {
            return reply.error(Errno::EIO);
        }
        guard("mkdir", || self.reply_mkdir(request, folder, name, mode, reply));
    }

    fn unlink(&self, request: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.is_fatal(request, "unlink") {
            return reply.error(Errno::EIO);
        }
        guard("unlink", || self.reply_unlink(request, folder, name, reply));
    }

    fn rmdir(&self, request: &Request, folder: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.is_fatal(request, "rmdir") {
            return reply.error(Errno::EIO);
        }
        guard("rmdir", || self.reply_rmdir(request, folder, name, reply));
    }

    fn rename(
        &self,
        request: &Request,
        from: INodeNo,
        from_name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if self.is_fatal(request, "rename") {
            return reply.error(Errno::EIO);
        }
        guard("rename", || self.reply_rename(request, from, from_name, to, to_name, flags, reply));
    }

    fn link(&self, request: &Request, inode: INodeNo, folder: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.is_fatal(request, "link") {
            return reply.error(Errno::EIO);
        }
        guard("link", || self.reply_link(inode, folder, name, reply));
    }

    // No links and devices: EPERM, or EROFS on a read-only mount.
    refused!(
        mknod(INodeNo, &OsStr, u32, u32, u32) -> ReplyEntry;
        symlink(INodeNo, &OsStr, &Path) -> ReplyEntry;
    );
}
