//! A **span**: a transfer, and the bytes that it brought.
//!
//! Uses `store/remote/first_bytes`. The table of spans is in `ahead`, which advances their progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::task::AbortHandle;

use crate::store::Wanted;
use crate::store::remote::first_bytes::FirstBytes;

/// A transfer and its bytes.
pub struct Span {
    pub id: u64,
    pub key: String,
    pub wanted: Wanted,
    /// The ETag that the object must have.
    pub tag: Option<String>,
    pub progress: Mutex<Progress>,
    pub ended: Condvar,
    pub claims: AtomicUsize,
    pub reservation: Reservation,
}

/// The progress of a transfer.
pub enum Progress {
    /// The transfer is running; the handle cancels it.
    UnderWay(Option<AbortHandle>),
    /// The bytes have arrived.
    Here(Arc<FirstBytes>),
    /// The object is missing.
    Missing,
    /// The transfer failed or was cancelled.
    Void,
}

/// The outcome of a transfer.
pub enum Outcome {
    /// These bytes.
    Here(Arc<FirstBytes>),
    /// The object is missing.
    Missing,
    /// There is nothing: the reader has to send its own request.
    Unknown,
}

/// The memory that is reserved for a span.
pub struct Reservation {
    /// Memory of all spans.
    pub taken_bytes: Arc<AtomicU64>,
    /// Memory of this one.
    pub bytes: AtomicU64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.taken_bytes.fetch_sub(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Reservation {
    /// Changes the reservation to `bytes`, unless that exceeds the limit.
    pub fn resize(&self, bytes: u64, limit_bytes: u64) -> bool {
        let old = self.bytes.load(Ordering::Relaxed);
        if bytes > old {
            let taken = self.taken_bytes.fetch_add(bytes - old, Ordering::Relaxed) + (bytes - old);
            if taken > limit_bytes {
                self.taken_bytes.fetch_sub(bytes - old, Ordering::Relaxed);
                return false;
            }
        } else {
            self.taken_bytes.fetch_sub(old - bytes, Ordering::Relaxed);
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        true
    }
}

impl Span {
    /// Waits for the end of the transfer.
    pub fn wait(&self) -> Outcome {
        let mut progress = self.progress.lock();
        loop {
            match &*progress {
                Progress::UnderWay(_) => self.ended.wait(&mut progress),
                Progress::Here(first) => return Outcome::Here(Arc::clone(first)),
                Progress::Missing => return Outcome::Missing,
                Progress::Void => return Outcome::Unknown,
            }
        }
    }

    /// Returns the memory that is reserved for the span. It does not change once the transfer has ended.
    pub fn bytes(&self) -> u64 {
        self.reservation.bytes.load(Ordering::Relaxed)
    }

    /// Whether the span has the bytes that the reader of an object needs first.
    pub fn covers(&self, wanted: &Wanted) -> bool {
        match (&self.wanted, wanted) {
            (Wanted::Whole { .. }, _) => true,
            (Wanted::Range(all), Wanted::Range(part)) => all.start <= part.start && part.end <= all.end,
            (Wanted::Last(all), Wanted::Last(part)) => part <= all,
            _ => false,
        }
    }
}
