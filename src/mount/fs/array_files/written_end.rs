//! The written end: how far a file has been written since it was truncated, or since it began to grow.
//!
//! This file uses `journal` for the record of it. O_TRUNC and ftruncate(2) below the size destroy nothing: they only set the file's
//! *written end*. Writes, ftruncate(2) and fallocate(2) move it forward and zero the gap before them, as in a file that grows.
//! Bytes at and after it keep their value. fsync(2) and the last writer's close(2) fail while it is less than the size.
//!
//! An array grows by whole slabs, a file by bytes (`growth.rs`). While the last slab is not written to its end, the file is
//! *growing*: its written end is the size that programs see, and the place of the next append.
//!
//! Invariant: an operation holds the lock from the check of the written end until all bytes up to the new one
//! are in the array, or their chunks are locked for the copy.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::mount::journal::record::WrittenEndRecord;

/// The file is neither truncated nor growing.
const WHOLE: u64 = u64::MAX;
/// The bit of a growing file's end. No file is longer than `i64::MAX`.
const GROWING: u64 = 1 << 63;

/// The written end of one file.
pub struct WrittenEnd {
    end: AtomicU64,
    cut: Mutex<Truncation>,
    /// Whether the kernel may still use the size that the file had while it was growing.
    is_size_unknown: AtomicBool,
    /// Gets each change, for another daemon.
    observer: OnceLock<EndObserver>,
}

/// A function that gets the changes of a written end.
pub type EndObserver = Box<dyn Fn(WrittenEndRecord) + Send + Sync>;

#[derive(Clone, Copy, Debug, Default)]
struct Truncation {
    /// The process that truncated the file, 0 if unknown.
    by: u32,
    /// The size that it set; `None` if the file is growing.
    at: Option<u64>,
    /// Whether the file was truncated since it last had no writer.
    is_recent: bool,
    /// The request that moved the written end last, 0 if that was none.
    request: u64,
    /// How many bytes that has written.
    written_bytes: u32,
}

impl Default for WrittenEnd {
    fn default() -> Self {
        WrittenEnd {
            end: AtomicU64::new(WHOLE),
            cut: Mutex::default(),
            is_size_unknown: AtomicBool::new(false),
            observer: OnceLock::new(),
        }
    }
}

/// A lock on the written end.
pub struct WrittenEndGuard<'a> {
    end: &'a AtomicU64,
    cut: MutexGuard<'a, Truncation>,
    /// Gets the state when the lock is released, if it has changed.
    observer: Option<(&'a EndObserver, WrittenEndRecord)>,
}

impl WrittenEnd {
    /// Returns the written end of a truncated or growing file.
    pub fn get(&self) -> Option<u64> {
        end(&self.end)
    }

    /// Returns the size that programs see of a file whose array has `size_bytes`. The caller reads that before.
    pub fn shown_size(&self, size_bytes: u64) -> u64 {
        match self.end.load(Ordering::SeqCst) {
            WHOLE => size_bytes,
            end if end & GROWING != 0 => size_bytes.min(end & !GROWING),
            _ => size_bytes,
        }
    }

    /// Records that the kernel is about to learn the size.
    pub fn mark_size_known(&self) {
        self.is_size_unknown.store(false, Ordering::Release);
    }

    /// Records that the size has changed without a reply to the kernel.
    pub fn mark_size_unknown(&self) {
        self.is_size_unknown.store(true, Ordering::Release);
    }

    /// Returns whether the kernel must ask for the size before a program uses the file.
    pub fn is_size_unknown(&self) -> bool {
        self.is_size_unknown.load(Ordering::Acquire)
    }

    /// Returns whether the file is growing. Its size changes with each write.
    pub fn is_growing(&self) -> bool {
        is_growing(&self.end)
    }

