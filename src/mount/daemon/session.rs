//! The life of a mount: fork, readiness, signals, exit.
//!
//! `start.rs` opens the store and mounts, `readiness.rs` waits for the first reply, `shutdown.rs` ends, `detach.rs` is the other
//! command; `restart/keeper.rs` starts the daemon again if it dies. Invariants: signals are blocked before any thread starts, so
//! that they interrupt no system call; `run` in the background returns only when the mount replies.

use std::io::{PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::mount::daemon::attach;
use crate::mount::daemon::given_device;
use crate::mount::daemon::pressure;
use crate::mount::daemon::procfs::thread_count;
use crate::mount::daemon::readiness::{report_ready, wait_for_first_answer, wait_until_ready};
use crate::mount::daemon::restart::call::{self, Call, Daemon, FirstCall};
use crate::mount::daemon::restart::keeper::{self, LeavingDuties};
use crate::mount::daemon::restart::mark;
use crate::mount::daemon::restart::service;
use crate::mount::daemon::service_manager::sd_notify;
use crate::mount::daemon::service_manager::watchdog;
use crate::mount::daemon::shutdown::{ActiveMount, end_process, spawn};
use crate::mount::daemon::start::{ReadySession, StoreUse, cannot_begin, start};
use crate::mount::options::Options;
use crate::store::Store;
use crate::sys::{self, Fork, SignalSet};

pub use crate::mount::daemon::detach::{unmount, unmount_stale};

/// A daemon that continues a session serves its first request at the latest after this time.
const RESUME_PATIENCE: Duration = Duration::from_secs(5);
/// The time between two attempts to open the arrays with bytes that a former daemon had not stored.
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Mounts. In the foreground this returns when the mount has ended; otherwise it forks a daemon and returns
/// when the mount replies (the first stat succeeds), or with the reason of the failure.
///
/// The process must have one thread only; `open_store` runs after the fork, so that a store may start threads. The caller's logger stays in use; the
/// daemon's standard error goes to the system log.
pub fn run(
    mut options: Options,
    foreground: bool,
    open_store: impl FnOnce(StoreUse) -> Result<Arc<dyn Store>>,
) -> Result<()> {
    if call::has_called() {
        let code = run_daemon(options, open_store, call::call_from_environment()?);
        end_process(code);
    }
    if foreground && let Some(found) = service::take_session()? {
        return run_here(options, open_store, Call::Continue(found.into()));
    }
    attach::check_ownership(&options)?;
    if let Some(device) = given_device::take(&options.mountpoint)? {
        return if foreground {
            run_here(options, open_store, Call::Serve(device))
        } else {
            run_in_background(options, open_store, Some(device))
        };
    }
    let made = attach::make_mountpoint(&options)?;
    let run = || {
        options.mountpoint = attach::check(&options)?;
        attach::allows_others(&options)?;
        if !foreground {
            return run_in_background(options, open_store, None);
        }
        let is_stored = service::has_store() && keeper::can_continue(&options);
        let first = is_stored.then(FirstCall::of_service_manager).transpose().map_err(cannot_begin)?;
        run_here(options, open_store, Call::Mount(first))
    };
    // A mount that failed leaves no folder.
    run().inspect_err(|_| attach::remove_folders(&made))
}

/// Returns whether this process continues a mount. Then it must not look at the mount point, which would wait for this process.
pub fn is_continuing() -> bool {
    call::has_called() || service::has_session()
}

fn run_here(
    options: Options,
    open_store: impl FnOnce(StoreUse) -> Result<Arc<dyn Store>>,
    call: Call,
) -> Result<()> {
    let signals = block_signals()?;
    let started = start(options, open_store, call)?;
    serve(started, signals, None)
}

fn run_in_background(
    options: Options,
    open_store: impl FnOnce(StoreUse) -> Result<Arc<dyn Store>>,
    given: Option<OwnedFd>,
) -> Result<()> {
    if thread_count() > 1 {
        return Err(Error::Usage("this process cannot become a daemon: use --foreground".to_owned()));
    }
    let failed = |error| Error::Usage(format!("cannot start the daemon: {error}"));
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    match sys::fork().map_err(failed)? {
        Fork::Parent(_) => {
            drop((writer, given));
            wait_until_ready(reader)
        }
        Fork::Child => {
            drop(reader);
            let daemon = match given {
                Some(device) => Ok(Daemon { call: Call::Serve(device), report: writer }),
                None if keeper::is_wanted(&options) => {
                    let (stores, logs) = (options.writable, options.access_log.is_some());
                    let caches = options.remote.as_ref().is_some_and(|remote| remote.disk_cache.is_some());
                    keeper::keep(writer, LeavingDuties { stores, logs, caches })
                }
                None => Ok(Daemon { call: Call::Mount(None), report: writer }),
            };
            let code = daemon.map_or(1, |daemon| run_daemon(options, open_store, daemon));
            end_process(code);
        }
    }
}

/// In the daemon: returns the exit code. The waiting process prints failures until the mount replies; later
/// failures are logged.
fn run_daemon(
    options: Options,
    open_store: impl FnOnce(StoreUse) -> Result<Arc<dyn Store>>,
    daemon: Daemon,
) -> i32 {
    let Daemon { call, mut report } = daemon;
    let cannot_start = |error| Error::Usage(format!("cannot list what this process inherited: {error}"));
    // A pipe or a lock that was passed on by accident would stay open as long as the mount, and programs may wait for its end.
    let inherited = sys::inherited_descriptors().map_err(cannot_start);
    let open_store = |store_use| {
        let inherited = inherited?;
        let store = open_store(store_use)?;
        // Not before: the store and the log file may be named by descriptors, as /dev/fd/63 is by a shell.
        drop(inherited);
        // The daemon does not need its working folder any more, and it may be unmounted.
        std::env::set_current_dir("/").map_err(|error| Error::Usage(format!("cannot enter /: {error}")))?;
        Ok(store)
    };
    let started = block_signals().and_then(|signals| Ok((start(options, open_store, call)?, signals)));
    let (started, signals) = match started {
        Ok(started) => started,
        Err(error) => {
            let _ = report.write_all(error.to_string().as_bytes());
            return 1;
        }
    };
    match serve(started, signals, Some(report)) {
        Ok(()) => 0,
        Err(error) => {
            log::error!("{error}");
            1
        }
    }
}

/// Serves a mount until it has ended.
fn serve(started: ReadySession, signals: SignalSet, report: Option<PipeWriter>) -> Result<()> {
    let ReadySession { session, mount, is_continued } = started;
    let mount = Arc::new(mount);
    pressure::watch(Arc::downgrade(&mount.fs));
    let watched = mount.clone();
    spawn("zarrfs-signals", move || watch_signals(&watched, &signals))?;
    let ready_mount = mount.clone();
    spawn("zarrfs-ready", move || {
        if is_continued {
            log::warn!("continuing the mount on {}", ready_mount.mountpoint().display());
            sd_notify::ready(&ready_mount.fs.options().source, report.is_some());
            watchdog::start(&ready_mount.fs);
            return report.map_or((), report_ready);
        }
        wait_for_first_answer(&ready_mount);
        let options = ready_mount.fs.options();
        if !ready_mount.is_given() {
            // Not before: mount(8) may look at the mount point.
            ready_mount.registration.register(attach::source_name(options), &options.utab_words);
        }
        sd_notify::ready(&ready_mount.fs.options().source, report.is_some());
        watchdog::start(&ready_mount.fs);
        if let Some(report) = report {
            report_ready(report);
        }
    })?;
    if is_continued {
        resume_writing(&mount)?;
    }
    if mount.fs.options().writable {
        sys::touch_request_buffers();
    }
    let ended = session.run();
    mount.registration.end();
    // The next mount may get the device number.
    mount.fs.recovery().release(mark::NAME);
    mount.announce_stop();
    log::info!("the mount on {} has ended", mount.mountpoint().display());
    let stored = mount.store_all();
    mount.fs.accesses().finish();
    mount.forget_session();
    stored?;
    match ended {
        // A session thread that is just receiving a request when the last user leaves gets ECONNABORTED; so
        // does one with a connection that the administrator aborts, but then the mount is still attached.
        Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) && mount.is_detached() => Ok(()),
        Err(error) => {
            // The kernel still shows a mount without a daemon.
            mount.detach();
            Err(Error::Usage(format!("the mount ended with an error: {error}")))
        }
        Ok(()) => Ok(()),
    }
}

