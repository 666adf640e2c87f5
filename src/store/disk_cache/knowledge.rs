//! Recording what a reply or a write says about an object, and removing entries that contradict it. Uses its neighbours.
//!
//! This file and `listings.rs` decide whether the cache may serve something without the service. A reply is recorded before its
//! reader gets it, and a write before and after it is sent: entries that contradict them are gone by then, so a process that
//! dies leaves nothing old behind. The bytes are cached later, or not at all (`filler.rs`).

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::DiskCache;
use super::clock::{LockedClock, UNKNOWN};
use super::entry::{DiskEntry, parts};
use super::facts::{Observation, Presence, fact};
use super::folder_names::{FolderNames, StoredListing};
use super::name::{EntryContent, EntryTimes, ObjectName, ParentListing, entry_folder};
use super::space::OBJECTS;

/// Returns the path of an object in the folder of a listing. The path of the folder ends with a slash.
fn join(listing: &str, name: &str) -> String {
    if listing == "/" { name.to_owned() } else { format!("{listing}{name}") }
}

impl DiskCache {
    /// Returns the time for a request that is about to be sent.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Records what the reply to a request that was sent at `asked` says. Entries that contradict it are gone when this
    /// returns. The result is for the bytes of the reply. It is `None` if something became known about the object since the
    /// request was sent, so that it is not certain which is newer: then nothing is cached.
    pub fn learn(
        &self,
        object: &ObjectName,
        seen: &Observation,
        asked: u64,
    ) -> io::Result<Option<EntryTimes>> {
        let digest = object.digest();
        let part = seen.part();
        let fact = part.as_ref().map_or(UNKNOWN, fact);
        let mut turn = self.clock.turn()?;
        let says_the_same =
            |entry: &DiskEntry| part.as_ref().is_some_and(|part| part.says_the_same(&entry.name.part));
        let (same, others): (Vec<DiskEntry>, Vec<DiskEntry>) =
            self.entries_for(&digest)?.into_iter().partition(says_the_same);
        let is_known = others.is_empty() && (!same.is_empty() || turn.is_last(&digest, fact)?);
        let is_kept = is_known || (part.is_some() && turn.is_newest(&digest, asked)?);
        let known = if is_known {
            turn.advance()?
        } else {
            turn.learned(&digest, if is_kept { fact } else { UNKNOWN })?
        };
        self.remove_all(&others)?;
        if !is_kept {
            self.remove_all(&same)?;
        }
        if let Some(is_there) = seen.is_there() {
            self.correct_listings(&mut turn, object, is_there)?;
        }
        Ok(is_kept.then_some(EntryTimes { asked, known }))
    }

    /// Records that, as the service says, an object is still what the cache has.
    pub fn confirm(&self, object: &ObjectName) -> io::Result<()> {
        for above in object.above().filter(|above| !above.name.starts_with('.')) {
            if self.is_wrong(&above, true) {
                return self.correct_listings(&mut self.clock.turn()?, object, true);
            }
        }
        Ok(())
    }

    /// Drops what the cache knows about an object that a program of this machine puts or deletes, and demotes listings that
    /// contradict the change. It is called before the request is sent, because its reply may never come, and after the reply,
    /// because others may have asked meanwhile.
    pub fn outdate(&self, object: &ObjectName, is_there: bool) -> io::Result<()> {
        #[cfg(test)]
        if self.filler.is_abandoned() {
            // A process that was killed does not get here.
            return Ok(());
        }
        let digest = object.digest();
        let mut turn = self.clock.turn()?;
        turn.learned(&digest, UNKNOWN)?;
        let outdated = self.entries_for(&digest)?;
        self.remove_all(&outdated)?;
        if !outdated.is_empty() {
            self.sync_names(&digest)?;
        }
        for above in object.above() {
            let digest = above.listing.digest();
            // A listing that is being requested may be older than the change.
            turn.learned(&digest, UNKNOWN)?;
            if self.is_wrong(&above, is_there) {
                self.demote(&digest)?;
                self.sync_names(&digest)?;
            }
        }
        Ok(())
    }

    /// Whether a listing contradicts the presence of a name.
    fn is_wrong(&self, above: &ParentListing<'_>, is_there: bool) -> bool {
        let listing = self.stored_listing(&above.listing).filter(|listing| !listing.is_former);
        listing.is_some_and(|listing| listing.names.has(above.is_object, above.name) != is_there)
    }

