//! Counts the bytes that are decoded for one reader, whichever thread decodes them.
//!
//! A thread works for at most one reader at a time. Code that passes work on to another thread passes the meter on, too. Uses nothing of the
//! crate: a meter orders nothing, so the schedules of `interleavings` need not see it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The meter of the reader that this thread works for.
    static CURRENT: RefCell<Option<DecodeMeter>> = const { RefCell::new(None) };
}

/// Counts the bytes of chunks that are decoded for one reader. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct DecodeMeter(Arc<AtomicU64>);

impl DecodeMeter {
    /// Returns the bytes that were decoded so far.
    pub fn decoded_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the meter of the reader that this thread works for.
    pub fn current() -> Option<DecodeMeter> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Runs `work` for the reader with this meter.
    pub fn run<T>(meter: Option<&DecodeMeter>, work: impl FnOnce() -> T) -> T {
        let Some(meter) = meter else { return work() };
        /// Puts the former meter back, also if the work panics.
        struct Former(Option<DecodeMeter>);
        impl Drop for Former {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _former = Former(CURRENT.replace(Some(meter.clone())));
        work()
    }

    /// Counts bytes that this thread has decoded.
    pub fn record(decoded_bytes: u64) {
        CURRENT.with_borrow(|current| {
            if let Some(DecodeMeter(bytes)) = current {
                bytes.fetch_add(decoded_bytes, Ordering::Relaxed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_what_is_decoded_for_it() {
        let (outer, inner) = (DecodeMeter::default(), DecodeMeter::default());
        DecodeMeter::record(1);
        DecodeMeter::run(Some(&outer), || {
            DecodeMeter::record(2);
            DecodeMeter::run(Some(&inner), || DecodeMeter::record(4));
            DecodeMeter::run(None, || DecodeMeter::record(8));
            let passed_on = DecodeMeter::current();
            let worker = std::thread::spawn(move || {
                DecodeMeter::run(passed_on.as_ref(), || DecodeMeter::record(16));
            });
            assert!(worker.join().is_ok());
        });
        DecodeMeter::record(32);
        assert_eq!((outer.decoded_bytes(), inner.decoded_bytes()), (26, 4));
    }
}
