//! Replacing and deleting exactly one version of an object, although nothing locks the folder against other programs.
//!
//! Checking the version and renaming are two steps: another program may put its own object there between them. So the rename
//! does not destroy the old object. It gives that a temporary name (renameat2(2), RENAME_EXCHANGE). The old object is then
//! checked, and gets its own name back if it is not the expected version. Uses its neighbours and `sys`.
//!
//! Invariant: the temporary name says which version was expected, which file replaces it, and where. So the next writer in that
//! folder can end the exchange of a dead one: the expected version is removed, and another program's object gets its name back
//! ([`end_exchange`]).
//!
//! The file gets this name when it is created, since each further rename costs an entry in the filesystem's journal. Its
//! version is not known at that time. So the file is identified by its modification time, in nanoseconds: the writer chooses
//! one that it has not chosen before, and sets it ([`Mark`]).
//!
//! A rename changes the inode's time of change. So the old object is compared by inode, size and modification time after the
//! rename. The check just before the rename compares the inode's time of change, too.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::entries::{NAME_MAX_BYTES, NEXT_TEMPORARY, OPEN_PATH, OPEN_READ, failed, has_dead_writer, split};
use super::{DirectoryStore, posix_stat};
use crate::error::Result;
use crate::store::{ObjectVersion, Store, join};
use crate::sys::{self, HeldLock, Renaming};

/// The documents that mark the folder of a node.
const DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", "meta"];

/// A name in a folder.
#[derive(Clone, Copy)]
pub(super) struct FileAt<'a> {
    pub folder: &'a File,
    pub name: &'a CStr,
}

impl FileAt<'_> {
    /// Returns the metadata of the file, or of the link itself; `None` if there is none.
    fn metadata(&self) -> io::Result<Option<Metadata>> {
        match sys::open_at(self.folder.as_fd(), self.name, OPEN_PATH | libc::O_NOFOLLOW) {
            Ok(found) => File::from(found).metadata().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the version of a file that may be replaced or removed. A folder is an error: an exchange would move it like a
    /// file.
    fn file_version(&self) -> io::Result<Option<ObjectVersion>> {
        match self.metadata()? {
            Some(folder) if folder.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            found => Ok(found.as_ref().map(posix_stat::version)),
        }
    }

    /// Whether the file with this name has the mark.
    fn has_mark(&self, mark: Option<Mark>) -> io::Result<bool> {
        Ok(mark.is_some() && self.metadata()?.map(|found| Mark::read(&found)) == Some(mark))
    }

    /// Whether this file has the name.
    pub fn is_file(&self, file: &Metadata) -> bool {
        let found = sys::open_at(self.folder.as_fd(), self.name, OPEN_PATH | libc::O_NOFOLLOW);
        let found = found.and_then(|found| File::from(found).metadata());
        found.is_ok_and(|found| posix_stat::file_id(&found) == posix_stat::file_id(file))
    }

    fn unlink(&self) -> io::Result<()> {
        sys::unlink_at(self.folder.as_fd(), self.name)
    }

    pub fn rename(&self, to: &FileAt<'_>) -> io::Result<()> {
        sys::rename_at(self.folder.as_fd(), self.name, to.folder.as_fd(), to.name)
    }

    fn rename_keeping(&self, to: &FileAt<'_>, renaming: Renaming) -> io::Result<()> {
        sys::rename_keeping_at((self.folder.as_fd(), self.name), (to.folder.as_fd(), to.name), renaming)
    }
}

/// The outcome of an attempt to replace or delete one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeOutcome {
    Done,
    /// There is another version, which stays.
    Changed,
    /// The filesystem cannot exchange names, or this name is too long for it.
    Unsupported,
}

/// Returns the short form of a version in a temporary name. It does not contain the inode's time of change, which every rename
/// changes.
fn short(version: ObjectVersion) -> u64 {
    version.digest().short()
}

/// The modification time by which a writer recognizes its own file, in nanoseconds since the epoch; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// Chooses the current time, or the next one that this process has not chosen before.
    fn choose() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let now =
            SystemTime::UNIX_EPOCH.elapsed().map_or(1, |now| u64::try_from(now.as_nanos()).unwrap_or(1));
        let next = |last: u64| now.max(last.saturating_add(1));
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Mark(next(last.unwrap_or_default()))
    }

    /// Returns the mark of a file; `None` for a time before 1970 or the epoch itself, which no writer chooses.
    fn read(file: &Metadata) -> Option<Self> {
        let seconds = u64::try_from(file.mtime()).ok()?.checked_mul(1_000_000_000)?;
        let mark = seconds.checked_add(u64::try_from(file.mtime_nsec()).ok()?)?;
        (mark != 0).then_some(Mark(mark))
    }

    /// Gives the file this mark. A filesystem that cannot store it sets another one.
    pub fn set(self, file: &File) -> io::Result<()> {
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(self.0))
    }
}

