//! Setting the size of a file of fixed size: truncate(2), ftruncate(2), O_TRUNC, and what happens to a
//! truncated file that is not written to its end (`written_end.rs`).

use crate::array::Array;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::Writer;
use crate::mount::fs::inode::{Inode, Kind};
use crate::mount::fs::open_files::ArrayFile;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::write::written_end::{WrittenEndGuard, npy_shape};
use crate::mount::fs::{FileSystem, Stat};
use std::sync::Arc;

/// Bytes zeroed at a time.
const PART_BYTES: usize = 1 << 20;

/// The changes of a setattr request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// chmod
    pub mode: Option<u32>,
    /// chown
    pub uid: Option<u32>,
    /// chgrp
    pub gid: Option<u32>,
    /// truncate
    pub size_bytes: Option<u64>,
    /// The user that asks.
    pub user: u32,
    /// By ftruncate; otherwise by truncate or open.
    pub by_handle: bool,
    /// The id of the calling process, 0 if unknown.
    pub process: u32,
}

impl FileSystem {
    /// setattr: an array's file never gets shorter. A smaller size sets the written end (or, with
    /// `truncate=zero`, a size of 0 makes every byte zero); a larger one makes the array longer, with `create`. Returns the
    /// pages that the kernel must drop.
    pub fn set_attributes(&self, inode: u64, change: SetAttr) -> FsResult<(Stat, Option<PageDrop>)> {
        if !self.options.writable {
            return Err(Failure::Errno(libc::EROFS));
        }
        let inode = self.inode(inode)?;
        if let Kind::Scratch(number) = inode.entity.kind {
            self.set_scratch(number, &change)?;
            return Ok((self.stat_scratch(number)?, None));
        }
        let mut found = self.stat_entity(&inode.entity, Blocking::Yes)?;
        let now = found.attributes;
        let changes_mode = match change.mode.map(|mode| mode & 0o7777) {
            Some(mode) => mode != u32::from(now.mode) && Some(mode) != self.stored_mode(&inode.entity)?,
            None => false,
        };
        let changes_owner =
            change.uid.is_some_and(|uid| uid != now.uid) || change.gid.is_some_and(|gid| gid != now.gid);
        let is_set = changes_mode && self.set_node_mode(&inode.entity, &change)?;
        if (changes_owner || changes_mode != is_set) && !self.options.ignores_chmod {
            return Err(Failure::Errno(libc::EPERM));
        }
        if is_set {
            found = self.stat_entity(&inode.entity, Blocking::Yes)?;
        }
        let Some(size_bytes) = change.size_bytes else { return Ok((found, None)) };
        if inode.entity.kind == Kind::Commit {
            // The shell empties a file before it writes.
            return if size_bytes == 0 { Ok((found, None)) } else { Err(Failure::Errno(libc::EINVAL)) };
        }
        let _entered = self.enter(Blocking::Yes)?;
        if inode.entity.is_sidecar() {
            self.drafts.resize(&inode, size_bytes, change.by_handle)?;
            return Ok((self.stat_entity(&inode.entity, Blocking::Yes)?, None));
        }
        if inode.entity.kind != Kind::Array {
            return Err(Failure::Errno(libc::EPERM));
        }
        let open =
            inode.open_array().and_then(|open| open.array.as_ref().ok().map(|array| array.size_bytes()));
        let of_array = open.unwrap_or(now.size_bytes);
        if self.options.create && size_bytes > of_array {
            let drop = self.grow_to(&inode, size_bytes)?;
            return Ok((self.stat_entity(&inode.entity, Blocking::Yes)?, drop));
        }
        if !self.options.truncate_zeroes {
            let drop = self.set_written_end(&inode, &change, size_bytes, of_array)?;
            // A growing file gets the size of its array.
            let found = if now.size_bytes == of_array {
                found
            } else {
                self.stat_entity(&inode.entity, Blocking::Yes)?
            };
            return Ok((found, drop));
        }
        if size_bytes == now.size_bytes {
            return Ok((found, None));
        }
        if size_bytes != 0 {
            return Err(Failure::Errno(libc::EINVAL));
        }
        // If this fails, all bytes are zero nevertheless: what was not stored is stored later.
        self.zero(&inode).inspect_err(|_| inode.page_cache_users.drops.note_reason())?;
        if now.size_bytes != of_array {
            // It was growing, and is written now.
            inode.written_end.lock().make_whole();
            found = self.stat_entity(&inode.entity, Blocking::Yes)?;
        }
        self.ensure_serving()?;
        Ok((found, Some(inode.page_cache_users.drops.begin(None))))
    }

