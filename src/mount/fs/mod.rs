//! The file system: names, attributes and operations. It has no FUSE types, so that it can be tested without a mount.
//!
//! [`FileSystem`] has no state of its own: it looks an inode or a handle up, and passes the request to a room. `entries.rs` and
//! `stat.rs` say what names stand for, `names` makes, removes and renames them, `operations` opens and closes files and changes
//! attributes, `array_files` has the files of arrays, `virtual_files` has sidecars and companion files, `commit.rs` makes
//! snapshots, and `page_cache` tracks the kernel's pages.
//! `assembly.rs` builds the rooms. Each keeps the parts of the mount that it needs (`parts.rs`), and none keeps the file system. An
//! open file (`open_file.rs`) has everything that its requests need. This module uses neither `fuse` nor `daemon`.
//!
//! Invariants: a real node wins over a generated name; an operation with [`Blocking::No`] never touches the store; every use of
//! the inode of a replaced array fails with ESTALE.

pub mod accesses;
pub mod array_files;
pub mod arrays;
mod assembly;
pub mod attributes;
pub mod commit;
pub mod entity;
pub mod entries;
pub mod error;
pub mod inode;
pub mod members;
pub mod names;
pub mod node_cache;
pub mod open_file;
pub mod operations;
pub mod page_cache;
pub mod parts;
mod recovery;
pub mod request;
pub mod stat;
pub mod virtual_files;
pub mod xattr;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::array::Engine;
use crate::error::Error;
use crate::formats::Role;
use crate::mount::fs::accesses::Accesses;
use crate::mount::fs::attributes::{SetAttr, Stat};
use crate::mount::fs::commit::Commits;
use crate::mount::fs::entity::EntityKind;
use crate::mount::fs::entries::Entries;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::members::Members;
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::{FolderEntry, HandleTable, OpenFile};
use crate::mount::fs::operations::attribute_changes::AttributeChanges;
use crate::mount::fs::operations::opens::Opens;
use crate::mount::fs::page_cache::cache_mode::CachePolicy;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::recovery::Recovery;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::fs::stat::FileAttributes;
use crate::mount::fs::virtual_files::internals::InternalFiles;
pub use crate::mount::fs::virtual_files::internals::{
    COMMIT, CONFIG, DaemonInfo, INTERNALS, KeeperInfo, SLOW, STATS, UNSAVED,
};
use crate::mount::fs::xattr::ExtendedAttributes;
use crate::mount::options::Options;
use crate::store::StatFs;

/// A mounted hierarchy.
pub struct FileSystem {
    options: Arc<Options>,
    nodes: Arc<NodeCache>,
    engine: Arc<Engine>,
    inodes: Arc<InodeTable>,
    handles: Arc<HandleTable>,
    log: Arc<RequestLog>,
    accesses: Arc<Accesses>,
    gate: Arc<RequestGate>,
    cache_policy: Arc<CachePolicy>,
    entries: Arc<Entries>,
    attributes: Arc<FileAttributes>,
    extended_attributes: ExtendedAttributes,
    internal_files: Arc<InternalFiles>,
    commits: Arc<Commits>,
    opens: Opens,
    attribute_changes: AttributeChanges,
    names: Arc<NameChanges>,
    recovery: Arc<Recovery>,
    members: Members,
}

impl FileSystem {
    /// Returns the options of the mount.
    pub fn options(&self) -> &Arc<Options> {
        &self.options
    }

    /// Returns the engine, which encodes and decodes chunks and has the dirty ones.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the inodes.
    pub fn inodes(&self) -> &InodeTable {
        &self.inodes
    }

    /// Returns the open files and folders.
    pub fn handles(&self) -> &HandleTable {
        &self.handles
    }

    /// Returns the log of requests.
    pub fn log(&self) -> &RequestLog {
        &self.log
    }

    /// Returns the accesses to files, for the access log.
    pub fn accesses(&self) -> &Accesses {
        &self.accesses
    }

    /// Returns the gate of requests.
    pub fn gate(&self) -> &RequestGate {
        &self.gate
    }

    /// Returns the policy of the page cache.
    pub fn cache_policy(&self) -> &CachePolicy {
        &self.cache_policy
    }

    /// Returns the files of `__zarrfs__/`.
    pub fn internal_files(&self) -> &InternalFiles {
        &self.internal_files
    }

    /// Returns whether the bytes of an open file are for its own reader alone, and must not fill pages of the kernel. All files of this
    /// kind bypass the page cache, but memory maps and sendfile(2) use it in spite of that.
    pub fn has_private_bytes(&self, inode: u64, file: &dyn OpenFile) -> bool {
        file.is_report()
            && self
                .inodes
                .get(inode)
                .is_some_and(|inode| self.internal_files.depends_on_user(inode.entity.kind))
    }

