//! Opening and reading files.
//!
//! Invariants: a read is answered in full, cut only at the exact end of the file, or it fails as a whole; a
//! generated file is a snapshot of the moment it was opened; what others did to the store is seen at open(2).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::array::{Array, Gathered, Lent, Reader};
use crate::error::Error;
use crate::hierarchy::Node;
use crate::mount::answer_buffer::AnswerBuffer;
use crate::mount::failure::{Answer, Failure, Reach};
use crate::mount::fs::{FileSystem, flat_size};
use crate::mount::handle::Handle;
use crate::mount::inode::{Inode, Kind, OpenArray};
use crate::mount::nodes::Seen;
use crate::mount::page_cache::{Way, Wish};
use crate::mount::page_drops::{OpenDrop, PageDrop, PageRead};
use crate::mount::pool::Request;
use crate::store::Object;

/// What open(2) gave out.
pub struct Opened {
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

/// What a read gives.
pub enum Given<'a> {
    /// In the buffer that was lent for it.
    Copied(&'a [u8]),
    /// In the chunk cache.
    Lent(Lent),
}

impl Deref for Given<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Given::Copied(bytes) => bytes,
            Given::Lent(bytes) => bytes,
        }
    }
}

impl FileSystem {
    /// Opens a file. Blocks on the store.
    pub fn open(&self, inode: u64, flags: i32) -> Answer<Opened> {
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
        Ok(Opened { handle, is_direct: true, keeps_cache: false, writes, backing: None })
    }

    /// What is read next are pages for the page cache. What is given back is to be kept until the read is answered.
    pub fn note_page_read(&self, handle: u64, offset: u64, size: u32) -> Option<PageRead> {
        if !self.options.writable {
            return None;
        }
        let handle = self.handles.get(handle)?;
        let Handle::Array { inode, drop, .. } = &*handle else { return None };
        drop.note_use();
        let range = offset..offset.saturating_add(u64::from(size));
        if let Some(overwritten) = inode.page_cache_users.overwritten() {
            overwritten.remove(range.clone());
        }
        inode.page_cache_users.drops.note_read(range)
    }

