//! Drops of a file's pages from the kernel's page cache, and the writes that a read may overtake because of them.
//!
//! This file uses nothing else of the crate. write(2) through the page cache fills the pages, which are readable from then on, and
//! sends its WRITE afterwards; it holds the inode's lock until the reply. If a page is dropped in between (open(2) and
//! FUSE_NOTIFY_INVAL_INODE do so without that lock), the next READ may return the bytes from before the WRITE, and that page stays:
//! the kernel changes nothing in it when the WRITE completes. Memory pressure and posix_fadvise(2) do not drop a page that a write
//! has filled.
//!
//! The reply to open(2) drops a file's pages, in the thread that opens. A notification waits, in this
//! process, for pages that are locked by requests to this process, so that a daemon that is killed meanwhile
//! can neither exit nor have its connection aborted. Notifications are left to cases that no open can handle.
//!
//! Invariants: a drop is recorded from before it begins until after it has ended. A drop by an open has ended
//! when the kernel uses the handle, and at the latest after a second. Because of the inode's lock a drop
//! concerns at most one WRITE: the one that filled its pages before the drop ended. If pages of its range
//! were read since the drop began, that range is dropped once more, after its bytes are in the array and
//! before the reply.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The maximum number of separate ranges.
const MAX_RANGES: usize = 64;

/// The kernel drops pages right after it receives the reply to an open(2); only reads of those pages can
/// delay it.
const OPEN_TIME: Duration = Duration::from_secs(1);

/// The drops of one file's pages.
#[derive(Debug, Default)]
pub struct PageDrops {
    /// Whether a WRITE may arrive after its pages were dropped.
    is_doubtful: AtomicBool,
    state: Mutex<DropState>,
}

#[derive(Debug, Default)]
struct DropState {
    /// The number of reasons to drop all pages, and the number of them that the completed drops cover.
    reasons: u64,
    dropped: u64,
    /// The drops by notification that are in progress.
    in_progress: usize,
    /// The drops by the reply to an open(2), with the time just before the reply was sent.
    by_open: Vec<(u64, Instant)>,
    opens: u64,
    /// The drops by the kernel itself. They have ended when a drop that began later has.
    untimed: usize,
    /// The ranges that were read into the page cache since a drop began.
    read: Vec<Range<u64>>,
    /// The number of these reads, and the numbers of those without a reply yet.
    reads: u64,
    in_flight: BTreeSet<u64>,
}

/// A drop of pages, created before it begins. One that is dropped without [`PageDrop::done`] did not happen, and the next open(2)
/// drops all pages instead.
#[derive(Debug)]
pub struct PageDrop {
    drops: Arc<PageDrops>,
    /// The range; `None` for all pages.
    pub range: Option<Range<u64>>,
    /// The reasons that it covers, if it drops all pages.
    reasons: u64,
    is_done: bool,
    /// Its number in `by_open`.
    open: Option<u64>,
}

/// The drop that goes with the reply to an open, until the kernel has used the file.
#[derive(Debug, Default)]
pub struct OpenDrop {
    is_pending: AtomicBool,
    drop: Mutex<Option<Box<PageDrop>>>,
}

impl OpenDrop {
    /// Creates the drop of an open, just before its reply is sent.
    pub fn new(drop: Option<PageDrop>) -> Self {
        OpenDrop { is_pending: drop.is_some().into(), drop: Mutex::new(drop.map(Box::new)) }
    }

    /// Records that the kernel uses the file, so that it has processed the reply.
    pub fn record_use(&self) {
        if self.is_pending.load(Ordering::Acquire) && self.is_pending.swap(false, Ordering::AcqRel) {
            self.drop.lock().take().into_iter().for_each(|drop| drop.done());
        }
    }

    /// Records that the open failed, so that nothing was dropped.
    pub fn cancel(&self) {
        self.is_pending.store(false, Ordering::Release);
        self.drop.lock().take();
    }
}

/// A read into the page cache without a reply yet, while a drop may concern a WRITE.
#[derive(Debug)]
pub struct PageRead {
    drops: Arc<PageDrops>,
    number: u64,
}

