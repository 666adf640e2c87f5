//! The queue of lines, and the thread that writes them.
//!
//! Uses `mount/log_file.rs`. A request only puts its line into the queue, which never waits. The thread writes all
//! lines that are in the queue at once. A line that cannot be written is lost: it is counted, and the first one is logged.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::mount::log_file::{LogFile, LogReaders};

/// The most lines that wait to be written.
const QUEUE_LINES: usize = 4096;
/// The thread writes at most this many bytes at a time, and the rest of the last line.
const BATCH_BYTES: usize = 64 << 10;
/// After a loss of lines was logged, the next one is not logged for this long.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the end of the mount waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

enum Message {
    Line(String),
    /// Asks for a signal once all lines before it are written.
    Flush(SyncSender<()>),
}

#[derive(Debug, Default)]
struct LineCounts {
    written: AtomicU64,
    lost: AtomicU64,
}

/// The access log of a mount.
pub struct AccessLog {
    queue: SyncSender<Message>,
    counts: Arc<LineCounts>,
}

impl AccessLog {
    /// Opens the file, and starts the thread that writes to it.
    pub fn open(path: &Path) -> Result<Self> {
        let refused =
            |error| Error::Usage(format!("cannot write the access log {}: {error}", path.display()));
        // It names files that not every user may list.
        let file = LogFile::open(path.to_owned(), LogReaders::Group).map_err(refused)?;
        AccessLog::start(file, path.display().to_string(), QUEUE_LINES).map_err(refused)
    }

    fn start(file: impl Write + Send + 'static, shown: String, lines: usize) -> io::Result<Self> {
        let (queue, messages) = sync_channel(lines);
        let counts = Arc::<LineCounts>::default();
        let mut writer = LineWriter {
            file,
            shown,
            counts: counts.clone(),
            is_torn: false,
            seen_lost: 0,
            is_losing: false,
            logged_at: None,
        };
        let run = move || writer.run(&messages);
        thread::Builder::new().name("zarrfs-access".to_owned()).spawn(run)?;
        Ok(AccessLog { queue, counts })
    }

    /// Puts a line, with its newline, into the queue. The line is lost if the queue is full.
    pub fn add(&self, line: String) {
        if self.queue.try_send(Message::Line(line)).is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written, for `LAST_LINES` at most.
    pub fn flush(&self) {
        let deadline = Instant::now() + LAST_LINES;
        let (sign, written) = sync_channel(1);
        let mut message = Message::Flush(sign);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(message) {
            if Instant::now() >= deadline {
                return;
            }
            message = back;
            thread::sleep(LAST_LINES / 100);
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    /// Returns how many lines were written.
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Returns how many lines were lost.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}

struct LineWriter<W> {
    file: W,
    shown: String,
    counts: Arc<LineCounts>,
    /// Whether the file ends in the middle of a line.
    is_torn: bool,
    /// How many lines were lost at the last report.
    seen_lost: u64,
    /// Whether the mount's log says that lines are being lost.
    is_losing: bool,
    logged_at: Option<Instant>,
}

impl<W: Write> LineWriter<W> {
    /// Writes lines until the queue is closed.
    fn run(&mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let (mut batch, mut signs) = (String::new(), Vec::new());
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Line(line) => batch.push_str(&line),
                    Message::Flush(sign) => signs.push(sign),
                }
                next = if batch.len() < BATCH_BYTES { messages.try_recv().ok() } else { None };
            }
            let failure = self.write(batch.as_bytes());
            self.report(failure.as_ref());
            for sign in signs {
                let _ = sign.try_send(());
            }
        }
    }

    /// Writes lines. Returns the failure, if some of them are lost.
    fn write(&mut self, lines: &[u8]) -> Option<io::Error> {
        let end = b"\n";
        if self.is_torn && !lines.is_empty() && matches!(self.file.write(end), Ok(1)) {
            self.is_torn = false;
        }
        let (mut rest, mut failure) = (lines, None);
        while !rest.is_empty() && failure.is_none() {
            match self.file.write(rest) {
                Ok(0) => failure = Some(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    let (written, left) = rest.split_at(length.min(rest.len()));
                    self.is_torn = !written.ends_with(end);
                    rest = left;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => failure = Some(error),
            }
        }
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let lost = count(rest);
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
        self.counts.written.fetch_add(count(lines) - lost, Ordering::Relaxed);
        failure
    }

    /// Logs that lines are lost, at most once in [`SILENCE`], and that lines are written again.
    fn report(&mut self, failure: Option<&io::Error>) {
        let (lost, now, shown) = (self.counts.lost.load(Ordering::Relaxed), Instant::now(), &self.shown);
        let is_silent = self.logged_at.is_some_and(|at| now.duration_since(at) < SILENCE);
        if lost > self.seen_lost {
            if !self.is_losing && !is_silent {
                let reason = failure.map_or("the queue was full".to_owned(), ToString::to_string);
                log::warn!(
                    "{shown}: lines of the access log are lost: {reason}; zarrfs_access_log_lost_lines_total counts them"
                );
                (self.is_losing, self.logged_at) = (true, Some(now));
            }
            self.seen_lost = lost;
        } else if self.is_losing && failure.is_none() {
            log::warn!("{shown}: lines of the access log are written again; {lost} were lost");
            self.is_losing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use parking_lot::{Condvar, Mutex};

    /// A disk with this much room, on which a write waits while it is held.
    #[derive(Default)]
    struct Disk {
        state: Mutex<(Vec<u8>, usize, bool)>,
        changed: Condvar,
    }

    struct OnDisk(Arc<Disk>);

    impl Write for OnDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.state.lock();
            while state.2 {
                self.0.changed.wait(&mut state);
            }
            let length = bytes.len().min(state.1);
            if length == 0 {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            state.1 -= length;
            state.0.extend(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(room: usize, is_held: bool, lines: usize) -> (Arc<Disk>, AccessLog) {
        let disk = Arc::new(Disk { state: Mutex::new((Vec::new(), room, is_held)), ..Disk::default() });
        let log = AccessLog::start(OnDisk(disk.clone()), "log".to_owned(), lines).unwrap();
        (disk, log)
    }

    #[test]
    fn a_full_disk_costs_lines_and_the_next_line_begins_anew() {
        let (disk, log) = log(10, false, 8);
        for _ in 0..3 {
            log.add("{1234}\n".to_owned());
            log.flush();
        }
        assert_eq!((log.written(), log.lost()), (1, 2));
        disk.state.lock().1 = 100;
        log.add("{5678}\n".to_owned());
        log.flush();
        assert_eq!(disk.state.lock().0, b"{1234}\n{12\n{5678}\n");
        assert_eq!((log.written(), log.lost()), (2, 2));
    }

    #[test]
    fn a_disk_that_hangs_holds_up_nobody() {
        let (disk, log) = log(1 << 20, true, 4);
        for _ in 0..100 {
            log.add("{}\n".to_owned());
        }
        assert!(log.lost() >= 95, "{}", log.lost());
        disk.state.lock().2 = false;
        disk.changed.notify_all();
        log.flush();
        assert_eq!(log.written() + log.lost(), 100);
    }
}
