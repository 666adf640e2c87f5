//! The part of the adapter that opens files, and agrees with the kernel on how they may be opened.

use std::sync::Arc;

use fuser::{FileHandle, FopenFlags, INodeNo, InitFlags, KernelConfig, OpenFlags, ReplyOpen};

use crate::mount::files::Opened;
use crate::mount::fs::FileSystem;
use crate::mount::fuse::Fuse;
use crate::mount::passthrough::Passthrough;
use crate::mount::pool::{Answerable, Request};

impl Fuse {
    /// What the kernel can do with open files besides caching them.
    pub(super) fn negotiate_ways(&self, config: &mut KernelConfig) {
        // What an older kernel lacks here: MAP_SHARED with direct-io, and dropping cached pages where a direct write goes, which
        // came with it (Linux 6.6).
        if config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok() {
            self.fs.let_writes_pass();
        }
        let options = self.fs.options();
        if !options.writable
            && !options.direct_io
            && self.passthrough.is_permitted()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        {
            // Of two: the mount can still lie under an overlay.
            self.fs.back_files(config.set_max_stack_depth(1).is_ok());
        }
    }

    pub(super) fn answer_open(&self, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let fs = self.fs.clone();
        let passthrough = self.passthrough.clone();
        self.pool.submit(Request::new(inode.0, "open"), reply, move |ticket| {
            let opened = fs.open(inode.0, flags.0);
            match (ticket.take(), opened) {
                (Some(reply), Ok(opened)) => answer_opened(&fs, &passthrough, inode, opened, reply),
                (Some(reply), Err(failure)) => reply.fail(failure.errno()),
                (None, Ok(opened)) => fs.cancel_open(opened.handle),
                (None, Err(_)) => {}
            }
        });
    }
}

fn answer_opened(
    fs: &Arc<FileSystem>,
    passthrough: &Passthrough,
    inode: INodeNo,
    opened: Opened,
    reply: ReplyOpen,
) {
    if let Some(object) = opened.backing {
        let fs = fs.clone();
        let refused = move |error| {
            log::debug!("the kernel does not read files by itself here: {error}");
            fs.back_files(false);
        };
        return passthrough.answer(inode.0, opened.handle, object, reply, refused);
    }
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_NOFLUSH, !opened.writes);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.is_direct);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keeps_cache);
    reply.opened(FileHandle(opened.handle), flags);
}
