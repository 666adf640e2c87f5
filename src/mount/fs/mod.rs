//! The file system: names, attributes and operations. It has no FUSE types, so that it can be tested without a mount.
//!
//! [`FileSystem`] has no state of its own: it looks an inode or a handle up, and passes the request to a room. `entries.rs` and
//! `stat.rs` say what names stand for, `names` makes, removes and renames them, `array_files` has the files of arrays,
//! `virtual_files` has sidecars and companion files, `commit.rs` makes snapshots, and `page_cache` tracks the kernel's pages.
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
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::array::Engine;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::formats::Role;
use crate::mount::fs::accesses::Accesses;
use crate::mount::fs::array_files::open::{ArrayFiles, SizeChange};
use crate::mount::fs::attributes::{SetAttr, Stat};
use crate::mount::fs::commit::Commits;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::entries::{Entries, Listing};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::members::Members;
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::names::open::ScratchFiles;
use crate::mount::fs::names::permissions::NodePermissions;
use crate::mount::fs::names::{Caller, CreatedFile};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::{FolderEntry, HandleTable, OpenFile, OpenHandle, Opened};
use crate::mount::fs::page_cache::cache_mode::CachePolicy;
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::recovery::Recovery;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::fs::stat::FileAttributes;
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::internals::InternalFiles;
pub use crate::mount::fs::virtual_files::internals::{
    COMMIT, CONFIG, DaemonInfo, INTERNALS, KeeperInfo, SLOW, STATS, UNSAVED,
};
use crate::mount::fs::virtual_files::open::VirtualFiles;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::fs::xattr::ExtendedAttributes;
use crate::mount::options::Options;
use crate::store::{Object, StatFs};

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
    array_files: Arc<ArrayFiles>,
    virtual_files: Arc<VirtualFiles>,
    companions: Arc<Companions>,
    drafts: Arc<Drafts>,
    internal_files: Arc<InternalFiles>,
    commits: Arc<Commits>,
    scratch_files: Arc<ScratchFiles>,
    node_permissions: Arc<NodePermissions>,
    names: NameChanges,
    recovery: Recovery,
    members: Members,
}

/// The reply to open(2).
pub struct OpenReply {
    /// The handle.
    pub handle: u64,
    /// Whether reads and writes bypass the page cache.
    pub is_direct: bool,
    /// Whether the pages that the kernel has of this file are still valid.
    pub keeps_cache: bool,
    /// Whether it may write. Then the kernel sends a FLUSH for each close.
    pub writes: bool,
    /// The object that the kernel may read itself instead.
    pub backing: Option<Arc<dyn Object>>,
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

    /// Opens a file for the user of the daemon. Blocks on the store.
    pub fn open(&self, inode: u64, flags: i32, cancellation: &Cancellation) -> FsResult<OpenReply> {
        self.open_by(inode, flags, crate::sys::effective_ids().0, cancellation)
    }

    /// Opens a file for a user. Blocks on the store.
    pub fn open_by(
        &self,
        inode: u64,
        flags: i32,
        user: u32,
        cancellation: &Cancellation,
    ) -> FsResult<OpenReply> {
        self.open_entered(inode, flags, user, cancellation, false)
    }

    /// Opens a file for a request that may have entered the gate, which it must not do twice.
    fn open_entered(
        &self,
        inode: u64,
        flags: i32,
        user: u32,
        cancellation: &Cancellation,
        is_entered: bool,
    ) -> FsResult<OpenReply> {
        let inode = self.inodes.live(inode)?;
        if inode.is_closed_to_opens.load(Ordering::Acquire) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let opened = match inode.entity.kind {
            kind if kind.is_folder() => return Err(Failure::Errno(libc::EISDIR)),
            EntityKind::Scratch(number) => self.add_handle(self.scratch_files.open(number, flags)?),
            EntityKind::Array => {
                let writes = self.wants_writing(&inode.entity, flags)?;
                // A writer waits for the end of its member, and then opens the array that is there.
                let _entered = (writes && !is_entered).then(|| self.gate.wait_to_enter(&inode.entity.path));
                self.add_handle(self.array_files.open(&inode, writes, flags, cancellation)?)
            }
            _ => {
                // Programs that watch the mount must not cause requests to its service.
                if self.options.follows_branch && !inode.entity.kind.is_report() {
                    let followed = self.nodes.follow_branch();
                    followed.inspect_err(|failure| self.log.record_failure(&inode, "open", failure))?;
                }
                self.open_generated(inode.clone(), flags, user, cancellation)?
            }
        };
        self.recovery.record_open(inode.number, opened.handle, opened.is_direct, opened.backing.is_some());
        Ok(opened)
    }

