//! The storage of a repository's files for the crate `icechunk`: one of the stores of this program.
//!
//! So credentials, retries, time limits, the disk cache and the error messages are the same as for every other store, and the
//! crate has no client of its own. Uses the crate's trait `Storage` and the contract of stores. Chunks are not read through it
//! (`objects.rs`).
//!
//! Invariants: a file is read only up to a limit, and a file whose decoded form exceeds another limit is an error before the
//! crate decodes it. A put that names a version replaces only that version; in a folder, because every writer of this program
//! takes the lock of the repository's folder.

use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use icechunk::format::format_constants::{ICECHUNK_FILE_HEADER_LEN, ICECHUNK_FORMAT_MAGIC_BYTES};
use icechunk::storage::{
    DeleteObjectsResult, ETag, GetModifiedResult, ListInfo, RetriesSettings, Settings, StorageContext,
    StorageError, StorageErrorKind, StorageInfo, StorageResult, VersionInfo, VersionedUpdateResult,
};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tokio::io::AsyncBufRead;

use crate::error::{Error, Result};
use crate::store::{
    GetReply, GetRequest, Info, ObjectContent, ObjectPart, ObjectVersion, Precondition, PutOptions, Store,
    Wanted, Writer, join,
};

/// The longest file of a repository that is read: a manifest, a snapshot, the list of snapshots.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The longest decoded form of a file.
const MAX_DECODED_BYTES: u64 = 4 << 30;
/// The time to wait for the lock of a repository's folder.
const LOCK_TIME: Duration = Duration::from_secs(60);
/// The pause before the lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The files of one repository.
pub(super) struct Storage {
    store: Arc<dyn Store>,
    /// The document from which new files get owner and mode.
    like: Info,
    /// The newest version that was seen of the file that is read conditionally. Each repository has one such file.
    seen: Mutex<Option<(String, ObjectVersion)>>,
}

impl Storage {
    pub(super) fn new(store: Arc<dyn Store>, like: Info) -> Self {
        Storage { store, like: like.with_mode(|posix| posix.mode & 0o666), seen: Mutex::default() }
    }

    /// Runs blocking work on a thread for it.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T> + Send + 'static,
    ) -> StorageResult<T> {
        let store = Arc::clone(&self.store);
        match tokio::task::spawn_blocking(move || work(store.as_ref())).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(failed(error)),
            Err(error) => Err(failed(Error::store("", "read", io::Error::other(error.to_string())))),
        }
    }

    async fn content(&self, path: &str) -> StorageResult<Option<ObjectContent>> {
        let key = path.to_owned();
        self.ask(move |store| read(store, &key)).await
    }

    /// Reads a file or a range of one; a missing file is an error.
    async fn part(&self, path: &str, range: Option<&Range<u64>>) -> StorageResult<(Vec<u8>, VersionInfo)> {
        let content = match range.cloned() {
            None => self.content(path).await?,
            Some(range) => {
                let key = path.to_owned();
                self.ask(move |store| read_range(store, &key, &range)).await?
            }
        };
        let content = content.ok_or_else(|| missing(path))?;
        Ok((content.bytes, info(&content.info.version)))
    }

    /// Returns the version that a text of [`version_text`] stands for, if the file still has it.
    async fn version_of(&self, path: &str, tag: &str) -> StorageResult<Option<ObjectVersion>> {
        let is_seen =
            |(known, version): &(String, ObjectVersion)| known == path && version_text(version) == tag;
        if let Some((_, version)) = self.seen.lock().as_ref().filter(|seen| is_seen(seen)) {
            return Ok(Some(*version));
        }
        let key = path.to_owned();
        let found = self.ask(move |store| store.head_object(&key)).await?;
        Ok(found.map(|info| info.version).filter(|version| version_text(version) == tag))
    }

    async fn put(
        &self,
        path: &str,
        bytes: Bytes,
        precondition: Precondition,
    ) -> StorageResult<VersionedUpdateResult> {
        let (key, like) = (path.to_owned(), self.like);
        let put = self.ask(move |store| put(store, &key, &bytes, precondition, &like)).await?;
        Ok(match put {
            Some(version) => {
                let mut seen = self.seen.lock();
                if let Some((_, seen)) = seen.as_mut().filter(|(known, _)| known == path) {
                    *seen = version;
                }
                VersionedUpdateResult::Updated { new_version: info(&version) }
            }
            None => VersionedUpdateResult::NotOnLatestVersion,
        })
    }
}

