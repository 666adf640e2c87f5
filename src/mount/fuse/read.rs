//! Reading through FUSE: the session thread replies if memory is enough, otherwise the executor does.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use fuser::{FileHandle, INodeNo, ReplyData};

use crate::array::{DecodeMeter, ReplyBuffer, ReplyBufferPool};
use crate::cancellation::Cancellation;
use crate::mount::access_log::handle::{FileAccess, FileReply};
use crate::mount::fs::error::{Blocking, Failure};
use crate::mount::fs::open_file::{FileRange, FileRead, OpenHandle};
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
        let OpenHandle { file, access } = match self.fs.handles().get_recorded(handle.0) {
            Ok(open) => open,
            Err(failure) => return reply.fail(failure.errno()),
        };
        if is_of_pages && self.fs.has_private_bytes(inode.0, &*file) {
            return reply.fail(libc::EIO);
        }
        let fills_pages = is_of_pages && self.fs.options().writable;
        let range = FileRange { offset, length: size.into() };
        let page_read = if fills_pages { file.record_page_read(range) } else { None };
        BUFFER.with_borrow_mut(|buffer| {
            let cancellation = &Cancellation::never();
            let read = FileRead { offset, size, blocking: Blocking::No, cancellation };
            let meter = access.as_deref().map(FileAccess::meter);
            match DecodeMeter::run(meter, || file.read(read, buffer)) {
                Ok(data) => {
                    record(access.as_ref(), offset, Some(data.len() as u64), is_of_pages, started);
                    reply.data(&data);
                    if !file.is_report() {
                        self.fs.log().record_time(RequestKind::Read, request, started);
                    }
                    return;
                }
                Err(Failure::WouldBlock) => {}
                Err(failure) => {
                    record(access.as_ref(), offset, None, is_of_pages, started);
                    return reply.fail(failure.errno());
                }
            }
            let fs = self.fs.clone();
            let plan = std::mem::take(&mut buffer.plan);
            self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
                let mut buffer = BUFFERS.take();
                buffer.plan = plan;
                let cancellation = &slot.cancellation();
                let read = FileRead { offset, size, blocking: Blocking::Yes, cancellation };
                let meter = access.as_deref().map(FileAccess::meter);
                let data = DecodeMeter::run(meter, || file.read(read, &mut buffer));
                let reply = slot.take();
                let length = data.as_ref().ok().filter(|_| reply.is_some()).map(|data| data.len() as u64);
                record(access.as_ref(), offset, length, is_of_pages, started);
                let Some(reply) = reply else { return };
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

/// Records a read for the access log, if there is one. Without a length, its reply is an error.
fn record(
    access: Option<&Arc<FileAccess>>,
    offset: u64,
    length: Option<u64>,
    is_of_pages: bool,
    started: Instant,
) {
    if let Some(access) = access {
        access.record(FileReply { offset, length, is_of_pages, waited: started.elapsed() });
    }
}
