//! Open objects of references: bytes in memory, or a range of another store's object.
//!
//! Uses `error` and the contract of stores.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::store::readers::Readers;
use crate::store::{Object, ObjectVersion, Posix, Wanted, copy_range, without_secrets};

/// An object whose bytes are in the references themselves.
pub(in crate::store) struct InlineObject {
    key: String,
    bytes: Vec<u8>,
    version: ObjectVersion,
    modified: Option<SystemTime>,
}

impl InlineObject {
    pub(in crate::store) fn new(key: &str, bytes: Vec<u8>, modified: Option<SystemTime>) -> Self {
        let version = ObjectVersion::hashed(("inline", &bytes));
        InlineObject { key: key.to_owned(), bytes, version, modified }
    }

    /// Sets the version.
    #[cfg(feature = "icechunk")]
    pub(in crate::store) fn with_version(self, version: ObjectVersion) -> Self {
        InlineObject { version, ..self }
    }
}

impl Object for InlineObject {
    fn version(&self) -> ObjectVersion {
        self.version
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        copy_range(&self.bytes, offset, out, &self.key)
    }

    fn in_memory(&self, range: &Range<u64>) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        self.read_exact_at(offset, out).is_ok()
    }
}

/// Returns the range of a target that a reference names; all of it if it names none. Fails if the target does not have it.
pub(in crate::store) fn checked(
    key: &str,
    url: &str,
    range: Option<&Range<u64>>,
    size_bytes: u64,
) -> Result<Range<u64>> {
    match range {
        None => Ok(0..size_bytes),
        Some(range) if range.start <= range.end && range.end <= size_bytes => Ok(range.clone()),
        Some(range) => Err(Error::corrupt(
            key,
            format!(
                "it refers to the bytes {} to {} of {}, which has {size_bytes}: make the references again",
                range.start,
                range.end,
                without_secrets(url)
            ),
        )),
    }
}

/// Returns the version of a range of an object.
pub(in crate::store) fn version(target: &ObjectVersion, range: &Range<u64>) -> ObjectVersion {
    ObjectVersion::hashed(("reference", target, range))
}

/// A range of an object, as an object.
pub(in crate::store) struct ObjectRange {
    key: String,
    url: String,
    object: Box<dyn Object>,
    range: Range<u64>,
    version: ObjectVersion,
}

impl ObjectRange {
    pub(in crate::store) fn new(
        key: &str,
        url: &str,
        object: Box<dyn Object>,
        range: Option<Range<u64>>,
    ) -> Result<Self> {
        let range = checked(key, url, range.as_ref(), object.size_bytes())?;
        let version = version(&object.version(), &range);
        Ok(ObjectRange { key: key.to_owned(), url: url.to_owned(), object, range, version })
    }

    /// Sets the version, if it does not follow from the object's.
    #[cfg(feature = "icechunk")]
    pub(in crate::store) fn with_version(self, version: ObjectVersion) -> Self {
        ObjectRange { version, ..self }
    }

    /// Returns the offset of a range in the object; `None` past the end.
    fn offset(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.range.end - self.range.start).then_some(self.range.start + offset)
    }

    fn past_end(&self) -> Error {
        Error::store(&self.key, "read", io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

impl Object for ObjectRange {
    fn version(&self) -> ObjectVersion {
        self.version
    }

    fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn modified(&self) -> Option<SystemTime> {
        self.object.modified()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let Some(place) = self.offset(offset, out.len() as u64) else { return Err(self.past_end()) };
        self.object.read_exact_at(place, out).map_err(|error| target_error(&self.key, &self.url, error))
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let mut placed = Vec::with_capacity(ranges.len());
        for (offset, out) in ranges {
            let Some(place) = self.offset(*offset, out.len() as u64) else { return Err(self.past_end()) };
            placed.push((place, &mut **out));
        }
        self.object.read_ranges(&mut placed).map_err(|error| target_error(&self.key, &self.url, error))
    }

    fn in_memory(&self, range: &Range<u64>) -> Option<&[u8]> {
        let length = range.end.checked_sub(range.start)?;
        let place = self.offset(range.start, length)?;
        self.object.in_memory(&(place..place + length))
    }

    fn whole(&self) -> Option<Arc<Buffer>> {
        if self.range == (0..self.object.size_bytes()) { self.object.whole() } else { None }
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        self.offset(offset, out.len() as u64).is_some_and(|place| self.object.try_read_at(place, out))
    }
}

/// Returns owner and mode of the referring file, without users who may not read the target.
pub(in crate::store) fn narrowed(own: Option<Posix>, target: Option<Posix>) -> Option<Posix> {
    match (own, target) {
        (Some(own), Some(target)) => {
            let mode = Readers::for_posix(&own).that_may_read(&Readers::for_posix(&target)).mode;
            Some(Posix { mode, file: None, ..own })
        }
        (own, target) => own.or(target.map(|posix| Posix { file: None, ..posix })),
    }
}

/// Returns EACCES with a message.
pub(in crate::store) fn refused(key: &str, sentence: String) -> Error {
    Error::store(key, "open", io::Error::new(io::ErrorKind::PermissionDenied, sentence))
}

/// Returns the error of a missing target.
pub(in crate::store) fn missing(key: &str, url: &str) -> Error {
    Error::store(
        key,
        "open",
        io::Error::other(format!("the file that it refers to is missing: {}", without_secrets(url))),
    )
}

/// Converts an error of a target to one of the key that refers to it.
pub(in crate::store) fn target_error(key: &str, url: &str, error: Error) -> Error {
    let (key, url) = (key.to_owned(), without_secrets(url));
    match error {
        Error::Store { operation, source, .. } => {
            let reason = io::Error::new(source.kind(), format!("{url}: {source}"));
            Error::store(key, operation, reason)
        }
        Error::Stale { .. } => Error::Stale { key },
        Error::TimedOut { .. } => Error::TimedOut { key },
        Error::Cancelled { .. } => Error::Cancelled { key },
        Error::Unsupported { reason, .. } => Error::unsupported(key, format!("{url}: {reason}")),
        Error::TooLarge { reason, .. } => Error::TooLarge { key, reason: format!("{url}: {reason}") },
        other => Error::corrupt(key, format!("{url}: {other}")),
    }
}

/// Returns the requested bytes of a reference as bytes of its target.
pub(in crate::store) fn range_in_target(wanted: &Wanted, range: Option<&Range<u64>>) -> Wanted {
    let Some(range) = range else { return wanted.clone() };
    let length = range.end - range.start;
    let (from, to) = match wanted {
        Wanted::Whole { .. } => (0, length),
        Wanted::Range(part) => (part.start.min(length), part.end.min(length)),
        Wanted::Last(count) => (length - length.min(*count), length),
    };
    Wanted::Range(range.start + from..range.start + to.max(from))
}
