//! Folders of nodes: creating them under a name that no reader sees, renaming and removing them. Uses its neighbours and `sys`.
//!
//! Invariant: the name of a node appears and disappears in one step, rename(2). A folder that a dead writer leaves has a
//! temporary name, and the next writer in the same parent removes it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::DirectoryStore;
use super::entries::{NEXT_TEMPORARY, OPEN_READ, c_name, failed, has_dead_writer, set_owner_and_mode, split};
use crate::error::{Error, Result};
use crate::store::{Info, Posix, SET_GROUP, StagedFolder, join};
use crate::sys::{self, HeldLock};

/// The most names of a folder that are in memory while it is emptied.
const MAX_NAMES: usize = 4096;
/// After this time a writer's folder without a lock is a leftover, even if another process now has the process number in its
/// name.
const UNLOCKED_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

impl DirectoryStore {
    pub(super) fn stage_folder(&self, parent: &str, like: &Info) -> Result<StagedFolder> {
        let stale = || Error::Stale { key: parent.to_owned() };
        let make_failed = failed(parent, "create a folder in");
        let above = self.open_for_change(parent, "write")?.ok_or_else(stale)?;
        let like = like.posix.unwrap_or_else(Posix::default_for_object);
        loop {
            let name = temporary_name();
            let c_name = c_name(parent, &name)?;
            match sys::make_folder_at(above.as_fd(), &c_name, 0o700) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(&make_failed)?,
            }
            let folder = open_folder_at(&above, &c_name).map_err(&make_failed)?;
            let owner = folder.metadata().map_err(&make_failed)?.uid();
            // Another user, with permissions in the parent, has put another folder there.
            if owner != sys::effective_ids().0 && owner != like.uid {
                return Err(Error::Stale { key: join(parent, &name) });
            }
            // On a filesystem without locks, the process number shows whether the writer lives.
            let _ = folder.try_lock();
            set_owner_and_mode(&folder, &like, like.folder_mode() | 0o700).map_err(&make_failed)?;
            return Ok(StagedFolder {
                key: join(parent, &name),
                lock: Box::new(HeldLock::of_locked(folder)),
            });
        }
    }

    /// Sets the owner and mode of a file or folder that `owner` owns. If another program has put a link or another user's file
    /// there, it stays as it is.
    pub(super) fn set_permissions_if_owned(&self, key: &str, owner: u32, like: &Posix) -> Result<()> {
        let change_failed = failed(key, "change the mode of");
        let Some((file, _)) = self.resolve(key, "change the mode of", OPEN_READ | libc::O_NOFOLLOW)? else {
            return Ok(());
        };
        let now = file.metadata().map_err(&change_failed)?;
        if now.uid() != owner || !(now.is_dir() || now.is_file()) {
            return Ok(());
        }
        let mode =
            if now.is_dir() { like.folder_mode() | (now.mode() & SET_GROUP) } else { like.mode & 0o777 };
        set_owner_and_mode(&file, like, mode).map_err(change_failed)
    }

    pub(super) fn rename_to(&self, from: &str, to: &str) -> Result<()> {
        let stale = |key: &str| Error::Stale { key: key.to_owned() };
        let ((from_parent, from_name), (to_parent, to_name)) = (split(from), split(to));
        let from_folder = self.open_for_change(from_parent, "rename")?.ok_or_else(|| stale(from))?;
        let to_folder = self.open_for_change(to_parent, "rename")?.ok_or_else(|| stale(to))?;
        let (from_name, to_name) = (c_name(from, from_name)?, c_name(to, to_name)?);
        let renamed = sys::rename_at(from_folder.as_fd(), &from_name, to_folder.as_fd(), &to_name);
        renamed.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR) => Error::Changed { key: to.to_owned() },
            _ => Error::store(from, "rename", error),
        })
    }

    pub(super) fn remove_tree(&self, key: &str) -> Result<()> {
        let (parent, name) = split(key);
        let Some(above) = self.open_for_change(parent, "delete")? else { return Ok(()) };
        let delete_failed = failed(key, "delete");
        let (name, hidden) = (c_name(key, name)?, c_name(key, &temporary_name())?);
        match sys::rename_at(above.as_fd(), &name, above.as_fd(), &hidden) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(&delete_failed)?,
        }
        if let Err(error) = above.sync_all() {
            // Nothing in the folder is removed before the loss of its name is durable.
            let _ = sys::rename_at(above.as_fd(), &hidden, above.as_fd(), &name);
            return Err(delete_failed(error));
        }
        remove_at(&above, &hidden).map_err(delete_failed)
    }
}

