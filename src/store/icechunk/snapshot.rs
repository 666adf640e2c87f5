//! Finding what a snapshot has at a key and below a folder. Uses the crate's sessions, which find chunks through manifests.
//!
//! A session that was written to shows what was written, so a transaction reads with the same functions. The stores with the
//! bytes are opened by `objects.rs`.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use futures_util::TryStreamExt;
use icechunk::format::manifest::{Checksum, ChunkPayload, ChunkRef, ManifestRef, VirtualChunkRef};
use icechunk::format::snapshot::{NodeData, NodeSnapshot};
use icechunk::format::{ChunkIndices, MANIFESTS_FILE_PATH, Path, SNAPSHOTS_FILE_PATH};
use icechunk::session::{Session, SessionError};

use super::failure::{failed, is_missing, sentence};
use super::key::{CHUNKS, Key, path};
use crate::error::{Error, Result};
use crate::store::key::{is_any_below, names_below, percent_decoded};
use crate::store::{ListEntry, join, without_secrets};

/// The place of a key's bytes.
#[derive(Clone, Debug)]
pub(super) enum ChunkPlace {
    /// Bytes in the snapshot or in a manifest.
    Inline(Bytes),
    /// A range of an object of the repository.
    Own {
        /// The name of the object.
        id: String,
        /// The range of its bytes.
        range: Range<u64>,
    },
    /// A range of another file.
    Virtual {
        /// The file.
        url: String,
        /// The range of its bytes.
        range: Range<u64>,
        /// The condition that the file has to meet.
        condition: Option<Checksum>,
    },
}

impl ChunkPlace {
    /// Converts a chunk's place in a manifest.
    pub(super) fn for_payload(session: &Session, key: &str, payload: ChunkPayload) -> Result<Self> {
        let end = |offset: u64, length: u64| {
            let reason = "its offset and length are more than a file can have";
            offset.checked_add(length).ok_or_else(|| Error::corrupt(key, reason))
        };
        match payload {
            ChunkPayload::Inline(bytes) => Ok(ChunkPlace::Inline(bytes)),
            ChunkPayload::Ref(ChunkRef { id, offset, length }) => {
                Ok(ChunkPlace::Own { id: id.to_string(), range: offset..end(offset, length)? })
            }
            ChunkPayload::Virtual(VirtualChunkRef { location, offset, length, checksum }) => {
                let url = session
                    .resolve_virtual_location(&location)
                    .map_err(|error| Error::corrupt(key, sentence(&error.kind)))?;
                let url = decoded(key, url)?;
                Ok(ChunkPlace::Virtual { url, range: offset..end(offset, length)?, condition: checksum })
            }
            _ => Err(Error::unsupported(key, "a kind of chunk that is newer than this program")),
        }
    }
}

/// Converts a location to the spelling of references, in which only URLs of web servers and of files are encoded.
fn decoded(key: &str, location: String) -> Result<String> {
    let (scheme, _) = location.split_once(':').unwrap_or_default();
    if ["http", "https", "file"].contains(&scheme) {
        return Ok(location);
    }
    if location.contains(['?', '#']) {
        let shown = without_secrets(&location);
        return Err(Error::unsupported(
            key,
            format!("it refers to {shown}: URLs with a query or a fragment"),
        ));
    }
    let decoded = percent_decoded(&location).and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.ok_or_else(|| Error::corrupt(key, "it refers to a URL that is not well-formed"))
}

/// Returns the file of the snapshot that a session shows.
pub(super) fn snapshot_file(session: &Session) -> String {
    format!("{SNAPSHOTS_FILE_PATH}/{}", session.snapshot_id())
}

/// Returns the files of the manifests with the place of a chunk; for a document, those of all chunks of its array.
pub(super) async fn manifests(session: &Session, key: &str) -> Result<Vec<String>> {
    let (node, chunk) = match Key::parse(key) {
        Key::Other => return Ok(Vec::new()),
        Key::Document(node) => (node, None),
        Key::Chunk(array, chunk) => (array, Some(chunk)),
    };
    let node = node_at(session, &node).await.map_err(|error| failed(key, "look at", &error.kind))?;
    let Some(NodeData::Array { manifests, .. }) = node.map(|node| node.node_data) else {
        return Ok(Vec::new());
    };
    let has_it = |manifest: &&ManifestRef| {
        chunk.as_ref().is_none_or(|chunk| manifest.extents.contains(chunk.0.as_slice()))
    };
    let of_key = manifests.iter().filter(has_it);
    Ok(of_key.map(|manifest| format!("{MANIFESTS_FILE_PATH}/{}", manifest.object_id)).collect())
}

