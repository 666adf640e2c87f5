//! `zarrfs top MOUNTPOINT`: shows live what a mount does.
//!
//! Another thread reads the counters, so that keys work while the daemon does not reply. The terminal is restored whatever ends the command: a
//! key, a signal, an error or a panic.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use zarrfs::error::{Error, Result};
use zarrfs::mount::daemon::mounts::mounted;
use zarrfs::sys::{self, KeyInput};

use super::frame::{Line, SORT_KEYS, SortBy, View};
use super::sample::Sample;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::values::deadline;
use crate::cli::output::terminal;

/// How often keys, signals and new samples are checked.
const TICK_MS: i32 = 100;
/// If the daemon has not replied for this much longer than the interval, the screen says so.
const LATE: Duration = Duration::from_secs(2);
/// The size of a terminal that does not report its own.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// The character that Ctrl-C sends.
const CTRL_C: u8 = 3;
/// Switches to the alternate screen, so that the text on the terminal comes back at the end, and hides the cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # Until q is pressed
  zarrfs top mnt";

/// Show live what a mount does: speed, hits, latencies, the busiest arrays
///
/// Keys: q quits; b, w, r, e, t and n sort the arrays by bytes, bytes written, requests, errors, total and name.
/// 'zarrfs stat' shows the same once.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Where the store is mounted
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,

    /// Refresh interval in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = deadline)]
    interval: Duration,
}

impl Arguments {
    /// Shows the mount until a key or a signal ends the command.
    pub fn run(self) -> Outcome {
        let mountpoint = mounted::at(&self.mountpoint)?.mountpoint;
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Exit::Failed(
                "top needs a terminal: 'zarrfs stat' writes the same numbers once".to_owned(),
            ));
        }
        let first = Sample::read(&mountpoint)?;
        let samples = start_sampling(mountpoint.clone(), self.interval)?;
        let (ended, resized) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for (signal, flag) in [(SIGTERM, &ended), (SIGINT, &ended), (SIGHUP, &ended), (SIGWINCH, &resized)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(failed)?;
        }
        let mut screen = Screen::open().map_err(failed)?;
        let shown = show(&mut screen, &mountpoint, (first, samples), self.interval, (&ended, &resized));
        drop(screen);
        Ok(shown?)
    }
}

fn failed(error: io::Error) -> Error {
    Error::Usage(format!("cannot use the terminal: {error}"))
}

/// Reads samples in another thread, until the receiver is dropped or a read fails.
fn start_sampling(mountpoint: PathBuf, interval: Duration) -> Result<Receiver<Result<Sample>>> {
    let (sender, receiver): (Sender<Result<Sample>>, _) = channel();
    let run = move || {
        loop {
            std::thread::sleep(interval);
            let sample = Sample::read(&mountpoint);
            let is_over = sample.is_err();
            if sender.send(sample).is_err() || is_over {
                return;
            }
        }
    };
    std::thread::Builder::new().name("zarrfs-top".to_owned()).spawn(run).map_err(failed)?;
    Ok(receiver)
}

/// A terminal that shows frames.
struct Screen {
    keys: KeyInput,
}

impl Screen {
    fn open() -> io::Result<Screen> {
        let keys = KeyInput::new(io::stdin().as_fd())?;
        // From here on, dropping the screen restores the terminal.
        let screen = Screen { keys };
        put(ENTER)?;
        Ok(screen)
    }

    fn size(&self) -> (usize, usize) {
        terminal::size().unwrap_or(USUAL_SIZE)
    }

    fn show(&self, lines: &[Line]) -> io::Result<()> {
        let mut text = String::from("\u{1b}[H");
        for (number, Line { text: line, is_head }) in lines.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\r\n" };
            let (bold, plain) = if *is_head { ("\u{1b}[1m", "\u{1b}[0m") } else { ("", "") };
            let _ = write!(text, "{separator}{bold}{line}{plain}\u{1b}[K");
        }
        text.push_str("\u{1b}[J");
        put(&text)
    }

    /// Returns the keys that were pressed within a tick; `None` if the terminal has gone.
    fn keys(&self) -> Option<Vec<u8>> {
        match sys::wait_readable(self.keys.as_fd(), TICK_MS) {
            Ok(true) => {
                let mut keys = [0; 64];
                let length = io::stdin().lock().read(&mut keys).ok().filter(|&length| length > 0)?;
                Some(keys.get(..length)?.to_vec())
            }
            // A signal interrupts the wait.
            Ok(false) | Err(_) => Some(Vec::new()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = put(LEAVE);
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

fn show(
    screen: &mut Screen,
    mountpoint: &Path,
    (first, samples): (Sample, Receiver<Result<Sample>>),
    interval: Duration,
    (ended, resized): (&AtomicBool, &AtomicBool),
) -> Result<()> {
    let (mut before, mut now) = (first.clone(), first);
    let mut sort_by = SortBy::Rate;
    let mut heard = Instant::now();
    let mut is_changed = true;
    while !ended.load(Ordering::Relaxed) {
        let late = heard.elapsed() > interval + LATE;
        if is_changed || late || resized.swap(false, Ordering::Relaxed) {
            let trouble =
                format!("the daemon has not replied for {} s  (q quits)", heard.elapsed().as_secs());
            let trouble = late.then_some(trouble.as_str());
            let view = View { mountpoint, before: &before, now: &now, sort_by, trouble };
            let (columns, rows) = screen.size();
            screen.show(&view.lines(columns, rows)).map_err(failed)?;
            is_changed = false;
        }
        let Some(keys) = screen.keys() else { return Ok(()) };
        for key in keys.iter().map(u8::to_ascii_lowercase) {
            if key == b'q' || key == CTRL_C {
                return Ok(());
            }
            if let Some((_, chosen)) = SORT_KEYS.iter().find(|(known, _)| *known == key) {
                (sort_by, is_changed) = (*chosen, true);
            }
        }
        match samples.recv_timeout(Duration::ZERO) {
            Ok(sample) => {
                (before, now) = (now, sample?);
                (heard, is_changed) = (Instant::now(), true);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
    Ok(())
}
