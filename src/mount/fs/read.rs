//! Reading files.
//!
//! Invariant: a read returns all bytes, fewer only at the exact end of the file, or fails as a whole.

use std::sync::atomic::Ordering;

use crate::array::{ReadData, ReadRequest, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::Handle;
use crate::mount::fs::inode::Inode;
use crate::mount::fs::page_cache::page_drops::PageRead;

impl FileSystem {
    /// Notes that the next read fills pages of the page cache. The caller keeps the returned value until it
    /// has replied.
    pub fn note_page_read(&self, handle: u64, offset: u64, size: u32) -> Option<PageRead> {
        if !self.options.writable {
            return None;
        }
        let handle = self.handles.get(handle)?;
        let Handle::Array { inode, drop, .. } = &*handle else { return None };
        drop.note_use();
        let range = offset..offset.saturating_add(u64::from(size));
        if let Some(direct_writes) = inode.page_cache_users.direct_writes() {
            direct_writes.remove(range.clone());
        }
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
        match self.read_within(handle, (offset, size), buffer, Blocking::No, &cancellation) {
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
        self.read_within(handle, (offset, size), buffer, Blocking::Yes, cancellation)
    }

    /// Whether the kernel reads the object of this handle itself.
    pub fn is_passthrough(&self, handle: u64) -> bool {
        self.handles.get(handle).is_some_and(
            |handle| matches!(&*handle, Handle::Array { cache_mode, .. } if cache_mode.is_passthrough()),
        )
    }

    fn read_within<'a>(
        &self,
        handle: u64,
        (offset, size): (u64, u32),
        buffer: &'a mut ReplyBuffer,
        blocking: Blocking,
        cancellation: &Cancellation,
    ) -> FsResult<ReadData<'a>> {
        self.ensure_serving()?;
        let handle = self.handles.get(handle).ok_or(Failure::Errno(libc::EBADF))?;
        match &*handle {
            Handle::Folder(_) => Err(Failure::Errno(libc::EISDIR)),
            Handle::Draft { draft, .. } => Ok(ReadData::Copied(draft.read(offset, size, buffer))),
            Handle::Generated(content) => Ok(ReadData::Copied(buffer.copy_part(content, offset, size))),
            Handle::Companion(made) => Ok(ReadData::Copied(buffer.copy_part(&made.bytes, offset, size))),
            Handle::Array { inode, reader, drop, .. } => {
                drop.note_use();
                let request = ReadRequest { reader, range: offset..offset, blocking, cancellation };
                let read = self.read_array(inode, request, size, buffer);
                if let Err(failure @ Failure::Error(_)) = &read {
                    let request = format!("read of {size} bytes at {offset}");
                    self.note_failure(inode, &request, failure);
                }
                read
            }
        }
    }

    /// Reads `size` bytes from where the request begins, fewer at the end of the file.
    fn read_array<'a>(
        &self,
        inode: &Inode,
        mut request: ReadRequest<'_>,
        size: u32,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        if request.blocking == Blocking::Yes {
            self.recheck(inode)?;
        }
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = inode.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        let array = open.array.as_ref().map_err(Error::clone)?;
        let offset = request.range.start;
        let length = array.size_bytes().saturating_sub(offset).min(u64::from(size));
        request.range.end = offset + length;
        let data = array.read(&request, buffer)?.ok_or(Failure::WouldBlock)?;
        inode.counters.reads.fetch_add(1, Ordering::Relaxed);
        inode.counters.bytes.fetch_add(length, Ordering::Relaxed);
        self.metrics.note_read(length);
        Ok(data)
    }
}
