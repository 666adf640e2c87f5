//! The watchdog of the service manager (`WatchdogSec=`): a daemon that no longer replies is ended, and another one continues.
//!
//! A message is sent only after a few requests were answered, in the same way as a session thread answers them: the attributes of
//! the root, a lookup, and a folder that is opened, listed and closed. So the watchdog notices a deadlock there. A store that does
//! not respond does not trip it, because these requests are answered from the mount's own tables. They do not go through the
//! kernel: a thread that waits in the kernel for its own process cannot be killed, and then the service manager could not start
//! another daemon.

use std::env;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::mount::daemon::service_manager::sd_notify;
use crate::mount::daemon::shutdown::spawn;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::ROOT;
use crate::mount::fs::{FileSystem, INTERNALS};

/// How many messages are sent in the time in which one must be.
const MESSAGES: u32 = 4;

/// Sends the messages, if the service manager waits for them, until the process or the file system ends.
pub fn start(fs: &Arc<FileSystem>) {
    let Some(interval) = interval() else { return };
    let fs = Arc::downgrade(fs);
    if let Err(error) = spawn("zarrfs-sd-watch", move || watch(&fs, interval / MESSAGES)) {
        log::error!("{error}: the watchdog will end this process");
    }
}

/// Returns the time in which a message must come; `None` if none must.
fn interval() -> Option<Duration> {
    let is_for_us = env::var("WATCHDOG_PID").map_or(true, |pid| pid.parse() == Ok(std::process::id()));
    let microseconds = env::var("WATCHDOG_USEC").ok()?.parse().ok().filter(|&time: &u64| time > 0)?;
    is_for_us.then(|| Duration::from_micros(microseconds))
}

fn watch(fs: &Weak<FileSystem>, pause: Duration) {
    while let Some(fs) = fs.upgrade() {
        match answer(&fs) {
            Ok(()) => sd_notify::send("WATCHDOG=1"),
            Err(failure) => log::error!("the mount's own folder cannot be read: {}", errno_text(&failure)),
        }
        drop(fs);
        thread::sleep(pause);
    }
}

fn errno_text(failure: &Failure) -> String {
    std::io::Error::from_raw_os_error(failure.errno()).to_string()
}

/// Answers some requests without the store.
fn answer(fs: &FileSystem) -> FsResult<()> {
    let replied = |result: FsResult<_>| match result {
        // What is not in memory goes to a thread that may wait.
        Err(Failure::WouldBlock) => Ok(None),
        result => result.map(Some),
    };
    // A store that fails has replied, too.
    let _ = fs.attributes(ROOT, Blocking::No);
    let Some(folder) = replied(fs.lookup(ROOT, INTERNALS, Blocking::No))? else { return Ok(()) };
    let handle = fs.opens().open_folder(folder.attributes.inode)?;
    let listed = fs.opens().listing(handle, Blocking::No).map(drop);
    fs.opens().release(handle);
    replied(listed.map(|()| folder)).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mount::options::Options;
    use crate::store::MemoryStore;

    #[test]
    fn requests_are_answered_and_leave_nothing_open() {
        let store = Arc::new(MemoryStore::new());
        let fs = FileSystem::new(Arc::new(Options::new("s", "/mnt")), store);
        for _ in 0..3 {
            answer(&fs).unwrap();
        }
        assert_eq!(fs.handles().len(), 0);
    }
}
