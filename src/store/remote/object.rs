//! An open object of a remote store. Some of its bytes are in memory; others are requested.
//!
//! Uses its neighbours in `store/remote` and `error`.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use super::ahead::{Outcome, SpanClaim};
use super::connection::Connection;
use super::first_bytes::FirstBytes;
use super::replies::failure::RequestFailure;
use super::transfer::{Fetched, Request, version};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::{Object, ObjectVersion, Wanted};

/// The size of the pieces in which longer ranges are requested, all at once: the bandwidth of one connection is limited.
const PIECE_BYTES: u64 = 8 << 20;

/// An open object, with the bytes that were requested first.
pub(super) struct RemoteObject {
    connection: Arc<Connection>,
    key: String,
    first: Arc<FirstBytes>,
    /// The claim that keeps the memory of `first` reserved.
    _claim: Option<Arc<SpanClaim>>,
    /// All bytes, after a service without ranges has sent them.
    whole: OnceLock<Arc<Buffer>>,
}

impl RemoteObject {
    pub(super) fn new(
        connection: &Arc<Connection>,
        key: &str,
        first: Arc<FirstBytes>,
        claim: Option<Arc<SpanClaim>>,
    ) -> Self {
        let (connection, key) = (Arc::clone(connection), key.to_owned());
        RemoteObject { connection, key, first, _claim: claim, whole: OnceLock::new() }
    }

    /// Copies a range from memory or the disk cache, or from a transfer of this version.
    fn copy(&self, range: &Range<u64>, out: &mut [u8]) -> bool {
        if self.first.copy(range.start, out) {
            return true;
        }
        if let Some(bytes) = self.in_memory(range) {
            out.copy_from_slice(bytes);
            return true;
        }
        let claim = self.connection.ahead.find(&self.key, &Wanted::Range(range.clone()));
        let Some(Outcome::Here(first)) = claim.as_ref().map(|claim| claim.span.wait()) else {
            return false;
        };
        version(&first.meta) == self.version() && first.copy(range.start, out)
    }

    /// Returns the error of a read. If the object has another version now, later readers get that one.
    fn failed(&self, failure: RequestFailure) -> Error {
        if let RequestFailure::Changed = failure {
            self.connection.ahead.forget(|key| key == self.key);
        }
        failure.at(&self.key, "read")
    }

    /// Copies fetched bytes to a range.
    fn take(&self, fetched: Fetched, range: &Range<u64>, out: &mut [u8]) -> Result<()> {
        if version(&fetched.meta) != self.version() {
            return Err(self.failed(RequestFailure::Changed));
        }
        match fetched.part(range) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(RequestFailure::OutOfRange.at(&self.key, "read")),
        }
        if fetched.start == 0 && fetched.bytes.len() as u64 == self.first.meta.size {
            let _ = self.whole.set(fetched.bytes);
        }
        Ok(())
    }
}

impl Object for RemoteObject {
    fn version(&self) -> ObjectVersion {
        version(&self.first.meta)
    }

    fn size_bytes(&self) -> u64 {
        self.first.meta.size
    }

    fn modified(&self) -> Option<SystemTime> {
        Some(SystemTime::from(self.first.meta.last_modified))
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let range = offset..offset.saturating_add(out.len() as u64);
        if range.end > self.size_bytes() {
            return Err(RequestFailure::OutOfRange.at(&self.key, "read"));
        }
        if self.copy(&range, out) {
            return Ok(());
        }
        let mut pieces: Vec<(u64, &mut [u8])> = Vec::new();
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let length = rest.len().min(PIECE_BYTES as usize);
            let (piece, after) = rest.split_at_mut(length);
            pieces.push((at, piece));
            (at, rest) = (at + length as u64, after);
        }
        self.read_ranges(&mut pieces)
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let failed = |failure: RequestFailure| self.failed(failure);
        let mut missing: Vec<(Range<u64>, &mut [u8])> = Vec::new();
        for (offset, out) in ranges {
            let range = *offset..offset.saturating_add(out.len() as u64);
            if range.end > self.size_bytes() {
                return Err(failed(RequestFailure::OutOfRange));
            }
            if !self.copy(&range, out) {
                missing.push((range, out));
            }
        }
        let path = self.connection.path(&self.key).map_err(failed)?;
        let version = &self.first.meta;
        if let [(range, out)] = missing.as_mut_slice() {
            let fetched =
                self.connection.fetch(&Request::range(&path, range.clone(), version)).map_err(failed)?;
            return self.take(fetched, range, out);
        }
        let (origin, stall_time) =
            (self.connection.transfers.origin(), self.connection.transfers.stall_time());
        let fetches = missing.iter().map(|(range, _)| Request::range(&path, range.clone(), version));
        let fetches = fetches.map(|request| async move { origin.fetch(&request, stall_time).await });
        let fetched = self.connection.transfers.wait_all(fetches).map_err(failed)?;
        for ((range, out), fetched) in missing.into_iter().zip(fetched) {
            self.take(fetched.map_err(failed)?, &range, out)?;
        }
        Ok(())
    }

    fn in_memory(&self, range: &Range<u64>) -> Option<&[u8]> {
        self.first.in_memory(range).or_else(|| {
            let whole = self.whole.get()?;
            whole.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
        })
    }

    fn whole(&self) -> Option<Arc<Buffer>> {
        self.first.whole()
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        let bytes = self.in_memory(&(offset..offset.saturating_add(out.len() as u64)));
        bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }
}
