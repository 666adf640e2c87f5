//! Random reads and writes against a plain byte vector, with write-backs and reopens in between.

mod kept_synced;
mod killed;
mod merge;

use std::ops::{Deref, Range};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use crate::array::test_arrays::{self, read_now, read_soon};
use crate::array::{Array, ByteOrder, Engine, EngineOptions, Layout, Order};
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::store::{MemoryStore, ObjectPart, PutOptions, Store};

/// One step of a program.
#[derive(Clone, Debug)]
enum Step {
    Write(f64, usize, u8),
    Read(f64, usize),
    Flush,
    Sync,
    Settle,
    Zero,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0.0f64..1.0, 0usize..700, any::<u8>()).prop_map(|(at, length, seed)| Step::Write(at, length, seed)),
        6 => (0.0f64..1.0, 0usize..900).prop_map(|(at, length)| Step::Read(at, length)),
        1 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => Just(Step::Settle),
        1 => Just(Step::Zero),
        2 => Just(Step::Reopen),
    ]
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub shape: Vec<u64>,
    pub chunk: Vec<u64>,
    pub codecs: serde_json::Value,
    pub fill: i16,
    pub layout: Layout,
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let axis = (1u64..13, 1u64..4, 1u64..3, 1u64..3);
    let axes = proptest::collection::vec(axis, 0..4);
    let layout = (any::<bool>(), any::<bool>());
    (axes, 0usize..6, layout, prop_oneof![Just(0i16), Just(-7i16)]).prop_map(
        |(axes, kind, (f, big), fill)| {
            let shape: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
            let inner: Vec<u64> = axes.iter().map(|axis| axis.1).collect();
            let middle: Vec<u64> = axes.iter().map(|axis| axis.1 * axis.2).collect();
            let outer: Vec<u64> = axes.iter().map(|axis| axis.1 * axis.2 * axis.3).collect();
            let bytes = json!({"name":"bytes","configuration":{"endian":"big"}});
            let little = json!({"name":"bytes","configuration":{"endian":"little"}});
            let zstd = json!({"name":"zstd","configuration":{"level":1,"checksum":true}});
            let crc = json!({"name":"crc32c"});
            let order: Vec<usize> = (0..shape.len()).rev().collect();
            let transpose = json!({"name":"transpose","configuration":{"order":order}});
            let reversed = |shape: &[u64]| shape.iter().rev().copied().collect::<Vec<u64>>();
            let shard = |inner: &[u64], codecs: serde_json::Value, location: &str| {
                json!({"name":"sharding_indexed","configuration":{"chunk_shape":inner,"codecs":codecs,
                "index_codecs":[little, crc],"index_location":location}})
            };
            let (chunk, codecs) = match kind {
                0 => (outer, json!([bytes])),
                1 => (outer, json!([bytes, zstd, crc])),
                2 => (outer, json!([transpose, little, zstd])),
                3 => (outer, json!([shard(&inner, json!([bytes, zstd]), "start")])),
                4 => {
                    let nested = shard(&reversed(&inner), json!([bytes]), "end");
                    (outer, json!([transpose, shard(&reversed(&middle), json!([nested]), "start")]))
                }
                _ => (outer, json!([shard(&inner, json!([bytes]), "end"), crc])),
            };
            let order = if f { Order::F } else { Order::C };
            let byte_order = if big { ByteOrder::Big } else { ByteOrder::Little };
            Case { shape, chunk, codecs, fill, layout: Layout { order, byte_order } }
        },
    )
}

/// An array that is open for writing until this is dropped. One that stays open keeps its engine with all threads, and thousands of timers would
/// slow all other tests down.
pub(super) struct Writing(Arc<Array>);

impl Writing {
    pub fn open(array: Arc<Array>) -> Self {
        array.writer().open_for_writing().unwrap();
        Writing(array)
    }
}

impl Deref for Writing {
    type Target = Arc<Array>;

    fn deref(&self) -> &Arc<Array> {
        &self.0
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writer().close_for_writing();
    }
}

fn open(case: &Case, store: &Arc<dyn Store>) -> (Arc<Engine>, Writing) {
    open_with(case, store, 600)
}

pub(super) fn open_with(
    case: &Case,
    store: &Arc<dyn Store>,
    dirty_limit_bytes: u64,
) -> (Arc<Engine>, Writing) {
    let engine = Engine::with_options(EngineOptions { dirty_limit_bytes, ..EngineOptions::new(4000, 2) });
    let array = Writing::open(test_arrays::open(&engine, store, "a", case.layout));
    (engine, array)
}

fn make(case: &Case) -> Arc<dyn Store> {
    make_in_memory(case)
}

