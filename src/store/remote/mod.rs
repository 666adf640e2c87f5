//! A store behind a network: S3, Google Cloud Storage, Azure Blob Storage, a web server.
//!
//! Uses `object_store` (the services' protocols), `tokio` (its runtime), `error` and its neighbours in `store`. Everything
//! above sees keys and bytes, and waits for them; the runtime and its threads stay in here.
//!
//! Invariants: no HEAD precedes a GET; a 404 means that an object is missing, and nothing else does (a 403 that does not say whether
//! there is such an object does if the user says so); a folder that the service does not list is unknown, not empty; all bytes read
//! through one [`Object`] are of one version, which each request names by its ETag.

mod ahead;
mod asked;
mod aws_profile;
mod client;
mod counters;
mod first_bytes;
#[cfg(test)]
pub(crate) mod in_turns;
mod location;
mod object;
mod origin;
mod replies;
mod setting;
#[cfg(test)]
mod tests;
mod transfer;
mod transfers;
mod web;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use object_store::path::Path;
use object_store::{GetRange, ObjectMeta};
use tokio::task::AbortHandle;

use self::ahead::{Ahead, Outcome, SpanTransfer};
use self::object::RemoteObject;
use self::origin::Origin;
use self::replies::failure::{Failure, Reply};
use self::replies::listing::OddKeys;
use self::transfer::{Fetched, Request, stall_time};
use self::transfers::Transfers;
use self::writer::Uploads;
use super::key::left_out::LeftOut;
use super::remote_options::RemoteOptions;
use super::{
    Claim, Content, Entry, GetReply, GetRequest, Info, MaybeClaim, Object, ObjectVersion, StatFs, Store,
    Traffic, Wanted, Writer, check_key,
};
use crate::error::{Error, Result};

use self::location::{Location, Service};

/// The most requests at one time, unless an option says otherwise.
pub const DEFAULT_CONNECTIONS: usize = 64;
/// Memory for transfers ahead of readers, unless an option says otherwise.
pub const DEFAULT_MEMORY_BYTES: u64 = 64 << 20;
/// Of so many connections one is kept for readers that wait.
const CONNECTIONS_FOR_READERS: usize = 8;

/// A store of objects at a service.
pub struct RemoteStore {
    shared: Arc<Shared>,
}

struct Shared {
    transfers: Transfers,
    ahead: Arc<Ahead>,
    service: Service,
    root: Path,
    url: String,
    is_forbidden_missing: bool,
    /// Whether the user knows that the service does not list, or not all folders.
    is_warned_of_listing: AtomicBool,
    /// Keys that cannot be asked for.
    left_out: LeftOut,
    /// Present if the service can be written to.
    uploads: Option<Uploads>,
}

impl RemoteStore {
    /// The store that a URL names. Makes no request.
    pub fn open(location: &str, options: &RemoteOptions) -> Result<Self> {
        Self::at(Location::parse(location, options)?, options)
    }

    /// The store at a place.
    fn at(location: Location, options: &RemoteOptions) -> Result<Self> {
        let Location { client, counters, service, root, url, container } = location;
        let connections = options.max_connections.unwrap_or(DEFAULT_CONNECTIONS).max(1);
        let disk_cache = options.disk_cache.as_ref();
        let is_offline = disk_cache.is_some_and(|cache| cache.is_offline);
        let origin = Origin::new(client, service, container, options)?;
        let transfers = Transfers::new(origin, connections, stall_time(options.request_deadline))
            .map_err(|error| Error::Usage(format!("cannot start the threads for transfers: {error}")))?;
        let memory = options.memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES);
        let most_ahead = (connections - connections / CONNECTIONS_FOR_READERS).max(1);
        let ahead = Arc::new(Ahead::new(memory, most_ahead, counters));
        let is_forbidden_missing = options.is_forbidden_missing;
        let uploads = (service != Service::Http && !is_offline).then(Uploads::new);
        let shared = Shared {
            transfers,
            ahead,
            service,
            root,
            url,
            is_forbidden_missing,
            is_warned_of_listing: AtomicBool::new(false),
            left_out: LeftOut::default(),
            uploads,
        };
        Ok(RemoteStore { shared: Arc::new(shared) })
    }
}

#[cfg(test)]
impl RemoteStore {
    /// A store at a service of a test, below `root`.
    pub(super) fn over(
        client: Arc<dyn object_store::ObjectStore>,
        root: &str,
        options: &RemoteOptions,
    ) -> Result<Self> {
        let (root, url) = (Path::from(root), "test:".to_owned());
        let (counters, container) = (Arc::default(), url.clone());
        let location = Location { client, counters, service: Service::S3, root, url, container };
        Self::at(location, options)
    }

