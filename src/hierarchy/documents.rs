//! The metadata documents in one folder of the store, and the node that they describe.
//!
//! Spec: v3 core "Metadata", v2 "Metadata", v1 "Metadata", N5 "File-system specification". Uses `store` and `metadata`. If a folder has documents of several versions,
//! `zarr.json` takes precedence over `.zarray`, then `.zgroup`, then `attributes.json` of N5, then v1's `meta`. Because that name is an ordinary one, `meta` counts
//! only if it says `zarr_format` 1, and `attributes.json` unless it is JSON and not an object. A document that cannot be read or parsed makes the node broken, and the next kind is not tried.
//! Documents of a local store are read one after the other, those of a remote store in one batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::metadata::{self, ArrayMetadata, Document, GroupMetadata, MAX_DOCUMENT_BYTES, ZarrFormat};
use crate::store::{GetReply, GetRequest, Info, ObjectContent, ObjectVersion, Store, join};

/// The names of documents. They are not names of nodes.
pub const DOCUMENT_NAMES: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];
/// The document of a v1 array.
const V1_DOCUMENT: &str = "meta";
/// The document of a node of N5. A group may have none.
const N5_DOCUMENT: &str = "attributes.json";
/// The names of all documents that are read.
const ALL_NAMES: [&str; 8] =
    ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata", N5_DOCUMENT, V1_DOCUMENT, "attrs"];
/// The documents that are requested first below a v3 group, where a node has one document.
const FIRST_V3_NAMES: &[&str] = &["zarr.json"];
/// The documents that are requested first below a v2 group: those of an array, and one of a group.
const FIRST_V2_NAMES: &[&str] = &["zarr.json", ".zarray", ".zattrs", ".zgroup"];
/// The documents that are requested first below a group of N5: its own, and those that take precedence.
const FIRST_N5_NAMES: &[&str] = &["zarr.json", ".zarray", ".zgroup", N5_DOCUMENT];
/// The document of a v2 group whose folder has only a `.zmetadata`.
const V2_GROUP: &[u8] = br#"{"zarr_format":2}"#;
/// The longest `meta` that is read, because any program may write a file of that name.
const MAX_V1_BYTES: u64 = 1 << 20;
/// A document that was changed this recently may change again without a new version.
const SETTLING: Duration = Duration::from_secs(2);

/// What the documents of a node describe.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Group(Arc<GroupMetadata>),
    Array(Arc<ArrayMetadata>),
    Broken(Fault),
}

/// Why a node cannot be served, and what is known about it all the same.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub error: Error,
    pub size_bytes: Option<u64>,
    pub document: Option<Value>,
}

impl Fault {
    /// Returns the fault of a document that could not be read.
    pub fn unread(error: Error) -> Self {
        Fault { error, size_bytes: None, document: None }
    }

    /// Returns the fault of a document that could not be parsed.
    fn unparsed(error: Error, document: &[u8]) -> Self {
        let (document, size_bytes) = metadata::salvage(document);
        Fault { error, size_bytes, document }
    }
}

/// The documents of a node, and the node that they describe.
#[derive(Clone, Debug)]
pub(super) struct Documents {
    /// The key of the main document.
    pub key: String,
    /// The node.
    pub content: Content,
    /// The versions of the documents.
    pub versions: DocumentVersions,
}

/// The documents that were looked for in a folder, and the info of those that were found.
#[derive(Clone, Debug, Default)]
pub(super) struct DocumentVersions {
    documents: Vec<(&'static str, Option<Info>)>,
}

impl Documents {
    /// Returns the info of the main document, if it could be read.
    pub fn info(&self) -> Option<Info> {
        self.versions.info(&self.key)
    }
}

impl DocumentVersions {
    /// Returns the info of the document at a key in this folder.
    pub fn info(&self, key: &str) -> Option<Info> {
        let name = key.rsplit('/').next().unwrap_or(key);
        self.documents.iter().find(|(document, _)| *document == name)?.1
    }

    /// Returns the infos of the documents that were found.
    pub fn infos(&self) -> impl Iterator<Item = Info> {
        self.documents.iter().filter_map(|(_, info)| *info)
    }

