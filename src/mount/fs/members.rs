//! The members of a catalogue, while its definitions are read again.
//!
//! Uses the nodes, the inodes, and the arrays that are open. Invariants: a member that leaves is stored first, or it stays; afterwards its
//! inodes are stale.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::node_cache::NodeCache;

/// The members of a mount, if its store is a catalogue.
pub struct Members {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    /// Held while the definitions are read again.
    reloading: Mutex<()>,
}

impl Members {
    /// Creates the members of a mount.
    pub fn new(nodes: Arc<NodeCache>, inodes: Arc<InodeTable>) -> Self {
        Members { nodes, inodes, reloading: Mutex::default() }
    }

    /// Returns whether the store is a catalogue, which has members.
    pub fn exist(&self) -> bool {
        self.nodes.store().catalogue().is_some()
    }

    /// Removes all cached nodes, and reads the definitions of a catalogue again (SIGHUP). A member that was removed or changed is stored
    /// first, and its inodes are stale afterwards: returns their numbers, for which the kernel must drop its pages. A member that cannot
    /// be stored stays as it is, and so do all if the definitions cannot be read.
    pub fn reload(&self) -> Vec<u64> {
        let _one_at_a_time = self.reloading.lock();
        self.nodes.expire();
        let Some(catalogue) = self.nodes.store().catalogue() else { return Vec::new() };
        let change = match catalogue.read_again() {
            Ok(change) => change,
            Err(error) => {
                log::error!("the catalogue is not read again, and its members stay as they are: {error}");
                return Vec::new();
            }
        };
        let mut keeps = Vec::new();
        for name in change.leaving() {
            let arrays = self.inodes.open_arrays_below(name);
            let stored = arrays.iter().try_for_each(|(_, array)| {
                array.writer().refuse_writes();
                array.writer().sync()
            });
            if let Err(error) = stored {
                log::error!("{name} stays as it is, because it cannot be stored: {error}");
                arrays.iter().for_each(|(_, array)| array.writer().accept_writes());
                keeps.push(name.clone());
            }
        }
        let leaving: Vec<String> = change.leaving().filter(|name| !keeps.contains(name)).cloned().collect();
        let (added, changed, removed) = (change.added.len(), change.changed.len(), change.removed.len());
        log::info!("the catalogue has {added} new members, {changed} changed and {removed} removed ones");
        let mut stale = self.end_members(&leaving);
        catalogue.apply(&change, &keeps);
        // Those that were opened meanwhile.
        stale.extend(self.end_members(&leaving));
        self.nodes.expire();
        stale
    }

    /// Retires the inodes of members that leave, and returns their numbers.
    fn end_members(&self, names: &[String]) -> Vec<u64> {
        let mut stale = Vec::new();
        for name in names {
            stale.extend(self.inodes.inodes_below(name).iter().map(|inode| inode.number));
            for (inode, array) in self.inodes.retire_below(name) {
                if array.writer().end(|| Ok(())).unwrap_or(true) {
                    log::warn!("/{}: what was written while its member left is dropped", inode.entity.path);
                }
            }
        }
        stale
    }
}
