//! Long objects: sent in parts, several at once, and put together by the service.
//!
//! Uses `object_store` and its neighbours. An upload that fails is aborted, because a service keeps its parts, and charges for
//! them, until then. Those of a killed program stay: a rule of the bucket should remove them after some days.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{MultipartId, PutPayload};
use parking_lot::Mutex;

use super::Put;
use super::body::{Body, Sent, hash};
use crate::error::{Error, Result};
use crate::store::ObjectVersion;
use crate::store::remote::Shared;
use crate::store::remote::failure::Failure;

/// The size of a part; larger if there would be too many. All parts but the last have the same, as some services demand.
const PART_BYTES: u64 = 16 << 20;
/// The most parts that services accept.
const MAX_PARTS: u64 = 10_000;
/// How many parts of one object are sent at once.
const PARTS_AT_ONCE: u64 = 4;

/// The parts that were sent: the service's names for them, and their hashes.
type Parts = Vec<Option<(PartId, u64)>>;

impl Put<'_> {
    /// Sends the object in parts.
    pub(super) fn in_parts(&self, body: &Body<'_>) -> Result<ObjectVersion> {
        self.shared.abort_unfinished();
        self.check()?;
        let created = self.shared.ask(self.uploads.multipart.create_multipart(&self.path));
        let id = created.map_err(|failure| self.failed(failure))?;
        let put = self.send(&id, body).and_then(|(ids, sent)| {
            self.check()?;
            self.complete(&id, ids, &sent)
        });
        if put.is_err() {
            self.shared.abort(&self.path, id);
        }
        put
    }

    /// Sends all parts.
    fn send(&self, id: &MultipartId, body: &Body<'_>) -> Result<(Vec<PartId>, Sent)> {
        let size_bytes = body.size_bytes();
        let part_bytes = PART_BYTES.max(size_bytes.div_ceil(MAX_PARTS));
        let count = size_bytes.div_ceil(part_bytes);
        let next = AtomicU64::new(0);
        let parts = Mutex::new(vec![None; count as usize]);
        let failure: Mutex<Option<Error>> = Mutex::default();
        let run = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let range = number * part_bytes..((number + 1) * part_bytes).min(size_bytes);
                if let Err(error) = self.send_part(id, body, number as usize, range, &parts) {
                    next.store(count, Ordering::Relaxed);
                    failure.lock().get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..PARTS_AT_ONCE.min(count) {
                // Without this thread the others send its parts.
                let _ = std::thread::Builder::new().name("upload".to_owned()).spawn_scoped(scope, run);
            }
            run();
        });
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        let (ids, hashes) = parts.into_inner().into_iter().flatten().unzip();
        Ok((ids, Sent { size_bytes, piece_bytes: part_bytes, hashes }))
    }

    fn send_part(
        &self,
        id: &MultipartId,
        body: &Body<'_>,
        number: usize,
        range: Range<u64>,
        parts: &Mutex<Parts>,
    ) -> Result<()> {
        let part_bytes = range.end - range.start;
        let _memory = self.uploads.memory.take(part_bytes);
        let bytes = self.assembled(body.assemble(range, self.key))?;
        let hash = hash(&bytes);
        let request = self.uploads.multipart.put_part(&self.path, id, number, PutPayload::from(bytes));
        let name = self.shared.ask(request).map_err(|failure| self.failed(failure))?;
        if let Some(part) = parts.lock().get_mut(number) {
            *part = Some((name, hash));
        }
        Ok(())
    }

    /// Has the service put the parts together.
    fn complete(&self, id: &MultipartId, ids: Vec<PartId>, sent: &Sent) -> Result<ObjectVersion> {
        match self.shared.ask(self.uploads.multipart.complete_multipart(&self.path, id, ids)) {
            Ok(reply) => self.version(&reply, sent),
            // The reply may have been lost; then a second request finds no such upload.
            Err(failure) => match self.done_in_spite_of(&failure, sent)? {
                Some(version) => Ok(version),
                None => Err(self.failed(failure)),
            },
        }
    }
}

impl Shared {
    /// Aborts a multipart upload. If that fails, it is tried again later.
    fn abort(&self, path: &Path, id: MultipartId) {
        let Some(uploads) = &self.uploads else { return };
        match self.ask(uploads.multipart.abort_multipart(path, &id)) {
            Ok(()) | Err(Failure::Missing) => {}
            Err(failure) => {
                let error = failure.at(path.as_ref(), "abort the upload of");
                log::warn!("{error}; its parts stay at the service until a later attempt succeeds");
                uploads.unfinished.lock().push((path.clone(), id));
            }
        }
    }

    /// Tries again to abort uploads. Returns how many are gone.
    pub(super) fn abort_unfinished(&self) -> u64 {
        let Some(uploads) = &self.uploads else { return 0 };
        let unfinished = std::mem::take(&mut *uploads.unfinished.lock());
        let count = unfinished.len();
        for (path, id) in unfinished {
            self.abort(&path, id);
        }
        count.saturating_sub(uploads.unfinished.lock().len()) as u64
    }
}
