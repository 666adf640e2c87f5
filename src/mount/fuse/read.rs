//! Reading through FUSE: which session thread answers.
//!
//! Reads for the page cache arrive while their reader still copies what came before. Where nothing is decoded, a session thread
//! that took his processor would have answered, and gone to sleep, before he asks for more: both would work by turns. So such a
//! thread wakes patiently (SCHED_BATCH, sched(7)), and leaves what it receives to the one that copies already, unless enough
//! waits for that one: else it would begin, where there are few processors, when the reader has just gone to sleep for
//! what the other is about to answer, and keep him from going on.
//!
//! Invariant: what was left to another thread is answered by it before it receives anything else, or by one that received more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use fuser::{FileHandle, INodeNo, ReplyData};
use parking_lot::Mutex;

use crate::mount::fs::reply_buffer::ReplyBuffer;
use crate::mount::fs::request::Request;
use crate::mount::fuse::executor::Reply;
use crate::mount::fuse::{Fuse, guard};
use crate::sys;

/// Reads that are left to the thread that copies. With one or two, of the four that the kernel's read-ahead makes, the uncompressed
/// array of `scripts/bench` takes 8 and 11 % less time on two processors than with none; with no limit nothing is gained.
const MOST_WAITING: usize = 2;

thread_local! {
    /// What is read on this thread before it is answered.
    static BUFFER: RefCell<ReplyBuffer> = RefCell::default();
    /// Whether this thread takes the processor from nobody when it wakes.
    static IS_PATIENT: Cell<bool> = const { Cell::new(false) };
}

/// A read, and the reply to it.
pub(super) struct ReadRequest {
    pub inode: INodeNo,
    pub handle: FileHandle,
    pub offset: u64,
    pub size: u32,
    /// Whether it fills the page cache, and is not read(2) past it.
    pub is_of_pages: bool,
    pub reply: ReplyData,
}

/// The turn of the thread that copies, and what was left to it.
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

/// What a thread is to do when it received something.
#[derive(Debug, PartialEq, Eq)]
enum Share<T> {
    /// This, and then what is left to it.
    Turn(T),
    /// This alone, which came earlier: another has the turn, and enough to do.
    Alone(T),
    /// Nothing: it was left to who has the turn.
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

    /// What was left to who has the turn; `None` is its end.
    fn next(&self) -> Option<T> {
        let mut turn = self.0.lock();
        let waiting = turn.waiting.pop_front();
        turn.is_taken = waiting.is_some();
        waiting
    }
}

impl Fuse {
    /// Answers a read, or leaves it to the thread that does.
    pub(super) fn reply_read(&self, read: ReadRequest) {
        let answer = |read| guard("read", || self.reply_one_read(read));
        if !self.wake_for(read.handle) {
            return answer(read);
        }
        match self.turns.begin(read) {
            Share::Turn(read) => {
                answer(read);
                while let Some(read) = self.turns.next() {
                    answer(read);
                }
            }
            Share::Alone(read) => answer(read),
            Share::Nothing => {}
        }
    }

    /// Whether a read of this handle only copies; this thread wakes accordingly.
    fn wake_for(&self, handle: FileHandle) -> bool {
        let only_copies = self.fs.only_copies(handle.0);
        if IS_PATIENT.get() != only_copies {
            let is_patient = sys::wake_patiently(only_copies).unwrap_or_else(|error| {
                log::debug!("no other scheduling: {error}; sequential reads are slower than they could be");
                only_copies
            });
            IS_PATIENT.set(is_patient);
        }
        only_copies
    }

    /// At once if memory is enough, else from the pool.
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
            let request = Request::ranged(inode.0, "read", offset, u64::from(size));
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
    fn one_copies_and_another_only_what_would_wait_for_long() {
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
