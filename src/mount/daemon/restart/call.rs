//! What a daemon is asked to do: to mount, to serve a mount that another program has made, or to continue a session. A keeper passes this to
//! its copy in memory, and to the program on the disk by a variable of the environment.
//!
//! Uses `holder.rs` and `service.rs` for what they hold, and `mount/journal` for the descriptors of a session.

use std::env;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::mount::daemon::procfs::start_ticks;
use crate::mount::daemon::restart::holder::{self, KeeperHolder};
use crate::mount::daemon::restart::service::{Found, StoredSession};
use crate::mount::fs::KeeperInfo;
use crate::mount::journal::held::{DescriptorHolder, HeldDescriptors, SessionDescriptors};
use crate::sys;

/// The descriptor that a daemon lets the keeper hold if its version cannot continue the session, and everything is stored.
pub(super) const UNREADABLE: &str = "zarrfs.unreadable";
/// The first byte of a report if the mount replies. Any other report is the reason of the failure.
pub const READY: u8 = 0;
/// The variable that passes to a program the numbers of the descriptors of the device, the journal, the report, the holder's socket
/// and the list of held descriptors; then the severity of all deaths, and the process number of the keeper.
pub(super) const VARIABLE: &str = "ZARRFS_SESSION";
/// The exit code of a daemon that leaves its session to another one because it was asked to.
pub const LEFT: i32 = 75;

/// What starts another daemon when one dies.
#[derive(Clone)]
pub enum Keeper {
    /// A process of this program.
    Process(KeeperInfo),
    /// The service manager.
    ServiceManager(Arc<StoredSession>),
}

impl Keeper {
    /// Returns the process of this program.
    pub fn process(&self) -> Option<KeeperInfo> {
        match self {
            Keeper::Process(process) => Some(*process),
            Keeper::ServiceManager(_) => None,
        }
    }

    /// Leaves the session to the next daemon. Returns the exit code that says so.
    pub fn plan_end(&self) -> i32 {
        match self {
            Keeper::Process(_) => LEFT,
            Keeper::ServiceManager(stored) => {
                stored.plan_end();
                0
            }
        }
    }

    /// Reports that this process cannot continue the session. A keeper then starts other daemons, until it gives up, too.
    pub fn give_up(&self) {
        if let Keeper::ServiceManager(stored) = self {
            stored.give_up();
        }
    }

    /// Reports that the session has ended with everything stored. A keeper learns that from the exit code.
    pub fn forget(&self) {
        if let Keeper::ServiceManager(stored) = self {
            stored.forget();
        }
    }
}

/// What the first daemon of a session gets from its keeper.
pub struct FirstCall {
    /// An empty file for the journal.
    pub journal: OwnedFd,
    /// The socket over which the keeper gets the device; `None` for the service manager, which stores it.
    pub(super) device_to: Option<UnixStream>,
    /// The descriptors that are kept for the next daemon.
    pub descriptors: Arc<SessionDescriptors>,
    /// The keeper.
    pub keeper: Keeper,
}

impl FirstCall {
    /// A session that the service manager will hold.
    pub fn of_service_manager() -> io::Result<Self> {
        let journal = sys::memory_file(c"zarrfs-session")?;
        let stored = Arc::new(StoredSession::new()?);
        let keeper = Keeper::ServiceManager(stored.clone());
        let descriptors = SessionDescriptors::new(stored, HeldDescriptors::new());
        Ok(FirstCall { journal, device_to: None, descriptors, keeper })
    }

    /// Gives the device to the keeper.
    pub fn hand_over(&self, device: &OwnedFd) -> io::Result<()> {
        match (&self.device_to, &self.keeper) {
            (Some(socket), _) => sys::send_descriptor(socket.as_fd(), device.as_fd()),
            (None, Keeper::ServiceManager(stored)) => stored.store(device.as_fd(), self.journal.as_fd()),
            (None, Keeper::Process(_)) => Ok(()),
        }
    }
}