    /// Ends as a process that is killed: what waits to be written to the disk cache is lost.
    fn abandon_cache(&self) {
        self.shared.transfers.origin().abandon_cache();
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
            Failure::Undisclosed(_) => self.is_forbidden_missing,
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
    fn fetch(&self, request: &Request<'_>) -> Reply<Fetched> {
        match self.transfers.fetch(request) {
            Err(Failure::OutOfRange) if matches!(&request.range, Some(GetRange::Bounded(range)) if range.start == 0) => {
                self.transfers.fetch(&Request { range: None, ..request.clone() })
            }
            fetched => fetched,
        }
    }

    /// Opens an object for a reader of these bytes, with a request.
    fn open(self: &Arc<Self>, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        check_key(key, "open")?;
        let fetch = || self.fetch(&Request::first(&self.path(key)?, wanted));
        let fetched = self.found(fetch(), key, "open")?;
        Ok(fetched.map(|fetched| -> Box<dyn Object> {
            Box::new(RemoteObject::new(self, key, Arc::new(fetched.into()), None))
        }))
    }

    /// Opens an object for a reader of these bytes: with those that are here or on their way, or else with a request.
    fn open_ahead(self: &Arc<Self>, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        check_key(key, "open")?;
        let claims = self.ahead.claim(&[(key.to_owned(), wanted.clone())], |transfer| self.begin(transfer));
        if let Some(claim) = claims.into_iter().flatten().next() {
            match claim.span.wait() {
                Outcome::Here(first) => {
                    return Ok(Some(Box::new(RemoteObject::new(self, key, first, Some(claim)))));
                }
                Outcome::Missing => return Ok(None),
                Outcome::Unknown => {}
            }
        }
        self.open(key, wanted)
    }

    /// Begins the transfer of a span.
    fn begin(&self, transfer: SpanTransfer) -> Option<AbortHandle> {
        let path = self.path(&transfer.key).ok()?;
        let stall_time = self.transfers.stall_time();
        self.transfers.begin(|origin| async move {
            let first = Request::first(&path, &transfer.wanted);
            let request = Request { if_match: transfer.tag.as_deref(), ..first };
            let first = origin.open_if(&request, stall_time, &|_, length| transfer.admits(length)).await;
            match first {
                Ok(Some(first)) => transfer.arrived(first),
                Ok(None) => transfer.failed(),
                Err(Failure::Missing) => transfer.missing(),
                Err(failure) => {
                    log::debug!("{}: transfer ahead of a reader failed: {failure:?}", transfer.key);
                    transfer.failed();
                }
            }
        })
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.found(self.look(key), key, "look at")
    }

    /// Size, ETag and time of an object, as the service says.
    fn look(&self, key: &str) -> Reply<ObjectMeta> {
        self.transfers.wait(self.request_head(key)).flatten()
    }

    async fn request_head(&self, key: &str) -> Reply<ObjectMeta> {
        self.transfers.origin().head(&self.path(key)?).await
    }

    /// The error of a listing. Most web servers do not list, nor do services for callers who may not, which the user knows who says
    /// that 403 is missing: there only the names are unknown. The user is warned once.
    fn unlisted(&self, failure: Failure, folder: &str) -> Error {
        let is_denied = matches!(failure, Failure::Undisclosed(_) | Failure::Forbidden(_));
        let is_of_server = matches!(failure, Failure::NotSupported(_) | Failure::Other(..));
        let (who, reason) = match self.service {
            Service::Http if is_denied || is_of_server => {
                ("this web server cannot list folders", "the web server does not say what is in it")
            }
            _ if is_denied && self.is_forbidden_missing => {
                ("the service does not let this caller list", "the service does not let this caller list it")
            }
            _ => return failure.at(&self.shown(folder), "list"),
        };
        if !self.is_warned_of_listing.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{}: {who}: only what consolidated metadata names is shown, and every path can be opened by its name",
                self.url
            );
        }
        Error::Unlisted { key: self.shown(folder), reason: reason.to_owned() }
    }

    /// Reports keys that are left out of a listing.
    fn note_odd_keys(&self, odd: &OddKeys, folder: &str) {
        const WHAT: &str = "with control characters, or with nothing or '.' between two '/'";
        self.left_out.warn(&self.url, WHAT, &odd.first);
        if let Some(node) = &odd.folder {
            self.left_out.note_folder(folder, "with control characters", node);
        }
    }
}

fn content(fetched: Fetched) -> Content {
    let info = info(&fetched.meta);
    Content { bytes: fetched.bytes.to_vec(), info }
}

fn version(meta: &ObjectMeta) -> ObjectVersion {
    match (&meta.e_tag, &meta.version) {
        (Some(tag), _) => ObjectVersion::of_tag(tag),
        (None, Some(version)) => ObjectVersion::of_parts(("version", version)),
        (None, None) => {
            ObjectVersion::of_parts(("modified", meta.last_modified.timestamp_micros(), meta.size))
        }
    }
}

