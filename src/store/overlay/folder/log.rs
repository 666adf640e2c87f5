//! The file of an overlay's list of changes. Lines are appended, and made durable together. Uses `line.rs` only.
//!
//! Invariant: bytes that are not durable are also in memory, so that they can be written again after a failure.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use parking_lot::Mutex;

use super::line::Line;

/// The file, open for appending.
pub struct ChangeLog {
    file: File,
    tail: Mutex<Tail>,
    /// Held while the file is synced. A thread that waits for it often finds that its own line is durable by then.
    syncing: Mutex<()>,
}

/// The end of the file.
struct Tail {
    /// How many bytes are durable.
    durable: u64,
    /// The bytes after them.
    bytes: Vec<u8>,
    /// Whether the file may have other bytes, because an append or a sync failed.
    is_suspect: bool,
}

impl Tail {
    fn end(&self) -> u64 {
        self.durable + self.bytes.len() as u64
    }

    /// Writes the bytes that are not durable again after a failure. (After a failed sync the kernel counts its pages as clean.)
    fn rewrite(&mut self, file: &File) -> io::Result<()> {
        if self.is_suspect {
            file.set_len(self.end())?;
            write_at(file, &self.bytes, self.durable)?;
            self.is_suspect = false;
        }
        Ok(())
    }
}

/// Writes bytes at a place. The caller holds the lock of the tail, so that no other thread moves the file's position.
fn write_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

impl ChangeLog {
    /// Continues a file whose first `durable` bytes are durable.
    pub fn new(file: File, durable: u64) -> Self {
        let tail = Tail { durable, bytes: Vec::new(), is_suspect: false };
        ChangeLog { file, tail: Mutex::new(tail), syncing: Mutex::default() }
    }

    /// Appends a line and returns where it ends in the file.
    pub fn append(&self, line: &Line) -> io::Result<u64> {
        let mut tail = self.tail.lock();
        tail.rewrite(&self.file)?;
        let text = line.encode(tail.durable);
        if let Err(error) = write_at(&self.file, text.as_bytes(), tail.end()) {
            tail.is_suspect = true;
            return Err(error);
        }
        tail.bytes.extend_from_slice(text.as_bytes());
        Ok(tail.end())
    }

    /// Makes the file durable up to `end`.
    pub fn make_durable(&self, end: u64) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let all = {
            let mut tail = self.tail.lock();
            if tail.durable >= end {
                return Ok(());
            }
            tail.rewrite(&self.file)?;
            tail.end()
        };
        let synced = self.file.sync_data();
        let mut tail = self.tail.lock();
        match &synced {
            Ok(()) => {
                let length = (all - tail.durable) as usize;
                tail.bytes.drain(..length);
                tail.durable = all;
            }
            Err(_) => tail.is_suspect = true,
        }
        synced
    }

    /// Makes all lines durable.
    pub fn sync(&self) -> io::Result<()> {
        let end = self.tail.lock().end();
        self.make_durable(end)
    }
}
