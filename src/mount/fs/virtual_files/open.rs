//! Opening virtual files: companion files, and the mount's own.
//!
//! Invariant: a generated file is a snapshot of the moment of its open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::formats::virtual_file::{ArrayShare, FileReader, VirtualFile};
use crate::hierarchy::SharedArray;
use crate::mount::fs::arrays::{ArrayInUse, ServedArrays};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::open_file::{FileRead, OpenFile, Opened, ReadData, ReplyBuffer, seek_without_holes};
use crate::mount::fs::page_cache::cache_mode::CachePolicy;
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::request::gate::RequestGate;
use crate::mount::journal::record::Content;
use crate::store::Readers;

/// A read of a file with more arrays compares only those that it touches with the store.
const MAX_CHECKED_ARRAYS: usize = 256;
/// The longest file that the journal of the session has as a whole.
const MAX_RECORDED_BYTES: usize = 64 << 10;

/// The virtual files of a mount.
pub struct VirtualFiles {
    served: Arc<ServedArrays>,
    cache_policy: Arc<CachePolicy>,
    log: Arc<RequestLog>,
    gate: Arc<RequestGate>,
}

impl VirtualFiles {
    /// Creates the virtual files of a mount.
    pub fn new(parts: &MountParts) -> Self {
        VirtualFiles {
            served: parts.served.clone(),
            cache_policy: parts.cache_policy.clone(),
            log: parts.log.clone(),
            gate: parts.gate.clone(),
        }
    }

    /// Opens a read-only file. The reply drops its pages.
    pub fn open(
        self: &Arc<Self>,
        file: Arc<VirtualFile>,
        is_direct: bool,
        cancellation: &Cancellation,
    ) -> FsResult<Opened<OpenVirtualFile>> {
        let arrays = self.served.use_arrays(&file, cancellation)?;
        let reader = file.reader(self.cache_policy.readahead(is_direct));
        let file = OpenVirtualFile {
            file,
            reader,
            arrays,
            _former_readers: Vec::new(),
            files: self.clone(),
            is_report: false,
        };
        Ok(Opened::without_cache(file, is_direct))
    }

    /// Opens a report of the mount about itself. The reply drops its pages.
    pub fn open_report(
        self: &Arc<Self>,
        text: String,
        cancellation: &Cancellation,
    ) -> FsResult<Opened<OpenVirtualFile>> {
        let file = Arc::new(VirtualFile::from_bytes(text.into_bytes()));
        let mut opened = self.open(file, true, cancellation)?;
        opened.file.is_report = true;
        Ok(opened)
    }
}

/// An open virtual file: a snapshot taken at open, except for the bytes of arrays in it.
pub struct OpenVirtualFile {
    file: Arc<VirtualFile>,
    /// The position and access pattern of this handle.
    reader: FileReader,
    /// The arrays in the file.
    arrays: Vec<ArrayInUse>,
    /// The users that may have opened it before a restart of the daemon, for as long as it is open.
    _former_readers: Vec<Arc<Readers>>,
    files: Arc<VirtualFiles>,
    /// Whether it is a report of the mount about itself.
    is_report: bool,
}

impl OpenVirtualFile {
    /// Adds the users who may have opened each of its arrays before a restart of the daemon. ESTALE if it had other arrays then.
    pub fn admit_former(&mut self, readers: &[Readers]) -> FsResult<()> {
        if readers.len() != self.arrays.len() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let shared = self.arrays.iter().map(|array| array.inode.state().shared.as_ref());
        let admitted =
            shared.zip(readers).filter_map(|(shared, readers)| Some(shared?.audience.admit(*readers)));
        self._former_readers = admitted.collect();
        Ok(())
    }

