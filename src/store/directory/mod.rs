//! A folder on disk as a store: a key is a path below the folder. Spec: v3 "File system store". Uses `sys`.
//!
//! Every path is resolved from one descriptor of the root, so that renaming the root changes nothing, and no key or link leads
//! out of it. Links that stay inside are followed. A link that leads out is an error, and so is an absolute one even if its
//! target is inside (RESOLVE_BENEATH of openat2(2) cannot distinguish them). A store that was opened with `follow_symlinks`
//! follows all links.
//!
//! These are **missing** (`None`): a path that does not exist, a path below a file, a name longer than any filesystem accepts,
//! and a folder at the key of an object. A link to a missing target is an error, because its author expected the target to
//! exist. Everything else is an error, too: no permission, an I/O error, a FIFO, a device. Objects are opened with O_NONBLOCK
//! (a FIFO would hang) and read with pread, never mapped into memory (a truncation would kill the process).
//!
//! The temporary files and folders of this program are named `.zarrfs-<anything>.tmp` and are never listed.

mod entries;
mod exchange;
mod folders;
mod guard;
mod links;
mod output;
pub(super) mod posix_stat;
mod writer;

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use super::key::left_out::LeftOut;
use super::{
    Audience, Info, ListEntry, LockKeeper, Object, ObjectContent, ObjectVersion, Readers, StatFs, Store,
    Writer, check_key, read_whole, sorted_names,
};
use crate::error::{Error, Result};
use crate::sys::{self, NameKind};
use entries::{NAME_MAX_BYTES, OPEN_PATH, OPEN_READ};
use guard::{ArrayGuard, Guard, PathTrace};

/// How paths are confined to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confinement {
    /// The kernel confines them, with openat2(2).
    Kernel,
    /// The kernel has no openat2 (before 5.6, or a sandbox): paths are resolved name by name, and no link is followed.
    Walk,
    /// Paths are not confined: links are followed anywhere.
    Plain,
}

/// A folder on disk.
#[derive(Clone)]
pub struct DirectoryStore {
    root: Arc<OwnedFd>,
    path: String,
    /// The path at which the folder was opened.
    place: PathBuf,
    /// Whether the log says already that another folder is there now.
    is_displaced: Arc<AtomicBool>,
    left_out: Arc<LeftOut>,
    /// Keeps the locks of writers for another daemon, if somebody does.
    lock_keeper: Arc<OnceLock<Arc<dyn LockKeeper>>>,
    confinement: Confinement,
    /// Set if other users get what this program reads.
    guard: Option<Guard>,
}

