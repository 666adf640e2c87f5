//! Graceful shutdown: refuse new opens, serve open handles, write back.
//!
//! Begins with a signal: the kernel writes back its dirty pages, the mount is detached, and the session ends
//! with its last user or at the deadline. Invariants: nothing here waits without end, whatever the store does;
//! everything that can be stored is stored, however long it takes, as long as write-back makes progress
//! within each [`Options::stop_deadline`](crate::mount::options::Options).

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use crate::array::KeptBytes;
use crate::error::{Error, Result};
use crate::mount::daemon::attach;
use crate::mount::daemon::detach;
use crate::mount::daemon::exit_status::ExitStatus;
use crate::mount::daemon::given_device;
use crate::mount::daemon::mounts::utab::Registration;
use crate::mount::daemon::privileges::MountThread;
use crate::mount::daemon::procfs::{FILESYSTEM_TYPE, MountEntry, mount_at, with_timeout};
use crate::mount::daemon::restart::call::Keeper;
use crate::mount::daemon::service_manager::sd_notify;
use crate::mount::daemon::syslog;
use crate::mount::fs::FileSystem;
use crate::mount::fuse::invalidate::{notify, wait_in_kernel};
use crate::store::finish_disk_caches;
use crate::sys;

/// The pause before write-back is tried again.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// How long the mount stays visible while the kernel writes back its pages.
const PAGES_TIMEOUT: Duration = Duration::from_secs(5);
/// If nothing is stored for this long, the mount is detached before write-back continues.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the service manager gets a message during shutdown.
const STATUS_INTERVAL: Duration = Duration::from_secs(3);

/// Ends the process, after what its threads have still to write: what was read into disk caches, and lines of the log.
pub fn end_process(code: i32) -> ! {
    finish_disk_caches();
    syslog::flush();
    std::process::exit(code)
}

/// A mount that is being served.
pub struct ActiveMount {
    /// The file system.
    pub fs: Arc<FileSystem>,
    exit_status: ExitStatus,
    mount_thread: Arc<MountThread>,
    notifier: Arc<OnceLock<Notifier>>,
    /// Its entry for umount(8).
    pub registration: Registration,
    /// What holds the session for another daemon, once it does.
    keeper: OnceLock<Keeper>,
    is_stopping: AtomicBool,
    is_announced: AtomicBool,
    /// As [`MountEntry::device`], once it is known: ours may have been unmounted and another file system
    /// mounted there.
    device: OnceLock<String>,
}

impl ActiveMount {
    /// A mount that was made by `mount_thread`; the session sets the notifier later.
    pub fn new(
        fs: Arc<FileSystem>,
        exit_status: ExitStatus,
        mount_thread: Arc<MountThread>,
        notifier: Arc<OnceLock<Notifier>>,
    ) -> Self {
        let (is_stopping, is_announced) = (AtomicBool::new(false), AtomicBool::new(false));
        ActiveMount {
            registration: Registration::new(&fs.options().mountpoint),
            fs,
            exit_status,
            mount_thread,
            notifier,
            keeper: OnceLock::new(),
            is_stopping,
            is_announced,
            device: OnceLock::new(),
        }
    }

