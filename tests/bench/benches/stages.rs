//! Micro-benchmarks of the stages of a read and of a write: decoding and encoding chunks by each codec, gathering rows out of
//! cached chunks and scattering them over chunks.
//!
//!     cargo bench --manifest-path tests/bench/Cargo.toml --bench stages

use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use zarrfs::array::{Array, Blocking, Engine, Layout, ReadRequest, Readahead, Reader, ReplyBuffer};
use zarrfs::cancellation::Cancellation;
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::store::{MemoryStore, Store};

const SHAPE: [u64; 3] = [64, 256, 256];
const CHUNK: [u64; 3] = [64, 128, 128];
const SIZE_BYTES: u64 = 64 * 256 * 256 * 4;

fn chains() -> Vec<(&'static str, Value)> {
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    let blosc = |name: &str| {
        json!({"name": "blosc", "configuration":
            {"cname": name, "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}})
    };
    let gzip = json!({"name": "gzip", "configuration": {"level": 5}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [2, 1, 0]}});
    vec![
        ("blosc-lz4", json!([little, blosc("lz4")])),
        ("blosc-zstd", json!([little, blosc("zstd")])),
        ("zstd", json!([little, zstd])),
        ("gzip", json!([little, gzip])),
        ("crc32c", json!([little, {"name": "crc32c"}])),
        ("big-endian blosc-lz4", json!([big, blosc("lz4")])),
        ("transposed blosc-lz4", json!([transpose, little, blosc("lz4")])),
    ]
}

/// Returns smooth values with noise: they compress to about half.
fn content() -> Vec<u8> {
    let mut state = 1u64;
    (0..SIZE_BYTES / 4)
        .flat_map(|at| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let noise = (state >> 60) as f32 / 16.0;
            (280.0 + 20.0 * ((at % 256) as f32 / 50.0).sin() + noise).to_le_bytes()
        })
        .collect()
}

fn open(store: &Arc<dyn Store>, cache_limit_bytes: u64) -> Arc<Array> {
    let tree = Tree::new(store.clone());
    let Ok(Some(Node::Array { metadata, .. })) = tree.node("") else { panic!("an array") };
    let engine = Engine::new(cache_limit_bytes, 1);
    Array::open(&engine, store, "", metadata, Layout::default()).expect("it can be served")
}

/// Returns an array without chunks.
fn empty(codecs: &Value) -> Arc<dyn Store> {
    let store = MemoryStore::default();
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "float32", "fill_value": 0.0, "codecs": codecs,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNK}},
        "chunk_key_encoding": {"name": "default"},
    });
    store.put("zarr.json", document.to_string().into_bytes()).expect("a key");
    Arc::new(store)
}

/// Returns the array with all of it written and nothing stored.
fn written(store: &Arc<dyn Store>, content: &[u8]) -> Arc<Array> {
    let array = open(store, 1 << 30);
    array.writer().open_for_writing().expect("a memory store is written");
    array.writer().write_at(0, content).expect("written");
    array
}

fn stored(codecs: &Value, content: &[u8]) -> Arc<dyn Store> {
    let store = empty(codecs);
    let array = written(&store, content);
    array.writer().flush().expect("stored");
    array.writer().close_for_writing();
    store
}

fn codecs(criterion: &mut Criterion) {
    let content = content();
    let mut group = criterion.benchmark_group("decode, one thread");
    group.throughput(Throughput::Bytes(SIZE_BYTES)).sample_size(20);
    for (name, codecs) in chains() {
        let store = stored(&codecs, &content);
        let check = |array: Arc<Array>| array.check(1, &|_| {}, &|_, _| {});
        group.bench_function(name, |b| {
            b.iter_batched(|| open(&store, 1 << 30), check, BatchSize::PerIteration)
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("scatter and encode");
    group.throughput(Throughput::Bytes(SIZE_BYTES)).sample_size(10);
    for (name, codecs) in chains() {
        // Both together: chunks that are full are encoded next to their writer.
        group.bench_function(name, |b| b.iter(|| stored(&codecs, &content)));
    }
    group.finish();
}

fn rows(criterion: &mut Criterion) {
    let content = content();
    let mut group = criterion.benchmark_group("rows of cached chunks, one thread");
    group.throughput(Throughput::Bytes(SIZE_BYTES)).sample_size(20);
    let (_, codecs) = &chains()[0];
    let array = written(&empty(codecs), &content);
    let read = open(&stored(codecs, &content), 1 << 30);
    let mut out = vec![0; content.len()];
    read.read_at(0, &mut out).expect("read");
    let (reader, cancellation) = (Reader::new(Readahead::Off), Cancellation::never());
    let mut buffer = ReplyBuffer::default();
    for request in [128 << 10, 1 << 20] {
        group.bench_function(format!("gather, {} KiB a request", request >> 10), |b| {
            b.iter(|| {
                for start in (0..SIZE_BYTES).step_by(request) {
                    let range = start..start + request as u64;
                    let (reader, cancellation) = (&reader, &cancellation);
                    let request = ReadRequest { reader, range, blocking: Blocking::No, cancellation };
                    assert!(read.read(&request, &mut buffer).expect("read").is_some());
                }
            });
        });
        group.bench_function(format!("scatter, {} KiB a request", request >> 10), |b| {
            b.iter(|| {
                for (number, part) in content.chunks(request).enumerate() {
                    array.writer().write_at((number * request) as u64, part).expect("taken");
                }
            });
        });
    }
    group.finish();
    array.writer().flush().expect("stored");
    array.writer().close_for_writing();
}

criterion_group!(benches, codecs, rows);
criterion_main!(benches);
