//! SEEK_HOLE and SEEK_DATA: the holes of a flat file are its missing chunks. Other files are all data.
//!
//! The kernel does not write back its dirty pages before it asks, so an array with a writer has no holes.

use crate::cancellation::Cancellation;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Failure, FsResult};

impl FileSystem {
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