    /// Returns whether the folder still has these versions. Opens no document.
    pub fn is_current(&self, store: &dyn Store, path: &str) -> bool {
        let keys: Vec<String> = self.documents.iter().map(|(name, _)| join(path, name)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let is_same = |((_, known), now): (&(_, Option<Info>), Result<Option<Info>>)| {
            now.is_ok_and(|now| now.map(|now| now.version) == known.map(|known| known.version))
        };
        self.documents.iter().zip(store.head_many(&keys)).all(is_same)
    }

    /// Returns whether a later change of any document would change its mtime.
    pub fn is_settled(&self) -> bool {
        self.documents.iter().flat_map(|(_, info)| info).all(|info| is_settled(info.modified))
    }
}

/// Returns whether a document that was changed at this time is old enough that a later change would change its mtime. Stores without
/// times have versions that do not depend on them.
pub fn is_settled(modified: Option<SystemTime>) -> bool {
    let now = SystemTime::now();
    modified.is_none_or(|modified| {
        let distance = now.duration_since(modified).unwrap_or_else(|ahead| ahead.duration());
        distance > SETTLING
    })
}

/// Reads the documents in the folder at `path`; returns `None` if it has none.
pub(super) fn read(store: &dyn Store, path: &str) -> Option<Documents> {
    Folder { store, path, versions: DocumentVersions::default(), replies: HashMap::new() }.documents()
}

/// What [`read_many`] found in one folder.
pub(super) enum Reading {
    /// The versions that the caller knows.
    Unchanged,
    /// Other documents, or none.
    Documents(Option<Documents>),
}

/// As [`read`], for several folders of a remote store, in one batch. If the caller knows the versions of a folder's documents, they are
/// read only if they have changed.
///
/// If the format of the group above is known, the documents that nodes of that format have are requested first, and the others only for
/// folders without them.
pub(super) fn read_many(
    store: &dyn Store,
    folders: &[(&str, Option<&DocumentVersions>)],
    format: Option<ZarrFormat>,
) -> Vec<Reading> {
    let first: &[&'static str] = match format {
        Some(ZarrFormat::V3) => FIRST_V3_NAMES,
        Some(ZarrFormat::V2) => FIRST_V2_NAMES,
        Some(ZarrFormat::N5) => FIRST_N5_NAMES,
        _ => &ALL_NAMES,
    };
    let mut requests = Vec::new();
    for (path, known) in folders {
        match known {
            Some(versions) => requests.extend(
                versions
                    .documents
                    .iter()
                    .map(|(name, info)| request(path, name, info.map(|info| info.version))),
            ),
            None => requests.extend(first.iter().map(|name| request(path, name, None))),
        }
    }
    let mut replies = store.get_many(&requests).into_iter();
    let mut open: Vec<Folder<'_>> = Vec::new();
    let mut is_unchanged = Vec::new();
    for (path, known) in folders {
        let mut folder =
            Folder { store, path, versions: DocumentVersions::default(), replies: HashMap::new() };
        match known {
            Some(versions) => {
                let replies = replies.by_ref().take(versions.documents.len());
                // `all` would stop early and leave replies of this folder in the iterator.
                let same: Vec<bool> = replies.zip(&versions.documents).map(is_same).collect();
                is_unchanged.push(same.into_iter().all(|is_same| is_same));
            }
            None => {
                let replies = replies.by_ref().take(first.len()).map(content);
                folder.replies.extend(first.iter().copied().zip(replies));
                is_unchanged.push(false);
            }
        }
        open.push(folder);
    }
    request_rest(
        store,
        open.iter_mut().zip(&is_unchanged).filter(|(_, same)| !**same).map(|(folder, _)| folder),
    );
    let reading = |(folder, is_unchanged): (Folder<'_>, bool)| {
        if is_unchanged { Reading::Unchanged } else { Reading::Documents(folder.documents()) }
    };
    open.into_iter().zip(is_unchanged).map(reading).collect()
}

fn request(path: &str, name: &str, known: Option<ObjectVersion>) -> GetRequest {
    let limit_bytes = if name == V1_DOCUMENT { MAX_V1_BYTES } else { MAX_DOCUMENT_BYTES };
    GetRequest { key: join(path, name), limit_bytes, known }
}

fn is_same((reply, (_, info)): (Result<GetReply>, &(&str, Option<Info>))) -> bool {
    match reply {
        Ok(GetReply::Unchanged) => true,
        Ok(GetReply::Missing) => info.is_none(),
        _ => false,
    }
}

fn content(reply: Result<GetReply>) -> Result<Option<ObjectContent>> {
    Ok(match reply? {
        GetReply::Content(content) => Some(content),
        GetReply::Missing | GetReply::Unchanged => None,
    })
}

/// Requests all documents that may still count in these folders, in one batch.
fn request_rest<'f, 's: 'f>(store: &dyn Store, folders: impl Iterator<Item = &'f mut Folder<'s>>) {
    let mut asked = Vec::new();
    let mut requests = Vec::new();
    for folder in folders {
        let names = folder.names_left();
        requests.extend(names.iter().map(|name| request(folder.path, name, None)));
        asked.push((folder, names));
    }
    if requests.is_empty() {
        return;
    }
    let mut replies = store.get_many(&requests).into_iter();
    for (folder, names) in asked {
        let replies = replies.by_ref().take(names.len()).map(content).collect::<Vec<_>>();
        folder.replies.extend(names.into_iter().zip(replies));
    }
}

/// Returns the infos of the documents in the folder at `path`, without opening any; `None` if infos do not identify them.
pub(super) fn look(store: &dyn Store, path: &str) -> Result<Option<Vec<Info>>> {
    let families: [&[&str]; 4] =
        [&["zarr.json"], &[".zarray", ".zattrs"], &[".zgroup", ".zattrs", ".zmetadata"], &[N5_DOCUMENT]];
    for family in families {
        let mut found = Vec::new();
        for (index, name) in family.iter().enumerate() {
            match store.head_object(&join(path, name))? {
                Some(info) => found.push(info),
                None if index == 0 => break,
                None => {}
            }
        }
        if !found.is_empty() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A folder whose documents are being read.
struct Folder<'s> {
    store: &'s dyn Store,
    path: &'s str,
    versions: DocumentVersions,
    /// The replies of the store, by name of the document.
    replies: HashMap<&'static str, Result<Option<ObjectContent>>>,
}

/// The name of the main document, and the node.
type NamedContent = (&'static str, Content);

impl Folder<'_> {
    /// Returns the names of documents that may count and were not requested.
    fn names_left(&self) -> Vec<&'static str> {
        let is_there = |name| !matches!(self.replies.get(name), None | Some(Ok(None)));
        let names: &[&str] = if is_there("zarr.json") {
            &["zarr.json"]
        } else if is_there(".zarray") {
            &[".zarray", ".zattrs"]
        } else if is_there(".zgroup") {
            &[".zgroup", ".zattrs", ".zmetadata"]
        } else if is_there(N5_DOCUMENT) {
            &[N5_DOCUMENT]
        } else {
            &ALL_NAMES
        };
        names.iter().copied().filter(|name| !self.replies.contains_key(name)).collect()
    }

    fn documents(mut self) -> Option<Documents> {
        let (name, content) = self.read()?;
        Some(Documents { key: join(self.path, name), content, versions: self.versions })
    }

    /// Reads the main document and those that complete it.
    fn read(&mut self) -> Option<NamedContent> {
        if let Some(found) =
            self.main("zarr.json", |_, key, document| match metadata::parse_v3(key, document)? {
                Document::Group(group) => Ok(Content::Group(Arc::new(group))),
                Document::Array(array) => Ok(Content::Array(Arc::new(array))),
            })
        {
            return Some(found);
        }
        if let Some(found) = self.main(".zarray", Self::v2_array) {
            return Some(found);
        }
        if let Some(found) = self.main(".zgroup", Self::v2_group) {
            return Some(found);
        }
        if let Some(found) = self.n5_node() {
            return Some(found);
        }
        self.v1_array().or_else(|| self.main(".zmetadata", Self::v2_group_of_copy))
    }

    fn main(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&mut Self, &str, &[u8]) -> Result<Content>,
    ) -> Option<NamedContent> {
        let key = join(self.path, name);
        let content = match self.document(name) {
            Ok(None) => return None,
            Err(error) => Content::Broken(Fault::unread(error)),
            Ok(Some(document)) => match parse(self, &key, &document) {
                Ok(content) => content,
                Err(error) => Content::Broken(Fault::unparsed(error, &document)),
            },
        };
        Some((name, content))
    }

