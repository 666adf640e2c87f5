//! Truncation of files of fixed size: truncate(2), ftruncate(2) and O_TRUNC set the written end (`written_end.rs`), and the last
//! close makes the file whole.

use crate::array::Array;
use crate::error::Error;
use crate::mount::fs::array_files::io::ArrayIo;
use crate::mount::fs::array_files::writer::WriterState;
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::page_cache::page_drops::PageDrop;

impl ArrayIo {
    /// Sets the written end of an array's file of `size_bytes`, for a process. If it moves forward, zeros the gap. Returns the pages
    /// to drop.
    pub fn set_written_end(
        &self,
        inode: &Inode,
        process: u32,
        to: u64,
        size_bytes: u64,
    ) -> FsResult<Option<PageDrop>> {
        if to > size_bytes {
            return Err(Failure::Errno(libc::EFBIG));
        }
        let has_writers = |open: &crate::hierarchy::OpenArray| {
            open.array.as_ref().is_ok_and(|array| array.writer().has_writers())
        };
        if !inode.open_array().is_some_and(|open| has_writers(&open)) {
            // Without a writer that then writes the data anew, truncate(2) could only destroy it.
            return if to == size_bytes { Ok(None) } else { Err(Failure::Errno(libc::EINVAL)) };
        }
        let mut end_guard = inode.state().written_end.lock();
        let end = end_guard.end().unwrap_or(size_bytes);
        if to < end {
            end_guard.cut(to, process);
            return Ok(None);
        }
        if to == end {
            if end == 0 {
                // An array without elements counts as truncated, too: a later growth of the file is zero.
                end_guard.record_cut();
            }
            return Ok(None);
        }
        let page_drop = if end == 0 && to == size_bytes && !end_guard.is_growing() {
            let page_drop = inode.state().page_cache_users.drops.begin(Some(end..to));
            self.zero(inode)?;
            Some(page_drop)
        } else {
            let array = inode.array()?;
            let writer = WriterState::open(&array, false)?;
            let zeroed = self.zero_gap(inode, &writer, &mut end_guard, to);
            array.writer().close_for_writing();
            zeroed?
        };
        end_guard.advance(to, size_bytes);
        self.gate.ensure_serving()?;
        Ok(page_drop)
    }

    /// Moves the written end of a truncated file up to `to`, as fallocate(2) does. Returns the pages to drop.
    pub fn extend_written(&self, inode: &Inode, to: u64, size_bytes: u64) -> FsResult<Option<PageDrop>> {
        match inode.state().written_end.get() {
            Some(end) if end < to => self.set_written_end(inode, 0, to, size_bytes),
            _ => Ok(None),
        }
    }

    /// Makes a file whole after its last writer is gone. If that writer left it incomplete, this is logged.
    pub fn finish_truncation(&self, inode: &Inode, array: &Array) {
        let mut end_guard = inode.state().written_end.lock();
        if array.writer().has_writers() {
            return;
        }
        let is_growth = end_guard.is_growing();
        if is_growth {
            // From now on its size is that of the array, which is longer.
            inode.state().page_cache_users.drops.mark_new_size();
            inode.state().written_end.mark_size_unknown();
        }
        if let Some(written_bytes) = end_guard.forget() {
            let size_bytes = inode.array().map_or(array.size_bytes(), |array| array.size_bytes());
            let error = Error::CutShort { written_bytes, size_bytes, is_growth };
            self.log.record_failure(inode, "last close", &Failure::Error(error));
        }
    }
}
