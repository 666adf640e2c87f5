//! What the journal of the session has of the names that the store does not have, for a daemon that continues the session.
//!
//! This file uses `scratch.rs`, the journal, and the documents of `hierarchy::author`. Without a session that outlives the daemon, nothing
//! is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::hierarchy::author::DocumentPut;
use crate::mount::fs::names::scratch::{Caller, KeptSession, ScratchFile};
use crate::mount::journal::Journal;
use crate::mount::journal::held::DescriptorHolder;
use crate::mount::journal::record::{NameRecord, Record, ScratchRecord};
use crate::mount::journal::state::SessionState;
use crate::store::VersionDigest;

/// Records the table of names, and has what a daemon that has died has recorded.
#[derive(Default)]
pub struct NameRecords {
    /// Gets each change, for another daemon, if the session is to outlive this one.
    session: OnceLock<Arc<KeptSession>>,
    /// The files that a daemon that has died was about to make nodes of.
    promoted: OnceLock<BTreeSet<u64>>,
    /// The documents that such a daemon may have put at the paths of nodes, by the number of the file.
    former_puts: Mutex<BTreeMap<u64, Vec<DocumentPut>>>,
}

impl NameRecords {
    /// Records the table from now on, and has the bytes of scratch files held.
    pub fn keep_session(&self, journal: &Arc<Journal>, holder: &Arc<dyn DescriptorHolder>) {
        let session = KeptSession { journal: journal.clone(), holder: holder.clone() };
        let _ = self.session.set(Arc::new(session));
    }

    /// Returns where scratch files are recorded and held, if the session is to outlive the daemon.
    pub fn session(&self) -> Option<&Arc<KeptSession>> {
        self.session.get()
    }

    /// Takes over what a daemon that has died has recorded of nodes that it was making.
    pub fn continue_former(&self, state: &SessionState) {
        let _ = self.promoted.set(state.promoted_scratch.clone());
        let put = |(key, mark): &(String, VersionDigest)| DocumentPut { key: key.clone(), mark: *mark };
        let puts = state.scratch_puts.iter().filter(|(number, _)| !state.promoted_scratch.contains(number));
        *self.former_puts.lock() =
            puts.map(|(&number, puts)| (number, puts.iter().map(put).collect())).collect();
    }

    fn add(&self, record: impl FnOnce() -> Record) {
        if let Some(session) = self.session.get() {
            session.journal.append(&record());
        }
    }

    /// Records what a name stands for now.
    pub fn record_name(&self, group: &str, name: &str, entry: NameRecord) {
        self.add(|| Record::Name { group: group.to_owned(), name: name.to_owned(), entry });
    }

    /// Records a scratch file, which is new, or has another owner or mode.
    pub fn record_file(&self, file: &ScratchFile) {
        let (meta, Caller { thread, .. }) = (file.meta(), file.caller());
        let record = ScratchRecord { mode: meta.mode, uid: meta.uid, gid: meta.gid, thread };
        self.add(|| Record::Scratch { number: file.number(), file: record });
    }

    /// Records that all names of a group are gone.
    pub fn record_group_removed(&self, group: &str) {
        self.add(|| Record::NamesRemoved { group: group.to_owned() });
    }

    /// Records that the names of a group, and of those below it, have another path.
    pub fn record_group_moved(&self, from: &str, to: &str) {
        self.add(|| Record::NamesMoved { from: from.to_owned(), to: to.to_owned() });
    }

    /// Records that a node is about to be made of a file.
    pub fn record_promotion(&self, file: &ScratchFile) {
        self.add(|| Record::ScratchPromoted { number: file.number() });
    }

    /// Returns whether a daemon that has died was about to make a node of a file.
    pub fn was_promoted(&self, file: &ScratchFile) -> bool {
        self.promoted.get().is_some_and(|promoted| promoted.contains(&file.number()))
    }

    /// Records that a document of the node that is made of a file is about to be put at the node's path.
    pub fn record_put(&self, file: &ScratchFile, key: &str, mark: VersionDigest) {
        self.add(|| Record::ScratchPut { number: file.number(), key: key.to_owned(), mark });
    }

    /// Returns the documents that a daemon that has died may have put for the node that is made of a file.
    pub fn former_puts(&self, file: &ScratchFile) -> Vec<DocumentPut> {
        self.former_puts.lock().get(&file.number()).cloned().unwrap_or_default()
    }

    /// Passes the documents that a daemon that has died may have put for a node to `take_back`, with the path of the node, until it returns `true`
    /// for them. Leaves those of files out that are known: they still become nodes. Returns whether none is left.
    pub fn end_lost_puts(
        &self,
        is_known: impl Fn(u64) -> bool,
        take_back: impl Fn(&str, &[DocumentPut]) -> bool,
    ) -> bool {
        let mut former_puts = self.former_puts.lock();
        former_puts.retain(|&number, puts| {
            let path = puts.first().and_then(|put| put.key.rsplit_once('/')).map(|(path, _)| path.to_owned());
            is_known(number) || path.is_none_or(|path| !take_back(&path, puts))
        });
        former_puts.keys().all(|&number| is_known(number))
    }
}
