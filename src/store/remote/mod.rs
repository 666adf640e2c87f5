//! A store behind a network: S3, Google Cloud Storage, Azure Blob Storage, a web server.
//!
//! Uses `object_store` (the services' protocols), `tokio` (its runtime), `error` and its neighbours in `store`. Everything
//! above sees keys and bytes, and waits for them; the runtime and its threads stay in here.
//!
//! Invariants: no HEAD precedes a GET; a 404 means that an object is missing, and nothing else does (403 does if the user
//! says so); all bytes read through one [`Object`] are of one version, which each request names by its ETag.

mod aws_profile;
mod client;
mod failure;
mod location;
mod refusal;
#[cfg(test)]
mod tests;
mod transfer;
mod transfers;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta};

use self::failure::{Failure, Reply};
use self::transfer::{Fetched, Wanted, fetch_unless};
use self::transfers::Transfers;
use super::remote_options::RemoteOptions;
use super::{Content, Entry, GetReply, GetRequest, Info, Object, ObjectVersion, StatFs, Store, check_key};
use crate::error::{Error, Result};

use self::location::{Location, Service};

/// The most requests at one time, unless an option says otherwise.
pub const DEFAULT_CONNECTIONS: usize = 64;
/// How much of an object the first request asks for: all of most chunks.
const FIRST_BYTES: u64 = 8 << 20;
/// The longest object that is read as a whole.
const MAX_OBJECT_BYTES: u64 = 4 << 30;

/// A store of objects at a service.
pub struct RemoteStore {
    shared: Arc<Shared>,
}

struct Shared {
    transfers: Transfers,
    service: Service,
    root: Path,
    url: String,
    is_forbidden_missing: bool,
    /// Whether the service has been found unable to list.
    cannot_list: AtomicBool,
}

impl RemoteStore {
    /// The store that a URL names. Makes no request.
    pub fn open(location: &str, options: &RemoteOptions) -> Result<Self> {
        let Location { client, service, root, url } = Location::parse(location, options)?;
        let connections = options.max_connections.unwrap_or(DEFAULT_CONNECTIONS).max(1);
        let transfers = Transfers::new(client, connections)
            .map_err(|error| Error::Usage(format!("cannot start the threads for transfers: {error}")))?;
        let is_forbidden_missing = options.is_forbidden_missing;
        let cannot_list = AtomicBool::new(false);
        let shared = Shared { transfers, service, root, url, is_forbidden_missing, cannot_list };
        Ok(RemoteStore { shared: Arc::new(shared) })
    }
}

impl Shared {
    fn path(&self, key: &str) -> Reply<Path> {
        let (root, key) = (self.root.as_ref(), key.trim_matches('/'));
        let separator = if root.is_empty() || key.is_empty() { "" } else { "/" };
        Path::parse(format!("{root}{separator}{key}"))
            .map_err(|error| Failure::Other(io::ErrorKind::InvalidInput, error.to_string()))
    }

    /// Whether a failure says that there is no such object.
    fn is_missing(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Missing => true,
            Failure::Forbidden(_) => self.is_forbidden_missing,
            _ => false,
        }
    }

    /// `None` if the object is missing.
    fn found<T>(&self, result: Reply<T>, key: &str, operation: &'static str) -> Result<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(failure) if self.is_missing(&failure) => Ok(None),
            Err(failure) => Err(failure.at(&self.shown(key), operation)),
        }
    }

    /// A key for messages.
    fn shown(&self, key: &str) -> String {
        if key.is_empty() { self.url.clone() } else { key.to_owned() }
    }

    /// Bytes of an object. Where nothing can be at a range, because the object is empty, all of it.
    fn fetch(&self, key: &str, wanted: &Wanted, if_match: Option<&str>, limit: u64) -> Reply<Fetched> {
        let path = self.path(key)?;
        match self.transfers.fetch(&path, wanted, if_match, limit) {
            Err(Failure::OutOfRange) if matches!(wanted, Wanted::Range(range) if range.start == 0) => {
                self.transfers.fetch(&path, &Wanted::Whole, if_match, limit)
            }
            // A web server that knows no ranges, or Azure, which knows no suffixes.
            Err(Failure::NotSupported(_)) if *wanted != Wanted::Whole => {
                self.transfers.fetch(&path, &Wanted::Whole, if_match, limit)
            }
            fetched => fetched,
        }
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let head = || {
            let path = self.path(key)?;
            let options = GetOptions { head: true, ..GetOptions::default() };
            let result = self.transfers.wait(self.transfers.store().get_opts(&path, options))??;
            Ok(result.meta)
        };
        self.found(head(), key, "look at")
    }

    /// Whether a service that cannot list said so; the user is told once.
    fn is_without_listing(&self, failure: &Failure) -> bool {
        if self.service != Service::Http
            || !matches!(failure, Failure::NotSupported(_) | Failure::Forbidden(_) | Failure::Other(..))
        {
            return false;
        }
        if !self.cannot_list.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{}: this web server cannot list folders: only what consolidated metadata names is shown, and every \
                 path can be opened by its name",
                self.url
            );
        }
        true
    }
}

