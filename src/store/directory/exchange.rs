//! Replacing and deleting one version of an object and no other, where nothing locks the folder against other programs.
//!
//! A look at what is there, and the rename after it, are two steps: another program may put its own object there between them. So
//! the object that goes away is not lost with the rename. It gets a temporary name instead (renameat2(2), RENAME_EXCHANGE), is
//! looked at, and gets its own name back if it is not the version that was expected. Uses its neighbours and `sys`.
//!
//! Invariant: the temporary name says which version was expected, which file replaces it, and where. So the next writer in that folder
//! ends what a dead one has begun: what was expected goes away, what another program put there gets its name back
//! ([`end_exchange`]).
//!
//! The name is given when the file is created, since each further rename costs a place in the filesystem's journal. What its
//! version will be is not known then. So the file is known by its time of modification, in nanoseconds: the writer chooses one
//! that it has not chosen before, and sets it ([`Mark`]).
//!
//! A rename changes the inode's time of change. So what came out is compared by its inode, size and time of last change of the
//! content; the look just before the rename compares the other one, too.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::entries::{LOOK, NAME_MAX_BYTES, NEXT_TEMPORARY, READ, failed, has_dead_writer, split};
use super::{DirectoryStore, posix_stat};
use crate::error::Result;
use crate::store::{ObjectVersion, Store, join};
use crate::sys::{self, Renaming};

/// The documents that a folder of a node has.
const DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", "meta"];

/// A file by its folder and its name there.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    pub folder: &'a File,
    pub name: &'a CStr,
}

impl Name<'_> {
    /// The file itself, also where it is a link; `None` if there is none.
    fn metadata(&self) -> io::Result<Option<Metadata>> {
        match sys::open_at(self.folder.as_fd(), self.name, LOOK | libc::O_NOFOLLOW) {
            Ok(found) => File::from(found).metadata().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The version of a file that may be replaced or removed. A folder is an error: an exchange would take it for one.
    fn file_version(&self) -> io::Result<Option<ObjectVersion>> {
        match self.metadata()? {
            Some(folder) if folder.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            found => Ok(found.as_ref().map(posix_stat::version)),
        }
    }

    /// Whether the file with this name has the mark.
    fn has_mark(&self, mark: Option<Mark>) -> io::Result<bool> {
        Ok(mark.is_some() && self.metadata()?.map(|found| Mark::of(&found)) == Some(mark))
    }

    /// Whether it is the name of this file.
    pub fn is_file(&self, file: &Metadata) -> bool {
        let found = sys::open_at(self.folder.as_fd(), self.name, LOOK | libc::O_NOFOLLOW);
        let found = found.and_then(|found| File::from(found).metadata());
        found.is_ok_and(|found| posix_stat::file_id(&found) == posix_stat::file_id(file))
    }

    fn unlink(&self) -> io::Result<()> {
        sys::unlink_at(self.folder.as_fd(), self.name)
    }

    pub fn rename(&self, to: &Name<'_>) -> io::Result<()> {
        sys::rename_at(self.folder.as_fd(), self.name, to.folder.as_fd(), to.name)
    }

    fn rename_keeping(&self, to: &Name<'_>, renaming: Renaming) -> io::Result<()> {
        sys::rename_keeping_at((self.folder.as_fd(), self.name), (to.folder.as_fd(), to.name), renaming)
    }
}

/// What became of an attempt to replace or delete one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchanged {
    Done,
    /// Another version is there, and stays.
    Changed,
    /// The filesystem cannot exchange names, or this name is too long for it.
    Unsupported,
}

/// The short form of a version in a temporary name. The time of change of the inode is not in it, which every rename changes.
fn short(version: ObjectVersion) -> u64 {
    version.digest().short()
}

/// The time of modification by which a writer knows its own file, in nanoseconds since the epoch; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// The present time, or the next one that this process has not chosen before.
    fn choose() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let now =
            SystemTime::UNIX_EPOCH.elapsed().map_or(1, |now| u64::try_from(now.as_nanos()).unwrap_or(1));
        let next = |last: u64| now.max(last.saturating_add(1));
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Mark(next(last.unwrap_or_default()))
    }

    /// The mark that a file has; `None` for a time before 1970 or the epoch itself, which no writer chooses.
    fn of(file: &Metadata) -> Option<Self> {
        let seconds = u64::try_from(file.mtime()).ok()?.checked_mul(1_000_000_000)?;
        let mark = seconds.checked_add(u64::try_from(file.mtime_nsec()).ok()?)?;
        (mark != 0).then_some(Mark(mark))
    }

    /// Gives the file this mark. A filesystem that cannot keep it leaves another one.
    pub fn set(self, file: &File) -> io::Result<()> {
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(self.0))
    }
}