impl DirectoryStore {
    /// Opens the store in the folder at `path`. With `follow_symlinks`, links may lead out of it.
    pub fn open(path: &Path, follow_symlinks: bool) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = OwnedFd::from(File::options().read(true).custom_flags(flags).open(path)?);
        let confinement = if follow_symlinks {
            Confinement::Plain
        } else {
            match sys::open_beneath(root.as_fd(), c".", OPEN_PATH) {
                Ok(_) => Confinement::Kernel,
                // The system call exists, but the user may not search the folder.
                Err(error) if error.raw_os_error() == Some(libc::EACCES) => return Err(error),
                Err(error) => {
                    log::warn!(
                        "{}: not following links, since openat2(2) is missing: {error}",
                        path.display()
                    );
                    Confinement::Walk
                }
            }
        };
        let place = std::path::absolute(path)?;
        let path = path.display().to_string();
        let (root, is_displaced) = (Arc::new(root), Arc::default());
        let (left_out, lock_keeper) = (Arc::default(), Arc::default());
        let guard = None;
        Ok(DirectoryStore { root, path, place, is_displaced, left_out, lock_keeper, confinement, guard })
    }

    /// Guards the store, for a program that serves users other than its own.
    pub(super) fn guarded(mut self) -> Self {
        self.guard = Some(Guard::Nodes);
        self
    }

    /// Resolves paths as on a kernel without openat2.
    #[cfg(test)]
    pub(super) fn without_openat2(mut self) -> Self {
        self.confinement = Confinement::Walk;
        self
    }

    /// Opens the path of `key`; `None` if it is missing.
    fn resolve(&self, key: &str, operation: &'static str, flags: i32) -> Result<Option<(File, PathTrace)>> {
        check_key(key, operation)?;
        match self.resolve_raw(key, flags) {
            Ok(found) => Ok(Some(found)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => self.missing_unless_link(key, operation).map(|()| None),
                Some(libc::ENOTDIR) => Ok(None),
                Some(libc::ENAMETOOLONG) if key.split('/').any(|name| name.len() > NAME_MAX_BYTES) => {
                    Ok(None)
                }
                Some(libc::EXDEV) => Err(Error::store(key, operation, io::Error::other(LEADS_OUT))),
                _ => Err(Error::store(key, operation, error)),
            },
        }
    }

    fn resolve_raw(&self, key: &str, flags: i32) -> io::Result<(File, PathTrace)> {
        if let Some(guard) = &self.guard {
            return self.resolve_guarded(key, flags, guard);
        }
        let path = CString::new(if key.is_empty() { "." } else { key })?;
        let root = self.root.as_fd();
        let opened = match self.confinement {
            Confinement::Kernel => sys::open_beneath(root, &path, flags),
            Confinement::Plain => sys::open_at(root, &path, flags),
            Confinement::Walk => walk(root, key, flags),
        };
        Ok((File::from(opened?), PathTrace::default()))
    }

    /// Fails if a path does not exist because it leads through a link whose target is missing: fill values must not replace the
    /// target.
    fn missing_unless_link(&self, key: &str, operation: &'static str) -> Result<()> {
        let mut path = key;
        loop {
            match self.resolve_raw(path, OPEN_PATH | libc::O_NOFOLLOW) {
                Ok((file, _))
                    if file.metadata().is_ok_and(|metadata| metadata.is_symlink())
                        && self.resolve_raw(path, OPEN_PATH).is_err() =>
                {
                    let reason = if path == key {
                        "it is a link to a path that does not exist".to_owned()
                    } else {
                        format!("{path} is a link to a path that does not exist")
                    };
                    return Err(Error::store(key, operation, io::Error::other(reason)));
                }
                Ok(_) => return Ok(()),
                Err(_) => match path.rsplit_once('/') {
                    Some((folder, _)) => path = folder,
                    None => return Ok(()),
                },
            }
        }
    }

    fn open_object(
        &self,
        key: &str,
        operation: &'static str,
    ) -> Result<Option<(DirectoryObject, PathTrace)>> {
        let Some((file, trace)) = self.resolve(key, operation, OPEN_READ)? else { return Ok(None) };
        let failed = |error| Error::store(key, operation, error);
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Ok(None);
        }
        if !metadata.is_file() {
            return Err(Error::store(key, operation, io::Error::other("it is not a regular file")));
        }
        if let Some(Guard::Array(array)) = &self.guard {
            array.check_object(&posix_stat::ownership(&metadata)).map_err(failed)?;
        }
        Ok(Some((DirectoryObject { file, metadata, key: key.to_owned() }, trace)))
    }

    /// Opens a folder; `None` if it is missing or not a folder.
    fn open_folder(&self, key: &str, operation: &'static str) -> Result<Option<File>> {
        Ok(self.resolve(key, operation, OPEN_READ | libc::O_DIRECTORY)?.map(|(folder, _)| folder))
    }

    /// Opens a folder; `None` also if a link leads there and other users see what is in it.
    fn open_unlinked(&self, key: &str) -> Result<Option<File>> {
        let found = self.resolve(key, "list", OPEN_READ | libc::O_DIRECTORY)?;
        let is_nodes = matches!(self.guard, Some(Guard::Nodes));
        Ok(found.filter(|(_, trace)| !(is_nodes && trace.has_link())).map(|(folder, _)| folder))
    }

    /// Opens a folder for changing names in it.
    fn open_for_change(&self, key: &str, operation: &'static str) -> Result<Option<File>> {
        let found = self.resolve(key, operation, OPEN_READ | libc::O_DIRECTORY)?;
        let Some((folder, trace)) = found else { return Ok(None) };
        self.check_change(&folder, &trace).map_err(|error| Error::store(key, operation, error))?;
        Ok(Some(folder))
    }

    /// Opens a folder or an object for locking it.
    fn open_for_lock(&self, key: &str) -> Result<Option<File>> {
        Ok(self.resolve(key, "lock", OPEN_READ)?.map(|(file, _)| file))
    }

    /// Opens an object for setting its times, which needs no permission to write.
    fn open_for_touch(&self, key: &str) -> Result<Option<File>> {
        Ok(self.resolve(key, "open", OPEN_READ)?.map(|(file, _)| file))
    }

    /// Whether a name is a folder, if readdir(3) did not say. A link that cannot be followed counts as a folder, so that a
    /// reader of the folder gets the error.
    fn is_folder(&self, key: &str) -> bool {
        match self.resolve_raw(key, OPEN_PATH) {
            Ok((file, _)) => file.metadata().is_ok_and(|metadata| metadata.is_dir()),
            Err(_) => true,
        }
    }
}

const LEADS_OUT: &str =
    "a link in the path is absolute or leads out of the store (--follow-symlinks allows it)";

/// Opens a path name by name. A link anywhere in it is an error.
fn walk(root: BorrowedFd<'_>, key: &str, flags: i32) -> io::Result<OwnedFd> {
    let mut folder = sys::open_at(root, c".", OPEN_PATH | libc::O_DIRECTORY)?;
    let mut names = key.split('/').peekable();
    while let Some(name) = names.next() {
        let path = CString::new(if name.is_empty() { "." } else { name })?;
        let is_last = names.peek().is_none();
        if is_last && flags & libc::O_NOFOLLOW != 0 {
            return sys::open_at(folder.as_fd(), &path, flags);
        }
        let found = File::from(sys::open_at(folder.as_fd(), &path, OPEN_PATH | libc::O_NOFOLLOW)?);
        if found.metadata()?.is_symlink() {
            return Err(io::Error::other(
                "links cannot be followed safely here, since openat2(2) is missing",
            ));
        }
        if is_last {
            return sys::open_at(folder.as_fd(), &path, flags | libc::O_NOFOLLOW);
        }
        folder = OwnedFd::from(found);
    }
    Ok(folder)
}

