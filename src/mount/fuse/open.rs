//! Opening files, and the negotiation of cache modes with the kernel.

use std::time::Instant;

use fuser::{FileHandle, FopenFlags, INodeNo, InitFlags, KernelConfig, OpenFlags, ReplyOpen};

use crate::mount::access_log::opener::Opener;
use crate::mount::fs::FileSystem;
use crate::mount::fs::names::Caller;
use crate::mount::fs::operations::opens::OpenReply;
use crate::mount::fs::request::Request;
use crate::mount::fuse::adapter::Fuse;
use crate::mount::fuse::executor::{Deadline, Reply};
use crate::mount::fuse::passthrough::PassthroughOpen;
use crate::mount::metrics::RequestKind;

impl Fuse {
    /// Negotiates what the kernel can do with open files in addition to caching them.
    pub(super) fn negotiate_cache_modes(&self, config: &mut KernelConfig) {
        // Older kernels lack MAP_SHARED with direct I/O. The same version (Linux 6.6) began to drop cached
        // pages on direct writes.
        if config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok() {
            self.fs.cache_policy().allow_direct_writes();
        }
        let options = self.fs.options();
        if !options.writable
            && !options.direct_io
            && self.passthrough.is_permitted()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        {
            // The stack depth is 1 of at most 2, so that the mount can still lie below an overlay.
            self.fs.cache_policy().set_passthrough(config.set_max_stack_depth(1).is_ok());
        }
    }

    pub(super) fn reply_open(
        &self,
        asked: &fuser::Request,
        inode: INodeNo,
        flags: OpenFlags,
        reply: ReplyOpen,
    ) {
        let undelivered = self.fs.recovery().take_undelivered(asked.unique().0);
        let fs = self.fs.clone();
        let passthrough = self.passthrough.clone();
        let (request, started) = (Request::new(inode.0, "open"), Instant::now());
        let (caller, asker) = (caller(asked), self.asker(asked));
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            if let Some(handle) = undelivered {
                passthrough.release(&fs, inode.0, handle);
                fs.opens().cancel_open(handle);
            }
            let opened = fs.opens().open_by(inode.0, flags.0, caller, &slot.cancellation());
            if let Ok(opened) = &opened {
                record_open(&fs, inode.0, opened, asker);
            }
            match (slot.take(), opened) {
                (Some(reply), Ok(OpenReply { handle, backing: Some(object), .. })) => {
                    let open = PassthroughOpen { inode: inode.0, handle, request: caller.request, object };
                    passthrough.open(&fs, open, reply);
                }
                (Some(reply), Ok(opened)) => reply_opened(&opened, reply),
                (Some(reply), Err(failure)) => reply.fail(failure.errno()),
                (None, Ok(opened)) => fs.opens().cancel_open(opened.handle),
                (None, Err(_)) => {}
            }
            if !fs.log().is_report(inode.0) {
                fs.log().record_time(RequestKind::Open, request, started);
            }
        });
    }
}

/// Returns the caller of a request.
pub(super) fn caller(request: &fuser::Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), thread: request.pid(), request: request.unique().0 }
}

/// The process that asks for something.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    user: u32,
    thread: u32,
    /// Returns the process of a thread.
    process_of: fn(u32) -> Option<u32>,
}

impl Fuse {
    /// Returns the process that sent a request.
    pub(super) fn asker(&self, asked: &fuser::Request) -> Asker {
        Asker { user: asked.uid(), thread: asked.pid(), process_of: self.process_of }
    }
}

/// Begins the record of an open file, if there is an access log. The process waits for the reply, so its name can be looked up.
pub(super) fn record_open(fs: &FileSystem, inode: u64, opened: &OpenReply, asker: Asker) {
    fs.accesses().begin(inode, opened.handle, opened.mode(), || {
        let known = Some(asker.thread).filter(|thread| *thread != 0);
        Opener::new(asker.user, known.and_then(asker.process_of).unwrap_or(0))
    });
}

fn reply_opened(opened: &OpenReply, reply: ReplyOpen) {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_NOFLUSH, !opened.writes);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.is_direct);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keeps_cache);
    reply.opened(FileHandle(opened.handle), flags);
}
