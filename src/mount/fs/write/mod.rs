//! Writing files: arrays of a writable mount, in place. Their sizes are fixed while the metadata stands (`truncation.rs`).
//!
//! Invariants: a write that fails changes nothing that was safe; what could not be stored stays dirty, and every handle hears
//! of it at its next fsync or close, whoever caused the attempt that failed; fsync tells of a failure once.

pub mod ranges;
pub mod truncation;
pub mod written_end;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::array::Array;
use crate::error::Error;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::Handle;
use crate::mount::fs::inode::{Inode, Kind};
use crate::mount::fs::page_cache::direct_writes::DirectWrites;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::virtual_files::sidecar_edit::is_sidecar;

/// What a handle that writes remembers.
pub struct Writer {
    /// The array as it was opened, for when another has taken its place.
    array: Arc<Array>,
    /// Failed write-backs that its user has been told of.
    reported: AtomicU64,
    /// A close(2) was the last that came through it: it is probably closed, and its release on its way.
    pub(super) is_closing: AtomicBool,
    /// It may have mapped the file: it is open for reading, too.
    pub(super) may_map: bool,
    /// Those that a close(2) told of: of dd, say, whose first close stores zeros that the codecs cannot encode.
    reported_by_close: AtomicU64,
}

/// A write that is sure to be in the array, as far as anybody can see.
#[derive(Debug)]
pub struct AcceptedWrite {
    /// How many bytes.
    pub length: u32,
    /// Pages of its range may have been read before it: they are to be dropped before it is answered.
    pub overtaken: Option<PageDrop>,
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

    /// Whether a file may be opened so: `Some(true)` for writing.
    pub(super) fn wants_writing(&self, kind: Kind, flags: i32) -> FsResult<bool> {
        let wants = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        match (wants, kind) {
            (false, _) => Ok(false),
            (true, _) if !self.options.writable => Err(Failure::Errno(libc::EROFS)),
            (true, Kind::Array) => Ok(true),
            (true, kind) if is_sidecar(kind) => Ok(true),
            (true, _) => Err(Failure::Errno(libc::EACCES)),
        }
    }

    /// A handle that may write, and how long its file is now.
    pub(super) fn writable(&self, handle: u64) -> FsResult<(Arc<Handle>, u64)> {
        let handle = self.handles.get(handle).ok_or(Failure::Errno(libc::EBADF))?;
        let size_bytes = match &*handle {
            Handle::Array { inode, writer: Some(_), .. } => self.array_of(inode)?.size_bytes(),
            // The kernel then copies to a sidecar by reading and writing.
            Handle::Draft { .. } => return Err(Failure::Errno(libc::EOPNOTSUPP)),
            _ => return Err(Failure::Errno(libc::EBADF)),
        };
        Ok((handle, size_bytes))
    }

    /// Runs what writes or stores on the array as it stands; once more, where it turns out to have grown meanwhile.
    pub(super) fn on_current<T>(
        &self,
        inode: &Inode,
        opened: &Arc<Array>,
        run: impl Fn(&Array) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let current = || self.array_of(inode).unwrap_or_else(|_| opened.clone());
        let array = current();
        let outcome = run(&array);
        if !matches!(outcome, Err(Error::Stale { .. })) {
            return outcome;
        }
        if let Ok(cached) = self.nodes.current(&inode.entity.path) {
            let _ = self.reconcile(&inode.entity, &cached, Blocking::Yes);
        }
        let now = current();
        if Arc::ptr_eq(&array, &now) { outcome } else { run(&now) }
    }

    pub(super) fn array_of(&self, inode: &Inode) -> FsResult<Arc<Array>> {
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = inode.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        Ok(open.array.clone()?)
    }

    /// Writes; how many bytes. Nothing can be written behind the end: EFBIG, or less than was asked for. Pages of a memory
    /// map (`is_page`) are always taken. Blocks on the store when too much is dirty.
    pub fn write(&self, handle: u64, offset: u64, data: &[u8], is_page: bool) -> FsResult<u32> {
        self.write_blocking(handle, offset, data, is_page, |_| ())
    }