/// The name of a file that will replace one version, and the mark that the file gets.
pub(super) struct Announced {
    pub name: CString,
    pub mark: Mark,
}

impl Announced {
    /// For the object at `path`, below the folder that has the temporary name. `None` where the name is too long.
    pub fn new(path: &str, expected: ObjectVersion) -> Option<Self> {
        let mark = Mark::choose();
        Some(Announced { name: temporary_name(short(expected), Some(mark), path)?, mark })
    }

    /// For a file whose filesystem does not keep the mark that it was given, such as one with times of seconds.
    pub fn of_file(file: &File, path: &str, expected: ObjectVersion) -> io::Result<Option<Self>> {
        let Some(mark) = Mark::of(&file.metadata()?) else { return Ok(None) };
        let name = temporary_name(short(expected), Some(mark), path);
        Ok(name.map(|name| Announced { name, mark }))
    }

    /// Whether the file has the mark.
    pub fn is_kept(&self, file: &File) -> io::Result<bool> {
        Ok(Mark::of(&file.metadata()?) == Some(self.mark))
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// A temporary name: the process, a number, the version that was expected, the mark of the new file (0 for none), and the object's
/// path below the folder that has the temporary name.
fn temporary_name(old: u64, new: Option<Mark>, path: &str) -> Option<CString> {
    let new = new.map_or(0, |mark| mark.0);
    let number = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
    let path = path.replace('%', "%25").replace('/', "%2F");
    let name = format!(".zarrfs-{}-{number}-{old:016x}-{new:016x}-{path}.tmp", std::process::id());
    if name.len() <= NAME_MAX_BYTES { CString::new(name).ok() } else { None }
}

/// What a temporary name says of an exchange.
#[derive(Debug, PartialEq, Eq)]
struct Begun {
    /// The version that was expected.
    old: u64,
    /// The file that replaces it; `None` for a deletion.
    new: Option<Mark>,
    /// The object's path below the folder that has the temporary name.
    path: String,
}

/// `None` for the name of another temporary file.
fn parse(name: &str) -> Option<Begun> {
    let mut parts = name.strip_prefix(".zarrfs-")?.strip_suffix(".tmp")?.splitn(5, '-');
    let (_process, _number) = (parts.next()?, parts.next()?);
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let (old, new) = (number()?, number()?);
    let path = parts.next()?.replace("%2F", "/").replace("%25", "%");
    Some(Begun { old, new: (new != 0).then_some(Mark(new)), path })
}

/// Whether a temporary name is of an exchange.
pub(super) fn is_of_exchange(name: &str) -> bool {
    parse(name).is_some()
}

/// Puts the complete file `out`, which has the mark and the name that were [`Announced`], in place of one version of the object `at`.
/// Unless this fails, what has the temporary name afterwards is of no use.
pub(super) fn replace(
    out: &Name<'_>,
    mark: Mark,
    at: &Name<'_>,
    expected: ObjectVersion,
) -> io::Result<Exchanged> {
    let old = short(expected);
    match at.file_version()? {
        Some(now) if now == expected => {}
        // A link, which has a version of its own.
        Some(now) if now.digest() != expected.digest() => return Ok(Exchanged::Unsupported),
        Some(_) | None => return Ok(Exchanged::Changed),
    }
    match out.rename_keeping(at, Renaming::Exchange) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Exchanged::Changed),
        Err(error) if is_unsupported(&error) => return Ok(Exchanged::Unsupported),
        Err(error) => return Err(error),
    }
    if out.metadata()?.is_some_and(|found| short(posix_stat::version(&found)) == old) {
        out.unlink()?;
        return Ok(Exchanged::Done);
    }
    end(out, at, old, Some(mark))?;
    Ok(Exchanged::Changed)
}

/// Removes one version of the object `at`, whose path below `home` is `path`.
pub(super) fn remove(
    home: &File,
    at: &Name<'_>,
    path: &str,
    expected: ObjectVersion,
) -> io::Result<Exchanged> {
    let old = short(expected);
    let Some(name) = temporary_name(old, None, path) else { return Ok(Exchanged::Unsupported) };
    match at.file_version()? {
        Some(now) if now == expected => {}
        Some(now) if now.digest() != expected.digest() => return Ok(Exchanged::Unsupported),
        Some(_) | None => return Ok(Exchanged::Changed),
    }
    let out = Name { folder: home, name: &name };
    match at.rename(&out) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Exchanged::Changed),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => return Ok(Exchanged::Unsupported),
        Err(error) => return Err(error),
    }
    let is_expected = out.metadata()?.is_some_and(|found| short(posix_stat::version(&found)) == old);
    end(&out, at, old, None)?;
    Ok(if is_expected { Exchanged::Done } else { Exchanged::Changed })
}

