//! The keeper: a small process that holds a mount's device and its journal, and starts the daemon again when it dies.
//!
//! The kernel ends a mount when the last descriptor of its device is closed. The keeper has such a descriptor, so programs that use
//! the mount wait while no daemon runs, and continue with the next one (`handshake.rs`, `fs/recovery/`). It is the parent of the
//! daemon, has one thread, and does not open files. A new daemon is a copy of it, made by fork(2), with the command line already
//! parsed. After `zarrfs restart`, the next daemon runs the program on the disk instead, with the same
//! command line; if that fails to start, the next daemon is a copy again.
//!
//! When too many daemons have died, the mount ends, and programs get ENOTCONN. What they have written and the store does not have stays with the
//! keeper, which starts daemons that only store it, until one has.
//!
//! Invariants: if a daemon returns, or dies before the mount replies for the first time, the mount has ended, and its keeper ends
//! too. A keeper does not end by itself while it holds unstored bytes. It never touches the mount point: it would wait there for the
//! daemon that it has to start.

use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::mount::daemon::procfs::{MemoryKills, start_ticks};
use crate::mount::daemon::restart::call::{
    Call, Daemon, FirstCall, Keeper, LEFT, NextCall, READY, UNREADABLE, VARIABLE,
};
use crate::mount::daemon::restart::holder::{HeldFiles, MAX_HELD, OTHER_DESCRIPTORS};
use crate::mount::daemon::restart::mark;
use crate::mount::fs::KeeperInfo;
use crate::mount::journal::held::{DescriptorHolder, HeldDescriptors, SessionDescriptors, UNSTORED};
use crate::mount::journal::record::{CRASH, MEMORY_KILL};
use crate::mount::options::Options;
use crate::sys::{self, Fork, ProcessEnd, SignalSet};

/// How many daemons may die in a short time before the keeper gives up.
const MAX_DEATHS: f64 = 20.0;
/// After this time, one death no longer counts.
const SECONDS_FOR_A_DEATH: f64 = 3.0;
/// If a daemon dies within this time after its start, the next one starts after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to store what is left of a mount that has ended.
const LONGEST_STORE_PAUSE: Duration = Duration::from_secs(60);

/// Returns whether another daemon can continue a mount with these options.
pub fn can_continue(options: &Options) -> bool {
    // A path through a descriptor of the caller cannot be opened again.
    let is_descriptor = |path: &Path| ["/dev/fd", "/proc"].iter().any(|folder| path.starts_with(folder));
    let logs = [options.log_file.as_deref(), options.access_log.as_deref()];
    let paths = [options.store_path.as_deref(), options.overlay.as_deref()].into_iter().chain(logs);
    !is_descriptor(Path::new(&options.source))
        && !is_descriptor(&options.mountpoint)
        && !paths.flatten().any(is_descriptor)
}

/// Returns whether a mount in the background has a keeper.
pub fn is_wanted(options: &Options) -> bool {
    // A service manager treats the daemon as the service, so a keeper would be in the way.
    options.has_keeper && env::var_os("NOTIFY_SOCKET").is_none() && can_continue(options)
}

/// What the daemon of a mount has to do before a planned restart.
#[derive(Clone, Copy, Debug)]
pub struct LeavingDuties {
    /// It stores what programs have written.
    pub stores: bool,
    /// It writes lines of the access log.
    pub logs: bool,
    /// It writes what was read into a disk cache.
    pub caches: bool,
}

