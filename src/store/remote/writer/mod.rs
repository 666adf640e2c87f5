//! Writing to a service: an object is replaced by one request that names the version it replaces.
//!
//! Uses `object_store`, `tokio`, `error` and its neighbours in `store`. `multipart.rs` sends long objects, and `body.rs`
//! assembles the bytes.
//!
//! Invariants: an object is durable and visible when its put returns. A put with a precondition replaces nothing else: the
//! service decides (If-Match, If-None-Match, a generation). A put that the service carried out is reported as done, even if its
//! reply was lost and the request arrived twice: the service stores a mark with each object, which only that put has. Equal
//! bytes prove nothing, because two programs may write the same bytes. An object without the mark belongs to another program.
//! So if a service does not return marks, a put whose reply was lost is reported as refused, never as done.
//!
//! S3 and Google delete exactly one version (`DeleteCondition`). A deletion at Azure or at a service that ignores the
//! condition, and the end of a multipart upload, have no condition. They are preceded by a check of the object, so a change
//! between the check and the request is lost.

mod body;
mod multipart;
#[cfg(test)]
mod tests;
mod uploads;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::path::Path;
use object_store::{
    Attribute, Attributes, ObjectMeta, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion,
};

use crate::error::{Error, Result};
use crate::store::remote::RemoteStore;
use crate::store::remote::connection::Connection;
use crate::store::remote::http::DeleteCondition;
use crate::store::remote::replies::failure::{Reply, RequestFailure};
use crate::store::remote::service::Service;
use crate::store::remote::transfer::version;
use crate::store::{ObjectPart, ObjectVersion, Precondition, PutOptions, VersionDigest, Writer, check_key};
use body::Body;
pub(super) use uploads::Uploads;

/// The longest object that is put by one request.
pub(super) const MAX_SINGLE_BYTES: u64 = 64 << 20;
/// The most times that a put is sent if its reply was lost and the service has not carried it out.
const MAX_ATTEMPTS: u32 = 4;
/// The pause before it is sent again, doubled each time.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
/// The name of the mark in an object's metadata. Azure accepts no hyphens in names, and some proxies drop names with
/// underscores.
const MARK: &str = "zarrfsput";

/// A put in progress.
pub(super) struct Put<'a> {
    pub connection: &'a Connection,
    pub uploads: &'a Uploads,
    pub key: &'a str,
    pub path: Path,
    pub precondition: Precondition,
    /// The mark of this put, which no other put has.
    mark: VersionDigest,
}

/// The object at the key after a put that failed.
enum ObjectAfterPut {
    /// The object that was put: the service carried out the request.
    Ours(ObjectVersion),
    /// The object that the precondition demands.
    AsBefore,
    /// Another object, or one whose writer is not known.
    Changed,
}

/// The object at the key of a put.
struct MarkedObject {
    meta: ObjectMeta,
    /// Whether it has the put's mark.
    is_ours: bool,
}

/// The next step of a put.
enum PutStep {
    /// Send the request in this mode.
    Ask(PutMode),
    /// Stop: an earlier request has put the object, in this version.
    Done(ObjectVersion),
}

impl Writer for RemoteStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        check_key(key, "write")?;
        let connection = self.connection.as_ref();
        let uploads = connection.uploads()?;
        let path = connection.path(key).map_err(|failure| failure.at(key, "write"))?;
        let put =
            Put { connection, uploads, key, path, precondition: options.precondition, mark: new_mark() };
        options.announce(put.mark)?;
        let body = Body::new(parts);
        let outcome =
            if body.size_bytes() <= MAX_SINGLE_BYTES { put.at_once(&body) } else { put.in_parts(&body) };
        // Bytes that were transferred ahead may be older, even if the put seems to have failed.
        connection.ahead.forget(|known| known == key);
        connection.outdate(key, true).and(outcome)
    }

    fn has_mark(&self, key: &str, version: ObjectVersion, mark: VersionDigest) -> Result<bool> {
        let connection = self.connection.as_ref();
        let path = connection.path(key).map_err(|failure| failure.at(key, "look at"))?;
        let seen = connection.look_for_mark(key, &path, mark)?;
        Ok(seen.is_some_and(|seen| seen.is_ours && self::version(&seen.meta) == version))
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        check_key(key, "delete")?;
        let connection = self.connection.as_ref();
        connection.uploads()?;
        let found = connection.look(key);
        let is_undisclosed = matches!(found, Err(RequestFailure::Undisclosed(_)));
        let found = connection.found(found, key, "look at")?;
        precondition.check(key, || Ok(found.as_ref().map(version)))?;
        if found.is_none() && !(is_undisclosed && precondition == Precondition::Any) {
            return Ok(false);
        }
        let outdate = || connection.outdate(key, false);
        outdate()?;
        let condition = found.as_ref().filter(|_| precondition != Precondition::Any);
        let outcome = connection.delete(key, condition);
        connection.ahead.forget(|known| known == key);
        outdate()?;
        match outcome {
            Ok(()) | Err(RequestFailure::Missing) => Ok(true),
            Err(RequestFailure::Changed) => Err(Error::Changed { key: key.to_owned() }),
            // The reply may have been lost. A caller without permission to delete may not see the object either, which does not
            // mean that it is gone.
            Err(failure) => match connection.look(key) {
                Err(RequestFailure::Missing) => Ok(true),
                _ => Err(failure.at(key, "delete")),
            },
        }
    }

    /// Tries again to abort this store's own multipart uploads. Other unfinished uploads at the service may belong to living
    /// programs.
    fn remove_unfinished(&self, _folder: &str) -> Result<u64> {
        Ok(self.connection.abort_unfinished())
    }
}

