//! The slowest requests of the last minute, for `__zarrfs__/slow`.
//!
//! This file uses nothing else of the crate. A request that is not slow costs two relaxed loads and no lock.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;

/// Requests up to this long are never listed.
const FLOOR: Duration = Duration::from_millis(2);
/// How long a request is listed.
const WINDOW: Duration = Duration::from_secs(60);
/// The most requests in the list.
const CAPACITY: usize = 16;

struct SlowRequest {
    took: Duration,
    at: Instant,
    time: Timestamp,
    path: String,
    request: String,
}

/// The list of slow requests.
pub struct SlowRequests {
    epoch: Instant,
    /// A request that takes longer than this, in nanoseconds, is listed.
    threshold_nanos: AtomicU64,
    /// A request that ends later than this, in nanoseconds since `epoch`, is listed, too, because the oldest one leaves the list.
    expires_nanos: AtomicU64,
    /// The slowest first.
    list: Mutex<Vec<SlowRequest>>,
}

impl Default for SlowRequests {
    fn default() -> Self {
        SlowRequests {
            epoch: Instant::now(),
            threshold_nanos: AtomicU64::new(nanos(FLOOR)),
            expires_nanos: AtomicU64::new(u64::MAX),
            list: Mutex::default(),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl SlowRequests {
    /// Returns whether a request that took this long and has ended now may belong into the list.
    pub fn admits(&self, took: Duration, now: Instant) -> bool {
        let now_nanos = nanos(now.saturating_duration_since(self.epoch));
        took > FLOOR
            && (nanos(took) > self.threshold_nanos.load(Ordering::Relaxed)
                || now_nanos > self.expires_nanos.load(Ordering::Relaxed))
    }

    /// Lists a request, unless the list is full of slower ones.
    pub fn record(&self, request: &str, path: &str, took: Duration, now: Instant) {
        let mut list = self.list.lock();
        list.retain(|one| now.saturating_duration_since(one.at) < WINDOW);
        let place = list.partition_point(|one| one.took >= took);
        if place < CAPACITY {
            let (request, path) = (request.to_owned(), path.to_owned());
            list.insert(place, SlowRequest { took, at: now, time: Timestamp::now(), path, request });
            list.truncate(CAPACITY);
        }
        let threshold = list.get(CAPACITY - 1).map_or(FLOOR, |fastest| fastest.took);
        let oldest = list.iter().map(|one| one.at).min();
        let expires = oldest.map(|at| nanos(at.saturating_duration_since(self.epoch) + WINDOW));
        self.threshold_nanos.store(nanos(threshold), Ordering::Relaxed);
        self.expires_nanos.store(expires.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns one line for each request, the slowest first: seconds, time (UTC), path and request, separated by tabs.
    pub fn text(&self) -> String {
        self.text_at(Instant::now())
    }

    fn text_at(&self, now: Instant) -> String {
        let mut text = String::new();
        for SlowRequest { took, at, time, path, request } in self.list.lock().iter() {
            if now.saturating_duration_since(*at) < WINDOW {
                let (seconds, path) = (took.as_secs_f64(), path.escape_debug());
                let _ = writeln!(text, "{seconds:.6}\t{time:.3}\t/{path}\t{request}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_the_last_minute_are_listed() {
        let slow = SlowRequests::default();
        let start = Instant::now();
        assert!(!slow.admits(Duration::from_millis(1), start));
        for number in 1..=100u32 {
            let took = FLOOR + Duration::from_millis(number.into());
            if slow.admits(took, start) {
                slow.record(&format!("read {number}"), "a/t", took, start);
            }
        }
        let text = slow.text_at(start);
        assert_eq!(text.lines().count(), CAPACITY);
        assert!(text.starts_with("0.102000\t") && text.contains("Z\t/a/t\tread 100\n"), "{text}");
        assert!(!slow.admits(FLOOR + Duration::from_millis(50), start), "the list has slower ones");
        let later = start + WINDOW + Duration::from_secs(1);
        assert_eq!(slow.text_at(later), "");
        assert!(slow.admits(FLOOR + Duration::from_millis(50), later), "those are too old by now");
        slow.record("open", "b", FLOOR + Duration::from_millis(50), later);
        assert_eq!(slow.text_at(later).lines().count(), 1);
    }
}
