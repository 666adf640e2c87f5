//! What the records of a journal amount to: the tables of a session, as another daemon takes them over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::mount::journal::record::{
    BackingRecord, DraftChange, FATAL, LossReports, NameRecord, OpenRecord, OpenerRecord, Record,
    ScratchRecord, WrittenEndRecord,
};
use crate::store::VersionDigest;

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
    /// The size that the kernel has of a companion file.
    pub size_bytes: Option<u64>,
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
    /// The definitions of the members that were mounted last, if the store is a catalogue.
    pub catalogue: Option<String>,
    /// The inodes, by number.
    pub inodes: BTreeMap<u64, KnownInode>,
    /// The open files and folders, by handle.
    pub open: BTreeMap<u64, OpenRecord>,
    /// Who has opened them, by handle, if the mount has an access log.
    pub openers: BTreeMap<u64, OpenerRecord>,
    /// The highest number of an inode that the kernel may forget; 0 if there was none.
    pub last_transient: u64,
    /// The highest handle.
    pub last_handle: u64,
    /// Requests that were received again, each with the severity of all deaths before it was received for the first time.
    pub resent: BTreeMap<u64, u64>,
    /// The severity of all deaths before the last daemon, if another one was before it.
    pub severity: Option<u64>,
    /// The registered objects that the kernel reads by itself, by inode.
    pub backings: BTreeMap<u64, BackingRecord>,
    /// What handles have not reported yet of bytes that are lost, by handle.
    pub losses: BTreeMap<u64, LossReports>,
    /// The written ends of files that are truncated or growing, and of those that were lately, by inode.
    pub written_ends: BTreeMap<u64, WrittenEndRecord>,
    /// The last requests that began to change names.
    pub begun: VecDeque<u64>,
    /// The scratch files, by number.
    pub scratch: BTreeMap<u64, ScratchRecord>,
    /// The ones that nodes were about to be made of.
    pub promoted_scratch: BTreeSet<u64>,
    /// The documents that were about to be put for nodes that are made of scratch files, by number: their keys and marks.
    pub scratch_puts: BTreeMap<u64, Vec<(String, VersionDigest)>>,
    /// Those with bytes that a node has now.
    pub ended_scratch: BTreeSet<u64>,
    /// The names that the store does not have, by group.
    pub names: BTreeMap<String, BTreeMap<String, NameRecord>>,
    /// The changes of sidecars that are being written, by inode.
    pub drafts: BTreeMap<u64, Vec<DraftChange>>,
}

