//! Opening arrays, and reading them as the mount does, for the tests of this layer.

use std::ops::Range;
use std::sync::Arc;

use crate::array::{Array, Blocking, Engine, Layout, ReadRequest, Readahead, Reader, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::error::Result;
use crate::metadata::{ArrayMetadata, Document, parse_v3};
use crate::store::{Store, join};

/// Parses the v3 document of the array at `path`.
pub fn metadata(path: &str, document: &[u8]) -> Arc<ArrayMetadata> {
    let Document::Array(metadata) = parse_v3(&join(path, "zarr.json"), document).unwrap() else {
        panic!("a group")
    };
    Arc::new(metadata)
}

/// Opens the v3 array at `path`.
pub fn open(engine: &Arc<Engine>, store: &Arc<dyn Store>, path: &str, layout: Layout) -> Arc<Array> {
    let document = store.get(&join(path, "zarr.json"), 1 << 20).unwrap().unwrap();
    Array::open(engine, store, path, metadata(path, &document), layout).unwrap()
}

fn read(array: &Array, reader: &Reader, range: Range<u64>, tries: &[Blocking]) -> Result<Option<Vec<u8>>> {
    let mut buffer = ReplyBuffer::default();
    let cancellation = Cancellation::never();
    for &blocking in tries {
        let request = ReadRequest { reader, range: range.clone(), blocking, cancellation: &cancellation };
        if let Some(data) = array.read(&request, &mut buffer)? {
            return Ok(Some(data.to_vec()));
        }
    }
    Ok(None)
}

/// Reads for a reader: without waiting if possible, otherwise once more with the plan of that try.
pub fn read_for(array: &Array, reader: &Reader, range: Range<u64>) -> Result<Vec<u8>> {
    let read = read(array, reader, range, &[Blocking::No, Blocking::Yes])?;
    Ok(read.unwrap_or_else(|| unreachable!("a read that may block waits")))
}

/// Fills `out` from `offset` without waiting. Returns `false` if that is not possible.
pub fn read_now(array: &Array, offset: u64, out: &mut [u8]) -> bool {
    let range = offset..offset + out.len() as u64;
    let data = read(array, &Reader::new(Readahead::Off), range, &[Blocking::No]).unwrap();
    if let Some(data) = &data {
        out.copy_from_slice(data);
    }
    data.is_some()
}

/// Fills `out` from `offset`: without waiting if possible, otherwise waiting.
pub fn read_soon(array: &Array, offset: u64, out: &mut [u8]) {
    let reader = Reader::new(Readahead::Off);
    out.copy_from_slice(&read_for(array, &reader, offset..offset + out.len() as u64).unwrap());
}
