//! Whole arrays: writers, readers, flushers, the timer and the store, interleaved at every step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::array::interleavings::{explore, schedules};
use crate::array::sync::thread;
use crate::array::test_arrays::{self, read_soon};
use crate::array::{Array, Engine, EngineOptions, Layout};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::store::{MemoryStore, Store};
use crate::test_store::{Hook, Hooked, Operation, Request};

/// Length of an array; its chunks have 4 elements, its shards 8.
pub(in crate::array) const LENGTH: usize = 16;
/// The value of bytes that no writer has written.
pub(in crate::array) const FILL: u8 = 9;

/// How an array is stored: read by ranges, through the cache, or in shards.
#[derive(Clone, Copy, Debug)]
pub(in crate::array) enum StoredForm {
    Raw,
    Checked,
    Sharded,
}

/// A store in memory that yields to other threads, knows what a power cut would leave, and is full for a while.
pub(in crate::array) type SlowStore = Hooked<SlowDisk>;

#[derive(Default)]
pub(in crate::array) struct SlowDisk {
    now: Arc<MemoryStore>,
    /// Objects by key, as they were when they were last synced.
    lasting: Mutex<HashMap<String, Vec<u8>>>,
    /// How many further puts fail.
    failing: AtomicU64,
}

impl Hook for SlowDisk {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        if let Operation::Open | Operation::Put | Operation::Delete | Operation::Sync = request.operation {
            thread::yield_now();
        }
        let fail = |left: u64| left.checked_sub(1);
        if request.operation == Operation::Put
            && self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fail).is_ok()
        {
            let is_full = std::io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(Error::store(request.key(), "write", is_full));
        }
        Ok(())
    }

    fn after(&self, request: &Request<'_>, _found: bool) {
        if request.operation == Operation::Sync {
            for &key in request.keys {
                let now = self.now.get(key, 1 << 20).unwrap();
                let mut lasting = self.lasting.lock().unwrap();
                match now {
                    Some(bytes) => lasting.insert(key.to_owned(), bytes),
                    None => lasting.remove(key),
                };
            }
        }
        if let Operation::Open | Operation::Head | Operation::Put | Operation::Sync = request.operation {
            thread::yield_now();
        }
    }
}

fn document(form: StoredForm) -> Vec<u8> {
    let checked = json!(["bytes", "crc32c"]);
    let (chunk, codecs): (u64, Value) = match form {
        StoredForm::Raw => (4, json!(["bytes"])),
        StoredForm::Checked => (4, checked),
        StoredForm::Sharded => (
            8,
            json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [4], "codecs": checked,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]),
        ),
    };
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [LENGTH], "data_type": "uint8", "fill_value": FILL,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs,
    });
    document.to_string().into_bytes()
}

pub(in crate::array) fn open(engine: &Arc<Engine>, store: &Arc<dyn Store>, path: &str) -> Arc<Array> {
    test_arrays::open(engine, store, path, Layout::default())
}

/// Returns what another program reads from a store.
fn content(store: Arc<dyn Store>, path: &str) -> Vec<u8> {
    let engine = Engine::new(0, 1);
    let mut out = vec![0; LENGTH];
    open(&engine, &store, path).read_at(0, &mut out).unwrap();
    out
}

pub(in crate::array) struct Scene {
    form: StoredForm,
    pub(in crate::array) store: Arc<SlowStore>,
    pub(in crate::array) engine: Arc<Engine>,
    /// Open for writing.
    pub(in crate::array) array: Arc<Array>,
}

impl Scene {
    pub(in crate::array) fn new(form: StoredForm, dirty_limit_bytes: u64) -> Scene {
        let disk = SlowDisk::default();
        let store = Hooked::new(disk.now.clone(), disk);
        for path in ["a", "b"] {
            store.now.put(&format!("{path}/zarr.json"), document(form)).unwrap();
        }
        // The cache has room for two chunks.
        let options = EngineOptions::new(340, 1);
        let engine =
            Engine::with_options(EngineOptions { writeback_delay: None, dirty_limit_bytes, ..options });
        let array = open(&engine, &(store.clone() as Arc<dyn Store>), "a");
        array.writer().open_for_writing().unwrap();
        Scene { form, store, engine, array }
    }