/// What the next daemons get.
pub struct NextCall {
    /// The device of the mount.
    pub device: OwnedFd,
    /// The file with the journal.
    pub journal: OwnedFd,
    /// The descriptors that it holds for earlier daemons, and continues to hold.
    pub descriptors: Arc<SessionDescriptors>,
    /// The severity of all deaths of daemons in this session.
    pub severity: u64,
    /// The session cannot be continued: its unstored bytes are only to be stored.
    pub is_over: bool,
    /// The keeper.
    pub keeper: Keeper,
}

impl NextCall {
    /// Reports that this version cannot continue the session, of which everything is stored. A keeper tries the program on the disk, and
    /// then ends the mount.
    pub fn report_unreadable(&self) {
        self.keeper.forget();
        if let Keeper::Process(_) = self.keeper
            && let Err(error) = DescriptorHolder::hold(&*self.descriptors, UNREADABLE, self.journal.as_fd())
        {
            log::warn!("cannot report to the keeper: {error}");
        }
    }
}

impl From<Found> for NextCall {
    fn from(found: Found) -> Self {
        let Found { device, journal, held, severity, is_over, stored } = found;
        let keeper = Keeper::ServiceManager(stored.clone());
        let descriptors = SessionDescriptors::new(stored, held);
        NextCall { device, journal, descriptors, severity, is_over, keeper }
    }
}

/// What a daemon is asked to do.
pub enum Call {
    /// Mount; without a keeper, if there is none.
    Mount(Option<FirstCall>),
    /// Serve a mount that another program has made.
    Serve(OwnedFd),
    /// Continue the session of a daemon that has ended.
    Continue(NextCall),
}

impl Call {
    /// Returns the descriptors of the session, if somebody keeps them for another daemon.
    pub fn descriptors(&self) -> Option<&Arc<SessionDescriptors>> {
        match self {
            Call::Mount(Some(first)) => Some(&first.descriptors),
            Call::Continue(next) => Some(&next.descriptors),
            Call::Mount(None) | Call::Serve(_) => None,
        }
    }
}

/// A process that is to become the daemon.
pub struct Daemon {
    /// What it is asked to do.
    pub call: Call,
    /// Where it reports whether the mount replies.
    pub report: PipeWriter,
}

/// Returns whether a keeper has started this program to continue a session.
pub fn has_called() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// Reads what the keeper asks of a program that it has started.
pub fn call_from_environment() -> Result<Daemon> {
    let words = env::var(VARIABLE).unwrap_or_default();
    let numbers: Vec<u64> = words.split(',').filter_map(|word| word.parse().ok()).collect();
    let &[device, journal, report, socket, held, severity, pid] = numbers.as_slice() else {
        return Err(Error::Usage(format!("{VARIABLE} is for programs that a keeper starts: unset it")));
    };
    let adopted = |number: u64| {
        let adopted = i32::try_from(number).map_err(io::Error::other).and_then(sys::adopt_descriptor);
        adopted.map_err(|error| Error::Usage(format!("{VARIABLE} names no open file: {error}")))
    };
    let pid = u32::try_from(pid).unwrap_or_default();
    let keeper = KeeperInfo { pid, start_ticks: start_ticks(pid) };
    let failed = |error: io::Error| Error::Usage(format!("{VARIABLE} names no list of open files: {error}"));
    let held = holder::adopt(adopted(held)?).map_err(failed)?;
    let holder = KeeperHolder::new(adopted(socket)?.into(), held.keys().cloned()).map_err(failed)?;
    let call = NextCall {
        device: adopted(device)?,
        journal: adopted(journal)?,
        descriptors: SessionDescriptors::new(Arc::new(holder), held),
        severity,
        is_over: false,
        keeper: Keeper::Process(keeper),
    };
    Ok(Daemon { call: Call::Continue(call), report: adopted(report)?.into() })
}
