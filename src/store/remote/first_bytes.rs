//! The bytes with which an object is opened, in memory or on the disk.
//!
//! Uses `store/disk_cache` and its neighbours in `store/remote`.

use std::ops::Range;
use std::sync::Arc;

use object_store::ObjectMeta;

use super::transfer::Fetched;
use crate::memory::Buffer;
use crate::store::DiskCache;
use crate::store::disk_cache::CachedBytes;

/// The bytes with which an object is opened, in memory or on the disk.
pub(super) struct FirstBytes {
    /// Size, ETag and time of the object.
    pub meta: ObjectMeta,
    /// The range of the bytes.
    pub range: Range<u64>,
    place: FirstBytesPlace,
}

enum FirstBytesPlace {
    Memory(Arc<Buffer>),
    /// A cache entry, which may be gone or damaged.
    Disk(Arc<DiskCache>, Box<CachedBytes>),
}

impl From<Fetched> for FirstBytes {
    fn from(fetched: Fetched) -> Self {
        let Fetched { meta, start, bytes } = fetched;
        FirstBytes { meta, range: start..start + bytes.len() as u64, place: FirstBytesPlace::Memory(bytes) }
    }
}

impl FirstBytes {
    /// Returns an entry of a disk cache, which is read when its bytes are needed.
    pub(super) fn on_disk(meta: ObjectMeta, disk: &Arc<DiskCache>, entry: CachedBytes) -> Self {
        FirstBytes {
            meta,
            range: entry.range.clone(),
            place: FirstBytesPlace::Disk(Arc::clone(disk), Box::new(entry)),
        }
    }

    /// Fills `out` from an offset in the object. Returns `false` if some of the bytes are missing.
    pub(super) fn copy(&self, offset: u64, out: &mut [u8]) -> bool {
        match &self.place {
            FirstBytesPlace::Memory(_) => {
                let bytes = self.in_memory(&(offset..offset.saturating_add(out.len() as u64)));
                bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
            }
            FirstBytesPlace::Disk(disk, found) => disk.read_at(found, offset, out),
        }
    }

    /// Returns the bytes of a range, if they are in memory.
    pub(super) fn in_memory(&self, range: &Range<u64>) -> Option<&[u8]> {
        let FirstBytesPlace::Memory(bytes) = &self.place else { return None };
        let from = usize::try_from(range.start.checked_sub(self.range.start)?).ok()?;
        let to = usize::try_from(range.end.checked_sub(self.range.start)?).ok()?;
        bytes.get(from..to)
    }

    /// Returns all bytes of the object, if they are in memory.
    pub(super) fn whole(&self) -> Option<Arc<Buffer>> {
        let FirstBytesPlace::Memory(bytes) = &self.place else { return None };
        (self.range == (0..self.meta.size)).then(|| Arc::clone(bytes))
    }
}
