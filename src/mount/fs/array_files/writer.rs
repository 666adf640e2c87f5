//! The writing half of an open array's file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::array::Array;
use crate::error::Error;
use crate::mount::fs::error::FsResult;
use crate::mount::journal::record::LossReports;

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
    /// What was lost with a daemon that died.
    loss: Option<UnreportedLoss>,
    /// Whether the last operation was a close(2). Then the file is probably closed and its release on the way.
    is_closing: AtomicBool,
}

impl WriterState {
    /// Opens an array for writing.
    pub fn open(array: &Arc<Array>, may_map: bool) -> FsResult<Self> {
        array.writer().open_for_writing()?;
        let reported = array.writer().failures().0;
        Ok(WriterState::with(array, may_map, reported, None))
    }

    /// Opens an array again, for a handle from before a restart of the daemon, which has reported no failure since.
    pub fn reopen(array: &Arc<Array>, may_map: bool, loss: Option<UnreportedLoss>) -> FsResult<Self> {
        array.writer().open_for_writing()?;
        Ok(WriterState::with(array, may_map, 0, loss))
    }

    fn with(array: &Arc<Array>, may_map: bool, reported: u64, loss: Option<UnreportedLoss>) -> Self {
        WriterState {
            array: array.clone(),
            may_map,
            reported: reported.into(),
            reported_by_close: reported.into(),
            loss,
            is_closing: AtomicBool::new(false),
        }
    }

    /// Returns whether the last operation was a close(2).
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Records whether the last operation was a close(2).
    pub fn set_closing(&self, is_closing: bool) {
        self.is_closing.store(is_closing, Ordering::Relaxed);
    }

    /// Returns the error that fsync has to report after this number of failures, and records that it has.
    pub fn unreported_by_fsync(&self, failures: u64, last: Option<Error>) -> Option<Error> {
        let reported = self.reported.swap(failures, Ordering::AcqRel);
        let loss = self.loss.as_ref().filter(|loss| loss.report_by_fsync());
        loss.map(|_| self.array.writer().unstored().lost_bytes()).or(last.filter(|_| reported < failures))
    }

    /// Returns the error that close has to report, and records that it has. What fsync has reported, close does not.
    pub fn unreported_by_close(&self, failures: u64, last: Option<Error>) -> Option<Error> {
        let reported_by_close = self.reported_by_close.swap(failures, Ordering::AcqRel);
        let reported = reported_by_close.max(self.reported.load(Ordering::Acquire));
        let loss = self.loss.as_ref().filter(|loss| loss.report_by_close());
        loss.map(|_| self.array.writer().unstored().lost_bytes()).or(last.filter(|_| reported < failures))
    }
}

/// Bytes that are lost and that a handle may have written: it reports that as it reports failures.
pub struct UnreportedLoss {
    unreported: Mutex<LossReports>,
    /// Records for another daemon what is left to report.
    record: Box<dyn Fn(LossReports) + Send + Sync>,
}

impl UnreportedLoss {
    /// A loss with this left to report.
    pub fn new(unreported: LossReports, record: Box<dyn Fn(LossReports) + Send + Sync>) -> Self {
        record(unreported);
        UnreportedLoss { unreported: Mutex::new(unreported), record }
    }

    fn report_by_fsync(&self) -> bool {
        let mut unreported = self.unreported.lock();
        let is_due = unreported.by_fsync;
        if is_due {
            *unreported = LossReports::default();
            (self.record)(*unreported);
        }
        is_due
    }

    fn report_by_close(&self) -> bool {
        let mut unreported = self.unreported.lock();
        let is_due = unreported.by_close;
        if is_due {
            unreported.by_close = false;
            (self.record)(*unreported);
        }
        is_due
    }
}
