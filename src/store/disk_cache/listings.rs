//! What a service said of names: which there are in a folder. Uses its neighbours.
//!
//! A listing also says of everything that is not in it that it is missing, so offline a sparse array reads as it is, without a mark for
//! each of its chunks. Not of names that begin with a dot: some web servers hide those. A listing is written before its reader has it,
//! so that what becomes known later can be compared with it.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::filler::{Entry, NewEntry};
use super::knowledge::{Presence, Seen};
use super::name::{ObjectName, Part, Times};
use super::{DiskCache, MAX_ENTRY_BYTES, entry};
use crate::memory::Buffer;

/// How many listings are in memory: those above one object.
const MAX_LISTINGS: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

/// The names in a folder, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names with something below them.
    pub folders: Vec<String>,
    /// Names of objects.
    pub objects: Vec<String>,
}

/// A listing as it was kept.
#[derive(Clone)]
pub(super) struct StoredListing {
    pub names: Arc<Names>,
    pub times: Times,
    /// It is true of its time only: something else became known of some of its names.
    pub is_former: bool,
}

/// Listings by the paths of their entries, whose names say when they were known.
pub(super) struct Listings(Mutex<LruCache<PathBuf, StoredListing>>);

impl Default for Listings {
    fn default() -> Self {
        Listings(Mutex::new(LruCache::new(MAX_LISTINGS)))
    }
}

impl Names {
    /// Names in any order.
    pub fn new(folders: Vec<String>, objects: Vec<String>) -> Self {
        let mut names = Names { folders, objects };
        names.folders.sort_unstable();
        names.objects.sort_unstable();
        names
    }

    /// As an entry has them.
    pub(super) fn encode(&self) -> String {
        json!({ "folders": self.folders, "objects": self.objects }).to_string()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let texts = |member: &str| {
            let names = value.get(member)?.as_array()?.iter();
            names.map(|name| Some(name.as_str()?.to_owned())).collect::<Option<Vec<_>>>()
        };
        Some(Names::new(texts("folders")?, texts("objects")?))
    }

    /// Whether an object, or a folder, has this name.
    pub(super) fn has(&self, is_object: bool, name: &str) -> bool {
        let sorted = if is_object { &self.objects } else { &self.folders };
        sorted.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }
}

impl DiskCache {
    /// Whether an object or a listing is not named where it would be: in the nearest folder with a listing.
    pub(super) fn is_unlisted(&self, object: &ObjectName) -> bool {
        for above in object.above() {
            if above.name.starts_with('.') {
                return false;
            }
            if let Some(listing) = self.stored_listing(&above.listing) {
                return !listing.is_former && !listing.names.has(above.is_object, above.name);
            }
        }
        false
    }

    /// The names in a folder, as far as they are known without the service. None, if nothing is there.
    pub fn listing(&self, folder: &ObjectName) -> Option<Names> {
        let listing = folder.listing();
        match self.presence(&listing) {
            Presence::There => {
                let stored = self.stored_listing(&listing).filter(|stored| !stored.is_former)?;
                Some(Names::clone(&stored.names))
            }
            Presence::Missing => Some(Names::default()),
            Presence::Unknown => None,
        }
    }

    pub(super) fn stored_listing(&self, listing: &ObjectName) -> Option<StoredListing> {
        let entries = self.entries_of(&listing.digest()).ok()?;
        let is_listing = |entry: &Entry| matches!(entry.name.part, Part::Listing { .. });
        let is_former = |entry: &Entry| matches!(entry.name.part, Part::FormerListing { .. });
        let found = entries.iter().position(is_listing).or_else(|| entries.iter().rposition(is_former))?;
        let found = entries.into_iter().nth(found)?;
        if let Some(known) = self.listings.0.lock().get(&found.path) {
            return Some(known.clone());
        }
        let Some((header, bytes)) = entry::read(&found.path).ok()? else {
            self.drop_damaged(&found.path);
            return None;
        };
        let names = Arc::new(Names::decode(&bytes).filter(|_| header.object == *listing)?);
        let is_former = is_former(&found);
        let stored = StoredListing { names, times: found.name.times, is_former };
        self.listings.0.lock().put(found.path, stored.clone());
        Some(stored)
    }

    /// Keeps the names in a folder, which were asked for at `asked`. Returns when they are written, or cannot be.
    pub fn keep_listing(&self, folder: &ObjectName, names: Names, asked: u64) -> io::Result<()> {
        let object = folder.listing();
        let old = self.stored_listing(&object);
        let text = names.encode();
        if text.len() as u64 > MAX_ENTRY_BYTES {
            self.learn(&object, &Seen::Changed, asked)?;
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the folder has too many names"));
        }
        let part = Part::listing(&text);
        let times = self.learn(&object, &Seen::Names(names.clone()), asked)?;
        if let Some(old) = old.filter(|old| *old.names != names) {
            self.drop_bytes_between(&object, &old, &names)?;
        }
        let bytes = Arc::new(Buffer::from(text.into_bytes()));
        self.filler.write(&NewEntry { object, part, times: times.ok_or_else(overtaken)?, meta: None, bytes })
    }
}

/// Why nothing is kept of what may be outdated.
pub fn overtaken() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "something else became known of it meanwhile: try it again")
}