    fn read_current<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        let FileRead { offset, size, blocking, cancellation } = read;
        for array in self.arrays_to_check(offset, size) {
            if blocking == Blocking::Yes {
                self.files.served.recheck(&array.inode)?;
            }
            if array.inode.is_stale() {
                return Err(Failure::Errno(libc::ESTALE));
            }
        }
        let data = self.file.read(&self.reader, (offset, size), buffer, blocking, cancellation)?;
        let data = data.ok_or(Failure::WouldBlock)?;
        self.record_read(offset, data.len() as u64);
        Ok(data)
    }

    /// Returns the arrays that a read compares with the store: all, or those that it touches if the file has many.
    fn arrays_to_check(&self, offset: u64, size: u32) -> Vec<&ArrayInUse> {
        let mut touched = Vec::new();
        for share in self.file.shares(offset, u64::from(size)) {
            match share.array {
                Some(array) if self.arrays.len() > MAX_CHECKED_ARRAYS => touched.extend(self.in_use(array)),
                _ => return self.arrays.iter().collect(),
            }
        }
        if self.arrays.len() > MAX_CHECKED_ARRAYS { touched } else { self.arrays.iter().collect() }
    }

    /// Counts a read for each array that has bytes in it, and once for the mount. Bytes of headers are not counted, because users
    /// compare these figures with the sizes of arrays.
    fn record_read(&self, offset: u64, length: u64) {
        let (mut all_bytes, mut before) = (0, None);
        for ArrayShare { array, bytes } in self.file.shares(offset, length) {
            all_bytes += bytes;
            let Some(array) = array else { continue };
            // Several parts of a file in a row may come from one array: for it, this is one request.
            let is_another = before.replace(array).is_none_or(|before| !Arc::ptr_eq(before, array));
            if let Some(ArrayInUse { inode, .. }) = self.in_use(array) {
                inode.state().counters.reads.fetch_add(u64::from(is_another), Ordering::Relaxed);
                inode.state().counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        if all_bytes > 0 {
            self.files.log.metrics().record_read(all_bytes);
        }
    }

    /// Returns the inode and the readers of one of the file's arrays.
    fn in_use(&self, array: &SharedArray) -> Option<&ArrayInUse> {
        self.arrays.iter().find(|used| {
            let entity = &used.inode.entity;
            entity.view == array.view && entity.path == array.path
        })
    }

    /// Returns the array in which a read failed.
    fn failed_array(&self, error: &Error, offset: u64, size: u32) -> Option<&ArrayInUse> {
        // The error names the object, which belongs to the innermost of the arrays above it.
        let has_object = |used: &&ArrayInUse| {
            let path = &*used.inode.entity.path;
            let rest = error.key().and_then(|key| key.strip_prefix(path));
            rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        let named = self.arrays.iter().filter(has_object).max_by_key(|used| used.inode.entity.path.len());
        // An error without an object comes from the first bytes that the read needs.
        let first = || {
            let mut shares = self.file.shares(offset, u64::from(size));
            shares.find_map(|share| self.in_use(share.array?))
        };
        named.or_else(first).or(self.arrays.first())
    }
}

impl OpenFile for OpenVirtualFile {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.files.gate.ensure_serving()?;
        let data = self.read_current(read, buffer);
        if let Err(Failure::Error(error)) = &data
            && let Some(array) = self.failed_array(error, read.offset, read.size)
        {
            return self.files.log.record_failed_read(&array.inode, read.offset, read.size, data);
        }
        data
    }

    fn is_report(&self) -> bool {
        self.is_report
    }

    fn content(&self) -> Content {
        match self.file.as_bytes().filter(|bytes| bytes.len() <= MAX_RECORDED_BYTES) {
            Some(bytes) => Content::Bytes(bytes.to_vec()),
            None if self.is_report => Content::Unrepeatable,
            None => Content::Made {
                fingerprint: self.file.fingerprint(),
                readers: self.arrays.iter().map(|array| *array.readers).collect(),
            },
        }
    }

    fn seek(&self, start: u64, wants_hole: bool, _cancellation: &Cancellation) -> FsResult<Option<u64>> {
        Ok(seek_without_holes(self.file.size_bytes(), start, wants_hole))
    }

    fn release(&self) {
        self.file.rest();
    }
}
