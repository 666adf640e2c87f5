//! Writing to a service: an object is replaced by one request that names what it replaces.
//!
//! Uses `object_store`, `tokio`, `error` and its neighbours in `store`. `multipart.rs` sends long objects, `body.rs` assembles
//! what is sent.
//!
//! Invariants: an object is durable and visible when its put returns. A put with a precondition replaces nothing else: the
//! service decides (If-Match, If-None-Match, a generation). A put that the service carried out is reported as done, even if its
//! reply was lost and the request came twice: the service keeps a mark with each object, which only that put has. Equal bytes prove
//! nothing, because programs that do the same write the same. An object without the mark is another program's. So where a service does
//! not return marks, a put whose reply was lost is reported as refused, and never as done.
//!
//! S3 and Google delete one version and no other (`DeleteCondition` in `client.rs`). What cannot be done: a deletion at Azure, or at a service
//! that ignores its condition, and the end of a multipart upload have none. All are preceded by a look at the object, so a change in the
//! moment between is lost there.

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
use crate::store::remote::client::DeleteCondition;
use crate::store::remote::connection::Connection;
use crate::store::remote::replies::failure::{Failure, Reply};
use crate::store::remote::service::Service;
use crate::store::remote::transfer::version;
use crate::store::{ObjectPart, ObjectVersion, Precondition, PutOptions, VersionDigest, Writer, check_key};
use body::Body;
pub(super) use uploads::Uploads;

/// The longest object that is put by one request.
pub(super) const MAX_SINGLE_BYTES: u64 = 64 << 20;
/// How often a put is sent whose reply was lost, and which the service has not carried out.
const MAX_ATTEMPTS: u32 = 4;
/// The pause before it is sent again; doubled each time.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
/// The name of the mark in an object's metadata. Azure accepts no hyphens in it, and some proxies drop underscores.
const MARK: &str = "zarrfsput";

/// One put.
pub(super) struct Put<'a> {
    pub connection: &'a Connection,
    pub uploads: &'a Uploads,
    pub key: &'a str,
    pub path: Path,
    pub precondition: Precondition,
    /// What tells this put from every other one.
    mark: VersionDigest,
}

/// What is at the key after a put failed.
enum Found {
    /// What was put: the service carried it out.
    Ours(ObjectVersion),
    /// What the precondition demands.
    AsBefore,
    /// Something else, or an object whose writer the service does not name.
    Changed,
}

/// An object at the key of a put.
struct Seen {
    meta: ObjectMeta,
    /// Whether it has the put's mark.
    is_ours: bool,
}

/// What a put does next.
enum Step {
    /// Ask the service in this way.
    Ask(PutMode),
    /// Nothing: an earlier request has put the object, in this version.
    Done(ObjectVersion),
}

impl Writer for RemoteStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        check_key(key, "write")?;
        let connection = self.connection.as_ref();
        let uploads = connection.uploads()?;
        let path = connection.path(key).map_err(|failure| failure.at(key, "write"))?;
        let outdate = || connection.outdate(key, true);
        outdate()?;
        let put =
            Put { connection, uploads, key, path, precondition: options.precondition, mark: new_mark() };
        options.announce(put.mark)?;
        let body = Body::new(parts);
        let outcome =
            if body.size_bytes() <= MAX_SINGLE_BYTES { put.at_once(&body) } else { put.in_parts(&body) };
        // Whatever was transferred ahead may be older, even if the put seems to have failed.
        connection.ahead.forget(|known| known == key);
        outdate().and(outcome)
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
        let is_undisclosed = matches!(found, Err(Failure::Undisclosed(_)));
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
            Ok(()) | Err(Failure::Missing) => Ok(true),
            Err(Failure::Changed) => Err(Error::Changed { key: key.to_owned() }),
            // The reply may have been lost. Who may not delete an object may not know of it either, which does not mean that it is gone.
            Err(failure) => match connection.look(key) {
                Err(Failure::Missing) => Ok(true),
                _ => Err(failure.at(key, "delete")),
            },
        }
    }

    /// Tries again to abort this store's own multipart uploads. Nothing tells the service's other unfinished uploads, of programs
    /// that were killed, from those of living ones.
    fn remove_unfinished(&self, _folder: &str) -> Result<u64> {
        Ok(self.connection.abort_unfinished())
    }
}

impl Connection {
    /// Has the disk cache forget an object that is put or deleted: before the request, whose reply may never come, and after its
    /// reply, because others may have asked meanwhile.
    fn outdate(&self, key: &str, is_there: bool) -> Result<()> {
        let outdated = self.path(key).and_then(|path| self.transfers.origin().outdate(&path, is_there));
        outdated.map_err(|failure| failure.at(key, "write"))
    }

    /// Waits for a request.
    pub(super) fn ask<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Reply<T> {
        Ok(self.transfers.wait(request)??)
    }

    /// The object at a key, and whether it is that of the put with this mark.
    fn look_for_mark(&self, key: &str, path: &Path, mark: VersionDigest) -> Result<Option<Seen>> {
        let looked = self.transfers.wait(self.transfers.origin().look(path)).flatten();
        let Some(object) = self.found(looked, key, "look at")? else { return Ok(None) };
        let of_object = object.attributes.get(&Attribute::Metadata(MARK.into()));
        let is_ours = of_object.is_some_and(|of_object| of_object.as_ref() == mark.to_string());
        Ok(Some(Seen { meta: object.meta, is_ours }))
    }

