//! The open file of an array: it reads from and writes to the array of its inode.
//!
//! Invariant: a read returns all bytes (fewer only at the exact end of the file) or fails as a whole. The holes of a flat file are
//! its missing chunks. The kernel does not write back its dirty pages before it asks for holes, so an array with a writer has none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::{Array, ReadRequest, Reader};
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::mount::fs::array_files::growth::Growth;
use crate::mount::fs::array_files::io::{ArrayIo, ClosedGap};
use crate::mount::fs::array_files::writer::WriterState;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::open_file::{
    AcceptedWrite, BegunWrite, CopyResult, FileRange, FileRead, FileWrite, HandleTable, OpenFile, ReadData,
    ReplyBuffer,
};
use crate::mount::fs::page_cache::cache_mode::CacheMode;
use crate::mount::fs::page_cache::page_drops::{OpenDrop, PageDrop, PageRead};
use crate::mount::journal::record::{Content, OpenForWriting};
use crate::store::Readers;

/// Bytes copied or zeroed at a time.
const PART_BYTES: usize = 1 << 20;

/// The open file of an array.
pub struct ArrayFile {
    /// The inode of the array.
    pub inode: Arc<Inode>,
    /// The position and access pattern of the reader.
    pub reader: Reader,
    /// The state of a handle that may write.
    pub writer: Option<WriterState>,
    /// Whether the kernel caches the pages of this handle.
    pub cache_mode: CacheMode,
    /// The page drop that goes with the reply to the open.
    pub open_drop: OpenDrop,
    /// The users that may read the array.
    pub readers: Arc<Readers>,
    /// Whether it was opened with O_APPEND.
    pub appends: bool,
    /// The part that all files of arrays share.
    pub io: Arc<ArrayIo>,
    /// Makes the array longer.
    pub growth: Arc<Growth>,
    /// All open files of the mount.
    pub handles: Arc<HandleTable>,
}