/// Ends an exchange: `out` is the temporary name, `at` the object's own. What was expected goes away, and so does a file that has not
/// become the object. What another program has put there becomes the object again, unless that has another one since.
fn end(out: &Name<'_>, at: &Name<'_>, old: u64, new: Option<Mark>) -> io::Result<()> {
    let Some(found) = out.metadata()? else { return Ok(()) };
    let put_back = match new {
        _ if short(posix_stat::version(&found)) == old => None,
        // A deletion has taken it away. The name was never that of a file under way.
        None => Some(Renaming::NoReplace),
        // Only an exchange that took place has brought another program's object here. Otherwise this is what a writer has not
        // finished, which must not become the object, not even where there is none.
        Some(_) if at.has_mark(new)? => Some(Renaming::Exchange),
        Some(_) => None,
    };
    if let Some(put_back) = put_back {
        match out.rename_keeping(at, put_back) {
            Ok(()) if put_back == Renaming::NoReplace => return Ok(()),
            // A third program has put its object there since the look: that is the newest one, and gets its name back.
            Ok(()) if !out.has_mark(new)? => out.rename_keeping(at, Renaming::Exchange)?,
            Ok(()) => {}
            Err(error) if is_unsupported(&error) && at.metadata()?.is_none() => return out.rename(at),
            // It has another one since.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOENT)) => {}
            Err(error) => return Err(error),
        }
    }
    match out.unlink() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Ends the exchange of a dead writer, which has left this name in a folder; returns whether that was one.
pub(super) fn end_exchange(folder: &File, name: &str, c_name: &CStr) -> io::Result<bool> {
    let Some(Begun { old, new, path }) = parse(name).filter(|_| has_dead_writer(name)) else {
        return Ok(false);
    };
    // The writer may live on another machine, or see other process numbers: it locks what it has not finished, and looks after that
    // whether the file still has a name.
    if new.is_some() && is_locked(folder, c_name) {
        return Ok(false);
    }
    let (parent, last) = split(&path);
    let (parent, last) = (CString::new(if parent.is_empty() { "." } else { parent })?, CString::new(last)?);
    let out = Name { folder, name: c_name };
    let parent = match sys::open_beneath_without_links(folder.as_fd(), &parent, LOOK | libc::O_DIRECTORY) {
        Ok(parent) => File::from(parent),
        // Its folder is gone: nothing is put back there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return out.unlink().map(|()| true),
        Err(error) => return Err(error),
    };
    // Who may only make names here must not have files put elsewhere.
    let owner = File::from(sys::open_at(folder.as_fd(), c_name, LOOK | libc::O_NOFOLLOW)?).metadata()?.uid();
    if ![0, sys::effective_ids().0, parent.metadata()?.uid()].contains(&owner) {
        return Ok(false);
    }
    end(&out, &Name { folder: &parent, name: &last }, old, new).map(|()| true)
}

/// Whether a process has locked the file, or may have: another user's file cannot be asked.
fn is_locked(folder: &File, name: &CStr) -> bool {
    match sys::open_at(folder.as_fd(), name, READ | libc::O_NOFOLLOW) {
        Ok(file) => File::from(file).try_lock().is_err(),
        Err(error) => !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ELOOP)),
    }
}

impl DirectoryStore {
    /// The folder of the node that an object belongs to, in which the next writer looks for what a dead one has left.
    fn home_of<'a>(&self, key: &'a str) -> Result<&'a str> {
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
        at: &Name<'_>,
        expected: ObjectVersion,
    ) -> Result<Exchanged> {
        let home_key = self.home_of(key)?;
        let Some(home) = self.open_for_change(home_key, "delete")? else { return Ok(Exchanged::Changed) };
        let path = if home_key.is_empty() { key } else { key.get(home_key.len() + 1..).unwrap_or(key) };
        remove(&home, at, path, expected).map_err(failed(key, "delete"))
    }
}

/// Puts a complete file where nothing may be yet.
pub(super) fn put_new(new: &Name<'_>, at: &Name<'_>) -> io::Result<Exchanged> {
    match new.rename_keeping(at, Renaming::NoReplace) {
        Ok(()) => Ok(Exchanged::Done),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Exchanged::Changed),
        Err(error) if is_unsupported(&error) => Ok(Exchanged::Unsupported),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
