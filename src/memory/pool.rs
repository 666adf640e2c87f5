//! Pages that are not in use, kept for the next buffer.
//!
//! Touching fresh pages costs more than a fast decoder, so the pages of a dropped buffer are kept. The process has one
//! pool, because one stage reuses the pages of another: a decoded chunk's pages become an encoded chunk's. Uses `sys`.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::sys::Pages;

/// The limit of idle bytes, unless a small cache shows that memory is scarce.
const MAX_IDLE_BYTES: usize = 32 << 20;
/// The limit for the smallest cache.
const MIN_IDLE_BYTES: usize = 2 << 20;
/// The cache limit divided by the limit of idle bytes.
const PART_OF_CACHE: u64 = 4;
/// Several shorter blocks are mapped at once, so that they share huge pages.
const MAPPED_AT_ONCE_BYTES: usize = 4 << 20;
/// Lengths between two powers of two, so that blocks of similar length replace each other.
const CLASSES_PER_DOUBLING: usize = 8;
const PAGE_BYTES: usize = 4096;

static POOL: Pool = Pool::new();

/// Idle blocks, in the order in which they were returned.
struct Pool {
    blocks: Mutex<IdleBlocks>,
    limit_bytes: AtomicUsize,
}

struct IdleBlocks {
    idle: Vec<Pages>,
    bytes: usize,
}

/// How closely a block's length fits the requested length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// For long-lived buffers: at most an eighth longer.
    Close,
    /// For short-lived buffers: at most twice as long.
    Loose,
}

/// Limits idle memory to a quarter of a chunk cache's limit, but at least 2 and at most 32 MiB.
pub fn limit_idle_bytes(cache_limit_bytes: u64) {
    let part = usize::try_from(cache_limit_bytes / PART_OF_CACHE).unwrap_or(usize::MAX);
    POOL.set_limit(part.clamp(MIN_IDLE_BYTES, MAX_IDLE_BYTES));
}

/// Returns all idle memory to the system. The result is its number of bytes.
pub fn release_idle() -> u64 {
    POOL.release()
}

/// Returns pages of at least `length` bytes with stale or zero content. `None` if the system refuses.
pub(super) fn take(length: usize, fit: Fit) -> Option<Pages> {
    POOL.recycled(length, fit).or_else(|| POOL.fresh(length))
}

/// Keeps pages for the next buffer.
pub(super) fn give_back(pages: Pages) {
    POOL.give_back(pages);
}

/// Returns the length of the blocks that serve `length` bytes. It is a multiple of the page size, and there are few
/// distinct lengths.
fn class_bytes(length: usize) -> Option<usize> {
    let step = (length.checked_next_power_of_two()? / 2 / CLASSES_PER_DOUBLING).max(PAGE_BYTES);
    length.checked_next_multiple_of(step)
}

impl Pool {
    const fn new() -> Self {
        let blocks = IdleBlocks { idle: Vec::new(), bytes: 0 };
        Pool { blocks: Mutex::new(blocks), limit_bytes: AtomicUsize::new(MAX_IDLE_BYTES) }
    }

    fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.keep_limit();
    }

    fn recycled(&self, length: usize, fit: Fit) -> Option<Pages> {
        let class = class_bytes(length)?;
        let mut blocks = self.blocks.lock();
        let mut found = blocks.idle.iter().rposition(|pages| pages.len() == class);
        if found.is_none() && fit == Fit::Loose {
            let longer = blocks.idle.iter().enumerate();
            let longer = longer.filter(|(_, pages)| (length..=2 * class).contains(&pages.len()));
            found = longer.min_by_key(|(_, pages)| pages.len()).map(|(at, _)| at);
        }
        // The order of return is kept, because the oldest blocks are freed first.
        let pages = blocks.idle.remove(found?);
        blocks.bytes -= pages.len();
        Some(pages)
    }

    fn fresh(&self, length: usize) -> Option<Pages> {
        let class = class_bytes(length)?;
        // Untouched blocks take no memory yet, but count as idle.
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let count = (MAPPED_AT_ONCE_BYTES / class).clamp(1, limit_bytes / 2 / class + 1);
        let mut mapped = Pages::new(class, count)?;
        let first = mapped.pop();
        mapped.into_iter().for_each(|pages| self.give_back(pages));
        first
    }

    fn give_back(&self, pages: Pages) {
        {
            let mut blocks = self.blocks.lock();
            blocks.bytes += pages.len();
            blocks.idle.push(pages);
        }
        self.keep_limit();
    }

    fn release(&self) -> u64 {
        let mut blocks = self.blocks.lock();
        let (idle, bytes) = (std::mem::take(&mut blocks.idle), std::mem::take(&mut blocks.bytes));
        drop(blocks); // pages are freed outside the lock
        drop(idle);
        bytes as u64
    }

    fn keep_limit(&self) {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let mut gone = Vec::new();
        let mut blocks = self.blocks.lock();
        while blocks.bytes > limit_bytes && !blocks.idle.is_empty() {
            let oldest = blocks.idle.remove(0);
            blocks.bytes -= oldest.len();
            gone.push(oldest);
        }
        drop(blocks); // pages are freed outside the lock
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn pages_are_recycled_within_the_limit() {
        let pool = Pool::new();
        pool.set_limit(4 * MIB);
        let mut first = pool.fresh(MIB).unwrap();
        first[0] = 7;
        pool.give_back(first);
        assert_eq!(pool.recycled(MIB - 5, Fit::Close).unwrap()[0], 7, "the one that came back last");
        for length in [MIB, 3 * MIB, 100_000, 9 * MIB] {
            let blocks: Vec<Pages> = (0..6).filter_map(|_| pool.fresh(length)).collect();
            blocks.into_iter().for_each(|pages| pool.give_back(pages));
            assert!(pool.blocks.lock().bytes <= 4 * MIB);
        }
        let sum = |pool: &Pool| pool.blocks.lock().idle.iter().map(|pages| pages.len()).sum::<usize>();
        assert_eq!(sum(&pool), pool.blocks.lock().bytes);
        pool.give_back(Pages::new(MIB, 1).unwrap().pop().unwrap());
        assert!(pool.release() >= MIB as u64 && pool.release() == 0);
        pool.give_back(Pages::new(MIB, 1).unwrap().pop().unwrap());
        pool.set_limit(0);
        assert_eq!(sum(&pool), 0);
    }

    #[test]
    fn long_lived_buffers_fit_closely() {
        let pool = Pool::new();
        pool.give_back(Pages::new(class_bytes(3 * MIB).unwrap(), 1).unwrap().pop().unwrap());
        assert!(pool.recycled(2 * MIB, Fit::Close).is_none());
        assert!(pool.recycled(MIB, Fit::Loose).is_none());
        assert!(pool.recycled(2 * MIB, Fit::Loose).is_some());
        for length in [65_536, 65_537, MIB - 1, MIB, MIB + 1, 5 * MIB / 2, 100 * MIB + 17] {
            let class = class_bytes(length).unwrap();
            assert!((length..=length / 8 * 9 + PAGE_BYTES).contains(&class), "{length}: {class}");
            assert!(class.is_multiple_of(PAGE_BYTES));
        }
        assert!(class_bytes(usize::MAX).is_none());
    }
}
