//! What becomes of the bytes of one array that are not stored when the process ends.
//!
//! Uses `dirty_chunks.rs`, `unstored_log/`, `served/` and `error`. The process records them for the next one, or they are lost, and
//! the handles of the next process that may have written them report that.

use std::sync::Arc;

use crate::array::served::ServedArray;
use crate::array::write::dirty_chunks::DirtyChunks;
use crate::array::write::unstored_log::{FormerArray, FormerRecord, Kind};
use crate::error::Error;

/// How often everything that is not stored is recorded again because something was written meanwhile.
const MAX_RECORDINGS: usize = 8;

/// The bytes of an array that are not stored, over the end of one process and the start of the next.
pub struct UnstoredBytes {
    served: Arc<ServedArray>,
    dirty: Arc<DirtyChunks>,
}

impl UnstoredBytes {
    /// Creates the unstored bytes of an array with these dirty chunks.
    pub fn new(served: &Arc<ServedArray>, dirty: &Arc<DirtyChunks>) -> Self {
        UnstoredBytes { served: Arc::clone(served), dirty: Arc::clone(dirty) }
    }

    /// Returns the array's path.
    pub fn path(&self) -> &str {
        self.served.path()
    }

    /// Keeps the array out of the log: no other process continues it. To be called before it is written to.
    pub fn record_nothing(&self) {
        self.dirty.recorder().record_nothing();
    }

    /// Records everything that is not stored, for the next process. Returns whether all of it is recorded.
    pub fn record_all(&self) -> bool {
        // Pages of memory maps are written at any time.
        (0..MAX_RECORDINGS).any(|_| self.dirty.record_unstored())
    }

    /// Records again what is in segments of the log before `old`, so that these segments can be freed.
    pub fn record_anew(&self, old: u64) {
        self.dirty.recorder().record_anew(self.dirty.all(), old);
    }

    /// Returns the error of the handles that may have written what a dead process took and lost, until all of them have
    /// reported it.
    pub fn loss(&self) -> Option<Error> {
        self.dirty.recorder().is_lost().then(|| self.lost_bytes())
    }

    /// Returns the error of a handle that may have written bytes that are lost.
    pub fn lost_bytes(&self) -> Error {
        let reason = "the daemon died before it had stored what was written (--keep=synced)";
        Error::store(self.served.document_key(), "store", std::io::Error::other(reason))
    }

    /// Records that bytes are lost, if a former process has left its mark. Returns whether it has.
    pub fn continue_loss(&self, former: &FormerArray) -> bool {
        let is_about_it =
            |record: &&FormerRecord| matches!(record.header.kind, Kind::Unrecorded | Kind::AllRecorded);
        let last = former.records.iter().rev().find(is_about_it);
        let mark = last.filter(|record| record.header.kind == Kind::Unrecorded);
        if let Some(mark) = mark {
            self.dirty.recorder().continue_lost(&mark.segment);
        }
        mark.is_some()
    }

    /// Ends the loss, because all handles that may have written what is lost have reported it.
    pub fn end_loss(&self) {
        self.dirty.end_loss();
    }
}
