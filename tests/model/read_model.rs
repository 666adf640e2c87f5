//! Every shape, chunk, shard, nesting, transpose, byte order and served layout that proptest finds, read through the file
//! system layer (no FUSE) at random places, against a naive array and a naive encoder that share no code with the crate.

use std::io::Write;
use std::sync::Arc;

use crate::support::handles::Handles;
use crate::support::library::LAYOUTS;
use crate::support::{Numbers, level};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::fs::error::Blocking;
use zarrfs::mount::fs::inode::ROOT;
use zarrfs::mount::options::Options;
use zarrfs::store::MemoryStore;

/// (data type, bytes per item, bytes that are swapped together)
const TYPES: [(&str, usize, usize); 6] = [
    ("uint8", 1, 1),
    ("int16", 2, 2),
    ("float32", 4, 4),
    ("float64", 8, 8),
    ("complex64", 8, 4),
    ("r24", 3, 1),
];

/// One level of sharding: the length of its parts, per axis, and what stands before it.
#[derive(Clone, Debug)]
struct Level {
    /// How many inner chunks per axis (of the axes as this level sees them).
    counts: Vec<usize>,
    /// A transpose before it, as an order.
    order: Option<Vec<usize>>,
    at_start: bool,
}

#[derive(Clone, Debug)]
struct Case {
    shape: Vec<usize>,
    /// Shape of the smallest chunks, in the array's own axes.
    chunk: Vec<usize>,
    levels: Vec<Level>,
    /// A transpose in the innermost chain.
    order: Option<Vec<usize>>,
    data_type: usize,
    is_big: bool,
    is_gzip: bool,
    /// How many of 8 (inner) chunks are missing.
    missing: u64,
    is_dotted: bool,
    layout: usize,
    cache_limit_bytes: u64,
    reads: Vec<(u16, u16)>,
    seed: u64,
}

fn order(rank: usize) -> impl Strategy<Value = Option<Vec<usize>>> {
    prop_oneof![Just(None), Just((0..rank).collect::<Vec<_>>()).prop_shuffle().prop_map(Some)]
}

fn level(rank: usize) -> impl Strategy<Value = Level> {
    (vec(1usize..=3, rank), order(rank), any::<bool>()).prop_map(|(counts, order, at_start)| Level {
        counts,
        order,
        at_start,
    })
}

fn case() -> impl Strategy<Value = Case> {
    (0usize..=4).prop_flat_map(|rank| {
        let longest = [200, 40, 14, 8, 5][rank];
        let chunk = [30, 9, 5, 4, 3][rank];
        let geometry =
            (vec(0usize..=longest, rank), vec(1usize..=chunk, rank), vec(level(rank), 0..=2), order(rank));
        let coding = (0..TYPES.len(), any::<bool>(), any::<bool>(), 0u64..=8, any::<bool>());
        let reading = (
            0..LAYOUTS.len(),
            prop_oneof![Just(0u64), Just(300), Just(1 << 20)],
            vec(any::<(u16, u16)>(), 12),
        );
        (geometry, coding, reading, any::<u64>()).prop_map(|(geometry, coding, reading, seed)| Case {
            shape: geometry.0,
            chunk: geometry.1,
            levels: geometry.2,
            order: geometry.3,
            data_type: coding.0,
            is_big: coding.1,
            is_gzip: coding.2,
            missing: coding.3,
            is_dotted: coding.4,
            layout: reading.0,
            cache_limit_bytes: reading.1,
            reads: reading.2,
            seed,
        })
    })
}

/// Returns all index tuples below `shape`, the last index fastest.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |found, &length| {
        found.iter().flat_map(|index| (0..length).map(move |i| [&index[..], &[i]].concat())).collect()
    })
}

fn permuted(values: &[usize], order: &Option<Vec<usize>>) -> Vec<usize> {
    order.as_ref().map_or(values.to_vec(), |order| order.iter().map(|&axis| values[axis]).collect())
}

/// An array of elements, each its canonical bytes.
#[derive(Clone)]
struct Naive {
    shape: Vec<usize>,
    elements: Vec<Vec<u8>>,
}

impl Naive {
    fn at(&self, index: &[usize]) -> &Vec<u8> {
        &self.elements[index.iter().zip(&self.shape).fold(0, |n, (i, length)| n * length + i)]
    }

    /// Returns the box of `shape` at `start`; what lies outside of the array is `padding`.
    fn part(&self, start: &[usize], shape: &[usize], padding: &[u8]) -> Naive {
        let pick = |index: Vec<usize>| {
            let place: Vec<usize> = index.iter().zip(start).map(|(i, s)| i + s).collect();
            let inside = place.iter().zip(&self.shape).all(|(i, length)| i < length);
            if inside { self.at(&place).clone() } else { padding.to_vec() }
        };
        Naive { elements: indices(shape).into_iter().map(pick).collect(), shape: shape.to_vec() }
    }

