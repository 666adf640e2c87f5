//! The daemon's exit status: how `zarrfs umount`, which is not its parent, learns whether everything was
//! stored.
//!
//! An unnamed file (memfd_create(2)) that the daemon writes when it exits. `config.json` gives its path in
//! /proc; a process that opens it there before the mount is detached can read it after the daemon has exited.
//! Uses `sys`.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::sys;

const STORED: &str = "stored\n";
/// The most bytes that are read.
const MAX_BYTES: u64 = 1 << 20;

/// The writing side, in the daemon.
pub struct ExitStatus {
    file: Option<File>,
}

impl ExitStatus {
    /// Creates an empty status.
    pub fn new() -> Self {
        let file = sys::memory_file(c"zarrfs-exit-status")
            .inspect_err(|error| log::debug!("cannot create the exit status for umount: {error}"));
        ExitStatus { file: file.ok().map(File::from) }
    }

    /// Returns its path for other processes.
    pub fn path(&self) -> Option<String> {
        let number = self.file.as_ref()?.as_raw_fd();
        Some(format!("/proc/{}/fd/{number}", std::process::id()))
    }

    /// Records that everything is stored, or the lines that name the lost data.
    pub fn record(&self, lost: Option<&str>) {
        let Some(file) = &self.file else { return };
        let reported = file.set_len(0).and_then(|()| file.write_all_at(lost.unwrap_or(STORED).as_bytes(), 0));
        if let Err(error) = reported {
            log::debug!("cannot write the exit status for umount: {error}");
        }
    }
}

impl Default for ExitStatus {
    fn default() -> Self {
        ExitStatus::new()
    }
}

/// The lost data that an exited daemon reported; `""` if it reported nothing at all; `None` if everything is
/// stored.
pub fn read_lost(status: File) -> Option<String> {
    let mut text = String::new();
    // A daemon writes only text.
    let _ = status.take(MAX_BYTES).read_to_string(&mut text);
    (text != STORED).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn another_process_reads_the_status() {
        let status = ExitStatus::new();
        let open = || File::open(status.path().unwrap()).unwrap();
        assert_eq!(read_lost(open()).as_deref(), Some(""));
        status.record(Some("a/c/0\n"));
        assert_eq!(read_lost(open()).as_deref(), Some("a/c/0\n"));
        status.record(None);
        assert_eq!(read_lost(open()), None);
    }
}