    /// Returns the bytes that remain if the machine loses power now.
    pub(in crate::array) fn lasting(&self) -> Vec<u8> {
        let store = MemoryStore::new();
        store.put("a/zarr.json", document(self.form)).unwrap();
        for (key, bytes) in self.store.lasting.lock().unwrap().iter() {
            store.put(key, bytes.clone()).unwrap();
        }
        content(Arc::new(store), "a")
    }

    /// Checks that the store holds exactly the expected bytes.
    pub(in crate::array) fn end(self, expected: &[u8]) {
        self.array.writer().sync().unwrap();
        assert!(!self.array.writer().is_dirty());
        assert_eq!(self.engine.counters().dirty_bytes, 0);
        let mut out = vec![0; LENGTH];
        self.array.read_at(0, &mut out).unwrap();
        assert_eq!(out, expected, "read");
        assert_eq!(content(self.store.clone(), "a"), expected, "stored");
        assert_eq!(self.lasting(), expected, "synced");
        self.array.writer().close_for_writing();
    }
}

pub(in crate::array) fn each_form(test: impl Fn(StoredForm) + Send + Sync + Copy + 'static) {
    for form in [StoredForm::Raw, StoredForm::Checked, StoredForm::Sharded] {
        explore(schedules().div_ceil(3), move || test(form));
    }
}

/// Writes as the FUSE adapter does: without blocking if possible, else blocking.
pub(in crate::array) fn write(array: &Array, offset: u64, data: &[u8]) {
    write_and_notify(array, offset, data, || ());
}

/// Writes in the same way, and calls `notify` when the adapter would reply.
pub(in crate::array) fn write_and_notify(array: &Array, offset: u64, data: &[u8], notify: impl Fn()) {
    match array.writer().try_begin_write(offset, data).unwrap() {
        Some(pending) => {
            notify();
            pending.copy();
        }
        None => {
            array.writer().write_at(offset, data).unwrap();
            notify();
        }
    }
}

#[test]
fn writers_of_one_chunk_lose_nothing() {
    each_form(|form| {
        let scene = Scene::new(form, 6);
        let mut expected = [FILL; LENGTH];
        thread::scope(|scope| {
            for writer in 0..3usize {
                let array = &scene.array;
                scope.spawn(move || {
                    for at in (writer..9).step_by(3) {
                        write(&array, at as u64, &[writer as u8 + 1]);
                    }
                });
                (writer..9).step_by(3).for_each(|at| expected[at] = writer as u8 + 1);
            }
            scope.spawn(|| scene.array.writer().flush().unwrap());
            scope.spawn(|| scene.engine.store_settled(Duration::ZERO));
        });
        scene.end(&expected);
    });
}

/// A read that begins after a write returned sees that write, wherever the chunk is by then: dirty, on its way
/// to the store, in the cache or evicted.
#[test]
fn a_reader_never_goes_back() {
    each_form(|form| {
        let scene = Scene::new(form, 2);
        let (array, done) = (&scene.array, &AtomicU8::new(0));
        scene.array.writer().write_at(5, &[0]).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                for value in 1..=4 {
                    write_and_notify(array, 5, &[value], || done.store(value, Ordering::SeqCst));
                    if value % 2 == 0 {
                        array.writer().flush().unwrap();
                    }
                }
            });
            for reader in 0..2 {
                scope.spawn(move || {
                    let mut floor = 0;
                    for _ in 0..4 {
                        floor = floor.max(done.load(Ordering::SeqCst));
                        let mut out = [0; 2];
                        if reader == 0 {
                            array.read_at(4, &mut out).unwrap();
                        } else {
                            read_soon(array, 4, &mut out);
                        }
                        assert!(out[1] >= floor && out[0] == FILL, "{out:?} after {floor}");
                        floor = out[1];
                    }
                });
            }
            scope.spawn(move || {
                // These reads evict entries and validate others again.
                let mut out = [0; 8];
                array.read_at(8, &mut out).unwrap();
                array.revalidate(&Cancellation::never()).unwrap();
                array.read_at(0, &mut out).unwrap();
            });
            scope.spawn(|| scene.engine.store_settled(Duration::ZERO));
        });
        let mut expected = [FILL; LENGTH];
        expected[5] = 4;
        scene.end(&expected);
    });
}