/// The name of a file that will replace one version, and the mark that it gets.
pub(super) struct AnnouncedName {
    pub name: CString,
    pub mark: Mark,
}

impl AnnouncedName {
    /// Returns the name for the object at `path`, relative to the folder with the temporary name; `None` if the name is too
    /// long.
    pub fn new(path: &str, expected: ObjectVersion) -> Option<Self> {
        let mark = Mark::choose();
        Some(AnnouncedName { name: temporary_name(short(expected), Some(mark), path)?, mark })
    }

    /// Returns the name for a file whose filesystem does not store the mark that was set, for example because its times are in
    /// seconds.
    pub fn for_file(file: &File, path: &str, expected: ObjectVersion) -> io::Result<Option<Self>> {
        let Some(mark) = Mark::read(&file.metadata()?) else { return Ok(None) };
        let name = temporary_name(short(expected), Some(mark), path);
        Ok(name.map(|name| AnnouncedName { name, mark }))
    }

    /// Whether the file has the mark.
    pub fn is_kept(&self, file: &File) -> io::Result<bool> {
        Ok(Mark::read(&file.metadata()?) == Some(self.mark))
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// Returns a temporary name: the process, a number, the expected version, the mark of the new file (0 for none), and the
/// object's path below the folder with the temporary name.
fn temporary_name(old: u64, new: Option<Mark>, path: &str) -> Option<CString> {
    let new = new.map_or(0, |mark| mark.0);
    let number = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
    let path = path.replace('%', "%25").replace('/', "%2F");
    let name = format!(".zarrfs-{}-{number}-{old:016x}-{new:016x}-{path}.tmp", std::process::id());
    if name.len() <= NAME_MAX_BYTES { CString::new(name).ok() } else { None }
}

/// The exchange that a temporary name describes.
#[derive(Debug, PartialEq, Eq)]
struct PendingExchange {
    /// The expected version.
    old: u64,
    /// The mark of the file that replaces it; `None` for a deletion.
    new: Option<Mark>,
    /// The object's path below the folder with the temporary name.
    path: String,
}

/// Parses a temporary name; `None` if it does not describe an exchange.
fn parse(name: &str) -> Option<PendingExchange> {
    let mut parts = name.strip_prefix(".zarrfs-")?.strip_suffix(".tmp")?.splitn(5, '-');
    let (_process, _number) = (parts.next()?, parts.next()?);
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let (old, new) = (number()?, number()?);
    let path = parts.next()?.replace("%2F", "/").replace("%25", "%");
    Some(PendingExchange { old, new: (new != 0).then_some(Mark(new)), path })
}

/// Whether a temporary name describes an exchange.
pub(super) fn is_exchange_name(name: &str) -> bool {
    parse(name).is_some()
}

/// Puts the complete file `out`, which has the mark and the name that were [`AnnouncedName`], in place of one version of the object
/// `at`. After success, the temporary name is no longer needed.
pub(super) fn replace(
    out: &FileAt<'_>,
    mark: Mark,
    at: &FileAt<'_>,
    expected: ObjectVersion,
) -> io::Result<ExchangeOutcome> {
    let old = short(expected);
    match at.file_version()? {
        Some(now) if now == expected => {}
        // This is a link, which has a version of its own.
        Some(now) if now.digest() != expected.digest() => return Ok(ExchangeOutcome::Unsupported),
        Some(_) | None => return Ok(ExchangeOutcome::Changed),
    }
    match out.rename_keeping(at, Renaming::Exchange) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ExchangeOutcome::Changed),
        Err(error) if is_unsupported(&error) => return Ok(ExchangeOutcome::Unsupported),
        Err(error) => return Err(error),
    }
    if out.metadata()?.is_some_and(|found| short(posix_stat::version(&found)) == old) {
        out.unlink()?;
        return Ok(ExchangeOutcome::Done);
    }
    end(out, at, old, Some(mark))?;
    Ok(ExchangeOutcome::Changed)
}

/// Removes one version of the object `at`, which is at `path` below `home`.
pub(super) fn remove(
    home: &File,
    at: &FileAt<'_>,
    path: &str,
    expected: ObjectVersion,
) -> io::Result<ExchangeOutcome> {
    let old = short(expected);
    let Some(name) = temporary_name(old, None, path) else { return Ok(ExchangeOutcome::Unsupported) };
    match at.file_version()? {
        Some(now) if now == expected => {}
        Some(now) if now.digest() != expected.digest() => return Ok(ExchangeOutcome::Unsupported),
        Some(_) | None => return Ok(ExchangeOutcome::Changed),
    }
    let out = FileAt { folder: home, name: &name };
    match at.rename(&out) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ExchangeOutcome::Changed),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => return Ok(ExchangeOutcome::Unsupported),
        Err(error) => return Err(error),
    }
    let is_expected = out.metadata()?.is_some_and(|found| short(posix_stat::version(&found)) == old);
    end(&out, at, old, None)?;
    Ok(if is_expected { ExchangeOutcome::Done } else { ExchangeOutcome::Changed })
}

