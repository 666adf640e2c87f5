//! Decoding ahead: strips are decoded before a reader asks for them.
//!
//! Uses `resources.rs`, `served/` and the meters of `source/loading/`. `window.rs` says which strips.
//!
//! Invariant: a queued strip is not decoded if its reader has meanwhile moved elsewhere, closed, or passed the strip.

use std::sync::Arc;

use crate::array::readahead::resources::{Counted, ReadaheadResources};
use crate::array::served::strip_cache::StripCache;
use crate::array::source::loading::decode_meter::DecodeMeter;
use crate::array::sync::atomic::{AtomicU64, Ordering};

/// Says which of the queued strips a reader still wants.
#[derive(Default)]
pub struct ScanGeneration {
    /// Changes when the reader no longer wants any queued strip.
    generation: AtomicU64,
    /// The first slab that the reader has not passed.
    first_slab: AtomicU64,
}

impl ScanGeneration {
    /// Ends the reader's interest in all queued strips.
    pub fn end(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the reader's interest in all slabs before this one.
    pub fn pass(&self, first_slab: u64) {
        self.first_slab.store(first_slab, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn wants(&self, generation: u64, slab: u64) -> bool {
        self.now() == generation && slab >= self.first_slab.load(Ordering::Relaxed)
    }
}

/// Decodes strips of one array ahead of its readers.
pub struct Prefetcher {
    strips: Arc<StripCache>,
    resources: Arc<ReadaheadResources>,
}

impl Prefetcher {
    /// Creates a prefetcher for an array.
    pub fn new(strips: &Arc<StripCache>, resources: &Arc<ReadaheadResources>) -> Self {
        Prefetcher { strips: Arc::clone(strips), resources: Arc::clone(resources) }
    }

    /// Returns the strips of the array.
    pub fn strips(&self) -> &StripCache {
        &self.strips
    }

    /// Returns what the readahead of all arrays shares.
    pub fn resources(&self) -> &Arc<ReadaheadResources> {
        &self.resources
    }

    /// Returns whether tasks of readahead wait for a thread.
    pub fn is_busy(&self) -> bool {
        self.strips.workers().waiting_ahead() > 0
    }

    /// Queues strips of a slab for a reader. A strip that it no longer wants when its turn comes is skipped. `slab` is
    /// [`u64::MAX`] if the reader wants the strips wherever it is.
    pub fn decode(&self, strips: impl Iterator<Item = u64>, wanted: &Arc<ScanGeneration>, slab: u64) {
        let generation = wanted.now();
        let epoch = self.strips.served().epoch();
        for strip in strips {
            if self.strips.is_known(strip, epoch) {
                continue;
            }
            let (cache, wanted) = (Arc::clone(&self.strips), Arc::clone(wanted));
            let ahead = self.resources.count(Counted::StripsAhead);
            let meter = DecodeMeter::current();
            self.strips.workers().ahead(Box::new(move || {
                let epoch = cache.served().epoch();
                if wanted.wants(generation, slab) && !cache.is_known(strip, epoch) {
                    // The reader that asks for the strip gets the error.
                    drop(DecodeMeter::run(meter.as_ref(), || cache.load(strip, true)));
                }
                drop(ahead);
            }));
        }
    }
}