    /// Sets the written end of an array's file; zeros the gap if it moves forward. Returns the pages to drop.
    fn set_written_end(
        &self,
        inode: &Arc<Inode>,
        change: &SetAttr,
        to: u64,
        size_bytes: u64,
    ) -> FsResult<Option<PageDrop>> {
        if to > size_bytes {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let has_writers =
            |open: &crate::hierarchy::OpenArray| open.array.as_ref().is_ok_and(|array| array.has_writers());
        if !inode.open_array().is_some_and(|open| has_writers(&open)) {
            // truncate(2) of a file without writers could only destroy data.
            return if to == size_bytes { Ok(None) } else { Err(Failure::Errno(libc::EINVAL)) };
        }
        let mut end_guard = inode.written_end.lock();
        let end = end_guard.end().unwrap_or(size_bytes);
        if to < end {
            end_guard.cut(to, change.process);
            return Ok(None);
        }
        if to == end {
            if end == 0 {
                // An array without elements is truncated, too.
                end_guard.note_cut();
            }
            return Ok(None);
        }
        if end == 0 && to == size_bytes && !end_guard.is_growing() {
            let result = self.zero(inode);
            result.inspect_err(|_| inode.page_cache_users.drops.note_reason())?;
        } else {
            let array = self.array_of(inode)?;
            let writer = self.open_writer(&array, false)?;
            let result = self.zero_gap(inode, &writer, &mut end_guard, to);
            array.close_for_writing();
            result?;
        }
        end_guard.advance(to, size_bytes);
        self.ensure_serving()?;
        Ok(Some(inode.page_cache_users.drops.begin(Some(end..to))))
    }

    /// Moves the written end of a truncated file up to `to`, as fallocate(2) does. Returns the pages to drop.
    pub(in crate::mount::fs) fn extend(
        &self,
        file: &ArrayFile,
        to: u64,
        size_bytes: u64,
    ) -> FsResult<Option<PageDrop>> {
        let ArrayFile { inode, writer: Some(_), .. } = file else { return Ok(None) };
        match inode.written_end.get() {
            Some(end) if end < to => self.set_written_end(inode, &SetAttr::default(), to, size_bytes),
            _ => Ok(None),
        }
    }

    /// Fails if a truncated file is not written to its end. This is checked by fsync(2), and by a close(2) of
    /// the only writer, unless another process has truncated the file, or the file may be mapped and nothing
    /// was written yet.
    ///
    /// `closed_by` is the number of the handle that is closed, and the process that closes it.
    pub(in crate::mount::fs) fn ensure_complete(
        &self,
        file: &ArrayFile,
        closed_by: Option<(u64, u32)>,
    ) -> FsResult<()> {
        let ArrayFile { inode, writer: Some(writer), .. } = file else { return Ok(()) };
        if inode.written_end.get().is_none() {
            return Ok(());
        }
        let is_left_to_others = closed_by.is_some_and(|(number, process)| {
            let end_guard = inode.written_end.lock();
            // Writes through a map arrive after the close.
            let may_be_mapped = writer.may_map && end_guard.is_untouched();
            let cut_by = end_guard.cut_by();
            may_be_mapped
                || (process != 0 && cut_by != 0 && cut_by != process)
                || self.handles.has_other_writer(number, inode.number)
        });
        if is_left_to_others { Ok(()) } else { Err(Failure::Errno(libc::EINVAL)) }
    }

    /// After a writer is gone: a file that the last writer leaves incomplete is whole again, and this is
    /// logged.
    pub(in crate::mount::fs) fn finish_truncation(&self, inode: &Inode, array: &Array) {
        let mut end_guard = inode.written_end.lock();
        if array.has_writers() {
            return;
        }
        if end_guard.is_growing() {
            // From now on its size is that of the array.
            inode.page_cache_users.drops.note_new_size();
            inode.written_end.note_untold();
        }
        if let Some(written_bytes) = end_guard.forget() {
            let size_bytes = self.array_of(inode).map_or(array.size_bytes(), |array| array.size_bytes());
            let error = Error::CutShort { written_bytes, size_bytes };
            self.note_failure(inode, "last close", &Failure::Error(error));
        }
    }

    /// A `.npy` file written onto its array would shift the elements by the header: refused before anything
    /// changes.
    pub(in crate::mount::fs) fn refuse_npy_header(&self, inode: &Inode, data: &[u8]) -> FsResult<()> {
        let Some(shape) = npy_shape(data) else { return Ok(()) };
        let Some(open) = inode.open_array() else { return Ok(()) };
        let own = &open.metadata.shape;
        if shape != *own && !shape.iter().eq(own.iter().rev()) {
            return Ok(());
        }
        let sentence = "this is a .npy file with a header, and the array's file has none: write the elements alone, \
                        as numpy.ndarray.tofile does";
        Err(self.write_failure(inode, "write", Error::InvalidValue(sentence.to_owned())))
    }

    /// For a truncated file: locks the written end, zeros a gap before `offset`, and returns where the gap
    /// began. A page of a memory map after the written end leaves no gap.
    pub(in crate::mount::fs) fn close_gap<'a>(
        &self,
        inode: &'a Inode,
        writer: &Writer,
        offset: u64,
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<(Option<WrittenEndGuard<'a>>, Option<u64>)> {
        if inode.written_end.get().is_none() {
            return Ok((None, None));
        }
        let mut end_guard = match blocking {
            Blocking::No => inode.written_end.try_lock().ok_or(Failure::WouldBlock)?,
            Blocking::Yes => inode.written_end.lock(),
        };
        let Some(end) = end_guard.end().filter(|&end| end < offset && !is_page) else {
            return Ok((Some(end_guard), None));
        };
        if blocking == Blocking::No {
            return Err(Failure::WouldBlock);
        }
        self.zero_gap(inode, writer, &mut end_guard, offset)?;
        Ok((Some(end_guard), Some(end)))
    }

    /// Zeros the bytes between the written end and `to` and moves the written end; if this fails, as far as
    /// it got.
    pub(super) fn zero_gap(
        &self,
        inode: &Inode,
        writer: &Writer,
        end_guard: &mut WrittenEndGuard<'_>,
        to: u64,
    ) -> FsResult<()> {
        if end_guard.is_growing() && writer.array.fills_with_zeros() {
            // Nothing was written after the end of a growing file: all of it is fill value.
            end_guard.advance(to, u64::MAX);
            return Ok(());
        }
        let zeros = vec![0; PART_BYTES];
        while let Some(end) = end_guard.end().filter(|&end| end < to) {
            let length = usize::try_from(to - end).unwrap_or(PART_BYTES).min(PART_BYTES);
            let zeros = zeros.get(..length).unwrap_or(&zeros);
            let put = self.put_anywhere(inode, writer, (end, zeros), false, Blocking::Yes);
            put.map_err(|failure| {
                // The kernel may still cache bytes that are zero now.
                inode.page_cache_users.drops.note_reason();
                match failure {
                    Failure::Error(error) => {
                        self.write_failure(inode, "zeroing the gap before a write", error)
                    }
                    failure => failure,
                }
            })?;
            end_guard.advance(end + length as u64, u64::MAX);
        }
        Ok(())
    }

    fn zero(&self, inode: &Arc<Inode>) -> FsResult<()> {
        if inode.open_array().is_none() {
            // truncate(2) of a file that is not open.
            let opened = self.open(inode.number, libc::O_WRONLY, &Cancellation::never())?;
            let result = self.zero(inode).and_then(|()| self.flush(opened.handle));
            self.release(opened.handle);
            return result;
        }
        let array = self.array_of(inode)?;
        let has_writers = array.has_writers();
        array.open_for_writing().map_err(|error| self.write_failure(inode, "truncate", error))?;
        let mut result = array.zero();
        if !has_writers {
            // No close of a handle would store it.
            result = result.and_then(|()| self.on_current(inode, &array, Array::flush));
        }
        array.close_for_writing();
        result.map_err(|error| self.write_failure(inode, "truncate", error))
    }
}
