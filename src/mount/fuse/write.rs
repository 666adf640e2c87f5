//! Writing through FUSE. A session thread takes a write if that does not block, and replies as soon as the
//! write is accepted; all other requests here run on other threads.
//!
//! Requests that store data (close, fsync, the last release) have no fixed deadline: as long as something is
//! stored, their reply must be the true one.

use std::sync::Arc;
use std::time::Instant;

use fuser::{Errno, FileHandle, INodeNo, ReplyAttr, ReplyEmpty, ReplyWrite};

use crate::array::DecodeMeter;
use crate::memory::Buffer;
use crate::mount::access_log::handle::{FileAccess, FileReply};
use crate::mount::fs::FileSystem;
use crate::mount::fs::attributes::{SetAttr, Stat};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::open_file::{AcceptedWrite, BegunWrite, CopyResult, FileRange, FileWrite, OpenFile};
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::request::Request;
use crate::mount::fuse::adapter::Fuse;
use crate::mount::fuse::attr::file_attr;
use crate::mount::fuse::executor::{Deadline, Reply};
use crate::mount::fuse::invalidate::{SharedNotifier, drop_pages, drop_pages_then};
use crate::mount::metrics::RequestKind;

/// A write request with its reply.
pub(super) struct WriteRequest<'a> {
    pub inode: INodeNo,
    pub file: Arc<dyn OpenFile>,
    pub offset: u64,
    pub data: &'a [u8],
    /// Whether it is a page of a memory map.
    pub is_page: bool,
    /// The number of the request, the same if the kernel sends it again.
    pub number: u64,
    pub reply: ReplyWrite,
}

/// A copy_file_range request with its reply.
pub(super) struct CopyRequest {
    /// The inode that is written.
    pub inode: INodeNo,
    pub from: FileHandle,
    pub from_offset: u64,
    pub to: FileHandle,
    pub to_offset: u64,
    pub length: u64,
    pub reply: ReplyWrite,
}