    /// Opens a file that has no counterpart in the store.
    ///
    /// A sidecar, and a file whose content may change between opens, bypass the page cache: a reader gets the whole file even if
    /// the kernel has another size.
    fn open_generated(
        &self,
        inode: Arc<Inode>,
        flags: i32,
        user: u32,
        cancellation: &Cancellation,
    ) -> FsResult<OpenReply> {
        let writes = self.wants_writing(&inode.entity, flags)?;
        match inode.entity.kind {
            EntityKind::Commit => Ok(self.add_handle(self.commits.open(inode, writes))),
            _ if writes => Ok(self.add_handle(self.drafts.open(inode)?)),
            EntityKind::Companion(format, place) => {
                let opened = self.companions.open(&inode, format, place).and_then(|file| {
                    let bypasses = self.cache_policy.is_direct() || format.role == Role::Sidecar;
                    let is_direct = bypasses || !file.is_steady();
                    self.virtual_files.open(file, is_direct, cancellation)
                });
                let opened = opened.inspect_err(|failure| {
                    let request = format!("opening the {} form", format.name);
                    self.log.record_failure(&inode, &request, failure);
                })?;
                Ok(self.add_handle(opened))
            }
            kind => {
                let text = self.internal_files.text_for(kind, user).unwrap_or_default();
                Ok(self.add_handle(self.virtual_files.open_report(text, cancellation)?))
            }
        }
    }

    /// Returns whether these flags ask for writing. Fails if this kind of file cannot be written.
    fn wants_writing(&self, entity: &Entity, flags: i32) -> FsResult<bool> {
        let wants = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        match (wants, entity.kind) {
            (false, _) => Ok(false),
            (true, _) if !self.options.writable => Err(Failure::Errno(libc::EROFS)),
            (true, EntityKind::Array | EntityKind::Commit) => Ok(true),
            (true, _) if entity.is_sidecar() => Ok(true),
            (true, _) => Err(Failure::Errno(libc::EACCES)),
        }
    }

