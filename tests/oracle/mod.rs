//! zarr-python as a referee, in a process of its own (`codecs.py`), and chains of ours built from a document.
//!
//! `ZARRFS_TEST_PYTHON` is the interpreter (default `python3`) with the packages of `tests/requirements/quick.txt`. Without
//! it a test says that it was skipped, and fails where `CI` is `true`.
#![allow(dead_code)] // each test binary uses its part

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::level;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use zarrfs::codec::{CodecResult, Pipeline, Representation};
use zarrfs::metadata::{self, ArrayMetadata, ChunkGrid, Document};

/// A running interpreter, which another test takes over at the end of this one. It ends with its input, so with this process.
pub struct Oracle(Option<Interpreter>);

/// Whether zarr-python is older than 3.2, as Python 3.11 gets it: it lacks data types that later ones have.
static IS_OLD: AtomicBool = AtomicBool::new(false);

struct Interpreter {
    _child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The interpreters that no test uses at the moment: importing zarr takes a second.
static IDLE: Mutex<Vec<Interpreter>> = Mutex::new(Vec::new());

impl Oracle {
    /// Starts one unless one is idle; `None` (with a message) where there is none with zarr in it.
    pub fn start() -> Option<Oracle> {
        if let Some(interpreter) = IDLE.lock().unwrap().pop() {
            return Some(Oracle(Some(interpreter)));
        }
        let python = std::env::var("ZARRFS_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/codecs.py");
        let started = Command::new(&python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut oracle = started.ok().and_then(|mut child| {
            let requests = child.stdin.take()?;
            let answers = BufReader::new(child.stdout.take()?);
            Some(Oracle(Some(Interpreter { _child: child, requests, answers })))
        });
        let versions = oracle.as_mut().and_then(|oracle| oracle.ask(json!({"op": "versions"})).ok());
        let version = versions.as_ref().and_then(|versions| versions["zarr"].as_str());
        IS_OLD.store(version.is_some_and(|version| version.starts_with("3.1.")), Ordering::Relaxed);
        if versions.is_none() {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "{python} cannot run {script}, and CI is true"
            );
            eprintln!("SKIPPED: {python} cannot import zarr; set ZARRFS_TEST_PYTHON to one that can");
            return None;
        }
        oracle
    }

    /// Sends one request. Returns the answer, or the text of the exception.
    pub fn ask(&mut self, request: Value) -> Result<Value, String> {
        let interpreter = self.0.as_mut().ok_or("it has ended")?;
        let mut line = String::new();
        let asked = writeln!(interpreter.requests, "{request}")
            .and_then(|()| interpreter.requests.flush())
            .and_then(|()| interpreter.answers.read_line(&mut line));
        if let Err(error) = asked {
            // Nobody takes it over.
            self.0 = None;
            return Err(error.to_string());
        }
        let answer: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer),
        }
    }

    /// Returns the objects that zarr-python writes for the elements.
    pub fn encode(&mut self, document: &Value, data: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let answer =
            self.ask(json!({"op": "encode", "document": document, "data": STANDARD.encode(data)}))?;
        let objects = answer["objects"].as_object().cloned().unwrap_or_default();
        Ok(objects.into_iter().map(|(key, value)| (key, unpack(&value))).collect())
    }

    /// Has tensorstore `"encode"` the elements of a document, or `"decode"` its one chunk.
    pub fn tensorstore(&mut self, direction: &str, document: &Value, data: &[u8]) -> Result<Vec<u8>, String> {
        let op = format!("tensorstore_{direction}");
        let answer = self.ask(json!({"op": op, "document": document, "data": STANDARD.encode(data)}))?;
        Ok(unpack(&answer["data"]))
    }

    /// Returns the elements that zarr-python reads.
    pub fn decode(&mut self, document: &Value, objects: &[(String, Vec<u8>)]) -> Result<Vec<u8>, String> {
        let objects: Map<String, Value> =
            objects.iter().map(|(key, value)| (key.clone(), json!(STANDARD.encode(value)))).collect();
        let answer = self.ask(json!({"op": "decode", "document": document, "objects": objects}))?;
        Ok(unpack(&answer["data"]))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        IDLE.lock().unwrap().extend(self.0.take());
    }
}

/// Bytes out of an answer.
pub fn unpack(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// Returns a v3 document of one chunk.
pub fn v3(data_type: Value, shape: &[u64], fill_value: Value, codecs: Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value, "codecs": codecs, "attributes": {},
    })
}

/// Returns a v2 document of one chunk.
pub fn v2(dtype: Value, shape: &[u64], order: &str, filters: Value, compressor: Value) -> Value {
    json!({
        "zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype, "order": order,
        "fill_value": null, "filters": filters, "compressor": compressor,
    })
}

