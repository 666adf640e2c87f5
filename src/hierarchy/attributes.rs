//! Edits of a node's attributes, in the document that has them and in the consolidated metadata of the groups above.
//!
//! Spec: v3 core "attributes", v2 and v1 "Attributes"; for consolidated metadata see `metadata/documents/consolidated.rs`. Uses `store` and
//! `metadata`.
//!
//! Invariants: a document is replaced whole, and only if it still is the version that the change was made from. Nothing but attributes
//! changes in it, and attributes that are not edited keep their text. Two zarrfs processes that edit the same document wait for each
//! other, even if they have mounted different parts of the store, because every document is locked.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::metadata::json::edit;
use crate::metadata::{self, MAX_DOCUMENT_BYTES, read_only_n5};
use crate::store::{Info, ObjectContent, ObjectPart, Precondition, PutOptions, Store, Writer, join};

use super::lineage::parent;

/// How long to wait for another edit.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// How often an edit starts again after a document changed concurrently.
const MAX_ATTEMPTS: usize = 10;
/// The names of the documents that make a folder a node, in all versions.
const MAIN_DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", "meta"];

/// A change of a node's attributes.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Replaces the attributes by this JSON object. Unchanged ones keep their stored text.
    Whole(String),
    /// Sets these attributes to JSON values, or removes them.
    Members(Vec<(String, Option<String>)>),
}

impl Edit {
    /// Returns the text of the attributes after the edit; `None` if nothing changes.
    fn apply(&self, key: &str, stored: Option<&str>) -> Result<Option<String>> {
        let stored = stored.filter(|text| *text != "null").unwrap_or("{}");
        let changed = match self {
            Edit::Whole(text) => edit::merge(stored, text),
            Edit::Members(members) => edit::set(stored, members),
        };
        let changed = changed.map_err(|fault| fault.within("attributes").into_error(key))?;
        Ok((changed != stored).then_some(changed))
    }
}

/// A document that has the node's attributes.
struct Target {
    key: String,
    /// The folder of the document.
    folder: String,
    /// The attributes' path in the document.
    path: Vec<String>,
    /// The document and its info; `None` if it must be created.
    stored: Option<(String, Info)>,
}

impl Target {
    fn attributes(&self) -> Option<&str> {
        let (text, _) = self.stored.as_ref()?;
        edit::find(text, &self.path())
    }

