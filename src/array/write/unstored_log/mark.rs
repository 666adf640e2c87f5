//! The mark of an array with bytes that are neither in the store nor in the log, where only what is synced outlives the daemon.
//!
//! Invariants: the log has the mark before the first reply to such a write, and until all of them are in the store. A mark that a dead daemon has
//! left stays until each handle that may have written is known to report the loss.

use std::sync::Arc;

use crate::array::sync::Mutex;
use crate::array::write::unstored_log::segments::Segment;
use crate::error::Result;

/// What outlives the daemon of what programs write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptBytes {
    /// Every byte, until it is in the store.
    #[default]
    All,
    /// Only what was synced. The loss of other bytes is reported.
    Synced,
}

impl KeptBytes {
    /// Returns the value as the command line spells it.
    pub fn word(self) -> &'static str {
        match self {
            KeptBytes::All => "all",
            KeptBytes::Synced => "synced",
        }
    }
}

/// The mark of one array.
#[derive(Default)]
pub struct UnstoredMark {
    state: Mutex<MarkState>,
}

#[derive(Default)]
struct MarkState {
    /// The segment of the record that marks the array. It keeps the record in the log. `None` if the array is not marked.
    record: Option<Arc<Segment>>,
    /// How many writes have not brought all of their bytes to dirty chunks yet.
    under_way: usize,
    /// A dead daemon has left the mark: its bytes are lost.
    is_lost: bool,
}

/// A write to a marked array. As long as it exists, its bytes may not be in dirty chunks yet.
pub struct MarkedWrite(Arc<UnstoredMark>);

impl Drop for MarkedWrite {
    fn drop(&mut self) {
        self.0.state.lock().under_way -= 1;
    }
}

impl UnstoredMark {
    /// Begins a write. `record` marks the array in the log, if it is not marked.
    pub fn begin_write(
        self: &Arc<Self>,
        record: impl FnOnce() -> Result<Arc<Segment>>,
    ) -> Result<MarkedWrite> {
        let mut state = self.state.lock();
        if state.record.is_none() {
            state.record = Some(record()?);
        }
        state.under_way += 1;
        Ok(MarkedWrite(Arc::clone(self)))
    }

    /// Ends the mark, unless a write is under way or the bytes of a dead daemon are lost. `record` says so in the log, and returns whether it could.
    pub fn end(&self, record: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        if state.under_way == 0 && !state.is_lost && record() {
            state.record = None;
        }
    }

    /// Returns whether the array is marked.
    pub fn is_set(&self) -> bool {
        self.state.lock().record.is_some()
    }

    /// Forgets the mark, because the array has ended.
    pub fn forget(&self) {
        self.state.lock().record = None;
    }

    /// Takes over the mark that a dead daemon has left.
    pub fn continue_lost(&self, segment: &Arc<Segment>) {
        let mut state = self.state.lock();
        (state.record, state.is_lost) = (Some(Arc::clone(segment)), true);
    }

    /// Returns whether a dead daemon has left the mark.
    pub fn is_lost(&self) -> bool {
        self.state.lock().is_lost
    }

    /// All handles that may have written know that bytes are lost.
    pub fn end_loss(&self) {
        self.state.lock().is_lost = false;
    }

    /// Marks the array anew if its mark is in a segment before `old`, so that the log can be shorter.
    pub fn renew(&self, old: u64, record: impl FnOnce() -> Result<Arc<Segment>>) -> Result<()> {
        let mut state = self.state.lock();
        if state.record.as_ref().is_some_and(|segment| segment.number() < old) {
            state.record = Some(record()?);
        }
        Ok(())
    }
}