    /// Deletes an object, only as it was found if that matters.
    fn delete(&self, key: &str, found: Option<&ObjectMeta>) -> Reply<()> {
        let path = self.path(key)?;
        let client = self.transfers.origin().client();
        let lacks_conditions = self.uploads.as_ref().map(|uploads| &uploads.lacks_delete_conditions);
        let is_asked = lacks_conditions.is_some_and(|lacks| !lacks.load(Ordering::Relaxed));
        let condition =
            found.filter(|_| is_asked).and_then(|found| DeleteCondition::found(self.service, found));
        if let Some(condition) = condition {
            match self.ask(condition.of(client.delete(&path))) {
                // It says so instead of ignoring the condition, and has deleted nothing.
                Err(Failure::NotSupported(_)) => {
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

/// 128 random bits. The keys of a new hasher are random.
fn new_mark() -> VersionDigest {
    let random = RandomState::new();
    VersionDigest::joined(random.hash_one(0), random.hash_one(1))
}

impl Put<'_> {
    /// What the service keeps with the object.
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
                Step::Ask(mode) => mode,
                Step::Done(version) => return Ok(version),
            };
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

    /// The version that was put, if the service carried out a put that seemed to fail; `None` if it did not, and may be asked
    /// again.
    fn done_in_spite_of(&self, failure: &Failure) -> Result<Option<ObjectVersion>> {
        use Failure::{Forbidden, NotSupported, Other, Undisclosed};
        let is_denied =
            matches!(failure, Undisclosed(_) | Forbidden(_) | Other(io::ErrorKind::PermissionDenied, _));
        if is_denied || matches!(failure, NotSupported(_)) {
            return Err(self.failed(failure.clone()));
        }
        match self.found() {
            Ok(Found::Ours(version)) => Ok(Some(version)),
            Ok(Found::Changed) => Err(self.changed()),
            Ok(Found::AsBefore) if self.precondition == Precondition::Any => {
                Err(self.failed(failure.clone()))
            }
            Ok(Found::AsBefore) => Ok(None),
            Err(_) => Err(self.failed(failure.clone())),
        }
    }

    /// The object at the key.
    fn look(&self) -> Result<Option<Seen>> {
        self.connection.look_for_mark(self.key, &self.path, self.mark)
    }

    /// What became of the object.
    fn found(&self) -> Result<Found> {
        let seen = self.look()?;
        let now = seen.as_ref().map(|seen| version(&seen.meta));
        Ok(match (seen, now) {
            (Some(Seen { is_ours: true, .. }), Some(now)) => Found::Ours(now),
            _ if [Precondition::Any, Precondition::found(now)].contains(&self.precondition) => {
                Found::AsBefore
            }
            _ => Found::Changed,
        })
    }

    /// Whether the service has just said that it does not decide on preconditions. Then they are checked before each put.
    fn needs_no_decision(&self, failure: &Failure) -> bool {
        let is_refused =
            matches!(failure, Failure::NotSupported(_)) && self.precondition != Precondition::Any;
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

    /// How the service is told what to replace.
    fn next_step(&self) -> Result<Step> {
        let is_asked = !self.uploads.lacks_preconditions.load(Ordering::Relaxed);
        match self.precondition {
            Precondition::Any => return Ok(Step::Ask(PutMode::Overwrite)),
            Precondition::Missing if is_asked => return Ok(Step::Ask(PutMode::Create)),
            Precondition::Version(version) if is_asked && self.connection.service != Service::Google => {
                if let Some(tag) = version.etag() {
                    let e_tag = Some(tag.to_owned());
                    return Ok(Step::Ask(PutMode::Update(UpdateVersion { e_tag, version: None })));
                }
            }
            _ => {}
        }
        // The object's generation, or a long ETag, must be looked up.
        let seen = self.look()?;
        let now = seen.as_ref().map(|seen| version(&seen.meta));
        if let (Some(Seen { is_ours: true, .. }), Some(now)) = (&seen, now) {
            return Ok(Step::Done(now));
        }
        self.precondition.check(self.key, || Ok(now))?;
        Ok(Step::Ask(match seen {
            Some(Seen { meta: ObjectMeta { e_tag, version, .. }, .. })
                if is_asked && (e_tag.is_some() || version.is_some()) =>
            {
                PutMode::Update(UpdateVersion { e_tag, version })
            }
            _ => PutMode::Overwrite,
        }))
    }

    /// Fails unless the object is as the precondition demands.
    pub(super) fn check(&self) -> Result<()> {
        let now = || Ok(self.connection.head(self.key)?.as_ref().map(version));
        self.precondition.check(self.key, now)
    }

    /// The version that was put.
    fn version(&self, reply: &PutResult) -> Result<ObjectVersion> {
        if let Some(tag) = &reply.e_tag {
            return Ok(ObjectVersion::for_etag(tag));
        }
        match self.found()? {
            Found::Ours(version) => Ok(version),
            Found::AsBefore | Found::Changed => Err(self.changed()),
        }
    }

    /// The assembled bytes; where the object that is copied from was replaced, the put is refused.
    pub(super) fn assembled(&self, bytes: Result<Vec<u8>>) -> Result<Vec<u8>> {
        bytes.map_err(|error| match error {
            Error::Stale { key } => Error::Changed { key },
            error => error,
        })
    }

    pub(super) fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Changed => self.changed(),
            failure => failure.at(self.key, "write"),
        }
    }

    fn changed(&self) -> Error {
        Error::Changed { key: self.key.to_owned() }
    }
}
