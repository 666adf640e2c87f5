//! Transactions: what is written into one is not visible before it is published.
//!
//! Uses the crate's writable session, and `snapshot` and `objects` for reading. Chunks are sent to the repository's store when
//! they are put, so that memory holds only their places. Documents wait until the end: keys come in any order, while a session
//! accepts the chunks of an array only within the shape in its document. Spec: Icechunk, "Commit".
//!
//! Invariants: a precondition is compared with the transaction's own view, in one step with the change. The snapshot is
//! published only in place of the one from which the transaction began.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use icechunk::format::manifest::ChunkPayload;
use icechunk::format::snapshot::NodeSnapshot;
use icechunk::format::{ChunkIndices, Path};
use icechunk::session::{Session, SessionError, SessionErrorKind};
use parking_lot::Mutex;
use tokio::sync::RwLock;

use super::failure::failed;
use super::key::{Key, path};
use super::objects::{ALL, FoundObject, Objects, folder_info};
use super::repository::{Repository, Snapshot};
use super::snapshot::{ChunkPlace, Documents, find, node_at};
use crate::error::{Error, Result};
use crate::store::versions::{CommitOutcome, Transaction};
use crate::store::{
    GetReply, GetRequest, Info, ListEntry, Object, ObjectContent, ObjectPart, ObjectVersion, Precondition,
    PutOptions, Remote, StatFs, Store, Wanted, Writer, check_key, read_content,
};

/// The property of a snapshot with the mark of its transaction.
pub(super) const MARK: &str = "zarrfs_mark";

/// A transaction over one snapshot of a branch.
pub(super) struct MarkedTransaction {
    repository: Arc<Repository>,
    objects: Arc<Objects>,
    session: Arc<RwLock<Session>>,
    /// The crate's store over the session, which sets documents in it.
    documents: icechunk::Store,
    /// The waiting changes. The lock is held during every change.
    waiting: Mutex<PendingChanges>,
}

/// Changes that go into the session at the end.
#[derive(Default)]
struct PendingChanges {
    /// Documents that were put; `None` for a deleted one.
    documents: BTreeMap<String, Option<Bytes>>,
    /// Chunks whose array does not exist yet, or is not long enough yet.
    chunks: BTreeMap<String, EarlyChunk>,
}

struct EarlyChunk {
    array: Path,
    chunk: ChunkIndices,
    payload: ChunkPayload,
}

impl PendingChanges {
    /// Forgets the changes at and below a folder.
    fn forget_below(&mut self, folder: &str) {
        let is_below = |key: &String| {
            folder.is_empty() || key.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        self.documents.retain(|key, _| !is_below(key));
        self.chunks.retain(|key, _| !is_below(key));
    }
}

impl MarkedTransaction {
    pub(super) fn new(repository: Arc<Repository>, objects: Arc<Objects>, session: Session) -> Self {
        let session = Arc::new(RwLock::new(session));
        let documents = icechunk::Store::from_session_and_config(Arc::clone(&session), 1);
        MarkedTransaction { repository, objects, session, documents, waiting: Mutex::default() }
    }

    /// Finds what is at a key, with what was written.
    fn find<'a>(&self, key: &'a str, operation: &'static str) -> Result<Option<FoundObject<'a>>> {
        self.find_in(&self.waiting.lock(), key, operation)
    }