    /// As [`FileSystem::write`]; `accept` is told before it returns.
    pub fn write_blocking(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        is_page: bool,
        accept: impl FnOnce(AcceptedWrite),
    ) -> FsResult<u32> {
        self.write_within(handle, offset, data, is_page, Blocking::Yes, accept)
    }

    /// As [`FileSystem::write`], where nothing has to be waited for: `None` otherwise, and all is to be written again. `accept`
    /// is told how many bytes as soon as they are sure to be written, perhaps before they are: everything that is asked of the
    /// file from then on finds them.
    pub fn try_write(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        is_page: bool,
        accept: impl FnOnce(AcceptedWrite),
    ) -> FsResult<Option<u32>> {
        match self.write_within(handle, offset, data, is_page, Blocking::No, accept) {
            Ok(length) => Ok(Some(length)),
            Err(Failure::WouldBlock) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Whether a write with these flags (those of its file and its own, O_DSYNC for RWF_DSYNC) is to be stored before it is
    /// answered. Through the page cache the kernel sends an fsync itself.
    pub fn stores_at_once(&self, handle: u64, flags: i32) -> bool {
        flags & libc::O_DSYNC != 0
            && self.handles.get(handle).is_some_and(|handle| match &*handle {
                Handle::Array { cache_mode, .. } => cache_mode.is_direct() || flags & libc::O_DIRECT != 0,
                _ => false,
            })
    }

    fn write_within(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        is_page: bool,
        blocking: Blocking,
        accept: impl FnOnce(AcceptedWrite),
    ) -> FsResult<u32> {
        let accept = |length, overtaken| accept(AcceptedWrite { length, overtaken });
        if let Some(Handle::Draft { draft, .. }) = self.handles.get(handle).as_deref() {
            return draft.write(offset, data).inspect(|&length| accept(length, None));
        }
        let (handle, size_bytes) = self.writable(handle)?;
        let Handle::Array { inode, writer: Some(writer), cache_mode, drop, .. } = &*handle else {
            return Err(Failure::Errno(libc::EBADF));
        };
        drop.note_use();
        if data.is_empty() {
            accept(0, None);
            return Ok(0);
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
        let (mut moving, gap) = self.close_gap(inode, writer, offset, is_page, blocking)?;
        let accepted = || {
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
            if let Some(moving) = moving.as_mut().filter(|moving| moving.end() >= Some(offset)) {
                moving.advance(range.end, size_bytes);
            }
            accept(written, gap.map_or(overtaken, |start| Some(drops.begin(Some(start..range.end)))));
            Ok(())
        };
        let outcome = match (inode.page_cache_users.direct_writes(), blocking) {
            (None, Blocking::No) => self.try_put(inode, (offset, data), accepted),
            _ => {
                self.put_anywhere(inode, writer, (offset, data), is_page, blocking).and_then(|()| accepted())
            }
        };
        outcome.map(|()| written).map_err(|failure| match failure {
            Failure::Error(error) => {
                self.write_failure(inode, &format!("write of {length} bytes at {offset}"), error)
            }
            failure => failure,
        })
    }

    /// Puts bytes into the array, whether or not the file may be mapped and written past the page cache, too.
    pub(super) fn put_anywhere(
        &self,
        inode: &Inode,
        writer: &Writer,
        (offset, data): (u64, &[u8]),
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<()> {
        let put = |from: u64, data: &[u8]| self.put(inode, writer, (from, data), is_page, blocking);
        match inode.page_cache_users.direct_writes() {
            None => put(offset, data),
            Some(direct_writes) => {
                self.put_beside_maps(direct_writes, (offset, data), is_page, blocking, put)
            }
        }
    }

    /// Puts bytes into the array.
    fn put(
        &self,
        inode: &Inode,
        writer: &Writer,
        (offset, data): (u64, &[u8]),
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<()> {
        match blocking {
            Blocking::No => self.try_put(inode, (offset, data), || Ok(())),
            Blocking::Yes => Ok(self.on_current(inode, &writer.array, |array| {
                if is_page { array.write_page(offset, data) } else { array.write_at(offset, data) }
            })?),
        }
    }

    /// Puts bytes into the array if nothing has to be waited for, and once they are accepted.
    fn try_put(
        &self,
        inode: &Inode,
        (offset, data): (u64, &[u8]),
        accept: impl FnOnce() -> FsResult<()>,
    ) -> FsResult<()> {
        let array = self.array_of(inode).map_err(|_| Failure::WouldBlock)?;
        match array.write_now(offset, data, accept)? {
            true => Ok(()),
            false => Err(Failure::WouldBlock),
        }
    }

    /// Has bytes put into the array where the file may be mapped and is written past the page cache, too.
    fn put_beside_maps(
        &self,
        direct_writes: &DirectWrites,
        (offset, data): (u64, &[u8]),
        is_page: bool,
        blocking: Blocking,
        put: impl Fn(u64, &[u8]) -> FsResult<()>,
    ) -> FsResult<()> {
        let _writing = match blocking {
            Blocking::No => direct_writes.writing.try_lock().ok_or(Failure::WouldBlock)?,
            Blocking::Yes => direct_writes.writing.lock(),
        };
        let range = offset..offset + data.len() as u64;
        if !is_page {
            direct_writes.insert(range.clone());
            let outcome = put(offset, data);
            // A page that was read meanwhile may have either.
            direct_writes.insert(range);
            return outcome;
        }
        direct_writes.outside(range).into_iter().try_for_each(|part| {
            let (from, to) = ((part.start - offset) as usize, (part.end - offset) as usize);
            put(part.start, data.get(from..to).unwrap_or_default())
        })
    }

    pub(super) fn write_failure(&self, inode: &Inode, request: &str, error: Error) -> Failure {
        let failure = Failure::from(error);
        self.note_failure(inode, request, &failure);
        failure
    }

    /// close(2) of one descriptor: stores what is dirty. An earlier failure that it tells of counts as told for other closes, and not
    /// for fsync, since nobody may have listened: a program that starts another closes all its files in it.
    pub fn flush(&self, handle: u64) -> FsResult<()> {
        self.flush_by(handle, 0)
    }

    /// As [`FileSystem::flush`], for a process, 0 where it is not known: another one than has cut the file short may leave the rest
    /// to that one.
    pub fn flush_by(&self, handle: u64, process: u32) -> FsResult<()> {
        self.store_for_close(handle)?;
        self.ensure_complete(handle, Some(process))
    }

    fn store_for_close(&self, handle: u64) -> FsResult<()> {
        self.store(handle, "close", Array::flush, |writer, now| {
            let reported_by_close = writer.reported_by_close.swap(now, Ordering::AcqRel);
            reported_by_close.max(writer.reported.load(Ordering::Acquire))
        })
    }

    /// fsync(2): stores what is dirty and makes it last.
    pub fn sync(&self, handle: u64) -> FsResult<()> {
        self.sync_write(handle)?;
        self.ensure_complete(handle, None)
    }

    /// What a synchronous write waits for: all that fsync(2) does, also in a file that is still short.
    pub fn sync_write(&self, handle: u64) -> FsResult<()> {
        self.store(handle, "fsync", Array::sync, |writer, now| writer.reported.swap(now, Ordering::AcqRel))
    }

    /// `told_before` gives how many failures the descriptor was told of before, and may note how many there are now.
    fn store(
        &self,
        handle: u64,
        request: &str,
        store: impl Fn(&Array) -> Result<(), Error>,
        reported_before: impl Fn(&Writer, u64) -> u64,
    ) -> FsResult<()> {
        let handle = self.handles.get(handle).ok_or(Failure::Errno(libc::EBADF))?;
        if let Handle::Draft { inode, draft } = &*handle {
            return self.apply_draft(inode, draft, request);
        }
        let Handle::Array { inode, writer, drop, .. } = &*handle else { return Ok(()) };
        drop.note_use();
        let Some(writer) = writer else {
            // A reader of an array that was replaced has nothing to store.
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
        // Failures are counted in one place, however often the array has grown.
        let (failures, last) = writer.array.failures();
        let reported = reported_before(writer, failures);
        match (stored, last) {
            (Err(error), _) => Err(self.write_failure(inode, request, error)),
            // It went through now, but failed meanwhile: this descriptor has not heard of it.
            (Ok(()), Some(error)) if reported < failures => Err(Failure::from(error)),
            _ => Ok(()),
        }
    }

    /// The end of a handle that wrote: pages of a map that was unmapped after the last close come until now.
    pub(super) fn end_writer(&self, handle: &Handle) {
        if let Handle::Draft { inode, draft } = handle
            && Arc::strong_count(draft) == 1
        {
            let _ = self.apply_draft(inode, draft, "last close");
        }
        let Handle::Array { inode, writer: Some(writer), .. } = handle else { return };
        if writer.array.is_dirty()
            && let Err(error) = self.on_current(inode, &writer.array, Array::flush)
        {
            self.note_failure(inode, "last close", &Failure::from(error));
        }
        writer.array.close_for_writing();
        self.finish_truncation(inode, &writer.array);
    }

    /// From now on nothing is read, and no write is answered with success but that of a memory map's pages: what was answered before
    /// is what is stored in the end. No page that the kernel gives up can be had again.
    pub fn end_service(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Fails as everything will that is asked of a daemon that has gone. A write asks once its units are dirty: if it
    /// passes, they were so before the end began.
    pub(super) fn ensure_serving(&self) -> FsResult<()> {
        if self.has_ended.load(Ordering::SeqCst) { Err(Failure::Errno(libc::ENOTCONN)) } else { Ok(()) }
    }

    /// Whether a handle may write.
    pub fn is_writer(&self, handle: u64) -> bool {
        self.handles.get(handle).is_some_and(|handle| {
            matches!(*handle, Handle::Array { writer: Some(_), .. } | Handle::Draft { .. })
        })
    }

    /// The drop of pages that are what was written, where the store gives something else: for each writer's file whose codecs
    /// lose something.
    pub fn lossy_pages(&self, handle: u64) -> Option<PageDrop> {
        let handle = self.handles.get(handle)?;
        let Handle::Array { inode, writer: Some(_), .. } = &*handle else { return None };
        let open = inode.open_array()?;
        let is_lossy = open.array.as_ref().is_ok_and(|array| !array.is_lossless());
        is_lossy.then(|| inode.page_cache_users.drops.begin(None))
    }

    /// Stores what was not written for as long as `settle`: what the timer does each second.
    pub fn store_settled(&self, settle: Duration) {
        self.engine.store_settled(settle);
    }

    /// Stores everything that is dirty anywhere and makes it last, but for what hangs when nothing was stored for `quiet`; what
    /// could not be stored, and why.
    pub fn store_all(&self, quiet: Duration) -> Vec<(String, Error)> {
        self.engine.store_all(quiet)
    }

    /// Chunks and shards stored so far.
    pub fn stored_objects(&self) -> u64 {
        self.engine.counters().objects_stored
    }

    /// Bytes written and not yet stored.
    pub fn dirty_bytes(&self) -> u64 {
        self.engine.counters().dirty_bytes
    }

    /// The inodes whose pages may hold what was written through a memory map.
    pub fn written_inodes(&self) -> Vec<u64> {
        let was_written = |inode: &Arc<Inode>| {
            inode.open_array().is_some_and(|open| open.array.as_ref().is_ok_and(|array| array.was_written()))
        };
        let arrays = self.inodes.opened_arrays();
        arrays.iter().filter(|inode| was_written(inode)).map(|inode| inode.number).collect()
    }
}
