//! A store's connection to its service: requests by key, and what their failures mean.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::path::Path;
use object_store::{GetRange, ObjectMeta};
use tokio::task::AbortHandle;

use super::ahead::{Ahead, SpanTransfer};
use super::replies::failure::{Failure, Reply};
use super::replies::listing::OddKeys;
use super::service::Service;
use super::transfer::{Fetched, Request};
use super::transfers::Transfers;
use super::writer::Uploads;
use crate::error::{Error, Result};
use crate::store::key::left_out::LeftOut;

/// What a store and its open objects share.
pub(super) struct Connection {
    pub transfers: Transfers,
    pub ahead: Arc<Ahead>,
    pub service: Service,
    pub root: Path,
    pub url: String,
    pub is_forbidden_missing: bool,
    /// Whether the user knows that the service does not list, or not all folders.
    pub is_warned_of_listing: AtomicBool,
    /// Keys that cannot be asked for.
    pub left_out: LeftOut,
    /// Present if the service can be written to.
    pub uploads: Option<Uploads>,
}

impl Connection {
    pub fn path(&self, key: &str) -> Reply<Path> {
        let (root, key) = (self.root.as_ref(), key.trim_matches('/'));
        let separator = if root.is_empty() || key.is_empty() { "" } else { "/" };
        Path::parse(format!("{root}{separator}{key}"))
            .map_err(|error| Failure::Other(io::ErrorKind::InvalidInput, error.to_string()))
    }

    /// Whether a failure says that there is no such object.
    pub fn is_missing(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Missing => true,
            Failure::Undisclosed(_) => self.is_forbidden_missing,
            _ => false,
        }
    }

    /// `None` if the object is missing.
    pub fn found<T>(&self, result: Reply<T>, key: &str, operation: &'static str) -> Result<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(failure) if self.is_missing(&failure) => Ok(None),
            Err(failure) => Err(failure.at(&self.shown(key), operation)),
        }
    }

    /// A key for messages.
    pub fn shown(&self, key: &str) -> String {
        if key.is_empty() { self.url.clone() } else { key.to_owned() }
    }

    /// Bytes of an object. Where nothing can be at a range, because the object is empty, all of it.
    pub fn fetch(&self, request: &Request<'_>) -> Reply<Fetched> {
        match self.transfers.fetch(request) {
            Err(Failure::OutOfRange) if matches!(&request.range, Some(GetRange::Bounded(range)) if range.start == 0) => {
                self.transfers.fetch(&Request { range: None, ..request.clone() })
            }
            fetched => fetched,
        }
    }

    /// Begins the transfer of a span.
    pub fn begin(&self, transfer: SpanTransfer) -> Option<AbortHandle> {
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

    pub fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.found(self.look(key), key, "look at")
    }

    /// Size, ETag and time of an object, as the service says.
    pub fn look(&self, key: &str) -> Reply<ObjectMeta> {
        self.transfers.wait(self.request_head(key)).flatten()
    }

    pub async fn request_head(&self, key: &str) -> Reply<ObjectMeta> {
        self.transfers.origin().head(&self.path(key)?).await
    }

    /// The error of a listing. Most web servers do not list, nor do services for callers who may not, which the user knows who says
    /// that 403 is missing: there only the names are unknown. The user is warned once.
    pub fn unlisted(&self, failure: Failure, folder: &str) -> Error {
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
    pub fn note_odd_keys(&self, odd: &OddKeys, folder: &str) {
        const WHAT: &str = "with control characters, or with nothing or '.' between two '/'";
        self.left_out.warn(&self.url, WHAT, &odd.first);
        if let Some(node) = &odd.folder {
            self.left_out.record_folder(folder, "with control characters", node);
        }
    }
}
