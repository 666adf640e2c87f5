//! Where the changes of an overlay are written back to: its base, or a transaction over it. Uses `change.rs`, `folder/` and the
//! traits of `store`.
//!
//! An object is written only in place of the version that it was made from. It leaves the overlay after it is in the base, durably.
//! If a crash comes between the two, the base already has the overlay's bytes, and that is not a conflict.
//!
//! Equal bytes of a chunk, or of a group's document, are the same whichever program has written them. Equal documents that create an
//! array, or change its shape, are not: two programs that append equally many rows write the same document, and different chunks. So the
//! overlay takes such a document for its own only if an earlier commit of this overlay has put it. The list of changes has the mark of
//! that put before the document gets its name.

use crate::error::{Error, Result};
use crate::store::overlay::change::{Change, ChangeKind};
use crate::store::overlay::folder::Folder;
use crate::store::{
    Announce, Info, Object, ObjectPart, ObjectVersion, Precondition, PutOptions, Store, Writer, read_whole,
};

/// The most bytes of an object that are compared at one time.
const COMPARED_BYTES: u64 = 1 << 20;

/// The outcome for a change that was to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The base has it. If it is an object, it has this version.
    Done(Option<ObjectVersion>),
    /// The base had it before.
    Already,
    /// The base has something else than what the change was made from.
    Conflict,
}

/// A store that changes are written back to.
#[derive(Clone, Copy)]
pub struct CommitTarget<'a> {
    /// The base, or a transaction over it.
    pub(super) store: &'a dyn Store,
    /// The base.
    pub(super) base: &'a dyn Store,
    folder: &'a Folder,
}

impl<'a> CommitTarget<'a> {
    /// Returns the target `store`, which is the base of the overlay in `folder`, or a transaction over it.
    pub(in crate::store::overlay) fn new(
        store: &'a dyn Store,
        base: &'a dyn Store,
        folder: &'a Folder,
    ) -> Self {
        CommitTarget { store, base, folder }
    }

    /// Returns the writing half of the target.
    pub(super) fn writer(&self) -> Result<&'a dyn Writer> {
        let read_only = || Error::ReadOnly(format!("{}: cannot be written", self.store.describe()));
        self.store.writer().ok_or_else(read_only)
    }

    /// Writes a change into the base. The names of its objects are not durable yet. `within` is the nearest folder that exists.
    pub fn commit(&self, change: &Change, within: &str) -> Result<ChangeOutcome> {
        let now = self.store.head_object(&change.key)?.map(|info| info.version);
        self.commit_over(change, now, within)
    }

    /// Writes a change into a transaction that has the version `now` at its key.
    pub fn commit_new(&self, change: &Change, now: Option<ObjectVersion>) -> Result<ChangeOutcome> {
        self.commit_over(change, now, "")
    }

    fn commit_over(
        &self,
        change: &Change,
        now: Option<ObjectVersion>,
        within: &str,
    ) -> Result<ChangeOutcome> {
        let compared = self.compare(change, now)?;
        if !matches!(compared, ChangeOutcome::Done(_)) {
            return Ok(compared);
        }
        let key = change.key.as_str();
        let precondition = Precondition::found(now);
        let done = match change.kind {
            ChangeKind::Deleted => self.writer()?.delete(key, precondition).map(|_| None),
            ChangeKind::Written { .. } => {
                let like = self.own_info(key)?;
                let set_sent = |mark| self.folder.set_sent(key, mark);
                let options = PutOptions {
                    precondition,
                    announce: self.folder.changes_shape(change)?.then_some(Announce(&set_sent)),
                    ..PutOptions::new(within, &like)
                };
                self.put(key, &options).map(Some)
            }
        };
        match done {
            Err(Error::Changed { .. }) => Ok(ChangeOutcome::Conflict),
            other => other.map(ChangeOutcome::Done),
        }
    }

    /// Writes a change again into a transaction that has an earlier state of it. `then` is what the base had at its key.
    pub fn commit_again(&self, change: &Change, then: Option<ObjectVersion>) -> Result<ChangeOutcome> {
        // A deletion is not a conflict if another program has deleted the object too.
        let is_deleted = then.is_none() && change.kind == ChangeKind::Deleted;
        if !is_deleted && !change.is_from(self.base, then)? {
            return Ok(ChangeOutcome::Conflict);
        }
        let key = change.key.as_str();
        if change.kind == ChangeKind::Deleted {
            return self.writer()?.delete(key, Precondition::Any).map(|_| ChangeOutcome::Done(None));
        }
        let like = self.own_info(key)?;
        self.put(key, &PutOptions::new("", &like)).map(|version| ChangeOutcome::Done(Some(version)))
    }

    /// Removes an object from the base that a commit has put in this version, where the base had none. The removal is not durable yet.
    pub fn take_back(&self, change: &Change, put: ObjectVersion) -> Result<()> {
        match self.writer()?.delete(&change.key, Precondition::Version(put)) {
            // Another program has replaced it.
            Err(Error::Changed { .. }) => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Returns what a commit of a change would do, where the target has the version `now` at its key. Writes nothing.
    pub fn compare(&self, change: &Change, now: Option<ObjectVersion>) -> Result<ChangeOutcome> {
        Ok(match change.kind {
            ChangeKind::Deleted if now.is_none() => ChangeOutcome::Already,
            _ if change.is_from(self.store, now)? => ChangeOutcome::Done(now),
            ChangeKind::Written { .. } => match now {
                Some(now) => self.compare_written(change, now)?,
                None => ChangeOutcome::Conflict,
            },
            ChangeKind::Deleted => ChangeOutcome::Conflict,
        })
    }

    /// Compares an object where the target has another version than the one that it was made from.
    fn compare_written(&self, change: &Change, now: ObjectVersion) -> Result<ChangeOutcome> {
        let is_equal = has_same_bytes(self.store, &change.key, self.own_object(&change.key)?.as_ref())?;
        let is_own = match (change.sent, self.store.writer()) {
            (Some(mark), Some(writer)) => writer.has_mark(&change.key, now, mark)?,
            _ => false,
        };
        if is_own {
            // An earlier commit has put it in place of what it was made from. It may have been written again since.
            return Ok(if is_equal { ChangeOutcome::Already } else { ChangeOutcome::Done(Some(now)) });
        }
        let is_same = is_equal && !self.folder.changes_shape(change)?;
        Ok(if is_same { ChangeOutcome::Already } else { ChangeOutcome::Conflict })
    }

    /// Returns the overlay's object at a key.
    fn own_object(&self, key: &str) -> Result<Box<dyn Object>> {
        let gone = || Error::Stale { key: key.to_owned() };
        self.folder.objects.open(key)?.ok_or_else(gone)
    }

    fn own_info(&self, key: &str) -> Result<Info> {
        let gone = || Error::Stale { key: key.to_owned() };
        self.folder.objects.head_object(key)?.ok_or_else(gone)
    }

    fn put(&self, key: &str, options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let object = self.own_object(key)?;
        let parts = [ObjectPart::Copy(object.as_ref(), 0..object.size_bytes())];
        self.writer()?.put(key, &parts, options)
    }
}

/// Returns whether the base has the same bytes at a key.
fn has_same_bytes(base: &dyn Store, key: &str, object: &dyn Object) -> Result<bool> {
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
