//! The bytes of an object that is put, assembled from parts.
//!
//! Uses its neighbours in `store`, and `error`. object_store has no request that copies a range between objects at the service,
//! so copied bytes are transferred to this machine and back.

use std::io;
use std::ops::Range;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::store::{Object, ObjectPart};

/// An object's content.
pub(super) struct Body<'a> {
    parts: &'a [ObjectPart<'a>],
    size_bytes: u64,
}

/// A range of another object, and its place in the result.
struct CopiedRange<'a> {
    object: &'a dyn Object,
    offset: u64,
    place: Range<usize>,
}

impl<'a> Body<'a> {
    /// Creates a body of these parts, one after the other.
    pub(super) fn new(parts: &'a [ObjectPart<'a>]) -> Self {
        Body { parts, size_bytes: parts.iter().map(ObjectPart::size_bytes).sum() }
    }

    /// Returns the size of the body.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Assembles the bytes of a range.
    pub(super) fn assemble(&self, wanted: Range<u64>, key: &str) -> Result<Vec<u8>> {
        let out_of_memory = || Error::store(key, "write", io::Error::from(io::ErrorKind::OutOfMemory));
        let length = usize::try_from(wanted.end - wanted.start).map_err(|_| out_of_memory())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| out_of_memory())?;
        let mut copies: Vec<CopiedRange<'_>> = Vec::new();
        let mut start = 0;
        for part in self.parts {
            let end = start + part.size_bytes();
            let inside = wanted.start.max(start) - start..wanted.end.min(end).max(start) - start;
            start = end;
            if inside.start >= inside.end {
                continue;
            }
            let place = bytes.len()..bytes.len() + (inside.end - inside.start) as usize;
            match part {
                ObjectPart::Bytes(part) => {
                    bytes.extend_from_slice(&part[inside.start as usize..inside.end as usize]);
                }
                ObjectPart::Copy(object, range) => {
                    bytes.resize(place.end, 0);
                    let copy = CopiedRange { object: *object, offset: range.start + inside.start, place };
                    match copies.last_mut() {
                        Some(last) if last.continues_with(&copy) => last.place.end = copy.place.end,
                        _ => copies.push(copy),
                    }
                }
            }
        }
        read(&copies, &mut bytes)?;
        Ok(bytes)
    }
}

impl CopiedRange<'_> {
    fn is_of_same_object(&self, next: &CopiedRange<'_>) -> bool {
        std::ptr::addr_eq(self.object, next.object)
    }

    /// Whether the next range follows this one in the object and in the result.
    fn continues_with(&self, next: &CopiedRange<'_>) -> bool {
        let is_next = self.place.end == next.place.start
            && self.offset + (self.place.end - self.place.start) as u64 == next.offset;
        is_next && self.is_of_same_object(next)
    }
}

/// Reads the copied ranges into their places, with one call for each object.
fn read(copies: &[CopiedRange<'_>], bytes: &mut [u8]) -> Result<()> {
    let (mut rest, mut at) = (bytes, 0);
    for copies in copies.chunk_by(|copy, next| copy.is_of_same_object(next)) {
        let Some(CopiedRange { object, .. }) = copies.first() else { continue };
        let mut ranges = Vec::with_capacity(copies.len());
        for CopiedRange { offset, place, .. } in copies {
            let (_, from_here) = rest.split_at_mut(place.start - at);
            let (out, after) = from_here.split_at_mut(place.end - place.start);
            ranges.push((*offset, out));
            (rest, at) = (after, place.end);
        }
        object.read_ranges(&mut ranges)?;
    }
    Ok(())
}

/// A limit on the memory of bodies that are being sent.
pub(in crate::store::remote) struct BodyMemory {
    free_bytes: Mutex<u64>,
    freed: Condvar,
    limit_bytes: u64,
}

/// Memory in use until this is dropped.
pub(super) struct BodyMemoryUse<'a> {
    memory: &'a BodyMemory,
    bytes: u64,
}

impl BodyMemory {
    /// Creates a limit of this size.
    pub(super) fn new(limit_bytes: u64) -> Self {
        BodyMemory { free_bytes: Mutex::new(limit_bytes), freed: Condvar::new(), limit_bytes }
    }

    /// Waits until there is enough memory. A body that is larger than the limit gets all of it. Callers hold nothing that
    /// others wait for.
    pub(super) fn take(&self, bytes: u64) -> BodyMemoryUse<'_> {
        let bytes = bytes.min(self.limit_bytes);
        let mut free = self.free_bytes.lock();
        while *free < bytes {
            self.freed.wait(&mut free);
        }
        *free -= bytes;
        BodyMemoryUse { memory: self, bytes }
    }
}

impl Drop for BodyMemoryUse<'_> {
    fn drop(&mut self) {
        *self.memory.free_bytes.lock() += self.bytes;
        self.memory.freed.notify_all();
    }
}
