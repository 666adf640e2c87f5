//! A store behind a network: S3, Google Cloud Storage, Azure Blob Storage, a web server.
//!
//! Uses `object_store` (the services' protocols), `tokio` (its runtime), `error` and its neighbours in `store`. The layers
//! above see keys and bytes, and wait for them; the runtime and its threads stay in this folder.
//!
//! Invariants: no HEAD precedes a GET. Only a 404 means that an object is missing (and, if the user says so, a 403 that does
//! not reveal whether the object exists). A folder that the service does not list is unknown, not empty. All bytes read through
//! one [`Object`] are of one version, which each request names by its ETag.

mod ahead;
mod client;
mod connection;
mod counters;
mod first_bytes;
mod http;
mod object;
mod origin;
mod replies;
mod sent_request;
mod service;
#[cfg(test)]
pub(crate) mod test_services;
#[cfg(test)]
mod tests;
mod transfer;
mod transfers;
mod web;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ObjectMeta;

use self::ahead::{Ahead, Outcome};
use self::client::location::ServiceLocation;
use self::connection::Connection;
use self::object::RemoteObject;
use self::origin::Origin;
use self::replies::failure::{Reply, RequestFailure};
use self::service::Service;
use self::transfer::{Fetched, Request, info, stall_time, version};
use self::transfers::Transfers;
use self::web::queries::Queries;
use self::writer::Uploads;
use super::key::left_out::LeftOut;
use super::remote_options::RemoteOptions;
use super::{
    Claim, GetReply, GetRequest, Info, ListEntry, MaybeClaim, Object, ObjectContent, ObjectVersion, Remote,
    StatFs, Store, Traffic, Wanted, Writer, check_key,
};
use crate::error::{Error, Result};

/// The default limit of simultaneous requests.
pub const DEFAULT_CONNECTIONS: usize = 64;
/// The default memory for transfers ahead of readers.
pub const DEFAULT_MEMORY_BYTES: u64 = 64 << 20;
/// One of this many connections is kept for readers that wait.
const CONNECTIONS_FOR_READERS: usize = 8;

/// A store of objects at a service.
pub struct RemoteStore {
    connection: Arc<Connection>,
    /// The queries of single objects.
    queries: Arc<Queries>,
}

impl RemoteStore {
    /// Opens the store that a URL names. Makes no request.
    pub fn open(location: &str, options: &RemoteOptions) -> Result<Self> {
        Self::at(ServiceLocation::parse(location, options)?, options)
    }

    /// Opens the store at a location.
    fn at(location: ServiceLocation, options: &RemoteOptions) -> Result<Self> {
        let ServiceLocation { client, counters, queries, service, root, url, container } = location;
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
        let connection = Connection {
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
        Ok(RemoteStore { connection: Arc::new(connection), queries })
    }

    /// Opens an object for a reader of these bytes, with a request.
    fn open_with_request(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        check_key(key, "open")?;
        let connection = &self.connection;
        let fetch = || connection.fetch(&Request::first(&connection.path(key)?, wanted));
        let fetched = connection.found(fetch(), key, "open")?;
        Ok(fetched.map(|fetched| -> Box<dyn Object> {
            Box::new(RemoteObject::new(connection, key, Arc::new(fetched.into()), None))
        }))
    }

    /// Opens an object for a reader of these bytes: with bytes that are in memory or being transferred, or else with a request.
    fn open_ahead(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        check_key(key, "open")?;
        let connection = &self.connection;
        let claims = connection
            .ahead
            .claim(&[(key.to_owned(), wanted.clone())], |transfer| connection.begin(transfer));
        if let Some(claim) = claims.into_iter().flatten().next() {
            match claim.span.wait() {
                Outcome::Here(first) => {
                    return Ok(Some(Box::new(RemoteObject::new(connection, key, first, Some(claim)))));
                }
                Outcome::Missing => return Ok(None),
                Outcome::Unknown => {}
            }
        }
        self.open_with_request(key, wanted)
    }
}

#[cfg(test)]
impl RemoteStore {
    /// Returns a store at a service of a test, below `root`.
    pub(super) fn over(
        client: Arc<dyn object_store::ObjectStore>,
        root: &str,
        options: &RemoteOptions,
    ) -> Result<Self> {
        let (root, url) = (object_store::path::Path::from(root), "test:".to_owned());
        let (counters, queries, container) = (Arc::default(), Arc::default(), url.clone());
        let service = Service::S3;
        let location = ServiceLocation { client, counters, queries, service, root, url, container };
        Self::at(location, options)
    }

    /// Ends like a killed process: bytes that wait to be written to the disk cache are lost.
    pub(crate) fn abandon_cache(&self) {
        self.connection.transfers.origin().abandon_cache();
    }

