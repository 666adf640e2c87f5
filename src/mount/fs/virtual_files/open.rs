//! Opening virtual files: companion files, and the mount's own.
//!
//! Invariant: a generated file is a snapshot of the moment of its open.

use std::sync::Arc;

use crate::cancellation::Cancellation;
use crate::formats::virtual_file::{FileReader, VirtualFile};
use crate::mount::fs::arrays::{ArrayInUse, ServedArrays};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::gate::RequestGate;
use crate::mount::fs::open_file::{FileRead, OpenFile, Opened, ReadData, ReplyBuffer, all_data};
use crate::mount::fs::page_cache::cache_mode::CachePolicy;
use crate::mount::fs::request::RequestLog;

/// What the open virtual files of a mount share.
pub struct VirtualFiles {
    served: Arc<ServedArrays>,
    cache_policy: Arc<CachePolicy>,
    log: Arc<RequestLog>,
    gate: Arc<RequestGate>,
}

impl VirtualFiles {
    /// No file is open yet.
    pub fn new(
        served: Arc<ServedArrays>,
        cache_policy: Arc<CachePolicy>,
        log: Arc<RequestLog>,
        gate: Arc<RequestGate>,
    ) -> Self {
        VirtualFiles { served, cache_policy, log, gate }
    }

    /// Opens a file that is read only. The reply drops its pages.
    pub fn open(
        self: &Arc<Self>,
        file: Arc<VirtualFile>,
        is_direct: bool,
        cancellation: &Cancellation,
    ) -> FsResult<Opened<OpenVirtualFile>> {
        let arrays = self.served.use_arrays(&file, cancellation)?;
        let reader = file.reader(self.cache_policy.readahead(is_direct));
        let file = OpenVirtualFile { file, reader, arrays, files: self.clone() };
        Ok(Opened::without_cache(file, is_direct))
    }
}

/// A generated file or a companion file: a snapshot taken at open, except for the bytes of arrays in it.
pub struct OpenVirtualFile {
    /// The file.
    file: Arc<VirtualFile>,
    /// The place of this handle in it.
    reader: FileReader,
    /// The arrays in it.
    arrays: Vec<ArrayInUse>,
    files: Arc<VirtualFiles>,
}

impl OpenVirtualFile {
    fn read_current<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        let FileRead { offset, size, blocking, cancellation } = read;
        for array in &self.arrays {
            if blocking == Blocking::Yes {
                self.files.served.recheck(&array.inode)?;
            }
            if array.inode.is_stale() {
                return Err(Failure::Errno(libc::ESTALE));
            }
        }
        let data = self.file.read(&self.reader, (offset, size), buffer, blocking, cancellation)?;
        let data = data.ok_or(Failure::WouldBlock)?;
        if let Some(array) = self.arrays.first() {
            self.files.log.record_read(&array.inode, data.len() as u64);
        }
        Ok(data)
    }
}

impl OpenFile for OpenVirtualFile {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.files.gate.ensure_serving()?;
        let data = self.read_current(read, buffer);
        match self.arrays.first() {
            Some(array) => self.files.log.record_failed_read(&array.inode, read.offset, read.size, data),
            None => data,
        }
    }

    fn seek(&self, start: u64, wants_hole: bool, _cancellation: &Cancellation) -> FsResult<Option<u64>> {
        Ok(all_data(self.file.size_bytes(), start, wants_hole))
    }

    fn release(&self) {
        self.file.rest();
    }
}
