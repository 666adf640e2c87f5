//! A member of a catalogue: how it is opened, and whether it is. Uses the traits of `store`.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::state::{MemberRights, MemberState};
use crate::error::{Error, Result};
use crate::store::overlay::OverlayStore;
use crate::store::{LockKeeper, Readers, Store, VersionDigest, join};

/// The first pause before a member that cannot be opened is tried again, and the longest. Each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A request waits this long for a member that is being opened.
const OPENING_PATIENCE: Duration = Duration::from_secs(120);

/// A store that was opened for a member.
pub struct OpenedMember {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Whether its root is an array, which is then shown as a file in the member's folder.
    pub is_array: bool,
}

/// Opens the store of a member.
pub type OpenMember = Arc<dyn Fn() -> Result<OpenedMember> + Send + Sync>;

/// A member as a catalogue defines it.
#[derive(Clone)]
pub struct MemberDefinition {
    /// The name of its folder.
    pub name: String,
    /// The location of its store.
    pub location: String,
    /// Where its store is, if that is on this machine. Entering the member needs permission to search all folders above it.
    pub path: Option<PathBuf>,
    /// Whether its store is behind a network, as far as the location says.
    pub is_remote: bool,
    /// What programs may do.
    pub rights: MemberRights,
    /// Everything that makes another definition another member.
    pub signature: String,
    /// The definition as a part of a file.
    pub text: String,
    /// The folder that takes what is written, if it is an overlay.
    pub overlay: Option<PathBuf>,
    /// Opens the store.
    pub open: OpenMember,
}

impl MemberDefinition {
    /// Returns a digest of the signature.
    pub fn mark(&self) -> String {
        VersionDigest::fnv1a(&self.signature).short().to_string()
    }
}

enum Progress {
    /// A thread opens it.
    Opening,
    Open,
    Failed {
        error: Error,
        pause: Duration,
        again_at: Instant,
        /// Whether a thread tries again.
        is_tried: bool,
    },
}

/// A store, and where it is in the catalogue.
pub(super) struct Opened {
    pub store: Arc<dyn Store>,
    /// The path of the store's root: the name of the member, and once more if the root is an array.
    pub root: String,
}

/// A member.
pub(super) struct Member {
    definition: MemberDefinition,
    opened: OnceLock<Opened>,
    /// The permissions of the folders above a store on this machine, at the last attempt to open it.
    above: Mutex<Vec<Readers>>,
    progress: Mutex<Progress>,
    changed: Condvar,
    has_left: AtomicBool,
    locks: Mutex<Option<Arc<dyn LockKeeper>>>,
}

impl Member {
    pub fn new(definition: MemberDefinition, locks: Option<Arc<dyn LockKeeper>>) -> Self {
        Member {
            definition,
            opened: OnceLock::new(),
            above: Mutex::default(),
            progress: Mutex::new(Progress::Opening),
            changed: Condvar::new(),
            has_left: AtomicBool::new(false),
            locks: Mutex::new(locks),
        }
    }

    pub fn definition(&self) -> &MemberDefinition {
        &self.definition
    }

    /// Returns whether requests to the member cross a network.
    pub fn is_remote(&self) -> bool {
        self.opened.get().map_or(self.definition.is_remote, |opened| opened.store.is_remote())
    }

    pub fn state(&self) -> MemberState {
        match &*self.progress.lock() {
            Progress::Opening => MemberState::Opening,
            Progress::Open => MemberState::Open,
            Progress::Failed { error, .. } => MemberState::Failed(error.clone()),
        }
    }

