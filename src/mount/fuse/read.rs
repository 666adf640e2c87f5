//! Reading through FUSE: which session thread replies.
//!
//! Reads for the page cache arrive while the reader still copies the previous data. When nothing is decoded,
//! a session thread that preempted the reader would reply and sleep before the reader asks for more: the two
//! would take turns. So such a thread wakes without preempting (SCHED_BATCH, sched(7)), and leaves new
//! requests to the thread that is already copying, unless many are waiting for it. Otherwise, with few
//! processors, it would start just when the reader has gone to sleep for data that the other thread is about
//! to send, and keep the reader from continuing.
//!
//! Invariant: a request that was left to another thread is served by it before it receives anything else, or
//! by a thread that received more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use fuser::{FileHandle, INodeNo, ReplyData};
use parking_lot::Mutex;

use crate::mount::fs::reply_buffer::ReplyBuffer;
use crate::mount::fs::request::Request;
use crate::mount::fuse::Fuse;
use crate::mount::fuse::executor::{Reply, guard};
use crate::sys;

/// How many reads are left to the thread that copies. The kernel's read-ahead makes four. With a limit of one
/// or two, the uncompressed array of `scripts/bench` takes 8 and 11 % less time on two processors than with
/// none; without a limit nothing is gained.
const MOST_WAITING: usize = 2;

thread_local! {
    /// The data of a read on this thread, before the reply.
    static BUFFER: RefCell<ReplyBuffer> = RefCell::default();
    /// Whether this thread wakes without preempting others.
    static IS_PATIENT: Cell<bool> = const { Cell::new(false) };
}

/// A read request with its reply.
pub(super) struct ReadRequest {
    pub inode: INodeNo,
    pub handle: FileHandle,
    pub offset: u64,
    pub size: u32,
    /// Whether it fills the page cache; otherwise it is a direct read(2).
    pub is_of_pages: bool,
    pub reply: ReplyData,
}

/// The turn of the thread that copies, and the requests left to it.
pub(super) struct Turns<T>(Mutex<Turn<T>>);

struct Turn<T> {
    is_taken: bool,
    waiting: VecDeque<T>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Turns(Mutex::new(Turn { is_taken: false, waiting: VecDeque::new() }))
    }
}

/// What a thread does with a request that it received.
#[derive(Debug, PartialEq, Eq)]
enum Share<T> {
    /// Serve it, then the requests left to this thread.
    Turn(T),
    /// Serve only this one, which arrived earlier: another thread has the turn, and enough to do.
    Alone(T),
    /// Nothing: the request was left to the thread that has the turn.
    Nothing,
}

impl<T> Turns<T> {
    fn begin(&self, received: T) -> Share<T> {
        let mut turn = self.0.lock();
        if !std::mem::replace(&mut turn.is_taken, true) {
            return Share::Turn(received);
        }
        turn.waiting.push_back(received);
        match turn.waiting.len() > MOST_WAITING {
            true => turn.waiting.pop_front().map_or(Share::Nothing, Share::Alone),
            false => Share::Nothing,
        }
    }

    /// The next request left to the thread that has the turn; `None` ends the turn.
    fn next(&self) -> Option<T> {
        let mut turn = self.0.lock();
        let waiting = turn.waiting.pop_front();
        turn.is_taken = waiting.is_some();
        waiting
    }
}

impl Fuse {
    /// Serves a read, or leaves it to the thread that has the turn.
    pub(super) fn reply_read(&self, read: ReadRequest) {
        let serve = |read| guard("read", || self.reply_one_read(read));
        if !self.wake_for(read.handle) {
            return serve(read);
        }
        match self.turns.begin(read) {
            Share::Turn(read) => {
                serve(read);
                while let Some(read) = self.turns.next() {
                    serve(read);
                }
            }
            Share::Alone(read) => serve(read),
            Share::Nothing => {}
        }
    }

    /// Whether a read of this handle only copies; sets how this thread wakes.
    fn wake_for(&self, handle: FileHandle) -> bool {
        let only_copies = self.fs.only_copies(handle.0);
        if IS_PATIENT.get() != only_copies {
            let is_patient = sys::wake_patiently(only_copies).unwrap_or_else(|error| {
                log::debug!("cannot set SCHED_BATCH: {error}; sequential reads may be slower");
                only_copies
            });
            IS_PATIENT.set(is_patient);
        }
        only_copies
    }

    /// Replies at once if memory is enough, else from the executor.
    fn reply_one_read(&self, read: ReadRequest) {
        let ReadRequest { inode, handle, offset, size, is_of_pages, reply } = read;
        let page_read = if is_of_pages { self.fs.note_page_read(handle.0, offset, size) } else { None };
        BUFFER.with_borrow_mut(|buffer| {
            match self.fs.try_read(handle.0, offset, size, buffer) {
                Ok(Some(data)) => return reply.data(&data),
                Err(failure) => return reply.fail(failure.errno()),
                Ok(None) => {}
            }
            let fs = self.fs.clone();
            let request = Request::read(inode.0, offset, u64::from(size));
            self.executor.submit(request, reply, move |slot| {
                BUFFER.with_borrow_mut(|buffer| {
                    let read = fs.read(handle.0, offset, size, buffer);
                    let Some(reply) = slot.take() else { return };
                    match read {
                        Ok(data) => reply.data(&data),
                        Err(failure) => reply.fail(failure.errno()),
                    }
                    drop(page_read);
                });
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_copies_until_requests_pile_up() {
        let turns = Turns::default();
        assert_eq!(turns.begin(1), Share::Turn(1));
        assert_eq!(turns.begin(2), Share::Nothing);
        assert_eq!(turns.begin(3), Share::Nothing);
        assert_eq!(turns.begin(4), Share::Alone(2), "in the order in which they came");
        assert_eq!(turns.next(), Some(3));
        assert_eq!(turns.next(), Some(4));
        assert_eq!(turns.next(), None);
        assert_eq!(turns.begin(5), Share::Turn(5), "the turn has ended");
    }
}
