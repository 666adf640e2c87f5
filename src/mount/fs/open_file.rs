//! Open files: what each kind of them can do, the requests that they take, and the table of handles.
//!
//! A request looks its handle up once. These files implement [`OpenFile`]: `array_files/file.rs`, `virtual_files/open.rs`,
//! `virtual_files/sidecar_edit.rs`, `names/open.rs`, `commit.rs`, `entries.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::array::PendingWrite;
pub use crate::array::{ReadData, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::mount::access_log::handle::FileAccess;
use crate::mount::fs::entity::Entity;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::page_cache::page_drops::{PageDrop, PageRead};
use crate::mount::journal::record::{Content, OpenForWriting};
use crate::store::Object;

/// One entry of a folder.
#[derive(Clone, Debug)]
pub struct FolderEntry {
    /// The name.
    pub name: String,
    /// What the entry stands for.
    pub entity: Entity,
    /// The inode of the entity.
    pub inode: u64,
}

/// A read of an open file.
#[derive(Clone, Copy)]
pub struct FileRead<'a> {
    /// The offset of the first byte.
    pub offset: u64,
    /// How many bytes are read at most.
    pub size: u32,
    /// Whether it may wait for the store.
    pub blocking: Blocking,
    /// Whether its reply is still wanted.
    pub cancellation: &'a Cancellation,
}

/// A write to an open file.
#[derive(Clone, Copy)]
pub struct FileWrite<'a> {
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// Whether it is a page of a memory map.
    pub is_page: bool,
    /// Whether it may wait for the store, or for memory while too much is dirty.
    pub blocking: Blocking,
    /// The number of the kernel's request, 0 if this is none.
    pub request: u64,
}

/// A range of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileRange {
    /// The offset of its first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// The reply to a write.
#[derive(Debug)]
pub struct AcceptedWrite {
    /// The number of bytes.
    pub length: u32,
    /// The drop of pages that must precede the reply, because they may have been read before the write.
    pub page_drop: Option<PageDrop>,
}

/// A write that cannot fail any more. The reply is sent first, then the bytes are copied.
#[must_use = "the bytes are not written before it is finished"]
pub struct BegunWrite<'a> {
    /// The reply.
    pub accepted: AcceptedWrite,
    /// The copy that is still to be made, with the locks of its chunks; `None` if the bytes are copied.
    pub pending: Option<PendingWrite<'a>>,
}

impl BegunWrite<'_> {
    /// Returns a write whose bytes are copied already.
    pub fn copied(length: usize) -> Self {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        BegunWrite { accepted: AcceptedWrite { length, page_drop: None }, pending: None }
    }

    /// Copies the bytes.
    pub fn finish(self) -> AcceptedWrite {
        if let Some(pending) = self.pending {
            pending.copy();
        }
        self.accepted
    }
}

/// The result of copy_file_range(2).
#[derive(Debug)]
pub struct CopyResult {
    /// The number of bytes.
    pub length: u64,
    /// The pages to drop in addition to those of the range, which the kernel drops itself.
    pub page_drop: Option<PageDrop>,
}

/// A file that was opened and has no handle yet.
pub struct Opened<F> {
    /// The file.
    pub file: F,
    /// Whether reads and writes bypass the page cache.
    pub is_direct: bool,
    /// Whether the pages that the kernel has of this file are still valid.
    pub keeps_cache: bool,
    /// The object that the kernel may read itself instead.
    pub backing: Option<Arc<dyn Object>>,
}

impl<F> Opened<F> {
    /// Returns a file whose pages, if the kernel has any, the reply drops.
    pub fn without_cache(file: F, is_direct: bool) -> Self {
        Opened { file, is_direct, keeps_cache: false, backing: None }
    }
}

