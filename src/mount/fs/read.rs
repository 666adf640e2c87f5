//! Reading files, and looking for their holes.
//!
//! Invariant: a read returns all bytes, fewer only at the exact end of the file, or fails as a whole. The holes of a flat file are
//! its missing chunks; other files are all data. The kernel does not write back its dirty pages before it asks, so an array with
//! a writer has no holes.

use std::sync::atomic::Ordering;

use crate::array::ReadRequest;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::{FileRead, OpenFile};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::open_files::{ArrayFile, OpenVirtualFile};
use crate::mount::fs::page_cache::page_drops::PageRead;

pub use crate::array::{ReadData, ReplyBuffer};

impl FileSystem {
    /// Notes that the next read fills pages of the page cache. The caller keeps the returned value until it
    /// has replied.
    pub fn note_page_read(&self, file: &dyn OpenFile, offset: u64, size: u32) -> Option<PageRead> {
        if !self.options.writable {
            return None;
        }
        let ArrayFile { inode, drop, .. } = file.as_array()?;
        drop.note_use();
        let range = offset..offset.saturating_add(u64::from(size));
        inode.page_cache_users.direct_writes.note_page_read(range.clone());
        inode.page_cache_users.drops.note_read(range)
    }

    /// Reads from memory only; `None` if that would block: then `buffer` keeps the plan for [`FileSystem::read`].
    pub fn try_read<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<Option<ReadData<'a>>> {
        let cancellation = Cancellation::never();
        let read = FileRead { range: (offset, size), blocking: Blocking::No, cancellation: &cancellation };
        match self.read_file(&*self.file(handle)?, read, buffer) {
            Ok(data) => Ok(Some(data)),
            Err(Failure::WouldBlock) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads exactly `size` bytes from `offset`, fewer only at the end of the file. Blocks on the store.
    pub fn read<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut ReplyBuffer,
        cancellation: &Cancellation,
    ) -> FsResult<ReadData<'a>> {
        let read = FileRead { range: (offset, size), blocking: Blocking::Yes, cancellation };
        self.read_file(&*self.file(handle)?, read, buffer)
    }

    /// Reads from an open file.
    pub fn read_file<'a>(
        &self,
        file: &dyn OpenFile,
        read: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        self.ensure_serving()?;
        file.read(self, read, buffer)
    }

    /// Counts and logs a failed read.
    pub(super) fn note_failed_read<'a>(
        &self,
        inode: &Inode,
        (offset, size): (u64, u32),
        read: FsResult<ReadData<'a>>,
    ) -> FsResult<ReadData<'a>> {
        read.inspect_err(|failure| {
            if matches!(failure, Failure::Error(_)) {
                self.note_failure(inode, &format!("read of {size} bytes at {offset}"), failure);
            }
        })
    }

    pub(super) fn read_array<'a>(
        &self,
        file: &ArrayFile,
        FileRead { range: (offset, size), blocking, cancellation }: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        let inode = &file.inode;
        if blocking == Blocking::Yes {
            self.recheck(inode)?;
        }
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = inode.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        let array = open.array.as_ref().map_err(Error::clone)?;
        let size_bytes = inode.written_end.shown_size(array.size_bytes());
        let length = size_bytes.saturating_sub(offset).min(u64::from(size));
        let range = offset..offset.saturating_add(length);
        let request = ReadRequest { reader: &file.reader, range, blocking, cancellation };
        let data = array.read(&request, buffer)?.ok_or(Failure::WouldBlock)?;
        self.note_array_read(inode, length);
        Ok(data)
    }

    pub(super) fn read_virtual<'a>(
        &self,
        handle: &OpenVirtualFile,
        FileRead { range, blocking, cancellation }: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        for array in &handle.arrays {
            if blocking == Blocking::Yes {
                self.recheck(&array.inode)?;
            }
            if array.inode.is_stale() {
                return Err(Failure::Errno(libc::ESTALE));
            }
        }
        let data = handle.file.read(&handle.reader, range, buffer, blocking, cancellation)?;
        let data = data.ok_or(Failure::WouldBlock)?;
        if let Some(array) = handle.arrays.first() {
            self.note_array_read(&array.inode, data.len() as u64);
        }
        Ok(data)
    }

    fn note_array_read(&self, inode: &Inode, bytes: u64) {
        inode.counters.reads.fetch_add(1, Ordering::Relaxed);
        inode.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.note_read(bytes);
    }

    /// The offset of the next hole or data. Blocks on the store.
    pub fn seek(&self, handle: u64, offset: i64, whence: i32, cancellation: &Cancellation) -> FsResult<i64> {
        let file = self.file(handle)?;
        let start = u64::try_from(offset).map_err(|_| Failure::Errno(libc::ENXIO))?;
        if whence != libc::SEEK_HOLE && whence != libc::SEEK_DATA {
            return Err(Failure::Errno(libc::EINVAL));
        }
        let found = file.seek(self, start, whence == libc::SEEK_HOLE, cancellation)?;
        found.and_then(|at| i64::try_from(at).ok()).ok_or(Failure::Errno(libc::ENXIO))
    }
}
