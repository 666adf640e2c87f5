//! Writes consolidated metadata: a group's document gets a copy of every document below it.
//!
//! Spec: see `metadata/documents/consolidated.rs`; the text is what zarr-python writes. Uses `attributes` for reading documents, `store` and
//! `metadata`. Copies that exist are ignored: only the nodes' own documents count, and all of them must be found. So a folder that
//! cannot be listed is an error.
//!
//! Invariants: the document is replaced whole, and only if it still is the version that the copy was made for. Other programs add
//! nodes to a copy only where there is one, so the nodes are looked at once more after the first copy is there.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::place::writer;
use crate::error::{Error, Result};
use crate::hierarchy::attributes::read;
use crate::hierarchy::{DOCUMENT_NAMES, MAX_DEPTH};
use crate::metadata::json::{self, edit};
use crate::metadata::{MAX_DOCUMENT_BYTES, ZarrFormat, read_only_n5};
use crate::store::{
    FileId, GetReply, GetRequest, Info, ObjectPart, Precondition, PutOptions, Store, Writer, join,
};

/// How long to try again while other programs change the document or the nodes.
const WAIT: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// What a group has in a copy, as zarr-python writes it: its members are in the copy itself.
const NO_COPIES: &str = r#"{"kind": "inline", "must_understand": false, "metadata": {}}"#;

/// Consolidated metadata as it is, and as it should be.
#[derive(Debug)]
pub struct Consolidated {
    /// The key of the document that has it.
    pub key: String,
    /// The number of nodes below the group.
    pub nodes: usize,
    /// Why it is not current; `None` if it is.
    pub difference: Option<String>,
    /// Folders with nodes of another format, or without a document of their own. Consolidated metadata cannot have them.
    pub left_out: Vec<String>,
    /// The text of the document with current consolidated metadata.
    text: String,
    /// The document that is there, if there is one.
    stored: Option<Info>,
    /// The info of the group's document.
    like: Info,
}

/// Compares the consolidated metadata of a group with the documents below it.
pub fn look(store: &dyn Store, group: &str) -> Result<Consolidated> {
    let document_key = |name| join(group, name);
    if let Some((text, info)) = read(store, &document_key("zarr.json"))? {
        return look_v3(store, group, &text, info);
    }
    let shown = if group.is_empty() { "the root" } else { group };
    let Some((text, info)) = read(store, &document_key(".zgroup"))? else {
        if store.head_object(&document_key("attributes.json"))?.is_some() {
            return Err(read_only_n5(group));
        }
        let is_array = store.head_object(&document_key(".zarray"))?.is_some();
        let what =
            if is_array { "is an array" } else { "has no document of a group: 'zarrfs mkgroup' makes one" };
        return Err(Error::Usage(format!("{shown} {what}")));
    };
    look_v2(store, group, &text, info)
}

/// Writes current consolidated metadata, if it is not there. Durable when this returns. The result says what was there before.
pub fn write(store: &dyn Store, group: &str) -> Result<Consolidated> {
    let writer = writer(store)?;
    let started = Instant::now();
    let mut first = None;
    loop {
        let now = look(store, group)?;
        if now.difference.is_none() {
            return Ok(first.unwrap_or(now));
        }
        put(store, writer, group, &now)?;
        first.get_or_insert(now);
        if started.elapsed() > WAIT {
            let key = if group.is_empty() { "the root" } else { group };
            return Err(Error::busy(key, "other programs keep changing what is in the group"));
        }
    }
}

/// Puts the document, unless it has changed since it was read.
fn put(store: &dyn Store, writer: &dyn Writer, group: &str, now: &Consolidated) -> Result<()> {
    if now.text.len() as u64 > MAX_DOCUMENT_BYTES {
        let reason = format!("{} bytes, more than {MAX_DOCUMENT_BYTES}", now.text.len());
        return Err(Error::TooLarge { key: now.key.clone(), reason });
    }
    let lock_key = if now.stored.is_some() { now.key.clone() } else { join(group, ".zgroup") };
    let lock = match writer.lock(&lock_key) {
        Err(Error::Stale { .. }) => None,
        lock => lock?,
    };
    if lock.is_none() {
        std::thread::sleep(PAUSE);
        return Ok(());
    }
    let precondition = Precondition::found(now.stored.map(|info| info.version));
    let options = PutOptions { precondition, ..PutOptions::new(group, &now.like) };
    match writer.put(&now.key, &[ObjectPart::Bytes(now.text.as_bytes())], &options) {
        Err(Error::Changed { .. }) => {
            std::thread::sleep(PAUSE);
            Ok(())
        }
        put => {
            put?;
            store.forget_transfers(&now.key);
            writer.sync(std::slice::from_ref(&now.key), group)
        }
    }
}

