//! The failures of requests, and the log that reports each failure once.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

pub use crate::array::Blocking;
use crate::error::Error;
use crate::mount::log_fields::{self, Field};
use crate::store::without_known_secrets;

/// Why a request fails.
#[derive(Clone, Debug)]
pub enum Failure {
    /// A plain errno that is not a fault: no file of this name, a folder instead of a file, a read-only mount.
    Errno(i32),
    /// A fault of the store or of the stored data.
    Error(Error),
    /// The reply needs the store: call again with [`Blocking::Yes`] on a thread that may block.
    WouldBlock,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

impl Failure {
    /// Returns the errno for the kernel.
    pub fn errno(&self) -> i32 {
        match self {
            Failure::Errno(errno) => *errno,
            Failure::Error(error) => error.errno(),
            Failure::WouldBlock => libc::EIO,
        }
    }

    /// Returns the failure as an error about `subject`, for callers that run before there is a mount.
    pub fn into_error(self, subject: &str) -> Error {
        match self {
            Failure::Error(error) => error,
            Failure::Errno(_) | Failure::WouldBlock => {
                let reason = std::io::Error::from_raw_os_error(self.errno());
                Error::Usage(format!("{subject} cannot be read: {reason}"))
            }
        }
    }
}

/// The result of a file system operation.
pub type FsResult<T> = std::result::Result<T, Failure>;

/// A log of failures. A program that keeps reading a damaged array must not fill the disk: each reason, which names the chunk, is
/// logged once in [`FailureLog::SILENCE`] for each file, and at most [`FailureLog::BURST`] failures in [`FailureLog::WINDOW`].
#[derive(Default)]
pub struct FailureLog {
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    /// The times of the last messages, oldest first.
    sent: VecDeque<Instant>,
    suppressed: u64,
    /// When each failure was logged last, by the hash of its file and reason. Only those of one silence are kept, and the bursts
    /// limit their number.
    logged: HashMap<u64, Instant>,
    /// The last failures, oldest first, logged or not.
    failures: VecDeque<LoggedFailure>,
}

/// A failure as `__zarrfs__/last_error` shows it.
struct LoggedFailure {
    at: Timestamp,
    path: String,
    errno: i32,
    sentence: String,
}

impl FailureLog {
    /// The most messages in one window.
    pub const BURST: usize = 20;
    /// The length of the window.
    pub const WINDOW: Duration = Duration::from_secs(10);
    /// How long a failure is not logged again.
    pub const SILENCE: Duration = Duration::from_secs(60);

    /// How many failures are remembered.
    pub const CAPACITY: usize = 32;

    /// Logs and remembers a failed request: the request, the path of its file, and the reason.
    pub fn record(&self, request: &str, path: &str, reason: &Error) {
        self.record_as(request, path, reason.errno(), reason);
    }

    /// Logs and remembers a failed request whose reply has another errno than the reason.
    pub fn record_as(&self, request: &str, path: &str, errno: i32, reason: &Error) {
        let text = without_known_secrets(&reason.to_string());
        self.remember(path, errno, format!("{request}: {text}"));
        // A timeout names no chunk, but the request names its range.
        let chunk = if matches!(reason, Error::TimedOut { .. }) { request } else { &text };
        if let Some(suppressed) = self.admit(Instant::now(), (path, chunk)) {
            if suppressed > 0 {
                log::warn!("{suppressed} further failures were not logged");
            }
            let key = reason.key().map(without_known_secrets);
            let mut fields: Vec<Field> =
                vec![("array", json!(format!("/{path}"))), ("request", json!(request))];
            fields.extend(range(request).map(|range| ("range", json!(range))));
            fields.extend(key.map(|key| ("key", json!(key))));
            fields.extend([("errno", json!(errno_name(errno))), ("reason", json!(text))]);
            log_fields::with(fields, || log::error!("{request} of /{path}: {text}"));
        }
    }

    fn remember(&self, path: &str, errno: i32, sentence: String) {
        let mut state = self.state.lock();
        let is_repetition = |failure: &LoggedFailure| {
            failure.path == path && failure.errno == errno && failure.sentence == sentence
        };
        if state.failures.back().is_some_and(is_repetition) {
            state.failures.pop_back();
        } else if state.failures.len() == Self::CAPACITY {
            state.failures.pop_front();
        }
        let path = path.to_owned();
        state.failures.push_back(LoggedFailure { at: Timestamp::now(), path, errno, sentence });
    }