fn content(fetched: Fetched) -> Content {
    let info = info(&fetched.meta);
    Content { bytes: fetched.bytes, info }
}

fn version(meta: &ObjectMeta) -> ObjectVersion {
    match (&meta.e_tag, &meta.version) {
        (Some(tag), _) => ObjectVersion::of_tag(("etag", tag)),
        (None, Some(version)) => ObjectVersion::of_tag(("version", version)),
        (None, None) => ObjectVersion::of_tag(("modified", meta.last_modified.timestamp_micros(), meta.size)),
    }
}

fn info(meta: &ObjectMeta) -> Info {
    let modified = SystemTime::from(meta.last_modified);
    Info { size_bytes: meta.size, modified: Some(modified), version: version(meta), posix: None }
}

/// An object, of which the first bytes that were asked for are in memory.
struct RemoteObject {
    shared: Arc<Shared>,
    key: String,
    meta: ObjectMeta,
    start: u64,
    bytes: Vec<u8>,
    /// All bytes, once a service without ranges has sent them.
    whole: OnceLock<Vec<u8>>,
}

impl RemoteObject {
    fn in_memory(&self, range: Range<u64>) -> Option<&[u8]> {
        let of = |start: u64, bytes: &'_ [u8]| -> Option<Range<usize>> {
            let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
            let to = usize::try_from(range.end.checked_sub(start)?).ok()?;
            (to <= bytes.len()).then_some(from..to)
        };
        match of(self.start, &self.bytes) {
            Some(range) => self.bytes.get(range),
            None => self.whole.get().and_then(|whole| whole.get(of(0, whole)?)),
        }
    }
}

impl Object for RemoteObject {
    fn version(&self) -> ObjectVersion {
        version(&self.meta)
    }

    fn size_bytes(&self) -> u64 {
        self.meta.size
    }

    fn modified(&self) -> Option<SystemTime> {
        Some(SystemTime::from(self.meta.last_modified))
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let range = offset..offset.saturating_add(out.len() as u64);
        if range.end > self.meta.size {
            return Err(Failure::OutOfRange.at(&self.key, "read"));
        }
        if let Some(bytes) = self.in_memory(range.clone()) {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let tag = self.meta.e_tag.as_deref();
        let fetched = self
            .shared
            .fetch(&self.key, &Wanted::Range(range.clone()), tag, MAX_OBJECT_BYTES)
            .map_err(|failure| failure.at(&self.key, "read"))?;
        if version(&fetched.meta) != self.version() {
            return Err(Failure::Changed.at(&self.key, "read"));
        }
        let from = usize::try_from(range.start - fetched.start.min(range.start)).unwrap_or(usize::MAX);
        match fetched.bytes.get(from..from.saturating_add(out.len())) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(Failure::OutOfRange.at(&self.key, "read")),
        }
        if fetched.start == 0 && fetched.bytes.len() as u64 == self.meta.size {
            let _ = self.whole.set(fetched.bytes);
        }
        Ok(())
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        let bytes = self.in_memory(offset..offset.saturating_add(out.len() as u64));
        bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }
}

