//! Counts of a store's requests and replies, and of its disk cache. Uses nothing.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of latencies, in nanoseconds: from 10 µs to 100 s. Longer latencies are in one more bucket.
const BOUNDS_NANOS: [u64; 15] = [
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
    30_000_000_000,
    100_000_000_000,
];
const BUCKETS: usize = BOUNDS_NANOS.len() + 1;

/// A histogram of latencies, in atomic counters.
#[derive(Debug, Default)]
pub struct Latencies {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// The counts of [`Latencies`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    counts: [u64; BUCKETS],
    nanos: u64,
}

impl Latencies {
    /// Counts one latency.
    pub fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NANOS.partition_point(|&bound| bound < nanos);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the counts at this moment.
    pub fn now(&self) -> LatencyCounts {
        let counts = std::array::from_fn(|bucket| {
            self.counts.get(bucket).map_or(0, |count| count.load(Ordering::Relaxed))
        });
        LatencyCounts { counts, nanos: self.nanos.load(Ordering::Relaxed) }
    }
}

impl LatencyCounts {
    /// Returns each upper bound in seconds with the number of latencies up to it. The last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS_NANOS.iter().map(|&nanos| nanos as f64 / 1e9).chain([f64::INFINITY]);
        let below = self.counts.iter().scan(0u64, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        bounds.zip(below)
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the latencies, in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

impl Add for LatencyCounts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.nanos += other.nanos;
        self
    }
}

/// Counts of the reads of a store's objects.
#[derive(Debug, Default)]
pub struct ReadCounts {
    bytes: AtomicU64,
    latencies: Latencies,
}

impl ReadCounts {
    /// Counts bytes that were read.
    pub fn record_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts one request, of any length.
    pub fn record_request(&self, took: Duration) {
        self.latencies.record(took);
    }

    /// Returns the bytes so far, and the latencies of the requests.
    pub fn now(&self) -> (u64, LatencyCounts) {
        (self.bytes.load(Ordering::Relaxed), self.latencies.now())
    }
}

/// The traffic of a remote store: counts since the store was opened, and two current values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Requests sent, repetitions included.
    pub requests: u64,
    /// Requests that got no reply, or a reply that asks to try again later (429, 5xx).
    pub failed_requests: u64,
    /// Times from sending requests to the heads of their replies.
    pub replies: LatencyCounts,
    /// Bytes in the bodies of replies, as the service announced them.
    pub received_bytes: u64,
    /// Requests that have no reply yet.
    pub in_flight: u64,
    /// Memory for bytes that were or are being transferred ahead of their readers.
    pub ahead_bytes: u64,
    /// The disk cache, if there is one.
    pub disk_cache: Option<DiskCacheCounts>,
}

/// Statistics of a disk cache: counts since it was opened, and two current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCacheCounts {
    /// Requests whose bytes were in the cache.
    pub hits: u64,
    /// Requests whose bytes were not in the cache.
    pub misses: u64,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Bytes that were fetched and not written: they were in the cache already, had no room, or came too fast.
    pub skipped_bytes: u64,
    /// Entries that were damaged.
    pub damaged: u64,
    /// Entries that were removed to make room.
    pub evicted: u64,
    /// Its size, as last counted.
    pub size_bytes: u64,
    /// The most that it may take.
    pub limit_bytes: u64,
}

/// Adds the counts of two stores that share one folder.
impl Add for DiskCacheCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        DiskCacheCounts {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            skipped_bytes: self.skipped_bytes + other.skipped_bytes,
            damaged: self.damaged + other.damaged,
            evicted: self.evicted + other.evicted,
            size_bytes: self.size_bytes.max(other.size_bytes),
            limit_bytes: self.limit_bytes.max(other.limit_bytes),
        }
    }
}

/// Adds the traffic of two stores.
impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Traffic {
            requests: self.requests + other.requests,
            failed_requests: self.failed_requests + other.failed_requests,
            replies: self.replies + other.replies,
            received_bytes: self.received_bytes + other.received_bytes,
            in_flight: self.in_flight + other.in_flight,
            ahead_bytes: self.ahead_bytes + other.ahead_bytes,
            disk_cache: match (self.disk_cache, other.disk_cache) {
                (Some(own), Some(other)) => Some(own + other),
                (own, other) => own.or(other),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_in_its_bucket() {
        let latencies = Latencies::default();
        for micros in [0, 10, 11, 300_000_000] {
            latencies.record(Duration::from_micros(micros));
        }
        let counts = latencies.now();
        let buckets: Vec<_> = counts.buckets().collect();
        assert_eq!(buckets.first(), Some(&(0.00001, 2)));
        assert_eq!(buckets.get(1), Some(&(0.00003, 3)));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 4)));
        assert_eq!(counts.count(), 4);
        assert!((counts.seconds() - 300.000_021).abs() < 1e-9);
    }
}
