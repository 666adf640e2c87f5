//! Writing to arrays of a writable mount, in place. File sizes are fixed while the metadata stands
//! (`truncation.rs`), unless the mount may make arrays longer (`growth.rs`).
//!
//! Invariants: a failed write changes nothing that was durable; data that could not be stored stays dirty,
//! and every handle gets the error at its next fsync or close, no matter which operation caused the failed
//! attempt; fsync reports a failure once.

pub mod growth;
pub mod ranges;
pub mod truncation;
pub mod written_end;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::array::{Array, PendingWrite};
use crate::error::Error;
use crate::hierarchy::author;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::{OpenFile, Writer};
use crate::mount::fs::inode::{Entity, Inode, Kind};
use crate::mount::fs::open_files::ArrayFile;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::virtual_files::sidecar_edit::Draft;

/// How often a write or flush begins again because another program has made the array longer meanwhile.
const MAX_SUCCESSORS: usize = 100;

/// A write that can no longer fail, as far as can be known.
#[derive(Debug)]
pub struct AcceptedWrite {
    /// The number of bytes.
    pub length: u32,
    /// Pages of its range that may have been read before the write: they must be dropped before the reply.
    pub overtaken: Option<PageDrop>,
}

/// A write that cannot fail any more. Its bytes may not be copied yet: the reply comes first.
#[must_use = "the bytes are not written before it is finished"]
pub struct BegunWrite<'a> {
    /// What to reply.
    pub accepted: AcceptedWrite,
    /// Holds the locks of the chunks; `None` if the bytes are copied.
    pub pending: Option<PendingWrite<'a>>,
}

impl BegunWrite<'_> {
    /// Copies the bytes.
    pub fn finish(self) -> AcceptedWrite {
        if let Some(pending) = self.pending {
            pending.copy();
        }
        self.accepted
    }
}

impl FileSystem {
    /// The part of open(2) that makes a handle a writer.
    pub(super) fn open_writer(&self, array: &Arc<Array>, may_map: bool) -> FsResult<Writer> {
        array.open_for_writing()?;
        let reported = array.failures().0;
        Ok(Writer {
            array: array.clone(),
            reported: reported.into(),
            is_closing: AtomicBool::new(false),
            may_map,
            reported_by_close: reported.into(),
        })
    }

    /// As [`FileSystem::open_writer`], for open(2): brings the consolidated copies of the array's document in step with it, which a
    /// program that died, or that knows nothing of them, has left behind. In a remote store it is the copy that an array is read by:
    /// one that describes another array than the document has the kernel look the file up again.
    pub(super) fn open_writer_in_step(
        &self,
        inode: &Inode,
        array: &Arc<Array>,
        may_map: bool,
    ) -> FsResult<Writer> {
        let (store, path) = (self.nodes.store(), &inode.entity.path);
        let writer = self.open_writer(array, may_map);
        let is_described_otherwise = matches!(writer, Err(Failure::Error(Error::Stale { .. })));
        // A remote store is not asked for all groups above each time.
        let is_due = writer.is_ok() && !store.is_remote();
        let is_first = is_due && !inode.copies_compared.swap(true, Ordering::Relaxed);
        if !is_described_otherwise && !is_first {
            return writer;
        }
        if let Err(error) = author::update_copies(store.as_ref(), path) {
            log::warn!("/{path}: consolidated metadata above it is behind its document: {error}");
        }
        if is_described_otherwise {
            self.nodes.forget(path);
        }
        writer
    }

    /// Whether these flags ask for writing; fails if this kind of file cannot be written.
    pub(super) fn wants_writing(&self, entity: &Entity, flags: i32) -> FsResult<bool> {
        let wants = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        match (wants, entity.kind) {
            (false, _) => Ok(false),
            (true, _) if !self.options.writable => Err(Failure::Errno(libc::EROFS)),
            (true, Kind::Array | Kind::Commit) => Ok(true),
            (true, _) if entity.is_sidecar() => Ok(true),
            (true, _) => Err(Failure::Errno(libc::EACCES)),
        }
    }

