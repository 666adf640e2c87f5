//! Reading through FUSE: the session thread replies if memory is enough, otherwise the executor does.

use std::cell::RefCell;
use std::time::Instant;

use fuser::{FileHandle, INodeNo, ReplyData};

use crate::array::{ReplyBuffer, ReplyBufferPool};
use crate::cancellation::Cancellation;
use crate::mount::fs::error::{Blocking, Failure};
use crate::mount::fs::open_file::{FileRange, FileRead};
use crate::mount::fs::request::Request;
use crate::mount::fuse::adapter::Fuse;
use crate::mount::fuse::executor::{Deadline, Reply};
use crate::mount::metrics::RequestKind;

thread_local! {
    /// The data of a read on this session thread, before the reply.
    static BUFFER: RefCell<ReplyBuffer> = RefCell::default();
}

/// The same for the threads of the executor. There may be one for each request that waits for the store.
static BUFFERS: ReplyBufferPool = ReplyBufferPool::new();

/// A read request with its reply.
pub(super) struct ReadRequest {
    pub inode: INodeNo,
    pub handle: FileHandle,
    pub offset: u64,
    pub size: u32,
    /// Whether it fills the page cache. Otherwise it is a direct read(2).
    pub is_of_pages: bool,
    pub reply: ReplyData,
}

impl Fuse {
    /// Replies at once if memory is enough, otherwise from the executor.
    pub(super) fn reply_read(&self, read: ReadRequest) {
        let ReadRequest { inode, handle, offset, size, is_of_pages, reply } = read;
        let started = Instant::now();
        let request = Request::read(inode.0, offset, u64::from(size));
        let file = match self.fs.file(handle.0) {
            Ok(file) => file,
            Err(failure) => return reply.fail(failure.errno()),
        };
        let fills_pages = is_of_pages && self.fs.options().writable;
        let range = FileRange { offset, length: size.into() };
        let page_read = if fills_pages { file.record_page_read(range) } else { None };
        BUFFER.with_borrow_mut(|buffer| {
            let cancellation = &Cancellation::never();
            let read = FileRead { offset, size, blocking: Blocking::No, cancellation };
            match file.read(read, buffer) {
                Ok(data) => {
                    reply.data(&data);
                    if !file.is_report() {
                        self.fs.log().record_time(RequestKind::Read, request, started);
                    }
                    return;
                }
                Err(Failure::WouldBlock) => {}
                Err(failure) => return reply.fail(failure.errno()),
            }
            let fs = self.fs.clone();
            let plan = std::mem::take(&mut buffer.plan);
            self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
                let mut buffer = BUFFERS.take();
                buffer.plan = plan;
                let cancellation = &slot.cancellation();
                let read = FileRead { offset, size, blocking: Blocking::Yes, cancellation };
                let data = file.read(read, &mut buffer);
                let Some(reply) = slot.take() else { return };
                match data {
                    Ok(data) => reply.data(&data),
                    Err(failure) => reply.fail(failure.errno()),
                }
                BUFFERS.put(buffer);
                if !file.is_report() {
                    fs.log().record_time(RequestKind::Read, request, started);
                }
                drop(page_read);
            });
        });
    }
}