    /// Makes a listing a former one: it stays true of its time, so that entries older than it do not count again.
    fn demote(&self, digest: &str) -> io::Result<()> {
        for entry in self.entries_for(digest)? {
            let Some(former) = entry.name.former() else { continue };
            match std::fs::rename(&entry.path, entry.path.with_file_name(former.text(digest))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Demotes the listings that contradict a newer fact about an object.
    fn correct_listings(
        &self,
        turn: &mut LockedClock<'_>,
        object: &ObjectName,
        is_there: bool,
    ) -> io::Result<()> {
        for above in object.above() {
            if !is_there && !above.is_object {
                break;
            }
            // Some web servers list no names that begin with a dot.
            if is_there && above.name.starts_with('.') {
                continue;
            }
            if self.is_wrong(&above, is_there) {
                let digest = above.listing.digest();
                turn.learned(&digest, UNKNOWN)?;
                self.demote(&digest)?;
            }
        }
        Ok(())
    }

    /// Drops the bytes of objects that appeared or disappeared between two listings. Otherwise bytes older than a listing
    /// without the object would be served again after a later listing has the name of a new object.
    pub(super) fn drop_bytes_between(
        &self,
        folder: &ObjectName,
        old: &StoredListing,
        new: &FolderNames,
    ) -> io::Result<()> {
        let gone = old.names.objects.iter().filter(|name| !new.has(true, name));
        let come = new.objects.iter().filter(|name| !old.names.has(true, name));
        let limits = gone.map(|name| (name, u64::MAX)).chain(come.map(|name| (name, old.times.known)));
        for (name, before) in limits {
            let digest = ObjectName { store: folder.store.clone(), path: join(&folder.path, name) }.digest();
            let is_older = |entry: &DiskEntry| {
                matches!(entry.name.part, EntryContent::Bytes { .. }) && entry.name.times.asked < before
            };
            if self.entries_for(&digest)?.iter().any(is_older) {
                let mut turn = self.clock.turn()?;
                turn.learned(&digest, UNKNOWN)?;
                self.remove_all(&self.entries_for(&digest)?)?;
            }
        }
        Ok(())
    }

    /// Returns what is known about an object, from its entries or from listings above it.
    pub fn presence(&self, object: &ObjectName) -> Presence {
        let Ok(entries) = self.entries_for(&object.digest()) else { return Presence::Unknown };
        let is_former = |entry: &DiskEntry| matches!(entry.name.part, EntryContent::FormerListing { .. });
        let entries: Vec<DiskEntry> = entries.into_iter().filter(|entry| !is_former(entry)).collect();
        let is_missing = entries.iter().any(|entry| entry.name.part == EntryContent::Missing);
        // Entries of one object say the same, so the one that was known last counts.
        let times = entries.into_iter().map(|entry| entry.name.times).max_by_key(|times| times.known);
        let Some(times) = times else {
            return if self.is_unlisted(object) { Presence::Missing } else { Presence::Unknown };
        };
        for above in object.above().filter(|above| !above.name.starts_with('.')) {
            let Some(listing) = self.stored_listing(&above.listing) else { continue };
            let is_named = listing.names.has(above.is_object, above.name);
            let is_contradiction = if is_missing { is_named && above.is_object } else { !is_named };
            if is_contradiction && times.asked < listing.times.known {
                let is_newer = listing.times.asked >= times.known && !listing.is_former;
                return if is_newer && !is_missing { Presence::Missing } else { Presence::Unknown };
            }
        }
        if is_missing { Presence::Missing } else { Presence::There }
    }

    /// Returns the entries of an object.
    pub(super) fn entries_for(&self, digest: &str) -> io::Result<Vec<DiskEntry>> {
        parts(&self.root.join(OBJECTS).join(entry_folder(digest)), digest)
    }

    fn remove_all(&self, entries: &[DiskEntry]) -> io::Result<()> {
        entries.iter().try_for_each(|entry| self.space.remove(&entry.path))
    }

    /// Makes the removal of entries survive a power cut.
    fn sync_names(&self, digest: &str) -> io::Result<()> {
        let folder: PathBuf = self.root.join(OBJECTS).join(entry_folder(digest));
        File::open(folder)?.sync_all()
    }
}