    /// Returns the commits.
    pub fn commits(&self) -> &Commits {
        &self.commits
    }

    /// Returns what opens and closes files and folders.
    pub fn opens(&self) -> &Opens {
        &self.opens
    }

    /// Returns the changes of names.
    pub fn names(&self) -> &NameChanges {
        &self.names
    }

    /// Returns the records by which another daemon takes the session over.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the members of a catalogue.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Returns the open file with this handle.
    pub fn file(&self, handle: u64) -> FsResult<Arc<dyn OpenFile>> {
        self.handles.get(handle)
    }

    /// Returns how long the kernel may remember that a name does not exist.
    pub fn negative_valid_for(&self) -> Duration {
        if self.options.changes_nodes() { Duration::ZERO } else { self.options.revalidate() }
    }

    /// Gives memory back because the system is short of it: half of the clean chunks in the cache, and idle memory. Returns the
    /// number of bytes.
    pub fn relieve_memory(&self) -> u64 {
        let bytes = self.engine.relieve();
        self.log.metrics().record_pressure(bytes);
        bytes
    }

    /// Removes all cached nodes.
    pub fn expire(&self) {
        self.nodes.expire();
    }

    /// Returns the free space of the file system of the store that has an inode.
    pub fn statfs(&self, inode: u64) -> FsResult<StatFs> {
        let path = self.inodes.get(inode).map(|inode| inode.entity.path.clone());
        Ok(self.nodes.store_at(path.as_deref().unwrap_or_default()).statfs()?)
    }

    /// Stores all dirty chunks durably, and gives up when nothing was stored for `stall_timeout`. Returns the arrays that could not
    /// be stored, with the reasons.
    pub fn store_all(&self, stall_timeout: Duration) -> Vec<(String, Error)> {
        self.engine.store_all(stall_timeout)
    }

    /// Returns the number of chunks and shards stored so far, and of objects that commits have sent.
    pub fn stored_objects(&self) -> u64 {
        self.engine.counters().objects_stored + self.commits.sent()
    }

    /// Returns the attributes of an inode.
    pub fn attributes(&self, inode: u64, blocking: Blocking) -> FsResult<Stat> {
        self.attributes.get_for_inode(&*self.inodes.live(inode)?, blocking)
    }

    /// Looks up a name in a folder.
    pub fn lookup(&self, parent: u64, name: &str, blocking: Blocking) -> FsResult<Stat> {
        let parent = self.inodes.live(parent)?;
        if !parent.entity.kind.is_folder() {
            return Err(Failure::Errno(libc::ENOTDIR));
        }
        let entity = self.entries.find(&parent.entity, name, blocking)?;
        self.attributes.look_up(&entity.ok_or(Failure::Errno(libc::ENOENT))?, blocking)
    }

    /// Looks up a name in a folder for a thread, 0 if unknown. A name that the thread is expected to create does not exist for it.
    pub fn lookup_by(&self, parent: u64, name: &str, thread: u32, blocking: Blocking) -> FsResult<Stat> {
        if self.entries.is_expected(parent, name, thread) {
            return Err(Failure::Errno(libc::ENOENT));
        }
        self.lookup(parent, name, blocking)
    }

    /// Returns the attributes of an entry, for readdirplus.
    pub fn entry_attributes(&self, entry: &FolderEntry, blocking: Blocking) -> FsResult<Stat> {
        // A lookup may make a companion file to learn its size, but a listing must not make a whole folder of them. A sidecar needs
        // only the documents.
        let blocking = match entry.entity.kind {
            EntityKind::Companion(format, _) if format.role != Role::Sidecar => Blocking::No,
            _ => blocking,
        };
        self.attributes.get(&entry.entity, blocking)
    }

    /// Returns the inode of an entry for a reply to the kernel.
    pub fn inode_of_entry(&self, entry: &FolderEntry) -> u64 {
        if entry.entity.is_transient() { self.inodes.look_up(&entry.entity) } else { entry.inode }
    }

    /// Returns the value of an extended attribute.
    pub fn xattr(&self, inode: u64, name: &str, blocking: Blocking) -> FsResult<Vec<u8>> {
        self.extended_attributes.value(&*self.inodes.live(inode)?, name, blocking)
    }

    /// Returns the names of all extended attributes, each terminated by NUL.
    pub fn xattr_names(&self, inode: u64, blocking: Blocking) -> FsResult<Vec<u8>> {
        self.extended_attributes.names(&*self.inodes.live(inode)?, blocking)
    }

    /// Changes attributes. Returns the pages that the kernel must drop.
    pub fn set_attributes(&self, inode: u64, change: SetAttr) -> FsResult<(Stat, Option<PageDrop>)> {
        self.attribute_changes.apply(inode, &change)
    }
}