impl PageDrops {
    /// Marks the page cache as outdated. The next open(2) drops it.
    pub fn mark_outdated(&self) {
        self.state.lock().reasons += 1;
    }

    /// Records that the kernel is about to drop all pages itself, because it learns a new size.
    pub fn mark_new_size(&self) {
        let mut state = self.state.lock();
        state.reasons += 1;
        state.untimed += 1;
        self.is_doubtful.store(true, Ordering::SeqCst);
    }

    /// Begins a drop of all pages by the reply to an open(2), if there is a reason that no completed drop covers.
    pub fn due(self: &Arc<Self>) -> Option<PageDrop> {
        let mut state = self.state.lock();
        if state.dropped >= state.reasons {
            return None;
        }
        let number = state.opens;
        state.opens += 1;
        state.by_open.push((number, Instant::now()));
        self.is_doubtful.store(true, Ordering::SeqCst);
        let reasons = state.reasons;
        Some(PageDrop { drops: self.clone(), range: None, reasons, is_done: false, open: Some(number) })
    }

    /// Begins a drop by notification.
    pub fn begin(self: &Arc<Self>, range: Option<Range<u64>>) -> PageDrop {
        let mut state = self.state.lock();
        state.in_progress += 1;
        let reasons = if range.is_none() { state.reasons } else { 0 };
        self.is_doubtful.store(true, Ordering::SeqCst);
        PageDrop { drops: self.clone(), range, reasons, is_done: false, open: None }
    }

    /// Records a read into the page cache, before its data is looked up.
    pub fn record_read(self: &Arc<Self>, range: Range<u64>) -> Option<PageRead> {
        if !self.is_doubtful.load(Ordering::SeqCst) {
            return None;
        }
        let mut state = self.state.lock();
        if !self.is_doubtful.load(Ordering::SeqCst) {
            return None;
        }
        let number = state.reads;
        state.reads += 1;
        state.in_flight.insert(number);
        state.record(range);
        drop(state);
        Some(PageRead { drops: self.clone(), number })
    }

    /// Returns the number of reads so far.
    pub fn reads(&self) -> u64 {
        self.state.lock().reads
    }

    /// Returns whether one of the first `reads` reads still has no reply.
    pub fn has_in_flight(&self, reads: u64) -> bool {
        self.state.lock().in_flight.first().is_some_and(|&first| first < reads)
    }

    /// Returns the drop that must precede the reply to a WRITE through the page cache, if a read may have overtaken it. The bytes are
    /// in the array, so that every later read gets them.
    pub fn overtaken(self: &Arc<Self>, range: Range<u64>) -> Option<PageDrop> {
        if !self.is_doubtful.load(Ordering::SeqCst) {
            return None;
        }
        let is_overtaken =
            self.state.lock().read.iter().any(|read| read.start < range.end && range.start < read.end);
        if is_overtaken {
            return Some(self.begin(Some(range)));
        }
        self.record_reply();
        None
    }

    /// Records that the reply to a WRITE is about to be sent. Pages that are filled from now on are in no drop that has ended.
    pub fn record_reply(&self) {
        let mut state = self.state.lock();
        state.by_open.retain(|(_, since)| since.elapsed() < OPEN_TIME);
        if state.in_progress == 0 && state.untimed == 0 && state.by_open.is_empty() {
            state.read.clear();
            self.is_doubtful.store(false, Ordering::SeqCst);
        }
    }
}

impl DropState {
    fn record(&mut self, new: Range<u64>) {
        let first = self.read.partition_point(|range| range.end < new.start);
        let after = self.read.partition_point(|range| range.start <= new.end);
        let joined = self.read.get(first..after).unwrap_or_default();
        let start = joined.first().map_or(new.start, |range| range.start.min(new.start));
        let end = joined.last().map_or(new.end, |range| range.end.max(new.end));
        self.read.splice(first..after, std::iter::once(start..end));
        if self.read.len() > MAX_RANGES
            && let (Some(first), Some(last)) = (self.read.first(), self.read.last())
        {
            let all = first.start..last.end;
            self.read.clear();
            self.read.push(all);
        }
    }
}