    fn add_handle<F: OpenFile + 'static>(&self, opened: Opened<F>) -> OpenReply {
        let Opened { file, is_direct, keeps_cache, backing } = opened;
        let writes = file.is_writer();
        OpenReply { handle: self.handles.add(file), is_direct, keeps_cache, writes, backing }
    }

    /// Opens a file, and makes it first if there is none.
    pub fn create(
        &self,
        folder: u64,
        name: &str,
        mode: u32,
        flags: i32,
        caller: Caller,
    ) -> FsResult<(Stat, OpenReply)> {
        match self.names.create(folder, name, mode, flags, caller)? {
            CreatedFile::New { stat, opened } => {
                let opened = self.add_handle(opened);
                self.recovery.record_open(stat.attributes.inode, opened.handle, opened.is_direct, false);
                Ok((stat, opened))
            }
            CreatedFile::Existing { stat, lock: _locked } => {
                let flags = flags & !(libc::O_CREAT | libc::O_EXCL);
                let user = crate::sys::effective_ids().0;
                let opened =
                    self.open_entered(stat.attributes.inode, flags, user, &Cancellation::never(), true)?;
                Ok((stat, opened))
            }
        }
    }

    /// Closes a file or folder.
    pub fn release(&self, handle: u64) {
        if let Some(OpenHandle { file, access }) = self.handles.remove(handle) {
            self.recovery.record_release(handle);
            if let Some(access) = access {
                self.accesses.end(&access);
            }
            self.end_file(handle, &*file);
        }
    }

    fn end_file(&self, handle: u64, file: &dyn OpenFile) {
        file.release();
        if file.entries().is_some() {
            self.names.table().end_listing(handle);
        }
    }

    /// Closes a handle whose open got no reply.
    pub fn cancel_open(&self, handle: u64) {
        // Nobody has it, so the access log does not have a line of it.
        if let Some(OpenHandle { file, .. }) = self.handles.remove(handle) {
            file.cancel_open();
            self.recovery.record_release(handle);
            self.end_file(handle, &*file);
        }
    }

    /// Opens a folder for a thread, 0 if unknown. From then on, names that the thread was expected to create exist for it.
    pub fn open_folder_by(&self, inode: u64, thread: u32) -> FsResult<u64> {
        if let Ok(inode) = self.inodes.live(inode) {
            self.names.table().end_expected_in(&inode.entity, thread);
        }
        self.open_folder(inode)
    }

    /// Opens a folder with a snapshot of its entries. Blocks on the store.
    pub fn open_folder(&self, inode: u64) -> FsResult<u64> {
        let inode = self.inodes.live(inode)?;
        let handle = self.handles.add(self.entries.list(&inode.entity, self.options.writable)?);
        self.recovery.record_open(inode.number, handle, false, false);
        Ok(handle)
    }

    /// Returns the entries of an open folder. May fail with [`Failure::WouldBlock`] if the folder was opened before a restart of the
    /// daemon.
    pub fn listing(&self, handle: u64, blocking: Blocking) -> FsResult<Listing> {
        let folder = self.handles.get(handle)?;
        folder.prepare(blocking)?;
        Listing::new(folder)
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
        if !self.options.writable {
            return Err(Failure::Errno(libc::EROFS));
        }
        let inode = self.inodes.live(inode)?;
        if let EntityKind::Scratch(number) = inode.entity.kind {
            self.scratch_files.set_attributes(number, &change)?;
            return Ok((self.names.table().stat(number)?, None));
        }
        let found = self.set_owner_and_mode(&inode.entity, &change)?;
        match change.size_bytes {
            Some(size_bytes) => self.set_size(&inode, &change, size_bytes, found),
            None => Ok((found, None)),
        }
    }

    fn set_owner_and_mode(&self, entity: &Entity, change: &SetAttr) -> FsResult<Stat> {
        let found = self.attributes.get(entity, Blocking::Yes)?;
        let now = found.attributes;
        // A mode is unchanged if it is the shown one, or the one in the store: programs set modes that they have read from either.
        let changes_mode = match change.mode.map(|mode| mode & 0o7777) {
            Some(mode) => mode != u32::from(now.mode) && Some(mode) != self.attributes.stored_mode(entity)?,
            None => false,
        };
        let changes_owner =
            change.uid.is_some_and(|uid| uid != now.uid) || change.gid.is_some_and(|gid| gid != now.gid);
        let is_set = changes_mode && self.node_permissions.set_mode(entity, change)?;
        if (changes_owner || changes_mode != is_set) && !self.options.ignores_chmod {
            return Err(Failure::Errno(libc::EPERM));
        }
        if is_set { self.attributes.get(entity, Blocking::Yes) } else { Ok(found) }
    }

    fn set_size(
        &self,
        inode: &Arc<Inode>,
        change: &SetAttr,
        size_bytes: u64,
        found: Stat,
    ) -> FsResult<(Stat, Option<PageDrop>)> {
        let entity = &inode.entity;
        if entity.kind == EntityKind::Commit {
            // The shell empties a file before it writes.
            return if size_bytes == 0 { Ok((found, None)) } else { Err(Failure::Errno(libc::EINVAL)) };
        }
        let _entered = self.gate.wait_to_enter(&entity.path);
        if entity.is_sidecar() {
            self.drafts.resize(inode, size_bytes, change.by_handle)?;
            return Ok((self.attributes.get(entity, Blocking::Yes)?, None));
        }
        if entity.kind != EntityKind::Array {
            return Err(Failure::Errno(libc::EPERM));
        }
        let shown_bytes = found.attributes.size_bytes;
        let changed = self.array_files.set_size(inode, size_bytes, shown_bytes, change.process)?;
        let SizeChange { page_drop, has_new_attributes } = changed;
        let found = if has_new_attributes { self.attributes.get(entity, Blocking::Yes)? } else { found };
        Ok((found, page_drop))
    }
}