impl Store for RemoteStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        check_key(key, "open")?;
        let fetched = self.shared.fetch(key, &Wanted::Range(0..FIRST_BYTES), None, MAX_OBJECT_BYTES);
        let Some(Fetched { meta, start, bytes, .. }) = self.shared.found(fetched, key, "open")? else {
            return Ok(None);
        };
        let shared = Arc::clone(&self.shared);
        Ok(Some(Box::new(RemoteObject {
            shared,
            key: key.to_owned(),
            meta,
            start,
            bytes,
            whole: OnceLock::new(),
        })))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<Content>> {
        check_key(key, "read")?;
        let fetched = self.shared.fetch(key, &Wanted::Whole, None, limit_bytes);
        Ok(self.shared.found(fetched, key, "read")?.map(content))
    }

    /// All at once. The service answers each with the whole object, whose body is not read if it is the known version.
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let shared = &self.shared;
        let get = |request: &GetRequest| {
            let (path, limit, known) = (shared.path(&request.key), request.limit_bytes, request.known);
            async move {
                fetch_unless(shared.transfers.store(), &path?, limit, |meta| Some(version(meta)) == known)
                    .await
            }
        };
        let replies = match shared.transfers.wait_all(requests.iter().map(get)) {
            Ok(replies) => replies,
            Err(failure) => {
                return requests
                    .iter()
                    .map(|request| Err(failure.clone().at(&request.key, "read")))
                    .collect();
            }
        };
        let reply = |(request, reply): (&GetRequest, Reply<Option<Fetched>>)| {
            check_key(&request.key, "read")?;
            Ok(match shared.found(reply, &request.key, "read")? {
                None => GetReply::Missing,
                Some(None) => GetReply::Unchanged,
                Some(Some(fetched)) => GetReply::Content(content(fetched)),
            })
        };
        requests.iter().zip(replies).map(reply).collect()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        let folder =
            Info { size_bytes: 0, modified: None, version: ObjectVersion::of_number(0), posix: None };
        if key.is_empty() {
            return Ok(Some(folder));
        }
        if let Some(meta) = self.shared.head(key)? {
            return Ok(Some(info(&meta)));
        }
        if self.shared.cannot_list.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let first = || {
            let path = self.shared.path(key)?;
            let mut below = self.shared.transfers.store().list(Some(&path));
            self.shared.transfers.wait(async move { below.next().await })?.transpose().map_err(Failure::from)
        };
        match first() {
            Ok(below) => Ok(below.map(|_| folder)),
            Err(failure) if self.shared.is_missing(&failure) || self.shared.is_without_listing(&failure) => {
                Ok(None)
            }
            Err(failure) => Err(failure.at(key, "list")),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        check_key(folder, "list")?;
        let listed = || {
            let path = self.shared.path(folder)?;
            let listing = self.shared.transfers.store().list_with_delimiter(Some(&path));
            Ok(self.shared.transfers.wait(listing)??)
        };
        let listed = match listed() {
            Ok(listed) => listed,
            Err(failure) if self.shared.is_missing(&failure) || self.shared.is_without_listing(&failure) => {
                return Ok(Vec::new());
            }
            Err(failure) => return Err(failure.at(&self.shared.shown(folder), "list")),
        };
        let folders = listed.common_prefixes.iter().map(|path| (path, true));
        let objects = listed.objects.iter().map(|meta| (&meta.location, false));
        let mut entries: Vec<Entry> = folders
            .chain(objects)
            .filter_map(|(path, is_folder)| {
                let name = path.as_ref().rsplit('/').next()?.to_owned();
                Some(Entry { name, is_folder })
            })
            .collect();
        entries.sort_unstable_by(|a, b| (&a.name, !a.is_folder).cmp(&(&b.name, !b.is_folder)));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok(entries)
    }

    /// A service has no size: a large constant.
    fn statfs(&self) -> Result<StatFs> {
        let blocks = 1 << 38;
        Ok(StatFs {
            block_bytes: 4096,
            blocks,
            blocks_free: blocks,
            blocks_available: blocks,
            files: 1 << 40,
            files_free: 1 << 40,
            name_max: 255,
        })
    }

    fn describe(&self) -> String {
        self.shared.url.clone()
    }
}