/// Ends an exchange: `out` is the temporary name, `at` the object's own. The expected version is removed, and so is a file that
/// has not become the object. An object that another program put there gets its name back, unless there is a newer one.
fn end(out: &FileAt<'_>, at: &FileAt<'_>, old: u64, new: Option<Mark>) -> io::Result<()> {
    let Some(found) = out.metadata()? else { return Ok(()) };
    let put_back = match new {
        _ if short(posix_stat::version(&found)) == old => None,
        // A deletion has moved it. The temporary name was never that of an unfinished file.
        None => Some(Renaming::NoReplace),
        // Only an exchange that took place can have brought another program's object here. Otherwise this is an unfinished
        // file, which must not become the object, even if there is no object.
        Some(_) if at.has_mark(new)? => Some(Renaming::Exchange),
        Some(_) => None,
    };
    if let Some(put_back) = put_back {
        match out.rename_keeping(at, put_back) {
            Ok(()) if put_back == Renaming::NoReplace => return Ok(()),
            // A third program has put its object there since the check: that is the newest one, and gets its name back.
            Ok(()) if !out.has_mark(new)? => out.rename_keeping(at, Renaming::Exchange)?,
            Ok(()) => {}
            Err(error) if is_unsupported(&error) && at.metadata()?.is_none() => return out.rename(at),
            // There is a newer object.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOENT)) => {}
            Err(error) => return Err(error),
        }
    }
    match out.unlink() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Ends the exchange of a dead writer that left this name in a folder. Returns whether there was one.
pub(super) fn end_exchange(folder: &File, name: &str, c_name: &CStr) -> io::Result<bool> {
    let Some(PendingExchange { old, new, path }) = parse(name).filter(|_| has_dead_writer(name)) else {
        return Ok(false);
    };
    // The writer may live on another machine, or see other process numbers: it locks a file that it has not finished, and then
    // checks whether the file still has a name.
    if new.is_some() && is_locked(folder, c_name) {
        return Ok(false);
    }
    let (parent, last) = split(&path);
    let (parent, last) = (CString::new(if parent.is_empty() { "." } else { parent })?, CString::new(last)?);
    let out = FileAt { folder, name: c_name };
    let parent = match sys::open_beneath_without_links(folder.as_fd(), &parent, OPEN_PATH | libc::O_DIRECTORY)
    {
        Ok(parent) => File::from(parent),
        // The object's folder is gone, so nothing is put back.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return out.unlink().map(|()| true),
        Err(error) => return Err(error),
    };
    // A user who may only add names here must not make this program put files elsewhere.
    let owner =
        File::from(sys::open_at(folder.as_fd(), c_name, OPEN_PATH | libc::O_NOFOLLOW)?).metadata()?.uid();
    if ![0, sys::effective_ids().0, parent.metadata()?.uid()].contains(&owner) {
        return Ok(false);
    }
    end(&out, &FileAt { folder: &parent, name: &last }, old, new).map(|()| true)
}

/// Whether a process has locked the file, or may have locked it: another user's file may not be readable.
fn is_locked(folder: &File, name: &CStr) -> bool {
    match sys::open_at(folder.as_fd(), name, OPEN_READ | libc::O_NOFOLLOW) {
        Ok(file) => HeldLock::acquire(File::from(file)).is_err(),
        Err(error) => !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ELOOP)),
    }
}

impl DirectoryStore {
    /// Returns the folder of the node that an object belongs to: the next writer looks there for leftovers of a dead one.
    fn node_folder<'a>(&self, key: &'a str) -> Result<&'a str> {
        let (own, _) = split(key);
        let mut folder = own;
        loop {
            for name in DOCUMENTS {
                if self.head(&join(folder, name))?.is_some() {
                    return Ok(folder);
                }
            }
            if folder.is_empty() {
                return Ok(own);
            }
            folder = split(folder).0;
        }
    }

    /// Removes one version of an object.
    pub(super) fn remove_version(
        &self,
        key: &str,
        at: &FileAt<'_>,
        expected: ObjectVersion,
    ) -> Result<ExchangeOutcome> {
        let home_key = self.node_folder(key)?;
        let Some(home) = self.open_for_change(home_key, "delete")? else {
            return Ok(ExchangeOutcome::Changed);
        };
        let path = if home_key.is_empty() { key } else { key.get(home_key.len() + 1..).unwrap_or(key) };
        remove(&home, at, path, expected).map_err(failed(key, "delete"))
    }
}

/// Gives a complete file a name that must be free.
pub(super) fn put_new(new: &FileAt<'_>, at: &FileAt<'_>) -> io::Result<ExchangeOutcome> {
    match new.rename_keeping(at, Renaming::NoReplace) {
        Ok(()) => Ok(ExchangeOutcome::Done),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(ExchangeOutcome::Changed),
        Err(error) if is_unsupported(&error) => Ok(ExchangeOutcome::Unsupported),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
