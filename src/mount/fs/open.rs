//! Opening files: arrays, sidecars, companion files and generated files.
//!
//! Invariants: a generated file is a snapshot of the moment of its open; changes of the store are seen at
//! open(2).

use std::sync::Arc;
use std::time::Instant;

use crate::array::{Array, Readahead, Reader};
use crate::cancellation::Cancellation;
use crate::hierarchy::Node;
use crate::mount::fs::FileSystem;
use crate::mount::fs::arrays::shown_size;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::Handle;
use crate::mount::fs::inode::{Inode, Kind};
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
    fn of_virtual_file(handle: u64, writes: bool) -> Self {
        OpenReply { handle, is_direct: true, keeps_cache: false, writes, backing: None }
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
        let writes = self.wants_writing(inode.entity.kind, flags)?;
        if inode.entity.kind == Kind::Array {
            return self
                .open_array(&inode, writes, flags & libc::O_ACCMODE == libc::O_WRONLY, cancellation)
                .inspect_err(|failure| self.note_failure(&inode, "open", failure));
        }
        if let Kind::Companion(format) = inode.entity.kind {
            let made = self.companions.open(&self.context(), &inode.entity, format);
            let made = made.inspect_err(|failure| {
                self.note_failure(&inode, &format!("opening the {} form", format.name), failure);
            })?;
            return Ok(OpenReply::of_virtual_file(self.handles.add(Handle::Companion(made)), false));
        }
        if writes {
            let draft = self.drafts.open(&self.context(), &inode);
            let draft = draft.inspect_err(|failure| self.note_failure(&inode, "open", failure))?;
            let handle = self.handles.add(Handle::Draft { inode, draft });
            return Ok(OpenReply::of_virtual_file(handle, true));
        }
        let content = self.generate(&inode.entity)?;
        Ok(OpenReply::of_virtual_file(self.handles.add(Handle::Generated(content)), false))
    }

    /// Closes a file or folder.
    pub fn release(&self, handle: u64) {
        if let Some(handle) = self.handles.remove(handle) {
            if let Handle::Array { drop, .. } = &*handle {
                drop.note_use();
            }
            self.end_writer(&handle);
        }
    }

    /// Undoes an open that got no reply.
    pub fn cancel_open(&self, handle: u64) {
        if let Some(Handle::Array { drop, .. }) = self.handles.get(handle).as_deref() {
            drop.cancel();
        }
        self.release(handle);
    }

    fn open_array(
        &self,
        inode: &Arc<Inode>,
        writes: bool,
        only_writes: bool,
        cancellation: &Cancellation,
    ) -> FsResult<OpenReply> {
        let path = &inode.entity.path;
        let shown_before = self.nodes.peek(path).map(|cached| shown_size(&cached));
        let cached = self.nodes.current(path)?;
        self.reconcile(&inode.entity, &cached, Blocking::Yes)?;
        // If the size has changed, the kernel still uses the old one: on ESTALE it looks the name up again,
        // learns the new size, and repeats the open.
        if inode.is_stale() || shown_before.is_some_and(|size| size != shown_size(&cached)) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let readers = inode.audience.admit(self.permissions.readers(&cached));
        let array = match &cached.node {
            Some(Node::Array { .. }) => self.built_array(inode, &cached)?,
            Some(Node::Broken { error, .. }) => return Err(error.clone().into()),
            Some(Node::Group { .. }) | None => return Err(Failure::Errno(libc::ESTALE)),
        };
        // The kernel has no pages of a file that was never opened.
        let is_first = inode.checked_at.lock().replace(Instant::now()).is_none();
        let opening = inode.page_cache_users.opening.lock();
        // Also with direct I/O: changed chunks must leave the chunk cache.
        if !array.revalidate(cancellation)? && !is_first {
            inode.page_cache_users.drops.note_reason();
        }
        let (cache_mode, drop, backing) = self.choose_cache_mode(inode, &array, only_writes)?;
        let (is_direct, keeps_cache) = (cache_mode.is_direct(), drop.is_none());
        let drop = OpenDrop::new(drop);
        std::mem::drop(opening);
        let writer = if writes { Some(self.open_writer(&array, !only_writes)?) } else { None };
        let readahead = match (self.options.prefetch, is_direct) {
            (false, _) => Readahead::Off,
            (true, false) => Readahead::Chunks,
            (true, true) => Readahead::Replies,
        };
        let handle = Handle::Array {
            inode: inode.clone(),
            reader: Reader::new(readahead),
            writer,
            cache_mode,
            drop,
            readers,
        };
        Ok(OpenReply { handle: self.handles.add(handle), is_direct, keeps_cache, writes, backing })
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