/// Becomes the keeper of a mount with a daemon that has these duties. Returns in each process that is to become a daemon, and with
/// an error if it cannot fork.
pub fn keep(mut report: PipeWriter, duties: LeavingDuties) -> Result<Daemon> {
    let begun = Beginning::new().inspect_err(|error| {
        let _ = report.write_all(error.to_string().as_bytes());
    })?;
    let Beginning {
        journal,
        held,
        folder,
        program,
        memory_kills,
        signals,
        device_from,
        device_to,
        reader,
        writer,
    } = begun;
    let pid = std::process::id();
    let keeper = KeeperInfo { pid, start_ticks: start_ticks(pid) };
    let child = match sys::fork().map_err(cannot_start)? {
        Fork::Child => {
            let holder = Arc::new(held.holder().map_err(cannot_start)?);
            let keeper = Keeper::Process(keeper);
            let descriptors = SessionDescriptors::new(holder, HeldDescriptors::new());
            let first = FirstCall { journal, device_to: Some(device_to), descriptors, keeper };
            return Ok(Daemon { call: Call::Mount(Some(first)), report: writer });
        }
        Fork::Parent(child) => child,
    };
    drop((device_to, writer));
    sys::name_thread(c"zarrfs-keeper");
    let device = first_report(device_from, reader, report, child);
    let mut kept = Kept {
        device,
        journal,
        held,
        keeper,
        folder,
        program,
        signal_file: signals.descriptor().map_err(cannot_start)?,
        signals,
        memory_kills,
        tokens: MAX_DEATHS,
        counted_at: Instant::now(),
        short_lives: 0,
        severity: 0,
        is_from_disk: false,
        duties,
        is_over: false,
    };
    let mut daemon = RunningDaemon { pid: child, since: Instant::now() };
    loop {
        kept.wait_for_death(&daemon);
        match kept.next_daemon()? {
            Forked::Daemon(next) => return Ok(next),
            Forked::Keeper(next) => daemon = next,
        }
    }
}

fn cannot_start(error: io::Error) -> Error {
    Error::Usage(format!("cannot start the daemon: {error}"))
}

/// What a keeper needs before its first daemon.
struct Beginning {
    journal: OwnedFd,
    held: HeldFiles,
    folder: PathBuf,
    program: PathBuf,
    memory_kills: MemoryKills,
    signals: SignalSet,
    device_from: UnixStream,
    device_to: UnixStream,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Beginning {
    fn new() -> Result<Self> {
        let (device_from, device_to) = UnixStream::pair().map_err(cannot_start)?;
        let (reader, writer) = io::pipe().map_err(cannot_start)?;
        // Signals that are sent to all processes of a mount are meant for the daemon. The keeper ends with the daemon.
        let for_daemon = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1];
        let signals = [&for_daemon[..], &[libc::SIGCHLD, libc::SIGUSR2]].concat();
        // The keeper and each daemon must have room for all descriptors.
        let _ = sys::raise_descriptor_limit(MAX_HELD + OTHER_DESCRIPTORS);
        Ok(Beginning {
            held: HeldFiles::new().map_err(cannot_start)?,
            journal: sys::memory_file(c"zarrfs-session").map_err(cannot_start)?,
            folder: env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            program: env::current_exe().map_err(cannot_start)?,
            memory_kills: MemoryKills::open(),
            signals: SignalSet::block(&signals).map_err(cannot_start)?,
            device_from,
            device_to,
            reader,
            writer,
        })
    }
}

/// Forwards the first daemon's report, and receives the device. Ends this process if there is nothing to keep.
fn first_report(
    device_from: UnixStream,
    mut reader: PipeReader,
    mut report: PipeWriter,
    child: u32,
) -> OwnedFd {
    // Without a device, the daemon has failed, or the kernel cannot resend requests.
    let device = sys::receive_descriptor(device_from.as_fd()).ok().flatten();
    drop(device_from);
    let mut text = Vec::new();
    let _ = reader.read_to_end(&mut text);
    if text.first() != Some(&READY) {
        // Closing the last descriptor ends the mount, and with it whatever the daemon may be waiting for.
        drop(device);
        let _ = report.write_all(&text);
        let _ = sys::child_end(child, true);
        std::process::exit(1);
    }
    let _ = sys::leave_session();
    leave_everything();
    let _ = report.write_all(&text);
    match device {
        Some(device) => device,
        None => std::process::exit(0),
    }
}

