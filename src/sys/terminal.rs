//! Terminals. Part of `sys.rs`; like it, it uses nothing of the crate.
//!
//! Manual pages: termios(3), ioctl_tty(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::check;

/// A terminal that gives each key at once and shows none; dropping it restores what was.
pub struct KeyInput {
    terminal: OwnedFd,
    before: libc::termios,
}

impl KeyInput {
    /// Switches a terminal.
    pub fn new(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        let terminal = terminal.try_clone_to_owned()?;
        // SAFETY: termios is a struct of integers, for which all bytes zero is a value.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: `settings` is writable.
        check(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) })?;
        let before = settings;
        // Ctrl-C, Ctrl-Z and Ctrl-\ come as keys, too.
        settings.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
        // A read returns what is there, at least one byte.
        (settings.c_cc[libc::VMIN], settings.c_cc[libc::VTIME]) = (1, 0);
        // SAFETY: `settings` was filled by tcgetattr.
        check(unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &raw const settings) })?;
        Ok(KeyInput { terminal, before })
    }
}

impl AsFd for KeyInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.terminal.as_fd()
    }
}

impl Drop for KeyInput {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by tcgetattr. If the terminal has gone, nothing is left to restore.
        unsafe { libc::tcsetattr(self.terminal.as_raw_fd(), libc::TCSANOW, &raw const self.before) };
    }
}