impl Fuse {
    pub(super) fn reply_write(&self, write: WriteRequest<'_>) {
        let WriteRequest { inode, file, offset, data, is_page, number, reply } = write;
        let started = Instant::now();
        let request = Request::ranged(inode.0, "write", offset, data.len() as u64);
        match file.write(FileWrite { offset, data, is_page, blocking: Blocking::No, request: number }) {
            Ok(BegunWrite { accepted, pending }) => {
                reply_written(&self.notifier, inode, accepted, reply);
                self.fs.log().record_time(RequestKind::Write, request, started);
                if let Some(pending) = pending {
                    pending.copy();
                }
                return;
            }
            Err(Failure::WouldBlock) => {}
            Err(failure) => return reply.fail(failure.errno()),
        }
        if !is_page && file.needs_store(FileRange { offset, length: data.len() as u64 }) {
            let write = WriteRequest { inode, file, offset, data, is_page, number, reply };
            return self.reply_stored_write(write, |_| Ok(()));
        }
        let fs = self.fs.clone();
        let notifier = self.notifier.clone();
        let data = Buffer::from(data);
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let write = FileWrite { offset, data: &data, is_page, blocking: Blocking::Yes, request: number };
            let written = file.write(write).map(BegunWrite::finish);
            let Some(reply) = slot.take() else { return };
            match written {
                Ok(accepted) => reply_written(&notifier, inode, accepted, reply),
                Err(failure) => reply.fail(failure.errno()),
            }
            fs.log().record_time(RequestKind::Write, request, started);
        });
    }

    /// Does a direct write with O_SYNC or O_DSYNC. No fsync follows it, so it is stored before the reply.
    pub(super) fn reply_synchronous_write(&self, write: WriteRequest<'_>) {
        self.reply_stored_write(write, |file| file.fsync());
    }

    /// Does a write without a deadline, because it stores data or zeros a gap. `then` runs after it.
    fn reply_stored_write(
        &self,
        write: WriteRequest<'_>,
        then: impl FnOnce(&dyn OpenFile) -> FsResult<()> + Send + 'static,
    ) {
        let WriteRequest { inode, file, offset, data, number, reply, .. } = write;
        let notifier = self.notifier.clone();
        let data = Buffer::from(data);
        let request = Request::ranged(inode.0, "write", offset, data.len() as u64);
        let store = move |_: &FileSystem| {
            let blocking = Blocking::Yes;
            let write = FileWrite { offset, data: &data, is_page: false, blocking, request: number };
            let accepted = file.write(write)?.finish();
            then(&*file)?;
            Ok(accepted)
        };
        let send = move |reply, accepted| reply_written(&notifier, inode, accepted, reply);
        self.store_with(request, reply, store, send);
    }

    pub(super) fn reply_flush(&self, inode: INodeNo, handle: FileHandle, thread: u32, reply: ReplyEmpty) {
        // The thread waits for the reply, but its process may be killed.
        let file = self.fs.file(handle.0);
        let is_short = file.is_ok_and(|file| file.is_incomplete());
        let process = if is_short { (self.process_of)(thread).unwrap_or(0) } else { 0 };
        let notifier = self.notifier.clone();
        let store = move |fs: &FileSystem| {
            let stored = fs.file(handle.0).and_then(|file| file.flush(handle.0, process));
            drop_lossy_pages(fs, &notifier, inode, handle);
            stored
        };
        self.store_with(Request::new(inode.0, "close"), reply, store, done);
    }

    pub(super) fn reply_fsync(&self, inode: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
        let notifier = self.notifier.clone();
        let store = move |fs: &FileSystem| {
            let stored = fs.file(handle.0).and_then(|file| file.sync());
            drop_lossy_pages(fs, &notifier, inode, handle);
            stored
        };
        self.store_with(Request::new(inode.0, "fsync"), reply, store, done);
    }

    /// Replies to the fsync of a folder, which stores everything that the mount has.
    pub(super) fn reply_fsyncdir(&self, inode: INodeNo, reply: ReplyEmpty) {
        let stall_timeout = self.fs.options().request_deadline;
        let store = move |fs: &FileSystem| match fs.store_all(stall_timeout).into_iter().next() {
            Some((_, error)) => Err(Failure::Error(error)),
            None => Ok(()),
        };
        self.store_with(Request::new(inode.0, "fsync"), reply, store, done);
    }

    pub(super) fn reply_release(&self, inode: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
        let file = self.fs.file(handle.0);
        if !file.as_ref().is_ok_and(|file| file.is_writer()) {
            if file.is_ok_and(|file| file.is_passthrough()) {
                self.passthrough.release(&self.fs, inode.0, handle.0);
            }
            self.fs.opens().release(handle.0);
            return reply.ok();
        }
        let release = move |fs: &FileSystem| {
            fs.opens().release(handle.0);
            Ok(())
        };
        self.store_with(Request::new(inode.0, "release"), reply, release, done);
    }

    pub(super) fn reply_setattr(&self, inode: INodeNo, thread: u32, change: SetAttr, reply: ReplyAttr) {
        let notifier = self.notifier.clone();
        let request = Request::new(inode.0, "setattr");
        let process_of = self.process_of;
        let make = move |fs: &FileSystem| {
            let process = change.size_bytes.and_then(|_| process_of(thread)).unwrap_or(0);
            fs.set_attributes(inode.0, SetAttr { process, ..change })
        };
        let send = move |reply: ReplyAttr, (found, drop): (Stat, Option<PageDrop>)| {
            let send_reply = move || reply.attr(&found.valid_for, &file_attr(&found.attributes));
            // The shown size does not change, so the kernel would keep its pages.
            match drop {
                Some(drop) => drop_pages_then(&notifier, inode, drop, send_reply),
                None => send_reply(),
            }
        };
        if change.size_bytes.is_some() {
            // Zeroing takes longer for a longer gap, so there is no deadline.
            return self.store_with(request, reply, make, send);
        }
        let fs = self.fs.clone();
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let changed = make(&fs);
            let Some(reply) = slot.take() else { return };
            match changed {
                Ok(found) => send(reply, found),
                Err(failure) => reply.fail(failure.errno()),
            }
        });
    }

    pub(super) fn reply_allocate(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        range: FileRange,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let fs = self.fs.clone();
        let notifier = self.notifier.clone();
        let request = Request::ranged(inode.0, "fallocate", range.offset, range.length);
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let cancellation = slot.cancellation();
            let file = fs.file(handle.0);
            let allocated = file.and_then(|file| file.allocate(range, mode, &cancellation));
            let Some(reply) = slot.take() else { return };
            match allocated {
                // The kernel drops the pages of the range before it unlocks the inode.
                Ok(None) => reply.ok(),
                Ok(Some(drop)) => drop_pages_then(&notifier, inode, drop, move || reply.ok()),
                Err(failure) => reply.fail(failure.errno()),
            }
        });
    }

    pub(super) fn reply_copy(&self, copy: CopyRequest) {
        let CopyRequest { inode, from, from_offset, to, to_offset, length, reply } = copy;
        let fs = self.fs.clone();
        // One reply can count this much, and one deadline is long enough for it.
        let length = length.min(64 << 20);
        let notifier = self.notifier.clone();
        let (request, started) =
            (Request::ranged(inode.0, "copy_file_range", to_offset, length), Instant::now());
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let cancellation = slot.cancellation();
            let copied = fs.file(to.0).and_then(|file| {
                let source = fs.handles().get_recorded(from.0)?;
                let meter = source.access.as_deref().map(FileAccess::meter);
                let copied = DecodeMeter::run(meter, || {
                    file.copy_from(&*source.file, from_offset, to_offset, length, &cancellation)
                });
                if let (Some(access), Ok(CopyResult { length, .. })) = (&source.access, &copied) {
                    let (offset, length) = (from_offset, Some(*length));
                    let waited = started.elapsed();
                    access.record(FileReply { offset, length, is_of_pages: false, waited });
                }
                copied
            });
            let Some(reply) = slot.take() else { return };
            match copied {
                Ok(CopyResult { length, page_drop: None }) => reply.written(length as u32),
                Ok(CopyResult { length, page_drop: Some(drop) }) => {
                    drop_pages_then(&notifier, inode, drop, move || reply.written(length as u32));
                }
                Err(failure) => reply.fail(failure.errno()),
            }
        });
    }

    /// Returns the errno of requests that would make a name that the hierarchy cannot have.
    pub(super) fn refusal(&self) -> Errno {
        if self.fs.options().writable { Errno::EPERM } else { Errno::EROFS }
    }
}

fn done(reply: ReplyEmpty, (): ()) {
    reply.ok();
}

/// Drops kernel pages of data that went through lossy codecs: the pages still hold what was written.
fn drop_lossy_pages(fs: &FileSystem, notifier: &SharedNotifier, inode: INodeNo, handle: FileHandle) {
    let file = fs.file(handle.0).ok();
    if let Some(drop) = file.and_then(|file| file.lossy_pages()) {
        drop_pages(notifier, inode, drop);
    }
}

/// Replies to a write when no page of its range is outdated any more.
fn reply_written(notifier: &SharedNotifier, inode: INodeNo, accepted: AcceptedWrite, reply: ReplyWrite) {
    let length = accepted.length;
    match accepted.page_drop {
        Some(drop) => drop_pages_then(notifier, inode, drop, move || reply.written(length)),
        None => reply.written(length),
    }
}
