//! The file of an overlay's list of changes: lines are appended, and made durable together. Uses `line` only.
//!
//! Invariant: what is not durable is in memory, so that it can be written once more after a failure.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use parking_lot::Mutex;

use super::line::Line;

/// The file, open for appending.
pub(super) struct Log {
    file: File,
    tail: Mutex<Tail>,
    /// Held while the file is synced: who waits for it finds its own line durable.
    syncing: Mutex<()>,
}

/// The end of the file.
struct Tail {
    /// So many bytes are durable.
    durable: u64,
    /// The bytes after them.
    bytes: Vec<u8>,
    /// The bytes in the file may be others: an append or a sync failed.
    is_suspect: bool,
}

impl Tail {
    fn end(&self) -> u64 {
        self.durable + self.bytes.len() as u64
    }

    /// Writes what is not durable once more, after a failure. (After a failed sync the kernel believes it written.)
    fn mend(&mut self, file: &File) -> io::Result<()> {
        if self.is_suspect {
            file.set_len(self.end())?;
            write_at(file, &self.bytes, self.durable)?;
            self.is_suspect = false;
        }
        Ok(())
    }
}

/// The lock of the tail excludes others from the file's position.
fn write_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

impl Log {
    /// The file, of which so many bytes are durable.
    pub fn at(file: File, durable: u64) -> Self {
        let tail = Tail { durable, bytes: Vec::new(), is_suspect: false };
        Log { file, tail: Mutex::new(tail), syncing: Mutex::default() }
    }

    /// Appends a line; returns where it ends.
    pub fn append(&self, line: &Line) -> io::Result<u64> {
        let mut tail = self.tail.lock();
        tail.mend(&self.file)?;
        let text = line.encode(tail.durable);
        if let Err(error) = write_at(&self.file, text.as_bytes(), tail.end()) {
            tail.is_suspect = true;
            return Err(error);
        }
        tail.bytes.extend_from_slice(text.as_bytes());
        Ok(tail.end())
    }

    /// Makes the file durable up to there.
    pub fn make_durable(&self, end: u64) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let all = {
            let mut tail = self.tail.lock();
            if tail.durable >= end {
                return Ok(());
            }
            tail.mend(&self.file)?;
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