    fn v2_array(&mut self, key: &str, zarray: &[u8]) -> Result<Content> {
        let (zattrs, error) = self.companion(".zattrs");
        let mut array = metadata::parse_v2_array(key, zarray, zattrs.as_deref())?;
        array.attributes_error = error.or(array.attributes_error);
        Ok(Content::Array(Arc::new(array)))
    }

    fn v2_group(&mut self, key: &str, zgroup: &[u8]) -> Result<Content> {
        let (zattrs, error) = self.companion(".zattrs");
        let (zmetadata, unread) = self.companion(".zmetadata");
        if let Some(error) = unread {
            log::warn!("ignoring the consolidated metadata: {error}");
        }
        let mut group = metadata::parse_v2_group(key, zgroup, zattrs.as_deref(), zmetadata.as_deref())?;
        group.attributes_error = error.or(group.attributes_error);
        Ok(Content::Group(Arc::new(group)))
    }

    /// Parses a folder whose only document is `.zmetadata`.
    fn v2_group_of_copy(&mut self, key: &str, zmetadata: &[u8]) -> Result<Content> {
        let mut group = metadata::parse_v2_group(key, V2_GROUP, None, Some(zmetadata))?;
        if group.consolidated.is_none() {
            return Err(Error::metadata(
                key,
                "neither consolidated metadata nor anything else that describes a node",
            ));
        }
        match metadata::consolidated_node(&group, "") {
            Some(Ok(Document::Array(array))) => return Ok(Content::Array(Arc::new(array))),
            Some(Ok(Document::Group(own))) => group.attributes = own.attributes,
            Some(Err(error)) => return Err(error),
            None => {}
        }
        Ok(Content::Group(Arc::new(group)))
    }