impl PageDrop {
    /// Returns the drops of the file.
    pub fn drops(&self) -> Arc<PageDrops> {
        self.drops.clone()
    }

    /// Returns the drop of a longer range. None of its pages was dropped yet.
    pub fn extended_to(mut self, end: u64) -> Self {
        if let Some(range) = &mut self.range {
            range.end = range.end.max(end);
        }
        self
    }

    /// Records that the kernel has dropped the pages.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for PageDrop {
    fn drop(&mut self) {
        let mut state = self.drops.state.lock();
        match self.open {
            Some(number) => state.by_open.retain(|(other, _)| *other != number),
            None => {
                state.in_progress -= 1;
                if !self.is_done {
                    state.reasons += 1;
                }
            }
        }
        if self.is_done && self.range.is_none() {
            state.dropped = state.dropped.max(self.reasons);
            if state.dropped == state.reasons {
                state.untimed = 0;
            }
        }
    }
}

impl Drop for PageRead {
    fn drop(&mut self) {
        self.drops.state.lock().in_flight.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_dropped_once_for_each_reason() {
        let drops = Arc::new(PageDrops::default());
        assert!(drops.due().is_none());
        drops.mark_outdated();
        let first = drops.due();
        assert!(first.is_some() && drops.due().is_some(), "the first has not ended");
        drops.mark_outdated();
        first.into_iter().for_each(PageDrop::done);
        let second = drops.due();
        assert!(second.is_some(), "the reason came after the first drop began");
        drop(second);
        assert!(drops.due().is_some(), "the drop did not happen");
        drops.due().into_iter().for_each(PageDrop::done);
        assert!(drops.due().is_none());
    }

    #[test]
    fn a_drop_that_did_not_happen_is_due_at_the_next_open() {
        let drops = Arc::new(PageDrops::default());
        drops.begin(Some(0..10)).extended_to(20).done();
        assert!(drops.due().is_none());
        drop(drops.begin(Some(0..10)));
        let due = drops.due();
        assert!(due.is_some());
        due.into_iter().for_each(PageDrop::done);
        drop(drops.begin(None));
        assert!(drops.due().is_some());
    }

    #[test]
    fn a_read_since_a_drop_began_overtakes_one_write() {
        let drops = Arc::new(PageDrops::default());
        assert!(
            drops.record_read(0..10).is_none() && drops.overtaken(0..10).is_none(),
            "nothing was dropped"
        );
        let drop_of_all = drops.begin(None);
        let read = drops.record_read(100..200);
        assert!(read.is_some() && drops.has_in_flight(drops.reads()) && !drops.has_in_flight(0));
        assert!(drops.overtaken(200..300).is_none(), "another range");
        drop_of_all.done();
        let again = drops.overtaken(150..160);
        assert_eq!(again.as_ref().and_then(|again| again.range.clone()), Some(150..160));
        drop((again, read));
        drops.record_reply();
        assert!(!drops.has_in_flight(drops.reads()));
        assert!(drops.overtaken(150..160).is_none(), "its pages were filled after the drops had ended");
        assert!(drops.record_read(150..160).is_none());
    }

    #[test]
    fn a_drop_by_the_kernel_ends_with_the_next() {
        let drops = Arc::new(PageDrops::default());
        drops.mark_new_size();
        assert!(drops.record_read(0..10).is_some());
        assert!(drops.overtaken(20..30).is_none());
        assert!(drops.overtaken(5..6).is_some());
        drops.due().into_iter().for_each(PageDrop::done);
        assert!(drops.due().is_none() && drops.overtaken(20..30).is_none());
        assert!(drops.overtaken(5..6).is_none());
    }

    #[test]
    fn many_ranges_become_one() {
        let drops = Arc::new(PageDrops::default());
        let _drop = drops.begin(None);
        for at in 0..=MAX_RANGES as u64 {
            drop(drops.record_read(10 * at..10 * at + 1));
        }
        assert_eq!(drops.state.lock().read.len(), 1);
        assert!(drops.overtaken(5..6).is_some());
    }
}
