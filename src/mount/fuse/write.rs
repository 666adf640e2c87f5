//! Writing through FUSE. A session thread takes a write if that does not block, and replies as soon as the
//! write is accepted; all other requests here run on other threads.
//!
//! Requests that store data (close, fsync, the last release) have no fixed deadline: as long as something is
//! stored, their reply must be the true one.

use std::sync::Arc;
use std::time::Instant;

use fuser::{Errno, FileHandle, INodeNo, ReplyAttr, ReplyEmpty, ReplyWrite};

use crate::memory::Buffer;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::OpenFile;
use crate::mount::fs::open_files::ArrayFile;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::request::Request;
use crate::mount::fs::write::ranges::CopyResult;
use crate::mount::fs::write::truncation::SetAttr;
use crate::mount::fs::write::{AcceptedWrite, BegunWrite};
use crate::mount::fs::{FileSystem, Stat};
use crate::mount::fuse::Fuse;
use crate::mount::fuse::attr::file_attr;
use crate::mount::fuse::executor::{Deadline, Reply};
use crate::mount::fuse::invalidate::{SharedNotifier, drop_pages, drop_pages_then};
use crate::mount::metrics::RequestKind;

impl Fuse {
    pub(super) fn reply_write(
        &self,
        inode: INodeNo,
        file: Arc<dyn OpenFile>,
        offset: u64,
        data: &[u8],
        is_page: bool,
        reply: ReplyWrite,
    ) {
        let started = Instant::now();
        let request = Request::ranged(inode.0, "write", offset, data.len() as u64);
        match self.fs.write_file(&*file, (offset, data), is_page, Blocking::No) {
            Ok(BegunWrite { accepted, pending }) => {
                reply_written(&self.notifier, inode, accepted, reply);
                self.fs.note_time(RequestKind::Write, request, started);
                if let Some(pending) = pending {
                    pending.copy();
                }
                return;
            }
            Err(Failure::WouldBlock) => {}
            Err(failure) => return reply.fail(failure.errno()),
        }
        let stores = |array: &ArrayFile| {
            array.has_gap(offset) || self.fs.grows(array, (offset, data.len() as u64), is_page)
        };
        if !is_page && file.as_array().is_some_and(stores) {
            return self.reply_stored_write(inode, file, (offset, data), |_, _| Ok(()), reply);
        }
        let fs = self.fs.clone();
        let notifier = self.notifier.clone();
        let data = Buffer::from(data);
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let written = fs.write_file(&*file, (offset, &data), is_page, Blocking::Yes);
            let written = written.map(BegunWrite::finish);
            let Some(reply) = slot.take() else { return };
            match written {
                Ok(accepted) => reply_written(&notifier, inode, accepted, reply),
                Err(failure) => reply.fail(failure.errno()),
            }
            fs.note_time(RequestKind::Write, request, started);
        });
    }

    /// A direct write with O_SYNC or O_DSYNC: no fsync follows it, so it is stored before the reply.
    pub(super) fn reply_synchronous_write(
        &self,
        inode: INodeNo,
        file: Arc<dyn OpenFile>,
        offset: u64,
        data: &[u8],
        reply: ReplyWrite,
    ) {
        self.reply_stored_write(inode, file, (offset, data), |fs, file| file.fsync(fs), reply);
    }

    /// A write without a deadline, since it stores data: `then` runs after it, and a gap before it is zeroed.
    fn reply_stored_write(
        &self,
        inode: INodeNo,
        file: Arc<dyn OpenFile>,
        (offset, data): (u64, &[u8]),
        then: impl FnOnce(&FileSystem, &dyn OpenFile) -> FsResult<()> + Send + 'static,
        reply: ReplyWrite,
    ) {
        let notifier = self.notifier.clone();
        let data = Buffer::from(data);
        let request = Request::ranged(inode.0, "write", offset, data.len() as u64);
        let store = move |fs: &FileSystem| {
            let written = fs.write_file(&*file, (offset, &data), false, Blocking::Yes)?;
            let accepted = written.finish();
            then(fs, &*file)?;
            Ok(accepted)
        };
        let send = move |reply, accepted| reply_written(&notifier, inode, accepted, reply);
        self.store_with(request, reply, store, send);
    }

    pub(super) fn reply_flush(&self, inode: INodeNo, handle: FileHandle, thread: u32, reply: ReplyEmpty) {
        // The thread waits for the reply, but its process may be killed.
        let file = self.fs.file(handle.0);
        let is_short = file.is_ok_and(|file| file.as_array().is_some_and(ArrayFile::is_cut_short));
        let process = if is_short { (self.process_of)(thread).unwrap_or(0) } else { 0 };
        let notifier = self.notifier.clone();
        let store = move |fs: &FileSystem| {
            let stored = fs.flush_by(handle.0, process);
            drop_lossy_pages(fs, &notifier, inode, handle);
            stored
        };
        self.store_with(Request::new(inode.0, "close"), reply, store, done);
    }

    pub(super) fn reply_fsync(&self, inode: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
        let notifier = self.notifier.clone();
        let store = move |fs: &FileSystem| {
            let stored = fs.sync(handle.0);
            drop_lossy_pages(fs, &notifier, inode, handle);
            stored
        };
        self.store_with(Request::new(inode.0, "fsync"), reply, store, done);
    }

    /// fsync of a folder stores everything of the mount.
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
            if file.is_ok_and(|file| file.as_array().is_some_and(ArrayFile::is_passthrough)) {
                self.passthrough.release(inode.0, handle.0);
            }
            self.fs.release(handle.0);
            return reply.ok();
        }
        let release = move |fs: &FileSystem| {
            fs.release(handle.0);
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
            // The size does not change, so the kernel would keep the pages.
            match drop {
                Some(drop) => drop_pages_then(&notifier, inode, drop, send_reply),
                None => send_reply(),
            }
        };
        if change.size_bytes.is_some() {
            // Zeroing the gap takes as long as the gap is.
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
        (offset, length): (u64, u64),
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let fs = self.fs.clone();
        let notifier = self.notifier.clone();
        let request = Request::ranged(inode.0, "fallocate", offset, length);
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let allocated = fs.allocate(handle.0, (offset, length), mode, &slot.cancellation());
            let Some(reply) = slot.take() else { return };
            match allocated {
                // The kernel drops the pages of the range before it unlocks the inode.
                Ok(None) => reply.ok(),
                Ok(Some(drop)) => drop_pages_then(&notifier, inode, drop, move || reply.ok()),
                Err(failure) => reply.fail(failure.errno()),
            }
        });
    }

    pub(super) fn reply_copy(
        &self,
        (from, from_offset): (FileHandle, u64),
        (inode, to, to_offset): (INodeNo, FileHandle, u64),
        length: u64,
        reply: ReplyWrite,
    ) {
        let fs = self.fs.clone();
        // What one reply can count, and what fits one deadline.
        let length = length.min(64 << 20);
        let notifier = self.notifier.clone();
        let request = Request::ranged(inode.0, "copy_file_range", to_offset, length);
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let copied = fs.copy(from.0, from_offset, to.0, to_offset, length, &slot.cancellation());
            let Some(reply) = slot.take() else { return };
            match copied {
                Ok(CopyResult { length, drop: None }) => reply.written(length as u32),
                Ok(CopyResult { length, drop: Some(drop) }) => {
                    drop_pages_then(&notifier, inode, drop, move || reply.written(length as u32));
                }
                Err(failure) => reply.fail(failure.errno()),
            }
        });
    }

    /// The errno for requests that would create or remove a name: refused, since the store determines the
    /// names.
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
    if let Some(drop) = file.and_then(|file| file.as_array()?.lossy_pages()) {
        drop_pages(notifier, inode, drop);
    }
}

/// Replies to a write, once no page of its range is outdated.
fn reply_written(notifier: &SharedNotifier, inode: INodeNo, accepted: AcceptedWrite, reply: ReplyWrite) {
    let length = accepted.length;
    match accepted.overtaken {
        Some(drop) => drop_pages_then(notifier, inode, drop, move || reply.written(length)),
        None => reply.written(length),
    }
}