/// What an open handle does. A method that a kind of file does not have fails as the system call does.
pub trait OpenFile: Send + Sync {
    /// Reads exactly as many bytes as asked for, fewer only at the end of the file. The data may be in `buffer`. If the read would
    /// block and must not, `buffer` keeps its plan for the next attempt.
    fn read<'a>(&self, _read: FileRead<'_>, _buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        Err(Failure::Errno(libc::EISDIR))
    }

    /// Begins a write. If this succeeds, the write cannot fail any more, and every later operation on the file sees it; the caller
    /// replies and then finishes it. A write that would block and must not is repeated as a whole.
    fn write<'a>(&self, _write: FileWrite<'a>) -> FsResult<BegunWrite<'a>> {
        Err(Failure::Errno(libc::EBADF))
    }

    /// Stores dirty data for the close(2) of one descriptor of this handle, by a process (0 if unknown). A failure that close has
    /// reported is not reported by later closes, but still by fsync: the result of close is often ignored, for instance when a
    /// program starts another one and all its descriptors are closed there.
    fn flush(&self, _handle: u64, _process: u32) -> FsResult<()> {
        Ok(())
    }

    /// Stores durably what was written.
    fn fsync(&self) -> FsResult<()> {
        Ok(())
    }

    /// Does [`OpenFile::fsync`] for the fsync(2) of a program, which also fails if a truncated file is incomplete.
    fn sync(&self) -> FsResult<()> {
        self.fsync()
    }

    /// Returns the offset of the next hole, or of the next data. Blocks on the store.
    fn seek(&self, _start: u64, _wants_hole: bool, _cancellation: &Cancellation) -> FsResult<Option<u64>> {
        Err(Failure::Errno(libc::EISDIR))
    }

    /// Does fallocate(2). Holes and zero ranges are written as zeros; space is never reserved, and the size never changes. Returns
    /// the pages to drop in addition to those of the range, which the kernel drops itself.
    fn allocate(
        &self,
        _range: FileRange,
        _mode: i32,
        _cancellation: &Cancellation,
    ) -> FsResult<Option<PageDrop>> {
        Err(self.unsupported())
    }

    /// Does copy_file_range(2): copies `length` bytes of another file, from `from` on, to the offset `to`.
    fn copy_from(
        &self,
        _source: &dyn OpenFile,
        _from: u64,
        _to: u64,
        _length: u64,
        _cancellation: &Cancellation,
    ) -> FsResult<CopyResult> {
        Err(self.unsupported())
    }

    /// Returns the failure of requests that only the files of arrays support.
    fn unsupported(&self) -> Failure {
        // On EOPNOTSUPP the kernel copies to a sidecar by reading and writing.
        Failure::Errno(if self.is_writer() { libc::EOPNOTSUPP } else { libc::EBADF })
    }

    /// Ends the handle.
    fn release(&self) {}

    /// Records that the open of this handle got no reply, and so dropped no pages.
    fn cancel_open(&self) {}

    /// Returns whether it may write.
    fn is_writer(&self) -> bool {
        false
    }

    /// Returns whether it may write this inode, and is not about to be closed.
    fn is_active_writer_of(&self, _inode: u64) -> bool {
        false
    }

    /// Records that a read fills pages of the page cache, which matters on a writable mount. The caller keeps the returned value
    /// until it has replied.
    fn record_page_read(&self, _range: FileRange) -> Option<PageRead> {
        None
    }

    /// Returns whether a write with these flags (of the file or of the write itself: RWF_DSYNC comes as O_DSYNC) must be stored
    /// before the reply. For writes through the page cache the kernel sends an fsync itself.
    fn is_synchronous(&self, _flags: i32) -> bool {
        false
    }

    /// Returns whether a write to this range uses the store: it makes the array longer, or leaves a gap that must be zeroed.
    fn needs_store(&self, _range: FileRange) -> bool {
        false
    }

    /// Returns whether the file was truncated and is not written to its end yet.
    fn is_incomplete(&self) -> bool {
        false
    }

    /// Returns the page drop that lossy codecs need: the pages hold what was written, and the store holds something else.
    fn lossy_pages(&self) -> Option<PageDrop> {
        None
    }

    /// Returns whether the kernel reads the object of this handle itself.
    fn is_passthrough(&self) -> bool {
        false
    }

    /// Returns whether the mount reports about itself in this file or folder
    /// ([`EntityKind::is_report`](super::entity::EntityKind::is_report)).
    fn is_report(&self) -> bool {
        false
    }

    /// Returns what makes the file anew, if the daemon dies while it is open.
    fn content(&self) -> Content {
        Content::Unrepeatable
    }

    /// Returns how the file was opened for writing, if it was.
    fn writing(&self) -> Option<OpenForWriting> {
        self.is_writer().then_some(OpenForWriting { may_map: false, appends: false })
    }

    /// Opens the folder of a handle from before a restart of the daemon, if that is still to be done, so that it has entries.
    fn prepare(&self, _blocking: Blocking) -> FsResult<()> {
        Ok(())
    }

    /// Returns the entries of a folder, `.` and `..` first.
    fn entries(&self) -> Option<&[FolderEntry]> {
        None
    }

    /// Returns the entry with this number among the planes of a folder of planes.
    fn plane(&self, _number: u64) -> Option<FolderEntry> {
        None
    }
}

