//! The daemon's last word: how `zarrfs umount`, which is not its parent, learns whether all was written.
//!
//! A file without a name (memfd_create(2)), which the daemon writes when it ends. `config.json` says where it is in /proc; who
//! opens it there before the mount goes can read it when the daemon has gone. Uses `sys`.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::sys;

const STORED: &str = "stored\n";
/// More is not read.
const MAX_BYTES: u64 = 1 << 20;

/// The daemon's end.
pub struct ExitStatus {
    file: Option<File>,
}

impl ExitStatus {
    /// Nothing said yet.
    pub fn new() -> Self {
        let file = sys::memory_file(c"zarrfs-outcome")
            .inspect_err(|error| log::debug!("cannot create the exit status for umount: {error}"));
        ExitStatus { file: file.ok().map(File::from) }
    }

    /// Where others of this system open it.
    pub fn path(&self) -> Option<String> {
        let number = self.file.as_ref()?.as_raw_fd();
        Some(format!("/proc/{}/fd/{number}", std::process::id()))
    }

    /// All is stored, or these lines name what is lost.
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

/// What a daemon that has ended said in the end: what is lost, `""` where it said nothing at all; `None` when all is stored.
pub fn lost(outcome: File) -> Option<String> {
    let mut text = String::new();
    // What is no text was not said by a daemon.
    let _ = outcome.take(MAX_BYTES).read_to_string(&mut text);
    (text != STORED).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_word_is_read_by_others() {
        let outcome = ExitStatus::new();
        let open = || File::open(outcome.path().unwrap()).unwrap();
        assert_eq!(lost(open()).as_deref(), Some(""));
        outcome.record(Some("a/c/0\n"));
        assert_eq!(lost(open()).as_deref(), Some("a/c/0\n"));
        outcome.record(None);
        assert_eq!(lost(open()), None);
    }
}
