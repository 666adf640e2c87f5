//! What an open file does, whatever its kind, and the requests that it takes.
//!
//! A request looks its handle up once, in the table of handles. Each room has the files that it opens: `array_files/file.rs`,
//! `virtual_files/open.rs`, `virtual_files/sidecar_edit.rs`, `names/open.rs`, `commit.rs`, `entries.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::array::PendingWrite;
pub use crate::array::{ReadData, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Entity;
use crate::mount::fs::page_cache::page_drops::{PageDrop, PageRead};
use crate::store::Object;

/// One entry of a folder.
#[derive(Clone, Debug)]
pub struct FolderEntry {
    /// The name.
    pub name: String,
    /// What the entry stands for.
    pub entity: Entity,
    /// The inode of that.
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
    /// It is a page of a memory map.
    pub is_page: bool,
    /// Whether it may wait for the store, or for memory while too much is dirty.
    pub blocking: Blocking,
}

/// A range of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileRange {
    /// The offset of its first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// A write that can no longer fail, as far as can be known.
#[derive(Debug)]
pub struct AcceptedWrite {
    /// The number of bytes.
    pub length: u32,
    /// Pages of its range that may have been read before the write: they must be dropped before the reply.
    pub overtaken: Option<PageDrop>,
}

/// A write that cannot fail any more. Its bytes may not be copied yet: the reply comes first.
#[must_use = "the bytes are not written before it is finished"]
pub struct BegunWrite<'a> {
    /// What to reply.
    pub accepted: AcceptedWrite,
    /// Holds the locks of the chunks; `None` if the bytes are copied.
    pub pending: Option<PendingWrite<'a>>,
}

impl BegunWrite<'_> {
    /// A write whose bytes are copied.
    pub fn copied(length: usize) -> Self {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        BegunWrite { accepted: AcceptedWrite { length, overtaken: None }, pending: None }
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
    /// Pages to drop besides those of the range, which the kernel drops itself.
    pub drop: Option<PageDrop>,
}

/// A file that was opened and has no handle yet.
pub struct Opened<F> {
    /// The file.
    pub file: F,
    /// Reads and writes bypass the page cache.
    pub is_direct: bool,
    /// The page cache of this file is still valid.
    pub keeps_cache: bool,
    /// The object that the kernel may read itself instead.
    pub backing: Option<Arc<dyn Object>>,
}

impl<F> Opened<F> {
    /// A file whose size need not be known, or whose pages the reply drops.
    pub fn without_cache(file: F, is_direct: bool) -> Self {
        Opened { file, is_direct, keeps_cache: false, backing: None }
    }
}