/// Opens the arrays with bytes that a former daemon had not stored. Waits a moment for that, and continues in the background if the
/// store does not respond. Members of a catalogue that have left it since end then, when nothing of them can be lost.
fn resume_writing(mount: &Arc<ActiveMount>) -> Result<()> {
    let (mount, (first, tried)) = (Arc::downgrade(mount), mpsc::channel());
    spawn("zarrfs-resume", move || {
        let mut is_first = true;
        while let Some(mount) = mount.upgrade() {
            let is_done = mount.fs.recovery().resume_writing();
            // The caller no longer waits if it has taken long.
            let _ = first.send(());
            // Not before: the kernel may have to send dirty pages first.
            mount.drop_pages(&mount.fs.recovery().take_lost());
            // A member with bytes that cannot be stored yet stays until they are. It must not hold up the others.
            if (is_first || is_done) && mount.fs.members().exist() {
                mount.fs.members().reload(&|inodes| mount.drop_pages(inodes));
            }
            is_first = false;
            drop(mount);
            if is_done {
                return;
            }
            thread::sleep(RESUME_PAUSE);
        }
    })?;
    let _ = tried.recv_timeout(RESUME_PATIENCE);
    Ok(())
}

fn block_signals() -> Result<SignalSet> {
    SignalSet::block(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2])
        .map_err(|error| Error::Usage(format!("cannot block signals: {error}")))
}

fn watch_signals(mount: &Arc<ActiveMount>, signals: &SignalSet) {
    loop {
        match signals.wait() {
            Ok(libc::SIGHUP) => {
                log::info!("rereading metadata");
                let reloading = mount.clone();
                // On its own thread, because a member that leaves is stored first.
                let reload = move || reloading.fs.members().reload(&|inodes| reloading.drop_pages(inodes));
                if let Err(error) = spawn("zarrfs-reload", reload) {
                    log::error!("{error}");
                }
            }
            Ok(libc::SIGUSR1) => mount.fs.internal_files().log_metrics(),
            Ok(libc::SIGUSR2) => mount.leave(),
            Ok(_) => mount.shut_down(),
            Err(error) => {
                log::error!("cannot wait for signals: {error}");
                return;
            }
        }
    }
}