    /// Returns the last failures, one line each, oldest first: time (UTC), path, errno and reason, separated by tabs.
    pub fn text(&self) -> String {
        let state = self.state.lock();
        let mut text = String::new();
        for LoggedFailure { at, path, errno, sentence } in &state.failures {
            let (path, errno, sentence) = (path.escape_debug(), errno_name(*errno), sentence.escape_debug());
            let _ = writeln!(text, "{at:.3}\t/{path}\t{errno}\t{sentence}");
        }
        text
    }

    /// Returns the number of messages that were suppressed since the last one, if this failure may be logged now. Failures repeat:
    /// the kernel asks again for pages that it did not get, and programs read a chunk in many requests.
    fn admit(&self, now: Instant, failure: (&str, &str)) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        failure.hash(&mut hasher);
        let failure = hasher.finish();
        let mut state = self.state.lock();
        while state.sent.front().is_some_and(|&at| now.duration_since(at) >= Self::WINDOW) {
            state.sent.pop_front();
        }
        state.logged.retain(|_, at| now.duration_since(*at) < Self::SILENCE);
        if state.logged.contains_key(&failure) {
            return None;
        }
        if state.sent.len() >= Self::BURST {
            state.suppressed += 1;
            return None;
        }
        state.sent.push_back(now);
        state.logged.insert(failure, now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

/// Returns the first byte of a request, and the one after its last: the request says "read of 5 bytes at 10".
fn range(request: &str) -> Option<[u64; 2]> {
    let (length, offset) = request.split_once(" of ")?.1.split_once(" bytes at ")?;
    let (length, offset): (u64, u64) = (length.parse().ok()?, offset.parse().ok()?);
    Some([offset, offset.saturating_add(length)])
}

/// Returns the name of an errno that this program replies with, or its number.
fn errno_name(errno: i32) -> String {
    let names = [
        (libc::EIO, "EIO"),
        (libc::EINVAL, "EINVAL"),
        (libc::EACCES, "EACCES"),
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::EROFS, "EROFS"),
        (libc::EBUSY, "EBUSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::EDOM, "EDOM"),
        (libc::ESTALE, "ESTALE"),
        (libc::ELOOP, "ELOOP"),
        (libc::EXDEV, "EXDEV"),
        (libc::EMFILE, "EMFILE"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    ];
    let name = names.iter().find(|(number, _)| *number == errno).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| format!("errno {errno}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failures_are_remembered_once_each() {
        let log = FailureLog::default();
        for number in 0..100 {
            let error = Error::CutShort { written_bytes: number / 2, size_bytes: 100, is_growth: false };
            log.record("last close", "a/t", &error);
        }
        let text = log.text();
        assert_eq!(text.lines().count(), FailureLog::CAPACITY);
        let last = text.lines().last().unwrap_or_default();
        let expected = "/a/t\tEINVAL\tlast close: 49 of 100 bytes were written; the rest is unchanged";
        assert!(last.ends_with(expected) && last.contains("Z\t/"), "{last}");
    }

    #[test]
    fn a_request_names_its_range() {
        let request = crate::mount::fs::request::Request::read(2, 10, 5);
        assert_eq!(range(&request.to_string()), Some([10, 15]));
        assert_eq!((range("open"), range("read of x bytes at 1")), (None, None));
    }

    #[test]
    fn floods_are_limited_and_counted() {
        let log = FailureLog::default();
        let start = Instant::now();
        let admit = |at: Instant, reason: &str| log.admit(at, ("t", reason));
        let sent = (0..1000).filter(|number: &u32| admit(start, &number.to_string()).is_some()).count();
        assert_eq!(sent, FailureLog::BURST);
        let later = start + FailureLog::WINDOW;
        assert_eq!(admit(later, "a"), Some(1000 - FailureLog::BURST as u64));
        assert_eq!(admit(later, "b"), Some(0));
        assert_eq!(admit(later, "a"), None, "a repetition");
        assert_eq!(admit(later + FailureLog::WINDOW, "b"), None, "in the same minute");
        assert_eq!(log.admit(later, ("u", "b")), Some(0), "another file");
        assert_eq!(admit(later + FailureLog::SILENCE, "b"), Some(0));
    }
}