/// What an open handle does. A method that a kind of file does not have fails as the system call does.
pub trait OpenFile: Send + Sync {
    /// Reads exactly as many bytes as asked for, fewer only at the end of the file. The data may be in `buffer`. Where it would
    /// block and must not, `buffer` keeps the plan for the next attempt.
    fn read<'a>(&self, _read: FileRead<'_>, _buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        Err(Failure::Errno(libc::EISDIR))
    }

    /// Begins to write. What has begun cannot fail: every operation on the file from now on sees it, so the caller replies and
    /// then finishes it. A write that would block and must not is repeated as a whole.
    fn write<'a>(&self, _write: FileWrite<'a>) -> FsResult<BegunWrite<'a>> {
        Err(Failure::Errno(libc::EBADF))
    }

    /// close(2) of one descriptor, by a process (0 if unknown); `number` is that of the handle. Stores dirty data. A failure that
    /// close reports counts as reported for later closes, but not for fsync, since the result of close is often ignored: a
    /// program that starts another one closes all its files in it.
    fn flush(&self, _number: u64, _process: u32) -> FsResult<()> {
        Ok(())
    }

    /// fsync(2): stores durably what was written.
    fn fsync(&self) -> FsResult<()> {
        Ok(())
    }

    /// fsync(2) of a program; for a write that is stored before its reply, [`OpenFile::fsync`] is enough.
    fn sync(&self) -> FsResult<()> {
        self.fsync()
    }

    /// The offset of the next hole, or of the next data. Blocks on the store.
    fn seek(&self, _start: u64, _wants_hole: bool, _cancellation: &Cancellation) -> FsResult<Option<u64>> {
        Err(Failure::Errno(libc::EISDIR))
    }

    /// fallocate(2): holes and zero ranges are written as zeros; space is never reserved, and the size never
    /// changes. Returns the pages to drop besides those of the range, which the kernel drops itself.
    fn allocate(
        &self,
        _range: FileRange,
        _mode: i32,
        _cancellation: &Cancellation,
    ) -> FsResult<Option<PageDrop>> {
        Err(self.is_not_an_array())
    }

    /// copy_file_range(2): copies `length` bytes of another file, from `from` on, to the offset `to`.
    fn copy_from(
        &self,
        _source: &dyn OpenFile,
        _from: u64,
        _to: u64,
        _length: u64,
        _cancellation: &Cancellation,
    ) -> FsResult<CopyResult> {
        Err(self.is_not_an_array())
    }

    /// Why ranges of this file cannot be changed as those of an array's file are.
    fn is_not_an_array(&self) -> Failure {
        // On EOPNOTSUPP the kernel copies to a sidecar by reading and writing.
        Failure::Errno(if self.is_writer() { libc::EOPNOTSUPP } else { libc::EBADF })
    }

    /// The handle is closed.
    fn release(&self) {}

    /// The open that made this handle got no reply: it dropped no pages.
    fn cancel_open(&self) {}

    /// Whether it may write.
    fn is_writer(&self) -> bool {
        false
    }

    /// Whether it may write this inode, and is not about to be closed.
    fn is_active_writer_of(&self, _inode: u64) -> bool {
        false
    }

    /// Notes that the next read fills pages of the page cache, which matters on a writable mount. The caller keeps the returned
    /// value until it has replied.
    fn record_page_read(&self, _range: FileRange) -> Option<PageRead> {
        None
    }

    /// Whether a write with these flags (those of the file and of the write itself: O_DSYNC for RWF_DSYNC)
    /// must be stored before the reply. For writes through the page cache the kernel sends an fsync itself.
    fn stores_at_once(&self, _flags: i32) -> bool {
        false
    }

    /// Whether a write to this range stores data: it makes the array longer, or leaves a gap that must be zeroed.
    fn stores_first(&self, _range: FileRange) -> bool {
        false
    }

    /// Whether the file was truncated and is not written to its end yet.
    fn is_cut_short(&self) -> bool {
        false
    }

    /// The page drop that lossy codecs need: the pages hold what was written, the store holds something else.
    fn lossy_pages(&self) -> Option<PageDrop> {
        None
    }

    /// Whether the kernel reads the object of this handle itself.
    fn is_passthrough(&self) -> bool {
        false
    }

    /// Whether this is one of the files in which the mount reports about itself ([`EntityKind::is_report`](super::inode::EntityKind::is_report)).
    fn is_report(&self) -> bool {
        false
    }

    /// The entries of a folder, `.` and `..` first.
    fn entries(&self) -> Option<&[FolderEntry]> {
        None
    }

    /// The entry with this number among the planes of a folder of planes.
    fn plane(&self, _number: u64) -> Option<FolderEntry> {
        None
    }
}

/// The next hole or data of a file without holes.
pub fn all_data(size_bytes: u64, start: u64, wants_hole: bool) -> Option<u64> {
    (start < size_bytes).then_some(if wants_hole { size_bytes } else { start })
}

/// All open files and folders, by handle: what open(2) and opendir(3) return.
#[derive(Default)]
pub struct HandleTable {
    open: RwLock<HashMap<u64, Arc<dyn OpenFile>>>,
    last: AtomicU64,
}

impl HandleTable {
    /// Adds a handle; its number is never reused.
    pub fn add(&self, file: impl OpenFile + 'static) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(file));
        number
    }

    /// The handle with this number.
    pub fn get(&self, number: u64) -> FsResult<Arc<dyn OpenFile>> {
        self.open.read().get(&number).cloned().ok_or(Failure::Errno(libc::EBADF))
    }

    /// Whether the inode has another handle that may write and is not about to be closed.
    pub fn has_other_writer(&self, number: u64, inode: u64) -> bool {
        let open = self.open.read();
        open.iter().any(|(&other, file)| other != number && file.is_active_writer_of(inode))
    }

    /// The open listings of a folder.
    pub fn listings(&self, folder: &Entity) -> Vec<(u64, Arc<dyn OpenFile>)> {
        let open = self.open.read();
        let listings = open.iter().filter(|(_, file)| {
            file.entries().and_then(<[FolderEntry]>::first).is_some_and(|dot| dot.entity == *folder)
        });
        listings.map(|(&number, file)| (number, file.clone())).collect()
    }

    /// Closes a handle. A request that still uses it keeps it alive.
    pub fn remove(&self, number: u64) -> Option<Arc<dyn OpenFile>> {
        self.open.write().remove(&number)
    }

    /// The number of open handles.
    pub fn len(&self) -> usize {
        self.open.read().len()
    }

    /// The number of open handles, without those of the mount's reports about itself.
    pub fn without_reports(&self) -> usize {
        self.open.read().values().filter(|file| !file.is_report()).count()
    }

    /// Whether no handle is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
