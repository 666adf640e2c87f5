//! What a service said of names: which there are in a folder. Uses its neighbours.
//!
//! A listing also says of everything that is not in it that it is missing, so offline a sparse array reads as it is, without a mark for
//! each of its chunks. Not of names that begin with a dot: some web servers hide those. A listing is written before its reader has it,
//! so that what becomes known later can be compared with it.

use std::io;
use std::sync::Arc;

use super::DiskCache;
use super::entry::{self, Entry, MAX_ENTRY_BYTES};
use super::facts::{Presence, Seen, overtaken};
use super::filler::NewEntry;
use super::folder_names::{Names, StoredListing};
use super::name::{ObjectName, Part};
use crate::memory::Buffer;

impl DiskCache {
    /// Whether an object or a listing is not named where it would be: in the nearest folder with a listing.
    pub(super) fn is_unlisted(&self, object: &ObjectName) -> bool {
        for above in object.above() {
            // Without a listing of its own, a folder may be missing itself.
            let Some(listing) = self.stored_listing(&above.listing) else { continue };
            let is_hidden = above.name.starts_with('.');
            return !is_hidden && !listing.is_former && !listing.names.has(above.is_object, above.name);
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
        if let Some(known) = self.listings.get(&found.path) {
            return Some(known);
        }
        let Some((header, bytes)) = entry::read(&found.path).ok()? else {
            self.drop_damaged(&found.path);
            return None;
        };
        let names = Arc::new(Names::decode(&bytes).filter(|_| header.object == *listing)?);
        let is_former = is_former(&found);
        let stored = StoredListing { names, times: found.name.times, is_former };
        self.listings.put(found.path, stored.clone());
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