    fn find_in<'a>(
        &self,
        waiting: &PendingChanges,
        key: &'a str,
        operation: &'static str,
    ) -> Result<Option<FoundObject<'a>>> {
        check_key(key, operation)?;
        let found = match (waiting.documents.get(key), waiting.chunks.get(key)) {
            (Some(document), _) => Ok(document.clone().map(ChunkPlace::Inline)),
            (None, Some(chunk)) => {
                let session = self.repository.wait(self.session.read());
                ChunkPlace::for_payload(&session, key, chunk.payload.clone()).map(Some)
            }
            (None, None) => {
                self.repository.wait(async { find(&*self.session.read().await, key, operation).await })
            }
        };
        Ok(found?.map(|found| FoundObject { key, found, time: None, posix: self.objects.posix }))
    }

    /// Returns the version at a key.
    fn version(&self, waiting: &PendingChanges, key: &str) -> Result<Option<ObjectVersion>> {
        let place = self.find_in(waiting, key, "look at")?;
        let info = self.objects.head_many(vec![Ok(place)], None).pop().unwrap_or(Ok(None));
        Ok(info?.map(|info| info.version))
    }

    /// Returns the documents of the session and those that wait.
    async fn all_documents(&self, session: &Session) -> Result<Documents> {
        let mut documents = Documents::read(session).await?;
        for (key, document) in &self.waiting.lock().documents {
            documents.set(key, document.as_deref().map(axis_count));
        }
        Ok(documents)
    }

    /// Sends a chunk to the repository's store. A short chunk stays in memory, and goes into a manifest.
    fn send(&self, key: &str, array: &Path, chunk: &ChunkIndices, bytes: Vec<u8>) -> Result<ChunkPayload> {
        let sent = self.repository.wait(async {
            let send = self.session.read().await.get_chunk_writer(array, chunk)?;
            send(Bytes::from(bytes)).await
        });
        sent.map_err(|error| failed(key, "write", &error.kind))
    }

    /// Sets the place of a chunk in the session; `false` if its array has no such chunk yet.
    fn set(
        &self,
        key: &str,
        array: &Path,
        chunk: &ChunkIndices,
        payload: Option<ChunkPayload>,
    ) -> Result<bool> {
        let set = async {
            let mut session = self.session.write().await;
            session.set_chunk_ref(array.clone(), chunk.clone(), payload).await
        };
        match self.repository.wait(set) {
            Ok(()) => Ok(true),
            Err(error) if is_early(&error) => Ok(false),
            Err(error) => Err(failed(key, "write", &error.kind)),
        }
    }

    /// Returns the nodes of the session at a path and below it.
    async fn nodes_below(&self, above: &Path, key: &str) -> Result<Vec<NodeSnapshot>> {
        let as_error = |error: SessionError| failed(key, "list", &error.kind);
        let session = self.session.read().await;
        let nodes = session.list_nodes(above).await.map_err(as_error)?;
        let nodes: Vec<NodeSnapshot> = nodes.collect::<std::result::Result<_, _>>().map_err(as_error)?;
        Ok(nodes.into_iter().filter(|node| node.path.starts_with(above)).collect())
    }

    async fn delete_node(&self, key: &str, node: NodeSnapshot) -> Result<()> {
        let deleted = self.session.write().await.delete_node(node).await;
        deleted.map_err(|error| failed(key, "delete", &error.kind))
    }

    /// Sets a document in the session.
    async fn set_document(&self, key: &str, bytes: Bytes) -> Result<()> {
        let Key::Document(node) = Key::parse(key) else { return Err(no_such_key(key)) };
        let kind = node_type(&bytes).ok_or_else(|| not_a_document(key))?;
        let old = node_at(&*self.session.read().await, &node).await;
        let old = old.map_err(|error| failed(key, "look at", &error.kind))?;
        if let Some(old) = old.filter(|old| old.node_type() != kind) {
            self.delete_node(key, old).await?;
        }
        let set = self.documents.set(key, bytes).await;
        set.map_err(|error| failed(key, "write", &error.kind))
    }

    /// Deletes the node of a document. Fails for a group with nodes below it: a repository cannot express a missing group above
    /// existing nodes.
    async fn delete_document(&self, key: &str) -> Result<()> {
        let Key::Document(node) = Key::parse(key) else { return Ok(()) };
        let mut nodes = self.nodes_below(&node, key).await?;
        if let Some(stays) = nodes.iter().find(|below| below.path != node) {
            let reason =
                format!("a repository has no group without a document, and {} stays in it", stays.path);
            return Err(Error::unsupported(key, reason));
        }
        match nodes.pop() {
            Some(found) => self.delete_node(key, found).await,
            None => Ok(()),
        }
    }

    /// Applies the waiting changes to the session.
    fn settle(&self) -> Result<()> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let (put, deleted): (Vec<_>, Vec<_>) =
            waiting.documents.into_iter().partition(|(_, document)| document.is_some());
        for (key, document) in put {
            self.repository.wait(self.set_document(&key, document.unwrap_or_default()))?;
        }
        for (key, EarlyChunk { array, chunk, payload }) in waiting.chunks {
            if !self.set(&key, &array, &chunk, Some(payload))? {
                return Err(Error::corrupt(&key, "its array has no such chunk, or no document"));
            }
        }
        // Nodes below come first.
        let mut deleted: Vec<String> = deleted.into_iter().map(|(key, _)| key).collect();
        deleted.sort_by_key(|key| std::cmp::Reverse(key.split('/').count()));
        deleted.iter().try_for_each(|key| self.repository.wait(self.delete_document(key)))
    }
}

