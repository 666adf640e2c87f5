//! The record of a change of lengths (`lengths.rs`), and what becomes of a change that was interrupted.
//!
//! Uses `store`, `metadata` and its neighbours. The record has the documents as they were and as they become.
//!
//! Invariant: a record changes only documents that its owner could have changed ([`is_trusted`]).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::copies;
use crate::error::{Error, Result};
use crate::hierarchy::attributes::read;
use crate::hierarchy::lineage::parent;
use crate::metadata::author::NodeDocument;
use crate::store::{Info, ObjectPart, Precondition, PutOptions, Store, Writer, join};
use crate::sys;

/// The object that records a change of lengths while documents are replaced.
pub const RECORD: &str = ".zarrfs-lengths.json";
/// The most bytes of it. A longer one is not written, and one that others wrote is not read.
pub const MAX_RECORD_BYTES: u64 = 32 << 20;
/// A program in a store without locks replaces its documents within this time, or it has died.
const RECORD_LIFETIME: Duration = Duration::from_secs(600);

/// Replaces a document that is as it was found.
pub fn put(writer: &dyn Writer, path: &str, key: &str, text: &str, now: &Info) -> Result<()> {
    let options =
        PutOptions { precondition: Precondition::Version(now.version), ..PutOptions::new(path, now) };
    writer.put(key, &[ObjectPart::Bytes(text.as_bytes())], &options).map(drop)
}

/// A document in the record.
struct Recorded {
    key: String,
    old: String,
    new: String,
}

/// Ends a change of lengths in a group that another program has begun, if it has died.
pub fn end_interrupted(store: &Arc<dyn Store>, group: &str) -> Result<()> {
    let Some(writer) = store.writer() else { return Ok(()) };
    let key = join(group, RECORD);
    let Some(info) = store.head_object(&key)? else { return Ok(()) };
    let Some(_lock) = writer.lock(group)? else { return Ok(()) };
    let age = info.modified.and_then(|time| SystemTime::now().duration_since(time).ok());
    if store.is_remote() && age.is_none_or(|age| age < RECORD_LIFETIME) {
        let seconds = RECORD_LIFETIME.as_secs();
        return Err(Error::busy(
            key,
            format!("another program changes lengths in this group, or died less than {seconds} s ago"),
        ));
    }
    log::warn!("{key}: a change of lengths was interrupted, and is ended");
    end(store, writer, group)
}

/// Finishes the recorded change if all documents are new, and undoes it otherwise. Then deletes the record.
pub fn end(store: &Arc<dyn Store>, writer: &dyn Writer, group: &str) -> Result<()> {
    let record_key = join(group, RECORD);
    let Some(content) = store.content(&record_key, MAX_RECORD_BYTES)? else { return Ok(()) };
    let recorded = recorded(&content.bytes, group)
        .ok_or_else(|| Error::metadata(&record_key, "not a record of lengths"))?;
    let mut now = Vec::new();
    for document in &recorded {
        now.push(read(store.as_ref(), &document.key)?);
    }
    let is_new = |(document, now): (&Recorded, &Option<(String, Info)>)| {
        now.as_ref().is_some_and(|(text, _)| *text == document.new)
    };
    let is_finished = recorded.iter().zip(&now).all(is_new);
    for (document, now) in recorded.iter().zip(&now) {
        if now.as_ref().is_some_and(|(_, info)| !is_trusted(&content.info, info)) {
            log::warn!(
                "{record_key}: this record is another user's, but names {}: it is ignored",
                document.key
            );
            return Ok(());
        }
    }
    let mut members = Vec::new();
    for (document, now) in recorded.iter().zip(&now) {
        let Some((path, name)) = document.key.rsplit_once('/') else { continue };
        let is_new = is_new((document, now));
        if let Some((_, info)) = now
            && is_new
            && !is_finished
        {
            put(writer, path, &document.key, &document.old, info)?;
            writer.sync(std::slice::from_ref(&document.key), path)?;
        }
        let text = if is_finished { &document.new } else { &document.old };
        let is_ours = is_new || now.as_ref().is_some_and(|(text, _)| *text == document.old);
        if let Some(name) = ["zarr.json", ".zarray"].into_iter().find(|known| *known == name && is_ours) {
            let node = path.rsplit('/').next().unwrap_or(path).to_owned();
            members.push((node, NodeDocument { name, text: text.clone() }));
        }
    }
    copies::add_members(store.as_ref(), writer, group, &members)?;
    writer.delete(&record_key, Precondition::Version(content.info.version))?;
    writer.sync(&[record_key], group)
}

/// Returns whether a record may change a document. In a folder where every user may create files, any user can leave a record, and the next
/// command of an administrator must not write that user's text into the documents of others.
fn is_trusted(record: &Info, document: &Info) -> bool {
    let Some(owner) = record.posix.map(|posix| posix.uid) else { return true };
    [0, sys::effective_ids().0].contains(&owner) || document.posix.is_some_and(|posix| posix.uid == owner)
}

/// Reads a record. Keys outside the group are not accepted.
fn recorded(bytes: &[u8], group: &str) -> Option<Vec<Recorded>> {
    let record: Value = serde_json::from_slice(bytes).ok()?;
    let mut documents = Vec::new();
    for document in record.get("documents")?.as_array()? {
        let text = |name: &str| Some(document.get(name)?.as_str()?.to_owned());
        let key = text("key")?;
        let (path, name) = key.rsplit_once('/')?;
        let is_member = parent(path) == Some(group);
        if !is_member
            || !["zarr.json", ".zarray"].contains(&name)
            || path.split('/').any(|name| matches!(name, "" | "." | ".."))
        {
            return None;
        }
        documents.push(Recorded { old: text("old")?, new: text("new")?, key });
    }
    Some(documents)
}
