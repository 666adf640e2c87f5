//! The start of a session: opens the store, and mounts, serves a mount that another program has made, or continues the session of a daemon
//! that has ended.
//!
//! `restart/call.rs` says which of these. Uses `attach.rs` to mount, and `restart/handshake.rs` to continue. Invariant: the store is opened
//! after all forks, and no thread runs before.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fuser::{Config, INodeNo, Session, SessionACL};

use crate::error::{Error, Result};
use crate::mount::access_log::writer::AccessLog;
use crate::mount::daemon::attach;
use crate::mount::daemon::exit_status::ExitStatus;
use crate::mount::daemon::privileges::{CAP_SYS_ADMIN, MountThread, has_capability};
use crate::mount::daemon::procfs::{mount_at, start_ticks, thread_group};
use crate::mount::daemon::restart::call::{Call, FirstCall, NextCall};
use crate::mount::daemon::restart::handshake::{self, Handshake};
use crate::mount::daemon::restart::mark;
use crate::mount::daemon::shutdown::ActiveMount;
use crate::mount::fs::error::Blocking;
use crate::mount::fs::inode::ROOT;
use crate::mount::fs::{DaemonInfo, FileSystem, KeeperInfo};
use crate::mount::fuse::adapter::Fuse;
use crate::mount::fuse::executor::{Executor, Limits};
use crate::mount::fuse::invalidate::{SharedNotifier, notify};
use crate::mount::fuse::passthrough::Passthrough;
use crate::mount::fuse::resent::ResentRequests;
use crate::mount::journal::Journal;
use crate::mount::journal::held::{DescriptorHolder, UNSTORED};
use crate::mount::journal::record::Record;
use crate::mount::journal::state::{Beginning, SessionState};
use crate::mount::options::{Options, session_threads};
use crate::store::{LockKeeper, Store};
use crate::sys;

/// The initial size of the descriptor table.
const DESCRIPTORS: i32 = 1024;

/// How a mount uses its store.
pub struct StoreUse {
    /// Users other than the daemon's enter the mount.
    pub for_others: bool,
    /// Keeps the locks of the store for another daemon, if somebody does.
    pub locks: Option<Arc<dyn LockKeeper>>,
    /// The canonical mount point.
    pub mountpoint: PathBuf,
    /// The definitions of the members that the daemon before had mounted, if this one continues its session and the store is a catalogue.
    pub former_catalogue: Option<String>,
}

/// A mount without a running session.
pub(super) struct ReadySession {
    pub session: Session<Fuse>,
    pub mount: ActiveMount,
    /// Another daemon began the session.
    pub is_continued: bool,
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
    /// What a daemon is asked to do. A session that is continued keeps its mount point.
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
                if state.catalogue.is_some() && !call.descriptors.has(UNSTORED) {
                    // It was mounted read-only: no member could be written to when it began.
                    (options.writable, options.create, options.delete) = (false, false, false);
                }
                let handshake = Handshake { request, reply };
                let journal = Arc::new(journal);
                Ok(Origin::Former(Box::new(FormerSession { call, journal, state, handshake })))
            }
        }
    }
}