fn temporary_name() -> String {
    let number = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
    format!(".zarrfs-{}-{number}.tmp", std::process::id())
}

fn open_folder_at(above: &File, name: &CString) -> io::Result<File> {
    let flags = OPEN_READ | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    sys::open_at(above.as_fd(), name, flags).map(File::from)
}

/// Removes the folder of a dead writer, and returns whether it did. The folder must belong to this program's user or to the
/// owner of its parent: a user who may only add names here must not make this program remove what is in it.
pub(super) fn remove_leftover(above: &File, name: &str, c_name: &CString, folder: &File) -> bool {
    let Ok(found) = folder.metadata() else { return false };
    let is_ours = [sys::effective_ids().0, above.metadata().map_or(u32::MAX, |above| above.uid())]
        .contains(&found.uid());
    let is_old = || found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNLOCKED_WITHIN));
    let is_leftover = is_ours && folder.try_lock().is_ok() && (has_dead_writer(name) || is_old());
    is_leftover && remove_at(above, c_name).is_ok()
}

/// Removes a folder with everything in it. It is not an error if another process removes something meanwhile.
///
/// The nesting may be of any depth. So a nested folder that is not empty is first moved next to this one, under a temporary
/// name, and is then removed in the same way.
fn remove_at(above: &File, name: &CString) -> io::Result<()> {
    let mut left = vec![name.clone()];
    while let Some(name) = left.pop() {
        match open_folder_at(above, &name) {
            Ok(folder) => {
                let moved = empty(&folder, above)?;
                if moved.is_empty() {
                    ignore_missing(sys::remove_folder_at(above.as_fd(), &name))?;
                } else {
                    left.push(name);
                    left.extend(moved);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A link or a file: only the name is removed, not the target of a link.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => {
                ignore_missing(sys::unlink_at(above.as_fd(), &name))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes everything in a folder, until it is empty or folders in it were moved to `above`. Returns their new names.
fn empty(folder: &File, above: &File) -> io::Result<Vec<CString>> {
    loop {
        let mut names = Vec::new();
        let again = sys::open_at(folder.as_fd(), c".", OPEN_READ | libc::O_DIRECTORY)?;
        sys::read_folder(again, |name, _| {
            names.extend(CString::new(name.into_encoded_bytes()));
            if names.len() < MAX_NAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut moved = Vec::new();
        let is_empty = names.is_empty();
        for name in names {
            moved.extend(remove_or_move(folder, &name, above)?);
        }
        if is_empty || !moved.is_empty() {
            return Ok(moved);
        }
    }
}

/// Removes a file or an empty folder. Moves a folder that is not empty to `above`, and returns its name there.
fn remove_or_move(folder: &File, name: &CString, above: &File) -> io::Result<Option<CString>> {
    match sys::unlink_at(folder.as_fd(), name) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::EPERM)) => {}
        other => return ignore_missing(other).map(|()| None),
    }
    match sys::remove_folder_at(folder.as_fd(), name) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {}
        other => return ignore_missing(other).map(|()| None),
    }
    let hidden = CString::new(temporary_name())?;
    match sys::rename_at(folder.as_fd(), name, above.as_fd(), &hidden) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        renamed => renamed.map(|()| Some(hidden)),
    }
}

fn ignore_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