fn look_v3(store: &dyn Store, group: &str, text: &str, info: Info) -> Result<Consolidated> {
    let key = join(group, "zarr.json");
    if edit::find(text, &["node_type"]) != Some("\"group\"") {
        return Err(Error::Usage(format!("{key} is not the document of a group")));
    }
    let nodes = Nodes::below(store, group, ZarrFormat::V3)?;
    let mut entries = Vec::new();
    for node in &nodes.found {
        for (name, text) in &node.documents {
            let copy = [("consolidated_metadata".to_owned(), node.is_group.then(|| NO_COPIES.to_owned()))];
            let document_key = join(&join(group, &node.path), name);
            let copy = edit::set(text, &copy).map_err(|fault| fault.into_error(&document_key))?;
            entries.push((node.path.clone(), copy));
        }
    }
    let copies =
        format!(r#"{{"kind": "inline", "must_understand": false, "metadata": {{{}}}}}"#, members(&entries));
    let new = edit::set(text, &[("consolidated_metadata".to_owned(), Some(copies))]);
    let new = new.map_err(|fault| fault.into_error(&key))?;
    let stored = edit::find(text, &["consolidated_metadata", "metadata"]);
    let difference = difference(stored, &entries, &comparable_v3);
    Ok(Consolidated {
        key,
        nodes: nodes.found.len(),
        difference,
        left_out: nodes.left_out,
        text: new,
        stored: Some(info),
        like: info,
    })
}

fn look_v2(store: &dyn Store, group: &str, zgroup: &str, info: Info) -> Result<Consolidated> {
    let key = join(group, ".zmetadata");
    let nodes = Nodes::below(store, group, ZarrFormat::V2)?;
    let mut entries = vec![(".zgroup".to_owned(), zgroup.to_owned())];
    if let Some((zattrs, _)) = read(store, &join(group, ".zattrs"))? {
        entries.push((".zattrs".to_owned(), zattrs));
    }
    for node in &nodes.found {
        entries.extend(node.documents.iter().map(|(name, text)| (join(&node.path, name), text.clone())));
    }
    let text = format!(r#"{{"metadata": {{{}}}, "zarr_consolidated_format": 1}}"#, members(&entries));
    // A copy that cannot be parsed is ignored by readers, and replaced here.
    let stored = store.content(&key, MAX_DOCUMENT_BYTES)?;
    let stored_info = stored.as_ref().map(|content| content.info);
    let stored = stored.and_then(|content| String::from_utf8(content.bytes).ok());
    let stored = stored.filter(|text| json::parse_object(text.as_bytes()).is_ok());
    let copies = stored.as_deref().and_then(|text| edit::find(text, &["metadata"]));
    let difference = difference(copies, &entries, &comparable_v2);
    let (nodes, left_out) = (nodes.found.len(), nodes.left_out);
    Ok(Consolidated { key, nodes, difference, left_out, text, stored: stored_info, like: info })
}

/// Returns the members of a JSON object.
fn members(entries: &[(String, String)]) -> String {
    let member =
        |(name, text): &(String, String)| format!("{}: {}", Value::from(name.as_str()), edit::trimmed(text));
    entries.iter().map(member).collect::<Vec<_>>().join(", ")
}

/// Returns a document of a v3 node in the form in which copies are compared: a group's own copies do not count.
fn comparable_v3(_: &str, mut document: Map<String, Value>) -> Option<Map<String, Value>> {
    document.shift_remove("consolidated_metadata");
    if document.get("attributes").and_then(Value::as_object).is_some_and(Map::is_empty) {
        document.shift_remove("attributes");
    }
    Some(document)
}

/// The same for a v2 document. Empty attributes may be left out, and zarr-python adds a member to those of groups.
fn comparable_v2(key: &str, mut document: Map<String, Value>) -> Option<Map<String, Value>> {
    document.shift_remove("consolidated_metadata");
    let is_attributes = key == ".zattrs" || key.ends_with("/.zattrs");
    (!is_attributes || !document.is_empty()).then_some(document)
}

/// Returns a document in the form in which copies are compared; `None` if it says nothing.
type Comparable<'a> = &'a dyn Fn(&str, Map<String, Value>) -> Option<Map<String, Value>>;

/// Returns how stored copies differ from these entries.
fn difference(
    stored: Option<&str>,
    entries: &[(String, String)],
    comparable: Comparable<'_>,
) -> Option<String> {
    let stored = stored.and_then(|text| json::parse_object(text.as_bytes()).ok());
    let Some(stored) = stored else { return Some("there is none".to_owned()) };
    let mut left: Map<String, Value> = stored
        .into_iter()
        .filter_map(|(name, value)| match value {
            Value::Object(document) => Some((name.clone(), Value::Object(comparable(&name, document)?))),
            other => Some((name, other)),
        })
        .collect();
    for (name, text) in entries {
        let document = json::parse_object(text.as_bytes()).ok();
        let Some(document) = document.and_then(|document| comparable(name, document)) else { continue };
        match left.shift_remove(name) {
            None => return Some(format!("'{name}' is not in it")),
            Some(found) if found != Value::Object(document) => return Some(format!("'{name}' has changed")),
            Some(_) => {}
        }
    }
    left.keys().next().map(|name| format!("'{name}' is in it, and not in the store"))
}

/// A node below a group.
struct FoundNode {
    /// Its path below the group.
    path: String,
    is_group: bool,
    /// The names and texts of its documents.
    documents: Vec<(&'static str, String)>,
}

/// The nodes below a group that have documents of one format.
#[derive(Default)]
struct Nodes {
    found: Vec<FoundNode>,
    left_out: Vec<String>,
}

impl Nodes {
    /// Finds all nodes, in the order of a walk: groups before their members, names in order.
    fn below(store: &dyn Store, group: &str, format: ZarrFormat) -> Result<Self> {
        let mut nodes = Nodes::default();
        let mut above: Vec<FileId> = store.folder_id(group)?.into_iter().collect();
        nodes.enter((store, group), "", format, &mut above)?;
        Ok(nodes)
    }

    /// Adds what is below the group at a path. `above` has the folders that lead to it.
    fn enter(
        &mut self,
        (store, root): (&dyn Store, &str),
        path: &str,
        format: ZarrFormat,
        above: &mut Vec<FileId>,
    ) -> Result<()> {
        let folder = join(root, path);
        let folder = folder.trim_end_matches('/');
        if path.split('/').count() > MAX_DEPTH {
            return Err(Error::unsupported(folder, format!("groups nested more than {MAX_DEPTH} deep")));
        }
        let entries = store.list(folder)?.into_iter().filter(|entry| entry.is_folder);
        let is_node = |name: &str| match format {
            ZarrFormat::V3 => !name.starts_with("__") && !DOCUMENT_NAMES.contains(&name),
            _ => !DOCUMENT_NAMES.contains(&name),
        };
        let names: Vec<String> = entries.map(|entry| entry.name).filter(|name| is_node(name)).collect();
        for (name, documents) in names.iter().zip(read_all(store, folder, &names, format)?) {
            let path = join(path, name);
            let is_array = match documents.first() {
                None => {
                    if has_other_document(store, &join(root, &path), format)? {
                        self.left_out.push(path);
                    }
                    continue;
                }
                Some((".zarray", _)) => true,
                Some((".zgroup", _)) => false,
                Some((_, text)) => edit::find(text, &["node_type"]) != Some("\"group\""),
            };
            self.found.push(FoundNode { path: path.clone(), is_group: !is_array, documents });
            if is_array {
                continue;
            }
            let id = store.folder_id(&join(root, &path))?;
            if id.is_some_and(|id| above.contains(&id)) {
                return Err(Error::unsupported(path, "a link leads back up to a group that it is in"));
            }
            let depth = above.len();
            above.extend(id);
            self.enter((store, root), &path, format, above)?;
            above.truncate(depth);
        }
        Ok(())
    }
}

/// Returns whether a folder without a document of one format has one of another, or folders that may have.
fn has_other_document(store: &dyn Store, folder: &str, format: ZarrFormat) -> Result<bool> {
    let is_hidden = folder.rsplit('/').next().is_some_and(|name| name.starts_with('.'));
    let others: &[&str] = match format {
        ZarrFormat::V3 => &[".zarray", ".zgroup"],
        _ => &["zarr.json"],
    };
    for name in others {
        if store.head_object(&join(folder, name))?.is_some() {
            return Ok(true);
        }
    }
    Ok(!is_hidden && store.list(folder)?.iter().any(|entry| entry.is_folder))
}

/// Reads the documents of several folders, in a remote store at once. The main document comes first. A document that is not JSON is an
/// error.
fn read_all(
    store: &dyn Store,
    folder: &str,
    names: &[String],
    format: ZarrFormat,
) -> Result<Vec<Vec<(&'static str, String)>>> {
    let documents: &[&'static str] = match format {
        ZarrFormat::V3 => &["zarr.json"],
        _ => &[".zarray", ".zgroup", ".zattrs"],
    };
    let request = |name: &String, document: &&str| GetRequest {
        key: join(&join(folder, name), document),
        limit_bytes: MAX_DOCUMENT_BYTES,
        known: None,
    };
    let requests: Vec<GetRequest> =
        names.iter().flat_map(|name| documents.iter().map(move |document| request(name, document))).collect();
    let mut replies = store.get_many(&requests).into_iter().zip(&requests);
    let mut found = Vec::new();
    for _ in names {
        let mut own: Vec<(&'static str, String)> = Vec::new();
        for (document, (reply, request)) in documents.iter().copied().zip(replies.by_ref()) {
            let GetReply::Content(content) = reply? else { continue };
            // An array's documents hide those of a group in the same folder.
            if document == ".zgroup" && !own.is_empty() {
                continue;
            }
            let wrong = |reason: &str| Error::metadata(&request.key, reason);
            json::parse_object(&content.bytes).map_err(|fault| fault.into_error(&request.key))?;
            let text = String::from_utf8(content.bytes).map_err(|_| wrong("not UTF-8"))?;
            own.push((document, text));
        }
        if own.first().is_some_and(|(name, _)| *name == ".zattrs") {
            own.clear();
        }
        found.push(own);
    }
    Ok(found)
}