    /// Locks the written end. Blocks while another operation holds the lock.
    pub fn lock(&self) -> WrittenEndGuard<'_> {
        self.guard(self.cut.lock())
    }

    /// Locks the written end, unless that would block.
    pub fn try_lock(&self) -> Option<WrittenEndGuard<'_>> {
        Some(self.guard(self.cut.try_lock()?))
    }

    fn guard<'a>(&'a self, cut: MutexGuard<'a, Truncation>) -> WrittenEndGuard<'a> {
        let observer = self.observer.get().map(|observer| (observer, record(&self.end, &cut)));
        WrittenEndGuard { end: &self.end, cut, observer }
    }

    /// Gives each change to `observer` from now on.
    pub fn observe(&self, observer: EndObserver) {
        let _ = self.observer.set(observer);
    }

    /// Restores what another daemon has recorded.
    pub fn restore(&self, record: &WrittenEndRecord) {
        let mut cut = self.cut.lock();
        *cut = Truncation {
            by: record.cut_by,
            at: record.cut_at,
            is_recent: record.is_recent,
            request: record.request,
            written_bytes: record.written_bytes,
        };
        self.end.store(record.end, Ordering::SeqCst);
    }

    /// Returns how many bytes a request has written, if it was the last that moved the written end.
    pub fn written_by(&self, request: u64) -> Option<u32> {
        let cut = self.cut.lock();
        (request != 0 && cut.request == request).then_some(cut.written_bytes)
    }
}

fn record(end: &AtomicU64, cut: &Truncation) -> WrittenEndRecord {
    let Truncation { by, at, is_recent, request, written_bytes } = *cut;
    let end = end.load(Ordering::SeqCst);
    WrittenEndRecord { end, cut_by: by, cut_at: at, is_recent, request, written_bytes }
}

impl Drop for WrittenEndGuard<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

fn end(end: &AtomicU64) -> Option<u64> {
    Some(end.load(Ordering::SeqCst)).filter(|&end| end != WHOLE).map(|end| end & !GROWING)
}

fn is_growing(end: &AtomicU64) -> bool {
    let end = end.load(Ordering::SeqCst);
    end != WHOLE && end & GROWING != 0
}

impl WrittenEndGuard<'_> {
    /// Returns the written end of a truncated or growing file.
    pub fn end(&self) -> Option<u64> {
        end(self.end)
    }

    /// Truncates the file to `end`, for a process.
    pub fn cut(&mut self, end: u64, process: u32) {
        *self.cut = Truncation { by: process, at: Some(end), is_recent: true, ..Truncation::default() };
        self.end.store(end, Ordering::SeqCst);
    }

    /// Records that a program truncated the file to the size that it has.
    pub fn record_cut(&mut self) {
        self.cut.is_recent = true;
    }

    /// Makes a whole file a growing one, with the written end at `size_bytes`. Returns whether it was whole.
    pub fn begin_growth(&mut self, size_bytes: u64) -> bool {
        let is_whole = self.end().is_none();
        if is_whole {
            (self.cut.by, self.cut.at) = (0, None);
            self.end.store(size_bytes | GROWING, Ordering::SeqCst);
        }
        is_whole
    }

    /// Returns whether the file is growing.
    pub fn is_growing(&self) -> bool {
        is_growing(self.end)
    }

    /// Makes a growing file whole if it is written to its size: the daemon that was about to make it longer has died before.
    pub fn end_growth_at(&mut self, size_bytes: u64) {
        if self.is_growing() && self.end().is_some_and(|end| end >= size_bytes) {
            self.make_whole();
        }
    }

    /// Gives a change to the observer before the lock is released.
    pub fn report(&mut self) {
        if let Some((observer, before)) = &mut self.observer {
            let now = record(self.end, &self.cut);
            if now != *before {
                observer(now);
                *before = now;
            }
        }
    }

    /// Returns whether a program truncated the file since it last had no writer.
    pub fn was_cut(&self) -> bool {
        self.cut.is_recent
    }

    /// Records that all bytes before `end` are written. At the size of the file, the file is whole again.
    pub fn advance(&mut self, end: u64, size_bytes: u64) {
        if self.end().is_some_and(|now| now <= end) {
            let growing = if self.is_growing() { GROWING } else { 0 };
            self.end.store(if end >= size_bytes { WHOLE } else { end | growing }, Ordering::SeqCst);
        }
    }

    /// Records the request that has moved the written end, if it is one, and how many bytes it has written.
    pub fn record_request(&mut self, request: u64, written_bytes: u32) {
        (self.cut.request, self.cut.written_bytes) = (request, written_bytes);
    }

    /// Makes the file whole.
    pub fn make_whole(&mut self) {
        self.end.store(WHOLE, Ordering::SeqCst);
    }

    /// Makes the file whole after its last writer is gone, and returns the written end.
    pub fn forget(&mut self) -> Option<u64> {
        let end = self.end();
        self.cut.is_recent = false;
        self.make_whole();
        end
    }

    /// Returns the process that truncated the file, 0 if unknown.
    pub fn cut_by(&self) -> u32 {
        self.cut.by
    }

    /// Returns whether nothing was written since the truncation.
    pub fn is_untouched(&self) -> bool {
        self.cut.at.is_some() && self.end() == self.cut.at
    }
}

