//! The end of a mount, as its daemon sees it: nobody new comes in, who is inside is served, what was written is stored.
//!
//! Told by a signal: the kernel gives up the pages it holds, the mount leaves the tree, and the session ends with its last user or
//! at the deadline. Invariants: nothing here waits for ever, whatever the store does; what can be stored is stored,
//! however long it takes, as long as something gets there within each [`Options::stop_deadline`](crate::mount::options::Options).

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};

use crate::error::{Error, Result};
use crate::mount::fs::FileSystem;
use crate::mount::mounting;
use crate::mount::notify;
use crate::mount::privileges::Mounter;
use crate::mount::process::{FILESYSTEM_TYPE, MountEntry, mount_at, with_patience};
use crate::mount::session::spawn;
use crate::mount::system_log;
use crate::sys;

/// How long is waited before what could not be stored is tried again.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// How long the mount stays visible while the kernel hands over its pages.
const PAGES_PATIENCE: Duration = Duration::from_secs(5);
/// Where nothing gets stored for so long, the mount leaves the tree before more is tried.
const FIRST_QUIET: Duration = Duration::from_secs(2);
/// How often the service manager hears that the end is under way.
const NEWS_INTERVAL: Duration = Duration::from_secs(3);

/// A mount that is being served.
pub struct Mounted {
    /// What it shows.
    pub fs: Arc<FileSystem>,
    mounter: Arc<Mounter>,
    notifier: Arc<OnceLock<Notifier>>,
    is_ending: AtomicBool,
    is_announced: AtomicBool,
    /// As [`MountEntry::device`], once it is known: somebody may have unmounted ours and
    /// mounted another there.
    device: OnceLock<String>,
}

impl Mounted {
    /// A mount that was made by `mounter`; the notifier comes with the session.
    pub fn new(fs: Arc<FileSystem>, mounter: Arc<Mounter>, notifier: Arc<OnceLock<Notifier>>) -> Self {
        let (is_ending, is_announced) = (AtomicBool::new(false), AtomicBool::new(false));
        Mounted { fs, mounter, notifier, is_ending, is_announced, device: OnceLock::new() }
    }

    /// Where it is.
    pub fn mountpoint(&self) -> &Path {
        &self.fs.options().mountpoint
    }

    /// The mount answers: as this device.
    pub fn note_device(&self, device: u64) {
        let _ = self.device.set(format!("{}:{}", libc::major(device), libc::minor(device)));
    }

    /// SIGTERM or SIGINT: no new users; those who are inside are served until they leave, or the deadline.
    pub fn end(self: &Arc<Self>) {
        if self.is_ending.swap(true, Ordering::AcqRel) {
            log::warn!("told to end a second time: not waiting for open files");
            return self.exit_apart();
        }
        log::info!("ending");
        self.announce_end();
        let mount = self.clone();
        // Signals are still heard meanwhile.
        if spawn("zarrfs-ending", move || mount.leave()).is_err() {
            self.detach();
            self.exit();
        }
    }

    fn leave(&self) {
        self.fs.store_all(FIRST_QUIET);
        self.take_pages();
        self.detach();
        let deadline = Instant::now() + self.fs.options().stop_deadline;
        // The process ends with its session.
        while let Some(rest) = deadline.checked_duration_since(Instant::now()) {
            std::thread::sleep(rest.min(Duration::from_millis(100)));
        }
        log::warn!("{} files were still open at the deadline", self.fs.open_handles());
        self.exit();
    }

    /// Has the kernel hand over what was written through memory maps and not yet sent.
    fn take_pages(&self) {
        let inodes = self.fs.written_inodes();
        let Some(notifier) = self.notifier.get().cloned().filter(|_| !inodes.is_empty()) else { return };
        let mountpoint = if self.has_left() { None } else { Some(self.mountpoint().to_owned()) };
        let taken = with_patience(PAGES_PATIENCE, move || {
            // Starts all writes at once; the other call waits for them page by page.
            if let Some(folder) = mountpoint.and_then(|path| fs::File::open(path).ok()) {
                let _ = sys::sync_filesystem(folder.as_fd());
            }
            for inode in inodes {
                let _ = notifier.inval_inode(INodeNo(inode), 0, 0);
            }
        });
        if taken.is_none() {
            log::warn!("the kernel still holds pages that were written through memory maps");
        }
    }

    /// Tells the service manager, once, and again until the process ends, that this takes its time.
    pub fn announce_end(self: &Arc<Self>) {
        if self.is_announced.swap(true, Ordering::AcqRel) {
            return;
        }
        let mount = self.clone();
        notify::stopping();
        let _ = spawn("zarrfs-news", move || {
            let deadline = mount.fs.options().stop_deadline;
            loop {
                notify::ending(mount.fs.open_handles(), mount.fs.dirty_bytes(), deadline + 2 * NEWS_INTERVAL);
                std::thread::sleep(NEWS_INTERVAL);
            }
        });
    }

    fn exit_apart(self: &Arc<Self>) {
        let mount = self.clone();
        if spawn("zarrfs-exit", move || mount.exit()).is_err() {
            self.exit();
        }
    }

    /// Ends the process without waiting for anybody, once what was written is stored.
    fn exit(&self) {
        self.fs.end_service();
        self.take_pages();
        let stored = self.store_all();
        if let Err(error) = &stored {
            log::error!("{error}");
        }
        system_log::flush();
        std::process::exit(i32::from(stored.is_err()));
    }

    /// Stores everything that is still dirty, trying again until the deadline, which begins anew with all that gets through; then
    /// what is lost is named.
    pub fn store_all(&self) -> Result<()> {
        let patience = self.fs.options().stop_deadline;
        let mut deadline = Instant::now() + patience;
        let mut dirty_bytes = self.fs.dirty_bytes();
        loop {
            let failed = self.fs.store_all(patience);
            let Some((_, first)) = failed.first() else {
                self.fs.outcome.tell(None);
                return Ok(());
            };
            let dirty_now = self.fs.dirty_bytes();
            if dirty_now < dirty_bytes {
                (dirty_bytes, deadline) = (dirty_now, Instant::now() + patience);
            }
            if Instant::now() >= deadline {
                let arrays = failed.iter().map(|(path, error)| format!("/{path}: {error}\n"));
                let lost = arrays.collect::<String>() + &self.fs.unsaved_text();
                for line in lost.lines() {
                    log::error!("LOST: {line}");
                }
                self.fs.outcome.tell(Some(&lost));
                return Err(Error::Usage(lost_changes(failed.len(), first)));
            }
            std::thread::sleep(STORE_RETRY);
        }
    }

    /// Whether our mount is out of the tree.
    pub fn has_left(&self) -> bool {
        let entry = mount_at(self.mountpoint()).ok().flatten();
        let is_ours = |entry: &MountEntry| {
            let is_another = self.device.get().is_some_and(|device| *device != entry.device);
            entry.filesystem_type == FILESYSTEM_TYPE && !is_another
        };
        !entry.as_ref().is_some_and(is_ours)
    }

    /// Takes our mount out of the tree, if it still is there.
    pub fn detach(&self) {
        if self.has_left() {
            return;
        }
        let mountpoint = self.mountpoint().to_owned();
        let detached = self.mounter.run(move || mounting::detach(&mountpoint, true));
        if let Ok(Err(error)) = detached {
            log::error!("cannot unmount {}: {error}", self.mountpoint().display());
        }
    }
}

fn lost_changes(arrays: usize, first: &Error) -> String {
    let noun = if arrays == 1 { "array" } else { "arrays" };
    format!("changes to {arrays} {noun} could not be stored and are lost; the first: {first}")
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
