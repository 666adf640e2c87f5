//! A folder of Parquet references, as fsspec's `LazyReferenceMapper` writes it.
//!
//! `.zmetadata` has all documents, and the number of chunks in a record. `ARRAY/refs.N.parq` is record N, with one row for each
//! chunk in order C. Records are read when they are needed. Uses `parquet` for them and `json` for the document. Invariant: the
//! records in memory take at most [`MAX_CACHED_BYTES`], or there is only one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;

use super::json::each_member;
use super::parquet::{self, ReferenceRows};
use super::table::{Reference, checked_range};
use crate::error::{Error, Result};
use crate::store::readers::{Audience, Readers};
use crate::store::targets::object::{refused, target_error};
use crate::store::{ListEntry, Store, is_key, join, names_below};

/// The longest `.zmetadata`.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 256 << 20;
/// The longest record.
const MAX_RECORD_BYTES: u64 = 64 << 20;
/// The most chunks in a record.
const MAX_RECORD_SIZE: u64 = 1 << 20;
/// The most memory for records.
const MAX_CACHED_BYTES: usize = 64 << 20;

/// A record.
struct Record {
    rows: ReferenceRows,
    size_bytes: usize,
    /// The users who may read its file.
    readers: Option<Readers>,
}

#[derive(Default)]
struct Cache {
    records: Option<LruCache<(String, u64), Arc<Record>>>,
    used_bytes: usize,
}

/// References in Parquet files.
pub(super) struct Records {
    files: Arc<dyn Store>,
    documents: BTreeMap<String, Vec<u8>>,
    /// The number of chunks along each dimension of each array.
    arrays: BTreeMap<String, Vec<u64>>,
    record_size: u64,
    cache: Mutex<Cache>,
}

/// Whether a document `.zmetadata` belongs to Parquet references.
pub(super) fn is_record_index(text: &str) -> bool {
    let mut found = false;
    let read = text.contains("\"record_size\"").then(|| {
        each_member(text, &mut |name, _| {
            found |= name == "record_size";
            Ok(())
        })
    });
    read.is_some_and(|read| read.is_ok()) && found
}