impl Connection {
    /// Makes the disk cache forget an object that is put or deleted: right before the request, since its reply may never come, and after
    /// its reply, because other processes may have asked meanwhile.
    fn outdate(&self, key: &str, is_there: bool) -> Result<()> {
        let outdated = self.path(key).and_then(|path| self.transfers.origin().outdate(&path, is_there));
        outdated.map_err(|failure| failure.at(key, "write"))
    }

    /// Sends a request, and waits for its reply.
    pub(super) fn ask<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Reply<T> {
        Ok(self.transfers.wait(request)??)
    }

    /// Looks up the object at a key, and whether it has this mark.
    fn look_for_mark(&self, key: &str, path: &Path, mark: VersionDigest) -> Result<Option<MarkedObject>> {
        let looked = self.transfers.wait(self.transfers.origin().look(path)).flatten();
        let Some(object) = self.found(looked, key, "look at")? else { return Ok(None) };
        let of_object = object.attributes.get(&Attribute::Metadata(MARK.into()));
        let is_ours = of_object.is_some_and(|of_object| of_object.as_ref() == mark.to_string());
        Ok(Some(MarkedObject { meta: object.meta, is_ours }))
    }

    /// Deletes an object; with `found`, only that version.
    fn delete(&self, key: &str, found: Option<&ObjectMeta>) -> Reply<()> {
        let path = self.path(key)?;
        let client = self.transfers.origin().client();
        let lacks_conditions = self.uploads.as_ref().map(|uploads| &uploads.lacks_delete_conditions);
        let is_asked = lacks_conditions.is_some_and(|lacks| !lacks.load(Ordering::Relaxed));
        let condition =
            found.filter(|_| is_asked).and_then(|found| DeleteCondition::unchanged(self.service, found));
        if let Some(condition) = condition {
            match self.ask(condition.apply(client.delete(&path))) {
                // The service refuses the condition, and has deleted nothing.
                Err(RequestFailure::NotSupported(_)) => {
                    lacks_conditions.inspect(|lacks| lacks.store(true, Ordering::Relaxed));
                }
                outcome => return outcome,
            }
        }
        self.ask(client.delete(&path))
    }

    fn uploads(&self) -> Result<&Uploads> {
        self.uploads.as_ref().ok_or_else(|| Error::ReadOnly(format!("{} is not writable", self.url)))
    }
}

/// Returns 128 random bits. The keys of a new hasher are random.
fn new_mark() -> VersionDigest {
    let random = RandomState::new();
    VersionDigest::joined(random.hash_one(0), random.hash_one(1))
}

