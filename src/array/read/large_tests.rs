//! Arrays large enough for code that small ones never reach: full chunks that are stored while their writer continues,
//! strips of blosc blocks, and strips for small caches.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::array::test_arrays::{self, read_for};
use crate::array::{Array, Engine, EngineOptions, Layout, Reader};
use crate::store::{MemoryStore, Store};

/// Chunks of 8 MiB in one slab of 64 MiB, which is the whole array.
const SHAPE: [u64; 3] = [16, 2048, 1024];
const CHUNK: [u64; 3] = [16, 512, 512];
const SIZE_BYTES: usize = 64 << 20;
/// A cache that holds less than the slab.
const SMALL_CACHE_BYTES: u64 = 24 << 20;

fn open(store: &Arc<dyn Store>, cache_limit_bytes: u64, dirty_limit_bytes: u64) -> (Arc<Engine>, Arc<Array>) {
    let options = EngineOptions::new(cache_limit_bytes, 2);
    let engine = Engine::with_options(EngineOptions { dirty_limit_bytes, page_cache_keeps: true, ..options });
    let array = test_arrays::open(&engine, store, "", Layout::default());
    (engine, array)
}

/// Returns what every test of this file stores. It is made once, by a loop of few calls: without optimization, an iterator takes seconds.
fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| {
        let mut content = vec![0; SIZE_BYTES];
        let mut at = 0_usize;
        while at < SIZE_BYTES / 2 {
            let value = (at * at) >> 7;
            content[2 * at] = value as u8;
            content[2 * at + 1] = (value >> 8) as u8 & 3;
            at += 1;
        }
        content
    })
}

fn document(codecs: Value) -> Vec<u8> {
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "uint16", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNK}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs});
    document.to_string().into_bytes()
}

/// Writes everything in requests of 1 MiB, then reads through large and small caches, in order and at random.
fn write_and_read_back(compressor: Value) {
    let store = MemoryStore::new();
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    store.put("zarr.json", document(json!([little, compressor]))).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let content = content();
    let (engine, array) = open(&store, 256 << 20, 64 << 20);
    array.writer().open_for_writing().unwrap();
    for (number, piece) in content.chunks(1 << 20).enumerate() {
        array.writer().write_at((number << 20) as u64, piece).unwrap();
    }
    let is_storing = || engine.counters().chunks_encoded < 8;
    for _ in 0..600 {
        if is_storing() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    assert!(!is_storing(), "full chunks are stored without a flush");
    array.writer().flush().unwrap();
    let counted = engine.counters();
    assert_eq!((counted.chunks_encoded, counted.bases_read, counted.dirty_bytes), (8, 0, 0));
    array.writer().close_for_writing();
    for cache_limit_bytes in [256 << 20, SMALL_CACHE_BYTES, 0] {
        let (engine, array) = open(&store, cache_limit_bytes, 0);
        let reader = Reader::default();
        let mut out = vec![0; 1 << 20];
        let pieces = match cache_limit_bytes {
            0 => 2,
            // Each piece may decode its strips anew.
            SMALL_CACHE_BYTES => crate::test_level::pick(12, 64),
            _ => 64,
        };
        for (number, piece) in content.chunks(1 << 20).enumerate().take(pieces) {
            let offset = (number << 20) as u64;
            let read = read_for(&array, &reader, offset..offset + (1 << 20)).unwrap();
            assert!(read == piece, "{offset} with a cache of {cache_limit_bytes}");
        }
        let amplification = engine.counters().decoded_bytes / SIZE_BYTES as u64;
        assert!(cache_limit_bytes == 0 || amplification <= 8, "{amplification}");
        for number in 0..20 {
            let (from, length) = (number * 3_333_331, 1 + number * 977);
            array.read_at(from as u64, &mut out[..length]).unwrap();
            assert!(out[..length] == content[from..from + length], "{length} at {from}, {cache_limit_bytes}");
        }
    }
}

#[test]
fn blosc_blocks() {
    write_and_read_back(json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}}));
}

#[test]
fn resumed_decoders() {
    write_and_read_back(json!({"name": "gzip", "configuration": {"level": 1}}));
}

#[test]
fn whole_chunks() {
    write_and_read_back(json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}}));
}

/// After one reader received slabs, readahead for another nearby reader does not decode them again.
#[test]
fn consumed_slabs_are_not_decoded_again() {
    let store = MemoryStore::new();
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let blosc = json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": 2, "blocksize": 65536}});
    store.put("zarr.json", document(json!([little, blosc]))).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let (_engine, array) = open(&store, 256 << 20, 256 << 20);
    array.writer().open_for_writing().unwrap();
    array.writer().write_at(0, content()).unwrap();
    array.writer().flush().unwrap();
    array.writer().close_for_writing();
    // Room for a few slabs of 4 MiB.
    let (engine, array) = open(&store, 24 << 20, 0);
    for part in [48..64, 16..32, 32..48, 0..16] {
        let reader = Reader::default();
        for number in part {
            let offset = number << 20;
            read_for(&array, &reader, offset..offset + (1 << 20)).unwrap();
        }
    }
    let more = engine.counters().decoded_bytes - SIZE_BYTES as u64;
    // A thread that is preempted between looking for a strip and decoding it may find it read and evicted.
    const STRIP_BYTES: u64 = 512 << 10;
    assert!(more <= engine.workers().count() as u64 * STRIP_BYTES, "{more} bytes decoded once more");
}
