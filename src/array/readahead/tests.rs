//! Tests of what a remote store is asked to fetch for a sequential reader.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;

use super::*;
use crate::array::engine::EngineOptions;
use crate::array::{Array, Engine, Layout, test_arrays};
use crate::error::Result;
use crate::store::{
    Claim, Info, ListEntry, MaybeClaim, MemoryStore, Object, ObjectContent, StatFs, Store, Wanted,
};

const MIB: u64 = 1 << 20;

/// A remote store without chunks, which records what it is asked to transfer. Nothing ever arrives.
#[derive(Default)]
struct RecordingRemote {
    objects: MemoryStore,
    asked: Mutex<Vec<String>>,
}

struct OnItsWay(u64);

impl Claim for OnItsWay {
    fn is_here(&self) -> bool {
        false
    }
    fn is_lost(&self) -> bool {
        false
    }
    fn id(&self) -> u64 {
        self.0
    }
    fn size_bytes(&self) -> u64 {
        4096
    }
}

impl Store for RecordingRemote {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.objects.open(key)
    }
    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.objects.content(key, limit_bytes)
    }
    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.objects.head(key)
    }
    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        self.objects.list(folder)
    }
    fn statfs(&self) -> Result<StatFs> {
        self.objects.statfs()
    }
    fn describe(&self) -> String {
        "remote".to_owned()
    }
    fn remote(&self) -> Option<&dyn crate::store::Remote> {
        Some(self)
    }
}

impl crate::store::Remote for RecordingRemote {
    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let mut asked = self.asked.lock();
        let claim = |(key, _): &(String, Wanted)| -> MaybeClaim {
            asked.push(key.clone());
            Some(Arc::new(OnItsWay(asked.len() as u64)))
        };
        wanted.iter().map(claim).collect()
    }
    fn transfer_limit_bytes(&self) -> u64 {
        64 * MIB
    }
}

/// 64 planes of 1 MiB, in layers of 16 chunks that have eight planes each.
fn planes() -> (Arc<RecordingRemote>, Arc<Array>) {
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [64, 1024, 1024], "data_type": "uint8",
        "fill_value": 0, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 256, 256]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]});
    let metadata = test_arrays::metadata("", document.to_string().as_bytes());
    let remote = Arc::new(RecordingRemote::default());
    let store: Arc<dyn Store> = Arc::clone(&remote) as _;
    let engine = Engine::new(256 * MIB, 2);
    (remote, Array::open(&engine, &store, "", metadata, Layout::default()).unwrap())
}

#[test]
fn a_window_grows_with_what_was_received() {
    let (remote, array) = planes();
    let reader = Reader::new(Readahead::Chunks);
    let layers = || {
        let asked = remote.asked.lock();
        let mut sorted = asked.clone();
        sorted.sort();
        assert_eq!(*asked, sorted, "each chunk once, in the order of the file");
        asked.last().map(|key| key.split('/').nth(1).unwrap().parse::<u64>().unwrap())
    };
    // The kernel sends all requests of a plane at once.
    let step = MIB / 8;
    let (readahead, yes) = (&array.readahead, Blocking::Yes);
    let ask = |offset: u64| readahead.prefetch_before(&reader, &(offset..offset + step), yes);
    let receive = |offset: u64| readahead.prefetch_after(&reader, &(offset..offset + step), true);
    assert!((0..MIB).step_by(step as usize).all(ask));
    assert_eq!(layers(), Some(0), "a reader that has received nothing");
    assert_eq!(remote.asked.lock().len(), 16);
    let continues: Vec<_> = (0..MIB).step_by(step as usize).map(receive).collect();
    assert_eq!(continues, [Some(MIB); 8], "where it continues");
    ask(MIB);
    assert_eq!(layers(), Some(1), "14 MiB ahead");
    // A reader that goes elsewhere begins anew.
    remote.asked.lock().clear();
    ask(40 * MIB);
    ask(40 * MIB + step);
    assert_eq!(layers(), Some(5));
}

/// An array of this many chunks of 1 MiB.
fn line_of_chunks(engine: &Arc<Engine>, store: &Arc<MemoryStore>, path: &str, chunks: u64) -> Arc<Array> {
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [chunks * MIB], "data_type": "uint8",
        "fill_value": 0, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [MIB]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}, {"name": "crc32c"}]});
    store.put(&format!("{path}/zarr.json"), document.to_string().into_bytes()).unwrap();
    let mut chunk = vec![7; MIB as usize];
    let sum = crc32c::crc32c(&chunk);
    chunk.extend_from_slice(&sum.to_le_bytes());
    for number in 0..chunks {
        store.put(&format!("{path}/c/{number}"), chunk.clone()).unwrap();
    }
    test_arrays::open(engine, &(Arc::clone(store) as Arc<dyn Store>), path, Layout::default())
}

/// The bug: of an array that one reader goes through again and again, each pass took the memory of the chunks that the next pass
/// needed, and a reader of a long array took the rest, although both together had room in the cache.
#[test]
fn a_reader_of_a_long_array_leaves_what_others_read_again() {
    let mut options = EngineOptions::new(64 * MIB, 1);
    options.page_cache_keeps = false;
    let (engine, store) = (Engine::with_options(options), Arc::new(MemoryStore::new()));
    let (again, long) =
        (line_of_chunks(&engine, &store, "again", 12), line_of_chunks(&engine, &store, "long", 100));
    let read = |array: &Arc<Array>, chunks: u64| {
        let reader = Reader::new(Readahead::Chunks);
        let before = engine.counters().decoded_chunks;
        for at in (0..chunks * MIB).step_by(MIB as usize / 4) {
            let range = at..at + MIB / 4;
            assert_eq!(test_arrays::read_for(array, &reader, range).unwrap().first(), Some(&7));
        }
        engine.wait_until_idle();
        engine.counters().decoded_chunks - before
    };
    read(&again, 12);
    read(&again, 12);
    assert_eq!(read(&again, 12), 0, "it has room in the cache");
    // A thread that has just begun to decode ahead may do a chunk that the reader has passed by then.
    let decoded = read(&long, 100);
    assert!((100..110).contains(&decoded), "{decoded}");
    assert_eq!(read(&again, 12), 0, "the other reader took only its own memory");
}