/// Returns the shape in the header of a `.npy` file (NumPy's format 1.0 to 3.0), if `data` begins with one.
pub fn npy_shape(data: &[u8]) -> Option<Vec<u64>> {
    let rest = data.strip_prefix(b"\x93NUMPY")?;
    let (length, header) = match rest {
        [1, 0, low, high, header @ ..] => (usize::from(u16::from_le_bytes([*low, *high])), header),
        [2 | 3, 0, a, b, c, d, header @ ..] => {
            (usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).ok()?, header)
        }
        _ => return None,
    };
    let text = std::str::from_utf8(header.get(..length)?).ok()?;
    if !text.contains("'descr'") || !text.contains("'fortran_order'") {
        return None;
    }
    let (_, shape) = text.split_once("'shape':")?;
    let (shape, _) = shape.trim_start().strip_prefix('(')?.split_once(')')?;
    let numbers = shape.split(',').map(str::trim).filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_end_moves_forward_up_to_the_size() {
        let end = WrittenEnd::default();
        end.lock().advance(5, 10);
        assert_eq!(end.get(), None, "it was not truncated");
        end.lock().cut(3, 7);
        end.lock().advance(2, 10);
        assert_eq!(end.get(), Some(3));
        let process = end.lock().cut_by();
        assert_eq!(process, 7);
        end.lock().advance(9, 10);
        assert_eq!(end.get(), Some(9));
        end.lock().advance(10, 10);
        assert_eq!(end.get(), None);
        end.lock().cut(0, 7);
        let forgotten = end.lock().forget();
        assert_eq!(forgotten, Some(0));
        assert_eq!(end.get(), None);
    }

    #[test]
    fn a_growing_file_ends_at_its_written_end() {
        let end = WrittenEnd::default();
        assert_eq!(end.shown_size(10), 10);
        assert!(end.lock().begin_growth(10));
        assert_eq!((end.get(), end.shown_size(20)), (Some(10), 10));
        end.lock().advance(15, 20);
        assert_eq!((end.get(), end.shown_size(20)), (Some(15), 15));
        assert!(!end.lock().begin_growth(20) && !end.lock().is_untouched());
        end.lock().cut(4, 7);
        assert_eq!((end.get(), end.shown_size(20)), (Some(4), 20), "it is truncated now");
        assert!(!end.lock().begin_growth(20) && !end.lock().is_growing());
        end.lock().advance(20, 20);
        assert!(end.get().is_none() && end.lock().was_cut());
        assert!(end.lock().forget().is_none() && !end.lock().was_cut());
    }

    #[test]
    fn npy_headers_are_recognized() {
        let header = |version: &[u8], text: &str| [b"\x93NUMPY", version, text.as_bytes()].concat();
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 180), }   \n";
        let length = [text.len() as u8, 0];
        let first = header(&[1, 0, length[0], 0], text);
        assert_eq!(npy_shape(&first), Some(vec![12, 180]));
        assert_eq!(npy_shape(&header(&[2, 0, length[0], 0, 0, 0], text)), Some(vec![12, 180]));
        assert_eq!(npy_shape(&first[..first.len() - 2]), None, "cut short");
        let scalar = text.replace("(12, 180)", "()");
        assert_eq!(npy_shape(&header(&[1, 0, scalar.len() as u8, 0], &scalar)), Some(vec![]));
        assert_eq!(npy_shape(&header(&[1, 0, 4, 0], "abcd")), None);
        assert_eq!(npy_shape(b"\x93NUMPX\x01\x00"), None);
    }
}
