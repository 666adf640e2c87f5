//! Reading files.
//!
//! Invariant: a read returns all bytes, fewer only at the exact end of the file, or fails as a whole.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use crate::array::{CachedSlice, Reader, ReadyReply};
use crate::error::Error;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::Handle;
use crate::mount::fs::inode::Inode;
use crate::mount::fs::page_cache::page_drops::PageRead;
use crate::mount::fs::reply_buffer::ReplyBuffer;

/// The bytes of a read.
pub enum ReadData<'a> {
    /// A slice of the caller's buffer.
    Copied(&'a [u8]),
    /// A slice of the chunk cache.
    Cached(CachedSlice),
}

impl Deref for ReadData<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            ReadData::Copied(bytes) => bytes,
            ReadData::Cached(bytes) => bytes,
        }
    }
}

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

    /// Reads from memory only; `None` if that would block. The data may be in `buffer`.
    pub fn try_read<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<Option<ReadData<'a>>> {
        self.read_within(handle, offset, size, buffer, Blocking::No).map(Some).or_else(
            |failure| match failure {
                Failure::WouldBlock => Ok(None),
                failure => Err(failure),
            },
        )
    }

    /// Reads exactly `size` bytes from `offset`, fewer only at the end of the file. Blocks on the store.
    pub fn read<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        self.read_within(handle, offset, size, buffer, Blocking::Yes)
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
        offset: u64,
        size: u32,
        buffer: &'a mut ReplyBuffer,
        blocking: Blocking,
    ) -> FsResult<ReadData<'a>> {
        self.ensure_serving()?;
        let handle = self.handles.get(handle).ok_or(Failure::Errno(libc::EBADF))?;
        match &*handle {
            Handle::Folder(_) => Err(Failure::Errno(libc::EISDIR)),
            Handle::Draft { draft, .. } => Ok(ReadData::Copied(draft.read(offset, size, buffer))),
            Handle::Generated(content) => Ok(ReadData::Copied(buffer.copy_part(content, offset, size))),
            Handle::Companion(made) => Ok(ReadData::Copied(buffer.copy_part(&made.bytes, offset, size))),
            Handle::Array { inode, reader, cache_mode, drop, .. } => {
                drop.note_use();
                let read = self.read_array(
                    inode,
                    (reader, cache_mode.is_direct()),
                    (offset, size),
                    buffer,
                    blocking,
                );
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
        buffer: &'a mut ReplyBuffer,
        blocking: Blocking,
    ) -> FsResult<ReadData<'a>> {
        if blocking == Blocking::Yes {
            self.recheck(inode)?;
        }
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let open = inode.open_array().ok_or(Failure::Errno(libc::EBADF))?;
        let array = open.array.as_ref().map_err(Error::clone)?;
        let length = array.size_bytes().saturating_sub(offset).min(u64::from(size));
        let slice = array.lend(offset, length).filter(|_| blocking == Blocking::No);
        let is_one_run = slice.is_some();
        let gathered = match slice {
            Some(slice) => ReadyReply::Ready(slice),
            None if !is_direct => ReadyReply::None,
            None => array.gathered(reader, offset..offset + length, blocking == Blocking::Yes),
        };
        let data = match gathered {
            ReadyReply::Ready(slice) => ReadData::Cached(slice),
            ReadyReply::Blocks => return Err(Failure::WouldBlock),
            ReadyReply::None => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let out = buffer.bytes(length);
                match blocking {
                    _ if out.is_empty() => {}
                    Blocking::No if !array.try_read(offset, out) => return Err(Failure::WouldBlock),
                    Blocking::No => {}
                    Blocking::Yes => array.read_by(reader, offset, out)?,
                }
                ReadData::Copied(out)
            }
        };
        inode.counters.reads.fetch_add(1, Ordering::Relaxed);
        inode.counters.bytes.fetch_add(length, Ordering::Relaxed);
        self.metrics.note_read(length);
        match self.options.prefetch {
            true if is_direct && !is_one_run => array.note_lone_read(reader, offset, offset + length),
            true => array.note_read(reader, offset, offset + length),
            false => {}
        }
        Ok(data)
    }
}
