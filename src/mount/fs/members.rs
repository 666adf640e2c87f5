//! The members of a catalogue, while its definitions are read again.
//!
//! Uses the nodes, the inodes, the scratch files, the gate, and the engine. Invariants: a member leaves only when nothing that programs
//! have written would be lost, and stays otherwise; while that is decided, no request changes anything in it; afterwards its inodes are
//! stale. A member that leaves holds up no other one.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::array::Engine;
use crate::error::{Error, Result};
use crate::mount::fs::inode::{InodeTable, is_at_or_below};
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::journal::Journal;
use crate::mount::journal::record::Record;
use crate::store::Catalogue;

/// Makes the kernel send the dirty pages of inodes, and drop all pages of them.
type DropPages<'a> = &'a (dyn Fn(&[u64]) + Sync);

/// The members of a mount, if its store is a catalogue.
pub struct Members {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    names: Arc<NameTable>,
    gate: Arc<RequestGate>,
    engine: Arc<Engine>,
    /// A member stays if a request, or the store, takes longer than this.
    patience: Duration,
    /// Held while the definitions are read again.
    reading: Mutex<()>,
    /// Gets the definitions whenever a member has begun or ended, if the session is to outlive this daemon.
    journal: Mutex<Option<Arc<Journal>>>,
}

impl Members {
    /// Creates the members of a mount.
    pub fn new(parts: &MountParts, names: Arc<NameTable>) -> Self {
        Members {
            nodes: parts.nodes.clone(),
            inodes: parts.inodes.clone(),
            names,
            gate: parts.gate.clone(),
            engine: parts.engine.clone(),
            patience: parts.options.request_deadline,
            reading: Mutex::default(),
            journal: Mutex::default(),
        }
    }

    /// Returns whether the store is a catalogue, which has members.
    pub fn exist(&self) -> bool {
        self.nodes.store().catalogue().is_some()
    }

    /// Records the definitions of the members that are mounted, now and after each change: the next daemon goes on with
    /// these members.
    pub fn keep_journal(&self, journal: &Arc<Journal>) {
        *self.journal.lock() = Some(journal.clone());
        self.record();
    }

    fn record(&self) {
        // Locked before the definitions are looked at: of two members that leave at the same time, the later one has the last word.
        let journal = self.journal.lock();
        if let (Some(journal), Some(catalogue)) = (&*journal, self.nodes.store().catalogue()) {
            journal.append(&Record::Catalogue { text: catalogue.text() });
        }
    }

    /// Removes all cached nodes, and reads the definitions of a catalogue again (SIGHUP). A member that was removed or changed leaves when
    /// everything that was written to it is stored, and its inodes are stale afterwards. A member that cannot leave stays as it is, and so do
    /// all if the definitions cannot be read.
    pub fn reload(&self, drop_pages: DropPages<'_>) {
        self.nodes.expire();
        let Some(catalogue) = self.nodes.store().catalogue() else { return };
        let change = {
            let _one_at_a_time = self.reading.lock();
            let change = match catalogue.read_again() {
                Ok(change) => change,
                Err(error) => {
                    log::error!("the catalogue is not read again, and its members stay as they are: {error}");
                    return;
                }
            };
            change.added.iter().for_each(|name| catalogue.apply(name));
            self.record();
            change
        };
        self.nodes.expire();
        let (added, changed, removed) = (change.added.len(), change.changed.len(), change.removed.len());
        log::info!("the catalogue has {added} new members, {changed} changed and {removed} removed ones");
        thread::scope(|scope| {
            for name in change.leaving() {
                let end = move || self.end_member(catalogue, name, drop_pages);
                // Each on a thread of its own: one that does not respond must not hold up the others.
                let begun = thread::Builder::new().name("zarrfs-leave".to_owned()).spawn_scoped(scope, end);
                if let Err(error) = begun {
                    log::error!("{name} stays as it is, because no thread can end it: {error}");
                }
            }
        });
    }

    /// Ends a member, and begins the one that takes its place, unless something of it would be lost.
    fn end_member(&self, catalogue: &dyn Catalogue, name: &str, drop_pages: DropPages<'_>) {
        // Before requests are kept out: the kernel sends a page by a request, and this thread waits for it.
        let mut written = self.inodes.written_arrays();
        let is_inside = |number: &u64| {
            self.inodes.get(*number).is_some_and(|inode| is_at_or_below(&inode.entity.path, name))
        };
        written.retain(is_inside);
        drop_pages(&written);
        // From here on, requests that change something in the member wait until it has left, or stays.
        let Some(closed) = self.gate.close_member(name, self.patience) else {
            log::error!("{name} stays as it is, because a request that has begun in it does not end");
            return;
        };
        // The definition may have changed back, or another reload may have ended the member meanwhile.
        if !catalogue.is_outdated(name) {
            return;
        }
        if let Err(error) = self.store_member(name) {
            log::error!("{name} stays as it is, because something in it is not stored: {error}");
            return;
        }
        let mut stale = self.retire_member(name);
        catalogue.apply(name);
        // Those that were opened for reading meanwhile.
        stale.extend(self.retire_member(name));
        self.nodes.expire();
        // Before a program can write to the member that has taken its place.
        self.record();
        drop(closed);
        drop_pages(&stale);
    }

    /// Stores everything that was written to a member. Fails if something is left that only this daemon has.
    fn store_member(&self, name: &str) -> Result<()> {
        if let Some(path) = self.engine.former_paths().iter().find(|path| is_at_or_below(path, name)) {
            return Err(Error::busy(
                path,
                "a daemon before this one has written to it, and it cannot be opened yet",
            ));
        }
        if let Some((path, size_bytes)) = self.names.first_with_bytes(name) {
            let reason = format!(
                "this file of {size_bytes} bytes is not an array yet: finish it or remove it, then reload"
            );
            return Err(Error::busy(path, reason));
        }
        let failed = self.engine.store_some(self.patience, |path| is_at_or_below(path, name));
        // An array that is gone from the store cannot be stored anywhere, and its handles report that.
        let failed = failed.into_iter().find(|(_, error)| !matches!(error, Error::Stale { .. }));
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Retires the inodes of a member that leaves, and returns their numbers.
    fn retire_member(&self, name: &str) -> Vec<u64> {
        self.names.end_empty(name);
        let stale = self.inodes.inodes_below(name).iter().map(|inode| inode.number).collect();
        for (inode, array) in self.inodes.retire_below(name) {
            if array.writer().end_here().unwrap_or(true) {
                log::error!("/{}: what was written while its member left is lost", inode.entity.path);
            }
        }
        stale
    }
}
