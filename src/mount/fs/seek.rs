//! SEEK_HOLE and SEEK_DATA: the holes of a flat file are its missing chunks. Other files are all data.
//!
//! The kernel does not write back its dirty pages before it asks, so an array with a writer has no holes.

use crate::cancellation::Cancellation;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::handle::Handle;

impl FileSystem {
    /// The offset of the next hole or data. Blocks on the store.
    pub fn seek(&self, handle: u64, offset: i64, whence: i32, cancellation: &Cancellation) -> FsResult<i64> {
        let handle = self.handles.get(handle).ok_or(Failure::Errno(libc::EBADF))?;
        let start = u64::try_from(offset).map_err(|_| Failure::Errno(libc::ENXIO))?;
        if whence != libc::SEEK_HOLE && whence != libc::SEEK_DATA {
            return Err(Failure::Errno(libc::EINVAL));
        }
        let wants_hole = whence == libc::SEEK_HOLE;
        let all_data = |size_bytes: usize| {
            let size = size_bytes as u64;
            (start < size).then_some(if wants_hole { size } else { start })
        };
        let found = match &*handle {
            Handle::Folder(_) => return Err(Failure::Errno(libc::EISDIR)),
            Handle::Generated(content) => all_data(content.len()),
            Handle::Companion(made) => all_data(made.bytes.len()),
            Handle::Draft { draft, .. } => all_data(draft.size_bytes()),
            Handle::Array { inode, .. } => {
                self.recheck(inode)?;
                let array = self.array_of(inode)?;
                if wants_hole {
                    array.next_hole(start, cancellation)?
                } else {
                    array.next_data(start, cancellation)?
                }
            }
        };
        found.and_then(|at| i64::try_from(at).ok()).ok_or(Failure::Errno(libc::ENXIO))
    }
}
