//! lseek(2) with SEEK_HOLE and SEEK_DATA.

use fuser::{FileHandle, INodeNo, ReplyLseek};

use crate::mount::fs::request::Request;
use crate::mount::fuse::Fuse;
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
            let found = fs.seek(handle.0, offset, whence, &slot.cancellation());
            let Some(reply) = slot.take() else { return };
            match found {
                Ok(offset) => reply.offset(offset),
                Err(failure) => reply.fail(fs.note_request(request, &failure)),
            }
        });
    }
}
