//! The readers of an array, and whether they could read from the store what this program reads for them.
//!
//! Uses `Posix` only. A mount shows a document's owner, group and mode, and the kernel admits every user that they admit. This
//! program then reads with its own permissions, for a page cache that all users share: the data must be open to all of them.
//! Permission bits do not say to which groups a user belongs. So a class of users counts as denied unless the bits admit every
//! member of it, whatever class of the other file each member belongs to.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Posix;

/// Permission to read, in the lowest three bits of a mode.
pub(super) const READ: u32 = 0o4;
/// Permission to look up names in a folder.
pub(super) const SEARCH: u32 = 0o1;
/// Permission to add and remove names in a folder.
pub(super) const CHANGE: u32 = 0o3;

/// The users who may read a file, according to its owner, group and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// Owner, group and permission bits of an object or folder.
pub(super) type Ownership = Readers;

impl Readers {
    /// Returns the readers of a file or folder.
    pub fn for_posix(posix: &Posix) -> Self {
        Readers { uid: posix.uid, gid: posix.gid, mode: posix.mode }
    }

    /// Returns one user, who is a member of this group.
    pub(super) fn user(uid: u32, gid: u32) -> Self {
        Readers { uid, gid, mode: 0o600 }
    }

    /// Whether `other` grants `bits` to the owner. The owner of a file counts as a member of the file's group.
    fn owner_may(&self, bits: u32, other: &Ownership) -> bool {
        let (group, others) = (other.mode >> 3 & bits == bits, other.mode & bits == bits);
        match other.uid == self.uid {
            _ if self.uid == 0 => true,
            true => other.mode >> 6 & bits == bits,
            false if other.gid == self.gid => group,
            false => group && others,
        }
    }

    /// Whether `other` grants `bits` to all members of the group.
    fn group_may(&self, bits: u32, other: &Ownership) -> bool {
        let (group, others) = (other.mode >> 3 & bits == bits, other.mode & bits == bits);
        group && (others || other.gid == self.gid)
    }

    /// Whether `other` grants `bits` to all other users.
    fn others_may(&self, bits: u32, other: &Ownership) -> bool {
        let (group, others) = (other.mode >> 3 & bits == bits, other.mode & bits == bits);
        others && (group || other.gid == self.gid)
    }

    /// Whether every user with the permission `needs` here has the permissions `bits` on `other`.
    pub(super) fn all_may(&self, needs: u32, bits: u32, other: &Ownership) -> bool {
        let have = |class: u32| self.mode >> class & needs == needs;
        (!have(6) || self.owner_may(bits, other))
            && (!have(3) || self.group_may(bits, other))
            && (!have(0) || self.others_may(bits, other))
    }

    /// Whether every user who may read this may read `other`.
    pub fn all_may_read(&self, other: &Readers) -> bool {
        self.all_may(READ, READ, other)
    }

    /// Removes the users who cannot search a folder.
    #[must_use]
    pub fn that_may_search(self, folder: &Readers) -> Self {
        self.that_may(SEARCH, folder)
    }

    /// Removes the users who cannot read an object.
    #[must_use]
    pub(super) fn that_may_read(self, object: &Readers) -> Self {
        self.that_may(READ, object)
    }

    /// Removes the users to whom `other` does not grant `bits`.
    fn that_may(mut self, bits: u32, other: &Readers) -> Self {
        let mut kept = 0o7000;
        for (class, may) in [
            (6, self.owner_may(bits, other)),
            (3, self.group_may(bits, other)),
            (0, self.others_may(bits, other)),
        ] {
            if may {
                kept |= 0o7 << class;
            }
        }
        self.mode &= kept;
        self
    }
}

/// The users who have an array open, or have just opened it.
#[derive(Default)]
pub struct Audience {
    state: Mutex<AudienceMembers>,
}

#[derive(Default)]
struct AudienceMembers {
    /// The document's readers at the latest open.
    latest: Option<Arc<Readers>>,
    /// The document's readers at each open that has not been closed.
    open: Vec<Weak<Readers>>,
    /// The number of times that the array was opened.
    opens: u64,
}

