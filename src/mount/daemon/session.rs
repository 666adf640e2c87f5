//! The life of a mount: fork, readiness, signals, exit.
//!
//! `attach.rs` mounts, `shutdown.rs` ends, `detach.rs` is the other command; `restart/keeper.rs` starts the daemon again if it
//! dies. Invariants: signals are blocked before any thread starts, so that they interrupt no system call; `run` in the background
//! returns only when the mount replies.

use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use fuser::{Config, INodeNo, Session, SessionACL};

use crate::error::{Error, Result};
use crate::mount::daemon::attach;
use crate::mount::daemon::exit_status::ExitStatus;
use crate::mount::daemon::given_device;
use crate::mount::daemon::pressure;
use crate::mount::daemon::privileges::{CAP_SYS_ADMIN, MountThread, has_capability};
use crate::mount::daemon::procfs::{mount_at, start_ticks, thread_count, thread_group};
use crate::mount::daemon::restart::handshake::{self, Handshake};
use crate::mount::daemon::restart::keeper::{self, Call, Daemon, FirstCall, NextCall, READY};
use crate::mount::daemon::restart::mark;
use crate::mount::daemon::restart::service;
use crate::mount::daemon::service_manager::sd_notify;
use crate::mount::daemon::service_manager::watchdog;
use crate::mount::daemon::shutdown::{ActiveMount, spawn};
use crate::mount::daemon::syslog;
use crate::mount::fs::error::Blocking;
use crate::mount::fs::inode::ROOT;
use crate::mount::fs::{DaemonInfo, FileSystem, KeeperInfo};
use crate::mount::fuse::adapter::Fuse;
use crate::mount::fuse::executor::{Executor, Limits};
use crate::mount::fuse::invalidate::SharedNotifier;
use crate::mount::fuse::passthrough::Passthrough;
use crate::mount::fuse::resent::ResentRequests;
use crate::mount::journal::Journal;
use crate::mount::journal::held::{DescriptorHolder, UNSTORED};
use crate::mount::journal::record::Record;
use crate::mount::journal::state::{Beginning, SessionState};
use crate::mount::options::{Options, session_threads};
use crate::store::{LockKeeper, Store};
use crate::sys::{self, Fork, SignalSet};

pub use crate::mount::daemon::detach::{unmount, unmount_stale};

/// The initial size of the descriptor table.
const DESCRIPTORS: i32 = 1024;
/// A daemon that continues a session serves its first request at the latest after this time.
const RESUME_PATIENCE: Duration = Duration::from_secs(5);
/// The time between two attempts to open the arrays with bytes that a former daemon had not stored.
const RESUME_PAUSE: Duration = Duration::from_secs(1);
/// The kernel's read-ahead for sequential readers, where we may set it: a few requests, so that one is
/// decoded or gathered while another one is copied.
const READ_AHEAD_KIB: u32 = 2048;

/// How a mount uses its store.
pub struct StoreUse {
    /// Users other than the daemon's enter the mount.
    pub for_others: bool,
    /// Keeps the locks of the store for another daemon, if somebody does.
    pub locks: Option<Arc<dyn LockKeeper>>,
}

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
    if keeper::has_called() {
        let code = run_daemon(options, open_store, keeper::call_from_environment()?);
        syslog::flush();
        std::process::exit(code);
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
    keeper::has_called() || service::has_session()
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
                None if keeper::is_wanted(&options) => keeper::keep(writer, options.writable),
                None => Ok(Daemon { call: Call::Mount(None), report: writer }),
            };
            let code = daemon.map_or(1, |daemon| run_daemon(options, open_store, daemon));
            syslog::flush();
            std::process::exit(code);
        }
    }
}

/// Reports to the waiting process, and leaves its terminal.
///
/// Not before the mount replies: on an automount point, only processes in the service manager's process group
/// get past it until then; every other process, including this one after it has left the group, has to wait.
fn report_ready(mut report: PipeWriter) {
    // Fails only for a process that already leads its session.
    let _ = sys::leave_session();
    // From here on standard output has no reader.
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let null = OwnedFd::from(null);
        for number in 0..=2 {
            let _ = sys::redirect(null.as_fd(), number);
        }
    }
    if let Err(error) = syslog::take_standard_error() {
        log::warn!("cannot log to the system log: {error}");
    }
    let _ = report.write_all(&[READY]);
}

