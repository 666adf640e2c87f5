//! Tests of arrays of strings: encoded here by the text of the specification, then compared with the original elements.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::array::{Engine, Reservation, VariableArray};
use crate::codec::vlen::Vlen;
use crate::error::Error;
use crate::metadata::{ArrayMetadata, Document, parse_v2_array, parse_v3};
use crate::store::{MemoryStore, Store};

type Elements = Vec<Vec<u8>>;

fn array(store: MemoryStore, document: &Value) -> Result<VariableArray, Error> {
    let store: Arc<dyn Store> = Arc::new(store);
    VariableArray::open(&store, "a", &Arc::new(metadata(document)))
}

fn metadata(document: &Value) -> ArrayMetadata {
    let text = document.to_string();
    if document["zarr_format"] == 2 {
        return parse_v2_array("a/.zarray", text.as_bytes(), None).unwrap();
    }
    let Document::Array(array) = parse_v3("a/zarr.json", text.as_bytes()).unwrap() else { panic!("a group") };
    array
}

fn read_within(array: &VariableArray, limit_bytes: u64) -> Result<Elements, Error> {
    let engine = Engine::new(limit_bytes, 1);
    let mut held = Reservation::new(&engine);
    let mut elements = Vec::new();
    let version = array.read(&mut held, &mut |element| {
        elements.push(element.to_vec());
        Ok(())
    })?;
    assert_eq!((held.bytes(), version), (0, array.version()?));
    Ok(elements)
}

fn read(array: &VariableArray) -> Result<Elements, Error> {
    read_within(array, 1 << 20)
}

fn document(shape: &[u64], chunk: &[u64], codecs: &Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "string", "fill_value": "fill",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs})
}

/// Returns all indices below `counts` in C order. Without an axis there is one.
fn indices(counts: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for &count in counts {
        all = all.iter().flat_map(|index| (0..count).map(|i| [&index[..], &[i]].concat())).collect();
    }
    all
}

fn name(index: &[u64]) -> Vec<u8> {
    let name = format!("{index:?}é");
    // Lengths vary and include 0.
    let length = index.iter().sum::<u64>() as usize % (name.chars().count() + 1);
    name.chars().take(length).collect::<String>().into_bytes()
}

/// Whether a chunk or inner chunk is not stored.
fn is_missing(number: u64) -> bool {
    number % 5 == 3
}

/// Returns a chunk that begins at element `origin`. `shape` and `axes` are in stored order.
fn chunk(origin: &[u64], shape: &[u64], axes: &[usize]) -> Vec<u8> {
    let elements = indices(shape).into_iter().map(|stored| {
        let mut index = origin.to_vec();
        stored.iter().zip(axes).for_each(|(position, &axis)| index[axis] += position);
        name(&index)
    });
    Vlen::Utf8.encode(&elements.collect::<Vec<_>>()).unwrap()
}

/// Returns a shard of inner chunks, its index (bytes and crc32c) at the end or the start; every fifth inner chunk is
/// empty.
fn shard(
    origin: &[u64],
    shape: &[u64],
    inner: &[u64],
    axes: &[usize],
    is_first: bool,
    encode: &dyn Fn(&[u64]) -> Vec<u8>,
) -> Vec<u8> {
    let counts: Vec<u64> = shape.iter().zip(inner).map(|(a, b)| a / b).collect();
    let index_bytes = counts.iter().product::<u64>() as usize * 16 + 4;
    let (mut chunks, mut index) = (Vec::new(), Vec::new());
    for (number, place) in indices(&counts).into_iter().enumerate() {
        if is_missing(number as u64) {
            index.extend_from_slice(&[0xff; 16]);
            continue;
        }
        let mut start = origin.to_vec();
        place.iter().enumerate().for_each(|(i, position)| start[axes[i]] += position * inner[i]);
        let encoded = encode(&start);
        let offset = chunks.len() + if is_first { index_bytes } else { 0 };
        index.extend_from_slice(&(offset as u64).to_le_bytes());
        index.extend_from_slice(&(encoded.len() as u64).to_le_bytes());
        chunks.extend(encoded);
    }
    let sum = crc32c::crc32c(&index);
    index.extend_from_slice(&sum.to_le_bytes());
    if is_first { [index, chunks].concat() } else { [chunks, index].concat() }
}

fn transpose(order: &[usize]) -> Value {
    json!({"name": "transpose", "configuration": {"order": order}})
}

fn sharding(inner: &[u64], codecs: Value, is_first: bool) -> Value {
    json!({"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": codecs,
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"],
        "index_location": if is_first { "start" } else { "end" }}})
}

fn permuted<T: Copy>(list: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|&axis| list[axis]).collect()
}