/// Closes the terminal, the caller's other descriptors, and the working folder.
fn leave_everything() {
    drop(sys::inherited_descriptors());
    let _ = env::set_current_dir("/");
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let null = OwnedFd::from(null);
        for number in 0..=2 {
            let _ = sys::redirect(null.as_fd(), number);
        }
    }
}

/// A daemon that the keeper waits for.
struct RunningDaemon {
    pid: u32,
    since: Instant,
}

/// Which of the two processes after a fork this one is.
enum Forked {
    Daemon(Daemon),
    Keeper(RunningDaemon),
}

/// The state of a keeper.
struct Kept {
    device: OwnedFd,
    journal: OwnedFd,
    held: HeldFiles,
    keeper: KeeperInfo,
    /// Where the command line was given.
    folder: PathBuf,
    /// The program on the disk.
    program: PathBuf,
    signals: SignalSet,
    /// Readable when one of these signals has arrived.
    signal_file: OwnedFd,
    /// Counts the processes that the system has ended for lack of memory.
    memory_kills: MemoryKills,
    /// How many more daemons may die, as of `counted_at`.
    tokens: f64,
    counted_at: Instant,
    /// How many daemons in a row died soon after their start.
    short_lives: u32,
    /// The severity of all deaths.
    severity: u64,
    /// The next daemon runs the program on the disk.
    is_from_disk: bool,
    duties: LeavingDuties,
    /// The mount has ended: a daemon only stores what is left.
    is_over: bool,
}

impl Kept {
    /// Waits until a daemon has died. Ends this process with a daemon that has returned.
    fn wait_for_death(&mut self, daemon: &RunningDaemon) {
        let mut is_planned = false;
        loop {
            match sys::child_end(daemon.pid, false) {
                Ok(Some(ProcessEnd::Signalled(signal))) => {
                    if is_planned {
                        return;
                    }
                    self.severity += self.severity_of(signal);
                    self.count_death(daemon.since.elapsed(), &format!("was ended by signal {signal}"));
                    return;
                }
                Ok(None) => {}
                Ok(Some(ProcessEnd::Exited(LEFT))) => return,
                // It has ended the mount.
                Ok(Some(ProcessEnd::Exited(_))) | Err(_) => std::process::exit(0),
            }
            let files = [self.signal_file.as_fd(), self.held.socket()];
            if sys::wait_any_readable(&files).is_err() {
                std::process::exit(1);
            }
            self.held.receive();
            if self.signals.wait_at_most(Duration::ZERO) == Some(libc::SIGUSR2) {
                self.is_from_disk = true;
                // The next daemon gets the requests that this one has not answered, and the bytes that it has not stored.
                let LeavingDuties { stores, logs, caches } = self.duties;
                let leaves = stores || logs || caches;
                let signal = if leaves { libc::SIGUSR2 } else { libc::SIGKILL };
                let is_sent = sys::signal_child(daemon.pid, signal).is_ok();
                is_planned = is_sent && !leaves;
            }
        }
    }

    /// Returns how much a death by a signal says against the requests that the daemon was handling.
    fn severity_of(&mut self, signal: i32) -> u64 {
        let is_for_memory = self.memory_kills.have_risen();
        match signal {
            libc::SIGKILL if is_for_memory => MEMORY_KILL,
            // Somebody has sent it.
            libc::SIGKILL | libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT => 0,
            _ => CRASH,
        }
    }

