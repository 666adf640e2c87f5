//! The most that FUSE gives: one file `data` of constant bytes, served with the settings of zarrfs.
//!
//!     ceiling MOUNTPOINT SIZE_BYTES [direct-io]
//!
//! Serves until it is unmounted. As in zarrfs: a session thread per core, at least 2 and at most 8, requests of up to 512 KiB through
//! the page cache and of 1 MiB past it, KEEP_CACHE. The caller raises the read-ahead.

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};

const TTL: Duration = Duration::from_secs(60);
const REQUEST_BYTES: u32 = 1 << 20;

struct Constant {
    size_bytes: u64,
    is_direct: bool,
    bytes: Vec<u8>,
}

impl Constant {
    fn attributes(&self, inode: u64) -> FileAttr {
        let is_root = inode == 1;
        let size = if is_root { 0 } else { self.size_bytes };
        FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: if is_root { 0o555 } else { 0o444 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Constant {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(64);
        let _ = config.set_max_write(REQUEST_BYTES);
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "data" { reply.entry(&TTL, &self.attributes(2), Generation(0)) } else { reply.error(Errno::ENOENT) }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(inode.0));
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let how = if self.is_direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::FOPEN_KEEP_CACHE };
        reply.opened(FileHandle(1), how);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = self.size_bytes.saturating_sub(offset).min(u64::from(size)) as usize;
        reply.data(&self.bytes[..length]);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (mountpoint, size_bytes) = (&arguments[1], arguments[2].parse().expect("SIZE_BYTES is a number"));
    let is_direct = arguments.get(3).is_some_and(|word| word == "direct-io");
    let mut config = Config::default();
    config.n_threads = Some(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8));
    config.mount_options = vec![MountOption::RO, MountOption::FSName("ceiling".to_owned())];
    if !is_direct {
        config.mount_options.push(MountOption::CUSTOM("max_read=524288".to_owned()));
    }
    let bytes = vec![7; REQUEST_BYTES as usize];
    fuser::mount(Constant { size_bytes, is_direct, bytes }, mountpoint, &config).expect("it mounts");
}