/// Returns the number of axes of the array of a document; `None` for a group.
fn axis_count(document: &[u8]) -> Option<usize> {
    let document: serde_json::Value = serde_json::from_slice(document).ok()?;
    document.get("shape")?.as_array().map(Vec::len)
}

fn not_a_document(key: &str) -> Error {
    Error::metadata(key, "is not a document of Zarr v3")
}

/// Returns whether a document is that of an array or a group.
fn node_type(bytes: &[u8]) -> Option<icechunk::format::snapshot::NodeType> {
    use icechunk::format::snapshot::NodeType;
    let document: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    match document.get("node_type")?.as_str()? {
        "array" => Some(NodeType::Array),
        "group" => Some(NodeType::Group),
        _ => None,
    }
}

fn is_early(error: &SessionError) -> bool {
    matches!(
        error.kind,
        SessionErrorKind::NodeNotFound { .. }
            | SessionErrorKind::NotAnArray { .. }
            | SessionErrorKind::InvalidIndex { .. }
    )
}

fn assembled(key: &str, parts: &[ObjectPart<'_>]) -> Result<Vec<u8>> {
    let too_long = || Error::store(key, "write", io::Error::from(io::ErrorKind::OutOfMemory));
    let length = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.size_bytes()));
    let length = length.and_then(|length| usize::try_from(length).ok()).ok_or_else(too_long)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| too_long())?;
    for part in parts {
        match part {
            ObjectPart::Bytes(part) => bytes.extend_from_slice(part),
            ObjectPart::Copy(object, range) => {
                let start = bytes.len();
                bytes.resize(start + part.size_bytes() as usize, 0);
                object.read_exact_at(range.start, bytes.get_mut(start..).unwrap_or_default())?;
            }
        }
    }
    Ok(bytes)
}

fn no_such_key(key: &str) -> Error {
    Error::unsupported(key, "a repository of Icechunk has documents of Zarr v3 and their chunks (c/…) only")
}