/// Whether a name is the temporary name of a file that this program writes.
pub fn is_temporary_name(name: &str) -> bool {
    name.starts_with(".zarrfs-") && name.ends_with(".tmp")
}

impl Store for DirectoryStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        Ok(self.open_object(key, "open")?.map(|(object, _)| Box::new(object) as Box<dyn Object>))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        let Some((object, trace)) = self.open_object(key, "open")? else { return Ok(None) };
        let info = trace.restrict(posix_stat::info_for(&object.file, &object.metadata));
        Ok(Some(ObjectContent { bytes: read_whole(&object, key, limit_bytes)?, info }))
    }

    fn get(&self, key: &str, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        match self.open_object(key, "read")? {
            Some((object, _)) => read_whole(&object, key, limit_bytes).map(Some),
            None => Ok(None),
        }
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        let Some((file, trace)) = self.resolve(key, "look at", OPEN_PATH)? else { return Ok(None) };
        let failed = |error| Error::store(key, "look at", error);
        let metadata = file.metadata().map_err(failed)?;
        let info = posix_stat::info_for(&file, &metadata);
        if let (Some(Guard::Array(array)), Some(posix)) = (&self.guard, &info.posix)
            && !metadata.is_dir()
        {
            array.check_object(&Readers::for_posix(posix)).map_err(failed)?;
        }
        Ok(Some(trace.restrict(info)))
    }

    fn created_at(&self, key: &str) -> Result<Option<SystemTime>> {
        let Some((file, _)) = self.resolve(key, "look at", OPEN_PATH)? else { return Ok(None) };
        // Not every filesystem keeps this time.
        Ok(file.metadata().and_then(|found| found.created()).ok())
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        sorted_names(self, folder)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        let Some((opened, _)) = self.resolve(folder, "list", OPEN_READ | libc::O_DIRECTORY)? else {
            return Ok(());
        };
        self.left_out.begin(folder);
        sys::read_folder(opened.into(), |name, kind| {
            let name = match name.into_string() {
                Ok(name) => name,
                Err(name) => {
                    const WHAT: &str = "that are not UTF-8";
                    let shown = name.as_encoded_bytes().escape_ascii().to_string();
                    self.left_out.warn(&self.path, WHAT, &crate::store::join(folder, &shown));
                    if !matches!(kind, NameKind::Other) {
                        self.left_out.record_folder(folder, WHAT, &shown);
                    }
                    return ControlFlow::Continue(());
                }
            };
            if is_temporary_name(&name) {
                return ControlFlow::Continue(());
            }
            let is_folder = match kind {
                NameKind::Folder => true,
                NameKind::Other => false,
                NameKind::Unknown => self.is_folder(&crate::store::join(folder, &name)),
            };
            each(ListEntry { name, is_folder })
        })
        .map_err(|error| Error::store(folder, "list", error))
    }

    fn left_out(&self, folder: &str) -> Option<String> {
        self.left_out.reason(folder)
    }

    fn statfs(&self) -> Result<StatFs> {
        posix_stat::statfs(&self.root).map_err(|error| Error::store("", "stat", error))
    }

    fn describe(&self) -> String {
        self.path.clone()
    }

    /// Returns the folder's inode and its time of creation, since inode numbers are reused.
    fn identity(&self) -> Result<Option<String>> {
        let metadata =
            posix_stat::metadata(&self.root).map_err(|error| Error::store("", "look at", error))?;
        let made = metadata.created().ok().and_then(|made| made.duration_since(SystemTime::UNIX_EPOCH).ok());
        Ok(Some(format!("folder {} {}", metadata.ino(), made.map_or(0, |made| made.as_nanos()))))
    }

    fn for_audience(&self, path: &str, audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        self.guard.as_ref()?;
        let guard = ArrayGuard::new(path, Arc::clone(audience));
        Some(Arc::new(DirectoryStore { guard: Some(Guard::Array(Arc::new(guard))), ..self.clone() }))
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }

    fn keep_locks(&self, keeper: &Arc<dyn LockKeeper>) {
        let _ = self.lock_keeper.set(Arc::clone(keeper));
    }
}

/// An open file of the store.
struct DirectoryObject {
    file: File,
    /// The metadata when the file was opened.
    metadata: Metadata,
    key: String,
}

impl Object for DirectoryObject {
    fn version(&self) -> ObjectVersion {
        posix_stat::version(&self.metadata)
    }

    fn size_bytes(&self) -> u64 {
        self.metadata.len()
    }

    fn modified(&self) -> Option<SystemTime> {
        self.metadata.modified().ok()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| Error::store(&self.key, "read", error))
    }

    fn try_read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        sys::try_read_at(self.file.as_fd(), offset, out)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests;
