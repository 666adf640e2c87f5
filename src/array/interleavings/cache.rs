//! The cache alone: one load at a time, failures, epochs and versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::array::cache::{CacheKey, CachedContent, ChunkCache, LoadedContent, ValidatedVersion};
use crate::array::interleavings::{explore, schedules};
use crate::array::sync::thread;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::ObjectVersion;

fn key(number: u64) -> CacheKey {
    CacheKey { array: 1, level: 0, number }
}

fn version(number: u64) -> Option<ObjectVersion> {
    Some(ObjectVersion::numbered(number))
}

/// Returns the content that a store in this version gives.
fn loaded(number: u64) -> LoadedContent {
    let mut buffer = Buffer::new(1);
    buffer[0] = u8::try_from(number).unwrap();
    LoadedContent { content: CachedContent::Chunk(Arc::new(buffer)), version: version(number) }
}

fn number(content: &CachedContent) -> u64 {
    match content {
        CachedContent::Chunk(buffer) => u64::from(buffer[0]),
        _ => panic!("no chunk"),
    }
}

/// Only one load runs at a time. Readers that wait for a failed load receive its error; the next reader tries again.
#[test]
fn one_load_runs_at_a_time() {
    explore(schedules(), || {
        let cache = ChunkCache::new(1000);
        let (loads, under_way) = (AtomicU64::new(0), AtomicU64::new(0));
        let get = || -> Result<CachedContent> {
            cache.get(
                key(1),
                0,
                |_| Ok(true),
                || {
                    assert_eq!(under_way.fetch_add(1, Ordering::SeqCst), 0, "two loads of one chunk");
                    thread::yield_now();
                    let earlier = loads.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    if earlier < 2 { Err(Error::corrupt("key", "not yet")) } else { Ok(loaded(3)) }
                },
            )
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let answers: Vec<bool> = (0..3).map(|_| get().is_ok()).collect();
                    assert!(answers.is_sorted(), "a load that went through was forgotten: {answers:?}");
                    assert!(answers[2], "three failures of two: {answers:?}");
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 3);
        assert_eq!(cache.weight_bytes(), 161);
    });
}

/// A reader that knows of a change does not receive older content, from an entry or from an older load.
#[test]
fn an_epoch_never_gets_older_content() {
    explore(schedules(), || {
        let cache = ChunkCache::new(400);
        let (stored, epoch) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for change in 1..=3 {
                    stored.store(change, Ordering::SeqCst);
                    thread::yield_now();
                    let now = epoch.fetch_add(1, Ordering::SeqCst) + 1;
                    if change == 2 {
                        cache.put(
                            key(1),
                            loaded(change).content,
                            ValidatedVersion { object: version(change), epoch: now },
                        );
                    } else {
                        cache.forget(key(1));
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    for _ in 0..4 {
                        let now = epoch.load(Ordering::SeqCst);
                        thread::yield_now();
                        let found = cache.get(
                            key(1),
                            now,
                            |object| Ok(object == version(stored.load(Ordering::SeqCst))),
                            || {
                                let found = stored.load(Ordering::SeqCst);
                                thread::yield_now();
                                Ok(loaded(found))
                            },
                        );
                        let found = number(&found.unwrap());
                        assert!(found >= now.max(last), "{found} in epoch {now} after {last}");
                        last = now;
                    }
                });
            }
            scope.spawn(|| {
                for other in 2..5 {
                    cache.get(key(other), 0, |_| Ok(true), || Ok(loaded(9))).unwrap();
                }
            });
        });
        assert!(cache.weight_bytes() <= 400);
        cache.forget_array(1);
        assert_eq!(cache.weight_bytes(), 0);
    });
}

/// A request for one version receives that version, whichever versions other readers load meanwhile.
#[test]
fn a_request_for_a_version_gets_it() {
    explore(schedules(), || {
        let cache = ChunkCache::new(400);
        thread::scope(|scope| {
            for reader in 0..3u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..3 {
                        let wanted = 1 + (reader + round) % 2;
                        let load = || {
                            thread::yield_now();
                            Ok(loaded(wanted).content)
                        };
                        let found = cache.get_version(key(1), version(wanted).unwrap(), load);
                        assert_eq!(number(&found.unwrap()), wanted);
                    }
                });
            }
            scope.spawn(|| cache.forget(key(1)));
        });
        cache.forget_array(1);
        assert_eq!(cache.weight_bytes(), 0);
    });
}