/// Puts an object as another program does.
fn put_foreign(store: &Arc<dyn Store>, key: &str, bytes: &[u8]) {
    let like = store.head("a/zarr.json").unwrap().unwrap();
    let writer = store.writer().unwrap();
    writer.put(key, &[ObjectPart::Bytes(bytes)], &PutOptions::new("a", &like)).unwrap();
}

pub(super) fn make_in_memory(case: &Case) -> Arc<MemoryStore> {
    let store = MemoryStore::new();
    let document = json!({
        "zarr_format":3,"node_type":"array","shape":case.shape,"data_type":"int16",
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":case.chunk}},
        "chunk_key_encoding":{"name":"default"},"fill_value":case.fill,"codecs":case.codecs,
    });
    store.put("a/zarr.json", document.to_string().into_bytes()).unwrap();
    Arc::new(store)
}

/// What the flat file of an array has.
pub(super) struct ByteModel(Vec<u8>);

/// A write that a model has taken.
pub(super) struct ModelWrite {
    pub offset: u64,
    pub data: Vec<u8>,
}

impl ByteModel {
    /// Returns the model of an array that is all fill value.
    pub fn new(case: &Case, size_bytes: u64) -> Self {
        let item = match case.layout.byte_order {
            ByteOrder::Little => case.fill.to_le_bytes(),
            ByteOrder::Big => case.fill.to_be_bytes(),
        };
        ByteModel(item.iter().copied().cycle().take(size_bytes as usize).collect())
    }

    /// Returns the range of `wanted` bytes, cut at the end, that begins at this part of the file.
    fn range(&self, at: f64, wanted: usize) -> Range<usize> {
        let from = (at * self.0.len() as f64) as usize;
        from..(from + wanted).min(self.0.len())
    }

    /// Writes bytes that depend on the seed and on where they are.
    pub fn write(&mut self, at: f64, wanted: usize, seed: u8) -> ModelWrite {
        let range = self.range(at, wanted);
        let data: Vec<u8> = range.clone().map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        self.0[range.clone()].copy_from_slice(&data);
        ModelWrite { offset: range.start as u64, data }
    }

    pub fn zero(&mut self) {
        self.0.fill(0);
    }

    /// Compares a part of the file with the array.
    pub fn compare(&self, at: f64, wanted: usize, array: &Arc<Array>) {
        let range = self.range(at, wanted);
        let mut out = vec![0xAA; range.len()];
        read_soon(array, range.start as u64, &mut out);
        assert_eq!(out, self.0[range.clone()], "{range:?}");
    }

    /// Compares the whole file with the array.
    pub fn compare_all(&self, array: &Array) {
        let mut out = vec![0xAA; self.0.len()];
        array.read_at(0, &mut out).unwrap();
        assert_eq!(out, self.0);
    }
}

fn run(case: &Case, steps: &[Step]) {
    let store = make(case);
    let (mut engine, mut array) = open(case, &store);
    let mut model = ByteModel::new(case, array.size_bytes());
    for step in steps {
        match step {
            Step::Write(at, wanted, seed) => {
                let write = model.write(*at, *wanted, *seed);
                array.writer().write_at(write.offset, &write.data).unwrap();
            }
            Step::Read(at, wanted) => model.compare(*at, *wanted, &array),
            Step::Flush => array.writer().flush().unwrap(),
            Step::Sync => array.writer().sync().unwrap(),
            Step::Settle => engine.store_settled(std::time::Duration::from_secs(5)),
            Step::Zero => {
                array.writer().zero().unwrap();
                model.zero();
            }
            Step::Reopen => {
                assert!(engine.store_all(std::time::Duration::from_secs(60)).is_empty());
                assert_eq!(engine.counters().dirty_bytes, 0);
                drop(array);
                (engine, array) = open(case, &store);
            }
        }
    }
    array.writer().flush().unwrap();
    assert!(!array.writer().is_dirty());
    let (_engine, again) = open(case, &store);
    model.compare_all(&again);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::test_level::pick(150, 1000)))]

    #[test]
    fn random_steps_match_a_byte_vector(case in case(), steps in proptest::collection::vec(step(), 1..40)) {
        run(&case, &steps);
    }
}