    /// Waits until no thread of this store does anything any more: transfers ahead of readers have ended, their replies are recorded, and
    /// entries of the disk cache are written.
    pub(crate) fn wait_until_idle(&self) {
        while !self.connection.transfers.is_idle() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.connection.transfers.origin().wait_until_written();
    }
}

fn content(fetched: Fetched) -> ObjectContent {
    let info = info(&fetched.meta);
    ObjectContent { bytes: fetched.bytes.to_vec(), info }
}

impl Store for RemoteStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.open_with_request(key, &Wanted::Whole { at_most: u64::MAX })
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        check_key(key, "read")?;
        let fetch = || self.connection.fetch(&Request::whole(&self.connection.path(key)?, limit_bytes));
        Ok(self.connection.found(fetch(), key, "read")?.map(content))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        Ok(self.connection.head(key)?.map(|meta| info(&meta)))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        let folder = Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None };
        if key.is_empty() {
            return Ok(Some(folder));
        }
        if let Some(meta) = self.connection.head(key)? {
            return Ok(Some(info(&meta)));
        }
        if self.connection.service == Service::Http
            && self.connection.is_warned_of_listing.load(Ordering::Relaxed)
        {
            return Ok(None);
        }
        let first = || {
            let path = self.connection.path(key)?;
            self.connection.transfers.wait(self.connection.transfers.origin().has_any(&path))?
        };
        let is_folder = match first() {
            Ok(is_folder) => is_folder,
            Err(RequestFailure::Missing) => false,
            Err(failure) => match self.connection.unlisted(failure, key) {
                // Nothing shows that the folder exists, and no caller needs it to.
                Error::Unlisted { .. } => false,
                error => return Err(error),
            },
        };
        Ok(is_folder.then_some(folder))
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        check_key(folder, "list")?;
        let listed = || {
            let path = self.connection.path(folder)?;
            self.connection.transfers.wait(self.connection.transfers.origin().list(&path))?
        };
        self.connection.left_out.begin(folder);
        let (names, odd) = match listed() {
            Ok(listed) => listed,
            Err(RequestFailure::Missing) => return Ok(Vec::new()),
            Err(failure) => return Err(self.connection.unlisted(failure, folder)),
        };
        let folders = names.folders.into_iter().map(|name| ListEntry { name, is_folder: true });
        let objects = names.objects.into_iter().map(|name| ListEntry { name, is_folder: false });
        let mut entries: Vec<ListEntry> =
            folders.chain(objects).filter(|entry| !entry.name.is_empty()).collect();
        entries.sort_unstable_by(|a, b| (&a.name, !a.is_folder).cmp(&(&b.name, !b.is_folder)));
        entries.dedup_by(|a, b| a.name == b.name);
        if let Some(odd) = odd {
            self.connection.warn_about_odd_keys(&odd, folder);
        }
        Ok(entries)
    }

    fn left_out(&self, folder: &str) -> Option<String> {
        self.connection.left_out.reason(folder)
    }

    /// Returns a large constant, since a service has no size.
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
        self.connection.url.clone()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        self.connection.uploads.is_some().then_some(self as &dyn Writer)
    }
}

impl Remote for RemoteStore {
    fn key_with_query(&self, key: &str, query: &str) -> Option<String> {
        if self.connection.service == Service::Http { self.queries.key(key, query) } else { None }
    }

    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        self.open_ahead(key, wanted)
    }

    /// Sends all requests at once. The service answers each with the whole object, and its body is not read if it is the known
    /// version.
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        let connection = &self.connection;
        let get = |request: &GetRequest| {
            let (path, limit, known) = (connection.path(&request.key), request.limit_bytes, request.known);
            async move {
                let path = path?;
                let request = Request::whole(&path, limit);
                let stall_time = connection.transfers.stall_time();
                let is_new = |meta: &ObjectMeta, _| Some(version(meta)) != known;
                connection.transfers.origin().fetch_if(&request, stall_time, &is_new).await
            }
        };
        let replies = match connection.transfers.wait_all(requests.iter().map(get)) {
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
            Ok(match connection.found(reply, &request.key, "read")? {
                None => GetReply::Missing,
                Some(None) => GetReply::Unchanged,
                Some(Some(fetched)) => GetReply::Content(content(fetched)),
            })
        };
        requests.iter().zip(replies).map(reply).collect()
    }

    /// Sends all requests at once.
    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        let connection = &self.connection;
        let heads = connection.transfers.wait_all(keys.iter().map(|key| connection.request_head(key)));
        let heads = heads.unwrap_or_else(|failure| keys.iter().map(|_| Err(failure.clone())).collect());
        let checked = |(key, head): (&&str, Reply<ObjectMeta>)| {
            check_key(key, "look at")?;
            Ok(connection.found(head, key, "look at")?.map(|meta| info(&meta)))
        };
        keys.iter().zip(heads).map(checked).collect()
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let claims = self.connection.ahead.claim(wanted, |transfer| self.connection.begin(transfer));
        claims.into_iter().map(|claim| claim.map(|claim| -> Arc<dyn Claim> { claim })).collect()
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.connection.ahead.limit_bytes()
    }

    fn forget_transfers(&self, key: &str) {
        let is_below = |known: &str| known.strip_prefix(key).is_some_and(|rest| rest.starts_with('/'));
        self.connection.ahead.forget(|known| key.is_empty() || known == key || is_below(known));
    }

    fn traffic(&self) -> Option<Traffic> {
        let ahead = &self.connection.ahead;
        let (requests, failed_requests, replies, received_bytes) = ahead.counters().now();
        let (in_flight, ahead_bytes) = (self.connection.transfers.in_flight() as u64, ahead.taken_bytes());
        let disk_cache = self.connection.transfers.origin().disk_counts();
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
}
