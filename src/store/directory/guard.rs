//! Checks of what the users of an array may read through this program, and of how an object was reached. `links.rs` has the
//! rules.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::entries::OPEN_PATH;
use super::posix_stat;
use crate::store::Info;
use crate::store::readers::{Audience, CHANGE, Ownership, READ, Readers, SEARCH};
use crate::sys;

/// The time for which the check of a folder of chunks stays valid.
const FOLDER_TIME: Duration = Duration::from_secs(1);
/// The most folders behind links that an array keeps open.
const MAX_REACHED: usize = 4;
/// The most folders of chunks whose check is remembered.
const MAX_FOLDERS: usize = 4096;

const FOLDER_IS_CLOSED: &str = "a folder in the path is closed to some users who may read the array's document: change the mode of the folder or of the document (chmod)";
const OBJECT_IS_CLOSED: &str = "the object is closed to some users who may read the array's document: change the mode of the object or of the document (chmod)";
const NOT_TO_BE_CHANGED: &str =
    "a symbolic link leads to a folder that some users who may write the array may not change";

pub(super) fn refused(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// The nodes or objects to which the permissions of other users apply.
#[derive(Clone)]
pub(super) enum Guard {
    /// Documents. Each has its own owner and mode, which are shown.
    Nodes,
    /// The chunks of one array.
    Array(Arc<ArrayGuard>),
}

/// The guard of one array.
pub(super) struct ArrayGuard {
    /// The number of names in its path.
    pub depth: usize,
    path: String,
    pub audience: Arc<Audience>,
    /// Folders below the array's own that passed the check: the time, and the number of times that the array had been opened.
    folders: Mutex<HashMap<String, (Instant, u64)>>,
    /// Folders that were reached through links.
    reached: Mutex<Vec<LinkedFolder>>,
    /// A lock that is held while a new folder does not have its owner and mode yet.
    making: Mutex<()>,
    /// Device and inode of the array's folder that is locked for writing.
    home: (AtomicU64, AtomicU64),
}

/// A folder that was reached through a link. It is reused until the array is opened again, for at most [`FOLDER_TIME`].
struct LinkedFolder {
    key: String,
    folder: Arc<File>,
    at: Instant,
    opens: u64,
}

/// The links and folders on the path to an object or folder.
#[derive(Default)]
pub(super) struct PathTrace {
    /// The folders searched since the first link.
    pub folders: Vec<Ownership>,
    pub has_link: bool,
    /// Whether a link below the array's folder was followed.
    pub has_link_below: bool,
}

impl PathTrace {
    /// Whether a link was followed.
    pub fn has_link(&self) -> bool {
        self.has_link
    }

    /// Removes the permissions of users who could not reach the object.
    pub fn restrict(&self, info: Info) -> Info {
        info.with_mode(|posix| {
            self.folders.iter().fold(Readers::for_posix(posix), Readers::that_may_search).mode
        })
    }
}

impl ArrayGuard {
    pub fn new(path: &str, audience: Arc<Audience>) -> Self {
        let depth = path.split('/').filter(|name| !name.is_empty()).count();
        let home = (AtomicU64::new(0), AtomicU64::new(0));
        let (folders, reached, making) = (Mutex::default(), Mutex::default(), Mutex::default());
        ArrayGuard { depth, path: path.to_owned(), audience, folders, reached, making, home }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Locks out permission checks while a new folder gets its owner and mode.
    pub fn making(&self) -> MutexGuard<'_, ()> {
        self.making.lock()
    }

    /// Whether a folder's owner and mode pass `test`, also for a folder that is being created.
    pub fn allows(&self, folder: &File, test: impl Fn(&Ownership) -> bool) -> io::Result<bool> {
        if test(&ownership(folder)?) {
            return Ok(true);
        }
        let _made = self.making.lock();
        Ok(test(&ownership(folder)?))
    }

    pub fn check_folder(&self, folder: &File) -> io::Result<()> {
        let is_open = |folder: &Ownership| self.audience.all(|readers| readers.all_may(READ, SEARCH, folder));
        if self.allows(folder, is_open)? { Ok(()) } else { Err(refused(FOLDER_IS_CLOSED)) }
    }

    /// Fails unless the whole audience may read the object.
    pub fn check_object(&self, object: &Ownership) -> io::Result<()> {
        let is_open = self.audience.all(|readers| readers.all_may(READ, READ, object));
        if is_open { Ok(()) } else { Err(refused(OBJECT_IS_CLOSED)) }
    }

    /// Fails unless the whole audience may change the folder of an object.
    pub fn check_change(&self, folder: &File) -> io::Result<()> {
        const WRITE: u32 = 0o2;
        let may = |folder: &Ownership| self.audience.all(|readers| readers.all_may(WRITE, CHANGE, folder));
        if self.allows(folder, may)? { Ok(()) } else { Err(refused(NOT_TO_BE_CHANGED)) }
    }

    /// Checks the folders between the array's own and an object, on a path without links.
    pub fn check_folders_above(&self, root: BorrowedFd<'_>, key: &str) -> io::Result<()> {
        let start = if self.path.is_empty() { 0 } else { self.path.len() + 1 };
        if !key.starts_with(&self.path) {
            return Ok(());
        }
        let ends = key.char_indices().filter(|(at, letter)| *at > start && *letter == '/');
        for folder in ends.map(|(at, _)| key.get(..at).unwrap_or_default()) {
            let (now, opens) = (Instant::now(), self.audience.opens());
            let is_known = |(at, of): &(Instant, u64)| *of == opens && now.duration_since(*at) < FOLDER_TIME;
            if self.folders.lock().get(folder).is_some_and(is_known) {
                continue;
            }
            let path = CString::new(folder)?;
            let opened = sys::open_beneath_without_links(root, &path, OPEN_PATH)?;
            self.check_folder(&File::from(opened))?;
            let mut folders = self.folders.lock();
            if folders.len() >= MAX_FOLDERS {
                folders.clear();
            }
            folders.insert(folder.to_owned(), (now, opens));
        }
        Ok(())
    }

    /// Opens an object in a folder that was just reached through a link; `None` if the path has to be resolved again.
    pub fn open_in_reached(&self, key: &str, flags: i32) -> Option<io::Result<File>> {
        if flags & (libc::O_DIRECTORY | libc::O_NOFOLLOW) != 0 {
            return None;
        }
        let (folder, name) = key.rsplit_once('/')?;
        let opens = self.audience.opens();
        let is_current = |known: &LinkedFolder| {
            known.opens == opens && known.at.elapsed() < FOLDER_TIME && known.key == folder
        };
        let folder = self.reached.lock().iter().find(|known| is_current(known))?.folder.clone();
        let name = CString::new(name).ok()?;
        match sys::open_at(folder.as_fd(), &name, flags | libc::O_NOFOLLOW).map(File::from) {
            Ok(link) if flags & libc::O_PATH != 0 && link.metadata().is_ok_and(|it| it.is_symlink()) => None,
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => None,
            opened => Some(opened),
        }
    }

    pub fn remember_linked_folder(&self, key: &str, folder: File, opens: u64) {
        let Some((key, _)) = key.rsplit_once('/') else { return };
        let mut reached = self.reached.lock();
        reached.retain(|known| known.opens == opens && known.at.elapsed() < FOLDER_TIME && known.key != key);
        if reached.len() >= MAX_REACHED {
            reached.remove(0);
        }
        let (key, folder, at) = (key.to_owned(), Arc::new(folder), Instant::now());
        reached.push(LinkedFolder { key, folder, at, opens });
    }

    /// Records the array's folder, which is locked for writing.
    pub fn record_home(&self, key: &str, device: u64, inode: u64) {
        if key == self.path {
            self.home.0.store(device, Ordering::Release);
            self.home.1.store(inode, Ordering::Release);
        }
    }

    /// Whether this is the folder that was locked.
    pub fn is_home(&self, metadata: &std::fs::Metadata) -> bool {
        let home = (self.home.0.load(Ordering::Acquire), self.home.1.load(Ordering::Acquire));
        home == (metadata.dev(), metadata.ino())
    }
}

pub(super) fn ownership(file: &File) -> io::Result<Ownership> {
    Ok(Readers::for_posix(&posix_stat::posix(file)?))
}
