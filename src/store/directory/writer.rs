//! Writing into a folder on disk. Spec: v3 "File system store", "Store API implementation". Uses `sys`.
//!
//! An object is written to a temporary file in the folder `within` (an array's, or a group's), fdatasynced and renamed. A
//! writer locks its file before it writes the first byte, so a file without a lock is the leftover of a dead writer. Paths are
//! resolved as in `mod.rs`.

use std::ffi::CString;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::entries::{
    LOCKED_WITHIN, NEXT_TEMPORARY, OPEN_PATH, OPEN_READ, c_name, failed, has_dead_writer, set_owner_and_mode,
    split,
};
use super::exchange::{self, AnnouncedName, ExchangeOutcome, FileAt};
use super::folders;
use super::guard::Guard;
use super::output::Output;
use super::{DirectoryStore, is_temporary_name, posix_stat};
use crate::error::{Error, Result};
use crate::store::{
    Info, LockKeeper, ObjectPart, ObjectVersion, Posix, Precondition, PutOptions, SET_GROUP, StagedFolder,
    Store, VersionDigest, Writer, lock_name,
};
use crate::sys::{self, HeldLock};

/// Sets the owner and mode of a folder that a dead writer created without them: otherwise no other user could read what is
/// written into it.
fn finish_folder(folder: &File, like: &Posix) -> io::Result<()> {
    let made = folder.metadata()?;
    let mode = like.folder_mode() | 0o700;
    let is_unfinished = made.mode() & 0o7777 == 0o700
        && mode & 0o7777 != 0o700
        && [sys::effective_ids().0, like.uid].contains(&made.uid());
    if !is_unfinished {
        return Ok(());
    }
    let mut is_empty = true;
    sys::read_folder(folder.try_clone()?.into(), |_, _| {
        is_empty = false;
        ControlFlow::Break(())
    })?;
    if is_empty { set_owner_and_mode(folder, like, mode) } else { Ok(()) }
}

