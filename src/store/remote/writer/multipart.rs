//! Putting long objects: they are sent in parts, several at once, and put together by the service.
//!
//! Uses `object_store` and its neighbours. An upload that fails is aborted, because a service stores its parts, and charges for
//! them, until then. The parts of a killed program stay: a rule of the bucket should remove them after some days.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::path::Path;
use object_store::{MultipartUpload, PutMultipartOptions, PutPayload, UploadPart};
use parking_lot::{Condvar, Mutex};

use super::Put;
use super::body::Body;
use crate::error::{Error, Result};
use crate::store::ObjectVersion;
use crate::store::remote::connection::Connection;
use crate::store::remote::replies::failure::RequestFailure;

/// The size of a part; larger if there would be too many. All parts but the last have the same size, as some services demand.
const PART_BYTES: u64 = 16 << 20;
/// The most parts that services accept.
const MAX_PARTS: u64 = 10_000;
/// The most parts of one object that are sent at once.
const PARTS_AT_ONCE: u64 = 4;

/// An upload whose parts are assembled on several threads but begin in order, since their order is that of the object.
struct PartsUpload {
    inner: Mutex<OrderedUpload>,
    has_begun: Condvar,
}

struct OrderedUpload {
    upload: Box<dyn MultipartUpload>,
    /// The number of the next part.
    next: u64,
    failure: Option<Error>,
}

impl PartsUpload {
    fn new(upload: Box<dyn MultipartUpload>) -> Self {
        PartsUpload {
            inner: Mutex::new(OrderedUpload { upload, next: 0, failure: None }),
            has_begun: Condvar::new(),
        }
    }

    /// Begins the transfer of a part, after those before it; `None` if one of them has failed.
    fn begin(&self, number: u64, payload: PutPayload) -> Option<UploadPart> {
        let mut inner = self.inner.lock();
        while inner.next != number && inner.failure.is_none() {
            self.has_begun.wait(&mut inner);
        }
        if inner.failure.is_some() {
            return None;
        }
        inner.next += 1;
        self.has_begun.notify_all();
        Some(inner.upload.put_part(payload))
    }

    /// Stops the upload of all parts.
    fn fail(&self, error: Error) {
        self.inner.lock().failure.get_or_insert(error);
        self.has_begun.notify_all();
    }
}

impl Put<'_> {
    /// Sends the object in parts.
    pub(super) fn in_parts(&self, body: &Body<'_>) -> Result<ObjectVersion> {
        self.connection.abort_unfinished();
        self.check()?;
        let options = PutMultipartOptions::from(self.attributes());
        let client = self.connection.transfers.origin().client();
        let begun = self.connection.ask(client.put_multipart_opts(&self.path, options));
        let upload = PartsUpload::new(begun.map_err(|failure| self.failed(failure))?);
        self.send(&upload, body);
        let OrderedUpload { mut upload, failure, .. } = upload.inner.into_inner();
        let put = failure.map_or(Ok(()), Err).and_then(|()| {
            self.check()?;
            self.connection.outdate(self.key, true)?;
            self.complete(upload.as_mut())
        });
        if put.is_err() {
            self.connection.abort(self.path.clone(), upload);
        }
        put
    }

    /// Sends all parts.
    fn send(&self, upload: &PartsUpload, body: &Body<'_>) {
        let size_bytes = body.size_bytes();
        let part_bytes = PART_BYTES.max(size_bytes.div_ceil(MAX_PARTS));
        let count = size_bytes.div_ceil(part_bytes);
        let next = AtomicU64::new(0);
        let run = || {
            while next.load(Ordering::Relaxed) < count {
                // A part gets its memory before its number: later parts wait for it, and keep their memory meanwhile.
                let _memory = self.uploads.memory.take(part_bytes);
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let range = number * part_bytes..((number + 1) * part_bytes).min(size_bytes);
                if let Err(error) = self.send_part(upload, body, number, range) {
                    next.store(count, Ordering::Relaxed);
                    upload.fail(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..PARTS_AT_ONCE.min(count) {
                // If this thread cannot be started, the others send its parts.
                let _ = std::thread::Builder::new().name("upload".to_owned()).spawn_scoped(scope, run);
            }
            run();
        });
    }

    fn send_part(&self, upload: &PartsUpload, body: &Body<'_>, number: u64, range: Range<u64>) -> Result<()> {
        let bytes = self.assembled(body.assemble(range, self.key))?;
        match upload.begin(number, PutPayload::from(bytes)) {
            Some(part) => self.connection.ask(part).map_err(|failure| self.failed(failure)),
            None => Ok(()),
        }
    }

    /// Makes the service put the parts together.
    fn complete(&self, upload: &mut dyn MultipartUpload) -> Result<ObjectVersion> {
        match self.connection.ask(upload.complete()) {
            Ok(reply) => self.version(&reply),
            // The reply may have been lost. A second request then finds no such upload.
            Err(failure) => match self.done_in_spite_of(&failure)? {
                Some(version) => Ok(version),
                None => Err(self.failed(failure)),
            },
        }
    }
}

impl Connection {
    /// Aborts a multipart upload. If that fails, it is tried again later.
    fn abort(&self, path: Path, mut upload: Box<dyn MultipartUpload>) {
        let Some(uploads) = &self.uploads else { return };
        match self.ask(upload.abort()) {
            Ok(()) | Err(RequestFailure::Missing) => {}
            Err(failure) => {
                let error = failure.at(path.as_ref(), "abort the upload of");
                log::warn!("{error}; its parts stay at the service until a later attempt succeeds");
                uploads.unfinished.lock().push((path, upload));
            }
        }
    }

    /// Tries again to abort uploads, and returns how many are gone.
    pub(super) fn abort_unfinished(&self) -> u64 {
        let Some(uploads) = &self.uploads else { return 0 };
        let unfinished = std::mem::take(&mut *uploads.unfinished.lock());
        let count = unfinished.len();
        for (path, upload) in unfinished {
            self.abort(path, upload);
        }
        count.saturating_sub(uploads.unfinished.lock().len()) as u64
    }
}
