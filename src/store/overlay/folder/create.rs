//! The creation of an overlay's folder, and the lock that its only writer holds. Uses `base_location.rs` and `error`.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use super::base_location::{ABOUT, BaseLocation, failed, refused};
use super::changes::{CHANGES, OBJECTS};
use crate::error::Result;
use crate::store::options::local_path;
use crate::store::remote_options::is_remote;
use crate::store::{LockKeeper, lock_name};
use crate::sys::HeldLock;

/// The name of the folder with documents of the base.
pub const DOCUMENTS: &str = "documents";

/// Fails if the folder is inside the store, or the store inside the folder.
pub fn check_apart(folder: &Path, location: &str, base: &BaseLocation) -> Result<()> {
    if is_remote(location) {
        return Ok(());
    }
    let store = local_path(&base.location)?;
    let shown = (folder.display(), store.display());
    if folder.starts_with(&store) {
        return refused(format!(
            "the overlay {} is inside the store {}: name a folder outside of it",
            shown.0, shown.1
        ));
    }
    if store.starts_with(folder) {
        return refused(format!(
            "the store {} is inside the overlay {}: name another folder",
            shown.1, shown.0
        ));
    }
    Ok(())
}

/// Creates the folder. Only this user may enter it; others read through a mount, which checks their permissions.
pub fn create(path: &Path, base: &BaseLocation) -> Result<()> {
    let cannot = |error: io::Error| failed(path, "the overlay cannot be made", &error);
    let is_new = !path.exists();
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(cannot)?;
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        // A process that was killed while it created the overlay may have left these.
        let is_ours = [OBJECTS, DOCUMENTS, CHANGES].iter().any(|known| name == *known)
            || name.to_string_lossy().starts_with("overlay.json.");
        if !is_ours {
            return refused(format!(
                "{}: is neither empty nor an overlay: name a folder that does not exist yet",
                path.display()
            ));
        }
    }
    for name in [OBJECTS, DOCUMENTS] {
        match std::fs::DirBuilder::new().mode(0o700).create(path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
            _ => {}
        }
    }
    let changes = path.join(CHANGES);
    File::options()
        .append(true)
        .create(true)
        .open(&changes)
        .and_then(|file| file.sync_all())
        .map_err(cannot)?;
    let new = path.join(format!("{ABOUT}.{}", std::process::id()));
    std::fs::write(&new, base.text()).map_err(cannot)?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(cannot)?;
    // Unlike rename(2), link(2) does not replace the file of another process that was first.
    let linked = std::fs::hard_link(&new, path.join(ABOUT));
    let _ = std::fs::remove_file(&new);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(error)),
        _ => {}
    }
    File::open(path).and_then(|folder| folder.sync_all()).map_err(cannot)?;
    match path.parent().filter(|_| is_new) {
        Some(parent) => File::open(parent).and_then(|folder| folder.sync_all()).map_err(cannot),
        None => Ok(()),
    }
}

/// The lock of an overlay. It ends when this value is dropped. If there is a keeper, it keeps the lock for another process, and the lock ends with
/// both: dropping it unlocks nothing, since a process that fails to continue another one's work is followed by the next.
pub struct OverlayLock {
    lock: HeldLock,
    /// Who keeps it, and under which name.
    kept: Option<(Arc<dyn LockKeeper>, String)>,
}

impl OverlayLock {
    /// Ends the lock, also that of the keeper: no process continues the work of this one.
    pub fn end(&self) {
        // Unlocked first: the keeper closes its descriptor some time later.
        self.lock.end();
        if let Some((keeper, name)) = &self.kept {
            keeper.release(name);
        }
    }
}

/// Locks the overlay for this process.
pub fn lock(path: &Path, keeper: Option<&Arc<dyn LockKeeper>>) -> Result<OverlayLock> {
    let about = path.join(ABOUT);
    let file = File::options().read(true).write(true).open(&about);
    let file = file.map_err(|error| failed(path, "the overlay cannot be written", &error))?;
    let lock_failed = |error| failed(path, "the overlay cannot be locked", &error);
    let name = lock_name(&file.metadata().map_err(lock_failed)?);
    let former = keeper.and_then(|keeper| keeper.take(&name)).map(File::from);
    if let Some(former) = former {
        // Of the same file, so it is locked already, and no other writer came between.
        let kept = keeper.map(|keeper| (keeper.clone(), name));
        return Ok(OverlayLock { lock: HeldLock::of_locked(former).shared(), kept });
    }
    let lock = match HeldLock::acquire(file) {
        Ok(lock) => lock,
        Err(TryLockError::WouldBlock) => {
            return refused(format!(
                "{}: another zarrfs is changing this overlay: end that mount or command first",
                path.display()
            ));
        }
        Err(TryLockError::Error(error)) => return Err(lock_failed(error)),
    };
    let is_same =
        |now: std::fs::Metadata| lock.file().metadata().is_ok_and(|locked| locked.ino() == now.ino());
    if !std::fs::metadata(&about).is_ok_and(is_same) {
        return refused(format!("{}: the overlay has just been replaced: try again", path.display()));
    }
    let Some(keeper) = keeper else { return Ok(OverlayLock { lock, kept: None }) };
    keeper.keep(&name, lock.file().as_fd()).map_err(lock_failed)?;
    Ok(OverlayLock { lock: lock.shared(), kept: Some((keeper.clone(), name)) })
}
