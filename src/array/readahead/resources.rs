//! What the readahead of all arrays of one process shares: the memory of prepared replies, and counts.
//!
//! Uses `sync.rs`.

use std::sync::Arc;

use crate::array::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The limit of the prepared replies of all readers: this many bytes, or this fraction of a small cache.
const MOST_REPLY_BYTES: u64 = 16 << 20;
const REPLY_PART_OF_CACHE: u64 = 8;

/// What the readahead of all arrays shares.
pub struct ReadaheadResources {
    /// Bytes of replies that are prepared, or will be, and their limit.
    reply_bytes: AtomicU64,
    reply_limit_bytes: u64,
    /// How many sequential readers of remote stores there are.
    fetching_readers: AtomicUsize,
    /// How many strips are being decoded ahead of readers, or wait for that.
    strips_ahead: AtomicU64,
    /// Whether readers keep what they receive, as the kernel's page cache does.
    readers_keep: bool,
}

/// Counts something as long as it lives.
pub struct CountGuard {
    resources: Arc<ReadaheadResources>,
    counted: Counted,
}

/// What a [`CountGuard`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// This many bytes of prepared replies.
    ReplyBytes(u64),
    /// A sequential reader of a remote store.
    FetchingReader,
    /// A strip that is decoded ahead, or waits for that.
    StripAhead,
}

impl ReadaheadResources {
    /// Resources for a process with a cache of this limit.
    pub fn new(cache_limit_bytes: u64, readers_keep: bool) -> Self {
        ReadaheadResources {
            reply_bytes: AtomicU64::new(0),
            reply_limit_bytes: MOST_REPLY_BYTES.min(cache_limit_bytes / REPLY_PART_OF_CACHE),
            fetching_readers: AtomicUsize::new(0),
            strips_ahead: AtomicU64::new(0),
            readers_keep,
        }
    }

    /// Counts something until the guard is dropped.
    pub fn count(self: &Arc<Self>, counted: Counted) -> CountGuard {
        match counted {
            Counted::ReplyBytes(bytes) => {
                self.reply_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Counted::FetchingReader => {
                self.fetching_readers.fetch_add(1, Ordering::Relaxed);
            }
            Counted::StripAhead => {
                self.strips_ahead.fetch_add(1, Ordering::Relaxed);
            }
        }
        CountGuard { resources: Arc::clone(self), counted }
    }

    /// Counts bytes of replies, if the limit allows them.
    pub fn reserve_reply(self: &Arc<Self>, bytes: u64) -> Option<CountGuard> {
        let counted = self.reply_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let guard = CountGuard { resources: Arc::clone(self), counted: Counted::ReplyBytes(bytes) };
        (counted <= self.reply_limit_bytes).then_some(guard)
    }

    /// Sequential readers of remote stores.
    pub fn fetching_readers(&self) -> usize {
        self.fetching_readers.load(Ordering::Relaxed)
    }

    /// Strips that are decoded ahead of readers, or wait for that.
    pub fn strips_ahead(&self) -> u64 {
        self.strips_ahead.load(Ordering::Relaxed)
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
        let resources = &self.resources;
        match self.counted {
            Counted::ReplyBytes(bytes) => {
                resources.reply_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            Counted::FetchingReader => {
                resources.fetching_readers.fetch_sub(1, Ordering::Relaxed);
            }
            Counted::StripAhead => {
                resources.strips_ahead.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}
