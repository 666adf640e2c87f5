//! What a reply or a write says of an object, and what is no longer true then. Uses its neighbours.
//!
//! All that decides whether the cache may serve something without the service is here, and in `listings.rs`. A reply is learned before
//! its reader has it, and a write before and after it is sent: what they contradict is gone by then, so a process that dies leaves
//! nothing old behind. What is learned is kept later, or not at all (`filler.rs`).

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::DiskCache;
use super::clock::{Turn, UNKNOWN};
use super::entry::{Entry, parts};
use super::facts::{Presence, Seen, fact};
use super::folder_names::{Names, StoredListing};
use super::name::{Above, ObjectName, Part, Times, folder_of};
use super::space::OBJECTS;

/// The path of an object in the folder of a listing, whose path ends with a slash.
fn join(listing: &str, name: &str) -> String {
    if listing == "/" { name.to_owned() } else { format!("{listing}{name}") }
}

impl DiskCache {
    /// The time, for a request that is about to be sent.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Learns what the reply to a request says that was sent at `asked`. Entries that say something else are gone when this returns.
    /// The result is for what the reply brought; `None` if something became known of the object since the request was sent, so that
    /// nothing says which is newer: then nothing is kept of it.
    pub fn learn(&self, object: &ObjectName, seen: &Seen, asked: u64) -> io::Result<Option<Times>> {
        let digest = object.digest();
        let part = seen.part();
        let fact = part.as_ref().map_or(UNKNOWN, fact);
        let mut turn = self.clock.turn()?;
        let says_the_same =
            |entry: &Entry| part.as_ref().is_some_and(|part| part.says_the_same(&entry.name.part));
        let (same, others): (Vec<Entry>, Vec<Entry>) =
            self.entries_of(&digest)?.into_iter().partition(says_the_same);
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
        Ok(is_kept.then_some(Times { asked, known }))
    }

    /// The service says that an object still is what the cache has.
    pub fn confirm(&self, object: &ObjectName) -> io::Result<()> {
        for above in object.above().filter(|above| !above.name.starts_with('.')) {
            if self.is_wrong(&above, true) {
                return self.correct_listings(&mut self.clock.turn()?, object, true);
            }
        }
        Ok(())
    }

    /// Drops what the cache knows of an object that a program of this machine puts or deletes, and demotes listings that lack or have it. Before the request is
    /// sent, because its reply may never come; and when the reply is here, because others may have asked meanwhile.
    pub fn outdate(&self, object: &ObjectName, is_there: bool) -> io::Result<()> {
        let digest = object.digest();
        let mut turn = self.clock.turn()?;
        turn.learned(&digest, UNKNOWN)?;
        let outdated = self.entries_of(&digest)?;
        self.remove_all(&outdated)?;
        if !outdated.is_empty() {
            self.sync_names(&digest)?;
        }
        for above in object.above() {
            let digest = above.listing.digest();
            // A listing that is on its way may be older than the change.
            turn.learned(&digest, UNKNOWN)?;
            if self.is_wrong(&above, is_there) {
                self.demote(&digest)?;
                self.sync_names(&digest)?;
            }
        }
        Ok(())
    }

    /// Whether a listing says something else of a name.
    fn is_wrong(&self, above: &Above<'_>, is_there: bool) -> bool {
        let listing = self.stored_listing(&above.listing).filter(|listing| !listing.is_former);
        listing.is_some_and(|listing| listing.names.has(above.is_object, above.name) != is_there)
    }

    /// Makes a listing a former one: it stays true of its time, so that what is older than it does not count again.
    fn demote(&self, digest: &str) -> io::Result<()> {
        for entry in self.entries_of(digest)? {
            let Some(former) = entry.name.former() else { continue };
            match std::fs::rename(&entry.path, entry.path.with_file_name(former.text(digest))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Demotes the listings that are older than what became known of an object.
    fn correct_listings(&self, turn: &mut Turn<'_>, object: &ObjectName, is_there: bool) -> io::Result<()> {
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

    /// Drops the bytes of objects that came or went between two listings. What is older than a listing that lacks it would be served
    /// again where only a later one counts, which has the name of another object.
    pub(super) fn drop_bytes_between(
        &self,
        folder: &ObjectName,
        old: &StoredListing,
        new: &Names,
    ) -> io::Result<()> {
        let gone = old.names.objects.iter().filter(|name| !new.has(true, name));
        let come = new.objects.iter().filter(|name| !old.names.has(true, name));
        let limits = gone.map(|name| (name, u64::MAX)).chain(come.map(|name| (name, old.times.known)));
        for (name, before) in limits {
            let digest = ObjectName { store: folder.store.clone(), path: join(&folder.path, name) }.digest();
            let is_older = |entry: &Entry| {
                matches!(entry.name.part, Part::Bytes { .. }) && entry.name.times.asked < before
            };
            if self.entries_of(&digest)?.iter().any(is_older) {
                let mut turn = self.clock.turn()?;
                turn.learned(&digest, UNKNOWN)?;
                self.remove_all(&self.entries_of(&digest)?)?;
            }
        }
        Ok(())
    }

    /// What is known of an object: of itself, or by what was listed above it.
    pub fn presence(&self, object: &ObjectName) -> Presence {
        let Ok(entries) = self.entries_of(&object.digest()) else { return Presence::Unknown };
        let is_former = |entry: &Entry| matches!(entry.name.part, Part::FormerListing { .. });
        let entries: Vec<Entry> = entries.into_iter().filter(|entry| !is_former(entry)).collect();
        let is_missing = entries.iter().any(|entry| entry.name.part == Part::Missing);
        // Entries of one object say the same: the one that was known last counts.
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

    /// The entries of an object.
    pub(super) fn entries_of(&self, digest: &str) -> io::Result<Vec<Entry>> {
        parts(&self.root.join(OBJECTS).join(folder_of(digest)), digest)
    }

    fn remove_all(&self, entries: &[Entry]) -> io::Result<()> {
        entries.iter().try_for_each(|entry| self.space.remove(&entry.path))
    }

    /// Brings through a power cut that entries are gone.
    fn sync_names(&self, digest: &str) -> io::Result<()> {
        let folder: PathBuf = self.root.join(OBJECTS).join(folder_of(digest));
        File::open(folder)?.sync_all()
    }
}
