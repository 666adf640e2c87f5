//! Why a request fails, and the log that tells it once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Error;

/// Why a request was not answered with what it asked for.
#[derive(Clone, Debug)]
pub enum Failure {
    /// An answer rather than a fault: no such name, a folder where a file was wanted, a read-only mount.
    Errno(i32),
    /// A fault of the store or of what is stored.
    Error(Error),
    /// It cannot be answered from memory: ask again with [`Reach::Store`], on a thread that may wait.
    NeedsStore,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

impl Failure {
    /// The number for the kernel.
    pub fn errno(&self) -> i32 {
        match self {
            Failure::Errno(errno) => *errno,
            Failure::Error(error) => error.errno(),
            Failure::NeedsStore => libc::EIO,
        }
    }

    /// The failure as an error about `subject`, for those who are told before there is a mount.
    pub fn into_error(self, subject: &str) -> Error {
        match self {
            Failure::Error(error) => error,
            Failure::Errno(_) | Failure::NeedsStore => {
                let reason = std::io::Error::from_raw_os_error(self.errno());
                Error::Usage(format!("{subject} cannot be read: {reason}"))
            }
        }
    }
}

/// The result of a file system operation.
pub type Answer<T> = std::result::Result<T, Failure>;

/// How far an operation may go for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Memory only: returns at once, with [`Failure::NeedsStore`] where that is not enough.
    Memory,
    /// The store, which may block for as long as it likes.
    Store,
}

/// Failures are logged once each, and at most [`FailureLog::BURST`] in [`FailureLog::WINDOW`]: a program that reads
/// on over a damaged array must not fill the disk.
#[derive(Default)]
pub struct FailureLog {
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    /// When the last messages went out, oldest first.
    sent: VecDeque<Instant>,
    suppressed: u64,
    /// The last message that went out.
    last: String,
}

impl FailureLog {
    /// The most messages in one window.
    pub const BURST: usize = 20;
    /// The length of the window.
    pub const WINDOW: Duration = Duration::from_secs(10);

    /// Logs a failed request: what was asked for, and why it failed.
    pub fn note(&self, request: std::fmt::Arguments<'_>, reason: &dyn std::fmt::Display) {
        let message = format!("{request}: {reason}");
        if let Some(suppressed) = self.admit(Instant::now(), &message) {
            if suppressed > 0 {
                log::warn!("{suppressed} further failures were not logged");
            }
            log::warn!("{message}");
        }
    }

    /// Whether a message may go out now; if so, how many did not since the last one.
    /// The kernel asks again for a page that it did not get: the same message is not sent twice in a row.
    fn admit(&self, now: Instant, message: &str) -> Option<u64> {
        let mut state = self.state.lock();
        while state.sent.front().is_some_and(|&at| now.duration_since(at) >= Self::WINDOW) {
            state.sent.pop_front();
        }
        if state.sent.is_empty() {
            state.last.clear();
        }
        if state.last == message {
            return None;
        }
        if state.sent.len() >= Self::BURST {
            state.suppressed += 1;
            return None;
        }
        state.sent.push_back(now);
        message.clone_into(&mut state.last);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let log = FailureLog::default();
        let start = Instant::now();
        let sent = (0..1000).filter(|number: &u32| log.admit(start, &number.to_string()).is_some()).count();
        assert_eq!(sent, FailureLog::BURST);
        let later = start + FailureLog::WINDOW;
        assert_eq!(log.admit(later, "a"), Some(1000 - FailureLog::BURST as u64));
        assert_eq!(log.admit(later, "b"), Some(0));
        assert_eq!(log.admit(later, "b"), None, "what was just said");
        assert_eq!(log.admit(later + FailureLog::WINDOW, "b"), Some(0));
    }
}
