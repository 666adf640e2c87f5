//! Writing the changes of an overlay back into its base, and forgetting them. Uses its neighbours in `overlay`.
//!
//! An object is written only in place of the version that it was made from. What is in the base, durably, leaves the overlay
//! afterwards. Where a crash comes between the two, the base has the overlay's bytes already, and that is not a conflict.
//!
//! Equal bytes of a chunk, or of a group's document, are the same whoever has written them. Equal documents that make an array, or change
//! its lengths, are not: two programs that append as many rows write the same document, and different chunks. Only the document that
//! an earlier commit of this overlay has put is the overlay's own: its mark is in the list of changes before it gets its name.

use std::io;

use super::lengths::{DOCUMENTS, Lengths, MAX_DOCUMENT_BYTES};
use super::{Changed, Origin, OverlayStore, failed};
use crate::error::{Error, Result};
use crate::store::{
    Announce, Form, Info, Object, ObjectPart, ObjectVersion, Precondition, PutOptions, Store, VersionDigest,
    Writer, read_whole,
};

/// The most bytes of an object that are compared at one time.
const COMPARED_BYTES: u64 = 1 << 20;

/// One key at which the overlay differs from its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// What was changed.
    pub kind: ChangeKind,
    /// The form of the array that it is a chunk of, if it is one and that is known.
    pub form: Option<Form>,
    /// What the base had; `None` if there was nothing.
    from: Option<Origin>,
    /// The mark of the object that an earlier commit has put into the base, or was about to.
    sent: Option<VersionDigest>,
}

/// What an overlay has at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// An object of so many bytes.
    Written {
        /// Its size.
        size_bytes: u64,
    },
    /// No object, where the base had one.
    Deleted,
}

impl Change {
    /// Whether the base had nothing at its key.
    pub fn is_new(&self) -> bool {
        self.from.is_none()
    }

    /// Whether what a store has at its key now, the base or a transaction over it, is what the change was made from.
    pub fn is_of(&self, base: &dyn Store, now: Option<ObjectVersion>) -> Result<bool> {
        match (self.from, now) {
            (None, None) => Ok(true),
            (Some(from), Some(now)) => from.is(base, &self.key, now),
            _ => Ok(false),
        }
    }
}

/// What became of a change that was to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The base has it; its object has this version, if it has one.
    Done(Option<ObjectVersion>),
    /// The base had it before.
    Already,
    /// The base has something else than what the change was made from.
    Conflict,
}

impl OverlayStore {
    /// All changes, by key.
    pub fn changes(&self) -> Result<Vec<Change>> {
        let failed = failed("", "list the changes");
        let mut changes = Vec::new();
        for (key, entry) in self.shared.folder.changes.entries().map_err(failed)? {
            let kind = match entry {
                // What the overlay had made, and the base had not.
                Changed::Deleted { from: None, .. } => continue,
                Changed::Deleted { .. } => ChangeKind::Deleted,
                Changed::Written { hides, .. } => match self.shared.folder.objects.head_object(&key)? {
                    Some(info) => ChangeKind::Written { size_bytes: info.size_bytes },
                    None if hides && entry.from().is_some() && !self.is_hidden(&key)? => ChangeKind::Deleted,
                    None => continue,
                },
            };
            changes.push(Change { key, kind, form: entry.form(), from: entry.from(), sent: entry.sent() });
        }
        Ok(changes)
    }

    /// Writes a change into the base, in which its names are not durable yet. `within` is the nearest folder that exists.
    pub fn commit(&self, change: &Change, within: &str) -> Result<Commit> {
        let now = self.base.head_object(&change.key)?.map(|info| info.version);
        self.commit_to((self.base.as_ref(), self.base_writer()?), change, within, now)
    }