impl ArrayFile {
    fn read_array<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        let FileRead { offset, size, blocking, cancellation } = read;
        let inode = &self.inode;
        if blocking == Blocking::Yes {
            self.io.served.recheck(inode)?;
        }
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = inode.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        let array = open.array.as_ref().map_err(Error::clone)?;
        let size_bytes = inode.state().written_end.shown_size(array.size_bytes());
        let length = size_bytes.saturating_sub(offset).min(u64::from(size));
        let range = offset..offset.saturating_add(length);
        let request = ReadRequest { reader: &self.reader, range, blocking, cancellation };
        let data = array.read(&request, buffer)?.ok_or(Failure::WouldBlock)?;
        self.io.log.record_read(inode, length);
        Ok(data)
    }

    /// Returns the state of a handle that may write, and the size of its array.
    fn writer_and_size(&self) -> FsResult<(&WriterState, u64)> {
        let writer = self.writer.as_ref().ok_or(Failure::Errno(libc::EBADF))?;
        Ok((writer, self.inode.array()?.size_bytes()))
    }

    fn check_append(&self, offset: u64, is_page: bool) -> FsResult<()> {
        if self.appends && !is_page { self.growth.check_append(&self.inode, offset) } else { Ok(()) }
    }

    /// Writes, after the gate has let the request in. Nothing can be written past the end of the file: the write is short, or fails
    /// with EFBIG. Pages of a memory map are always accepted.
    fn write_entered<'a>(&self, write: FileWrite<'a>) -> FsResult<BegunWrite<'a>> {
        let FileWrite { offset, data, is_page, blocking, request } = write;
        let inode = &self.inode;
        let (writer, mut size_bytes) = self.writer_and_size()?;
        self.open_drop.record_use();
        if data.is_empty() {
            return Ok(BegunWrite::copied(0));
        }
        let wanted = FileRange { offset, length: data.len() as u64 };
        if !is_page && self.growth.is_needed(inode, wanted) {
            if blocking == Blocking::No {
                return Err(Failure::WouldBlock);
            }
            if offset == 0 {
                // A refused header must not have made the array longer.
                self.io.refuse_npy_header(inode, data)?;
            }
            size_bytes = self.growth.grow_for_write(inode, self.appends, offset, data)?;
        }
        let room = size_bytes.saturating_sub(offset);
        if room == 0 {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let length = usize::try_from(room).unwrap_or(usize::MAX).min(data.len());
        let data = data.get(..length).unwrap_or(data);
        if offset == 0 && !is_page {
            self.io.refuse_npy_header(inode, data)?;
        }
        if !is_page && self.has_gap(offset) {
            // A write that is refused must not have zeroed the gap.
            inode.array()?.writer().check_write(offset, data)?;
        }
        let ClosedGap { mut end, page_drop: gap_drop } =
            self.io.close_gap(inode, writer, offset, is_page, blocking)?;
        let pending = self.io.put(inode, writer, FileWrite { data, ..write });
        let pending = pending.map_err(|failure| match failure {
            Failure::Error(error) => {
                self.io.log.fail(inode, &format!("write of {length} bytes at {offset}"), error)
            }
            failure => failure,
        })?;
        if !is_page {
            // Checked only now, when the chunks are dirty: a write that passes here was dirty before the end began, and is stored.
            self.io.gate.ensure_serving()?;
        }
        writer.set_closing(false);
        inode.state().counters.writes.fetch_add(1, Ordering::Relaxed);
        inode.state().counters.bytes_written.fetch_add(length as u64, Ordering::Relaxed);
        // A direct write fills no pages. A page of a memory map does, but the kernel never drops it before it has written it back.
        let fills_pages = !is_page && !self.cache_mode.is_direct();
        let range = offset..offset + length as u64;
        let drops = &inode.state().page_cache_users.drops;
        let page_drop = if fills_pages { drops.overtaken(range.clone()) } else { None };
        if let Some(end) = end.as_mut().filter(|end| end.end() >= Some(offset)) {
            let size_bytes = inode.array().map_or(size_bytes, |array| array.size_bytes());
            end.advance(range.end, size_bytes);
            end.record_request(request, u32::try_from(length).unwrap_or(u32::MAX));
        }
        let page_drop = gap_drop.map(|gap| gap.extended_to(range.end)).or(page_drop);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Ok(BegunWrite { accepted: AcceptedWrite { length, page_drop }, pending })
    }

    /// Returns whether a write at `offset` leaves a gap that must be zeroed.
    fn has_gap(&self, offset: u64) -> bool {
        self.inode.state().written_end.get().is_some_and(|end| end < offset)
    }

    fn store(
        &self,
        request: &str,
        store: fn(&Array) -> Result<(), Error>,
        report: fn(&WriterState, u64, Option<Error>) -> Option<Error>,
    ) -> FsResult<()> {
        self.io.store(&self.inode, self.writer.as_ref(), request, store, report)
    }

    /// Records whether the last operation of this handle was a close(2).
    fn set_closing(&self, is_closing: bool) {
        if let Some(writer) = &self.writer {
            writer.set_closing(is_closing);
        }
    }

    /// Fails if a truncated file is not written to its end. fsync(2) checks this, and so does close(2), unless others may still
    /// write the rest: the file has another writer, another process has truncated it, or it may be mapped and nothing was written
    /// yet.
    ///
    /// `closed_by` is the handle that is closed, and the process that closes it.
    fn ensure_complete(&self, closed_by: Option<(u64, u32)>) -> FsResult<()> {
        let ArrayFile { inode, writer: Some(writer), .. } = self else { return Ok(()) };
        if inode.state().written_end.get().is_none() {
            return Ok(());
        }
        let is_left_to_others = closed_by.is_some_and(|(handle, process)| {
            let end_guard = inode.state().written_end.lock();
            // Pages that were written through a map arrive after the close.
            let may_be_mapped = writer.may_map && end_guard.is_untouched();
            let cut_by = end_guard.cut_by();
            may_be_mapped
                || (process != 0 && cut_by != 0 && cut_by != process)
                || self.handles.has_other_writer(handle, inode.number)
        });
        if is_left_to_others { Ok(()) } else { Err(Failure::Errno(libc::EINVAL)) }
    }

    fn write_zeros(&self, offset: u64, end: u64, cancellation: &Cancellation) -> FsResult<()> {
        let zeros = vec![0; PART_BYTES];
        let mut offset = offset;
        while offset < end {
            cancellation.check("")?;
            let length = usize::try_from(end - offset).unwrap_or(PART_BYTES).min(PART_BYTES);
            let data = zeros.get(..length).unwrap_or(&zeros);
            let write = FileWrite { offset, data, is_page: false, blocking: Blocking::Yes, request: 0 };
            offset += u64::from(self.write_entered(write)?.finish().length);
        }
        Ok(())
    }
}