impl Audience {
    /// Adds the users who may be opening the array. They belong to the audience until the returned value is dropped.
    pub fn admit(&self, readers: Readers) -> Arc<Readers> {
        let mut state = self.state.lock();
        state.open.retain(|open| open.strong_count() > 0);
        let known = state.open.iter().filter_map(Weak::upgrade).find(|open| **open == readers);
        let admitted = known.unwrap_or_else(|| {
            let new = Arc::new(readers);
            state.open.push(Arc::downgrade(&new));
            new
        });
        state.latest = Some(admitted.clone());
        state.opens += 1;
        admitted
    }

    /// Returns how often the array was opened: after another open, earlier checks no longer hold.
    pub(super) fn opens(&self) -> u64 {
        self.state.lock().opens
    }

    /// Whether `test` holds for the whole audience; `false` for an empty audience.
    pub(super) fn all(&self, test: impl Fn(&Readers) -> bool) -> bool {
        let state = self.state.lock();
        let are_open = state.open.iter().filter_map(Weak::upgrade).all(|readers| test(&readers));
        are_open && state.latest.as_ref().is_some_and(|latest| test(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(uid: u32, gid: u32, mode: u32) -> Readers {
        Readers { uid, gid, mode }
    }

    fn may(document: (u32, u32, u32), chunk: (u32, u32, u32)) -> bool {
        let chunk = owned(chunk.0, chunk.1, chunk.2);
        owned(document.0, document.1, document.2).all_may(READ, READ, &chunk)
    }

    #[test]
    fn a_chunk_is_as_open_as_its_document() {
        for mode in [0o600, 0o640, 0o644, 0o664, 0o604, 0o400] {
            assert!(may((1, 1, mode), (1, 1, mode)), "{mode:o}");
            assert!(may((1, 1, mode), (1, 1, 0o666)), "{mode:o}");
        }
        assert!(!may((1, 1, 0o644), (1, 1, 0o600)), "narrower");
        assert!(!may((1, 1, 0o644), (1, 1, 0o640)));
        assert!(!may((1, 1, 0o640), (1, 1, 0o600)));
        assert!(may((1, 1, 0o600), (1, 1, 0o600)));
    }

    #[test]
    fn a_chunk_of_another_owner() {
        assert!(!may((2, 2, 0o644), (1, 1, 0o600)) && !may((2, 2, 0o600), (1, 1, 0o600)));
        assert!(!may((2, 2, 0o600), (1, 1, 0o640)), "another group");
        assert!(may((2, 1, 0o640), (1, 1, 0o640)), "a store that a group shares");
        assert!(!may((2, 1, 0o644), (1, 1, 0o640)));
        assert!(may((2, 2, 0o644), (1, 1, 0o644)), "readable by all");
        assert!(may((0, 0, 0o600), (1, 1, 0o600)), "root reads all");
        assert!(!may((2, 2, 0o644), (1, 1, 0o604)), "its group is denied");
    }

    #[test]
    fn folders_restrict_readers() {
        let cut = |document: Readers, folder: Readers| document.that_may_search(&folder).mode;
        assert_eq!(cut(owned(1, 1, 0o644), owned(1, 1, 0o700)), 0o600);
        assert_eq!(cut(owned(2, 2, 0o644), owned(1, 1, 0o700)), 0);
        assert_eq!(cut(owned(2, 1, 0o664), owned(1, 1, 0o770)), 0o660);
        assert_eq!(cut(owned(2, 2, 0o644), owned(1, 1, 0o711)), 0o644);
    }

    #[test]
    fn an_open_file_stays_in_the_audience() {
        let audience = Audience::default();
        let all_users = audience.admit(owned(1, 1, 0o644));
        let all = || audience.all(|readers| readers.mode == 0o600);
        let _owner = audience.admit(owned(1, 1, 0o600));
        assert!(!all());
        drop(all_users);
        assert!(all());
        assert!(!Audience::default().all(|_| true), "an empty audience");
    }
}