/// Another program replaces an object and opens the file while others read it. If the kernel may keep its pages,
/// readers have received what the object holds now.
#[test]
fn kept_pages_match_the_store() {
    each_form(|form| {
        let scene = Scene::new(form, 100);
        let [old, new] = [1, 2].map(|value| {
            scene.array.writer().write_at(0, &[value; 4]).unwrap();
            scene.array.writer().sync().unwrap();
            let objects = scene.store.lasting.lock().unwrap().clone();
            objects.into_iter().next().unwrap()
        });
        let (key, old) = old;
        scene.store.now.put(&key, old).unwrap();
        let store: Arc<dyn Store> = scene.store.clone();
        let array = open(&scene.engine, &store, "a");
        assert!(
            !array.revalidate(&Cancellation::never()).unwrap()
                && array.revalidate(&Cancellation::never()).unwrap()
        );
        let read = || {
            let mut out = [0; 2];
            array.read_at(0, &mut out).unwrap();
            out[1]
        };
        thread::scope(|scope| {
            let early = scope.spawn(read);
            let opener = scope.spawn(|| {
                scene.store.now.put(&key, new.1).unwrap();
                (array.revalidate(&Cancellation::never()).unwrap(), read())
            });
            let (is_kept, late) = opener.join().unwrap();
            assert_eq!(late, 2);
            assert!(!is_kept || early.join().unwrap() == 2, "the kernel holds what is no longer stored");
        });
        scene.array.writer().close_for_writing();
    });
}

/// After sync returned, earlier writes survive a power cut, whichever thread stored or synced them.
#[test]
fn synced_writes_survive_power_loss() {
    each_form(|form| {
        let scene = Scene::new(form, 100);
        let mut expected = [FILL; LENGTH];
        thread::scope(|scope| {
            for writer in 0..2usize {
                let scene = &scene;
                scope.spawn(move || {
                    for value in 1..=2u8 {
                        scene.array.writer().write_at(writer as u64 * 4, &[value]).unwrap();
                        scene.array.writer().sync().unwrap();
                        assert!(scene.lasting()[writer * 4] == value, "{value} of {writer} was synced");
                    }
                });
                expected[writer * 4] = 2;
            }
            scope.spawn(|| scene.engine.store_settled(Duration::ZERO));
        });
        scene.end(&expected);
    });
}