/// The most requests that change names and wait for their reply.
const MAX_BEGUN: usize = 256;

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
            Record::Sized { number, size_bytes } => {
                if let Some(inode) = self.inodes.get_mut(&number) {
                    inode.size_bytes = Some(size_bytes);
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
            Record::OpenedBy { handle, opener } => {
                self.openers.insert(handle, opener);
            }
            Record::Released { handle } => {
                self.open.remove(&handle);
                self.openers.remove(&handle);
                self.losses.remove(&handle);
            }
            Record::Backed { inode, backing } => {
                self.backings.insert(inode, backing);
            }
            Record::Unbacked { inode } => {
                self.backings.remove(&inode);
            }
            Record::Loss { handle, unreported } => {
                if unreported == LossReports::default() {
                    self.losses.remove(&handle);
                } else {
                    self.losses.insert(handle, unreported);
                }
            }
            Record::WrittenEnd { inode, end } => {
                self.written_ends.insert(inode, end);
            }
            Record::Scratch { number, file } => {
                self.scratch.insert(number, file);
            }
            Record::ScratchPromoted { number } => {
                self.promoted_scratch.insert(number);
            }
            Record::ScratchPut { number, key, mark } => {
                self.scratch_puts.entry(number).or_default().push((key, mark));
            }
            Record::ScratchEnded { number } => {
                self.scratch_puts.remove(&number);
                self.ended_scratch.insert(number);
            }
            Record::Draft { inode, change: DraftChange::Ended } => {
                self.drafts.remove(&inode);
            }
            Record::Draft { inode, change } => self.drafts.entry(inode).or_default().push(change),
            Record::Name { group, name, entry } => self.set_name(group, name, entry),
            Record::NamesMoved { from, to } => self.move_names(&from, &to),
            Record::NamesRemoved { group } => {
                self.names.remove(&group);
            }
            Record::Begun { unique } => {
                if self.begun.len() == MAX_BEGUN {
                    self.begun.pop_front();
                }
                self.begun.push_back(unique);
            }
            Record::LastNumbers { transient, handle } => {
                self.last_transient = self.last_transient.max(transient);
                self.last_handle = self.last_handle.max(handle);
            }
            Record::Resent { unique, severity } => {
                // A request that would be fatal by now was answered, or it would have come again.
                self.resent.retain(|_, before| before.saturating_add(FATAL) >= severity);
                self.resent.entry(unique).or_insert(severity);
            }
            Record::Catalogue { text } => self.catalogue = Some(text),
            Record::Continued { severity } => self.severity = Some(severity),
        }
    }

    fn set_name(&mut self, group: String, name: String, entry: NameRecord) {
        if entry != NameRecord::None {
            self.names.entry(group).or_default().insert(name, entry);
        } else if let Some(names) = self.names.get_mut(&group) {
            names.remove(&name);
            if names.is_empty() {
                self.names.remove(&group);
            }
        }
    }

    fn move_names(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let is_moved = |group: &String| group == from || group.starts_with(&below);
        for group in self.names.keys().filter(|group| is_moved(group)).cloned().collect::<Vec<_>>() {
            let path = format!("{to}{}", group.strip_prefix(from).unwrap_or_default());
            if let Some(names) = self.names.remove(&group) {
                self.names.insert(path, names);
            }
        }
    }

    /// Returns the scratch files that have a name or that the kernel knows.
    fn scratch_in_use(&self) -> impl Iterator<Item = Record> {
        let of_names = self.names.values().flat_map(BTreeMap::values).filter_map(|entry| match entry {
            NameRecord::File(number) => Some(*number),
            _ => None,
        });
        let of_inodes =
            self.inodes.values().filter_map(|inode| inode.kind.strip_prefix("scratch ")?.parse().ok());
        let used: BTreeSet<u64> = of_names.chain(of_inodes).collect();
        let scratch = self.scratch.iter().filter(move |(number, _)| used.contains(number));
        scratch.flat_map(|(&number, &file)| {
            let promoted =
                self.promoted_scratch.contains(&number).then_some(Record::ScratchPromoted { number });
            let ended = self.ended_scratch.contains(&number).then_some(Record::ScratchEnded { number });
            let puts = self.scratch_puts.get(&number).into_iter().flatten();
            let puts =
                puts.map(move |(key, mark)| Record::ScratchPut { number, key: key.clone(), mark: *mark });
            std::iter::once(Record::Scratch { number, file }).chain(promoted).chain(puts).chain(ended)
        })
    }

    /// Returns the fewest records that amount to this.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let beginning = self.beginning.iter().map(|Beginning { mountpoint, request, reply }| {
            Record::Session { mountpoint: mountpoint.clone(), request: request.clone(), reply: reply.clone() }
        });
        let catalogue = self.catalogue.iter().map(|text| Record::Catalogue { text: text.clone() });
        let inodes = self.inodes.iter().flat_map(|(&number, inode)| {
            let KnownInode { kind, view, path, lookups, size_bytes, is_retired } = inode.clone();
            let sized = size_bytes.map(|size_bytes| Record::Sized { number, size_bytes });
            let retired = is_retired.then_some(Record::Retired { number });
            let lookups = (lookups > 0).then_some(Record::Lookups { number, count: lookups });
            let named = std::iter::once(Record::Inode { number, kind, view, path });
            named.chain(retired).chain(lookups).chain(sized)
        });
        let last = Record::LastNumbers { transient: self.last_transient, handle: self.last_handle };
        let open = self.open.values().cloned().map(Record::Opened);
        let openers = self.openers.iter();
        let openers = openers.map(|(&handle, opener)| Record::OpenedBy { handle, opener: opener.clone() });
        let resent = self.resent.iter().map(|(&unique, &severity)| Record::Resent { unique, severity });
        let continued = self.severity.map(|severity| Record::Continued { severity });
        let backings = self.backings.iter().map(|(&inode, &backing)| Record::Backed { inode, backing });
        let losses = self.losses.iter().map(|(&handle, &unreported)| Record::Loss { handle, unreported });
        let ends = self.written_ends.iter().map(|(&inode, &end)| Record::WrittenEnd { inode, end });
        let begun = self.begun.iter().map(|&unique| Record::Begun { unique });
        let tables = beginning.chain(catalogue).chain(inodes).chain(std::iter::once(last)).chain(open);
        let names = self.names.iter().flat_map(|(group, names)| {
            let record = |(name, &entry): (&String, &NameRecord)| Record::Name {
                group: group.clone(),
                name: name.clone(),
                entry,
            };
            names.iter().map(record).collect::<Vec<_>>()
        });
        let drafts = self.drafts.iter().flat_map(|(&inode, changes)| {
            changes.iter().map(move |change| Record::Draft { inode, change: change.clone() })
        });
        let scratch = self.scratch_in_use().chain(names).chain(drafts);
        tables
            .chain(openers)
            .chain(resent)
            .chain(continued)
            .chain(backings)
            .chain(losses)
            .chain(ends)
            .chain(begun)
            .chain(scratch)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mount::journal::record::{BackingVersion, Content};

    #[test]
    fn the_records_of_a_state_amount_to_it() {
        let inode = |number: u64| {
            let path = format!("a/{number}");
            Record::Inode { number, kind: "array".to_owned(), view: String::new(), path }
        };
        let opened = |handle| {
            let content = Content::Unrepeatable;
            let (request, is_direct, is_passthrough, writing) = (12, false, false, None);
            Record::Opened(OpenRecord {
                handle,
                inode: 2,
                request,
                is_direct,
                is_passthrough,
                writing,
                content,
            })
        };
        let name = |group: &str, name: &str, entry| Record::Name {
            group: group.to_owned(),
            name: name.to_owned(),
            entry,
        };
        let opener = || OpenerRecord { user: Some(1), process: 2, program: "cat".to_owned() };
        let mark = VersionDigest::parse("1f").unwrap();
        let backing = BackingRecord { id: 1, version: BackingVersion { digest: mark, changed: 2 } };
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
            Record::Sized { number: 2, size_bytes: 7 },
            opened(5),
            opened(6),
            Record::OpenedBy { handle: 5, opener: opener() },
            Record::OpenedBy { handle: 6, opener: opener() },
            Record::Released { handle: 6 },
            Record::Resent { unique: 9, severity: 1 },
            Record::Continued { severity: 8 },
            Record::Catalogue { text: "[a]".to_owned() },
            Record::Catalogue { text: "[b]".to_owned() },
            Record::Backed { inode: 2, backing },
            Record::Backed { inode: 3, backing },
            Record::Unbacked { inode: 3 },
            Record::Released { handle: 6 },
            Record::WrittenEnd { inode: 2, end: WrittenEndRecord { end: 7, ..WrittenEndRecord::default() } },
            Record::Begun { unique: 16 },
            Record::Loss { handle: 5, unreported: LossReports { by_fsync: false, by_close: true } },
            Record::Loss { handle: 6, unreported: LossReports { by_fsync: true, by_close: true } },
            Record::Loss { handle: 6, unreported: LossReports::default() },
            Record::Scratch { number: 1, file: ScratchRecord { mode: 1, uid: 2, gid: 3, thread: 4 } },
            name("a", "x", NameRecord::File(1)),
            Record::ScratchPromoted { number: 1 },
            Record::ScratchEnded { number: 1 },
            Record::Scratch { number: 2, file: ScratchRecord { mode: 1, uid: 2, gid: 3, thread: 4 } },
            name("a", "x.json", NameRecord::File(2)),
            Record::ScratchPut { number: 2, key: "a/x/zarr.json".to_owned(), mark },
            Record::Draft { inode: 2, change: DraftChange::Resize(0) },
            Record::Draft { inode: 2, change: DraftChange::Ended },
            Record::Draft { inode: 3, change: DraftChange::Write { offset: 0, bytes: vec![7] } },
            name("a", "y", NameRecord::Vacant),
            name("a/b", "z", NameRecord::Expected(5)),
            name("ab", "z", NameRecord::Vacant),
            name("a", "y", NameRecord::None),
            Record::NamesMoved { from: "a".to_owned(), to: "c/d".to_owned() },
            Record::NamesRemoved { group: "ab".to_owned() },
        ] {
            state.apply(record);
        }
        assert_eq!((state.last_transient, state.last_handle), ((1 << 31) + 1, 6));
        assert_eq!(state.inodes.len(), 2);
        assert_eq!(state.names.keys().collect::<Vec<_>>(), ["c/d", "c/d/b"]);
        let mut again = SessionState::default();
        state.records().for_each(|record| again.apply(record));
        assert_eq!(again, state);
    }
}