fn info(meta: &ObjectMeta) -> Info {
    let modified = SystemTime::from(meta.last_modified);
    Info { size_bytes: meta.size, modified: Some(modified), version: version(meta), posix: None }
}

impl Store for RemoteStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.shared.open(key, &Wanted::Whole { at_most: u64::MAX })
    }

    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.shared.open_ahead(key, wanted)
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let claims = self.shared.ahead.claim(wanted, |transfer| self.shared.begin(transfer));
        claims.into_iter().map(|claim| claim.map(|claim| -> Arc<dyn Claim> { claim })).collect()
    }

    fn traffic(&self) -> Option<Traffic> {
        let ahead = &self.shared.ahead;
        let (requests, failed_requests, replies, received_bytes) = ahead.counters().now();
        let (in_flight, ahead_bytes) = (self.shared.transfers.in_flight() as u64, ahead.taken_bytes());
        let disk_cache = self.shared.transfers.origin().disk_counts();
        Some(Traffic {
            requests,
            failed_requests,
            replies,
            received_bytes,
            in_flight,
            ahead_bytes,
            disk_cache,
        })
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.shared.ahead.limit_bytes()
    }

    fn forget_transfers(&self, key: &str) {
        let is_below = |known: &str| known.strip_prefix(key).is_some_and(|rest| rest.starts_with('/'));
        self.shared.ahead.forget(|known| key.is_empty() || known == key || is_below(known));
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<Content>> {
        check_key(key, "read")?;
        let fetch = || self.shared.fetch(&Request::whole(&self.shared.path(key)?, limit_bytes));
        Ok(self.shared.found(fetch(), key, "read")?.map(content))
    }

    /// All at once. The service answers each with the whole object, whose body is not read if it is the known version.
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let shared = &self.shared;
        let get = |request: &GetRequest| {
            let (path, limit, known) = (shared.path(&request.key), request.limit_bytes, request.known);
            async move {
                let path = path?;
                let request = Request::whole(&path, limit);
                let stall_time = shared.transfers.stall_time();
                let is_new = |meta: &ObjectMeta, _| Some(version(meta)) != known;
                shared.transfers.origin().fetch_if(&request, stall_time, &is_new).await
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

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        Ok(self.shared.head(key)?.map(|meta| info(&meta)))
    }

    /// All at once.
    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let shared = &self.shared;
        let heads = shared.transfers.wait_all(keys.iter().map(|key| shared.request_head(key)));
        let heads = heads.unwrap_or_else(|failure| keys.iter().map(|_| Err(failure.clone())).collect());
        let checked = |(key, head): (&&str, Reply<ObjectMeta>)| {
            check_key(key, "look at")?;
            Ok(shared.found(head, key, "look at")?.map(|meta| info(&meta)))
        };
        keys.iter().zip(heads).map(checked).collect()
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
        if self.shared.service == Service::Http && self.shared.is_warned_of_listing.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let first = || {
            let path = self.shared.path(key)?;
            self.shared.transfers.wait(self.shared.transfers.origin().has_any(&path))?
        };
        let is_folder = match first() {
            Ok(is_folder) => is_folder,
            Err(Failure::Missing) => false,
            Err(failure) => match self.shared.unlisted(failure, key) {
                // Nothing shows that it is there, and nothing needs it to be.
                Error::Unlisted { .. } => false,
                error => return Err(error),
            },
        };
        Ok(is_folder.then_some(folder))
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        check_key(folder, "list")?;
        let listed = || {
            let path = self.shared.path(folder)?;
            self.shared.transfers.wait(self.shared.transfers.origin().list(&path))?
        };
        self.shared.left_out.begin(folder);
        let (names, odd) = match listed() {
            Ok(listed) => listed,
            Err(Failure::Missing) => return Ok(Vec::new()),
            Err(failure) => return Err(self.shared.unlisted(failure, folder)),
        };
        let folders = names.folders.into_iter().map(|name| Entry { name, is_folder: true });
        let objects = names.objects.into_iter().map(|name| Entry { name, is_folder: false });
        let mut entries: Vec<Entry> = folders.chain(objects).filter(|entry| !entry.name.is_empty()).collect();
        entries.sort_unstable_by(|a, b| (&a.name, !a.is_folder).cmp(&(&b.name, !b.is_folder)));
        entries.dedup_by(|a, b| a.name == b.name);
        if let Some(odd) = odd {
            self.shared.note_odd_keys(&odd, folder);
        }
        Ok(entries)
    }

    fn left_out(&self, folder: &str) -> Option<String> {
        self.shared.left_out.reason(folder)
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
    fn writer(&self) -> Option<&dyn Writer> {
        self.shared.uploads.is_some().then_some(self as &dyn Writer)
    }
}
