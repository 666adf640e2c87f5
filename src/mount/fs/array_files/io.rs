//! Writing bytes into an array and storing them, with or without a handle of its file.

use std::sync::Arc;

use crate::array::{Array, PendingWrite};
use crate::error::Error;
use crate::mount::fs::array_files::writer::WriterState;
use crate::mount::fs::array_files::written_end::{WrittenEndGuard, npy_shape};
use crate::mount::fs::arrays::ServedArrays;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::open_file::FileWrite;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::RequestGate;

/// Bytes zeroed at a time.
const PART_BYTES: usize = 1 << 20;

/// The part that all files of arrays share.
pub struct ArrayIo {
    /// Their arrays, kept in line with the store.
    pub served: Arc<ServedArrays>,
    /// The counters and failures.
    pub log: Arc<RequestLog>,
    /// Lets requests in.
    pub gate: Arc<RequestGate>,
}

/// The written end of a file, locked for a write, after the gap before that write was zeroed.
pub struct ClosedGap<'a> {
    /// The lock on the written end, if the file is truncated or growing.
    pub end: Option<WrittenEndGuard<'a>>,
    /// The drop of the gap's pages, if there was one. If the write fails, the next open drops them.
    pub page_drop: Option<PageDrop>,
}

impl ArrayIo {
    /// Writes bytes into the array. The file may be mapped and written directly at the same time. Without blocking, the bytes may
    /// still have to be copied.
    pub fn put<'a>(
        &self,
        inode: &Inode,
        writer: &WriterState,
        write: FileWrite<'a>,
    ) -> FsResult<Option<PendingWrite<'a>>> {
        let FileWrite { offset, data, is_page, blocking, .. } = write;
        let direct_writes = &inode.state().page_cache_users.direct_writes;
        let (range, may_wait) = (offset..offset + data.len() as u64, blocking == Blocking::Yes);
        let outcome = if is_page {
            direct_writes.write_page(range.clone(), may_wait, |parts| {
                if parts == [range] {
                    return self.put_at_once(inode, writer, write);
                }
                // This is rare, so a page that is stored in parts always takes the blocking path.
                if blocking == Blocking::No {
                    return Err(Failure::WouldBlock);
                }
                for part in parts {
                    let (from, to) = ((part.start - offset) as usize, (part.end - offset) as usize);
                    let data = data.get(from..to).unwrap_or_default();
                    self.put_at_once(inode, writer, FileWrite { offset: part.start, data, ..write })?;
                }
                Ok(None)
            })
        } else {
            direct_writes.write(range, may_wait, || self.put_at_once(inode, writer, write))
        };
        outcome.unwrap_or(Err(Failure::WouldBlock))
    }

    /// Writes bytes into the array, or begins to, unless that would block.
    fn put_at_once<'a>(
        &self,
        inode: &Inode,
        writer: &WriterState,
        FileWrite { offset, data, is_page, blocking, .. }: FileWrite<'a>,
    ) -> FsResult<Option<PendingWrite<'a>>> {
        if blocking == Blocking::No {
            let array = inode.array().map_err(|_| Failure::WouldBlock)?;
            return array.writer().try_begin_write(offset, data)?.map(Some).ok_or(Failure::WouldBlock);
        }
        self.served.run_on_current(inode, &writer.array, |array| {
            if is_page {
                array.writer().write_page(offset, data)
            } else {
                array.writer().write_at(offset, data)
            }
        })?;
        Ok(None)
    }

    /// Locks the written end of a truncated or growing file, and zeros the gap before a write at `offset`. A page of a memory map
    /// leaves no gap: it holds what is between.
    pub fn close_gap<'a>(
        &self,
        inode: &'a Inode,
        writer: &WriterState,
        offset: u64,
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<ClosedGap<'a>> {
        if inode.state().written_end.get().is_none() {
            return Ok(ClosedGap { end: None, page_drop: None });
        }
        let mut guard = match blocking {
            Blocking::No => inode.state().written_end.try_lock().ok_or(Failure::WouldBlock)?,
            Blocking::Yes => inode.state().written_end.lock(),
        };
        if is_page || guard.end().is_none_or(|end| end >= offset) {
            return Ok(ClosedGap { end: Some(guard), page_drop: None });
        }
        if blocking == Blocking::No {
            return Err(Failure::WouldBlock);
        }
        let page_drop = self.zero_gap(inode, writer, &mut guard, offset)?;
        Ok(ClosedGap { end: Some(guard), page_drop })
    }

    /// Zeros the bytes between the written end and `to`, and moves the written end as far as this succeeds. Returns the pages to drop. If
    /// it fails, the next open drops them: a part of the gap may be zero.
    pub fn zero_gap(
        &self,
        inode: &Inode,
        writer: &WriterState,
        end_guard: &mut WrittenEndGuard<'_>,
        to: u64,
    ) -> FsResult<Option<PageDrop>> {
        let Some(start) = end_guard.end().filter(|&end| end < to) else { return Ok(None) };
        let page_drop = inode.state().page_cache_users.drops.begin(Some(start..to));
        if end_guard.is_growing() && writer.array.fills_with_zeros() {
            // Nothing was written after the end of a growing file, so all of it is the fill value, which is zero.
            end_guard.advance(to, u64::MAX);
            return Ok(Some(page_drop));
        }
        let zeros = vec![0; PART_BYTES];
        while let Some(end) = end_guard.end().filter(|&end| end < to) {
            let length = usize::try_from(to - end).unwrap_or(PART_BYTES).min(PART_BYTES);
            let data = zeros.get(..length).unwrap_or(&zeros);
            let write = FileWrite { offset: end, data, is_page: false, blocking: Blocking::Yes, request: 0 };
            self.put(inode, writer, write).map_err(|failure| match failure {
                Failure::Error(error) => self.log.fail(inode, "zeroing the gap before a write", error),
                failure => failure,
            })?;
            end_guard.advance(end + length as u64, u64::MAX);
        }
        Ok(Some(page_drop))
    }

    /// Makes every byte of an open array zero.
    pub fn zero(&self, inode: &Inode) -> FsResult<()> {
        let array = inode.array()?;
        let has_writers = array.writer().has_writers();
        array.writer().open_for_writing().map_err(|error| self.log.fail(inode, "truncate", error))?;
        let mut result = array.writer().zero();
        if !has_writers {
            // No close of a handle would store it.
            result = result.and_then(|()| {
                self.served.run_on_current(inode, &array, |array: &Array| array.writer().flush())
            });
        }
        array.writer().close_for_writing();
        result.map_err(|error| self.log.fail(inode, "truncate", error))
    }

    /// Stores what was written, for a request of a handle. `report` gets the number of failures
    /// and the last one, returns the error that the handle has not reported yet, and records that it has.
    pub fn store(
        &self,
        inode: &Inode,
        writer: Option<&WriterState>,
        request: &str,
        store: impl Fn(&Array) -> Result<(), Error>,
        report: impl Fn(&WriterState, u64, Option<Error>) -> Option<Error>,
    ) -> FsResult<()> {
        let Some(writer) = writer else {
            // A reader of a replaced array has nothing to store.
            let Ok(array) = inode.array() else { return Ok(()) };
            if !array.writer().was_written() {
                return Ok(());
            }
            let stored = self.served.run_on_current(inode, &array, store);
            return stored.map_err(|error| self.log.fail(inode, request, error));
        };
        let stored = self.served.run_on_current(inode, &writer.array, store);
        if let Err(error @ Error::Stale { .. }) = &stored {
            writer.array.writer().record_failure(error);
        }
        // The array that the handle opened counts the failures, however often it has grown since.
        let (failures, last) = writer.array.writer().failures();
        match (stored, report(writer, failures, last)) {
            (Err(error), _) => Err(self.log.fail(inode, request, error)),
            // This attempt succeeded, but an earlier one failed, and this handle was not informed yet.
            (Ok(()), Some(error)) => Err(Failure::from(error)),
            _ => Ok(()),
        }
    }

    /// Fails if `data` begins a `.npy` file of the array's shape. Its header would shift all elements.
    pub fn refuse_npy_header(&self, inode: &Inode, data: &[u8]) -> FsResult<()> {
        let Some(shape) = npy_shape(data) else { return Ok(()) };
        let Some(open) = inode.open_array() else { return Ok(()) };
        let expected = &open.metadata.shape;
        if shape != *expected && !shape.iter().eq(expected.iter().rev()) {
            return Ok(());
        }
        let sentence = "this is a .npy file with a header, and the array's file has none: write the elements alone, \
                        as numpy.ndarray.tofile does";
        Err(self.log.fail(inode, "write", Error::InvalidValue(sentence.to_owned())))
    }
}