/// In the calling process: waits for the daemon's report.
fn wait_until_ready(mut reader: PipeReader) -> Result<()> {
    let mut text = Vec::new();
    let read = reader.read_to_end(&mut text);
    match (read, text.as_slice()) {
        (Ok(_), [READY, ..]) => Ok(()),
        (Ok(_), []) => {
            Err(Error::Usage("the daemon exited before the mount was ready and gave no reason".to_owned()))
        }
        (Ok(_), reason) => Err(Error::Usage(String::from_utf8_lossy(reason).into_owned())),
        (Err(error), _) => Err(Error::Usage(format!("cannot read the report of the daemon: {error}"))),
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
/// store does not respond.
fn resume_writing(mount: &Arc<ActiveMount>) -> Result<()> {
    let (mount, (first, tried)) = (Arc::downgrade(mount), mpsc::channel());
    spawn("zarrfs-resume", move || {
        while let Some(mount) = mount.upgrade() {
            let is_done = mount.fs.recovery().resume_writing();
            // The caller no longer waits if it has taken long.
            let _ = first.send(());
            // Not before: the kernel may have to send dirty pages first.
            mount.drop_pages(&mount.fs.recovery().take_lost());
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

/// A mount without a running session.
struct ReadySession {
    session: Session<Fuse>,
    mount: ActiveMount,
    /// Another daemon began the session.
    is_continued: bool,
}

/// How the session of a daemon begins.
enum Origin {
    /// It mounts. If there is a keeper, it gets the device, and another daemon can continue the session.
    New(Option<(FirstCall, Arc<Journal>)>),
    /// Another program has mounted.
    Given(OwnedFd),
    /// It continues the session that another daemon has left.
    Former(Box<FormerSession>),
    /// It only stores the unstored bytes of a session that it cannot continue, because another version of this program began it.
    Unreadable(Box<UnreadableSession>),
}

/// A session with a journal that this version cannot read.
struct UnreadableSession {
    call: NextCall,
    reason: Error,
}

/// A session that another daemon has left.
struct FormerSession {
    call: NextCall,
    journal: Arc<Journal>,
    state: SessionState,
    handshake: Handshake,
}

impl Origin {
    /// What a daemon is asked to do. A session that is continued has the mount point of its beginning.
    fn of(call: Call, options: &mut Options) -> Result<Self> {
        let failed =
            |error: io::Error| Error::Usage(format!("cannot keep the state of the session: {error}"));
        match call {
            Call::Mount(None) => Ok(Origin::New(None)),
            Call::Serve(device) => Ok(Origin::Given(device)),
            Call::Mount(Some(first)) => {
                let file = fs::File::from(first.journal.try_clone().map_err(failed)?);
                Ok(Origin::New(Some((first, Arc::new(Journal::create(file).map_err(failed)?)))))
            }
            Call::Continue(call) if call.is_over => {
                let reason = "the session before has ended, and all that it has written is stored";
                let reason = Error::Usage(reason.to_owned());
                Ok(Origin::Unreadable(Box::new(UnreadableSession { call, reason })))
            }
            Call::Continue(call) => {
                let file = fs::File::from(call.journal.try_clone().map_err(failed)?);
                let (journal, mut state) = match Journal::open(file) {
                    Ok(opened) => opened,
                    Err(reason) => {
                        return Ok(Origin::Unreadable(Box::new(UnreadableSession { call, reason })));
                    }
                };
                let Some(Beginning { mountpoint, request, reply }) = state.beginning.take() else {
                    return Err(Error::Usage("the session that is to be continued has not begun".to_owned()));
                };
                options.mountpoint = PathBuf::from(OsString::from_vec(mountpoint));
                let handshake = Handshake { request, reply };
                let journal = Arc::new(journal);
                Ok(Origin::Former(Box::new(FormerSession { call, journal, state, handshake })))
            }
        }
    }
}

/// Opens the store and mounts, or continues the session of another daemon; the session is ready to run. Must be called before any
/// thread is started.
fn start(
    mut options: Options,
    open_store: impl FnOnce(StoreUse) -> Result<Arc<dyn Store>>,
    call: Call,
) -> Result<ReadySession> {
    make_room_for_descriptors();
    // If root gives the files another owner, that owner's own permissions in the store do not count. This must be determined while
    // this thread has the capability to admit other users.
    let for_others = attach::allows_others(&options)? && !options.ownership.gives_away();
    let mount_thread = Arc::new(MountThread::start()?);
    let locks = call.descriptors().map(|descriptors| descriptors.clone() as Arc<dyn LockKeeper>);
    let store = open_store(StoreUse { for_others, locks })?;
    let mut origin = Origin::of(call, &mut options)?;
    let options = Arc::new(options);
    let exit_status = ExitStatus::new();
    let keeper = Arc::new(OnceLock::new());
    let daemon = DaemonInfo {
        start_ticks: start_ticks(std::process::id()),
        exit_status_path: exit_status.path(),
        keeper: keeper.clone(),
    };
    let fs = Arc::new(FileSystem::for_daemon(options.clone(), store, daemon));
    match &mut origin {
        Origin::New(None) | Origin::Given(_) => {}
        Origin::New(Some((first, journal))) => fs.recovery().keep_journal(journal, &first.descriptors)?,
        Origin::Unreadable(session) => return Err(end_unreadable(&fs, session)),
        Origin::Former(former) => {
            let FormerSession { call, journal, state, .. } = former.as_mut();
            drop(call.descriptors.take(mark::NAME));
            fs.recovery()
                .restore(journal, state, &call.descriptors)
                .inspect_err(|_| call.keeper.give_up())?;
            call.keeper.process().map(|process| keeper.set(process));
        }
    }
    fs.attributes(ROOT, Blocking::Yes).map_err(|failure| failure.into_error("the root of the store"))?;
    let noting = fs.clone();
    let limits = Limits::new(options.threads, options.request_deadline);
    let storing = fs.clone();
    let progress = move || storing.stored_objects();
    let executor = Executor::new(limits, progress, move |request| noting.log().record_overdue(request));
    let executor = executor.map_err(cannot_begin)?;
    let notifier = Arc::new(OnceLock::new());
    let may_register = mount_thread.run(|| has_capability(CAP_SYS_ADMIN)).unwrap_or(false);
    let registering = mount_thread.clone();
    let passthrough = Passthrough::new(may_register, Box::new(move |job| registering.submit(job)));
    let fuse = Fuse::new(fs.clone(), Arc::new(executor), notifier.clone(), passthrough, thread_group);
    fs.commits().set_page_sender(page_sender(notifier.clone()));
    let mount = ActiveMount::new(fs, exit_status, mount_thread, notifier.clone());
    let is_continued = matches!(origin, Origin::Former(_));
    let session = match origin {
        Origin::New(first) => begin_session(fuse, &mount, first, &keeper)?,
        Origin::Given(device) => {
            Session::from_fd(fuse, device, SessionACL::All, session_config()).map_err(cannot_begin)?
        }
        Origin::Former(former) => resume_session(fuse, &mount, &former)?,
        Origin::Unreadable(session) => return Err(session.reason),
    };
    let _ = notifier.set(session.notifier());
    Ok(ReadySession { session, mount, is_continued })
}

/// Stores the unstored bytes of a session that this version cannot continue. Returns the reason. Once everything is stored, the
/// next daemon mounts anew.
fn end_unreadable(fs: &FileSystem, session: &UnreadableSession) -> Error {
    let UnreadableSession { call, reason } = session;
    match fs.recovery().store_left(&call.descriptors, fs.options().stop_deadline) {
        Ok(()) => {
            if call.is_over {
                // No daemon continues the session, so this says that nothing is left.
                DescriptorHolder::release(&*call.descriptors, UNSTORED);
            }
            call.report_unreadable();
            reason.clone()
        }
        // It stays in the session, and the next daemon tries again.
        Err(error) => error,
    }
}

fn cannot_begin(error: io::Error) -> Error {
    Error::Usage(format!("cannot start the session: {error}"))
}

fn session_config() -> Config {
    let mut config = Config::default();
    config.n_threads = Some(session_threads());
    config
}

/// Mounts, and begins a session. Gives the device to the keeper, if there is one and the kernel can continue a session.
fn begin_session(
    fuse: Fuse,
    mount: &ActiveMount,
    first: Option<(FirstCall, Arc<Journal>)>,
    keeper: &OnceLock<KeeperInfo>,
) -> Result<Session<Fuse>> {
    let device = mount.attach()?;
    let config = session_config();
    let begin = || -> io::Result<Session<Fuse>> {
        let Some((first, journal)) = first else {
            return Session::from_fd(fuse, device, SessionACL::All, config);
        };
        let request = handshake::receive_request(&device)?;
        let can_resend = handshake::can_resend(&request);
        let (session, Handshake { request, reply }) = handshake::begin(fuse, &device, request, config)?;
        if can_resend {
            let mountpoint = mount.mountpoint().as_os_str().as_bytes().to_vec();
            journal.append(&Record::Session { mountpoint, request, reply });
            mark_session(mount.mountpoint(), &*first.descriptors);
            first.hand_over(&device)?;
            first.keeper.process().map(|process| keeper.set(process));
            mount.set_keeper(first.keeper);
        } else {
            // Before Linux 6.9, the session ends with this daemon.
            mount.fs.engine().give_up_unstored();
        }
        Ok(session)
    };
    begin().map_err(|error| {
        mount.detach();
        cannot_begin(error)
    })
}

/// Holds the mark of a mount together with its session.
fn mark_session(mountpoint: &Path, holder: &dyn DescriptorHolder) {
    let Ok(Some(entry)) = mount_at(mountpoint) else { return };
    if let Err(error) = mark::set(&entry).and_then(|mark| holder.hold(mark::NAME, mark.as_fd())) {
        log::debug!("cannot mark the mount: {error}; umount --stale waits if the daemon dies");
    }
}

/// Continues the session of another daemon. A failure leaves the mount to the keeper's process.
fn resume_session(fuse: Fuse, mount: &ActiveMount, former: &FormerSession) -> Result<Session<Fuse>> {
    let FormerSession { call, journal, state, handshake } = former;
    if let Ok(Some(entry)) = mount_at(mount.mountpoint()) {
        mount.note_entry(&entry);
    }
    let resent = ResentRequests::new(journal.clone(), state, call.severity);
    let config = session_config();
    let session = handshake::resume(fuse.continuing(resent), &call.device, handshake, config);
    mount.set_keeper(call.keeper.clone());
    session.inspect_err(|_| call.keeper.give_up()).map_err(cannot_begin)
}

/// Makes the kernel send the dirty pages of inodes, and waits until it has.
fn page_sender(notifier: SharedNotifier) -> impl Fn(&[u64]) + Send + Sync {
    move |inodes| {
        let Some(notifier) = notifier.get() else { return };
        for inode in inodes {
            match notifier.inval_inode(INodeNo(*inode), 0, 0) {
                // The kernel no longer knows the inode, so it has no pages of it.
                Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                    log::warn!("cannot make the kernel send the pages of memory maps: {error}");
                }
                _ => {}
            }
        }
    }
}

/// Raises the limit of descriptors, for the objects that are kept open and those that all threads open at once.
fn make_room_for_descriptors() {
    let made = fs::File::open("/dev/null")
        .and_then(|null| sys::make_room_for_descriptors(null.as_fd(), DESCRIPTORS));
    if let Err(error) = made {
        log::debug!(
            "cannot enlarge the descriptor table to {DESCRIPTORS}: {error}; the first reads may be slower"
        );
    }
}

/// Returns when the first stat of the mount succeeds, and tunes what exists only from then on.
fn wait_for_first_answer(mount: &ActiveMount) {
    let options = mount.fs.options();
    if mount.is_given() {
        log::info!("{} is served on {}", options.source, options.mountpoint.display());
        return;
    }
    if mount.is_kept() {
        // A thread that waits for its own process would live on, and with it the process, until another daemon replies.
        if let Ok(Some(entry)) = mount_at(&options.mountpoint) {
            mount.note_entry(&entry);
            raise_read_ahead(&entry.device);
        }
    } else {
        match stat_apart(options.mountpoint.clone()) {
            Ok(metadata) => {
                let device = format!("{}:{}", libc::major(metadata.dev()), libc::minor(metadata.dev()));
                raise_read_ahead(&device);
                mount.note_device(device);
            }
            Err(error) => log::warn!("cannot stat the root of the mount: {error}"),
        }
    }
    log::info!("{} is mounted on {}", options.source, options.mountpoint.display());
}

/// Makes a thread without /dev/fuse stat the mount point.
///
/// A thread that waits for its own process cannot be killed. If it shared the descriptors, a daemon that is killed meanwhile would
/// keep /dev/fuse open. Then the kernel would wait for its reply without end, and so would each program that touches the mount.
fn stat_apart(mountpoint: PathBuf) -> io::Result<fs::Metadata> {
    let stat = move || {
        // Older kernels do not have this call, and wait.
        let _ = sys::leave_descriptors();
        fs::metadata(mountpoint)
    };
    let thread = thread::Builder::new().name("zarrfs-stat".to_owned()).spawn(stat)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that asks for it has ended")))
}

fn watch_signals(mount: &Arc<ActiveMount>, signals: &SignalSet) {
    loop {
        match signals.wait() {
            Ok(libc::SIGHUP) => {
                log::info!("rereading metadata");
                mount.fs.expire();
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

/// More read-ahead than FUSE may request by itself (+60% in sequential reads), where we may write to sysfs.
fn raise_read_ahead(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = fs::write(&path, READ_AHEAD_KIB.to_string()) {
        log::debug!("{path}: {error}; sequential reads may be slower");
    }
}