/// Returns the metadata of a document.
pub fn parse(document: &Value) -> Result<ArrayMetadata, String> {
    let bytes = document.to_string().into_bytes();
    let parsed = match document["zarr_format"].as_u64() {
        Some(2) => metadata::parse_v2_array(".zarray", &bytes, None).map(Document::Array),
        Some(_) => metadata::parse_v3("zarr.json", &bytes),
        None => metadata::parse_n5("attributes.json", &bytes),
    };
    match parsed {
        Ok(Document::Array(array)) => Ok(array),
        Ok(_) => Err("not an array".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns our chain for the chunks of a document.
pub fn pipeline(document: &Value) -> CodecResult<Pipeline> {
    let array = parse(document).map_err(zarrfs::codec::CodecError::new)?;
    let ChunkGrid::Regular(shape) = array.chunk_grid else { panic!("regular grids only") };
    let decoded = Representation { shape, data_type: array.data_type, fill_value: array.fill_value };
    Pipeline::build(&array.codecs, &decoded)
}

/// Bytes that look like data: a slow ramp with noise in some of the low bits, in little-endian items, the same each
/// time for the same `seed`.
pub fn sample(bytes: usize, item_size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut data = Vec::with_capacity(bytes + item_size);
    while data.len() < bytes {
        let value = (data.len() as u64 / 7).wrapping_mul(3) ^ (next() & 0x83);
        let item = value.to_le_bytes();
        data.extend((0..item_size.max(1)).map(|at| item[at % 8]));
    }
    data.truncate(bytes);
    data
}

/// Returns whether zarr-python 3.1 refuses what later ones take: structs, and one-byte types with a byte order.
fn is_of_old_zarr(why: &str) -> bool {
    let is_known = ["No Zarr data type found", "Invalid endianness"].iter().any(|part| why.contains(part));
    IS_OLD.load(Ordering::Relaxed) && is_known
}

/// Returns whether the others are asked about a document. (That we take it is always checked.)
fn is_asked(document: &Value) -> bool {
    let text = document.to_string();
    // The quick level has no packages for these.
    let is_known = level::is_full() || !["pcodec", "zfpy"].iter().any(|codec| text.contains(codec));
    // zarr-python 3.1 gives other elements back where big-endian bytes come after a filter.
    let is_wrong = IS_OLD.load(Ordering::Relaxed)
        && text.contains("numcodecs.")
        && (text.contains("\"big\"") || text.contains("fixedscaleoffset"));
    is_known && !is_wrong && level::is_in_sample(&text, 4)
}

/// Checks one chunk in both directions against tensorstore, which is lossless and reads what zarr-python refuses.
pub fn both_directions_tensorstore(oracle: &mut Oracle, document: &Value, data: &[u8]) {
    let pipeline = pipeline(document).unwrap_or_else(|error| panic!("we refuse {document}: {error}"));
    if !is_asked(document) {
        return;
    }
    let theirs = oracle.tensorstore("encode", document, data);
    let theirs = theirs.unwrap_or_else(|error| panic!("tensorstore cannot encode {document}: {error}"));
    let mut decoded = vec![0xa5; data.len()];
    if let Err(error) = pipeline.decode(&theirs, &mut decoded) {
        panic!("we cannot decode {document}: {error}");
    }
    assert!(decoded == data, "we decode differently: {document}");
    let ours = pipeline.encode(data).unwrap_or_else(|error| panic!("we cannot encode {document}: {error}"));
    let back = oracle.tensorstore("decode", document, &ours);
    let back =
        back.unwrap_or_else(|e| panic!("tensorstore cannot decode what we encode for {document}: {e}"));
    assert!(back == data, "tensorstore decodes our encoding differently: {document}");
}

/// Checks one chunk in both directions: zarr-python's encoding is decoded by us to what zarr-python decodes it to, and
/// so is ours by zarr-python; where `is_lossless`, that is `data` itself. The panic says which failed.
pub fn both_directions(oracle: &mut Oracle, document: &Value, data: &[u8], is_lossless: bool) {
    let pipeline = pipeline(document).unwrap_or_else(|error| panic!("we refuse {document}: {error}"));
    if !is_asked(document) {
        return;
    }
    let theirs = match oracle.encode(document, data) {
        Ok(theirs) => theirs,
        Err(why) if is_of_old_zarr(&why) => return,
        Err(why) => panic!("zarr cannot encode {document}: {why}"),
    };
    let [(key, encoded)] = theirs.as_slice() else { panic!("{document}: objects {}", theirs.len()) };
    let expected = match oracle.decode(document, &theirs) {
        Ok(expected) => expected,
        Err(why) if is_of_old_zarr(&why) => return,
        Err(why) => panic!("zarr cannot decode: {why}"),
    };
    if is_lossless {
        assert!(expected == data, "zarr-python changed the data: {document}");
    }
    let limit = pipeline.encoded_size().limit_bytes();
    assert!(encoded.len() as u64 <= limit, "{document}: {} bytes, limit {limit}", encoded.len());

    let mut decoded = vec![0xa5; pipeline.decoded_bytes()];
    if let Err(error) = pipeline.decode(encoded, &mut decoded) {
        panic!("we cannot decode {document}: {error}");
    }
    assert!(decoded == expected, "we decode differently: {document}");

    let ours = pipeline.encode(data).unwrap_or_else(|error| panic!("we cannot encode {document}: {error}"));
    let back = oracle.decode(document, &[(key.clone(), ours.to_vec())]);
    let back =
        back.unwrap_or_else(|error| panic!("zarr cannot decode what we encode for {document}: {error}"));
    assert!(back == expected, "zarr-python decodes our encoding differently: {document}");
}
