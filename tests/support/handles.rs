//! Requests for open files, by handle, as the kernel makes them.

use zarrfs::array::ReplyBuffer;
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::fs::error::{Blocking, Failure, FsResult};
use zarrfs::mount::fs::open_file::{
    AcceptedWrite, BegunWrite, CopyResult, FileRange, FileRead, FileWrite, ReadData,
};
use zarrfs::mount::fs::page_cache::page_drops::{PageDrop, PageRead};

/// Returns `None` for a request that must not block and would.
fn unless_it_blocks<T>(outcome: FsResult<T>) -> FsResult<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Failure::WouldBlock) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Requests by handle.
pub trait Handles {
    /// Returns a file system.
    fn fs(&self) -> &FileSystem;

    fn read<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut ReplyBuffer,
        cancellation: &Cancellation,
    ) -> FsResult<ReadData<'a>> {
        let read = FileRead { offset, size, blocking: Blocking::Yes, cancellation };
        self.fs().file(handle)?.read(read, buffer)
    }

    fn try_read<'a>(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<Option<ReadData<'a>>> {
        let cancellation = &Cancellation::never();
        let read = FileRead { offset, size, blocking: Blocking::No, cancellation };
        unless_it_blocks(self.fs().file(handle)?.read(read, buffer))
    }

    fn record_page_read(&self, handle: u64, offset: u64, length: u64) -> Option<PageRead> {
        self.fs().file(handle).ok()?.record_page_read(FileRange { offset, length })
    }

    fn write(&self, handle: u64, offset: u64, data: &[u8], is_page: bool) -> FsResult<u32> {
        self.write_blocking(handle, offset, data, is_page).map(|accepted| accepted.length)
    }

    fn write_blocking(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        is_page: bool,
    ) -> FsResult<AcceptedWrite> {
        let write = FileWrite { offset, data, is_page, blocking: Blocking::Yes, request: 0 };
        self.fs().file(handle)?.write(write).map(BegunWrite::finish)
    }

    fn try_begin_write<'a>(
        &self,
        handle: u64,
        offset: u64,
        data: &'a [u8],
        is_page: bool,
    ) -> FsResult<Option<BegunWrite<'a>>> {
        let write = FileWrite { offset, data, is_page, blocking: Blocking::No, request: 0 };
        unless_it_blocks(self.fs().file(handle)?.write(write))
    }

    fn flush(&self, handle: u64) -> FsResult<()> {
        self.fs().file(handle)?.flush(handle, 0)
    }

    fn sync(&self, handle: u64) -> FsResult<()> {
        self.fs().file(handle)?.sync()
    }

    fn allocate(
        &self,
        handle: u64,
        (offset, length): (u64, u64),
        mode: i32,
        cancellation: &Cancellation,
    ) -> FsResult<Option<PageDrop>> {
        self.fs().file(handle)?.allocate(FileRange { offset, length }, mode, cancellation)
    }

    fn copy(
        &self,
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
        cancellation: &Cancellation,
    ) -> FsResult<CopyResult> {
        let source = self.fs().file(from)?;
        self.fs().file(to)?.copy_from(&*source, from_offset, to_offset, length, cancellation)
    }
}

impl Handles for FileSystem {
    fn fs(&self) -> &FileSystem {
        self
    }
}
