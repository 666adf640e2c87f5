//! Opening files: arrays, sidecars, companion files and generated files.
//!
//! Invariants: a generated file is a snapshot of the moment of its open; changes of the store are seen at
//! open(2).

use std::sync::Arc;
use std::time::Instant;

use crate::array::{Array, Readahead, Reader};
use crate::cancellation::Cancellation;
use crate::formats::Role;
use crate::formats::virtual_file::VirtualFile;
use crate::hierarchy::Node;
use crate::mount::fs::FileSystem;
use crate::mount::fs::arrays::shown_size;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::OpenFile;
use crate::mount::fs::inode::{Inode, Kind};
use crate::mount::fs::open_files::{ArrayFile, DraftFile, OpenVirtualFile};
use crate::mount::fs::page_cache::cache_mode::{CacheMode, RequestedMode};
use crate::mount::fs::page_cache::page_drops::{OpenDrop, PageDrop};
use crate::store::Object;

/// What open(2) replies.
pub struct OpenReply {
    /// The handle.
    pub handle: u64,
    /// Reads and writes bypass the page cache.
    pub is_direct: bool,
    /// The page cache of this file is still valid.
    pub keeps_cache: bool,
    /// It may write: the kernel sends a FLUSH for each close.
    pub writes: bool,
    /// The object that the kernel may read itself instead.
    pub backing: Backing,
}

impl OpenReply {
    pub(super) fn of_virtual_file(handle: u64, writes: bool, is_direct: bool) -> Self {
        OpenReply { handle, is_direct, keeps_cache: false, writes, backing: None }
    }
}

/// An object that the kernel may read itself.
type Backing = Option<Arc<dyn Object>>;

impl FileSystem {
    /// Opens a file. Blocks on the store.
    pub fn open(&self, inode: u64, flags: i32, cancellation: &Cancellation) -> FsResult<OpenReply> {
        let inode = self.inode(inode)?;
        if inode.entity.kind.is_folder() {
            return Err(Failure::Errno(libc::EISDIR));
        }
        if let Kind::Scratch(number) = inode.entity.kind {
            let (handle, writes) = self.open_scratch(number, flags)?;
            return Ok(OpenReply::of_virtual_file(handle, writes, true));
        }
        self.follow_branch().inspect_err(|failure| self.note_failure(&inode, "open", failure))?;
        let writes = self.wants_writing(&inode.entity, flags)?;
        if inode.entity.kind == Kind::Array {
            return self
                .open_array(&inode, writes, flags, cancellation)
                .inspect_err(|failure| self.note_failure(&inode, "open", failure));
        }
        if inode.entity.kind == Kind::Commit {
            let handle = self.handles.add(self.open_commit(inode, writes));
            return Ok(OpenReply::of_virtual_file(handle, writes, true));
        }
        if writes {
            let draft = self.drafts.open(&self.context(), &inode);
            let draft = draft.inspect_err(|failure| self.note_failure(&inode, "open", failure))?;
            let handle = self.handles.add(DraftFile { inode, draft });
            return Ok(OpenReply::of_virtual_file(handle, true, true));
        }
        if let Kind::Companion(format, place) = inode.entity.kind {
            let file = self.companions.open(&self.context(), &inode, (format, place));
            let bypasses = self.options.direct_io || format.role == Role::Sidecar;
            let opened = file.and_then(|file| {
                let is_direct = bypasses || !file.is_steady();
                self.open_virtual(file, is_direct, cancellation)
            });
            return opened.inspect_err(|failure| {
                self.note_failure(&inode, &format!("opening the {} form", format.name), failure);
            });
        }
        let text = self.own_text(inode.entity.kind).unwrap_or_default();
        self.open_virtual(Arc::new(VirtualFile::of_bytes(text.into_bytes())), true, cancellation)
    }

