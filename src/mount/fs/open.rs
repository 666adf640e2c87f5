//! Opening and reading files.
//!
//! Invariants: a read is answered in full, cut only at the exact end of the file, or it fails as a whole; a
//! generated file is a snapshot of the moment it was opened; what others did to the store is seen at open(2).

use std::sync::Arc;
use std::time::Instant;

use crate::array::{Array, Reader};
use crate::hierarchy::Node;
use crate::mount::fs::FileSystem;
use crate::mount::fs::arrays::shown_size;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::Handle;
use crate::mount::fs::inode::{Inode, Kind};
use crate::mount::fs::page_cache::cache_mode::{CacheMode, RequestedMode};
use crate::mount::fs::page_cache::page_drops::{OpenDrop, PageDrop};
use crate::store::Object;

/// What open(2) gave out.
pub struct OpenReply {
    /// The handle.
    pub handle: u64,
    /// Reads come here without passing the page cache.
    pub is_direct: bool,
    /// What the page cache holds of this file still is what the store holds.
    pub keeps_cache: bool,
    /// It may write: each close is to be told.
    pub writes: bool,
    /// An object that the kernel may read by itself instead.
    pub backing: Backing,
}

/// An object that the kernel may read by itself.
type Backing = Option<Arc<dyn Object>>;

impl FileSystem {
    /// Opens a file. Blocks on the store.
    pub fn open(&self, inode: u64, flags: i32) -> FsResult<OpenReply> {
        let inode = self.inode(inode)?;
        if inode.entity.kind.is_folder() {
            return Err(Failure::Errno(libc::EISDIR));
        }
        let writes = self.wants_writing(inode.entity.kind, flags)?;
        if inode.entity.kind == Kind::Array {
            return self
                .open_array(&inode, writes, flags & libc::O_ACCMODE == libc::O_WRONLY)
                .inspect_err(|failure| self.note_failure(&inode, "open", failure));
        }
        if let Kind::Companion(format) = inode.entity.kind {
            return self.open_companion(&inode, format);
        }
        if writes {
            return self.open_draft(&inode).inspect_err(|failure| self.note_failure(&inode, "open", failure));
        }
        let content = self.generate(&inode.entity)?;
        let handle = self.handles.add(Handle::Generated(content));
        Ok(OpenReply { handle, is_direct: true, keeps_cache: false, writes, backing: None })
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

    /// Takes back an open that could not be answered.
    pub fn cancel_open(&self, handle: u64) {
        if let Some(Handle::Array { drop, .. }) = self.handles.get(handle).as_deref() {
            drop.cancel();
        }
        self.release(handle);
    }

    fn open_array(&self, inode: &Arc<Inode>, writes: bool, only_writes: bool) -> FsResult<OpenReply> {
        let path = &inode.entity.path;
        let shown_before = self.nodes.peek(path).map(|cached| shown_size(&cached));
        let cached = self.nodes.current(path)?;
        self.reconcile(&inode.entity, &cached, Blocking::Yes)?;
        // Where the size has changed, the kernel still believes in the old one: on ESTALE it looks the name
        // up again, learns the new one, and opens again.
        if inode.is_stale() || shown_before.is_some_and(|size| size != shown_size(&cached)) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let readers = inode.audience.admit(self.readers(&cached));
        let array = match &cached.node {
            Some(Node::Array { .. }) => self.built_array(inode, &cached)?,
            Some(Node::Broken { error, .. }) => return Err(error.clone().into()),
            Some(Node::Group { .. }) | None => return Err(Failure::Errno(libc::ESTALE)),
        };
        // What nobody opened so far the kernel has nothing of.
        let is_first = inode.checked_at.lock().replace(Instant::now()).is_none();
        let opening = inode.page_cache_users.opening.lock();
        // Also with direct I/O: what changed must leave the chunk cache.
        if !array.revalidate()? && !is_first {
            inode.page_cache_users.drops.note_reason();
        }
        let (cache_mode, drop, backing) = self.choose_cache_mode(inode, &array, only_writes)?;
        let (is_direct, keeps_cache) = (cache_mode.is_direct(), drop.is_none());
        let drop = OpenDrop::new(drop);
        std::mem::drop(opening);
        let writer = if writes { Some(self.open_writer(&array, !only_writes)?) } else { None };
        let handle = Handle::Array {
            inode: inode.clone(),
            reader: Reader::default(),
            writer,
            cache_mode,
            drop,
            readers,
        };
        Ok(OpenReply { handle: self.handles.add(handle), is_direct, keeps_cache, writes, backing })
    }

    /// How an array's file is opened, what is dropped before, and the object that the kernel is to read.
    fn choose_cache_mode(
        &self,
        inode: &Arc<Inode>,
        array: &Array,
        only_writes: bool,
    ) -> FsResult<(CacheMode, Option<PageDrop>, Backing)> {
        // Where looking fails, reading tells why.
        let object = if self.uses_passthrough() { array.sole_object().unwrap_or_default() } else { None };
        let requested = match &object {
            Some(object) => RequestedMode::Passthrough(object.validator()),
            None if only_writes && self.allows_direct_writes() => RequestedMode::DirectWriter,
            None if self.options.direct_io => RequestedMode::Direct,
            None => RequestedMode::Cached,
        };
        let Some((cache_mode, drop)) = CacheMode::new(&inode.page_cache_users, requested) else {
            // As with a file that was replaced, others go on with the old one: it keeps its inode.
            self.inodes.retire(inode);
            return Err(Failure::Errno(libc::ESTALE));
        };
        let backing = object.filter(|_| cache_mode.is_passthrough());
        Ok((cache_mode, drop, backing))
    }
}