/// Returns the text of a version for the crate.
fn version_text(version: &ObjectVersion) -> String {
    version.digest().to_string()
}

fn info(version: &ObjectVersion) -> VersionInfo {
    VersionInfo { etag: Some(ETag(version_text(version))), generation: None }
}

fn failed(error: Error) -> StorageError {
    StorageError::capture(StorageErrorKind::ObjectStore(Box::new(error)))
}

/// Returns the error for a missing file. The absence of a file that a snapshot names is damage, while the crate looks for other
/// files only to know whether they exist.
fn missing(path: &str) -> StorageError {
    if path.starts_with("manifests/") {
        let reason = io::Error::other("the repository lacks this file, which a snapshot needs");
        return failed(Error::store(path, "read", reason));
    }
    StorageError::capture(StorageErrorKind::ObjectNotFound)
}

fn read(store: &dyn Store, key: &str) -> Result<Option<ObjectContent>> {
    let content = store.content(key, MAX_FILE_BYTES)?;
    if let Some(content) = &content {
        check_decoded(key, &content.bytes)?;
    }
    Ok(content)
}

/// Fails for a file whose decoded form is longer than the limit.
fn check_decoded(key: &str, bytes: &[u8]) -> Result<()> {
    if !bytes.starts_with(ICECHUNK_FORMAT_MAGIC_BYTES) {
        return Ok(());
    }
    let frame = bytes.get(ICECHUNK_FILE_HEADER_LEN..).unwrap_or_default();
    let decoded_bytes = match zstd::zstd_safe::get_frame_content_size(frame) {
        Ok(Some(declared)) => declared,
        // The size is not stored, so the file is decoded here and the result is dropped. The crate reports damage.
        Ok(None) | Err(_) => zstd::stream::read::Decoder::new(frame)
            .and_then(|decoder| {
                let mut bounded = io::Read::take(decoder, MAX_DECODED_BYTES + 1);
                io::copy(&mut bounded, &mut io::sink())
            })
            .unwrap_or(0),
    };
    if decoded_bytes <= MAX_DECODED_BYTES {
        return Ok(());
    }
    let reason = format!("it decodes to more than the limit of {MAX_DECODED_BYTES} bytes");
    Err(Error::TooLarge { key: key.to_owned(), reason })
}

fn read_range(store: &dyn Store, key: &str, range: &Range<u64>) -> Result<Option<ObjectContent>> {
    let length = range.end.saturating_sub(range.start);
    if length > MAX_FILE_BYTES {
        let reason = format!("{length} bytes, more than the limit of {MAX_FILE_BYTES}");
        return Err(Error::TooLarge { key: key.to_owned(), reason });
    }
    let Some(object) = store.open_for(key, &Wanted::Range(range.clone()))? else { return Ok(None) };
    let mut bytes = vec![0; length as usize];
    object.read_exact_at(range.start, &mut bytes)?;
    check_decoded(key, &bytes)?;
    Ok(Some(ObjectContent { bytes, info: object.info() }))
}

