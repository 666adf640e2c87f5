//! The writing half of an open array's file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::array::Array;
use crate::mount::fs::error::FsResult;

/// The state of a handle that may write.
pub struct WriterState {
    /// The array that was opened. It is used when another array has taken its place.
    pub array: Arc<Array>,
    /// Whether the file may be mapped: it is open for reading, too.
    pub may_map: bool,
    /// How many failed write-backs fsync has reported to this handle.
    reported: AtomicU64,
    /// How many failed write-backs close has reported. They are counted apart, because programs ignore close: the first close of
    /// dd, for example, stores zeros that some codecs cannot encode.
    reported_by_close: AtomicU64,
    /// Whether the last operation was a close(2). Then the file is probably closed and its release on the way.
    is_closing: AtomicBool,
}

impl WriterState {
    /// Opens an array for writing.
    pub fn open(array: &Arc<Array>, may_map: bool) -> FsResult<Self> {
        array.writer().open_for_writing()?;
        let reported = array.writer().failures().0;
        Ok(WriterState {
            array: array.clone(),
            may_map,
            reported: reported.into(),
            reported_by_close: reported.into(),
            is_closing: AtomicBool::new(false),
        })
    }

    /// Returns whether the last operation was a close(2).
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Records whether the last operation was a close(2).
    pub fn set_closing(&self, is_closing: bool) {
        self.is_closing.store(is_closing, Ordering::Relaxed);
    }

    /// Records that fsync has reported this many failures, and returns how many were reported before.
    pub fn report_by_fsync(&self, failures: u64) -> u64 {
        self.reported.swap(failures, Ordering::AcqRel)
    }

    /// Records that close has reported this many failures, and returns how many were reported before, by fsync or close.
    pub fn report_by_close(&self, failures: u64) -> u64 {
        let reported_by_close = self.reported_by_close.swap(failures, Ordering::AcqRel);
        reported_by_close.max(self.reported.load(Ordering::Acquire))
    }
}
