//! A chunk of a virtual array, as an object of the store.
//!
//! Uses `virtual_array.rs`, `read.rs` and `store`. A chunk is contiguous in the flat file of its array; what lies past the end of the
//! array in it is fill value. Invariant: all reads of an object are of the layout of targets with which it was opened.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use super::read::StackReader;
use super::targets::OpenTargets;
use super::virtual_array::VirtualArray;
use crate::array::{Blocking, Engine};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::store::{Object, ObjectVersion};

/// An open chunk.
pub struct VirtualChunk {
    /// Its array.
    pub array: Arc<VirtualArray>,
    /// Its targets.
    pub targets: Arc<OpenTargets>,
    /// What opens them.
    pub engine: Arc<Engine>,
    /// Its key.
    pub key: String,
    /// Its place in the flat file of the array.
    pub range: Range<u64>,
    /// Its size: what follows its range is fill value.
    pub size_bytes: u64,
    /// Its version.
    pub version: ObjectVersion,
    /// When it was changed.
    pub modified: Option<SystemTime>,
}

impl VirtualChunk {
    fn read(&self, offset: u64, out: &mut [u8], blocking: Blocking) -> Result<bool> {
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= self.size_bytes);
        if end.is_none() {
            let short = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(Error::store(&self.key, "read", short));
        }
        let start = self.range.start.saturating_add(offset).min(self.range.end);
        let length = (self.range.end - start).min(out.len() as u64) as usize;
        let (elements, padding) = out.split_at_mut(length);
        let fill = self.array.fill_value();
        for (place, byte) in padding.iter_mut().enumerate() {
            let place = (offset as usize).wrapping_add(length).wrapping_add(place) % fill.len().max(1);
            *byte = fill.get(place).copied().unwrap_or_default();
        }
        let cancellation = Cancellation::never();
        let reader = StackReader {
            targets: &self.targets,
            engine: &self.engine,
            key: &self.key,
            blocking,
            cancellation: &cancellation,
        };
        reader.read_flat(self.array.part(), start, elements)
    }
}

impl Object for VirtualChunk {
    fn version(&self) -> ObjectVersion {
        self.version
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if self.read(offset, out, Blocking::Yes)? {
            return Ok(());
        }
        // Only a read that must not wait may end without its bytes.
        Err(Error::corrupt(&self.key, "a target gave fewer elements than it has"))
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        matches!(self.read(offset, out, Blocking::No), Ok(true))
    }
}