/// Puts a file; `None` if the precondition does not hold.
fn put(
    store: &dyn Store,
    key: &str,
    bytes: &[u8],
    precondition: Precondition,
    like: &Info,
) -> Result<Option<ObjectVersion>> {
    let writer = writer(store)?;
    let _lock = match precondition {
        Precondition::Any => None,
        _ => Some(lock(writer)?),
    };
    let options = PutOptions { precondition, ..PutOptions::new("", like) };
    match writer.put(key, &[ObjectPart::Bytes(bytes)], &options) {
        Ok(version) => {
            writer.sync(&[key.to_owned()], "")?;
            Ok(Some(version))
        }
        Err(Error::Changed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn writer(store: &dyn Store) -> Result<&dyn Writer> {
    store.writer().ok_or_else(|| Error::ReadOnly(format!("{} is not writable", store.describe())))
}

/// Locks the repository's folder. A service needs no lock.
fn lock(writer: &dyn Writer) -> Result<Box<dyn Send + Sync>> {
    let end = Instant::now() + LOCK_TIME;
    loop {
        if let Some(lock) = writer.lock("")? {
            return Ok(lock);
        }
        if Instant::now() >= end {
            return Err(Error::busy("", "another program holds the lock of the repository"));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Returns all files below a folder, with their [`Info`].
fn walk(store: &dyn Store, folder: &str) -> Result<Vec<(String, Info)>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let (below, files): (Vec<_>, Vec<_>) =
            store.list(&folder)?.into_iter().partition(|entry| entry.is_folder);
        folders.extend(below.iter().map(|entry| join(&folder, &entry.name)));
        let keys: Vec<String> = files.iter().map(|entry| join(&folder, &entry.name)).collect();
        let infos = store.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        for (key, info) in keys.into_iter().zip(infos) {
            found.extend(info?.map(|info| (key, info)));
        }
    }
    Ok(found)
}

fn time(info: &Info) -> DateTime<Utc> {
    DateTime::from(info.modified.unwrap_or(SystemTime::UNIX_EPOCH))
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("store", &self.store.describe()).finish_non_exhaustive()
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.store.describe())
    }
}

/// The crate can send sessions to other processes; this program does not use that.
impl Serialize for Storage {
    fn serialize<S: Serializer>(&self, _serializer: S) -> std::result::Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("a repository that is open is not sent elsewhere"))
    }
}

impl icechunk_storage::sealed::Sealed for Storage {}

