//! Opening and closing files and folders.
//!
//! This file uses the rooms that have the kinds of files, the table of handles, and what is recorded of a handle for another daemon
//! and for the access log.

use std::sync::Arc;

use crate::cancellation::Cancellation;
use crate::formats::Role;
use crate::mount::fs::accesses::{Accesses, OpenMode};
use crate::mount::fs::array_files::open::ArrayFiles;
use crate::mount::fs::attributes::Stat;
use crate::mount::fs::commit::Commits;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::entries::{Entries, Listing};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::names::open::ScratchFiles;
use crate::mount::fs::names::{Caller, CreatedFile};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::{HandleTable, OpenFile, OpenHandle, Opened};
use crate::mount::fs::page_cache::cache_mode::CachePolicy;
use crate::mount::fs::recovery::Recovery;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::internals::InternalFiles;
use crate::mount::fs::virtual_files::open::VirtualFiles;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::options::Options;
use crate::store::Object;

/// Opens and closes files and folders.
pub struct Opens {
    pub(in crate::mount::fs) options: Arc<Options>,
    pub(in crate::mount::fs) nodes: Arc<NodeCache>,
    pub(in crate::mount::fs) inodes: Arc<InodeTable>,
    pub(in crate::mount::fs) handles: Arc<HandleTable>,
    pub(in crate::mount::fs) log: Arc<RequestLog>,
    pub(in crate::mount::fs) accesses: Arc<Accesses>,
    pub(in crate::mount::fs) gate: Arc<RequestGate>,
    pub(in crate::mount::fs) cache_policy: Arc<CachePolicy>,
    pub(in crate::mount::fs) entries: Arc<Entries>,
    pub(in crate::mount::fs) array_files: Arc<ArrayFiles>,
    pub(in crate::mount::fs) virtual_files: Arc<VirtualFiles>,
    pub(in crate::mount::fs) companions: Arc<Companions>,
    pub(in crate::mount::fs) drafts: Arc<Drafts>,
    pub(in crate::mount::fs) internal_files: Arc<InternalFiles>,
    pub(in crate::mount::fs) commits: Arc<Commits>,
    pub(in crate::mount::fs) scratch_files: Arc<ScratchFiles>,
    pub(in crate::mount::fs) names: Arc<NameChanges>,
    pub(in crate::mount::fs) recovery: Arc<Recovery>,
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

impl OpenReply {
    /// Returns how the kernel reads the file.
    pub fn mode(&self) -> OpenMode {
        OpenMode { is_direct: self.is_direct, is_passthrough: self.backing.is_some() }
    }
}

impl Opens {
    /// Opens a file for the user of the daemon. Blocks on the store.
    pub fn open(&self, inode: u64, flags: i32, cancellation: &Cancellation) -> FsResult<OpenReply> {
        let caller = Caller { uid: crate::sys::effective_ids().0, gid: 0, thread: 0, request: 0 };
        self.open_by(inode, flags, caller, cancellation)
    }

    /// Opens a file for a user. Blocks on the store.
    pub fn open_by(
        &self,
        inode: u64,
        flags: i32,
        caller: Caller,
        cancellation: &Cancellation,
    ) -> FsResult<OpenReply> {
        self.open_entered(inode, flags, caller, cancellation, false)
    }

    /// Opens a file for a request that may have entered the gate, which it must not do twice.
    fn open_entered(
        &self,
        inode: u64,
        flags: i32,
        caller: Caller,
        cancellation: &Cancellation,
        is_entered: bool,
    ) -> FsResult<OpenReply> {
        let inode = self.inodes.live(inode)?;
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
                self.open_generated(inode.clone(), flags, caller.uid, cancellation)?
            }
        };
        self.recovery.record_open(inode.number, opened.handle, opened.mode(), caller.request);
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
                self.recovery.record_open(
                    stat.attributes.inode,
                    opened.handle,
                    opened.mode(),
                    caller.request,
                );
                Ok((stat, opened))
            }
            CreatedFile::Existing { stat, lock: _locked } => {
                let flags = flags & !(libc::O_CREAT | libc::O_EXCL);
                let opened =
                    self.open_entered(stat.attributes.inode, flags, caller, &Cancellation::never(), true)?;
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
        // No program has it, so the access log does not have a line of it.
        if let Some(OpenHandle { file, .. }) = self.handles.remove(handle) {
            file.cancel_open();
            self.recovery.record_release(handle);
            self.end_file(handle, &*file);
        }
    }

    /// Opens a folder for a thread. From then on, names that the thread was expected to create exist for it.
    pub fn open_folder_by(&self, inode: u64, caller: Caller) -> FsResult<u64> {
        if let Ok(inode) = self.inodes.live(inode) {
            self.names.table().end_expected_in(&inode.entity, caller.thread);
        }
        self.list_folder(inode, caller.request)
    }

    /// Opens a folder with a snapshot of its entries. Blocks on the store.
    pub fn open_folder(&self, inode: u64) -> FsResult<u64> {
        self.list_folder(inode, 0)
    }

    fn list_folder(&self, inode: u64, request: u64) -> FsResult<u64> {
        let inode = self.inodes.live(inode)?;
        let handle = self.handles.add(self.entries.list(&inode.entity, self.options.writable)?);
        let mode = OpenMode { is_direct: false, is_passthrough: false };
        self.recovery.record_open(inode.number, handle, mode, request);
        Ok(handle)
    }

    /// Returns the entries of an open folder. May fail with [`Failure::WouldBlock`] if the folder was opened before a restart of the
    /// daemon.
    pub fn listing(&self, handle: u64, blocking: Blocking) -> FsResult<Listing> {
        let folder = self.handles.get(handle)?;
        folder.prepare(blocking)?;
        Listing::new(folder)
    }
}