impl Records {
    /// Opens the references whose `.zmetadata` has this text. The error is the rest of a sentence that begins with the folder.
    pub(super) fn open(files: Arc<dyn Store>, text: &str) -> std::result::Result<Self, String> {
        let (mut documents, mut arrays) = (BTreeMap::new(), BTreeMap::new());
        let mut record_size = None;
        each_member(text, &mut |name, value| {
            if name == "record_size" {
                record_size = value.get().parse().ok();
            } else if name == "metadata" {
                each_member(value.get(), &mut |key, document| {
                    if !key.is_empty() && is_key(key) {
                        documents.insert(key.to_owned(), document.get().as_bytes().to_vec());
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        let record_size = record_size
            .filter(|size| (1..=MAX_RECORD_SIZE).contains(size))
            .ok_or_else(|| format!("'record_size' is not a number from 1 to {MAX_RECORD_SIZE}"))?;
        for (key, document) in &documents {
            let array = match key.rsplit_once('/') {
                Some((array, ".zarray")) => array,
                None if key == ".zarray" => "",
                _ => continue,
            };
            // An invalid document is an error of its array only.
            if let Some(counts) = counts(document).map_err(|reason| format!("'{key}': {reason}"))? {
                arrays.insert(array.to_owned(), counts);
            }
        }
        Ok(Records { files, documents, arrays, record_size, cache: Mutex::default() })
    }

    /// Returns what a key stands for, for these users.
    pub(super) fn find(&self, key: &str, audience: Option<&Audience>) -> Result<Option<Reference>> {
        if let Some(document) = self.documents.get(key) {
            return Ok(Some(Reference::Inline(document.clone())));
        }
        let (array, chunk) = key.rsplit_once('/').unwrap_or(("", key));
        let Some(number) = self.arrays.get(array).and_then(|counts| chunk_number(chunk, counts)) else {
            return Ok(None);
        };
        let Some(record) = self.record(array, number / self.record_size, key)? else { return Ok(None) };
        if let (Some(audience), Some(readers)) = (audience, record.readers)
            && !audience.all(|audience| audience.all_may_read(&readers))
        {
            let reason =
                "the file of its reference is closed to some users who may read the array's document";
            return Err(refused(key, reason.to_owned()));
        }
        let row = (number % self.record_size) as usize;
        reference(&record.rows, row).map_err(|reason| Error::corrupt(key, format!("its reference: {reason}")))
    }

    /// Returns a record of an array; `None` if it is missing.
    fn record(&self, array: &str, number: u64, key: &str) -> Result<Option<Arc<Record>>> {
        let name = (array.to_owned(), number);
        if let Some(record) =
            self.cache.lock().records.as_mut().and_then(|records| records.get(&name).cloned())
        {
            return Ok(Some(record));
        }
        let path = join(array, &format!("refs.{number}.parq"));
        let content = self.files.content(&path, MAX_RECORD_BYTES);
        let Some(content) = content.map_err(|error| target_error(key, &path, error))? else {
            return Ok(None);
        };
        let rows = parquet::read(&content.bytes, self.record_size as usize)
            .map_err(|reason| Error::corrupt(key, format!("the file of its reference, {path}, {reason}")))?;
        let size_bytes = rows.size_bytes();
        let readers = content.info.posix.map(|posix| Readers::for_posix(&posix));
        let record = Arc::new(Record { rows, size_bytes, readers });
        let mut cache = self.cache.lock();
        let Cache { records, used_bytes } = &mut *cache;
        let records = records.get_or_insert_with(LruCache::unbounded);
        *used_bytes += size_bytes;
        if let Some(old) = records.put(name, Arc::clone(&record)) {
            *used_bytes -= old.size_bytes;
        }
        while *used_bytes > MAX_CACHED_BYTES && records.len() > 1 {
            let Some((_, old)) = records.pop_lru() else { break };
            *used_bytes -= old.size_bytes;
        }
        Ok(Some(record))
    }

    /// Whether there is anything below a key.
    pub(super) fn is_folder(&self, key: &str) -> bool {
        crate::store::is_any_below(&self.documents, key)
    }

    /// Calls `each` with the names directly below a folder, an array's chunks last.
    pub(super) fn each_name(
        &self,
        folder: &str,
        each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        for entry in names_below(&self.documents, folder, |_| false) {
            if each(entry).is_break() {
                return Ok(());
            }
        }
        let Some(counts) = self.arrays.get(folder) else { return Ok(()) };
        let total = counts.iter().fold(1u64, |total, count| total.saturating_mul(*count));
        let mut first = 0;
        while first < total {
            if let Some(record) = self.record(folder, first / self.record_size, folder)? {
                for row in 0..record.rows.len().min((total - first) as usize) {
                    let is_there = !matches!(reference(&record.rows, row), Ok(None));
                    let name = chunk_name(first + row as u64, counts);
                    if is_there && each(ListEntry { name, is_folder: false }).is_break() {
                        return Ok(());
                    }
                }
            }
            first = first.saturating_add(self.record_size);
        }
        Ok(())
    }
}

/// Returns the reference in a row; `None` if its chunk is missing.
fn reference(rows: &ReferenceRows, row: usize) -> std::result::Result<Option<Reference>, String> {
    if let Some(Some(bytes)) = rows.raw.get(row) {
        return Ok(Some(Reference::Inline(bytes.to_vec())));
    }
    let Some(path) = rows.path.get(row).copied().flatten() else { return Ok(None) };
    let url = rows.paths.get(path as usize).ok_or("has no such path")?.clone();
    let number = |numbers: &[u64]| numbers.get(row).copied().unwrap_or(0);
    let range = match (number(&rows.offset), number(&rows.size)) {
        (0, 0) => None,
        (offset, size) => Some(checked_range(offset, size)?),
    };
    Ok(Some(Reference::Target { url, range }))
}

/// Returns the number of chunks along each dimension of an array; `None` for an invalid document.
fn counts(document: &[u8]) -> std::result::Result<Option<Vec<u64>>, String> {
    let Ok(document) = serde_json::from_slice::<Value>(document) else { return Ok(None) };
    if document.get("dimension_separator").and_then(Value::as_str) == Some("/") {
        return Err(
            "Parquet references have chunk keys with '.', and this array's separator is '/'".to_owned()
        );
    }
    let lengths =
        |name: &str| document.get(name)?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>();
    let (Some(shape), Some(chunks)) = (lengths("shape"), lengths("chunks")) else { return Ok(None) };
    if shape.len() != chunks.len() || chunks.contains(&0) {
        return Ok(None);
    }
    Ok(Some(shape.iter().zip(chunks).map(|(length, chunk)| length.div_ceil(chunk)).collect()))
}

/// Returns the number of a chunk in order C; `None` if the array has no such chunk.
fn chunk_number(chunk: &str, counts: &[u64]) -> Option<u64> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if counts.is_empty() {
        return (chunk == "0").then_some(0);
    }
    let mut names = chunk.split('.');
    let mut number = 0u64;
    for count in counts {
        let index = names.next().filter(|name| is_number(name))?.parse::<u64>().ok()?;
        if index >= *count {
            return None;
        }
        number = number.checked_mul(*count)?.checked_add(index)?;
    }
    names.next().is_none().then_some(number)
}

fn chunk_name(number: u64, counts: &[u64]) -> String {
    let mut rest = number;
    let mut indexes: Vec<String> = Vec::new();
    for count in counts.iter().rev() {
        indexes.push((rest % count).to_string());
        rest /= count;
    }
    indexes.reverse();
    if indexes.is_empty() { "0".to_owned() } else { indexes.join(".") }
}