/// Puts fail for a while: each failure is counted, nothing is lost, and a later attempt succeeds.
#[test]
fn failures_lose_nothing() {
    each_form(|form| {
        let scene = Scene::new(form, 3);
        scene.store.failing.store(3, Ordering::SeqCst);
        let mut expected = [FILL; LENGTH];
        let reported = AtomicU64::new(0);
        thread::scope(|scope| {
            for writer in 0..2usize {
                let (scene, reported) = (&scene, &reported);
                scope.spawn(move || {
                    for at in (writer..8).step_by(2) {
                        // A write is accepted as a whole or not at all.
                        while scene.array.writer().write_at(at as u64, &[at as u8]).is_err() {
                            reported.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    if scene.array.writer().flush().is_err() {
                        reported.fetch_add(1, Ordering::SeqCst);
                    }
                });
                (writer..8).step_by(2).for_each(|at| expected[at] = at as u8);
            }
            scope.spawn(|| scene.array.writer().write_page(15, &[7]).unwrap());
        });
        expected[15] = 7;
        while scene.array.writer().flush().is_err() {}
        assert_eq!(scene.store.failing.load(Ordering::SeqCst), 0);
        let counted = scene.array.writer().failures().0;
        assert!(counted > 0 && counted >= reported.load(Ordering::SeqCst), "{counted} counted");
        scene.end(&expected);
    });
}

/// A truncation to 0 runs while others flush and read: older bytes never return, later bytes are not lost.
#[test]
fn a_zeroed_array_stays_zero() {
    each_form(|form| {
        let scene = Scene::new(form, 100);
        let (array, step) = (&scene.array, &AtomicU8::new(0));
        thread::scope(|scope| {
            scope.spawn(move || {
                array.writer().write_at(0, &[5; 6]).unwrap();
                array.writer().zero().unwrap();
                step.store(1, Ordering::SeqCst);
                array.writer().write_at(2, &[7]).unwrap();
                step.store(2, Ordering::SeqCst);
            });
            scope.spawn(move || {
                for _ in 0..3 {
                    let done = step.load(Ordering::SeqCst);
                    let mut out = [0; 4];
                    read_soon(array, 0, &mut out);
                    assert!(done == 0 || out[0] == 0, "{out:?} after {done}");
                    assert!(done < 2 || out[2] == 7, "{out:?} after {done}");
                    assert!([0, 5, FILL].contains(&out[0]) && [0, 5, 7, FILL].contains(&out[2]), "{out:?}");
                }
            });
            scope.spawn(move || array.writer().flush().unwrap());
            scope.spawn(|| scene.engine.store_settled(Duration::ZERO));
        });
        let mut expected = [0; LENGTH];
        expected[2] = 7;
        scene.end(&expected);
    });
}

/// Two arrays share a dirty limit that is too small for both.
#[test]
fn writers_of_two_arrays_make_room_for_each_other() {
    each_form(|form| {
        let scene = Scene::new(form, 4);
        let other = open(&scene.engine, &(scene.store.clone() as Arc<dyn Store>), "b");
        other.writer().open_for_writing().unwrap();
        let data: Vec<u8> = (0..LENGTH as u8).collect();
        thread::scope(|scope| {
            for array in [&scene.array, &other] {
                let data = &data;
                scope.spawn(move || {
                    for from in (0..LENGTH).step_by(5) {
                        let to = (from + 5).min(LENGTH);
                        write(&array, from as u64, &data[from..to]);
                    }
                });
            }
        });
        other.writer().sync().unwrap();
        other.writer().close_for_writing();
        assert_eq!(content(scene.store.clone(), "b"), data);
        scene.end(&data);
    });
}

/// The last writer closes while another opens and the timer runs: the end of the mount still finds all dirty chunks.
#[test]
fn writers_come_and_go() {
    each_form(|form| {
        let scene = Scene::new(form, 100);
        let mut expected = [FILL; LENGTH];
        thread::scope(|scope| {
            for writer in 0..2usize {
                let array = &scene.array;
                scope.spawn(move || {
                    for round in 0..2usize {
                        array.writer().open_for_writing().unwrap();
                        write(&array, (writer * 4 + round) as u64, &[round as u8]);
                        array.writer().close_for_writing();
                    }
                });
                expected[writer * 4..writer * 4 + 2].copy_from_slice(&[0, 1]);
            }
            scope.spawn(|| {
                scene.array.writer().close_for_writing();
                scene.engine.store_settled(Duration::ZERO);
                scene.engine.store_settled(Duration::ZERO);
            });
        });
        assert!(scene.engine.store_all(Duration::from_secs(60)).is_empty());
        assert_eq!(content(scene.store.clone(), "a"), expected);
        assert_eq!(scene.lasting(), expected);
        assert!(!scene.array.writer().has_writers());
        scene.array.writer().open_for_writing().unwrap();
        scene.end(&expected);
    });
}