    /// Reads the document of N5. A list or a number in a file of that name is another program's.
    fn n5_node(&mut self) -> Option<NamedContent> {
        let document = self.document(N5_DOCUMENT);
        let is_other =
            |document: &[u8]| matches!(metadata::json::parse(document), Ok(value) if !value.is_object());
        let key = join(self.path, N5_DOCUMENT);
        let content = match document {
            Ok(None) => return None,
            Ok(Some(document)) if is_other(&document) => return None,
            Err(error) => Content::Broken(Fault::unread(error)),
            Ok(Some(document)) => match metadata::parse_n5(&key, &document) {
                Ok(Document::Group(group)) => Content::Group(Arc::new(group)),
                Ok(Document::Array(array)) => Content::Array(Arc::new(array)),
                Err(error) => Content::Broken(Fault::unparsed(error, &document)),
            },
        };
        Some((N5_DOCUMENT, content))
    }

    fn v1_array(&mut self) -> Option<NamedContent> {
        let meta = self.document_within("meta", MAX_V1_BYTES).ok()??;
        let says_v1 = |value: Value| value.get("zarr_format").and_then(Value::as_u64) == Some(1);
        if !metadata::salvage(&meta).0.is_some_and(says_v1) {
            return None;
        }
        let key = join(self.path, "meta");
        let (attrs, error) = self.companion("attrs");
        let content = match metadata::parse_v1_array(&key, &meta, attrs.as_deref()) {
            Ok(mut array) => {
                array.attributes_error = error.or(array.attributes_error);
                Content::Array(Arc::new(array))
            }
            Err(error) => Content::Broken(Fault::unparsed(error, &meta)),
        };
        Some(("meta", content))
    }

    /// Returns the bytes of a document that the node can do without, or the reason why it cannot be read.
    fn companion(&mut self, name: &'static str) -> (Option<Vec<u8>>, Option<String>) {
        match self.document(name) {
            Ok(document) => (document, None),
            Err(error) => (None, Some(error.to_string())),
        }
    }

    fn document(&mut self, name: &'static str) -> Result<Option<Vec<u8>>> {
        self.document_within(name, MAX_DOCUMENT_BYTES)
    }

    fn document_within(&mut self, name: &'static str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        let key = join(self.path, name);
        let reply = self.replies.remove(name).unwrap_or_else(|| self.store.content(&key, limit_bytes));
        // A document that cannot be read counts as missing, so that it is read again next time.
        let info = reply.as_ref().ok().and_then(|content| Some(content.as_ref()?.info));
        self.versions.documents.push((name, info));
        Ok(reply?.map(|content| content.bytes))
    }
}
