//! What becomes of a change of lengths (`lengths.rs`) that was interrupted.
//!
//! Uses `store`, `metadata` and its neighbours.

use std::time::{Duration, SystemTime};

use super::copies;
use crate::error::{Error, Result};
use crate::hierarchy::attributes::read;
use crate::hierarchy::lengths_record::{LengthsRecord, RECORD, RecordedDocument};
use crate::metadata::author::NodeDocument;
use crate::store::{Info, ObjectPart, Precondition, PutOptions, Store, Writer, join};

/// A program in a store without locks replaces its documents within this time, or it has died.
const RECORD_LIFETIME: Duration = Duration::from_secs(600);

/// Replaces a document that is as it was found.
pub fn put(writer: &dyn Writer, path: &str, key: &str, text: &str, now: &Info) -> Result<()> {
    let options =
        PutOptions { precondition: Precondition::Version(now.version), ..PutOptions::new(path, now) };
    writer.put(key, &[ObjectPart::Bytes(text.as_bytes())], &options).map(drop)
}

/// Ends a change of lengths in a group that another program has begun, if it has died.
pub fn end_interrupted(store: &dyn Store, group: &str) -> Result<()> {
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
pub fn end(store: &dyn Store, writer: &dyn Writer, group: &str) -> Result<()> {
    let record_key = join(group, RECORD);
    let Some(record) = LengthsRecord::read(store, group)? else { return Ok(()) };
    let recorded = &record.documents;
    let mut now = Vec::new();
    for document in recorded {
        now.push(read(store, &document.key)?);
    }
    let undone = |(document, now): (&RecordedDocument, &Option<(String, Info)>)| {
        now.as_ref().and_then(|(text, _)| document.undone(text))
    };
    let is_finished = recorded.iter().zip(&now).all(|pair| undone(pair).is_some());
    for (document, now) in recorded.iter().zip(&now) {
        if now.as_ref().is_some_and(|(_, info)| !record.is_trusted(info)) {
            log::warn!(
                "{record_key}: this record is another user's, but names {}: it is ignored",
                document.key
            );
            return Ok(());
        }
    }
    let mut members = Vec::new();
    for (document, now) in recorded.iter().zip(&now) {
        let (Some((path, name)), Some((text, info))) = (document.key.rsplit_once('/'), now) else { continue };
        let Some(name) = ["zarr.json", ".zarray"].into_iter().find(|known| *known == name) else { continue };
        let text = match undone((document, now)) {
            Some(old) if !is_finished => {
                put(writer, path, &document.key, &old, info)?;
                writer.sync(std::slice::from_ref(&document.key), path)?;
                old
            }
            Some(_) => text.clone(),
            None if document.is_old(text) => text.clone(),
            // Another program has given it another shape since.
            None => continue,
        };
        let node = path.rsplit('/').next().unwrap_or(path).to_owned();
        members.push((node, NodeDocument { name, text }));
    }
    copies::add_members(store, writer, group, &members)?;
    writer.delete(&record_key, Precondition::Version(record.info.version))?;
    writer.sync(&[record_key], group)
}
