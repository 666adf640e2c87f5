//! How far a file has been written since it was truncated: O_TRUNC and ftruncate(2) below the size destroy
//! nothing.
//!
//! Uses nothing of the crate. The size of a file is fixed, so a truncation only sets its *written end*.
//! Writes, ftruncate(2) and fallocate(2) move the written end forward and zero the gap before them, as in a
//! file that grows. Bytes at and after it keep their value. fsync(2) and the last writer's close(2) fail
//! while it is less than the size.
//!
//! Invariant: an operation holds the lock from the check of the written end until all bytes up to the new one
//! are in the array, or their chunks are locked for the copy.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// The file is not truncated.
const WHOLE: u64 = u64::MAX;

/// The written end of one file.
#[derive(Debug)]
pub struct WrittenEnd {
    end: AtomicU64,
    cut: Mutex<Truncation>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Truncation {
    /// The process that truncated the file, 0 if unknown.
    by: u32,
    /// The size that it set.
    at: u64,
}

impl Default for WrittenEnd {
    fn default() -> Self {
        WrittenEnd { end: AtomicU64::new(WHOLE), cut: Mutex::default() }
    }
}

/// A lock on the written end.
pub struct WrittenEndGuard<'a> {
    end: &'a AtomicU64,
    cut: MutexGuard<'a, Truncation>,
}

impl WrittenEnd {
    /// The written end of a truncated file.
    pub fn get(&self) -> Option<u64> {
        Some(self.end.load(Ordering::SeqCst)).filter(|&end| end != WHOLE)
    }

    /// Locks it; blocks while another operation holds the lock.
    pub fn lock(&self) -> WrittenEndGuard<'_> {
        WrittenEndGuard { cut: self.cut.lock(), end: &self.end }
    }

    /// As [`WrittenEnd::lock`], unless that would block.
    pub fn try_lock(&self) -> Option<WrittenEndGuard<'_>> {
        Some(WrittenEndGuard { cut: self.cut.try_lock()?, end: &self.end })
    }
}

impl WrittenEndGuard<'_> {
    /// The written end of a truncated file.
    pub fn end(&self) -> Option<u64> {
        Some(self.end.load(Ordering::SeqCst)).filter(|&end| end != WHOLE)
    }

    /// Truncates the file to `end`, for a process.
    pub fn cut(&mut self, end: u64, process: u32) {
        *self.cut = Truncation { by: process, at: end };
        self.end.store(end, Ordering::SeqCst);
    }

    /// All bytes before `end` are written; at the size of the file it is whole again.
    pub fn advance(&mut self, end: u64, size_bytes: u64) {
        if self.end().is_some_and(|now| now <= end) {
            self.end.store(if end >= size_bytes { WHOLE } else { end }, Ordering::SeqCst);
        }
    }

    /// No writer is left: makes the file whole and returns the written end.
    pub fn forget(&mut self) -> Option<u64> {
        Some(self.end.swap(WHOLE, Ordering::SeqCst)).filter(|&end| end != WHOLE)
    }

    /// The process that truncated the file.
    pub fn cut_by(&self) -> u32 {
        self.cut.by
    }

    /// Whether nothing was written since the truncation.
    pub fn is_untouched(&self) -> bool {
        self.end() == Some(self.cut.at)
    }
}

/// The shape in the header of a `.npy` file (NumPy's format 1.0 to 3.0), if `data` begins with one.
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
    fn it_moves_forward_to_the_size_and_no_further() {
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
    fn headers_of_npy_files_are_told_from_data() {
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
