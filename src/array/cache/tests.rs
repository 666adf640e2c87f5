//! Tests of the chunk cache: single flight, epochs, weight, demotion.

use std::sync::Barrier;

use crate::array::cache::*;
use crate::memory::Buffer;

fn chunk(bytes: usize) -> LoadedContent {
    LoadedContent { content: CachedContent::Chunk(Arc::new(Buffer::new(bytes))), version: None }
}

fn absent() -> LoadedContent {
    LoadedContent { content: CachedContent::Absent, version: None }
}

fn key(number: u64) -> CacheKey {
    CacheKey { array: 1, level: 0, number }
}

fn peek(cache: &ChunkCache, number: u64, epoch: u64) -> Option<CachedContent> {
    let mut found = None;
    cache.peek([((), key(number))], epoch, |(), content| found = Some(content));
    found
}

#[test]
fn concurrent_misses_load_once() {
    let cache = ChunkCache::new(1 << 20);
    let loads = AtomicU64::new(0);
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                cache
                    .get(
                        key(3),
                        0,
                        |_| Ok(true),
                        || {
                            loads.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(std::time::Duration::from_millis(20));
                            Ok(chunk(10))
                        },
                    )
                    .unwrap();
            });
        }
    });
    assert_eq!(loads.load(Ordering::SeqCst), 1);
}

/// After an fsync, a reader must not receive the result of a slow load that began before it.
#[test]
fn loads_of_earlier_epochs_are_not_joined() {
    let cache = ChunkCache::new(1 << 20);
    let content = |byte: u8| {
        let mut buffer = Buffer::new(1);
        buffer.fill(byte);
        Ok(LoadedContent { content: CachedContent::Chunk(Arc::new(buffer)), version: None })
    };
    let byte = |content: CachedContent| match content {
        CachedContent::Chunk(buffer) => buffer[0],
        _ => 0,
    };
    let (begun, old_may_land) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let load = || {
                begun.wait();
                old_may_land.wait();
                content(1)
            };
            byte(cache.get(key(3), 0, |_| Ok(true), load).unwrap())
        });
        begun.wait();
        assert!(!cache.is_known(key(3), 1));
        let new = cache.get(key(3), 1, |_| Ok(true), || content(2)).unwrap();
        assert_eq!(byte(new), 2);
        old_may_land.wait();
        assert_eq!(slow.join().unwrap(), 1);
    });
    let kept = peek(&cache, 3, 1);
    assert_eq!(kept.map(byte), Some(2), "the newer one stays");
    assert!(cache.state.lock().flights.is_empty());
}

#[test]
fn the_oldest_entries_are_evicted_first() {
    let cache = ChunkCache::new(3 * (1000 + ENTRY_BYTES));
    for number in 0..10 {
        cache.get(key(number), 0, |_| Ok(true), || Ok(chunk(1000))).unwrap();
        assert!(cache.weight_bytes() <= cache.limit_bytes());
    }
    assert!(peek(&cache, 9, 0).is_some());
    assert!(peek(&cache, 6, 0).is_none());
    cache.get(key(50), 0, |_| Ok(true), || Ok(chunk(100_000))).unwrap();
    assert!(peek(&cache, 50, 0).is_none());
}

#[test]
fn reservations_evict_chunks() {
    let cache = ChunkCache::new(3 * (1000 + ENTRY_BYTES));
    let load = |number| cache.get(key(number), 0, |_| Ok(true), || Ok(chunk(1000))).map(drop).unwrap();
    (0..3).for_each(load);
    assert!(cache.hold(1500));
    assert_eq!(cache.weight_bytes(), 1000 + ENTRY_BYTES);
    (3..6).for_each(load);
    assert_eq!(cache.weight_bytes(), 1000 + ENTRY_BYTES);
    assert!(!cache.hold(cache.limit_bytes() - 1499));
    assert!(cache.hold(cache.limit_bytes() - 1500));
    assert_eq!(cache.weight_bytes(), 0);
    load(6);
    assert!(peek(&cache, 6, 0).is_none());
    cache.release(cache.limit_bytes());
    (0..3).for_each(load);
    assert_eq!(cache.weight_bytes(), cache.limit_bytes());
}

#[test]
fn absent_chunks_weigh_next_to_nothing() {
    let cache = ChunkCache::new(1 << 20);
    for number in 0..100 {
        cache.get(key(number), 0, |_| Ok(true), || Ok(absent())).unwrap();
    }
    assert_eq!(cache.weight_bytes(), 100 * ENTRY_BYTES);
}

#[test]
fn failed_loads_retry_and_old_entries_revalidate() {
    let cache = ChunkCache::new(1 << 20);
    assert!(cache.get(key(1), 0, |_| Ok(true), || Err(Error::corrupt("a", "b"))).is_err());
    cache.get(key(1), 0, |_| Ok(true), || Ok(chunk(8))).unwrap();
    let unread = || -> Result<LoadedContent> { Err(Error::corrupt("x", "must not load")) };
    cache.get(key(1), 1, |_| Ok(true), unread).unwrap();
    assert!(peek(&cache, 1, 1).is_some());
    assert!(cache.get(key(1), 2, |_| Ok(false), unread).is_err());
}

#[test]
fn demoted_memory_is_reclaimed() {
    let cache = ChunkCache::new(1 << 20);
    for number in 0..4 {
        cache.get(key(number), 0, |_| Ok(true), || Ok(chunk(1000))).unwrap();
    }
    cache.demote((0..3).map(key));
    assert!(peek(&cache, 1, 0).is_some());
    let held = peek(&cache, 3, 0).unwrap();
    cache.demote([key(3)].into_iter());
    assert!(cache.reclaim(999).is_none(), "no other length");
    cache.demote((0..3).map(key));
    assert!(peek(&cache, 0, 0).is_some(), "still there");
    drop(held);
    cache.demote((0..4).map(key));
    assert_eq!(cache.reclaim(1000).map(|buffer| buffer.len()), Some(1000));
    assert!(cache.weight_bytes() < 4 * 1000);
}
