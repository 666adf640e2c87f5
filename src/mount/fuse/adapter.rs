//! The file system as fuser sees it, and the choice of the thread that replies to a request.
//!
//! The session thread replies at once if memory is enough; otherwise the request moves with its reply to the executor.

use std::sync::Arc;
use std::time::Instant;

use fuser::{
    Errno, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};

use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure};
use crate::mount::fs::request::Request;
use crate::mount::fuse::executor::{Deadline, Executor, Reply};
use crate::mount::fuse::invalidate::SharedNotifier;
use crate::mount::fuse::passthrough::Passthrough;
use crate::mount::fuse::resent::ResentRequests;
use crate::mount::metrics::RequestKind;

/// Inode numbers are never reused.
pub(super) const GENERATION: Generation = Generation(0);

macro_rules! implement_reply {
    ($($reply:ty),*) => {$(
        impl Reply for $reply {
            fn fail(self, errno: i32) {
                self.error(Errno::from_i32(errno));
            }
        }
    )*};
}
implement_reply!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyLseek,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);

/// The file system as fuser sees it.
pub struct Fuse {
    pub(super) fs: Arc<FileSystem>,
    pub(super) executor: Arc<Executor>,
    /// The channel for page drops, which is set when there is a session.
    pub(super) notifier: SharedNotifier,
    pub(super) supports_xattrs: bool,
    /// The objects that the kernel reads itself.
    pub(super) passthrough: Arc<Passthrough>,
    /// Returns the process of a thread.
    pub(super) process_of: fn(u32) -> Option<u32>,
    /// The requests of a session that another daemon began.
    resent: Option<ResentRequests>,
}

impl Fuse {
    /// Creates an adapter over a file system and the threads that block on its store.
    pub fn new(
        fs: Arc<FileSystem>,
        executor: Arc<Executor>,
        notifier: SharedNotifier,
        passthrough: Arc<Passthrough>,
        process_of: fn(u32) -> Option<u32>,
    ) -> Self {
        Fuse { fs, executor, notifier, supports_xattrs: false, passthrough, process_of, resent: None }
    }

    /// Returns the adapter of a session that another daemon began.
    #[must_use]
    pub fn continuing(self, resent: ResentRequests) -> Self {
        Fuse { resent: Some(resent), ..self }
    }

    /// Returns whether a request must fail because several daemons died while handling it.
    pub(super) fn is_fatal(&self, request: &fuser::Request, name: &str) -> bool {
        self.resent.as_ref().is_some_and(|resent| resent.was_fatal(request.unique().0, name))
    }

    /// Replies with the result of `operation`: at once if memory is enough, otherwise from the executor.
    pub(super) fn reply_with<R: Reply, T>(
        &self,
        request: Request,
        reply: R,
        operation: impl Fn(&FileSystem, Blocking) -> Result<T, Failure> + Send + 'static,
        send: impl FnOnce(R, T) + Send + 'static,
    ) {
        match operation(&self.fs, Blocking::No) {
            Ok(value) => send(reply, value),
            Err(Failure::WouldBlock) => {
                let fs = self.fs.clone();
                self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
                    let result = operation(&fs, Blocking::Yes);
                    let Some(reply) = slot.take() else { return };
                    match result {
                        Ok(value) => send(reply, value),
                        Err(failure) => reply.fail(fs.log().record_failed_request(request, &failure)),
                    }
                });
            }
            Err(failure) => reply.fail(self.fs.log().record_failed_request(request, &failure)),
        }
    }

    /// Runs `store`, which may take as long as storing makes progress, and replies with its failure, or sends its result with `send`.
    pub(super) fn store_with<R: Reply, T>(
        &self,
        request: Request,
        reply: R,
        store: impl FnOnce(&FileSystem) -> Result<T, Failure> + Send + 'static,
        send: impl FnOnce(R, T) + Send + 'static,
    ) {
        let fs = self.fs.clone();
        let started = Instant::now();
        self.executor.submit(request, Deadline::WhileProgress, reply, move |slot| {
            let outcome = store(&fs);
            let Some(reply) = slot.take() else { return };
            match outcome {
                Ok(value) => send(reply, value),
                Err(failure) => reply.fail(failure.errno()),
            }
            let is_write = request.operation == "write";
            fs.log().record_time(
                if is_write { RequestKind::Write } else { RequestKind::Sync },
                request,
                started,
            );
        });
    }
}
