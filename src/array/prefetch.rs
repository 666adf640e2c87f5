//! Decoding ahead of a sequential reader.
//!
//! Uses its neighbours in `array`. A pass in served order revisits one row of units, a *slab*, again and again before
//! it goes on to the next; the first read in a slab queues all of it, and the next slab when there is room for both.

use std::sync::Arc;

use super::{Array, Inner};

/// What has been queued for the reader that came last.
#[derive(Default)]
pub(super) struct Ahead {
    /// The slab that was queued last.
    slab: Option<u64>,
}

/// With no room for a slab, so many bytes of the file are decoded ahead.
const WINDOW_BYTES: u64 = 8 << 20;

impl Array {
    /// Tells that a reader went on sequentially to `offset`: units ahead of it are decoded in the background.
    pub fn prefetch(&self, offset: u64) {
        let inner = &self.inner;
        if inner.source.is_raw() || offset >= self.size_bytes() {
            return;
        }
        let Some(slab) = inner.slab() else { return };
        let limit = inner.engine.cache.limit_bytes();
        if slab.bytes > limit / 2 {
            let length = WINDOW_BYTES.min(self.size_bytes() - offset);
            let units = inner.units(offset, length);
            let room = (limit / 4 / inner.unit_bytes().max(1)) as usize;
            Inner::queue(inner, units.into_iter().take(room));
            return;
        }
        let Some(first) = inner.units(offset, 1).first().copied() else { return };
        let number = first / slab.units;
        {
            let mut ahead = inner.ahead.lock();
            let is_queued = |n: u64| ahead.slab.is_some_and(|queued| queued == n || queued == n + 1);
            let next = if !is_queued(number) {
                number
            } else if ahead.slab == Some(number) && inner.engine.workers.waiting_ahead() == 0 {
                number + 1
            } else {
                return;
            };
            ahead.slab = Some(next);
            let from = next * slab.units;
            let to = (from + slab.units).min(inner.grid.chunks());
            drop(ahead);
            Inner::queue(inner, from..to);
        }
    }

    /// Bytes of decoded units that one pass in served order revisits before it goes on.
    pub fn slab_bytes(&self) -> u64 {
        self.inner.slab().map_or(0, |slab| slab.bytes)
    }
}

/// A row of units that one pass revisits: consecutive numbers in C order.
struct Slab {
    units: u64,
    bytes: u64,
}

impl Inner {
    fn slab(&self) -> Option<Slab> {
        let axes = self.grid.axes();
        if self.grid.chunks() == 0 {
            return None;
        }
        // Up to the first axis whose units are longer than one element, every unit is passed once.
        let first = axes.iter().position(|axis| axis.longest() > 1 && axis.extent() > 1);
        let behind = first.map_or(&[][..], |first| axes.get(first + 1..).unwrap_or(&[]));
        let units: u64 = behind.iter().map(|axis| axis.count()).product();
        Some(Slab { units, bytes: units.saturating_mul(self.unit_bytes()) })
    }

    fn queue(inner: &Arc<Inner>, units: impl Iterator<Item = u64>) {
        let epoch = inner.place().epoch;
        for unit in units {
            let key = super::cache::Key { array: inner.number, level: 0, number: unit };
            if inner.engine.cache.is_known(key, epoch) {
                continue;
            }
            let task_inner = Arc::clone(inner);
            inner.engine.workers.ahead(Box::new(move || {
                let epoch = task_inner.place().epoch;
                if !task_inner.engine.cache.is_known(key, epoch) {
                    // A failure is reported to the reader that asks for the unit.
                    drop(task_inner.unit(unit));
                }
            }));
        }
    }
}