/// The bug: a write to an array that was not opened for writing was accepted. Readers did not find it, and the sync failed with ESTALE.
#[test]
fn an_array_that_is_not_open_for_writing_takes_no_writes() {
    let store = make(&simple(json!([{"name":"bytes","configuration":{"endian":"little"}}])));
    let engine = Engine::with_options(EngineOptions::new(4000, 2));
    let array = test_arrays::open(&engine, &store, "a", Layout::default());
    let writer = array.writer();
    let refuses = || {
        let refused = [
            writer.write_at(0, &[1]),
            writer.write_page(0, &[1]),
            writer.zero(),
            writer.try_begin_write(0, &[1]).map(|_| ()),
        ];
        assert!(refused.iter().all(|refused| matches!(refused, Err(Error::ReadOnly(_)))), "{refused:?}");
    };
    refuses();
    writer.open_for_writing().unwrap();
    writer.write_at(0, &[1]).unwrap();
    writer.sync().unwrap();
    let mut out = [0; 2];
    array.read_at(0, &mut out).unwrap();
    assert_eq!(out, [1, 0]);
    writer.close_for_writing();
    refuses();
}

fn simple(codecs: serde_json::Value) -> Case {
    Case { shape: vec![64, 64], chunk: vec![32, 32], codecs, fill: 0, layout: Layout::default() }
}

#[test]
fn writing_a_whole_array_reads_nothing() {
    let case = simple(json!(["bytes"]));
    let case = Case {
        codecs: json!([{"name":"bytes","configuration":{"endian":"little"}}, {"name":"gzip","configuration":{"level":1}}]),
        ..case
    };
    let store = make(&case);
    let (engine, array) = open_with(&case, &store, 1 << 20);
    for row in 0..64 * 64 * 2 / 100 {
        array.writer().write_at(row * 100, &[row as u8 | 1; 100]).unwrap();
    }
    let rest = 64 * 64 * 2 / 100 * 100;
    array.writer().write_at(rest, &vec![9; 64 * 64 * 2 - rest as usize]).unwrap();
    array.writer().flush().unwrap();
    let counters = engine.counters();
    assert_eq!((counters.bases_read, counters.decoded_chunks, counters.objects_stored), (0, 0, 4));
}

#[test]
fn rewriting_an_inner_chunk_decodes_only_it() {
    let shard = json!([{"name":"sharding_indexed","configuration":{"chunk_shape":[8,8],
        "codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"zstd","configuration":{"level":1,"checksum":false}}],
        "index_codecs":[{"name":"bytes","configuration":{"endian":"little"}}]}}]);
    let case = simple(shard);
    let store = make(&case);
    let (_engine, array) = open(&case, &store);
    array.writer().write_at(0, &vec![1; 64 * 64 * 2]).unwrap();
    array.writer().flush().unwrap();
    drop(array);
    let (engine, array) = open(&case, &store);
    array.writer().write_at(10, &[5; 4]).unwrap();
    array.writer().flush().unwrap();
    let counters = engine.counters();
    assert_eq!((counters.bases_read, counters.chunks_encoded, counters.objects_stored), (1, 1, 1));
    let mut out = vec![0; 64 * 64 * 2];
    array.read_at(0, &mut out).unwrap();
    let mut expected = vec![1; 64 * 64 * 2];
    expected[10..14].fill(5);
    assert_eq!(out, expected);
}

#[test]
fn many_writers_of_one_chunk_lose_nothing() {
    let case = simple(json!([{"name":"bytes","configuration":{"endian":"little"}}]));
    let store = make(&case);
    let (_engine, array) = open(&case, &store);
    std::thread::scope(|scope| {
        for writer in 0..16u64 {
            let array = &array;
            scope.spawn(move || {
                for at in (writer..2048).step_by(16) {
                    array.writer().write_at(at, &[writer as u8 + 1]).unwrap();
                    if at % 256 == writer {
                        array.writer().flush().unwrap();
                    }
                }
            });
        }
    });
    array.writer().sync().unwrap();
    let (_engine, again) = open(&case, &store);
    let mut out = vec![0; 2048];
    again.read_at(0, &mut out).unwrap();
    assert!(out.iter().enumerate().all(|(at, &byte)| byte == (at % 16) as u8 + 1));
}

#[test]
fn foreign_changes_are_merged_or_refused() {
    let case = simple(json!([{"name":"bytes","configuration":{"endian":"little"}}]));
    let store = make(&case);
    let (_engine, array) = open(&case, &store);
    let mut byte = [0];
    array.writer().write_at(0, &[1]).unwrap();
    array.read_at(1, &mut byte).unwrap(); // this loads the base of the chunk, which is missing
    put_foreign(&store, "a/c/0/0", &[9; 2048]);
    array.writer().flush().unwrap();
    let chunk = store.get("a/c/0/0", 1 << 20).unwrap().unwrap();
    assert_eq!(chunk[..3], [1, 9, 9], "what another program wrote is merged, not overwritten");
    array.writer().write_at(0, &[2]).unwrap();
    let put = |document: &[u8]| put_foreign(&store, "a/zarr.json", document);
    let document = store.get("a/zarr.json", 1 << 20).unwrap().unwrap();
    let mut document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    document["attributes"] = json!({"new": 1});
    put(document.to_string().as_bytes());
    array.writer().flush().unwrap(); // attributes do not matter
    array.writer().write_at(0, &[2]).unwrap();
    put(b"{}");
    assert_eq!(array.writer().flush().unwrap_err().errno(), libc::ESTALE);
    assert!(array.writer().is_dirty());
    assert_eq!(array.writer().flush().unwrap_err().errno(), libc::ESTALE, "again and again");
}