    /// Returns the mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.fs.options().mountpoint
    }

    /// The mount has this device number, `major:minor`.
    pub fn note_device(&self, device: String) {
        let _ = self.device.set(device);
    }

    /// The mount is this entry, if that is one of this program.
    pub fn note_entry(&self, entry: &MountEntry) {
        if entry.filesystem_type == FILESYSTEM_TYPE {
            let _ = self.device.set(entry.device.clone());
        }
    }

    /// Records that the session is held for another daemon.
    pub fn set_keeper(&self, keeper: Keeper) {
        let _ = self.keeper.set(keeper);
    }

    /// Returns whether the session is held for another daemon.
    pub fn is_kept(&self) -> bool {
        self.keeper.get().is_some()
    }

    /// Records that the mount has ended, so that no other daemon continues it.
    pub fn forget_session(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.forget();
        }
    }

    /// Returns whether another program has mounted. Then this one knows no mount point: the mount counts as detached.
    pub fn is_given(&self) -> bool {
        given_device::number(self.mountpoint()).is_some()
    }

    /// Mounts, and returns the device.
    pub fn attach(&self) -> Result<OwnedFd> {
        let options = self.fs.options().clone();
        self.mount_thread.run(move || attach::mount(&options))?
    }

    /// SIGTERM or SIGINT: refuses new users; serves open handles until they are closed, or the deadline.
    pub fn shut_down(self: &Arc<Self>) {
        if self.is_stopping.swap(true, Ordering::AcqRel) {
            log::warn!("second signal: not waiting for open files");
            return self.spawn_exit();
        }
        log::info!("shutting down");
        self.announce_stop();
        let mount = self.clone();
        // On its own thread, so that further signals are handled.
        if spawn("zarrfs-shutdown", move || mount.wait_for_users()).is_err() {
            self.detach();
            self.exit();
        }
    }

    /// SIGUSR2: stores what is dirty, and exits without unmounting, so that another daemon continues the mount. If the session is
    /// not held, the mount ends as with SIGTERM.
    pub fn leave(self: &Arc<Self>) {
        let Some(keeper) = self.keeper.get().cloned() else { return self.shut_down() };
        if self.is_stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        log::info!("leaving the mount on {} to another daemon", self.mountpoint().display());
        self.announce_stop();
        let mount = self.clone();
        let leave = move || {
            // Bytes that cannot be stored stay in the session.
            for (path, error) in mount.fs.store_all(mount.fs.options().stop_deadline) {
                log::warn!("/{path} is not stored before the restart: {error}");
            }
            // Where only what is synced is kept, the rest is recorded now. No program writes more before the next daemon.
            let is_partial = mount.fs.options().kept_bytes == KeptBytes::Synced;
            let _frozen = if is_partial { mount.fs.gate().freeze_within(STALL_TIMEOUT) } else { None };
            if is_partial {
                for path in mount.fs.engine().record_unstored() {
                    log::error!("/{path}: what is written during the restart may be lost");
                }
            }
            mount.fs.accesses().finish();
            // Requests are still served meanwhile.
            finish_disk_caches();
            end_process(keeper.plan_end());
        };
        if let Err(error) = spawn("zarrfs-leave", leave) {
            log::error!("{error}");
            self.is_stopping.store(false, Ordering::Release);
        }
    }

    fn wait_for_users(&self) {
        self.fs.store_all(STALL_TIMEOUT);
        self.flush_pages();
        if self.is_given() {
            // Only the program that mounted can keep new users out.
            return self.exit();
        }
        self.detach();
        let deadline = Instant::now() + self.fs.options().stop_deadline;
        // The process exits when the session ends.
        while let Some(rest) = deadline.checked_duration_since(Instant::now()) {
            std::thread::sleep(rest);
        }
        log::warn!("{} files were still open at the deadline", self.fs.handles().len());
        self.exit();
    }

    /// Makes the kernel drop its pages of these inodes.
    pub fn drop_pages(&self, inodes: &[u64]) {
        let Some(notifier) = self.notifier.get() else { return };
        for &inode in inodes {
            if let Err(error) = notify(notifier, INodeNo(inode), 0, 0) {
                // The kernel may not know it any more.
                log::debug!("cannot drop the pages of inode {inode}: {error}");
            }
        }
    }

    /// Makes the kernel send the dirty pages of memory maps.
    fn flush_pages(&self) {
        let inodes = self.fs.inodes().written_arrays();
        let Some(notifier) = self.notifier.get().cloned().filter(|_| !inodes.is_empty()) else { return };
        let mountpoint = if self.is_detached() { None } else { Some(self.mountpoint().to_owned()) };
        let flushed = with_timeout(PAGES_TIMEOUT, move || {
            // Starts all writes at once; the other call waits for them page by page.
            if let Some(folder) = mountpoint.and_then(|path| fs::File::open(path).ok()) {
                let _ = wait_in_kernel(|| sys::sync_filesystem(folder.as_fd()));
            }
            for inode in inodes {
                let _ = notify(&notifier, INodeNo(inode), 0, 0);
            }
        });
        if flushed.is_none() {
            log::warn!("the kernel still holds dirty pages of memory maps");
        }
    }

    /// Reports to the service manager that the daemon is stopping, once, and repeats until the process exits that
    /// this takes time.
    pub fn announce_stop(self: &Arc<Self>) {
        if self.is_announced.swap(true, Ordering::AcqRel) {
            return;
        }
        let mount = self.clone();
        sd_notify::stopping();
        let _ = spawn("zarrfs-status", move || {
            let deadline = mount.fs.options().stop_deadline;
            loop {
                sd_notify::still_stopping(
                    mount.fs.handles().len(),
                    mount.fs.engine().counters().dirty_bytes,
                    deadline + 2 * STATUS_INTERVAL,
                );
                std::thread::sleep(STATUS_INTERVAL);
            }
        });
    }

    fn spawn_exit(self: &Arc<Self>) {
        let mount = self.clone();
        if spawn("zarrfs-exit", move || mount.exit()).is_err() {
            self.exit();
        }
    }

    /// Exits the process without waiting for users, once everything is stored.
    fn exit(&self) {
        self.fs.gate().end_service();
        self.flush_pages();
        let stored = self.store_all();
        if let Err(error) = &stored {
            log::error!("{error}");
        }
        // Of a mount that was being left when the signal to end it came.
        self.detach();
        self.forget_session();
        self.registration.end();
        self.fs.accesses().finish();
        end_process(i32::from(stored.is_err()));
    }

    /// Stores everything that is dirty, retrying until the deadline, which restarts whenever something is
    /// stored; then logs what is lost.
    pub fn store_all(&self) -> Result<()> {
        self.fs.names().table().end();
        let grace = self.fs.options().stop_deadline;
        let mut deadline = Instant::now() + grace;
        let mut dirty_bytes = self.fs.engine().counters().dirty_bytes;
        loop {
            let failed = self.fs.store_all(grace);
            let Some((_, first)) = failed.first() else {
                self.exit_status.record(None);
                return Ok(());
            };
            let dirty_now = self.fs.engine().counters().dirty_bytes;
            if dirty_now < dirty_bytes {
                (dirty_bytes, deadline) = (dirty_now, Instant::now() + grace);
            }
            if Instant::now() >= deadline {
                let arrays = failed.iter().map(|(path, error)| format!("/{path}: {error}\n"));
                let lost = arrays.collect::<String>() + &self.fs.internal_files().unsaved_text();
                for line in lost.lines() {
                    log::error!("LOST: {line}");
                }
                self.exit_status.record(Some(&lost));
                return Err(Error::Usage(lost_changes(failed.len(), first)));
            }
            std::thread::sleep(STORE_RETRY);
        }
    }

    /// Returns whether this mount is detached.
    pub fn is_detached(&self) -> bool {
        let entry = mount_at(self.mountpoint()).ok().flatten();
        let is_ours = |entry: &MountEntry| {
            let is_another = self.device.get().is_some_and(|device| *device != entry.device);
            entry.filesystem_type == FILESYSTEM_TYPE && !is_another
        };
        !entry.as_ref().is_some_and(is_ours)
    }

    /// Detaches this mount, if it is still attached.
    pub fn detach(&self) {
        if self.is_detached() {
            return;
        }
        let mountpoint = self.mountpoint().to_owned();
        let detached = self.mount_thread.run(move || detach::detach(&mountpoint, true));
        if let Ok(Err(error)) = detached {
            log::error!("cannot unmount {}: {error}", self.mountpoint().display());
        }
    }
}

/// Starts a thread that is not waited for.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map(drop)
        .map_err(|error| Error::Usage(format!("cannot start the thread {name}: {error}")))
}

fn lost_changes(arrays: usize, first: &Error) -> String {
    let noun = if arrays == 1 { "array" } else { "arrays" };
    format!("changes to {arrays} {noun} could not be stored and are lost; first failure: {first}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_array_is_singular() {
        let first = Error::TimedOut { key: "a/c/0".to_owned() };
        assert!(lost_changes(1, &first).starts_with("changes to 1 array could not be stored"));
        assert!(lost_changes(2, &first).starts_with("changes to 2 arrays could not be stored"));
    }
}