    /// Has a store of versions show the newest snapshot of its branch, once per `revalidate`, if the mount follows it.
    fn follow_branch(&self) -> FsResult<()> {
        let store = self.nodes.store();
        let Some(versions) = store.versions().filter(|_| self.options.follows_branch) else { return Ok(()) };
        let Some(branch) = versions.branch() else { return Ok(()) };
        let mut followed_at = self.followed_at.lock();
        if followed_at.is_none_or(|at| at.elapsed() >= self.nodes.revalidate()) {
            versions.follow(branch)?;
            *followed_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Opens a file that is read only. The reply drops its pages.
    fn open_virtual(
        &self,
        file: Arc<VirtualFile>,
        is_direct: bool,
        cancellation: &Cancellation,
    ) -> FsResult<OpenReply> {
        let arrays = self.use_arrays(&file, cancellation)?;
        let reader = file.reader(self.readahead(is_direct));
        let handle = self.handles.add(OpenVirtualFile { file, reader, arrays });
        Ok(OpenReply::of_virtual_file(handle, false, is_direct))
    }

    /// Closes a file or folder.
    pub fn release(&self, handle: u64) {
        if let Some(file) = self.handles.remove(handle) {
            file.release(self);
            if file.entries().is_some() {
                self.end_listing(handle);
            }
        }
    }

    /// Undoes an open that got no reply.
    pub fn cancel_open(&self, handle: u64) {
        if let Some(array) = self.handles.get(handle).as_deref().and_then(OpenFile::as_array) {
            array.drop.cancel();
        }
        self.release(handle);
    }

    fn open_array(
        &self,
        inode: &Arc<Inode>,
        writes: bool,
        flags: i32,
        cancellation: &Cancellation,
    ) -> FsResult<OpenReply> {
        let only_writes = flags & libc::O_ACCMODE == libc::O_WRONLY;
        let appends = flags & libc::O_APPEND != 0;
        let shared = inode.shared.as_ref().ok_or(Failure::Errno(libc::EBADF))?;
        let path = &inode.entity.path;
        let shown_before = self.nodes.peek(path).map(|cached| shown_size(&cached));
        let cached = if writes { self.nodes.current(path)? } else { self.nodes.for_reader(path)? };
        self.context().reconcile(&inode.entity, &cached, Blocking::Yes)?;
        // If another program has changed the size, the kernel still uses the old one: on ESTALE it looks the name up again, learns
        // the new size, and repeats the open once. A growth by a program of this mount is not news: the kernel has its size, or gets it
        // with the reply to that program. Otherwise an open next to programs that append would be ESTALE twice, and fail.
        let is_untold = inode.written_end.is_size_untold();
        let shown = shown_size(&cached);
        let is_own_growth = || {
            let open = inode.open_array();
            open.is_some_and(|open| shown.is_some_and(|size| open.was_lengthened_to(size)))
        };
        let has_news = shown_before.is_some_and(|size| size != shown) && !is_own_growth();
        if inode.is_stale() || is_untold || has_news {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let readers = shared.audience.admit(self.permissions.readers(cached.node.as_deref()));
        let array = match cached.node.as_deref() {
            Some(Node::Array { .. }) => self.arrays.open(shared, cached.state())?,
            Some(Node::Broken { error, .. }) => return Err(error.clone().into()),
            Some(Node::Group { .. }) | None => return Err(Failure::Errno(libc::ESTALE)),
        };
        let opening = self.revalidate(inode, shared, &array, cancellation)?;
        let (cache_mode, drop, backing) = self.choose_cache_mode(inode, &array, only_writes)?;
        let (is_direct, keeps_cache) = (cache_mode.is_direct(), drop.is_none());
        let drop = OpenDrop::new(drop);
        std::mem::drop(opening);
        let writer = if writes { Some(self.open_writer_in_step(inode, &array, !only_writes)?) } else { None };
        let reader = Reader::new(self.readahead(is_direct));
        let file = ArrayFile { inode: inode.clone(), reader, writer, cache_mode, drop, readers, appends };
        Ok(OpenReply { handle: self.handles.add(file), is_direct, keeps_cache, writes, backing })
    }

    /// How the array's files are read ahead: the kernel does not for those that bypass its page cache.
    pub(super) fn readahead(&self, is_direct: bool) -> Readahead {
        match (self.options.prefetch, is_direct) {
            (false, _) => Readahead::Off,
            (true, false) => Readahead::Chunks,
            (true, true) => Readahead::Replies,
        }
    }

    /// How an array's file is opened, the page drop that goes with it, and the object that the kernel reads
    /// itself.
    fn choose_cache_mode(
        &self,
        inode: &Arc<Inode>,
        array: &Array,
        only_writes: bool,
    ) -> FsResult<(CacheMode, Option<PageDrop>, Backing)> {
        // If this fails, a read reports the reason.
        let object = if self.uses_passthrough() { array.sole_object().unwrap_or_default() } else { None };
        let requested = match &object {
            Some(object) => RequestedMode::Passthrough(object.version()),
            None if only_writes && self.allows_direct_writes() => RequestedMode::DirectWriter,
            None if self.options.direct_io => RequestedMode::Direct,
            None => RequestedMode::Cached,
        };
        let Some((cache_mode, drop)) = CacheMode::new(&inode.page_cache_users, requested) else {
            // As with a replaced file, the other handles keep the old inode.
            self.inodes.retire(inode);
            return Err(Failure::Errno(libc::ESTALE));
        };
        let backing = object.filter(|_| cache_mode.is_passthrough());
        Ok((cache_mode, drop, backing))
    }
}
