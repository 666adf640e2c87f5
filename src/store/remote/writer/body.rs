//! The bytes of an object that is put, assembled from their parts.
//!
//! Uses its neighbours in `store`, and `error`. object_store has no request that copies a range from one object to another at
//! the service, so bytes that are copied come here and go back.

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

/// Bytes of another object that belong at a place of the result.
struct Copy<'a> {
    object: &'a dyn Object,
    offset: u64,
    place: Range<usize>,
}

impl<'a> Body<'a> {
    /// These parts, one after the other.
    pub(super) fn new(parts: &'a [ObjectPart<'a>]) -> Self {
        Body { parts, size_bytes: parts.iter().map(ObjectPart::size_bytes).sum() }
    }

    /// How long it is.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The bytes of a range.
    pub(super) fn assemble(&self, wanted: Range<u64>, key: &str) -> Result<Vec<u8>> {
        let out_of_memory = || Error::store(key, "write", io::Error::from(io::ErrorKind::OutOfMemory));
        let length = usize::try_from(wanted.end - wanted.start).map_err(|_| out_of_memory())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| out_of_memory())?;
        let mut copies: Vec<Copy<'_>> = Vec::new();
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
                    let copy = Copy { object: *object, offset: range.start + inside.start, place };
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

impl Copy<'_> {
    fn is_of_same_object(&self, next: &Copy<'_>) -> bool {
        std::ptr::addr_eq(self.object, next.object)
    }

    /// Whether the other bytes follow these in their object and in the result.
    fn continues_with(&self, next: &Copy<'_>) -> bool {
        let is_next = self.place.end == next.place.start
            && self.offset + (self.place.end - self.place.start) as u64 == next.offset;
        is_next && self.is_of_same_object(next)
    }
}

/// Reads what is copied into its places, with one call for each object.
fn read(copies: &[Copy<'_>], bytes: &mut [u8]) -> Result<()> {
    let (mut rest, mut at) = (bytes, 0);
    for copies in copies.chunk_by(|copy, next| copy.is_of_same_object(next)) {
        let Some(Copy { object, .. }) = copies.first() else { continue };
        let mut ranges = Vec::with_capacity(copies.len());
        for Copy { offset, place, .. } in copies {
            let (_, from_here) = rest.split_at_mut(place.start - at);
            let (out, after) = from_here.split_at_mut(place.end - place.start);
            ranges.push((*offset, out));
            (rest, at) = (after, place.end);
        }
        object.read_ranges(&mut ranges)?;
    }
    Ok(())
}

/// Limits the memory of bodies that are being sent.
pub(in crate::store::remote) struct Memory {
    free_bytes: Mutex<u64>,
    freed: Condvar,
    limit_bytes: u64,
}

/// Memory in use, until this is dropped.
pub(super) struct InUse<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    /// Memory of this size.
    pub(super) fn new(limit_bytes: u64) -> Self {
        Memory { free_bytes: Mutex::new(limit_bytes), freed: Condvar::new(), limit_bytes }
    }

    /// Waits until there is so much; a body that is larger than all of it has it alone. Callers hold nothing that others wait
    /// for.
    pub(super) fn take(&self, bytes: u64) -> InUse<'_> {
        let bytes = bytes.min(self.limit_bytes);
        let mut free = self.free_bytes.lock();
        while *free < bytes {
            self.freed.wait(&mut free);
        }
        *free -= bytes;
        InUse { memory: self, bytes }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        *self.memory.free_bytes.lock() += self.bytes;
        self.memory.freed.notify_all();
    }
}