    fn transposed(&self, order: &Option<Vec<usize>>) -> Naive {
        let Some(order) = order else { return self.clone() };
        let shape = permuted(&self.shape, &Some(order.clone()));
        let pick = |index: Vec<usize>| {
            let mut place = vec![0; index.len()];
            for (&axis, i) in order.iter().zip(index) {
                place[axis] = i;
            }
            self.at(&place).clone()
        };
        Naive { elements: indices(&shape).into_iter().map(pick).collect(), shape }
    }
}

impl Case {
    fn component(&self) -> usize {
        TYPES[self.data_type].2
    }

    fn fill(&self) -> Vec<u8> {
        (1..=TYPES[self.data_type].1 as u8).collect()
    }

    /// Returns the elements, with the fill value where a smallest chunk is missing.
    fn array(&self) -> Naive {
        let rank = self.shape.len();
        let element = |index: Vec<usize>| {
            let chunk = (0..rank).fold(1u64, |n, axis| n * 1009 + (index[axis] / self.chunk[axis]) as u64);
            if self.is_missing(chunk) {
                return self.fill();
            }
            let place = index.iter().fold(self.seed, |n, &i| n.wrapping_mul(31).wrapping_add(i as u64));
            Numbers(place).next().to_le_bytes()[..TYPES[self.data_type].1].to_vec()
        };
        Naive { elements: indices(&self.shape).into_iter().map(element).collect(), shape: self.shape.clone() }
    }

    fn is_missing(&self, chunk: u64) -> bool {
        Numbers(self.seed ^ chunk).below(8) < self.missing
    }

    /// Returns the shape of the grid's chunks (outermost shards), in the array's axes.
    fn outer_chunk(&self) -> Vec<usize> {
        let mut shape = self.chunk.clone();
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        for level in &self.levels {
            axes = permuted(&axes, &level.order);
            for (&axis, count) in axes.iter().zip(&level.counts) {
                shape[axis] *= count;
            }
        }
        shape
    }

    fn last_codecs(&self) -> Vec<Value> {
        let endian = if self.is_big { "big" } else { "little" };
        let mut codecs = Vec::new();
        codecs.extend(
            self.order.as_ref().map(|order| json!({"name": "transpose", "configuration": {"order": order}})),
        );
        codecs.push(json!({"name": "bytes", "configuration": {"endian": endian}}));
        codecs.extend(self.is_gzip.then(|| json!({"name": "gzip", "configuration": {"level": 1}})));
        codecs
    }