    fn path(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// Returns the document after the edit; `None` if nothing changes.
    fn changed(&self, edit: &Edit) -> Result<Option<String>> {
        let Some(attributes) = edit.apply(&self.key, self.attributes())? else { return Ok(None) };
        let text = match &self.stored {
            None => attributes,
            Some((text, _)) => edit::replace(text, &self.path(), &attributes)
                .ok_or_else(|| Error::metadata(&self.key, "the attributes have no place in it"))?,
        };
        let size_bytes = text.len() as u64;
        if size_bytes > MAX_DOCUMENT_BYTES {
            let reason =
                format!("{size_bytes} bytes with the new attributes, more than {MAX_DOCUMENT_BYTES}");
            return Err(Error::Usage(format!("{}: {reason}", self.key)));
        }
        // Never write a document that cannot be read back.
        metadata::json::parse_object(text.as_bytes()).map_err(|fault| fault.into_error(&self.key))?;
        Ok(Some(text))
    }
}

/// Returns the attributes of a node as they are stored: a JSON object that may contain bare NaN. They come from the node's own document,
/// or else from the nearest consolidated metadata.
pub fn stored(store: &dyn Store, path: &str) -> Result<String> {
    let targets = targets(store, path)?;
    let text = targets.first().and_then(Target::attributes).filter(|text| *text != "null");
    Ok(text.unwrap_or("{}").to_owned())
}

/// Edits the attributes of the node at a path, in its own document and in every copy of it. Returns whether anything changed. The
/// change is durable when this returns. If the node's own document was written and a copy could not be, this fails.
pub fn edit(store: &dyn Store, path: &str, edit: &Edit) -> Result<bool> {
    let Some(writer) = store.writer() else {
        return Err(Error::ReadOnly(format!("{} is not writable", store.describe())));
    };
    let _locks = lock(store, writer, path)?;
    let mut has_changed = false;
    for _ in 0..MAX_ATTEMPTS {
        let targets = targets(store, path)?;
        // An edit that fails writes nothing.
        let mut changes = Vec::new();
        for target in &targets {
            if let Some(text) = target.changed(edit)? {
                changes.push((target, text));
            }
        }
        for target in &targets {
            remove_leftovers(writer, &target.folder);
        }
        if changes.is_empty() {
            return Ok(has_changed);
        }
        let like = main_info(store, path, &targets)?;
        let mut is_current = true;
        for (target, text) in &changes {
            let version = target.stored.as_ref().map(|(_, info)| info.version);
            let precondition = Precondition::found(version);
            let options = PutOptions { precondition, ..PutOptions::new(&target.folder, &like) };
            match writer.put(&target.key, &[ObjectPart::Bytes(text.as_bytes())], &options) {
                Err(Error::Changed { .. }) => {
                    is_current = false;
                    break;
                }
                other => other?,
            };
            writer.sync(std::slice::from_ref(&target.key), &target.folder)?;
            has_changed = true;
        }
        if is_current {
            return Ok(true);
        }
    }
    let reason = format!("attributes changed concurrently; gave up after {MAX_ATTEMPTS} attempts");
    Err(Error::busy(path, reason))
}

/// Excludes other edits of the same documents, including those through a mount of a part of the store.
fn lock(store: &dyn Store, writer: &dyn Writer, path: &str) -> Result<Vec<Box<dyn Send + Sync>>> {
    let started = Instant::now();
    loop {
        let mut locks = Vec::new();
        let mut is_free = true;
        for key in documents(store, path)? {
            match writer.lock(&key) {
                Ok(Some(lock)) => locks.push(lock),
                Ok(None) | Err(Error::Stale { .. }) => is_free = false,
                Err(error) => return Err(error),
            }
            if !is_free {
                break;
            }
        }
        if is_free {
            return Ok(locks);
        }
        drop(locks);
        if started.elapsed() > LOCK_WITHIN {
            return Err(Error::store(path, "lock", std::io::Error::from_raw_os_error(libc::EBUSY)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the keys of the documents that are locked for an edit: the node's main document, because the document of attributes may
/// not exist yet, and those with copies.
fn documents(store: &dyn Store, path: &str) -> Result<BTreeSet<String>> {
    let targets = targets(store, path)?;
    let mut keys: BTreeSet<String> =
        targets.into_iter().filter(|target| target.stored.is_some()).map(|target| target.key).collect();
    for name in MAIN_DOCUMENTS {
        let key = join(path, name);
        if store.head_object(&key)?.is_some() {
            keys.insert(key);
            break;
        }
    }
    Ok(keys)
}

/// Removes the files that killed edits have left in a folder. A failure is only logged, because readers do not see these files.
pub fn remove_leftovers(writer: &dyn Writer, folder: &str) {
    let place = if folder.is_empty() { "the root" } else { folder };
    match writer.remove_unfinished(folder) {
        Ok(0) => {}
        Ok(removed) => log::warn!("{place}: removed {removed} unfinished files of a dead writer"),
        Err(error) => log::debug!("{place}: {error}"),
    }
}

/// The format of a node's own documents.
enum DocumentFormat {
    V3,
    V2,
    V1,
}

/// Returns the format of a node's own documents; `None` if it has none.
fn document_format(store: &dyn Store, path: &str) -> Result<Option<DocumentFormat>> {
    if read(store, &join(path, "zarr.json"))?.is_some() {
        return Ok(Some(DocumentFormat::V3));
    }
    for name in [".zarray", ".zgroup"] {
        if store.head_object(&join(path, name))?.is_some() {
            return Ok(Some(DocumentFormat::V2));
        }
    }
    let is_v1 = |text: &str| edit::find(text, &["zarr_format"]) == Some("1");
    let meta = if store.head_object(&join(path, "meta"))?.is_some() {
        read(store, &join(path, "meta")).ok()
    } else {
        None
    };
    Ok(meta.flatten().is_some_and(|(text, _)| is_v1(&text)).then_some(DocumentFormat::V1))
}

/// Returns the documents that have the node's attributes: its own first, then the copies in the groups above, nearest first.
fn targets(store: &dyn Store, path: &str) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    let target = |folder: &str, name: &str, path: &[&str]| -> Result<Target> {
        let key = join(folder, name);
        let stored = read(store, &key)?;
        Ok(Target {
            key,
            folder: folder.to_owned(),
            path: path.iter().map(|&name| name.to_owned()).collect(),
            stored,
        })
    };
    match document_format(store, path)? {
        Some(DocumentFormat::V3) => targets.push(target(path, "zarr.json", &["attributes"])?),
        Some(DocumentFormat::V2) => targets.push(target(path, ".zattrs", &[])?),
        Some(DocumentFormat::V1) => targets.push(target(path, "attrs", &[])?),
        None => {}
    }
    let mut above = Some(path);
    while let Some(group) = above {
        let relative = path.strip_prefix(group).unwrap_or(path).trim_start_matches('/');
        if group != path {
            let copy =
                target(group, "zarr.json", &["consolidated_metadata", "metadata", relative, "attributes"])?;
            let is_known = |(text, _): &(String, Info)| {
                edit::find(text, &["consolidated_metadata", "metadata", relative])
                    .is_some_and(|text| text.starts_with('{'))
            };
            if copy.stored.as_ref().is_some_and(is_known) {
                targets.push(copy);
            }
        }
        let copy = match target(group, ".zmetadata", &["metadata", &join(relative, ".zattrs")]) {
            // Readers ignore a copy that cannot be parsed, so it is left as it is.
            Err(error @ Error::Metadata { .. }) => {
                log::warn!("ignoring the consolidated metadata: {error}");
                above = parent(group);
                continue;
            }
            other => other?,
        };
        let knows = |text: &str, name: &str| edit::find(text, &["metadata", &join(relative, name)]).is_some();
        let is_known = |(text, _): &(String, Info)| knows(text, ".zarray") || knows(text, ".zgroup");
        if copy.stored.as_ref().is_some_and(is_known) {
            targets.push(copy);
        }
        above = parent(group);
    }
    if targets.is_empty() && store.head_object(&join(path, "attributes.json"))?.is_some() {
        return Err(read_only_n5(path));
    }
    if targets.is_empty() {
        let place = if path.is_empty() { "the root" } else { path };
        return Err(Error::Usage(format!("{place}: there is no metadata document to hold attributes")));
    }
    Ok(targets)
}

/// Reads a document that is to be edited. Fails if it is not JSON.
pub(super) fn read(store: &dyn Store, key: &str) -> Result<Option<(String, Info)>> {
    let Some(ObjectContent { bytes, info }) = store.content(key, MAX_DOCUMENT_BYTES)? else {
        return Ok(None);
    };
    metadata::json::parse_object(&bytes).map_err(|fault| fault.into_error(key))?;
    let text = String::from_utf8(bytes).map_err(|_| Error::metadata(key, "not UTF-8"))?;
    Ok(Some((text, info)))
}

/// Returns the info that a new document gets its owner and mode from: that of the node's main document, or of a copy.
fn main_info(store: &dyn Store, path: &str, targets: &[Target]) -> Result<Info> {
    for name in MAIN_DOCUMENTS {
        if let Some(info) = store.head_object(&join(path, name))? {
            return Ok(info);
        }
    }
    let of_copy = targets.iter().find_map(|target| target.stored.as_ref());
    of_copy.map(|(_, info)| *info).ok_or_else(|| Error::Stale { key: path.to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::store::MemoryStore;

    const ZARRAY: &str = r#"{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"<i2","fill_value":0,"order":"C","filters":null,"compressor":null}"#;
    const V3_ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"int16","attributes":{"n":1E5,"x":NaN}}"#;

    fn store(documents: &[(&str, &str)]) -> MemoryStore {
        let store = MemoryStore::default();
        for (key, text) in documents {
            store.put(key, text.as_bytes()).unwrap();
        }
        store
    }

    fn text(store: &MemoryStore, key: &str) -> String {
        String::from_utf8(store.get(key, 1 << 20).unwrap().unwrap()).unwrap()
    }

    fn whole(text: &str) -> Edit {
        Edit::Whole(text.to_owned())
    }

    #[test]
    fn v3_with_inline_copies() {
        let group = format!(
            "{{\n  \"zarr_format\": 3, \"node_type\": \"group\",\n  \"consolidated_metadata\": {{\"kind\":\"inline\",\"metadata\":{{\"g/t\":{V3_ARRAY},\"g\":{{}}}}}}\n}}\n"
        );
        let below = group.replace("\"g/t\"", "\"t\"");
        let store = store(&[("zarr.json", &group), ("g/zarr.json", &below), ("g/t/zarr.json", V3_ARRAY)]);
        assert_eq!(stored(&store, "g/t").unwrap(), r#"{"n":1E5,"x":NaN}"#);
        assert!(!edit(&store, "g/t", &whole(r#"{"x":"NaN","n":100000.0}"#)).unwrap());
        assert!(edit(&store, "g/t", &whole(r#"{"x":"NaN","n":100000.0,"u":"K"}"#)).unwrap());
        let new = V3_ARRAY.replace("NaN", "NaN,\"u\":\"K\"");
        assert_eq!(text(&store, "g/t/zarr.json"), new);
        assert_eq!(text(&store, "zarr.json"), group.replace(V3_ARRAY, &new));
        assert_eq!(text(&store, "g/zarr.json"), below.replace(V3_ARRAY, &new));
        // A group's own attributes are absent, and go after its other members; its copy in the root follows.
        assert!(edit(&store, "g", &Edit::Members(vec![("a".into(), Some("[1]".into()))])).unwrap());
        assert!(text(&store, "g/zarr.json").ends_with("}},\n  \"attributes\": {\"a\": [1]}\n}\n"));
        assert!(text(&store, "zarr.json").contains(r#""g":{"attributes": {"a": [1]}}"#));
    }

    #[test]
    fn v2_with_and_without_zattrs() {
        let copy = format!(
            r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{{"zarr_format":2}},"g/t/.zarray":{ZARRAY}}}}}"#
        );
        let store =
            store(&[(".zgroup", "{\"zarr_format\":2}"), (".zmetadata", &copy), ("g/t/.zarray", ZARRAY)]);
        let set = |value: Option<&str>| Edit::Members(vec![("a".into(), value.map(str::to_owned))]);
        assert!(!edit(&store, "g/t", &set(None)).unwrap());
        assert!(store.get("g/t/.zattrs", 99).unwrap().is_none());
        assert!(edit(&store, "g/t", &set(Some("1"))).unwrap());
        assert_eq!(text(&store, "g/t/.zattrs"), "{\"a\": 1}");
        let with = |value: &str| copy.replace("null}}}", &format!("null}},\"g/t/.zattrs\":{value}}}}}"));
        assert_eq!(text(&store, ".zmetadata"), with("{\"a\": 1}"));
        assert!(edit(&store, "g/t", &set(None)).unwrap());
        assert_eq!((text(&store, "g/t/.zattrs").as_str(), text(&store, ".zmetadata")), ("{}", with("{}")));
        assert!(edit(&store, "", &set(Some("2"))).unwrap());
        assert!(text(&store, ".zmetadata").contains("\".zattrs\":{\"a\": 2}"));
        assert_eq!(text(&store, ".zattrs"), "{\"a\": 2}");
    }

    #[test]
    fn a_node_that_only_a_copy_knows_is_edited_there() {
        let copy = format!(
            r#"{{"metadata":{{".zgroup":{{"zarr_format":2}},"t/.zarray":{ZARRAY},"t/.zattrs":{{"b":NaN}}}}}}"#
        );
        let store = store(&[(".zmetadata", &copy)]);
        assert!(edit(&store, "t", &whole(r#"{"b":"NaN","c":[]}"#)).unwrap());
        assert_eq!(text(&store, ".zmetadata"), copy.replace("NaN", "NaN,\"c\":[]"));
        assert!(store.get("t/.zattrs", 99).unwrap().is_none());
    }

    #[test]
    fn v1_and_what_has_no_place_for_attributes() {
        let meta = r#"{"zarr_format":1,"shape":[20]}"#;
        let store =
            store(&[("meta", meta), ("attrs", "{\"a\": 1}"), ("f/x/zarr.json", "{"), ("e/data/0", "")]);
        assert!(edit(&store, "", &whole("{\"b\": 2}")).unwrap());
        assert_eq!((text(&store, "attrs").as_str(), text(&store, "meta").as_str()), ("{\"b\": 2}", meta));
        assert!(matches!(edit(&store, "f/x", &whole("{}")), Err(Error::Metadata { .. })));
        assert!(matches!(edit(&store, "e", &whole("{}")), Err(Error::Usage(_))));
    }
}
