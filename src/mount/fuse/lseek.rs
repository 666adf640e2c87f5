//! lseek(2) with SEEK_HOLE and SEEK_DATA.

use fuser::{FileHandle, INodeNo, ReplyLseek};

use crate::cancellation::Cancellation;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::request::Request;
use crate::mount::fuse::adapter::Fuse;
use crate::mount::fuse::executor::{Deadline, Reply};

impl Fuse {
    pub(super) fn reply_lseek(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let fs = self.fs.clone();
        let request = Request::new(inode.0, "lseek");
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let found = seek(&fs, handle.0, offset, whence, &slot.cancellation());
            let Some(reply) = slot.take() else { return };
            match found {
                Ok(offset) => reply.offset(offset),
                Err(failure) => reply.fail(fs.log().record_failed_request(request, &failure)),
            }
        });
    }
}

/// Returns the offset of the next hole or data.
fn seek(
    fs: &FileSystem,
    handle: u64,
    offset: i64,
    whence: i32,
    cancellation: &Cancellation,
) -> FsResult<i64> {
    let file = fs.file(handle)?;
    let start = u64::try_from(offset).map_err(|_| Failure::Errno(libc::ENXIO))?;
    if whence != libc::SEEK_HOLE && whence != libc::SEEK_DATA {
        return Err(Failure::Errno(libc::EINVAL));
    }
    let found = file.seek(start, whence == libc::SEEK_HOLE, cancellation)?;
    found.and_then(|at| i64::try_from(at).ok()).ok_or(Failure::Errno(libc::ENXIO))
}
