//! Sends the daemon's standard error to the system log (`journalctl -t zarrfs`), so that failures are visible
//! by default.
//!
//! Everything written to descriptor 2, by the logger or by a panic, is forwarded line by line. A log that
//! hangs costs lines, but never blocks a request.

use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::sys;

/// How long writing the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(1);
const STANDARD_ERROR: i32 = 2;

/// Where syslog(3) sends messages to.
const SYSTEM_LOG: &str = "/dev/log";

/// Signals that everything has been forwarded.
static FORWARDED: OnceLock<Mutex<Receiver<()>>> = OnceLock::new();

/// Returns whether a system log is running. In many containers none is, and messages to it are lost.
pub fn is_heard() -> bool {
    let takes_datagrams = UnixDatagram::unbound().and_then(|socket| socket.connect(SYSTEM_LOG));
    takes_datagrams.is_ok() || UnixStream::connect(SYSTEM_LOG).is_ok()
}

/// Redirects standard error to the system log.
pub fn take_standard_error() -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    sys::never_wait(writer.as_fd())?;
    let (sender, receiver) = channel();
    let forward = move || {
        forward_lines(reader);
        let _ = sender.send(());
    };
    std::thread::Builder::new().name("zarrfs-log".into()).spawn(forward)?;
    let _ = FORWARDED.set(Mutex::new(receiver));
    sys::redirect(writer.as_fd(), STANDARD_ERROR)
}

/// Waits before the process exits until all lines have been forwarded. Later lines are lost.
pub fn flush() {
    let Some(forwarded) = FORWARDED.get() else { return };
    let Ok(null) = fs::OpenOptions::new().write(true).open("/dev/null") else { return };
    // Closes the only writing end of the pipe.
    if sys::redirect(OwnedFd::from(null).as_fd(), STANDARD_ERROR).is_ok() {
        let _ = forwarded.lock().recv_timeout(LAST_LINES);
    }
}

fn forward_lines(reader: PipeReader) {
    for line in BufReader::new(reader).split(b'\n') {
        let Ok(line) = line else { return };
        let (level, text) = read_line(&line);
        if let Ok(text) = CString::new(text) {
            sys::log_to_system(level, &text);
        }
    }
}

/// The level that env_logger wrote into a line, and the line without colours and NUL bytes.
fn read_line(line: &[u8]) -> (i32, String) {
    let text = String::from_utf8_lossy(line);
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                characters.by_ref().find(char::is_ascii_alphabetic);
            }
            '\0' => plain.push('\u{fffd}'),
            other => plain.push(other),
        }
    }
    let head = plain.split(']').next().unwrap_or_default();
    let level = match head.split_whitespace().nth(1) {
        Some("ERROR") => libc::LOG_ERR,
        Some("INFO") => libc::LOG_INFO,
        Some("DEBUG" | "TRACE") => libc::LOG_DEBUG,
        // A line without a level comes from a panic.
        _ if !plain.starts_with('[') => libc::LOG_ERR,
        _ => libc::LOG_WARNING,
    };
    (level, plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_colours() {
        let of = |line: &str| read_line(line.as_bytes());
        assert_eq!(of("[2026-11-21T08:44:34Z WARN ] a").0, libc::LOG_WARNING);
        assert_eq!(of("[2026-11-21T08:44:34Z ERROR zarrfs] a").0, libc::LOG_ERR);
        assert_eq!(of("[2026-11-21T08:44:34Z INFO ] a").0, libc::LOG_INFO);
        assert_eq!(of("thread 'x' panicked").0, libc::LOG_ERR);
        let coloured =
            "\u{1b}[90m[\u{1b}[0m2026-11-21T08:44:34Z \u{1b}[33mWARN \u{1b}[0m\u{1b}[90m]\u{1b}[0m a\0b";
        assert_eq!(of(coloured), (libc::LOG_WARNING, "[2026-11-21T08:44:34Z WARN ] a\u{fffd}b".to_owned()));
    }
}