/// Returns the offset of the next hole or data of a file without holes.
pub fn seek_without_holes(size_bytes: u64, start: u64, wants_hole: bool) -> Option<u64> {
    (start < size_bytes).then_some(if wants_hole { size_bytes } else { start })
}

/// An open file or folder, and the record of its reads.
#[derive(Clone)]
pub struct OpenHandle {
    /// The file.
    pub file: Arc<dyn OpenFile>,
    /// What is read of it, if the mount has an access log.
    pub access: Option<Arc<FileAccess>>,
}

/// The open files and folders of a mount, by handle.
#[derive(Default)]
pub struct HandleTable {
    open: RwLock<HashMap<u64, OpenHandle>>,
    last: AtomicU64,
}

impl HandleTable {
    /// Adds a handle; its number is never reused.
    pub fn add(&self, file: impl OpenFile + 'static) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, OpenHandle { file: Arc::new(file), access: None });
        number
    }

    /// Adds a handle from before a restart of the daemon.
    pub fn restore(&self, number: u64, file: Arc<dyn OpenFile>) {
        self.open.write().insert(number, OpenHandle { file, access: None });
    }

    /// Records the reads of a handle from now on.
    pub fn set_access(&self, number: u64, access: Arc<FileAccess>) {
        if let Some(handle) = self.open.write().get_mut(&number) {
            handle.access = Some(access);
        }
    }

    /// Returns the records of all handles that have one.
    pub fn accesses(&self) -> Vec<Arc<FileAccess>> {
        self.open.read().values().filter_map(|handle| handle.access.clone()).collect()
    }

    /// Reserves the numbers up to `last`, which the kernel may know.
    pub fn keep_numbers_after(&self, last: u64) {
        self.last.fetch_max(last, Ordering::Relaxed);
    }

    /// Returns the open file with this handle.
    pub fn get(&self, number: u64) -> FsResult<Arc<dyn OpenFile>> {
        let open = self.open.read();
        open.get(&number).map(|handle| handle.file.clone()).ok_or(Failure::Errno(libc::EBADF))
    }

    /// Returns the open file with this handle, and the record of its reads.
    pub fn get_recorded(&self, number: u64) -> FsResult<OpenHandle> {
        self.open.read().get(&number).cloned().ok_or(Failure::Errno(libc::EBADF))
    }

    /// Returns whether the inode has a handle other than this one that may write and is not about to be closed.
    pub fn has_other_writer(&self, handle: u64, inode: u64) -> bool {
        let open = self.open.read();
        open.iter().any(|(&other, open)| other != handle && open.file.is_active_writer_of(inode))
    }

    /// Returns the open listings of a folder, with their handles.
    pub fn listings(&self, folder: &Entity) -> Vec<(u64, Arc<dyn OpenFile>)> {
        let open = self.open.read();
        let listings = open.iter().filter(|(_, open)| {
            open.file.entries().and_then(<[FolderEntry]>::first).is_some_and(|dot| dot.entity == *folder)
        });
        listings.map(|(&number, open)| (number, open.file.clone())).collect()
    }

    /// Removes a handle. A request that still uses its file keeps the file alive.
    pub fn remove(&self, number: u64) -> Option<OpenHandle> {
        self.open.write().remove(&number)
    }

    /// Returns the number of open handles.
    pub fn len(&self) -> usize {
        self.open.read().len()
    }

    /// Returns the number of open handles, without those of the mount's reports about itself.
    pub fn len_without_reports(&self) -> usize {
        self.open.read().values().filter(|open| !open.file.is_report()).count()
    }

    /// Returns whether no handle is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
