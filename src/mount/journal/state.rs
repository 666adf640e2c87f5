//! What the records of a journal amount to: the tables of a session, as another daemon takes them over.

use std::collections::BTreeMap;

use crate::mount::journal::record::{OpenRecord, Record};

/// An inode that the kernel may know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownInode {
    /// What kind of file or folder it is.
    pub kind: String,
    /// The view of the node, if it is of one.
    pub view: String,
    /// The path of the node.
    pub path: String,
    /// How often the kernel has learnt its number, if it may forget it.
    pub lookups: u64,
    /// Another file has taken its place.
    pub is_retired: bool,
}

/// How a session began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The canonical mount point.
    pub mountpoint: Vec<u8>,
    /// FUSE_INIT as the kernel sent it.
    pub request: Vec<u8>,
    /// The reply to that.
    pub reply: Vec<u8>,
}

/// The tables of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// How it began; `None` if it has not.
    pub beginning: Option<Beginning>,
    /// The inodes, by number.
    pub inodes: BTreeMap<u64, KnownInode>,
    /// The open files and folders, by handle.
    pub open: BTreeMap<u64, OpenRecord>,
    /// The highest number of an inode that the kernel may forget; 0 if there was none.
    pub last_transient: u64,
    /// The highest handle.
    pub last_handle: u64,
    /// Requests that were received again, each with the number of deaths by then.
    pub resent: BTreeMap<u64, u64>,
}

impl SessionState {
    /// Adds a record.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Session { mountpoint, request, reply } => {
                self.beginning = Some(Beginning { mountpoint, request, reply });
            }
            Record::Inode { number, kind, view, path } => {
                self.inodes.insert(number, KnownInode { kind, view, path, ..KnownInode::default() });
            }
            Record::Retired { number } => {
                if let Some(inode) = self.inodes.get_mut(&number) {
                    inode.is_retired = true;
                }
            }
            Record::Lookups { number, count } => {
                self.last_transient = self.last_transient.max(number);
                if let Some(inode) = self.inodes.get_mut(&number) {
                    inode.lookups = inode.lookups.saturating_add(count);
                }
            }
            Record::Forgotten { number, count } => {
                if let Some(inode) = self.inodes.get_mut(&number) {
                    inode.lookups = inode.lookups.saturating_sub(count);
                    if inode.lookups == 0 {
                        self.inodes.remove(&number);
                    }
                }
            }
            Record::Opened(opened) => {
                self.last_handle = self.last_handle.max(opened.handle);
                self.open.insert(opened.handle, opened);
            }
            Record::Released { handle } => {
                self.open.remove(&handle);
            }
            Record::LastNumbers { transient, handle } => {
                self.last_transient = self.last_transient.max(transient);
                self.last_handle = self.last_handle.max(handle);
            }
            Record::Resent { unique, deaths } => {
                // A request that has not died with its daemon since then was answered.
                self.resent.retain(|_, before| *before + 1 >= deaths);
                self.resent.entry(unique).or_insert(deaths);
            }
        }
    }

    /// Returns the fewest records that amount to this.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let beginning = self.beginning.iter().map(|Beginning { mountpoint, request, reply }| {
            Record::Session { mountpoint: mountpoint.clone(), request: request.clone(), reply: reply.clone() }
        });
        let inodes = self.inodes.iter().flat_map(|(&number, inode)| {
            let KnownInode { kind, view, path, lookups, is_retired } = inode.clone();
            let retired = is_retired.then_some(Record::Retired { number });
            let lookups = (lookups > 0).then_some(Record::Lookups { number, count: lookups });
            std::iter::once(Record::Inode { number, kind, view, path }).chain(retired).chain(lookups)
        });
        let last = Record::LastNumbers { transient: self.last_transient, handle: self.last_handle };
        let open = self.open.values().cloned().map(Record::Opened);
        let resent = self.resent.iter().map(|(&unique, &deaths)| Record::Resent { unique, deaths });
        beginning.chain(inodes).chain(std::iter::once(last)).chain(open).chain(resent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::journal::record::Content;

    #[test]
    fn the_records_of_a_state_amount_to_it() {
        let inode = |number: u64| {
            let path = format!("a/{number}");
            Record::Inode { number, kind: "array".to_owned(), view: String::new(), path }
        };
        let opened = |handle| {
            let content = Content::Unrepeatable;
            Record::Opened(OpenRecord { handle, inode: 2, is_direct: false, is_passthrough: false, content })
        };
        let mut state = SessionState::default();
        for record in [
            Record::Session { mountpoint: b"/mnt".to_vec(), request: vec![1], reply: vec![2] },
            inode(2),
            inode(1 << 31),
            Record::Lookups { number: 1 << 31, count: 3 },
            inode((1 << 31) + 1),
            Record::Lookups { number: (1 << 31) + 1, count: 2 },
            Record::Forgotten { number: (1 << 31) + 1, count: 2 },
            Record::Forgotten { number: 1 << 31, count: 2 },
            Record::Retired { number: 2 },
            opened(5),
            opened(6),
            Record::Released { handle: 6 },
            Record::Resent { unique: 9, deaths: 1 },
        ] {
            state.apply(record);
        }
        assert_eq!((state.last_transient, state.last_handle), ((1 << 31) + 1, 6));
        assert_eq!(state.inodes.len(), 2);
        let mut again = SessionState::default();
        state.records().for_each(|record| again.apply(record));
        assert_eq!(again, state);
    }
}
