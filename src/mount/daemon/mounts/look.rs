//! Looks at a mount in a process of its own.
//!
//! A daemon may have taken a request and never reply: it is stopped, or it is another user's. Then, until the connection ends, the
//! thread that asked can neither continue nor die, and its process cannot exit. So a child process asks, and this one waits for the
//! answer only as long as it wants to. A child that hangs is left behind; it ends when the mount does. Manual pages: fork(2),
//! pipe(7). Uses `sys`.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::sys;
use crate::sys::Fork;

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// An answer that has begun may take this long for its next bytes.
const NEXT_BYTES_TIMEOUT: Duration = Duration::from_millis(200);
/// An answer begins with an errno, 0 for success, and the length of the rest.
const HEAD_BYTES: usize = 12;
/// The child ends with it where nothing can be answered.
const NO_ANSWER: i32 = 1;

/// Children that hung and are no longer waited for.
static LEFT_BEHIND: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Returns the number of children that hung and are still there. Until its request ends, a child keeps the mount busy that it looks at.
pub fn left_behind() -> usize {
    let mut children = LEFT_BEHIND.lock();
    children.retain(|&child| matches!(sys::child_end(child, false), Ok(None)));
    children.len()
}

/// A look that is under way in a child process.
pub struct Look {
    child: u32,
    answer: PipeReader,
    started: Instant,
    has_answered: bool,
}

impl Look {
    /// Starts a look. It runs in a copy of this process that has no other threads and no descriptors: `look` must take no lock that
    /// another thread may hold. System calls and memory are free.
    pub fn start(look: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Look> {
        left_behind();
        let (answer, report) = io::pipe()?;
        match sys::fork()? {
            Fork::Parent(child) => Ok(Look { child, answer, started: Instant::now(), has_answered: false }),
            Fork::Child => {
                // No panic may leave this function, which would let the copy go on as its original does.
                let reported = catch_unwind(AssertUnwindSafe(|| {
                    let mut report = sys::keep_only(report.as_fd())?;
                    let looked = look();
                    let error =
                        looked.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
                    let answer = looked.unwrap_or_default();
                    report.write_all(&error.to_le_bytes())?;
                    report.write_all(&(answer.len() as u64).to_le_bytes())?;
                    report.write_all(&answer)
                }));
                sys::exit_at_once(if matches!(reported, Ok(Ok(()))) { 0 } else { NO_ANSWER })
            }
        }
    }

    /// Returns the answer; `None` if it is not there within `timeout` from the start.
    pub fn within(mut self, timeout: Duration) -> Option<io::Result<Vec<u8>>> {
        self.receive(Some(timeout)).transpose()
    }

    /// Returns the answer, whenever it comes. Signals still end this process meanwhile.
    pub fn wait(mut self) -> io::Result<Vec<u8>> {
        self.receive(None)?.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    fn receive(&mut self, timeout: Option<Duration>) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let mut piece = [0; 16 << 10];
        loop {
            let mut rest = timeout.map(|timeout| timeout.saturating_sub(self.started.elapsed()));
            if !bytes.is_empty() {
                // Looks at many mounts wait for this process, which reads their answers in turn.
                rest = rest.map(|rest| rest.max(NEXT_BYTES_TIMEOUT));
            }
            let rest_ms = rest.map_or(-1, |rest| i32::try_from(rest.as_millis()).unwrap_or(i32::MAX));
            let read = match sys::wait_readable(self.answer.as_fd(), rest_ms) {
                Ok(false) => return Ok(None),
                Ok(true) => self.answer.read(&mut piece),
                Err(error) => Err(error),
            };
            match read {
                Ok(0) => break,
                Ok(_) if bytes.len() > HEAD_BYTES + MAX_ANSWER_BYTES => {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                Ok(length) => bytes.extend_from_slice(piece.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.has_answered = true;
        parse(&bytes).map(Some)
    }
}

/// Returns what a child reported, if it is all there.
fn parse(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let cut_short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (error, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut_short)?;
    let (length, answer) = rest.split_first_chunk::<8>().ok_or_else(cut_short)?;
    match i32::from_le_bytes(*error) {
        0 if u64::from_le_bytes(*length) == answer.len() as u64 => Ok(answer.to_vec()),
        0 => Err(cut_short()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        if !self.has_answered {
            // If the daemon has not taken its request yet, it ends now.
            let _ = sys::signal_child(self.child, libc::SIGKILL);
        }
        // What has answered ends by itself, at once.
        if let Ok(None) = sys::child_end(self.child, self.has_answered) {
            LEFT_BEHIND.lock().push(self.child);
        }
    }
}

/// Looks, and returns the answer; `None` if it is not there within `timeout`. As [`Look::start`].
pub fn look_within(
    timeout: Duration,
    look: impl FnOnce() -> io::Result<Vec<u8>>,
) -> Option<io::Result<Vec<u8>>> {
    match Look::start(look) {
        Ok(look) => look.within(timeout),
        Err(error) => Some(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn answers_and_errors_come_back() {
        let answer = vec![7; 300_000];
        assert_eq!(look_within(LONG, || Ok(answer.clone())).unwrap().unwrap(), answer);
        assert_eq!(look_within(LONG, || Ok(Vec::new())).unwrap().unwrap(), b"");
        let missing = look_within(LONG, || fs::read("/none")).unwrap().unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(Look::start(|| Ok(vec![1])).unwrap().wait().unwrap(), [1]);
    }

    #[test]
    fn a_look_that_hangs_is_left_behind() {
        let hangs = || {
            thread::sleep(LONG);
            Ok(Vec::new())
        };
        let look = Look::start(hangs).unwrap();
        let child = look.child;
        assert!(look.within(Duration::from_millis(20)).is_none());
        // Later looks reap it: a process of another number, or none, has its place.
        while LEFT_BEHIND.lock().contains(&child) {
            look_within(LONG, || Ok(Vec::new())).unwrap().unwrap();
        }
        assert!(sys::child_end(child, false).is_err());
    }

    #[test]
    fn a_look_has_no_descriptor_of_its_parent() {
        let (mut reader, writer) = io::pipe().unwrap();
        let hangs = || {
            thread::sleep(LONG);
            Ok(Vec::new())
        };
        let look = Look::start(hangs).unwrap();
        drop(writer);
        // It ends when the child has closed its copy.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        drop(look);
        let numbers = look_within(LONG, || {
            let names =
                fs::read_dir("/proc/self/fd")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            Ok(names.collect::<Vec<_>>().join(" ").into_bytes())
        });
        let numbers = String::from_utf8(numbers.unwrap().unwrap()).unwrap();
        let mut numbers: Vec<&str> = numbers.split(' ').collect();
        numbers.sort_unstable();
        // The standard streams, the report, and the folder that is read.
        assert_eq!(numbers, ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn an_answer_that_is_cut_short_is_an_error() {
        let whole = [&0_i32.to_le_bytes()[..], &2_u64.to_le_bytes(), b"ab"].concat();
        assert_eq!(parse(&whole).unwrap(), b"ab");
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
