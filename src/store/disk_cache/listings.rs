//! Cached listings: the names in a folder. Uses its neighbours.
//!
//! A listing also says that every name that is not in it is missing, so a sparse array can be read offline without a mark for
//! each missing chunk. This does not hold for names that begin with a dot, which some web servers hide. A listing is written
//! before its reader gets it, so that later facts can be compared with it.

use std::io;
use std::sync::Arc;

use super::DiskCache;
use super::entry::{self, DiskEntry, MAX_ENTRY_BYTES};
use super::facts::{Observation, Presence, overtaken};
use super::filler::NewEntry;
use super::folder_names::{FolderNames, StoredListing};
use super::name::{EntryContent, ObjectName};
use crate::memory::Buffer;

impl DiskCache {
    /// Whether the nearest listing above an object or a folder does not name it.
    pub(super) fn is_unlisted(&self, object: &ObjectName) -> bool {
        for above in object.above() {
            // A folder without a listing may be missing itself.
            let Some(listing) = self.stored_listing(&above.listing) else { continue };
            let is_hidden = above.name.starts_with('.');
            return !is_hidden && !listing.is_former && !listing.names.has(above.is_object, above.name);
        }
        false
    }

    /// Returns the names in a folder, if they are known without the service. A missing folder has no names.
    pub fn listing(&self, folder: &ObjectName) -> Option<FolderNames> {
        let listing = folder.listing();
        match self.presence(&listing) {
            Presence::There => {
                let stored = self.stored_listing(&listing).filter(|stored| !stored.is_former)?;
                Some(FolderNames::clone(&stored.names))
            }
            Presence::Missing => Some(FolderNames::default()),
            Presence::Unknown => None,
        }
    }

    pub(super) fn stored_listing(&self, listing: &ObjectName) -> Option<StoredListing> {
        let entries = self.entries_for(&listing.digest()).ok()?;
        let is_listing = |entry: &DiskEntry| matches!(entry.name.part, EntryContent::Listing { .. });
        let is_former = |entry: &DiskEntry| matches!(entry.name.part, EntryContent::FormerListing { .. });
        let found = entries.iter().position(is_listing).or_else(|| entries.iter().rposition(is_former))?;
        let found = entries.into_iter().nth(found)?;
        if let Some(known) = self.listings.get(&found.path) {
            return Some(known);
        }
        let Some((header, bytes)) = entry::read(&found.path).ok()? else {
            self.drop_damaged(&found.path);
            return None;
        };
        let names = Arc::new(FolderNames::decode(&bytes).filter(|_| header.object == *listing)?);
        let is_former = is_former(&found);
        let stored = StoredListing { names, times: found.name.times, is_former };
        self.listings.put(found.path, stored.clone());
        Some(stored)
    }

    /// Caches the names in a folder, which were requested at `asked`. Returns after they were written or could not be.
    pub fn keep_listing(&self, folder: &ObjectName, names: FolderNames, asked: u64) -> io::Result<()> {
        let object = folder.listing();
        let old = self.stored_listing(&object);
        let text = names.encode();
        if text.len() as u64 > MAX_ENTRY_BYTES {
            self.learn(&object, &Observation::Changed, asked)?;
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the folder has too many names"));
        }
        let part = EntryContent::listing(&text);
        let times = self.learn(&object, &Observation::Names(names.clone()), asked)?;
        if let Some(old) = old.filter(|old| *old.names != names) {
            self.drop_bytes_between(&object, &old, &names)?;
        }
        let bytes = Arc::new(Buffer::from(text.into_bytes()));
        self.filler.write(&NewEntry { object, part, times: times.ok_or_else(overtaken)?, meta: None, bytes })
    }
}
