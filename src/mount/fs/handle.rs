//! Handles: what open(2) and opendir(3) return.
//!
//! A request looks its handle up once. `open_files.rs` has one implementation of [`OpenFile`] for each kind of file.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::array::{Array, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Entity;
use crate::mount::fs::open_files::ArrayFile;
use crate::mount::fs::read::ReadData;
use crate::mount::fs::write::BegunWrite;

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

/// The state of a handle that may write.
pub struct Writer {
    /// The array at the time of the open, needed after another array has taken its place.
    pub(super) array: Arc<Array>,
    /// How many failed write-backs fsync has reported on this handle.
    pub(super) reported: AtomicU64,
    /// The last operation was a close(2): the file is probably closed and its release on the way.
    pub(super) is_closing: AtomicBool,
    /// The file may be mapped: it is open for reading too.
    pub(super) may_map: bool,
    /// How many failed write-backs close has reported. (The first close of dd, for example, stores zeros that
    /// the codecs cannot encode.)
    pub(super) reported_by_close: AtomicU64,
}

/// A read of an open file.
#[derive(Clone, Copy)]
pub struct FileRead<'a> {
    /// The offset of the first byte, and how many bytes are read at most.
    pub range: (u64, u32),
    /// Whether it may wait for the store.
    pub blocking: Blocking,
    /// Whether its reply is still wanted.
    pub cancellation: &'a Cancellation,
}

/// What an open handle does. A method that a kind of file does not have fails as the system call does.
pub trait OpenFile: Send + Sync {
    /// Reads. The data may be in `buffer`.
    fn read<'a>(
        &self,
        _fs: &FileSystem,
        _read: FileRead<'_>,
        _buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        Err(Failure::Errno(libc::EISDIR))
    }

    /// Begins to write data, at an offset. What has begun cannot fail.
    fn write<'a>(
        &self,
        _fs: &FileSystem,
        _data: (u64, &'a [u8]),
        _is_page: bool,
        _blocking: Blocking,
    ) -> FsResult<BegunWrite<'a>> {
        Err(Failure::Errno(libc::EBADF))
    }

    /// close(2) of one descriptor, by a process (0 if unknown); `number` is that of the handle.
    fn flush(&self, _fs: &FileSystem, _number: u64, _process: u32) -> FsResult<()> {
        Ok(())
    }

    /// Stores durably what was written.
    fn fsync(&self, _fs: &FileSystem) -> FsResult<()> {
        Ok(())
    }

    /// The offset of the next hole, or of the next data. Blocks on the store.
    fn seek(
        &self,
        _fs: &FileSystem,
        _start: u64,
        _wants_hole: bool,
        _cancellation: &Cancellation,
    ) -> FsResult<Option<u64>> {
        Err(Failure::Errno(libc::EISDIR))
    }

    /// The handle is closed.
    fn release(&self, _fs: &FileSystem) {}

    /// Whether it may write.
    fn is_writer(&self) -> bool {
        false
    }

    /// An array's own file.
    fn as_array(&self) -> Option<&ArrayFile> {
        None
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

/// All open handles.
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
    pub fn get(&self, number: u64) -> Option<Arc<dyn OpenFile>> {
        self.open.read().get(&number).cloned()
    }

    /// Whether the inode has another handle that may write and is not about to be closed.
    pub fn has_other_writer(&self, number: u64, inode: u64) -> bool {
        let is_writer = |file: &dyn OpenFile| {
            let array = file.as_array().filter(|array| array.inode.number == inode);
            let writer = array.and_then(|array| array.writer.as_ref());
            writer.is_some_and(|writer| !writer.is_closing.load(Ordering::Relaxed))
        };
        self.open.read().iter().any(|(&other, file)| other != number && is_writer(&**file))
    }

    /// The open listings of a folder.
    pub fn listings(&self, folder: &Entity) -> Vec<(u64, Arc<dyn OpenFile>)> {
        let is_of = |file: &dyn OpenFile| {
            file.entries().and_then(<[FolderEntry]>::first).is_some_and(|dot| dot.entity == *folder)
        };
        let open = self.open.read();
        open.iter()
            .filter(|(_, file)| is_of(&***file))
            .map(|(&number, file)| (number, file.clone()))
            .collect()
    }

    /// Closes a handle. A request that still uses it keeps it alive.
    pub fn remove(&self, number: u64) -> Option<Arc<dyn OpenFile>> {
        self.open.write().remove(&number)
    }

    /// The number of open handles.
    pub fn len(&self) -> usize {
        self.open.read().len()
    }

    /// Whether no handle is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