impl Put<'_> {
    /// Returns the attributes that the service stores with the object.
    fn attributes(&self) -> Attributes {
        Attributes::from_iter([(Attribute::Metadata(MARK.into()), self.mark.to_string())])
    }

    /// Sends the whole object in one request.
    fn at_once(&self, body: &Body<'_>) -> Result<ObjectVersion> {
        let _memory = self.uploads.memory.take(body.size_bytes());
        let bytes = self.assembled(body.assemble(0..body.size_bytes(), self.key))?;
        let payload = PutPayload::from(bytes);
        let mut attempt = 0;
        loop {
            let mode = match self.next_step()? {
                PutStep::Ask(mode) => mode,
                PutStep::Done(version) => return Ok(version),
            };
            // Before each attempt, because a look between two attempts has put what is there into the cache.
            self.connection.outdate(self.key, true)?;
            let attributes = self.attributes();
            let options = object_store::PutOptions { mode, attributes, ..Default::default() };
            let store = self.connection.transfers.origin().client();
            let failure = match self.connection.ask(store.put_opts(&self.path, payload.clone(), options)) {
                Ok(reply) => return self.version(&reply),
                Err(failure) => failure,
            };
            if self.needs_no_decision(&failure) {
                continue;
            }
            if let Some(version) = self.done_in_spite_of(&failure)? {
                return Ok(version);
            }
            attempt += 1;
            if attempt == MAX_ATTEMPTS {
                return Err(self.failed(failure));
            }
            std::thread::sleep(PAUSE * (1 << attempt));
        }
    }

    /// Returns the version that was put, if the service carried out a put that seemed to fail; `None` if it did not, and the
    /// request may be sent again.
    fn done_in_spite_of(&self, failure: &RequestFailure) -> Result<Option<ObjectVersion>> {
        use RequestFailure::{Forbidden, NotSupported, Other, Undisclosed};
        let is_denied =
            matches!(failure, Undisclosed(_) | Forbidden(_) | Other(io::ErrorKind::PermissionDenied, _));
        if is_denied || matches!(failure, NotSupported(_)) {
            return Err(self.failed(failure.clone()));
        }
        match self.found() {
            Ok(ObjectAfterPut::Ours(version)) => Ok(Some(version)),
            Ok(ObjectAfterPut::Changed) => Err(self.changed()),
            Ok(ObjectAfterPut::AsBefore) if self.precondition == Precondition::Any => {
                Err(self.failed(failure.clone()))
            }
            Ok(ObjectAfterPut::AsBefore) => Ok(None),
            Err(_) => Err(self.failed(failure.clone())),
        }
    }

    /// Looks up the object at the key.
    fn look(&self) -> Result<Option<MarkedObject>> {
        self.connection.look_for_mark(self.key, &self.path, self.mark)
    }

    /// Compares the object at the key with the put.
    fn found(&self) -> Result<ObjectAfterPut> {
        let seen = self.look()?;
        let now = seen.as_ref().map(|seen| version(&seen.meta));
        Ok(match (seen, now) {
            (Some(MarkedObject { is_ours: true, .. }), Some(now)) => ObjectAfterPut::Ours(now),
            _ if [Precondition::Any, Precondition::found(now)].contains(&self.precondition) => {
                ObjectAfterPut::AsBefore
            }
            _ => ObjectAfterPut::Changed,
        })
    }

    /// Whether the service has just said that it has no preconditions. From then on they are checked before each put.
    fn needs_no_decision(&self, failure: &RequestFailure) -> bool {
        let is_refused =
            matches!(failure, RequestFailure::NotSupported(_)) && self.precondition != Precondition::Any;
        if is_refused && !self.uploads.lacks_preconditions.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{}: this service does not put on a condition: a change that another program makes while a chunk is being \
                 stored may be lost",
                self.connection.url
            );
            return true;
        }
        false
    }

    /// Decides how the request names the object that it replaces.
    fn next_step(&self) -> Result<PutStep> {
        let is_asked = !self.uploads.lacks_preconditions.load(Ordering::Relaxed);
        match self.precondition {
            Precondition::Any => return Ok(PutStep::Ask(PutMode::Overwrite)),
            Precondition::Missing if is_asked => return Ok(PutStep::Ask(PutMode::Create)),
            Precondition::Version(version) if is_asked && self.connection.service != Service::Google => {
                if let Some(tag) = version.etag() {
                    let e_tag = Some(tag.to_owned());
                    return Ok(PutStep::Ask(PutMode::Update(UpdateVersion { e_tag, version: None })));
                }
            }
            _ => {}
        }
        // The object's generation, or a long ETag, must be looked up.
        let seen = self.look()?;
        let now = seen.as_ref().map(|seen| version(&seen.meta));
        if let (Some(MarkedObject { is_ours: true, .. }), Some(now)) = (&seen, now) {
            return Ok(PutStep::Done(now));
        }
        self.precondition.check(self.key, || Ok(now))?;
        Ok(PutStep::Ask(match seen {
            Some(MarkedObject { meta: ObjectMeta { e_tag, version, .. }, .. })
                if is_asked && (e_tag.is_some() || version.is_some()) =>
            {
                PutMode::Update(UpdateVersion { e_tag, version })
            }
            _ => PutMode::Overwrite,
        }))
    }

    /// Fails unless the object meets the precondition.
    pub(super) fn check(&self) -> Result<()> {
        let now = || Ok(self.connection.head(self.key)?.as_ref().map(version));
        self.precondition.check(self.key, now)
    }

    /// Returns the version that was put.
    fn version(&self, reply: &PutResult) -> Result<ObjectVersion> {
        if let Some(tag) = &reply.e_tag {
            return Ok(ObjectVersion::for_etag(tag));
        }
        match self.found()? {
            ObjectAfterPut::Ours(version) => Ok(version),
            ObjectAfterPut::AsBefore | ObjectAfterPut::Changed => Err(self.changed()),
        }
    }

    /// Converts the error of assembling: if an object that is copied from was replaced, the put is refused.
    pub(super) fn assembled(&self, bytes: Result<Vec<u8>>) -> Result<Vec<u8>> {
        bytes.map_err(|error| match error {
            Error::Stale { key } => Error::Changed { key },
            error => error,
        })
    }

    pub(super) fn failed(&self, failure: RequestFailure) -> Error {
        match failure {
            RequestFailure::Changed => self.changed(),
            failure => failure.at(self.key, "write"),
        }
    }

    fn changed(&self) -> Error {
        Error::Changed { key: self.key.to_owned() }
    }
}
