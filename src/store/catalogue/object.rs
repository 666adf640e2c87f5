//! An object of a member: its errors name the key in the catalogue. Uses the traits of `store`.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::{Info, Object, ObjectVersion};

/// An object, and the path of its store's root in the catalogue.
pub(super) struct MemberObject {
    pub object: Box<dyn Object>,
    pub root: Arc<str>,
}

impl MemberObject {
    fn named(&self, error: Error) -> Error {
        error.below(&self.root)
    }
}

impl Object for MemberObject {
    fn version(&self) -> ObjectVersion {
        self.object.version()
    }

    fn size_bytes(&self) -> u64 {
        self.object.size_bytes()
    }

    fn modified(&self) -> Option<SystemTime> {
        self.object.modified()
    }

    fn info(&self) -> Info {
        self.object.info()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.object.read_exact_at(offset, out).map_err(|error| self.named(error))
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.object.read_ranges(ranges).map_err(|error| self.named(error))
    }

    fn in_memory(&self, range: &Range<u64>) -> Option<&[u8]> {
        self.object.in_memory(range)
    }

    fn whole(&self) -> Option<Arc<Buffer>> {
        self.object.whole()
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        self.object.try_read_at(offset, out)
    }

    fn file(&self) -> Option<&File> {
        self.object.file()
    }
}