    /// Reads from memory alone: `None` where that is not enough. What is read may be in `buffer`.
    pub fn read_cached<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut AnswerBuffer,
    ) -> Answer<Option<Given<'a>>> {
        self.read_within(handle, offset, size, buffer, Reach::Memory).map(Some).or_else(|failure| {
            match failure {
                Failure::NeedsStore => Ok(None),
                failure => Err(failure),
            }
        })
    }

    /// Reads: exactly `size` bytes from `offset`, fewer only at the end of the file. Blocks on the store.
    pub fn read<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut AnswerBuffer,
    ) -> Answer<Given<'a>> {
        self.read_within(handle, offset, size, buffer, Reach::Store)
    }

    /// Whether the kernel was given the object behind a handle.
    pub fn is_backed(&self, handle: u64) -> bool {
        self.handles
            .get(handle)
            .is_some_and(|handle| matches!(&*handle, Handle::Array { way, .. } if way.is_backed()))
    }

    /// Whether a handle's reads come from the page cache, while nothing is decoded.
    pub fn only_copies(&self, handle: u64) -> bool {
        self.engine.is_idle()
            && self
                .handles
                .get(handle)
                .is_some_and(|handle| matches!(&*handle, Handle::Array { way, .. } if !way.is_direct()))
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

    /// Counts a failed request and logs it.
    pub(super) fn note_failure(&self, inode: &Inode, request: &str, failure: &Failure) {
        let Failure::Error(error) = failure else { return };
        inode.counters.errors.fetch_add(1, Ordering::Relaxed);
        self.stats.note_error(error);
        self.failures.note(request, &inode.entity.path, error);
    }

    /// Counts and logs a request that failed; the number for the kernel. For what does not note its failures itself.
    pub fn note_request(&self, request: Request, failure: &Failure) -> i32 {
        if let Some(inode) = self.inodes.get(request.inode) {
            self.note_failure(&inode, &request.to_string(), failure);
        }
        failure.errno()
    }

    /// Counts and logs a request that the store did not answer in time.
    pub fn note_overdue(&self, request: Request) {
        let Some(inode) = self.inodes.get(request.inode) else { return };
        let key = inode.entity.path.to_string();
        self.note_failure(&inode, &request.to_string(), &Failure::Error(Error::TimedOut { key }));
    }

    fn open_array(&self, inode: &Arc<Inode>, writes: bool, only_writes: bool) -> Answer<Opened> {
        let path = &inode.entity.path;
        let shown_before = self.nodes.known(path).map(|seen| shown_size(&seen));
        let seen = self.nodes.current(path)?;
        self.reconcile(&inode.entity, &seen, Reach::Store)?;
        // Where the size has changed, the kernel still believes in the old one: on ESTALE it looks the name
        // up again, learns the new one, and opens again.
        if inode.is_stale() || shown_before.is_some_and(|size| size != shown_size(&seen)) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let readers = inode.audience.admit(self.readers(&seen));
        let array = match &seen.node {
            Some(Node::Array { .. }) => self.built_array(inode, &seen)?,
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
        let (way, drop, backing) = self.way(inode, &array, only_writes)?;
        let (is_direct, keeps_cache) = (way.is_direct(), drop.is_none());
        let drop = OpenDrop::new(drop);
        std::mem::drop(opening);
        let writer = if writes { Some(self.open_writer(&array, !only_writes)?) } else { None };
        let handle =
            Handle::Array { inode: inode.clone(), reader: Reader::default(), writer, way, drop, readers };
        Ok(Opened { handle: self.handles.add(handle), is_direct, keeps_cache, writes, backing })
    }

    /// How an array's file is opened, what is dropped before, and the object that the kernel is to read.
    fn way(
        &self,
        inode: &Arc<Inode>,
        array: &Array,
        only_writes: bool,
    ) -> Answer<(Way, Option<PageDrop>, Backing)> {
        // Where looking fails, reading tells why.
        let object = if self.backs_files() { array.sole_object().unwrap_or_default() } else { None };
        let wish = match &object {
            Some(object) => Wish::Backed(object.version()),
            None if only_writes && self.lets_writes_pass() => Wish::PassWrites,
            None if self.options.direct_io => Wish::Direct,
            None => Wish::Cached,
        };
        let Some((way, drop)) = Way::new(&inode.page_cache_users, wish) else {
            // As with a file that was replaced, others go on with the old one: it keeps its inode.
            self.inodes.retire(inode);
            return Err(Failure::Errno(libc::ESTALE));
        };
        let backing = object.filter(|_| way.is_backed());
        Ok((way, drop, backing))
    }

    /// The array of an inode, built if this is the first time; fails as it cannot be served.
    fn built_array(&self, inode: &Inode, seen: &Seen) -> Answer<Arc<Array>> {
        let Some(Node::Array { metadata, .. }) = &seen.node else {
            return Err(Failure::Errno(libc::ESTALE));
        };
        let mut slot = inode.open_array.write();
        let open = match &*slot {
            Some(open) => open.clone(),
            None => {
                let array = self.build(&inode.entity.path, metadata, &inode.audience);
                let (metadata, version) = (metadata.clone(), seen.version);
                let open = Arc::new(OpenArray { metadata, version, read_at: seen.read_at, array });
                *slot = Some(open.clone());
                open
            }
        };
        drop(slot);
        Ok(open.array.clone()?)
    }

    fn read_within<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut AnswerBuffer,
        reach: Reach,
    ) -> Answer<Given<'a>> {
        self.unless_over()?;
        let handle = self.handles.get(handle).ok_or(Failure::Errno(libc::EBADF))?;
        match &*handle {
            Handle::Folder(_) => Err(Failure::Errno(libc::EISDIR)),
            Handle::Draft { draft, .. } => Ok(Given::Copied(draft.read(offset, size, buffer))),
            Handle::Generated(content) => Ok(Given::Copied(buffer.copy_part(content, offset, size))),
            Handle::Companion(made) => Ok(Given::Copied(buffer.copy_part(&made.bytes, offset, size))),
            Handle::Array { inode, reader, way, drop, .. } => {
                drop.note_use();
                let read = self.read_array(inode, (reader, way.is_direct()), (offset, size), buffer, reach);
                if let Err(failure @ Failure::Error(_)) = &read {
                    let request = format!("read of {size} bytes at {offset}");
                    self.note_failure(inode, &request, failure);
                }
                read
            }
        }
    }

    fn read_array<'a>(
        &self,
        inode: &Inode,
        (reader, is_direct): (&Reader, bool),
        (offset, size): (u64, u32),
        buffer: &'a mut AnswerBuffer,
        reach: Reach,
    ) -> Answer<Given<'a>> {
        if reach == Reach::Store {
            self.recheck(inode)?;
        }
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = inode.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        let array = open.array.as_ref().map_err(Error::clone)?;
        let length = array.size_bytes().saturating_sub(offset).min(u64::from(size));
        let lent = array.lend(offset, length).filter(|_| reach == Reach::Memory);
        let is_one_run = lent.is_some();
        let gathered = match lent {
            Some(lent) => Gathered::Ready(lent),
            None if !is_direct => Gathered::None,
            None => array.gathered(reader, offset..offset + length, reach == Reach::Store),
        };
        let given = match gathered {
            Gathered::Ready(lent) => Given::Lent(lent),
            Gathered::Blocks => return Err(Failure::NeedsStore),
            Gathered::None => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let out = buffer.bytes(length);
                match reach {
                    _ if out.is_empty() => {}
                    Reach::Memory if !array.read_cached(offset, out) => return Err(Failure::NeedsStore),
                    Reach::Memory => {}
                    Reach::Store => array.read_by(reader, offset, out)?,
                }
                Given::Copied(out)
            }
        };
        inode.counters.reads.fetch_add(1, Ordering::Relaxed);
        inode.counters.bytes.fetch_add(length, Ordering::Relaxed);
        self.stats.note_read(length);
        match self.options.prefetch {
            true if is_direct && !is_one_run => array.note_lone_read(reader, offset, offset + length),
            true => array.note_read(reader, offset, offset + length),
            false => {}
        }
        Ok(given)
    }

    /// Looks whether the array behind open handles still is the one that was opened, once per `revalidate`: an array
    /// that went or was replaced must not be read as fill values.
    pub(super) fn recheck(&self, inode: &Inode) -> Answer<()> {
        let now = Instant::now();
        {
            let mut checked_at = inode.checked_at.lock();
            if checked_at.is_some_and(|at| now.duration_since(at) < self.nodes.revalidate()) {
                return Ok(());
            }
            *checked_at = Some(now);
        }
        let Some(open) = inode.open_array() else { return Ok(()) };
        if self.nodes.version(&inode.entity.path)? != open.version {
            let seen = self.nodes.current(&inode.entity.path)?;
            self.reconcile(&inode.entity, &seen, Reach::Store)?;
        }
        Ok(())
    }
}

/// The size that stat(2) shows of an array; `None` where it is not known.
fn shown_size(seen: &Seen) -> Option<u64> {
    match &seen.node {
        Some(Node::Array { metadata, .. }) => flat_size(metadata),
        Some(Node::Broken { size_bytes, .. }) => *size_bytes,
        Some(Node::Group { .. }) | None => None,
    }
}