/// What a reader should see: names where the chunk and the inner chunk are stored, otherwise the fill value.
#[derive(Clone, Debug)]
struct Case {
    shape: Vec<u64>,
    inner: Vec<u64>,
    chunk: Vec<u64>,
    /// The transpose before the shard, or before the elements if there is no shard.
    outer_order: Vec<usize>,
    inner_order: Vec<usize>,
    is_sharded: bool,
    is_first: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let axis = (0u64..9, 1u64..4, 1u64..3);
    let axes = proptest::collection::vec(axis, 0..4);
    axes.prop_flat_map(|axes| {
        let order: Vec<usize> = (0..axes.len()).collect();
        let orders = (Just(order.clone()).prop_shuffle(), Just(order).prop_shuffle());
        (Just(axes), orders, any::<bool>(), any::<bool>())
    })
    .prop_map(|(axes, (outer_order, inner_order), is_sharded, is_first)| Case {
        shape: axes.iter().map(|axis| axis.0).collect(),
        inner: axes.iter().map(|axis| axis.1).collect(),
        chunk: axes.iter().map(|axis| axis.1 * axis.2).collect(),
        outer_order,
        inner_order,
        is_sharded,
        is_first,
    })
}

impl Case {
    /// Returns the document, and the elements that it and the stored chunks represent.
    fn build(&self, store: &MemoryStore) -> (Value, Elements) {
        let stored_axes = &self.outer_order;
        let shard_shape = permuted(&self.chunk, stored_axes);
        let shard_inner = permuted(&self.inner, stored_axes);
        let inner_axes = permuted(stored_axes, &self.inner_order);
        let inner_shape = permuted(&shard_inner, &self.inner_order);
        let codecs = if self.is_sharded {
            let inside = json!([transpose(&self.inner_order), "vlen-utf8", "crc32c"]);
            json!([transpose(stored_axes), sharding(&shard_inner, inside, self.is_first), "crc32c"])
        } else {
            json!([transpose(stored_axes), "vlen-utf8", "crc32c"])
        };
        let summed = |bytes: Vec<u8>| {
            let sum = crc32c::crc32c(&bytes);
            [bytes, sum.to_le_bytes().to_vec()].concat()
        };
        let counts: Vec<u64> = self.shape.iter().zip(&self.chunk).map(|(a, b)| a.div_ceil(*b)).collect();
        for (number, place) in indices(&counts).into_iter().enumerate() {
            if is_missing(number as u64) {
                continue;
            }
            let origin: Vec<u64> = place.iter().zip(&self.chunk).map(|(a, b)| a * b).collect();
            let encoded = if self.is_sharded {
                let encode = |start: &[u64]| summed(chunk(start, &inner_shape, &inner_axes));
                shard(&origin, &shard_shape, &shard_inner, stored_axes, self.is_first, &encode)
            } else {
                chunk(&origin, &shard_shape, stored_axes)
            };
            let key: String = place.iter().map(|i| format!("/{i}")).collect();
            store.put(&format!("a/c{key}"), summed(encoded)).unwrap();
        }
        let element = |index: Vec<u64>| {
            let number =
                |place: &[u64], counts: &[u64]| place.iter().zip(counts).fold(0, |n, (a, b)| n * b + a);
            let place: Vec<u64> = index.iter().zip(&self.chunk).map(|(a, b)| a / b).collect();
            let mut is_missing_now = is_missing(number(&place, &counts));
            if self.is_sharded {
                let inner: Vec<u64> =
                    index.iter().zip(&self.chunk).zip(&self.inner).map(|((i, c), n)| i % c / n).collect();
                let per_shard: Vec<u64> = self.chunk.iter().zip(&self.inner).map(|(c, n)| c / n).collect();
                let number = number(&permuted(&inner, stored_axes), &permuted(&per_shard, stored_axes));
                is_missing_now |= is_missing(number);
            }
            if is_missing_now { b"fill".to_vec() } else { name(&index) }
        };
        let expected = indices(&self.shape).into_iter().map(element).collect();
        (document(&self.shape, &self.chunk, &codecs), expected)
    }
}

proptest! {
    #[test]
    fn elements_come_back_in_c_order(case in case()) {
        let store = MemoryStore::new();
        let (document, expected) = case.build(&store);
        let array = array(store, &document).unwrap();
        prop_assert_eq!(array.elements(), expected.len() as u64);
        prop_assert_eq!(read(&array).unwrap(), expected);
    }

    #[test]
    fn damage_is_an_error_or_harmless(case in case(), at in any::<prop::sample::Index>(), new: u8, cut: bool) {
        let store = MemoryStore::new();
        let (document, _) = case.build(&store);
        let key = format!("a/c{}", "/0".repeat(case.shape.len()));
        if let Some(mut bytes) = store.get(&key, u64::MAX).unwrap() {
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= new | 1 };
            store.put(&key, bytes).unwrap();
            let error = read(&array(store, &document).unwrap()).unwrap_err();
            prop_assert!(error.to_string().starts_with(&key) && error.errno() == libc::EIO, "{error}");
        }
    }
}

