//! Two mounts write the same chunks and shards of a remote store. Each has its own bytes, down to parts of elements,
//! and no byte is lost.

use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;

use super::{Case, case, make_in_memory, open_with};
use crate::array::{Array, Layout};
use crate::error::{Error, Result};
use crate::store::{MemoryStore, Precondition, Store};
use crate::test_store::{Hook, Hooked, Operation, Request};

/// What happens between the reads for a put and the put.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// A store behind a network. Another program has its own store over the same objects.
type Remote = Hooked<Others>;

#[derive(Default)]
struct Others {
    meanwhile: Mutex<Vec<Meanwhile>>,
}

impl Hook for Others {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        if matches!(request.operation, Operation::Put | Operation::Delete) {
            let next = self.meanwhile.lock().pop();
            if let Some(run) = next {
                run();
            }
        }
        Ok(())
    }

    fn is_remote(&self) -> bool {
        true
    }
}

fn remote(objects: &Arc<MemoryStore>) -> Arc<Remote> {
    Hooked::new(Arc::clone(objects) as _, Others::default())
}

/// The file as it must become, and which bytes belong to which of two programs.
struct Model {
    bytes: Vec<u8>,
    /// How many neighbouring bytes belong to the same program.
    block: usize,
}

impl Model {
    /// A program writes those bytes of a range that are its own.
    fn write(&mut self, array: &Array, program: usize, write: &Write) {
        let length = self.bytes.len();
        let from = (write.at * length as f64) as usize;
        for at in from..(from + write.length).min(length) {
            if (at / self.block).wrapping_mul(0x9E37_79B9) >> 7 & 1 == program {
                self.bytes[at] = write.seed.wrapping_add(at as u8);
                array.writer().write_at(at as u64, &self.bytes[at..=at]).unwrap();
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Write {
    at: f64,
    length: usize,
    seed: u8,
}

fn write() -> impl Strategy<Value = Write> {
    let seed = prop_oneof![3 => any::<u8>(), 1 => Just(0)];
    (0.0f64..1.0, 1usize..400, seed).prop_map(|(at, length, seed)| Write { at, length, seed })
}

/// One flush of the first program, and what both write between its reads and its puts.
#[derive(Clone, Debug)]
struct Round {
    first: Vec<Write>,
    second: Vec<Write>,
    /// For each put: what the second program writes and stores first, and what the first one writes.
    meanwhile: Vec<(Write, Option<Write>)>,
}

fn round() -> impl Strategy<Value = Round> {
    let writes = || proptest::collection::vec(write(), 0..4);
    let meanwhile = proptest::collection::vec((write(), proptest::option::of(write())), 0..4);
    (writes(), writes(), meanwhile).prop_map(|(first, second, meanwhile)| Round { first, second, meanwhile })
}

fn run(case: &Case, block: usize, rounds: &[Round]) {
    const LIMIT: u64 = 1 << 30;
    let objects = make_in_memory(case);
    let ours = remote(&objects);
    let open = |store: Arc<Remote>| open_with(case, &(store as Arc<dyn Store>), LIMIT);
    let (_first_engine, first) = open(Arc::clone(&ours));
    let (_second_engine, second) = open(remote(&objects));
    let mut bytes = vec![0; first.size_bytes() as usize];
    first.read_at(0, &mut bytes).unwrap();
    let model = Arc::new(Mutex::new(Model { bytes, block }));
    for round in rounds {
        for write in &round.first {
            model.lock().write(&first, 0, write);
        }
        for write in &round.second {
            model.lock().write(&second, 1, write);
        }
        for (theirs, own) in round.meanwhile.iter().cloned() {
            let (first, second, model) = (Arc::clone(&first), Arc::clone(&second), Arc::clone(&model));
            ours.hook.meanwhile.lock().push(Box::new(move || {
                model.lock().write(&second, 1, &theirs);
                second.writer().flush().unwrap();
                if let Some(own) = own {
                    model.lock().write(&first, 0, &own);
                }
            }));
        }
        first.writer().flush().unwrap();
        ours.hook.meanwhile.lock().clear();
    }
    second.writer().flush().unwrap();
    first.writer().flush().unwrap();
    assert!(!first.writer().is_dirty() && !second.writer().is_dirty());
    let (_engine, third) = open(remote(&objects));
    let mut stored = vec![0xAA; third.size_bytes() as usize];
    third.read_at(0, &mut stored).unwrap();
    assert_eq!(stored, model.lock().bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::test_level::pick(100, 300)))]
    #[test]
    fn no_byte_of_either_program_is_lost(
        case in case(), block in 1usize..40, rounds in proptest::collection::vec(round(), 1..5),
    ) {
        run(&case, block, &rounds);
    }
}

fn document_of(case: &Case, change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let objects = make_in_memory(case);
    let stored = objects.get("a/zarr.json", 1 << 20).unwrap().unwrap();
    let mut document = serde_json::from_slice(&stored).unwrap();
    change(&mut document);
    document.to_string().into_bytes()
}

/// The bug: another program created the array anew between the check of the document and the put of an object that neither array had. The
/// object of the old data type stayed in the new array, and the flush succeeded.
#[test]
fn objects_that_were_created_in_the_place_of_another_array_are_removed() {
    let bytes = json!({"name":"bytes","configuration":{"endian":"little"}});
    let case =
        Case { shape: vec![16], chunk: vec![8], codecs: json!([bytes]), fill: 0, layout: Layout::default() };
    let of_type = document_of(&case, |document| document["data_type"] = json!("uint16"));
    let of_chunks = document_of(&case, |document| {
        document["chunk_grid"]["configuration"]["chunk_shape"] = json!([4]);
    });
    let longer = document_of(&case, |document| document["shape"] = json!([40]));
    let edited = document_of(&case, |document| document["attributes"] = json!({"n": 1}));
    let cases: [(Option<Vec<u8>>, bool); 5] = [
        (Some(of_type), false),
        (Some(of_chunks), false),
        (None, false),
        (Some(longer), true),
        (Some(edited), true),
    ];
    for (document, stays) in cases {
        let shown = document.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let objects = make_in_memory(&case);
        objects.put("a/c/1", vec![5; 16]).unwrap();
        let ours = remote(&objects);
        let (_engine, array) = open_with(&case, &(Arc::clone(&ours) as Arc<dyn Store>), 1 << 30);
        array.writer().write_at(0, &[1]).unwrap();
        let others = Arc::clone(&objects);
        ours.hook.meanwhile.lock().push(Box::new(move || match document {
            Some(document) => others.put("a/zarr.json", document).unwrap(),
            None => drop(others.writer().unwrap().delete("a/zarr.json", Precondition::Any).unwrap()),
        }));
        let flushed = array.writer().flush();
        assert_eq!(flushed.is_ok(), stays, "{flushed:?} {shown}");
        assert!(stays || matches!(flushed, Err(Error::Stale { .. })), "{flushed:?} {shown}");
        assert_eq!(objects.get("a/c/0", 1 << 10).unwrap().is_some(), stays, "{shown}");
        assert_eq!(objects.get("a/c/1", 1 << 10).unwrap().unwrap(), [5; 16]);
        // Handles that come later report it, too.
        assert_eq!(array.writer().failures().0 > 0, !stays, "{shown}");
    }
}

/// As above, but the other program has put its own object there: that stays.
#[test]
fn objects_that_another_program_has_replaced_stay() {
    let bytes = json!({"name":"bytes","configuration":{"endian":"little"}});
    let case =
        Case { shape: vec![24], chunk: vec![8], codecs: json!([bytes]), fill: 0, layout: Layout::default() };
    let objects = make_in_memory(&case);
    let ours = remote(&objects);
    let (_engine, array) = open_with(&case, &(Arc::clone(&ours) as Arc<dyn Store>), 1 << 30);
    array.writer().write_at(0, &[1]).unwrap();
    array.writer().write_at(16, &[1]).unwrap();
    let document = document_of(&case, |document| document["data_type"] = json!("uint16"));
    // The last put comes after the first one, whichever that is.
    let others = Arc::clone(&objects);
    ours.hook.meanwhile.lock().push(Box::new(move || {
        others.put("a/zarr.json", document).unwrap();
        for key in ["a/c/0", "a/c/1"] {
            if others.get(key, 1 << 10).unwrap().is_some() {
                others.put(key, vec![7; 16]).unwrap();
            }
        }
    }));
    ours.hook.meanwhile.lock().push(Box::new(|| {}));
    assert!(matches!(array.writer().flush(), Err(Error::Stale { .. })));
    let stored = ["a/c/0", "a/c/1"].map(|key| objects.get(key, 1 << 10).unwrap());
    assert!(stored.iter().flatten().all(|bytes| *bytes == [7; 16]), "{stored:?}");
}

/// Bytes that are in the store already are no longer our change: a later put must not bring them back.
#[test]
fn bytes_that_are_stored_are_not_laid_over_later_ones() {
    let bytes = json!({"name":"bytes","configuration":{"endian":"little"}});
    let lossy =
        json!({"name":"numcodecs.astype","configuration":{"encode_dtype":"<i1","decode_dtype":"<i2"}});
    let shards = json!({"name":"sharding_indexed","configuration":{"chunk_shape":[8],"codecs":[bytes],
        "index_codecs":[bytes],"index_location":"end"}});
    for codecs in [json!([bytes]), json!([lossy, bytes]), json!([shards])] {
        let case = Case { shape: vec![16], chunk: vec![16], codecs, fill: 0, layout: Layout::default() };
        let objects = make_in_memory(&case);
        let ours = remote(&objects);
        let (_first_engine, first) = open_with(&case, &(Arc::clone(&ours) as Arc<dyn Store>), 1 << 30);
        let (_second_engine, second) = open_with(&case, &(remote(&objects) as Arc<dyn Store>), 1 << 30);
        first.writer().write_at(0, &[1]).unwrap();
        let same = Arc::clone(&first);
        ours.hook.meanwhile.lock().push(Box::new(move || same.writer().write_at(2, &[2]).unwrap()));
        first.writer().flush().unwrap();
        assert!(first.writer().is_dirty());
        second.writer().write_at(0, &[9]).unwrap();
        second.writer().flush().unwrap();
        let mut seen = [0; 4];
        first.writer().flush().unwrap();
        first.read_at(0, &mut seen).unwrap();
        assert_eq!(seen, [9, 0, 2, 0], "{}", case.codecs);
    }
}