    fn document(&self) -> Value {
        let mut shape = self.outer_chunk();
        let mut shapes = Vec::new();
        for level in &self.levels {
            shape = permuted(&shape, &level.order);
            shape.iter_mut().zip(&level.counts).for_each(|(length, count)| *length /= count);
            shapes.push(shape.clone());
        }
        let mut codecs = self.last_codecs();
        for (level, inner) in self.levels.iter().zip(shapes).rev() {
            let place = if level.at_start { "start" } else { "end" };
            let sharding = json!({"name": "sharding_indexed", "configuration": {
                "chunk_shape": inner, "codecs": codecs, "index_location": place,
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}});
            codecs = level
                .order
                .iter()
                .map(|order| json!({"name": "transpose", "configuration": {"order": order}}))
                .collect();
            codecs.push(sharding);
        }
        let fill = self.fill();
        json!({
            "zarr_format": 3, "node_type": "array", "shape": self.shape, "data_type": TYPES[self.data_type].0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.outer_chunk()}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": if self.is_dotted { "." } else { "/" }}},
            "fill_value": fill_json(TYPES[self.data_type].0, &fill), "codecs": codecs,
        })
    }

    /// Returns one chunk encoded from this level inwards; `None` when all of it is fill value.
    fn encoded(&self, part: &Naive, depth: usize) -> Option<Vec<u8>> {
        let fill = self.fill();
        if part.elements.iter().all(|element| *element == fill) {
            return None;
        }
        let Some(level) = self.levels.get(depth) else {
            return Some(self.encoded_last(&part.transposed(&self.order)));
        };
        let part = part.transposed(&level.order);
        let inner: Vec<usize> =
            part.shape.iter().zip(&level.counts).map(|(length, count)| length / count).collect();
        let index_bytes = 16 * level.counts.iter().product::<usize>() + 4;
        let (mut body, mut index) = (Vec::new(), Vec::new());
        for place in indices(&level.counts) {
            let start: Vec<usize> = place.iter().zip(&inner).map(|(i, length)| i * length).collect();
            let entry = match self.encoded(&part.part(&start, &inner, &fill), depth + 1) {
                None => [u64::MAX; 2],
                Some(bytes) => {
                    body.extend_from_slice(&[0xAA; 3]);
                    let offset = body.len() + if level.at_start { index_bytes } else { 0 };
                    body.extend_from_slice(&bytes);
                    [offset as u64, bytes.len() as u64]
                }
            };
            index.extend(entry.iter().flat_map(|number| number.to_le_bytes()));
        }
        index.extend(crc32c::crc32c(&index).to_le_bytes());
        Some(if level.at_start { [index, body].concat() } else { [body, index].concat() })
    }

    fn encoded_last(&self, part: &Naive) -> Vec<u8> {
        let bytes: Vec<u8> = part
            .elements
            .iter()
            .flat_map(|element| swapped(element, self.component(), self.is_big))
            .collect();
        if !self.is_gzip {
            return bytes;
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn store(&self, array: &Naive) -> MemoryStore {
        let store = MemoryStore::new();
        store.put("zarr.json", &br#"{"zarr_format": 3, "node_type": "group"}"#[..]).unwrap();
        store.put("a/zarr.json", self.document().to_string().into_bytes()).unwrap();
        let outer = self.outer_chunk();
        let counts: Vec<usize> =
            self.shape.iter().zip(&outer).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
        for place in indices(&counts) {
            let start: Vec<usize> = place.iter().zip(&outer).map(|(i, length)| i * length).collect();
            if let Some(bytes) = self.encoded(&array.part(&start, &outer, &self.fill()), 0) {
                let names: Vec<String> =
                    ["c".to_owned()].into_iter().chain(place.iter().map(usize::to_string)).collect();
                let key = names.join(if self.is_dotted { "." } else { "/" });
                store.put(&format!("a/{key}"), bytes).unwrap();
            }
        }
        store
    }

    /// Returns the flat file as it must be served.
    fn served(&self, array: &Naive) -> Vec<u8> {
        let name = LAYOUTS[self.layout].0;
        let reversed = name.starts_with('F').then(|| (0..self.shape.len()).rev().collect());
        let array = array.transposed(&reversed);
        array
            .elements
            .iter()
            .flat_map(|element| swapped(element, self.component(), name.ends_with('>')))
            .collect()
    }
}

fn swapped(element: &[u8], component: usize, is_big: bool) -> Vec<u8> {
    let mut bytes = element.to_vec();
    if is_big {
        bytes.chunks_mut(component).for_each(<[u8]>::reverse);
    }
    bytes
}

fn fill_json(data_type: &str, fill: &[u8]) -> Value {
    let hex = |bytes: &[u8]| {
        format!("0x{}", bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    match data_type {
        "uint8" => json!(fill[0]),
        "int16" => json!(i16::from_le_bytes([fill[0], fill[1]])),
        "complex64" => json!([hex(&fill[..4]), hex(&fill[4..])]),
        "r24" => json!(fill),
        _ => json!(hex(fill)),
    }
}

fn check(case: &Case) {
    let array = case.array();
    let expected = case.served(&array);
    let mut options = Options::new("memory", "/nowhere");
    options.cache_limit_bytes = case.cache_limit_bytes;
    options.threads = 2;
    options.layout = LAYOUTS[case.layout].1;
    let files = FileSystem::new(Arc::new(options), Arc::new(case.store(&array)));
    let found = files.lookup(ROOT, "a", Blocking::Yes).unwrap().attributes;
    assert_eq!(found.size_bytes, expected.len() as u64);
    let handle = files.opens().open(found.inode, libc::O_RDONLY, &Cancellation::never()).unwrap().handle;
    let mut buffer = Default::default();
    let whole =
        files.read(handle, 0, expected.len() as u32 + 10, &mut buffer, &Cancellation::never()).unwrap();
    assert!(*whole == *expected, "the whole file differs");
    for &(from, length) in &case.reads {
        let offset = usize::from(from) % (expected.len() + 2);
        let length = usize::from(length) % (expected.len() + 5);
        let read =
            files.read(handle, offset as u64, length as u32, &mut buffer, &Cancellation::never()).unwrap();
        let end = (offset + length).min(expected.len());
        assert!(*read == expected[offset.min(end)..end], "{length} bytes at {offset}");
    }
    files.opens().release(handle);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: level::count("ZARRFS_MODEL_CASES", 1000, 5000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_equal_the_naive_array(case in case()) {
        check(&case);
    }
}