    /// An array's file that may be written, and its current size.
    pub(super) fn writable<'a>(&self, file: &'a dyn OpenFile) -> FsResult<(&'a ArrayFile, u64)> {
        match file.as_array() {
            Some(array) if array.writer.is_some() => Ok((array, self.array_of(&array.inode)?.size_bytes())),
            // On this errno the kernel copies to a sidecar by reading and writing.
            None if file.is_writer() => Err(Failure::Errno(libc::EOPNOTSUPP)),
            _ => Err(Failure::Errno(libc::EBADF)),
        }
    }

    /// Runs a write or flush on the current array, and again for as long as the array has grown meanwhile.
    pub(super) fn on_current<T>(
        &self,
        inode: &Inode,
        opened: &Arc<Array>,
        run: impl Fn(&Array) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let current = || self.array_of(inode).unwrap_or_else(|_| opened.clone());
        let mut array = current();
        for _ in 0..MAX_SUCCESSORS {
            let outcome = run(&array);
            if !matches!(outcome, Err(Error::Stale { .. })) {
                return outcome;
            }
            if let Ok(cached) = self.nodes.current(&inode.entity.path) {
                let _ = self.context().reconcile(&inode.entity, &cached, Blocking::Yes);
            }
            let now = current();
            if Arc::ptr_eq(&array, &now) {
                return outcome;
            }
            array = now;
        }
        run(&array)
    }

    pub(super) fn array_of(&self, inode: &Inode) -> FsResult<Arc<Array>> {
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = inode.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        Ok(open.array.clone()?)
    }

    /// Writes and returns the number of bytes. Nothing can be written past the end of the file: EFBIG, or a
    /// short write. Pages of a memory map (`is_page`) are always accepted. Blocks on the store when too much
    /// is dirty.
    pub fn write(&self, handle: u64, offset: u64, data: &[u8], is_page: bool) -> FsResult<u32> {
        self.write_blocking(handle, offset, data, is_page).map(|accepted| accepted.length)
    }

    /// As [`FileSystem::write`]; also returns the pages to drop before the reply.
    pub fn write_blocking(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        is_page: bool,
    ) -> FsResult<AcceptedWrite> {
        let file = self.file(handle)?;
        self.write_file(&*file, (offset, data), is_page, Blocking::Yes).map(BegunWrite::finish)
    }

    /// As [`FileSystem::write`], but returns `None` where it would block; then the whole write must be
    /// repeated. The write that has begun cannot fail: every operation on the file from now on sees it, so the
    /// caller replies and then finishes it.
    pub fn try_begin_write<'a>(
        &self,
        handle: u64,
        offset: u64,
        data: &'a [u8],
        is_page: bool,
    ) -> FsResult<Option<BegunWrite<'a>>> {
        match self.write_file(&*self.file(handle)?, (offset, data), is_page, Blocking::No) {
            Ok(begun) => Ok(Some(begun)),
            Err(Failure::WouldBlock) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// A write(2) to an open file, as [`FileSystem::try_begin_write`] or [`FileSystem::write_blocking`] does.
    pub fn write_file<'a>(
        &self,
        file: &dyn OpenFile,
        data: (u64, &'a [u8]),
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<BegunWrite<'a>> {
        // A page of a memory map is taken at any time. It is part of what is in memory.
        let _entered = if is_page { None } else { Some(self.enter(blocking)?) };
        if let Some(array) = file.as_array() {
            self.check_append(array, data.0, is_page)?;
        }
        file.write(self, data, is_page, blocking)
    }

    pub(super) fn write_within<'a>(
        &self,
        file: &ArrayFile,
        offset: u64,
        data: &'a [u8],
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<BegunWrite<'a>> {
        let begun = |length, overtaken, pending| {
            Ok(BegunWrite { accepted: AcceptedWrite { length, overtaken }, pending })
        };
        let (_, mut size_bytes) = self.writable(file)?;
        let ArrayFile { inode, writer: Some(writer), cache_mode, drop, .. } = file else {
            return Err(Failure::Errno(libc::EBADF));
        };
        drop.note_use();
        if data.is_empty() {
            return begun(0, None, None);
        }
        if self.grows(file, (offset, data.len() as u64), is_page) {
            if blocking == Blocking::No {
                return Err(Failure::WouldBlock);
            }
            if offset == 0 {
                self.refuse_npy_header(inode, data)?;
            }
            size_bytes = self.grow_for_write(file, offset, data)?;
        }
        let room = size_bytes.saturating_sub(offset);
        if room == 0 {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let length = usize::try_from(room).unwrap_or(usize::MAX).min(data.len());
        let data = data.get(..length).unwrap_or(data);
        let written = u32::try_from(length).unwrap_or(u32::MAX);
        if offset == 0 && !is_page {
            self.refuse_npy_header(inode, data)?;
        }
        if !is_page && file.has_gap(offset) {
            // A write that is refused must not have zeroed anything.
            self.array_of(inode)?.check_write(offset, data)?;
        }
        let (mut end_guard, gap) = self.close_gap(inode, writer, offset, is_page, blocking)?;
        let pending =
            self.put_anywhere(inode, writer, (offset, data), is_page, blocking).map_err(|failure| {
                match failure {
                    Failure::Error(error) => {
                        self.write_failure(inode, &format!("write of {length} bytes at {offset}"), error)
                    }
                    failure => failure,
                }
            })?;
        if !is_page {
            self.ensure_serving()?;
        }
        writer.is_closing.store(false, Ordering::Relaxed);
        inode.counters.writes.fetch_add(1, Ordering::Relaxed);
        inode.counters.bytes_written.fetch_add(length as u64, Ordering::Relaxed);
        // A page of a memory map is never dropped before it is written.
        let fills_pages = !is_page && !cache_mode.is_direct();
        let range = offset..offset + length as u64;
        let drops = &inode.page_cache_users.drops;
        let overtaken = if fills_pages { drops.overtaken(range.clone()) } else { None };
        if let Some(end_guard) = end_guard.as_mut().filter(|end_guard| end_guard.end() >= Some(offset)) {
            let size_bytes = self.array_of(inode).map_or(size_bytes, |array| array.size_bytes());
            end_guard.advance(range.end, size_bytes);
        }
        begun(written, gap.map_or(overtaken, |start| Some(drops.begin(Some(start..range.end)))), pending)
    }

    /// Writes bytes into the array, also where the file may be mapped and directly written at the same time.
    /// Without blocking, the bytes may still have to be copied.
    pub(super) fn put_anywhere<'a>(
        &self,
        inode: &Inode,
        writer: &Writer,
        (offset, data): (u64, &'a [u8]),
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<Option<PendingWrite<'a>>> {
        let direct_writes = &inode.page_cache_users.direct_writes;
        let (range, may_wait) = (offset..offset + data.len() as u64, blocking == Blocking::Yes);
        let put = || match blocking {
            Blocking::No => self.try_begin_put(inode, (offset, data)).map(Some),
            Blocking::Yes => self.put(inode, writer, (offset, data), is_page).map(|()| None),
        };
        let outcome = if is_page {
            direct_writes.write_page(range.clone(), may_wait, |parts| {
                if parts == [range] {
                    return put();
                }
                // Rare, and each part is short.
                let parts = parts.into_iter().map(|part| {
                    let (from, to) = ((part.start - offset) as usize, (part.end - offset) as usize);
                    (part.start, data.get(from..to).unwrap_or_default())
                });
                match blocking {
                    Blocking::No => Err(Failure::WouldBlock),
                    Blocking::Yes => parts
                        .into_iter()
                        .try_for_each(|part| self.put(inode, writer, part, true))
                        .map(|()| None),
                }
            })
        } else {
            direct_writes.write(range, may_wait, put)
        };
        outcome.unwrap_or(Err(Failure::WouldBlock))
    }

    /// Writes bytes into the array.
    fn put(
        &self,
        inode: &Inode,
        writer: &Writer,
        (offset, data): (u64, &[u8]),
        is_page: bool,
    ) -> FsResult<()> {
        Ok(self.on_current(inode, &writer.array, |array| {
            if is_page { array.write_page(offset, data) } else { array.write_at(offset, data) }
        })?)
    }

    /// Begins to write bytes into the array unless that would block.
    fn try_begin_put<'a>(
        &self,
        inode: &Inode,
        (offset, data): (u64, &'a [u8]),
    ) -> FsResult<PendingWrite<'a>> {
        let array = self.array_of(inode).map_err(|_| Failure::WouldBlock)?;
        array.try_begin_write(offset, data)?.ok_or(Failure::WouldBlock)
    }

    pub(super) fn write_failure(&self, inode: &Inode, request: &str, error: Error) -> Failure {
        let failure = Failure::from(error);
        self.note_failure(inode, request, &failure);
        failure
    }

    /// close(2) of one descriptor: stores dirty data. A failure that close reports counts as reported for
    /// later closes, but not for fsync, since the result of close is often ignored: a program that starts
    /// another one closes all its files in it.
    pub fn flush(&self, handle: u64) -> FsResult<()> {
        self.flush_by(handle, 0)
    }

    /// As [`FileSystem::flush`], for a process id, 0 if unknown: only the process that truncated the file
    /// must write it to its end.
    pub fn flush_by(&self, handle: u64, process: u32) -> FsResult<()> {
        self.file(handle)?.flush(self, handle, process)
    }

    /// fsync(2): stores dirty data durably.
    pub fn sync(&self, handle: u64) -> FsResult<()> {
        let file = self.file(handle)?;
        file.fsync(self)?;
        file.as_array().map_or(Ok(()), |array| self.ensure_complete(array, None))
    }

    /// `reported_before` returns the number of failures that were reported on this handle before, and may
    /// store the new number.
    pub(super) fn store(
        &self,
        file: &ArrayFile,
        request: &str,
        store: impl Fn(&Array) -> Result<(), Error>,
        reported_before: impl Fn(&Writer, u64) -> u64,
    ) -> FsResult<()> {
        let ArrayFile { inode, writer, drop, .. } = file;
        drop.note_use();
        let Some(writer) = writer else {
            // A reader of a replaced array has nothing to store.
            let Ok(array) = self.array_of(inode) else { return Ok(()) };
            if !array.was_written() {
                return Ok(());
            }
            let stored = self.on_current(inode, &array, store);
            return stored.map_err(|error| self.write_failure(inode, request, error));
        };
        let stored = self.on_current(inode, &writer.array, store);
        if let Err(error @ Error::Stale { .. }) = &stored {
            writer.array.note_failure(error);
        }
        // The array at the time of the open counts the failures, however often it has grown.
        let (failures, last) = writer.array.failures();
        let reported = reported_before(writer, failures);
        match (stored, last) {
            (Err(error), _) => Err(self.write_failure(inode, request, error)),
            // This attempt succeeded, but an earlier one failed that was not reported on this handle yet.
            (Ok(()), Some(error)) if reported < failures => Err(Failure::from(error)),
            _ => Ok(()),
        }
    }

    pub(super) fn apply_draft(&self, inode: &Inode, draft: &Draft, request: &str) -> FsResult<()> {
        let _entered = self.enter(Blocking::Yes)?;
        let applied = self.drafts.apply(&self.context(), inode, draft);
        applied.inspect_err(|failure| self.note_failure(inode, request, failure))
    }

    /// The end of a handle that may write: pages of a map that was unmapped after the last close arrive until
    /// now.
    pub(super) fn end_writer(&self, file: &ArrayFile) {
        let ArrayFile { inode, writer: Some(writer), .. } = file else { return };
        if writer.array.is_dirty()
            && let Err(error) = self.on_current(inode, &writer.array, Array::flush)
        {
            self.note_failure(inode, "last close", &Failure::from(error));
        }
        writer.array.close_for_writing();
        self.finish_truncation(inode, &writer.array);
    }

    /// From now on reads fail, and writes fail except for pages of memory maps: exactly the writes with a
    /// successful reply are stored at the end. A page that the kernel has given up cannot be read again.
    pub fn end_service(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Fails with ENOTCONN, as every request to a dead daemon does. A write checks this once its chunks are
    /// dirty: if the check passes, they were dirty before the end began.
    pub(super) fn ensure_serving(&self) -> FsResult<()> {
        if self.has_ended.load(Ordering::SeqCst) { Err(Failure::Errno(libc::ENOTCONN)) } else { Ok(()) }
    }

    /// Stores chunks that were not written for this long, as the timer does.
    pub fn store_due(&self, writeback_delay: Duration) {
        self.engine.store_settled(writeback_delay);
    }

    /// Stores everything that is dirty, durably; gives up where nothing is stored for `stall_timeout`.
    /// Returns the arrays that could not be stored, with the reasons.
    pub fn store_all(&self, stall_timeout: Duration) -> Vec<(String, Error)> {
        self.engine.store_all(stall_timeout)
    }

    /// Chunks and shards stored so far, and objects that commits have sent.
    pub fn stored_objects(&self) -> u64 {
        self.engine.counters().objects_stored + self.commits.sent()
    }

    /// Bytes that are written and not stored yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.engine.counters().dirty_bytes
    }

    /// The inodes with pages that may have been written through a memory map.
    pub fn written_inodes(&self) -> Vec<u64> {
        let was_written = |inode: &Arc<Inode>| {
            inode.open_array().is_some_and(|open| open.array.as_ref().is_ok_and(|array| array.was_written()))
        };
        let arrays = self.inodes.opened_arrays();
        arrays.iter().filter(|inode| was_written(inode)).map(|inode| inode.number).collect()
    }
}