impl DirectoryStore {
    /// Opens the folder of an object. Creates it if it is missing, and the folders above it up to `within`.
    fn folder_for_writing(&self, folder: &str, within: &str, like: &Posix) -> Result<File> {
        let is_below =
            within.is_empty() || folder.strip_prefix(within).is_some_and(|rest| rest.starts_with('/'));
        if let Some(found) = self.open_for_change(folder, "write")? {
            if is_below && !folder.is_empty() {
                finish_folder(&found, like).map_err(failed(folder, "create the folder"))?;
            }
            return Ok(found);
        }
        if folder.is_empty() || folder == within || !is_below {
            return Err(Error::Stale { key: folder.to_owned() });
        }
        let (parent, name) = split(folder);
        let parent = self.folder_for_writing(parent, within, like)?;
        let name = c_name(folder, name)?;
        let make_failed = failed(folder, "create the folder");
        let making = match &self.guard {
            Some(Guard::Array(array)) => Some(array.making()),
            _ => None,
        };
        match sys::make_folder_at(parent.as_fd(), &name, 0o700) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => drop(making),
            Err(error) => return Err(make_failed(error)),
            Ok(()) => {
                let made =
                    sys::open_at(parent.as_fd(), &name, OPEN_READ | libc::O_DIRECTORY | libc::O_NOFOLLOW);
                let made = File::from(made.map_err(&make_failed)?);
                let owner = made.metadata().map_err(&make_failed)?.uid();
                // Another user, with permissions in the parent, has put another folder there.
                if owner != sys::effective_ids().0 && owner != like.uid {
                    return Err(Error::Stale { key: folder.to_owned() });
                }
                // Files that others create in it belong to the group, too, as in a folder that mkdir(2) alone created.
                let above = parent.metadata().map_err(&make_failed)?;
                let inherited = if above.gid() == like.gid { above.mode() & SET_GROUP } else { 0 };
                let mode = like.folder_mode() | 0o700 | inherited;
                set_owner_and_mode(&made, like, mode).map_err(&make_failed)?;
                return Ok(made);
            }
        }
        self.open_for_change(folder, "write")?.ok_or_else(|| Error::Stale { key: folder.to_owned() })
    }

    /// Creates a folder, and those above it that are missing.
    pub(in crate::store) fn make_folders(&self, folder: &str, like: &Info) -> Result<()> {
        self.folder_for_writing(folder, "", &like.posix.unwrap_or_else(Posix::default_for_object)).map(drop)
    }

    fn version_of(&self, key: &str) -> Result<Option<ObjectVersion>> {
        Ok(self.head(key)?.map(|info| info.version))
    }

    /// Opens the folder that was locked for writing; fails if another one has replaced it.
    fn open_home(&self, within: &str) -> Result<File> {
        let stale = || Error::Stale { key: within.to_owned() };
        let home = self.open_folder(within, "write")?.ok_or_else(stale)?;
        if let Some(Guard::Array(array)) = &self.guard {
            let metadata = home.metadata().map_err(failed(within, "look at"))?;
            if !array.is_home(&metadata) {
                return Err(stale());
            }
        }
        Ok(home)
    }

    /// Returns the object that a put will replace.
    fn replaced(&self, folder: &File, name: &CString, like: &Posix) -> io::Result<Option<ReplacedObject>> {
        let old = match sys::open_at(folder.as_fd(), name, OPEN_PATH | libc::O_NOFOLLOW) {
            Ok(old) => File::from(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = old.metadata()?;
        let owned = posix_stat::posix_for(&old, &metadata);
        let is_theirs = like.uid == 0
            || owned.uid == like.uid
            || (owned.gid == like.gid && owned.mode & 0o020 != 0)
            || (owned.mode & 0o022 == 0o022);
        let version = posix_stat::version(&metadata);
        // A link does not pass on its owner, and neither does an object that the document's owner could not overwrite.
        let gives_its_owner = metadata.is_file() && (self.guard.is_none() || is_theirs);
        Ok(Some(ReplacedObject { version, posix: gives_its_owner.then_some(owned) }))
    }
}

/// An object or a link that a put will replace.
struct ReplacedObject {
    version: ObjectVersion,
    /// The owner and mode that the new object also gets.
    posix: Option<Posix>,
}

/// A file that does not have its final name yet. If it is dropped before the rename, it is removed.
struct TemporaryFile<'a> {
    folder: &'a File,
    name: CString,
    file: File,
    is_finished: bool,
}

/// Returns a name that no temporary file of this process has had.
fn temporary_name() -> io::Result<CString> {
    let number = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
    Ok(CString::new(format!(".zarrfs-{}-{number}.tmp", std::process::id()))?)
}