impl Writer for MarkedTransaction {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        check_key(key, "write")?;
        let precondition = options.precondition;
        let waiting = match Key::parse(key) {
            Key::Other => return Err(no_such_key(key)),
            Key::Document(_) => {
                let bytes = assembled(key, parts)?;
                node_type(&bytes).ok_or_else(|| not_a_document(key))?;
                let mut waiting = self.waiting.lock();
                precondition.check(key, || self.version(&waiting, key))?;
                waiting.documents.insert(key.to_owned(), Some(Bytes::from(bytes)));
                waiting
            }
            Key::Chunk(array, chunk) => {
                // The precondition is checked before the chunk is sent, so that nothing is sent in vain.
                precondition.check(key, || self.version(&self.waiting.lock(), key))?;
                let payload = self.send(key, &array, &chunk, assembled(key, parts)?)?;
                let mut waiting = self.waiting.lock();
                precondition.check(key, || self.version(&waiting, key))?;
                waiting.chunks.remove(key);
                if !self.set(key, &array, &chunk, Some(payload.clone()))? {
                    waiting.chunks.insert(key.to_owned(), EarlyChunk { array, chunk, payload });
                }
                waiting
            }
        };
        self.version(&waiting, key)?.ok_or_else(|| Error::Stale { key: key.to_owned() })
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        check_key(key, "delete")?;
        let mut waiting = self.waiting.lock();
        precondition.check(key, || self.version(&waiting, key))?;
        if self.find_in(&waiting, key, "look at")?.is_none() {
            return Ok(false);
        }
        match Key::parse(key) {
            Key::Other => Ok(false),
            Key::Document(_) => {
                waiting.documents.insert(key.to_owned(), None);
                Ok(true)
            }
            Key::Chunk(array, chunk) => {
                let was_early = waiting.chunks.remove(key).is_some();
                Ok(self.set(key, &array, &chunk, None)? || was_early)
            }
        }
    }

    /// Removes the node of a folder, with all nodes below it.
    fn remove_folder(&self, key: &str) -> Result<bool> {
        check_key(key, "delete")?;
        let above = path(key).ok_or_else(|| no_such_key(key))?;
        let mut waiting = self.waiting.lock();
        waiting.forget_below(key);
        self.repository.wait(async {
            let mut nodes = self.nodes_below(&above, key).await?;
            // Nodes above come last.
            nodes.sort_by(|a, b| b.path.cmp(&a.path));
            for node in nodes {
                self.delete_node(key, node).await?;
            }
            Ok(true)
        })
    }
}

impl Store for MarkedTransaction {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.open_for(key, &ALL)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        let Some(object) = self.open_for(key, &Wanted::Whole { at_most: limit_bytes })? else {
            return Ok(None);
        };
        let content = read_content(object.as_ref(), key, limit_bytes)?;
        Ok(Some(ObjectContent { info: Info { posix: self.objects.posix, ..content.info }, ..content }))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        if let Some(info) = self.head_object(key)? {
            return Ok(Some(info));
        }
        let session = self.repository.wait(self.session.read());
        let is_folder = key.is_empty() || self.repository.wait(self.all_documents(&session))?.is_folder(key);
        let snapshot = Snapshot { session: session.clone(), time: None };
        Ok(is_folder.then(|| folder_info(self.objects.posix, &snapshot)))
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        self.head_many(&[key]).pop().unwrap_or(Ok(None))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.objects.store.is_remote().then_some(self)
    }

    fn lacks_locks(&self) -> bool {
        true
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        check_key(folder, "list")?;
        self.repository.wait(async {
            let session = self.session.read().await;
            self.all_documents(&session).await?.list(&session, folder).await
        })
    }

    fn statfs(&self) -> Result<StatFs> {
        self.objects.store.statfs()
    }

    fn describe(&self) -> String {
        self.repository.location.clone()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}

impl Remote for MarkedTransaction {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        let found = self.find(key, "open")?;
        found.map(|place| self.objects.open(place, wanted, true, None)).transpose()
    }

    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let get = |request: &GetRequest| self.content(&request.key, request.limit_bytes);
        requests.iter().map(|request| get(request).map(|content| request.reply(content))).collect()
    }

    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let places = keys.iter().map(|key| self.find(key, "look at")).collect();
        self.objects.head_many(places, None)
    }
}

impl Transaction for MarkedTransaction {
    fn commit(self: Box<Self>, message: &str, mark: &str) -> Result<CommitOutcome> {
        self.settle()?;
        let properties = [(MARK.to_owned(), serde_json::Value::from(mark))].into_iter().collect();
        let committed = self.repository.wait(async {
            let mut session = self.session.write().await;
            session.commit(message).properties(properties).allow_empty(true).execute().await
        });
        match committed {
            Ok(id) => Ok(CommitOutcome::Snapshot(id.to_string())),
            Err(error) if matches!(error.kind, SessionErrorKind::Conflict { .. }) => {
                Ok(CommitOutcome::BranchMoved)
            }
            Err(error) => Err(failed(&self.repository.location, "publish a snapshot of", &error.kind)),
        }
    }
}