/// Finds what is at a key.
pub(super) async fn find(
    session: &Session,
    key: &str,
    operation: &'static str,
) -> Result<Option<ChunkPlace>> {
    let as_error = |error: SessionError| failed(key, operation, &error.kind);
    match Key::parse(key) {
        Key::Other => Ok(None),
        Key::Document(node) => {
            let node = node_at(session, &node).await.map_err(as_error)?;
            Ok(node.map(|node| ChunkPlace::Inline(node.user_data)))
        }
        Key::Chunk(array, chunk) => match session.get_chunk_ref(&array, &chunk).await {
            Ok(Some(payload)) => ChunkPlace::for_payload(session, key, payload).map(Some),
            Ok(None) => Ok(None),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(as_error(error)),
        },
    }
}

/// Returns the node at a path.
pub(super) async fn node_at(
    session: &Session,
    node: &Path,
) -> std::result::Result<Option<NodeSnapshot>, SessionError> {
    match session.get_node(node).await {
        Ok(node) => Ok(Some(node)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The documents of a snapshot by key, with the number of axes of each array.
pub(super) struct Documents(BTreeMap<String, Option<usize>>);

impl Documents {
    pub(super) async fn read(session: &Session) -> Result<Self> {
        let as_error = |error: SessionError| failed("", "list", &error.kind);
        let mut documents = BTreeMap::new();
        for node in session.list_nodes(&Path::root()).await.map_err(as_error)? {
            let node = node.map_err(as_error)?;
            let axes = match &node.node_data {
                NodeData::Array { shape, .. } => Some(shape.len()),
                NodeData::Group => None,
            };
            documents.insert(Key::document(&node.path), axes);
        }
        Ok(Documents(documents))
    }

    /// Adds a document, with the axes of its array, or removes it.
    pub(super) fn set(&mut self, key: &str, document: Option<Option<usize>>) {
        match document {
            Some(axes) => drop(self.0.insert(key.to_owned(), axes)),
            None => drop(self.0.remove(key)),
        }
    }

    /// Whether there are documents below a folder. Every array also has a folder of chunks.
    pub(super) fn is_folder(&self, folder: &str) -> bool {
        if folder.is_empty() || is_any_below(&self.0, folder) {
            return true;
        }
        let array = match folder.rsplit_once('/') {
            Some((array, CHUNKS)) => array,
            None if folder == CHUNKS => "",
            _ => return false,
        };
        self.axes(array).is_some_and(|axes| axes > 0)
    }

    /// Returns the number of axes of the array at a path; `None` if there is no array.
    fn axes(&self, array: &str) -> Option<usize> {
        self.0.get(&join(array, super::key::DOCUMENT)).copied().flatten()
    }

    /// Returns the array that this folder belongs to, as its own folder or as a folder of its chunks.
    pub(super) fn array_at<'a>(&self, folder: &'a str) -> Option<&'a str> {
        let mut array = folder;
        while self.axes(array).is_none() {
            array = match array.rsplit_once('/') {
                Some((above, _)) => above,
                None if !array.is_empty() => "",
                None => return None,
            };
        }
        Some(array)
    }

    /// Returns the names directly below a folder of the session with these documents.
    pub(super) async fn list(&self, session: &Session, folder: &str) -> Result<Vec<ListEntry>> {
        let mut entries = names_below(&self.0, folder, |_| false);
        if let Some(array) = self.array_at(folder) {
            entries.extend(self.chunk_names(session, array, folder).await?);
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok(entries)
    }

    /// Returns the names of chunks, or of folders of chunks, directly below a folder of an array.
    async fn chunk_names(&self, session: &Session, array: &str, folder: &str) -> Result<Vec<ListEntry>> {
        let Some(at) = path(array) else { return Ok(Vec::new()) };
        if folder == array && self.axes(array).is_some_and(|axes| axes > 0) {
            return Ok(vec![ListEntry { name: CHUNKS.to_owned(), is_folder: true }]);
        }
        let below = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut names = BTreeMap::new();
        let chunks = session.array_chunk_iterator(&at).await;
        let mut chunks = std::pin::pin!(chunks);
        loop {
            match chunks.try_next().await {
                Ok(Some(chunk)) => add_chunk_name(&mut names, &below, &at, &chunk.coord),
                Ok(None) => break,
                // The session does not have this array yet.
                Err(error) if is_missing(&error) => break,
                Err(error) => return Err(failed(folder, "list", &error.kind)),
            }
        }
        Ok(names.into_iter().map(|(name, is_folder)| ListEntry { name, is_folder }).collect())
    }
}

fn add_chunk_name(names: &mut BTreeMap<String, bool>, below: &str, array: &Path, chunk: &ChunkIndices) {
    let key = Key::chunk(array, chunk);
    let Some(rest) = key.strip_prefix(below) else { return };
    match rest.split_once('/') {
        Some((name, _)) => names.insert(name.to_owned(), true),
        None => names.insert(rest.to_owned(), false),
    };
}