    /// Writes a change into the base, or a transaction over it, which has this version at its key.
    fn commit_to(
        &self,
        (base, writer): (&dyn Store, &dyn Writer),
        change: &Change,
        within: &str,
        now: Option<ObjectVersion>,
    ) -> Result<Commit> {
        let compared = self.compare(base, change, now)?;
        if !matches!(compared, Commit::Done(_)) {
            return Ok(compared);
        }
        let key = change.key.as_str();
        let precondition = Precondition::found(now);
        let done = match change.kind {
            ChangeKind::Deleted => writer.delete(key, precondition).map(|_| None),
            ChangeKind::Written { .. } => {
                let (like, note) = (self.own_info(key)?, |mark| self.note_sent(key, mark));
                let options = PutOptions {
                    precondition,
                    announce: self.makes_room(change)?.then_some(Announce(&note)),
                    ..PutOptions::new(within, &like)
                };
                self.put_into(writer, key, &options).map(Some)
            }
        };
        match done {
            Err(Error::Changed { .. }) => Ok(Commit::Conflict),
            other => other.map(Commit::Done),
        }
    }

    /// Removes an object from the base that a commit has put there in this version, and where the base had none before. Its names are
    /// not durable yet.
    pub fn take_back(&self, change: &Change, put: ObjectVersion) -> Result<()> {
        match self.base_writer()?.delete(&change.key, Precondition::Version(put)) {
            // Another program has replaced it.
            Err(Error::Changed { .. }) => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// What becomes of a change where the base, or a transaction over it, has this version at its key; nothing is written.
    pub fn compare(&self, base: &dyn Store, change: &Change, now: Option<ObjectVersion>) -> Result<Commit> {
        Ok(match change.kind {
            ChangeKind::Deleted if now.is_none() => Commit::Already,
            _ if change.is_of(base, now)? => Commit::Done(now),
            ChangeKind::Written { .. } => match now {
                Some(now) => self.compare_written(base, change, now)?,
                None => Commit::Conflict,
            },
            ChangeKind::Deleted => Commit::Conflict,
        })
    }

    /// What becomes of an object where the base has another version than the one that it was made from.
    fn compare_written(&self, base: &dyn Store, change: &Change, now: ObjectVersion) -> Result<Commit> {
        let is_equal = is_in(base, &change.key, self.own_object(&change.key)?.as_ref())?;
        let has_mark = |mark| match base.writer() {
            Some(writer) => writer.has_mark(&change.key, now, mark),
            None => Ok(false),
        };
        if change.sent.map_or(Ok(false), has_mark)? {
            // An earlier commit has put it in place of what it was made from. It may have been written again since.
            return Ok(if is_equal { Commit::Already } else { Commit::Done(Some(now)) });
        }
        let is_same = is_equal && !self.makes_room(change)?;
        Ok(if is_same { Commit::Already } else { Commit::Conflict })
    }

    /// Whether a change is a document that makes an array, or gives it other lengths than the base's array had. Then it says of which
    /// chunks the overlay's own are. An older zarrfs did not note the lengths that the base's array had: they count as others.
    pub fn makes_room(&self, change: &Change) -> Result<bool> {
        let name = change.key.rsplit('/').next().unwrap_or(&change.key);
        if !DOCUMENTS.contains(&name) || change.kind == ChangeKind::Deleted {
            return Ok(false);
        }
        let document = self.objects.get(&change.key, MAX_DOCUMENT_BYTES)?.unwrap_or_default();
        let lengths = Lengths::of_document(&document);
        Ok(lengths.is_some() && lengths != change.from.and_then(|from| from.lengths))
    }

    /// Notes what the base will know an object by. Durable when it returns.
    fn note_sent(&self, key: &str, mark: VersionDigest) -> Result<()> {
        match self.changed(key, "commit")? {
            Some(Changed::Written { from, form, hides, .. }) => {
                self.shared.set(key, Changed::Written { from, form, hides, sent: Some(mark) })
            }
            _ => Err(Error::Stale { key: key.to_owned() }),
        }
    }

    /// The overlay's object at a key.
    fn own_object(&self, key: &str) -> Result<Box<dyn Object>> {
        let gone = || Error::Stale { key: key.to_owned() };
        self.objects.open(key)?.ok_or_else(gone)
    }

    fn own_info(&self, key: &str) -> Result<Info> {
        let gone = || Error::Stale { key: key.to_owned() };
        self.objects.head_object(key)?.ok_or_else(gone)
    }

    fn put_into(&self, writer: &dyn Writer, key: &str, options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let object = self.own_object(key)?;
        let parts = [ObjectPart::Copy(object.as_ref(), 0..object.size_bytes())];
        writer.put(key, &parts, options)
    }

    /// Writes a change into a transaction over the base, in which its key has this version.
    pub fn send(
        &self,
        transaction: &dyn Store,
        change: &Change,
        now: Option<ObjectVersion>,
    ) -> Result<Commit> {
        self.commit_to((transaction, transaction_writer(transaction)?), change, "", now)
    }

    /// Writes a change once more into a transaction, which has an earlier state of it. `then` is what the base had at its key.
    pub fn send_again(
        &self,
        transaction: &dyn Store,
        change: &Change,
        then: Option<ObjectVersion>,
    ) -> Result<Commit> {
        let key = change.key.as_str();
        // What others have deleted as well may be deleted.
        if !change.is_of(self.shared.root.as_ref(), then)?
            && (then.is_some() || change.kind != ChangeKind::Deleted)
        {
            return Ok(Commit::Conflict);
        }
        let writer = transaction_writer(transaction)?;
        if change.kind == ChangeKind::Deleted {
            return writer.delete(key, Precondition::Any).map(|_| Commit::Done(None));
        }
        let like = self.own_info(key)?;
        self.put_into(writer, key, &PutOptions::new("", &like)).map(|version| Commit::Done(Some(version)))
    }

    /// The writing half of the base, or the sentence that it has none.
    pub fn base_writer(&self) -> Result<&dyn Writer> {
        let read_only = || {
            let (base, folder) = (self.base.describe(), self.shared.folder.path.display());
            if self.shared.root.versions().is_some() {
                return Error::ReadOnly(format!(
                    "{base} keeps versions: 'zarrfs commit {folder} -m TEXT' makes one of the changes"
                ));
            }
            Error::ReadOnly(format!(
                "{base} cannot be written: the changes stay in {folder}; a copy of the store as a folder can take them"
            ))
        };
        self.base.writer().ok_or_else(read_only)
    }

    /// Forgets changes, with their objects. Durable when it returns.
    pub fn forget(&self, changes: &[Change]) -> Result<()> {
        let list = &self.shared.folder.changes;
        let noted = |noted: io::Result<()>| noted.map_err(failed("", "note what the overlay forgets"));
        for change in changes {
            if let Some(Changed::Written { from, form, hides: true, sent }) =
                self.changed(&change.key, "forget")?
            {
                // Without its file, it shows the base from now on.
                self.shared.set(&change.key, Changed::Written { from, form, hides: false, sent })?;
            }
        }
        // The files go first: one without a line would come back with the next line of its key.
        for change in changes {
            self.shared.remove_object(&change.key)?;
        }
        let keys: Vec<String> = changes.iter().map(|change| change.key.clone()).collect();
        self.shared.objects()?.sync(&keys, "")?;
        for key in &keys {
            noted(list.forget(key))?;
        }
        noted(list.sync())
    }
}

/// The writing half of a transaction.
fn transaction_writer(transaction: &dyn Store) -> Result<&dyn Writer> {
    let none = || Error::ReadOnly(format!("{}: the transaction takes no writes", transaction.describe()));
    transaction.writer().ok_or_else(none)
}

/// Whether the base has these bytes at a key.
fn is_in(base: &dyn Store, key: &str, object: &dyn Object) -> Result<bool> {
    let Some(below) = base.open(key)? else { return Ok(false) };
    let size_bytes = object.size_bytes();
    if below.size_bytes() != size_bytes {
        return Ok(false);
    }
    if size_bytes <= COMPARED_BYTES {
        let limit = size_bytes;
        return Ok(read_whole(object, key, limit)? == read_whole(below.as_ref(), key, limit)?);
    }
    let (mut one, mut other) = (vec![0; COMPARED_BYTES as usize], vec![0; COMPARED_BYTES as usize]);
    for start in (0..size_bytes).step_by(COMPARED_BYTES as usize) {
        let length = (size_bytes - start).min(COMPARED_BYTES) as usize;
        one.truncate(length);
        other.truncate(length);
        object.read_exact_at(start, &mut one)?;
        below.read_exact_at(start, &mut other)?;
        if one != other {
            return Ok(false);
        }
    }
    Ok(true)
}
