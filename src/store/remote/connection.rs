//! The connection of a store to its service: requests by key, and the meaning of their failures.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::path::Path;
use object_store::{GetRange, ObjectMeta};
use tokio::task::AbortHandle;

use super::ahead::{Ahead, SpanTransfer};
use super::replies::failure::{Reply, RequestFailure};
use super::replies::listing::OddKeys;
use super::service::Service;
use super::transfer::{Fetched, Request};
use super::transfers::Transfers;
use super::writer::Uploads;
use crate::error::{Error, Result};
use crate::store::key::left_out::LeftOut;

/// The connection, shared by a store and its open objects.
pub(super) struct Connection {
    pub transfers: Transfers,
    pub ahead: Arc<Ahead>,
    pub service: Service,
    pub root: Path,
    pub url: String,
    pub is_forbidden_missing: bool,
    /// Whether the user was warned that the service does not list all folders.
    pub is_warned_of_listing: AtomicBool,
    /// Keys that cannot be requested.
    pub left_out: LeftOut,
    /// Present if the service can be written to.
    pub uploads: Option<Uploads>,
}

impl Connection {
    pub fn path(&self, key: &str) -> Reply<Path> {
        let (root, key) = (self.root.as_ref(), key.trim_matches('/'));
        let separator = if root.is_empty() || key.is_empty() { "" } else { "/" };
        Path::parse(format!("{root}{separator}{key}"))
            .map_err(|error| RequestFailure::Other(io::ErrorKind::InvalidInput, error.to_string()))
    }

    /// Whether a failure means that the object is missing.
    pub fn is_missing(&self, failure: &RequestFailure) -> bool {
        match failure {
            RequestFailure::Missing => true,
            RequestFailure::Undisclosed(_) => self.is_forbidden_missing,
            _ => false,
        }
    }

    /// Converts a reply to a result; `None` if the object is missing.
    pub fn found<T>(&self, result: Reply<T>, key: &str, operation: &'static str) -> Result<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(failure) if self.is_missing(&failure) => Ok(None),
            Err(failure) => Err(failure.at(&self.shown(key), operation)),
        }
    }

    /// Returns a key for messages.
    pub fn shown(&self, key: &str) -> String {
        if key.is_empty() { self.url.clone() } else { key.to_owned() }
    }

    /// Fetches bytes of an object. If a range is refused because the object is empty, fetches all of it.
    pub fn fetch(&self, request: &Request<'_>) -> Reply<Fetched> {
        match self.transfers.fetch(request) {
            Err(RequestFailure::OutOfRange) if matches!(&request.range, Some(GetRange::Bounded(range)) if range.start == 0) => {
                self.transfers.fetch(&Request { range: None, ..request.clone() })
            }
            fetched => fetched,
        }
    }

    /// Starts the transfer of a span.
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
                Err(RequestFailure::Missing) => transfer.missing(),
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

    /// Returns size, ETag and time of an object, as the service says.
    pub fn look(&self, key: &str) -> Reply<ObjectMeta> {
        self.transfers.wait(self.request_head(key)).flatten()
    }

    pub async fn request_head(&self, key: &str) -> Reply<ObjectMeta> {
        self.transfers.origin().head(&self.path(key)?).await
    }

    /// Returns the error of a listing. If a web server does not list, or if a service refuses to list and the user has said
    /// that 403 means missing, the names are unknown but objects can be opened. The user is warned once.
    pub fn unlisted(&self, failure: RequestFailure, folder: &str) -> Error {
        let is_denied = matches!(failure, RequestFailure::Undisclosed(_) | RequestFailure::Forbidden(_));
        let is_of_server = matches!(failure, RequestFailure::NotSupported(_) | RequestFailure::Other(..));
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
    pub fn warn_about_odd_keys(&self, odd: &OddKeys, folder: &str) {
        const WHAT: &str = "with control characters, or with nothing or '.' between two '/'";
        self.left_out.warn(&self.url, WHAT, &odd.first);
        if let Some(node) = &odd.folder {
            self.left_out.record_folder(folder, "with control characters", node);
        }
    }
}