/// Opens the store and mounts, or continues the session of another daemon; the session is ready to run. Must be called before any
/// thread is started.
pub(super) fn start(
    mut options: Options,
    open_store: impl FnOnce(StoreUse) -> Result<Arc<dyn Store>>,
    call: Call,
) -> Result<ReadySession> {
    make_room_for_descriptors();
    // If root gives the files another owner, that owner's own permissions in the store do not count. This must be determined while
    // this thread has the capability to admit other users.
    let for_others = attach::allows_others(&options)? && !options.ownership.gives_away();
    let mount_thread = Arc::new(MountThread::start()?);
    // Before the store: it may be named by a descriptor that is closed then.
    let access_log = options.access_log.as_deref().map(AccessLog::open).transpose();
    // A session goes on without it: programs wait for their files.
    let is_needed = !matches!(call, Call::Continue(_));
    let (access_log, refusal) = match access_log {
        Err(error) if !is_needed => (None, Some(error)),
        opened => (opened?, None),
    };
    let locks = call.descriptors().map(|descriptors| descriptors.clone() as Arc<dyn LockKeeper>);
    let mut origin = Origin::of(call, &mut options)?;
    let former_catalogue = match &mut origin {
        Origin::Former(former) => former.state.catalogue.clone(),
        Origin::New(_) | Origin::Given(_) | Origin::Unreadable(_) => None,
    };
    let mountpoint = options.mountpoint.clone();
    let store = open_store(StoreUse { for_others, locks, mountpoint, former_catalogue })?;
    let options = Arc::new(options);
    let exit_status = ExitStatus::new();
    let keeper = Arc::new(OnceLock::new());
    let daemon = DaemonInfo {
        start_ticks: start_ticks(std::process::id()),
        exit_status_path: exit_status.path(),
        keeper: keeper.clone(),
        is_continued: matches!(origin, Origin::Former(_)),
    };
    let fs = Arc::new(FileSystem::for_daemon(options.clone(), store, daemon));
    if let Some(error) = refusal {
        log::error!("{error}; the mount continues without it");
    }
    if let Some(log) = access_log {
        fs.accesses().start(log);
    }
    match &mut origin {
        Origin::New(None) | Origin::Given(_) => {}
        Origin::New(Some((first, journal))) => {
            fs.recovery().keep_journal(journal, &first.descriptors)?;
            fs.members().keep_journal(journal);
        }
        Origin::Unreadable(session) => return Err(end_unreadable(&fs, session)),
        Origin::Former(former) => {
            let FormerSession { call, journal, state, .. } = former.as_mut();
            drop(call.descriptors.take(mark::NAME));
            fs.recovery()
                .restore(journal, state, &call.descriptors)
                .inspect_err(|_| call.keeper.give_up())?;
            fs.members().keep_journal(journal);
            call.keeper.process().map(|process| keeper.set(process));
        }
    }
    fs.attributes(ROOT, Blocking::Yes).map_err(|failure| failure.into_error("the root of the store"))?;
    let executor = executor(&fs, &options)?;
    let notifier = Arc::new(OnceLock::new());
    let may_register = mount_thread.run(|| has_capability(CAP_SYS_ADMIN)).unwrap_or(false);
    let registering = mount_thread.clone();
    let passthrough = Passthrough::new(may_register, Box::new(move |job| registering.submit(job)));
    let passthrough = Arc::new(passthrough);
    if let Origin::Former(former) = &origin {
        passthrough.restore(&former.state);
    }
    let fuse = Fuse::new(fs.clone(), Arc::new(executor), notifier.clone(), passthrough.clone(), thread_group);
    fs.commits().set_page_sender(page_sender(notifier.clone()));
    let mount = ActiveMount::new(fs.clone(), exit_status, mount_thread, notifier.clone());
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
    passthrough.begin(&fs, session.as_fd().try_clone_to_owned().map_err(cannot_begin)?);
    Ok(ReadySession { session, mount, is_continued })
}

/// Returns what serves requests. Each member of a catalogue has threads of its own, so one that hangs does not hold up the others.
fn executor(fs: &Arc<FileSystem>, options: &Options) -> Result<Executor> {
    let is_catalogue = fs.members().exist();
    let limits = Limits::new(options.threads, options.request_deadline);
    let limits = if is_catalogue { limits.for_members() } else { limits };
    let (storing, noting) = (fs.clone(), fs.clone());
    let progress = move || storing.stored_objects();
    let executor = Executor::new(limits, progress, move |request| noting.log().record_overdue(request));
    let executor = executor.map_err(cannot_begin)?;
    if !is_catalogue {
        return Ok(executor);
    }
    let described = fs.clone();
    Ok(executor.with_members(move |request| described.log().in_member(request)))
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

pub(super) fn cannot_begin(error: io::Error) -> Error {
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
            match notify(notifier, INodeNo(*inode), 0, 0) {
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
