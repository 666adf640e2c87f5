//! Counts of requests and replies. Uses `store/traffic.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::store::{Latencies, LatencyCounts};

/// Counts of one store's client.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct Counters {
    requests: AtomicU64,
    failed: AtomicU64,
    slowed: AtomicU64,
    replies: Latencies,
    received_bytes: AtomicU64,
}

impl Counters {
    /// Counts a request.
    pub(in crate::store::remote) fn sent(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reply whose head came after this time.
    pub(in crate::store::remote) fn replied(
        &self,
        after: Duration,
        status: u16,
        announced_bytes: Option<u64>,
    ) {
        self.replies.record(after);
        self.received_bytes.fetch_add(announced_bytes.unwrap_or(0), Ordering::Relaxed);
        if status == 429 || status >= 500 {
            self.failed();
        }
        if status == 429 || status == 503 {
            self.slowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a failed request.
    pub(in crate::store::remote) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the service has asked for fewer requests.
    pub(in crate::store::remote) fn slowed(&self) -> u64 {
        self.slowed.load(Ordering::Relaxed)
    }

    /// Returns the requests, the failed ones, the times until replies, and the bytes received.
    pub(in crate::store::remote) fn now(&self) -> (u64, u64, LatencyCounts, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.requests), get(&self.failed), self.replies.now(), get(&self.received_bytes))
    }
}