fn little() -> serde_json::Value {
    json!([{"name":"bytes","configuration":{"endian":"little"}}])
}

/// A session thread that finds a chunk locked must not treat it as clean and read from the cache.
#[test]
fn a_locked_dirty_chunk_bypasses_the_cache() {
    let case = simple(
        json!([{"name":"bytes","configuration":{"endian":"little"}}, {"name":"gzip","configuration":{"level":1}}]),
    );
    let store = make(&case);
    let (_engine, array) = open_with(&case, &store, 1 << 20);
    let mut out = [9; 4];
    array.read_at(0, &mut out).unwrap();
    assert!(read_now(&array, 0, &mut out));
    let pending = array.writer().try_begin_write(0, &[1; 4]).unwrap().unwrap();
    assert!(!read_now(&array, 0, &mut out), "it would have to wait");
    pending.copy();
    array.read_at(0, &mut out).unwrap();
    assert_eq!(out, [1; 4]);
    assert!(read_now(&array, 0, &mut out));
}

/// Another program changes one inner chunk, and this mount stores another one of the same shard. The kernel's pages of
/// the first are old, although this mount wrote the shard.
#[test]
fn an_open_sees_foreign_changes_next_to_ours() {
    let case = simple(little());
    let store = make(&case);
    let (_engine, array) = open(&case, &store);
    assert!(!array.revalidate(&Cancellation::never()).unwrap(), "what the kernel holds may be from before");
    array.writer().write_at(0, &vec![1; 64 * 64 * 2]).unwrap();
    array.writer().flush().unwrap();
    let mut out = vec![0; 64 * 64 * 2];
    array.read_at(0, &mut out).unwrap();
    assert!(array.revalidate(&Cancellation::never()).unwrap());
    array.writer().write_at(0, &[2; 2]).unwrap();
    array.writer().flush().unwrap();
    assert!(array.revalidate(&Cancellation::never()).unwrap(), "our own writes are not changes");
    put_foreign(&store, "a/c/0/0", &[7; 2048]);
    array.writer().write_at(0, &[3; 2]).unwrap();
    array.writer().flush().unwrap();
    assert!(!array.revalidate(&Cancellation::never()).unwrap(), "the kernel must drop what it holds");
    array.read_at(0, &mut out).unwrap();
    assert_eq!(out[..4], [3, 3, 7, 7]);
}

/// Another program changes the rest of a dirty chunk after its base was loaded: a reader that opens the file afterwards
/// sees the change. A reader that finds a chunk's new version must not hide from the next open that the kernel holds
/// another.
#[test]
fn an_open_sees_foreign_changes_under_dirty_chunks() {
    let zstd = json!([{"name":"bytes","configuration":{"endian":"little"}},
        {"name":"zstd","configuration":{"level":1,"checksum":false}}]);
    let case = simple(zstd);
    let store = make(&case);
    let foreign = |from: u64, data: &[u8]| {
        let (_engine, other) = open(&case, &store);
        other.writer().write_at(from, data).unwrap();
        other.writer().flush().unwrap();
        other.writer().close_for_writing();
    };
    let (_engine, array) = open(&case, &store);
    array.revalidate(&Cancellation::never()).unwrap();
    let mut out = [9; 4];
    array.writer().write_at(0, &[1]).unwrap();
    array.read_at(0, &mut out).unwrap();
    foreign(2, &[5]);
    assert!(!array.revalidate(&Cancellation::never()).unwrap(), "the kernel must drop what it holds");
    array.read_at(0, &mut out).unwrap();
    assert_eq!(out, [1, 0, 5, 0]);
    // Chunk (0, 1) begins at byte 64.
    array.writer().flush().unwrap();
    array.read_at(64, &mut out).unwrap();
    assert!(array.revalidate(&Cancellation::never()).unwrap());
    foreign(64, &[7]);
    array.writer().write_at(0, &[2]).unwrap();
    array.writer().flush().unwrap();
    array.read_at(68, &mut out).unwrap();
    assert!(!array.revalidate(&Cancellation::never()).unwrap(), "the kernel must drop what it holds");
    array.read_at(64, &mut out).unwrap();
    assert_eq!(out, [7, 0, 0, 0]);
}