#[async_trait]
impl icechunk::Storage for Storage {
    fn typetag_name(&self) -> &'static str {
        "zarrfs"
    }

    fn typetag_deserialize(&self) {}

    fn storage_info(&self) -> StorageInfo {
        StorageInfo { backend_type: "zarrfs", fields: vec![("store", self.store.describe())] }
    }

    /// Returns settings without retries: the stores repeat failed requests themselves.
    async fn default_settings(&self) -> StorageResult<Settings> {
        let retries = RetriesSettings { max_tries: std::num::NonZeroU16::new(1), ..Default::default() };
        Ok(Settings { retries: Some(retries), unsafe_use_metadata: Some(false), ..Settings::default() })
    }

    async fn can_write(&self) -> StorageResult<bool> {
        Ok(self.store.writer().is_some())
    }

    /// Reads the object in one piece, where the crate would use several: only the whole object shows the size of its decoded
    /// form.
    async fn get_object(
        &self,
        _ctx: &StorageContext<'_>,
        path: &str,
        range: Option<&Range<u64>>,
    ) -> StorageResult<(Pin<Box<dyn AsyncBufRead + Send>>, VersionInfo)> {
        let (bytes, version) = self.part(path, range).await?;
        Ok((Box::pin(io::Cursor::new(bytes)), version))
    }

    async fn get_object_range(
        &self,
        _ctx: &StorageContext<'_>,
        path: &str,
        range: Option<&Range<u64>>,
    ) -> StorageResult<(Pin<Box<dyn Stream<Item = StorageResult<Bytes>> + Send>>, VersionInfo)> {
        let (bytes, version) = self.part(path, range).await?;
        let bytes = Bytes::from(bytes);
        Ok((Box::pin(stream::once(async move { Ok(bytes) })), version))
    }

    async fn put_object(
        &self,
        _ctx: &StorageContext<'_>,
        path: &str,
        bytes: Bytes,
        _content_type: Option<&str>,
        _metadata: Vec<(String, String)>,
        previous_version: Option<&VersionInfo>,
    ) -> StorageResult<VersionedUpdateResult> {
        let precondition = match previous_version {
            None => Precondition::Any,
            Some(previous) if previous.is_create() => Precondition::Missing,
            Some(previous) => {
                let tag = previous.etag().map_or("", String::as_str);
                match self.version_of(path, tag).await? {
                    Some(version) => Precondition::Version(version),
                    None => return Ok(VersionedUpdateResult::NotOnLatestVersion),
                }
            }
        };
        self.put(path, bytes, precondition).await
    }

    /// Copies a file, only if it still has this version.
    async fn copy_object(
        &self,
        _ctx: &StorageContext<'_>,
        from: &str,
        to: &str,
        _content_type: Option<&str>,
        version: &VersionInfo,
    ) -> StorageResult<VersionedUpdateResult> {
        let content = self.content(from).await?.ok_or_else(|| missing(from))?;
        if version.etag().is_some_and(|tag| *tag != version_text(&content.info.version)) {
            return Ok(VersionedUpdateResult::NotOnLatestVersion);
        }
        self.put(to, Bytes::from(content.bytes), Precondition::Any).await?;
        Ok(VersionedUpdateResult::Updated { new_version: version.clone() })
    }

    async fn list_objects<'a>(
        &'a self,
        _ctx: &StorageContext<'_>,
        prefix: &str,
    ) -> StorageResult<BoxStream<'a, StorageResult<ListInfo<String>>>> {
        let folder = prefix.trim_matches('/').to_owned();
        let start = if folder.is_empty() { 0 } else { folder.len() + 1 };
        let found = self.ask(move |store| walk(store, &folder)).await?;
        let listed = found.into_iter().map(move |(key, info)| {
            let id = key.get(start..).unwrap_or_default().to_owned();
            Ok(ListInfo { id, created_at: time(&info), size_bytes: info.size_bytes })
        });
        Ok(stream::iter(listed).boxed())
    }

    async fn delete_batch(
        &self,
        _ctx: &StorageContext<'_>,
        prefix: &str,
        batch: Vec<(String, u64)>,
    ) -> StorageResult<DeleteObjectsResult> {
        let prefix = prefix.trim_matches('/').to_owned();
        self.ask(move |store| {
            let writer = writer(store)?;
            let mut result = DeleteObjectsResult::default();
            for (id, size_bytes) in batch {
                if writer.delete(&join(&prefix, &id), Precondition::Any)? {
                    result.deleted_objects += 1;
                    result.deleted_bytes += size_bytes;
                }
            }
            Ok(result)
        })
        .await
    }

    async fn get_object_last_modified(
        &self,
        _ctx: &StorageContext<'_>,
        path: &str,
    ) -> StorageResult<DateTime<Utc>> {
        let key = path.to_owned();
        let found = self.ask(move |store| store.head_object(&key)).await?;
        found.map(|info| time(&info)).ok_or_else(|| missing(path))
    }

    async fn get_object_conditional(
        &self,
        _ctx: &StorageContext<'_>,
        path: &str,
        previous_version: Option<&VersionInfo>,
    ) -> StorageResult<GetModifiedResult> {
        let tag = previous_version.and_then(VersionInfo::etag).cloned();
        let seen = self.seen.lock().clone();
        let known = seen.filter(|(known, version)| known == path && Some(version_text(version)) == tag);
        let request = GetRequest {
            key: path.to_owned(),
            limit_bytes: MAX_FILE_BYTES,
            known: known.map(|(_, version)| version),
        };
        let reply = self.ask(move |store| {
            let reply = store.get_many(&[request]).pop().unwrap_or(Ok(GetReply::Missing))?;
            if let GetReply::Content(content) = &reply {
                check_decoded("", &content.bytes)?;
            }
            Ok(reply)
        });
        match reply.await? {
            GetReply::Missing => Err(missing(path)),
            GetReply::Unchanged => Ok(GetModifiedResult::OnLatestVersion),
            GetReply::Content(content) => {
                let version = content.info.version;
                *self.seen.lock() = Some((path.to_owned(), version));
                if Some(version_text(&version)) == tag {
                    return Ok(GetModifiedResult::OnLatestVersion);
                }
                let data = Box::pin(io::Cursor::new(content.bytes));
                Ok(GetModifiedResult::Modified { data, new_version: info(&version) })
            }
        }
    }
}