impl<'a> TemporaryFile<'a> {
    /// Creates the file. `next_name` returns another name at each call.
    fn new(folder: &'a File, mut next_name: impl FnMut() -> io::Result<CString>) -> io::Result<Self> {
        loop {
            let name = next_name()?;
            let file = match sys::create_at(folder.as_fd(), &name, 0o600) {
                Ok(file) => File::from(file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // On a filesystem without locks no leftovers are removed either.
            let _ = file.lock();
            // Another process may have removed it as a leftover before it was locked.
            if file.metadata()?.nlink() > 0 {
                return Ok(TemporaryFile { folder, name, file, is_finished: false });
            }
        }
    }

    fn write(&self, parts: &[ObjectPart<'_>], key: &str) -> Result<()> {
        let length_of = |part: &ObjectPart<'_>| match part {
            ObjectPart::Bytes(bytes) => bytes.len() as u64,
            ObjectPart::Copy(_, range) => range.end.saturating_sub(range.start),
        };
        let size_bytes = parts.iter().map(length_of).fold(0, u64::saturating_add);
        let mut output = Output::new(&self.file, size_bytes, key);
        for part in parts {
            match part {
                ObjectPart::Bytes(bytes) => output.bytes(bytes)?,
                ObjectPart::Copy(object, range) => output.copy(*object, range)?,
            }
        }
        output.finish()
    }

    fn rename(&mut self, folder: &File, name: &CString) -> io::Result<()> {
        sys::rename_at(self.folder.as_fd(), &self.name, folder.as_fd(), name)?;
        self.is_finished = true;
        Ok(())
    }

    fn named(&self) -> FileAt<'_> {
        FileAt { folder: self.folder, name: &self.name }
    }

    /// Puts the complete file in place of one version of an object. The object's path below this folder is `path`.
    fn exchange(
        &mut self,
        announced: Option<AnnouncedName>,
        at: &FileAt<'_>,
        path: &str,
        expected: ObjectVersion,
    ) -> io::Result<ExchangeOutcome> {
        let Some(mut announced) = announced else { return Ok(ExchangeOutcome::Unsupported) };
        if !announced.is_kept(&self.file)? {
            let Some(other) = AnnouncedName::for_file(&self.file, path, expected)? else {
                return Ok(ExchangeOutcome::Unsupported);
            };
            announced = other;
            self.named().rename(&FileAt { folder: self.folder, name: &announced.name })?;
            self.name.clone_from(&announced.name);
        }
        let exchanged = exchange::replace(&self.named(), announced.mark, at, expected)?;
        self.is_finished = exchanged == ExchangeOutcome::Done;
        Ok(exchanged)
    }

    /// Gives the complete file a name that is free.
    fn put_new(&mut self, at: &FileAt<'_>) -> io::Result<ExchangeOutcome> {
        let exchanged = exchange::put_new(&self.named(), at)?;
        self.is_finished = exchanged == ExchangeOutcome::Done;
        Ok(exchanged)
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // After an exchange that failed half-way, the name may belong to an object that another program stored. The next writer
        // gives that its own name back.
        let is_ours = self.file.metadata().is_ok_and(|own| self.named().is_file(&own));
        if is_ours {
            let _ = sys::unlink_at(self.folder.as_fd(), &self.name);
        }
    }
}

/// Whether a temporary file is the leftover of a dead writer. If so, locks it.
fn is_leftover(name: &str, file: &File) -> bool {
    // If it is locked, its writer is alive.
    if file.try_lock().is_err() {
        return false;
    }
    // If it has no name, another process has removed it, and another file may have the name now.
    let Ok(found) = file.metadata() else { return false };
    let is_new = || found.modified().is_ok_and(|made| made.elapsed().map_or(true, |age| age < LOCKED_WITHIN));
    // A writer locks its file before it writes the first byte, so this one may be about to.
    found.nlink() > 0 && (found.len() > 0 || !is_new() || has_dead_writer(name))
}

/// A lock that another process keeps, too, so that it outlives this one.
struct KeptLock {
    lock: HeldLock,
    name: String,
    keeper: Arc<dyn LockKeeper>,
}

impl Drop for KeptLock {
    fn drop(&mut self) {
        // The other process closes its descriptor some time later, or hands it to the next writer.
        self.lock.end();
        self.keeper.release(&self.name);
    }
}

impl Writer for DirectoryStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        let (folder_key, name) = split(key);
        let name = c_name(key, name)?;
        let PutOptions { precondition, within, like, .. } = *options;
        let home = self.open_home(within)?;
        let like = &like.posix.unwrap_or_else(Posix::default_for_object);
        let folder = self.folder_for_writing(folder_key, within, like)?;
        let old = self.replaced(&folder, &name, like).map_err(failed(key, "look at"))?;
        let is_as_demanded = match precondition {
            Precondition::Any => true,
            Precondition::Missing => old.is_none(),
            Precondition::Version(expected) => old.as_ref().is_some_and(|old| old.version == expected),
        };
        // The object behind a link may be the demanded one, so look again.
        if !is_as_demanded {
            precondition.check(key, || self.version_of(key))?;
        }
        let like = old.as_ref().and_then(|old| old.posix.as_ref()).unwrap_or(like);
        let mut stage = &home;
        loop {
            let path = if std::ptr::eq(stage, &raw const home) {
                key.strip_prefix(within).unwrap_or(key).trim_start_matches('/')
            } else {
                split(key).1
            };
            let mut announced = None;
            let next_name = || {
                if let Precondition::Version(expected) = precondition {
                    announced = AnnouncedName::new(path, expected);
                }
                announced.as_ref().map_or_else(temporary_name, |announced| Ok(announced.name.clone()))
            };
            let mut temporary = TemporaryFile::new(stage, next_name).map_err(failed(key, "write"))?;
            temporary.write(parts, key)?;
            if let Some(announced) = &announced {
                announced.mark.set(&temporary.file).map_err(failed(key, "write"))?;
            }
            set_owner_and_mode(&temporary.file, like, like.mode & 0o777).map_err(failed(key, "write"))?;
            temporary.file.sync_data().map_err(failed(key, "write to the disk"))?;
            if options.announce.is_some() {
                // A rename does not change this version.
                let complete = temporary.file.metadata().map_err(failed(key, "look at"))?;
                options.announce(posix_stat::version(&complete).digest())?;
            }
            let at = FileAt { folder: &folder, name: &name };
            let put = match precondition {
                Precondition::Any => Ok(ExchangeOutcome::Unsupported),
                Precondition::Missing => temporary.put_new(&at),
                Precondition::Version(expected) => temporary.exchange(announced, &at, path, expected),
            };
            let renamed = match put {
                Ok(ExchangeOutcome::Done) => Ok(()),
                Ok(ExchangeOutcome::Changed) => return Err(Error::Changed { key: key.to_owned() }),
                Ok(ExchangeOutcome::Unsupported) => {
                    precondition.check(key, || self.version_of(key))?;
                    temporary.rename(&folder, &name)
                }
                Err(error) => Err(error),
            };
            match renamed {
                // The object's folder is on another filesystem than its array's: write the temporary file there.
                Err(error)
                    if error.raw_os_error() == Some(libc::EXDEV)
                        && !std::ptr::eq(stage, &raw const folder) =>
                {
                    stage = &folder;
                }
                Err(error) => return Err(Error::store(key, "write", error)),
                Ok(()) => {
                    let metadata = temporary.file.metadata().map_err(failed(key, "look at"))?;
                    return Ok(posix_stat::version(&metadata));
                }
            }
        }
    }

    fn has_mark(&self, _key: &str, version: ObjectVersion, mark: VersionDigest) -> Result<bool> {
        Ok(version.digest() == mark)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        let (folder, name) = split(key);
        if let Some(Guard::Array(array)) = &self.guard {
            self.open_home(array.path())?;
        }
        let Some(folder) = self.open_for_change(folder, "delete")? else { return Ok(false) };
        precondition.check(key, || self.version_of(key))?;
        let name = c_name(key, name)?;
        if let Precondition::Version(expected) = precondition {
            match self.remove_version(key, &FileAt { folder: &folder, name: &name }, expected)? {
                ExchangeOutcome::Done => return Ok(true),
                ExchangeOutcome::Changed => return Err(Error::Changed { key: key.to_owned() }),
                ExchangeOutcome::Unsupported => precondition.check(key, || self.version_of(key))?,
            }
        }
        match sys::unlink_at(folder.as_fd(), &name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::store(key, "delete", error)),
        }
    }

    fn sync(&self, keys: &[String], within: &str) -> Result<()> {
        let mut folders = std::collections::BTreeSet::new();
        for key in keys {
            let mut folder = split(key).0;
            while folders.insert(folder) && folder != within && !folder.is_empty() {
                folder = split(folder).0;
            }
        }
        for key in folders {
            // In a folder that is gone there is nothing to make durable.
            if let Some(folder) = self.open_folder(key, "sync")? {
                folder.sync_all().map_err(failed(key, "write to the disk"))?;
            }
        }
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        if let Some(root) = self.open_folder("", "sync")? {
            sys::sync_filesystem(root.as_fd()).map_err(failed("", "write to the disk"))?;
        }
        Ok(())
    }

    fn lock(&self, key: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        let lock_failed = |error| Error::store(key, "lock", error);
        let gone = || Error::Stale { key: key.to_owned() };
        let opened = self.open_for_lock(key)?.ok_or_else(gone)?;
        let keeper = self.lock_keeper.get();
        let name = lock_name(&opened.metadata().map_err(lock_failed)?);
        let former = keeper.and_then(|keeper| keeper.take(&name)).map(File::from);
        let is_former = former.is_some();
        // The descriptor of the daemon before is of the same file, which is locked already: no other writer came between.
        let opened = former.unwrap_or(opened);
        let lock = match HeldLock::acquire(opened) {
            Ok(lock) => lock,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(lock_failed(error)),
        };
        // An object that was replaced in the meantime is not locked.
        let locked = lock.file().metadata().map_err(lock_failed)?;
        let now = self.head(key)?.ok_or_else(gone)?;
        let is_current = now.file() == Some(posix_stat::file_id(&locked));
        if let Some(Guard::Array(array)) = self.guard.as_ref().filter(|_| is_current) {
            array.record_home(key, locked.dev(), locked.ino());
        }
        let Some(keeper) = keeper else { return Ok(is_current.then(|| Box::new(lock) as _)) };
        let kept = KeptLock { lock, name, keeper: Arc::clone(keeper) };
        if !is_current {
            return Ok(None);
        }
        if !is_former {
            keeper.keep(&kept.name, kept.lock.file().as_fd()).map_err(lock_failed)?;
        }
        Ok(Some(Box::new(kept)))
    }

    fn check_place(&self) -> Result<()> {
        let root = posix_stat::metadata(&self.root).map_err(failed("", "look at"))?;
        match std::fs::metadata(&self.place) {
            Ok(now) if (now.dev(), now.ino()) != (root.dev(), root.ino()) => {
                if !self.is_displaced.swap(true, Ordering::Relaxed) {
                    log::error!(
                        "{}: another folder has this name now: the former one is shown, and nothing is stored until it is \
                         back; unmount, and mount the new one",
                        self.describe()
                    );
                }
                Err(Error::Stale { key: self.describe() })
            }
            // A renamed store is still the same store.
            Ok(_) | Err(_) => {
                self.is_displaced.store(false, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        let touch_failed = failed(key, "set the modification time");
        let Some(file) = self.open_for_touch(key)? else { return Ok(None) };
        if posix_stat::version(&file.metadata().map_err(&touch_failed)?) != version {
            return Ok(None);
        }
        file.set_modified(std::time::SystemTime::now()).map_err(&touch_failed)?;
        Ok(Some(posix_stat::version(&file.metadata().map_err(&touch_failed)?)))
    }

    fn set_permissions(&self, key: &str, owner: u32, like: &Posix) -> Result<bool> {
        self.set_permissions_if_owned(key, owner, like).map(|()| true)
    }

    fn can_rename(&self, _folder: &str) -> Result<bool> {
        Ok(true)
    }

    fn stage(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        self.stage_folder(parent, like).map(Some)
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<()> {
        self.rename_to(from, to)
    }

    fn remove_folder(&self, key: &str) -> Result<bool> {
        self.remove_tree(key).map(|()| true)
    }

    fn remove_unfinished(&self, folder: &str) -> Result<u64> {
        // Another user's files that are reached only through a link stay.
        let Some(opened) = self.open_unlinked(folder)? else { return Ok(0) };
        let listed = opened.try_clone().map_err(failed(folder, "list"))?;
        let mut names = Vec::new();
        sys::read_folder(listed.into(), |name, _| {
            names.extend(name.into_string().ok().filter(|name| is_temporary_name(name)));
            ControlFlow::Continue(())
        })
        .map_err(failed(folder, "list"))?;
        let mut removed = 0;
        for name in names {
            let path = c_name(folder, &name)?;
            if exchange::is_exchange_name(&name) {
                let ended = exchange::end_exchange(&opened, &name, &path);
                removed += u64::from(ended.map_err(failed(folder, "end the exchange of a dead writer in"))?);
                continue;
            }
            let Ok(leftover) = sys::open_at(opened.as_fd(), &path, OPEN_READ | libc::O_NOFOLLOW) else {
                continue;
            };
            let leftover = File::from(leftover);
            let is_removed = match leftover.metadata() {
                Ok(found) if found.is_dir() => folders::remove_leftover(&opened, &name, &path, &leftover),
                _ => is_leftover(&name, &leftover) && sys::unlink_at(opened.as_fd(), &path).is_ok(),
            };
            removed += u64::from(is_removed);
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