    /// Ends the use of the member: every request from now on is an error. Its overlay can be used by others, although files of it may be open.
    pub fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
        self.changed.notify_all();
        self.end_writing();
    }

    fn end_writing(&self) {
        if let Some(overlay) = self.opened.get().and_then(|opened| OverlayStore::of(opened.store.as_ref())) {
            overlay.folder().end_writing();
        }
    }

    pub fn keep_locks(&self, keeper: &Arc<dyn LockKeeper>) {
        *self.locks.lock() = Some(keeper.clone());
        if let Some(opened) = self.opened.get() {
            opened.store.keep_locks(keeper);
        }
    }

    /// Returns the mode of the member's folder, or of the file in its place. It admits only users with permission to search all folders above the
    /// store.
    pub fn narrowed_mode(&self, readers: Readers) -> u32 {
        self.above.lock().iter().fold(readers, |readers, folder| readers.that_may_search(folder)).mode
    }

    /// Returns the store, if it is open.
    pub fn opened_now(&self) -> Option<&Opened> {
        self.opened.get().filter(|_| !self.has_left.load(Ordering::Acquire))
    }

    /// Returns the store. Waits while the member is being opened for the first time.
    pub fn opened(&self) -> Result<&Opened> {
        let name = &self.definition.name;
        let deadline = Instant::now() + OPENING_PATIENCE;
        loop {
            if self.has_left.load(Ordering::Acquire) {
                return Err(has_left(name));
            }
            if let Some(opened) = self.opened.get() {
                return Ok(opened);
            }
            let mut progress = self.progress.lock();
            match &*progress {
                Progress::Opening => {
                    if self.changed.wait_until(&mut progress, deadline).timed_out() {
                        return Err(Error::TimedOut { key: name.clone() });
                    }
                }
                Progress::Open => {}
                Progress::Failed { error, .. } => return Err(error.clone()),
            }
        }
    }

    /// Waits until the first attempt to open the member has ended, or until a time.
    pub fn wait_until(&self, deadline: Instant) {
        let mut progress = self.progress.lock();
        while matches!(*progress, Progress::Opening) {
            if self.changed.wait_until(&mut progress, deadline).timed_out() {
                return;
            }
        }
    }

    /// Starts to open the member on a thread of its own: a store that does not respond holds up nobody else.
    pub fn begin_opening(self: &Arc<Self>) {
        let member = self.clone();
        let opening = std::thread::Builder::new().name("zarrfs-open".to_owned()).spawn(move || member.open());
        if let Err(error) = opening {
            let error = Error::store(&self.definition.name, "start a thread to open it", error);
            self.record_failure(error);
        }
    }

    /// Tries again to open the member, if it could not be opened and the pause is over.
    pub fn open_again_if_due(self: &Arc<Self>) {
        if let Progress::Failed { again_at, is_tried, .. } = &mut *self.progress.lock() {
            if *is_tried || *again_at > Instant::now() {
                return;
            }
            *is_tried = true;
        } else {
            return;
        }
        self.begin_opening();
    }

    fn open(&self) {
        let name = &self.definition.name;
        if self.has_left.load(Ordering::Acquire) {
            return;
        }
        *self.above.lock() = self.definition.path.as_deref().map(folders_above).unwrap_or_default();
        match (self.definition.open)() {
            Ok(OpenedMember { store, is_array }) => {
                if let Some(keeper) = &*self.locks.lock() {
                    store.keep_locks(keeper);
                }
                let root = if is_array { join(name, name) } else { name.clone() };
                let _ = self.opened.set(Opened { store, root });
                if self.has_left.load(Ordering::Acquire) {
                    self.end_writing();
                }
                let before = std::mem::replace(&mut *self.progress.lock(), Progress::Open);
                if matches!(before, Progress::Failed { .. }) {
                    log::info!("{name}: is open now");
                }
                self.changed.notify_all();
            }
            Err(error) => self.record_failure(not_opened(name, &error)),
        }
    }

    fn record_failure(&self, error: Error) {
        let mut progress = self.progress.lock();
        let pause = match &*progress {
            Progress::Failed { pause, .. } => (*pause * 2).min(LONGEST_PAUSE),
            _ => {
                log::warn!("{error}; it is tried again");
                FIRST_PAUSE
            }
        };
        *progress = Progress::Failed { error, pause, again_at: Instant::now() + pause, is_tried: false };
        self.changed.notify_all();
    }
}

/// Returns who may search the folders above a path. A folder that cannot be looked at counts as searchable by root only.
fn folders_above(path: &std::path::Path) -> Vec<Readers> {
    use std::os::unix::fs::MetadataExt;
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let readers = |folder: &std::path::Path| match std::fs::metadata(folder) {
        Ok(metadata) => Readers { uid: metadata.uid(), gid: metadata.gid(), mode: metadata.mode() & 0o7777 },
        Err(_) => Readers { uid: 0, gid: 0, mode: 0o700 },
    };
    path.ancestors().skip(1).map(readers).collect()
}

/// Returns the error for a key of a member that has left.
fn has_left(key: &str) -> Error {
    Error::Stale { key: key.to_owned() }
}

/// Returns the error of a member that cannot be opened, for a key in it.
fn not_opened(name: &str, reason: &Error) -> Error {
    let kind = match reason.errno() {
        libc::EACCES => io::ErrorKind::PermissionDenied,
        libc::ENETUNREACH => io::ErrorKind::NetworkUnreachable,
        _ => io::ErrorKind::Other,
    };
    Error::store(name, "open", io::Error::new(kind, reason.to_string()))
}