/// While storing fails, writes are refused once the limit is reached, and a refused write changes nothing.
#[test]
fn memory_is_bounded_while_storing_fails() {
    let case = simple(little());
    let store = make(&case);
    // Two of the four chunks. Each takes its whole memory from the first write on.
    const CHUNK_BYTES: u64 = 2048 + 768;
    let (engine, array) = open_with(&case, &store, 2 * CHUNK_BYTES);
    array.writer().write_at(0, &[1; 128]).unwrap();
    assert_eq!(engine.counters().dirty_bytes, 2 * CHUNK_BYTES);
    let document = store.get("a/zarr.json", 1 << 20).unwrap().unwrap();
    put_foreign(&store, "a/zarr.json", b"{}");
    let mut taken = 0;
    for at in (0..8192).step_by(128) {
        taken += u64::from(array.writer().write_at(at, &[2; 128]).is_ok());
    }
    // All writes to the upper half, and the write that exceeds the limit.
    assert_eq!((taken, engine.counters().dirty_bytes), (33, 4 * CHUNK_BYTES));
    array.writer().write_page(8000, &[3; 128]).unwrap(); // a page is always accepted
    put_foreign(&store, "a/zarr.json", &document);
    array.writer().write_at(4096, &[4; 128]).unwrap();
    array.writer().sync().unwrap();
    let mut out = [0; 128];
    array.read_at(8000, &mut out).unwrap();
    assert_eq!(out, [3; 128]);
}

/// A change of attributes does not matter. The dirty chunks of an array that grew move to its successor.
#[test]
fn dirty_chunks_move_to_a_grown_array() {
    let case = Case { shape: vec![5, 4], chunk: vec![4, 4], ..simple(little()) };
    let store = make(&case);
    let (_engine, array) = open(&case, &store);
    array.writer().write_at(0, &[1; 40]).unwrap();
    let change = |shape: &[u64], attributes: serde_json::Value| {
        let mut document: serde_json::Value =
            serde_json::from_slice(&store.get("a/zarr.json", 1 << 20).unwrap().unwrap()).unwrap();
        document["shape"] = json!(shape);
        document["attributes"] = attributes;
        let bytes = document.to_string().into_bytes();
        put_foreign(&store, "a/zarr.json", &bytes);
        test_arrays::metadata("a", &bytes)
    };
    change(&[5, 4], json!({"chunks": "K"}));
    array.writer().flush().unwrap();
    array.writer().write_at(36, &[2; 4]).unwrap(); // the last row, in the chunk that the other program fills
    let metadata = change(&[8, 4], json!({}));
    assert_eq!(array.writer().flush().unwrap_err().errno(), libc::ESTALE);
    let mut chunk = store.get("a/c/1/0", 1 << 20).unwrap().unwrap();
    chunk[8..].fill(9);
    put_foreign(&store, "a/c/1/0", &chunk);
    let grown = array.grown(metadata).unwrap();
    assert!(grown.writer().is_dirty() && grown.writer().has_writers());
    assert_eq!(
        array.writer().flush().unwrap_err().errno(),
        libc::ESTALE,
        "the old one stores nothing any more"
    );
    assert_eq!(array.writer().failures().0, 0, "and no write was lost");
    grown.writer().write_at(62, &[3; 2]).unwrap();
    grown.writer().flush().unwrap();
    let expected = [vec![1; 36], vec![2; 4], vec![9; 22], vec![3; 2]].concat();
    let (_engine, again) = open(&case, &store);
    let mut out = vec![0; 64];
    again.read_at(0, &mut out).unwrap();
    assert_eq!(out, expected);
    grown.writer().close_for_writing();
    assert!(!array.writer().has_writers());
}

/// The zero mark does not say what another program added, so the old handles get ESTALE.
#[test]
fn a_zeroed_array_does_not_grow() {
    let case = Case { shape: vec![5, 4], chunk: vec![4, 4], ..simple(little()) };
    let store = make(&case);
    let (_engine, array) = open(&case, &store);
    array.writer().zero().unwrap();
    let longer = Case { shape: vec![8, 4], ..case.clone() };
    let other = make(&longer);
    let document = other.get("a/zarr.json", 1 << 20).unwrap().unwrap();
    assert_eq!(array.grown(test_arrays::metadata("a", &document)).err().unwrap().errno(), libc::ESTALE);
}