impl OpenFile for ArrayFile {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.io.gate.ensure_serving()?;
        self.open_drop.record_use();
        let data = self.read_array(read, buffer);
        self.io.log.record_failed_read(&self.inode, read.offset, read.size, data)
    }

    fn write<'a>(&self, write: FileWrite<'a>) -> FsResult<BegunWrite<'a>> {
        let gate = &self.io.gate;
        let _entered = gate.enter_to_write(&self.inode.entity.path, write.is_page, write.blocking)?;
        if let Some(written_bytes) = self.inode.state().written_end.written_by(write.request) {
            // A daemon that has died did this already, and the kernel sends it again. The file may be longer since then. The pages of a
            // gap may not have been dropped.
            let mut written = BegunWrite::copied(written_bytes as usize);
            written.accepted.page_drop = Some(self.inode.state().page_cache_users.drops.begin(None));
            return Ok(written);
        }
        self.check_append(write.offset, write.is_page)?;
        self.write_entered(write)
    }

    fn flush(&self, handle: u64, process: u32) -> FsResult<()> {
        // The descriptor is gone, whatever close(2) returns.
        self.set_closing(true);
        self.store("close", |array| array.writer().flush(), WriterState::unreported_by_close)?;
        self.ensure_complete(Some((handle, process)))
    }

    fn fsync(&self) -> FsResult<()> {
        self.set_closing(false);
        self.store("fsync", |array| array.writer().sync(), WriterState::unreported_by_fsync)
    }

    fn sync(&self) -> FsResult<()> {
        self.fsync()?;
        self.ensure_complete(None)
    }

    fn seek(&self, start: u64, wants_hole: bool, cancellation: &Cancellation) -> FsResult<Option<u64>> {
        self.io.served.recheck(&self.inode)?;
        let array = self.inode.array()?;
        let size_bytes = self.inode.state().written_end.shown_size(array.size_bytes());
        if start >= size_bytes {
            return Ok(None);
        }
        Ok(if wants_hole {
            array.next_hole(start, cancellation)?.map(|hole| hole.min(size_bytes))
        } else {
            array.next_data(start, cancellation)?.filter(|&data| data < size_bytes)
        })
    }

    fn allocate(
        &self,
        FileRange { offset, length }: FileRange,
        mode: i32,
        cancellation: &Cancellation,
    ) -> FsResult<Option<PageDrop>> {
        let _entered = self.io.gate.wait_to_enter(&self.inode.entity.path);
        let (_, size_bytes) = self.writer_and_size()?;
        let end = offset.checked_add(length).ok_or(Failure::Errno(libc::EFBIG))?;
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        match mode {
            0 if end > size_bytes => Err(Failure::Errno(libc::EFBIG)),
            0 => self.io.extend_written(&self.inode, end, size_bytes),
            _ if mode == libc::FALLOC_FL_PUNCH_HOLE | keep || mode == libc::FALLOC_FL_ZERO_RANGE | keep => {
                // Bytes after the written end of a truncated file keep their value.
                let written_end = self.inode.state().written_end.get().unwrap_or(size_bytes);
                let end = end.min(size_bytes).min(written_end);
                self.write_zeros(offset, end, cancellation).map(|()| None)
            }
            libc::FALLOC_FL_ZERO_RANGE if end <= size_bytes => {
                let drop = self.io.extend_written(&self.inode, end, size_bytes)?;
                self.write_zeros(offset, end, cancellation).map(|()| drop)
            }
            libc::FALLOC_FL_ZERO_RANGE => Err(Failure::Errno(libc::EFBIG)),
            _ => Err(Failure::Errno(libc::EOPNOTSUPP)),
        }
    }

    fn copy_from(
        &self,
        source: &dyn OpenFile,
        from: u64,
        to: u64,
        length: u64,
        cancellation: &Cancellation,
    ) -> FsResult<CopyResult> {
        let _entered = self.io.gate.wait_to_enter(&self.inode.entity.path);
        self.writer_and_size()?;
        let mut page_drop = None;
        let mut buffer = ReplyBuffer::default();
        let mut done = 0;
        while done < length {
            let size = u32::try_from(length - done).unwrap_or(u32::MAX).min(PART_BYTES as u32);
            let read = FileRead { offset: from + done, size, blocking: Blocking::Yes, cancellation };
            let data = match source.read(read, &mut buffer) {
                Ok(data) if data.is_empty() => break,
                Ok(data) => data,
                // As with a short write, the reply says how far the copy came, and which pages it must drop.
                Err(_) if done > 0 => break,
                Err(failure) => return Err(failure),
            };
            let (offset, blocking) = (to + done, Blocking::Yes);
            let write = FileWrite { offset, data: &data, is_page: false, blocking, request: 0 };
            match self.write_entered(write).map(BegunWrite::finish) {
                Ok(accepted) => {
                    done += u64::from(accepted.length);
                    page_drop = page_drop.or(accepted.page_drop);
                }
                Err(_) if done > 0 => break,
                Err(failure) => return Err(failure),
            }
            if data.len() < size as usize {
                break;
            }
        }
        Ok(CopyResult { length: done, page_drop })
    }

    /// Ends the handle. One that may write stores the rest: until now, pages arrive of a map that was unmapped after the last close.
    fn release(&self) {
        self.open_drop.record_use();
        let ArrayFile { inode, writer: Some(writer), .. } = self else { return };
        if writer.array.writer().is_dirty()
            && let Err(error) =
                self.io.served.run_on_current(inode, &writer.array, |array: &Array| array.writer().flush())
        {
            self.io.log.record_failure(inode, "last close", &Failure::from(error));
        }
        writer.array.writer().close_for_writing();
        self.io.finish_truncation(inode, &writer.array);
    }

    fn cancel_open(&self) {
        self.open_drop.cancel();
    }

    fn is_writer(&self) -> bool {
        self.writer.is_some()
    }

    fn is_active_writer_of(&self, inode: u64) -> bool {
        self.inode.number == inode && self.writer.as_ref().is_some_and(|writer| !writer.is_closing())
    }

    fn record_page_read(&self, FileRange { offset, length }: FileRange) -> Option<PageRead> {
        self.open_drop.record_use();
        let range = offset..offset.saturating_add(length);
        self.inode.state().page_cache_users.direct_writes.record_page_read(range.clone());
        self.inode.state().page_cache_users.drops.record_read(range)
    }

    fn is_synchronous(&self, flags: i32) -> bool {
        flags & libc::O_DSYNC != 0 && (self.cache_mode.is_direct() || flags & libc::O_DIRECT != 0)
    }

    fn needs_store(&self, range: FileRange) -> bool {
        self.has_gap(range.offset) || (self.writer.is_some() && self.growth.is_needed(&self.inode, range))
    }

    fn is_incomplete(&self) -> bool {
        self.inode.state().written_end.get().is_some()
    }

    fn lossy_pages(&self) -> Option<PageDrop> {
        self.writer.as_ref()?;
        let open = self.inode.open_array()?;
        let is_lossy = open.array.as_ref().is_ok_and(|array| !array.is_lossless());
        is_lossy.then(|| self.inode.state().page_cache_users.drops.begin(None))
    }

    fn is_passthrough(&self) -> bool {
        self.cache_mode.is_passthrough()
    }

    fn writing(&self) -> Option<OpenForWriting> {
        let writer = self.writer.as_ref()?;
        Some(OpenForWriting { may_map: writer.may_map, appends: self.appends })
    }

    fn content(&self) -> Content {
        match self.inode.open_array() {
            Some(open) => {
                let mark = open.array.as_ref().ok().and_then(|array| array.store_mark());
                self.inode.state().identity.content(&open.metadata, mark.as_deref(), *self.readers)
            }
            None => Content::Unrepeatable,
        }
    }
}
