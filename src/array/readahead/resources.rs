//! What the readahead of all arrays of one process shares: the memory of prepared replies, and counts.
//!
//! Uses `sync.rs`.

use std::sync::Arc;

use crate::array::sync::atomic::{AtomicU64, Ordering};

/// The limit of the prepared replies of all readers: this many bytes, or this fraction of a small cache.
const MOST_REPLY_BYTES: u64 = 16 << 20;
const REPLY_PART_OF_CACHE: u64 = 8;

/// What the readahead of all arrays shares.
pub struct ReadaheadResources {
    reply_bytes: AtomicU64,
    reply_limit_bytes: u64,
    fetching_readers: AtomicU64,
    strips_ahead: AtomicU64,
    /// Whether readers keep what they receive, as the kernel's page cache does.
    readers_keep: bool,
}

/// Counts something as long as it lives.
pub struct CountGuard {
    resources: Arc<ReadaheadResources>,
    counted: Counted,
    amount: u64,
}

/// What a [`CountGuard`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Bytes of replies that are prepared, or will be.
    ReplyBytes,
    /// Sequential readers of remote stores.
    FetchingReaders,
    /// Strips that are being decoded ahead of readers, or wait for that.
    StripsAhead,
}

impl ReadaheadResources {
    /// Creates resources for a process with a cache of this limit.
    pub fn new(cache_limit_bytes: u64, readers_keep: bool) -> Self {
        ReadaheadResources {
            reply_bytes: AtomicU64::new(0),
            reply_limit_bytes: MOST_REPLY_BYTES.min(cache_limit_bytes / REPLY_PART_OF_CACHE),
            fetching_readers: AtomicU64::new(0),
            strips_ahead: AtomicU64::new(0),
            readers_keep,
        }
    }

    fn counter(&self, counted: Counted) -> &AtomicU64 {
        match counted {
            Counted::ReplyBytes => &self.reply_bytes,
            Counted::FetchingReaders => &self.fetching_readers,
            Counted::StripsAhead => &self.strips_ahead,
        }
    }

    /// Returns the present count.
    pub fn counted(&self, counted: Counted) -> u64 {
        self.counter(counted).load(Ordering::Relaxed)
    }

    /// Counts one more until the guard is dropped.
    pub fn count(self: &Arc<Self>, counted: Counted) -> CountGuard {
        self.counter(counted).fetch_add(1, Ordering::Relaxed);
        CountGuard { resources: Arc::clone(self), counted, amount: 1 }
    }

    /// Counts bytes of replies, if the limit allows them.
    pub fn reserve_reply(self: &Arc<Self>, bytes: u64) -> Option<CountGuard> {
        let reserved = self.reply_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let guard = CountGuard { resources: Arc::clone(self), counted: Counted::ReplyBytes, amount: bytes };
        (reserved <= self.reply_limit_bytes).then_some(guard)
    }

    /// Returns whether readers keep what they receive, as the kernel's page cache does.
    pub fn readers_keep(&self) -> bool {
        self.readers_keep
    }
}

impl CountGuard {
    /// Returns the resources in which it counts.
    pub fn resources(&self) -> &ReadaheadResources {
        &self.resources
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.resources.counter(self.counted).fetch_sub(self.amount, Ordering::Relaxed);
    }
}