    /// Counts a death, and waits if daemons die soon after they begin. The mount is over if too many die.
    fn count_death(&mut self, life: Duration, how: &str) {
        let since = self.counted_at.elapsed().as_secs_f64();
        self.tokens = (self.tokens + since / SECONDS_FOR_A_DEATH).min(MAX_DEATHS) - 1.0;
        self.counted_at = Instant::now();
        if self.tokens < 0.0 {
            log_line(libc::LOG_ERR, &format!("the daemon {how}; too many have died, so the mount ends"));
            self.is_over = true;
            return;
        }
        log_line(libc::LOG_WARNING, &format!("the daemon {how}; another one continues the mount"));
        if life >= SHORT_LIFE {
            self.short_lives = 0;
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.short_lives.min(10)).min(LONGEST_PAUSE);
        self.short_lives += 1;
        if self.short_lives > 1 && self.pause(pause) {
            self.is_over = true;
        }
    }

    /// Waits. Returns early, with `true`, if this process is asked to end.
    fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match self.signals.wait_at_most(until.saturating_duration_since(Instant::now())) {
                Some(libc::SIGTERM | libc::SIGINT) => return true,
                // The end of a child that was waited for.
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// Starts daemons until one of them continues the session.
    fn next_daemon(&mut self) -> Result<Forked> {
        // Whether the program of this process has failed to read the session.
        let mut is_unreadable_here = false;
        loop {
            // It may have been unmounted while there was no daemon.
            if self.is_over || sys::has_ended(self.device.as_fd()) {
                return self.store_left().map(Forked::Daemon);
            }
            // The last words of the one before.
            self.held.receive();
            let (mut reader, writer) = io::pipe().map_err(cannot_start)?;
            let since = Instant::now();
            let pid = match sys::fork() {
                Ok(Fork::Parent(pid)) => pid,
                Ok(Fork::Child) => return self.become_daemon(writer).map(Forked::Daemon),
                Err(error) => {
                    self.count_death(Duration::ZERO, &format!("cannot be started: {error}"));
                    continue;
                }
            };
            drop(writer);
            let mut text = Vec::new();
            let _ = reader.read_to_end(&mut text);
            if text.first() == Some(&READY) {
                return Ok(Forked::Keeper(RunningDaemon { pid, since }));
            }
            let end = sys::child_end(pid, true);
            self.held.receive();
            let is_unreadable = self.held.has(UNREADABLE);
            self.held.give_up(UNREADABLE);
            let is_from_disk = self.is_from_disk;
            let reason = match (text.is_empty(), end) {
                (false, _) => format!("cannot continue: {}", String::from_utf8_lossy(&text)),
                (true, Ok(Some(ProcessEnd::Signalled(signal)))) => {
                    format!("was ended by signal {signal} as it began")
                }
                (true, _) => "has ended as it began".to_owned(),
            };
            if is_unreadable && is_unreadable_here {
                log_line(libc::LOG_ERR, &format!("the daemon {reason}, so the mount ends"));
                self.is_over = true;
            } else if is_from_disk && !is_unreadable_here {
                log_line(
                    libc::LOG_ERR,
                    &format!("the installed program {reason}; the previous one continues"),
                );
                self.is_from_disk = false;
            } else if is_unreadable {
                // A later version has continued the session before.
                log_line(libc::LOG_WARNING, &format!("the daemon {reason}; the installed program is tried"));
                (is_unreadable_here, self.is_from_disk) = (true, true);
            } else {
                self.count_death(since.elapsed(), &reason);
            }
        }
    }

    /// Ends the mount, and then starts daemons until one of them has stored what is left. Returns in each of them; this process ends.
    fn store_left(&mut self) -> Result<Daemon> {
        self.is_over = true;
        if !self.duties.stores {
            std::process::exit(1);
        }
        // With the last descriptor, the kernel ends the connection.
        let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(cannot_start)?;
        self.device = null.into();
        self.held.receive();
        self.held.give_up(mark::NAME);
        let mut pause = FIRST_PAUSE;
        loop {
            let (mut reader, writer) = io::pipe().map_err(cannot_start)?;
            let mut text = Vec::new();
            match sys::fork() {
                Ok(Fork::Child) => return self.become_daemon(writer),
                Ok(Fork::Parent(pid)) => {
                    drop(writer);
                    let _ = reader.read_to_end(&mut text);
                    let _ = sys::child_end(pid, true);
                }
                Err(error) => text.extend(error.to_string().into_bytes()),
            }
            self.held.receive();
            if !self.held.has(UNSTORED) {
                log_line(libc::LOG_WARNING, "the mount has ended, and everything that was written is stored");
                std::process::exit(1);
            }
            let (pid, reason) = (self.keeper.pid, String::from_utf8_lossy(&text).into_owned());
            let kept = format!("the mount has ended, and process {pid} keeps what is not stored");
            log_line(libc::LOG_ERR, &format!("{kept}: {reason}"));
            if self.pause(pause) {
                log_line(libc::LOG_ERR, "LOST: what was written to the mount and is not stored, by a signal");
                std::process::exit(1);
            }
            pause = pause.saturating_mul(2).min(LONGEST_STORE_PAUSE);
        }
    }

    /// Continues as the next daemon in a new process, or runs the program on the disk there.
    fn become_daemon(&mut self, mut report: PipeWriter) -> Result<Daemon> {
        sys::name_thread(c"zarrfs");
        // The folder may have gone. Then only a store with a relative path has, too.
        let _ = env::set_current_dir(&self.folder);
        if self.is_from_disk && !self.is_over {
            let error = self.run_from_disk(&report);
            if error.kind() == io::ErrorKind::NotFound
                && let Ok(holder) = self.held.holder()
            {
                let _ = holder.hold(UNREADABLE, self.journal.as_fd());
            }
            let _ = report.write_all(error.to_string().as_bytes());
            std::process::exit(1);
        }
        let call = NextCall {
            device: self.device.try_clone().map_err(cannot_start)?,
            journal: self.journal.try_clone().map_err(cannot_start)?,
            descriptors: SessionDescriptors::new(
                Arc::new(self.held.holder().map_err(cannot_start)?),
                self.held.take(),
            ),
            severity: self.severity,
            is_over: self.is_over,
            keeper: Keeper::Process(self.keeper),
        };
        Ok(Daemon { call: Call::Continue(call), report })
    }

    /// Runs the program on the disk. Returns only if that fails.
    fn run_from_disk(&self, report: &PipeWriter) -> io::Error {
        let inherit = || {
            for file in [self.device.as_fd(), self.journal.as_fd(), report.as_fd()] {
                sys::keep_on_exec(file)?;
            }
            self.held.keep_on_exec()
        };
        let (socket, held) = match inherit() {
            Ok(inherited) => inherited,
            Err(error) => return error,
        };
        let files =
            [self.device.as_raw_fd(), self.journal.as_raw_fd(), report.as_raw_fd(), socket, held.as_raw_fd()];
        let words = files.map(|number| number.to_string()).join(",");
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| OsString::from("zarrfs"));
        Command::new(&self.program)
            .arg0(name)
            .args(arguments)
            .env(VARIABLE, format!("{words},{},{}", self.severity, self.keeper.pid))
            .exec()
    }
}

/// Sends a line to the system log. The keeper does not have a thread that forwards its standard error.
fn log_line(level: i32, text: &str) {
    if let Ok(text) = CString::new(text.replace('\0', "?")) {
        sys::log_to_system(level, &text);
    }
}

/// Makes the keeper of a mount replace the daemon with one that runs the program on the disk.
pub fn ask_for_restart(keeper: KeeperInfo) -> io::Result<()> {
    let process = sys::open_process(keeper.pid).map_err(|_| io::ErrorKind::NotFound)?;
    let is_another = keeper.start_ticks.is_none() || start_ticks(keeper.pid) != keeper.start_ticks;
    if is_another || sys::wait_readable(process.as_fd(), 0)? {
        return Err(io::ErrorKind::NotFound.into());
    }
    sys::signal_process(process.as_fd(), libc::SIGUSR2)
}