#[test]
fn v2_in_column_major_order_with_a_compressor() {
    let store = MemoryStore::new();
    let document = json!({"zarr_format": 2, "shape": [2, 3], "chunks": [2, 2], "dtype": "|O", "fill_value": 0, "order": "F",
        "filters": [{"id": "vlen-bytes"}], "compressor": {"id": "crc32"}});
    let encoded = Vlen::Bytes.encode(&["00", "10", "01", "11"]).unwrap();
    let sum = crc32fast::hash(&encoded).to_le_bytes();
    store.put("a/0.0", [&sum[..], &encoded].concat()).unwrap();
    let elements: Vec<&[u8]> = vec![b"00", b"01", b"", b"10", b"11", b""];
    assert_eq!(read(&array(store, &document).unwrap()).unwrap(), elements);
}

#[test]
fn chunks_of_different_lengths_and_shards_in_shards() {
    let store = MemoryStore::new();
    let inner = sharding(&[1], json!(["vlen-utf8"]), true);
    let mut document = document(&[5], &[1], &json!([sharding(&[2], json!([inner]), false)]));
    document["chunk_grid"] =
        json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[4, 2]]}});
    let leaf = |start: &[u64]| chunk(start, &[1], &[0]);
    let middle = |start: &[u64]| shard(start, &[2], &[1], &[0], true, &leaf);
    store.put("a/c/0", shard(&[0], &[4], &[2], &[0], false, &middle)).unwrap();
    store.put("a/c/1", shard(&[4], &[2], &[2], &[0], false, &middle)).unwrap();
    let expected: Elements = (0..5).map(|index| name(&[index])).collect();
    assert_eq!(read(&array(store, &document).unwrap()).unwrap(), expected);
}

#[test]
fn unsupported_codecs_are_refused_by_name() {
    let open = |codecs: Value| array(MemoryStore::new(), &document(&[4], &[4], &codecs)).err().unwrap();
    for (codecs, text) in [
        (json!(["vlen-utf8", "nonesuch"]), "a/zarr.json: not supported: codecs[1]: codec \"nonesuch\""),
        (
            json!(["vlen-bytes"]),
            "a/zarr.json: not supported: codecs[0]: codec \"vlen-bytes\" does not match the data type",
        ),
        (
            json!(["bytes"]),
            "a/zarr.json: not supported: codecs[0]: codec \"bytes\" does not accept elements of variable length",
        ),
        (
            json!([{"name": "cast_value", "configuration": {"data_type": "int8"}}, "vlen-utf8"]),
            "a/zarr.json: not supported: codecs[0]: codec \"cast_value\" does not accept elements of variable length",
        ),
        (
            json!([transpose(&[0])]),
            "a/zarr.json: \"codecs\" has no codec that turns elements of variable length into bytes",
        ),
        (json!(["vlen-utf8", transpose(&[0])]), "a/zarr.json: codecs[1]: codec \"transpose\" takes an array"),
        (json!([sharding(&[3], json!(["vlen-utf8"]), false)]), "does not divide the shard's shape [4]"),
    ] {
        let error = open(codecs).to_string();
        assert!(error.contains(text), "{error}");
    }
    let nested = (0..9).fold(json!(["vlen-utf8"]), |codecs, _| json!([sharding(&[4], codecs, false)]));
    assert!(open(nested).to_string().ends_with("shards nested more than 8 deep"));
}

#[test]
fn oversized_arrays_are_not_read() {
    let codecs = json!(["vlen-utf8"]);
    for (shape, chunk) in [([1u64 << 40, 1], [1u64 << 40, 1]), ([1 << 20, 1 << 20], [1, 1])] {
        let array = array(MemoryStore::new(), &document(&shape, &chunk, &codecs)).unwrap();
        assert_eq!(read(&array).unwrap_err().errno(), libc::EFBIG);
    }
    let store = MemoryStore::new();
    store.put("a/c/0", Vlen::Utf8.encode(&["x".repeat(1000)]).unwrap()).unwrap();
    let array = array(store, &document(&[1], &[1], &codecs)).unwrap();
    assert_eq!(read_within(&array, 1500).unwrap_err().errno(), libc::EFBIG);
    assert_eq!(read(&array).unwrap(), [vec![b'x'; 1000]]);
}

#[test]
fn every_content_has_its_version() {
    let store = Arc::new(MemoryStore::new());
    let shared: Arc<dyn Store> = store.clone();
    let metadata = Arc::new(metadata(&document(&[2], &[1], &json!(["vlen-utf8"]))));
    let array = VariableArray::open(&shared, "a", &metadata).unwrap();
    let mut versions = vec![array.version().unwrap()];
    for (key, element) in [("a/c/1", "new"), ("a/c/1", "old"), ("a/c/0", "old")] {
        store.put(key, Vlen::Utf8.encode(&[element]).unwrap()).unwrap();
        versions.push(array.version().unwrap());
        assert_eq!(array.version().unwrap(), versions[versions.len() - 1]);
    }
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 4);
}
