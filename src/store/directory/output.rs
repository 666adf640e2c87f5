//! Writing the bytes of an object to its file. Uses `memory` and `sys`.
//!
//! A long object bypasses the page cache if the filesystem supports it (open(2), O_DIRECT; statx(2), STATX_DIOALIGN). It must
//! be on the disk before it gets its name anyway, and this saves a copy and fresh pages for it.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;

use super::Object;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::sys;

/// Shorter objects go through the page cache, where they are likely to be read again.
const MIN_DIRECT_BYTES: u64 = 1 << 20;
/// The size of one write.
const PIECE_BYTES: usize = 1 << 20;
/// The alignment of offset and length of direct writes, which every filesystem with direct writes accepts.
const ALIGNMENT: usize = 4096;

/// A writer of one file, from its beginning to its end.
pub(super) struct Output<'a> {
    file: &'a File,
    key: &'a str,
    /// A buffer that begins on a page.
    piece: Option<Buffer>,
    filled: usize,
    is_direct: bool,
}

impl<'a> Output<'a> {
    /// Writes to an empty file, which will have `size_bytes`. `key` is for errors.
    pub fn new(file: &'a File, size_bytes: u64, key: &'a str) -> Self {
        let takes_direct = |alignment: u32| (1..=ALIGNMENT).contains(&(alignment as usize));
        let is_direct = size_bytes >= MIN_DIRECT_BYTES
            && sys::direct_alignment(file.as_fd()).is_ok_and(takes_direct)
            && sys::set_direct(file.as_fd(), true).is_ok();
        Output { file, key, piece: None, filled: 0, is_direct }
    }

    /// Appends bytes.
    pub fn bytes(&mut self, mut bytes: &[u8]) -> Result<()> {
        if !self.is_direct {
            self.put_filled()?;
            let mut file = self.file;
            return file.write_all(bytes).map_err(|error| self.failed(error));
        }
        if self.filled == 0 && bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            // The bytes are aligned and need no copy.
            let (whole, rest) = bytes.split_at(bytes.len() / ALIGNMENT * ALIGNMENT);
            self.write(whole)?;
            bytes = rest;
        }
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.filled));
            self.fill(now.len(), |room| {
                room.copy_from_slice(now);
                Ok(())
            })?;
            bytes = later;
        }
        Ok(())
    }

    /// Appends a range of another object.
    pub fn copy(&mut self, object: &dyn Object, range: &Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let length =
                (PIECE_BYTES - self.filled).min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            self.fill(length, |room| object.read_exact_at(at, room))?;
            at += length as u64;
        }
        Ok(())
    }

    /// Writes the rest. Afterwards the file is open for ordinary writes.
    pub fn finish(&mut self) -> Result<()> {
        let whole = self.filled / ALIGNMENT * ALIGNMENT;
        if self.is_direct {
            self.put(0..whole)?;
            self.end_direct()?;
            self.put(whole..self.filled)?;
            self.filled = 0;
        }
        self.put_filled()
    }

    /// Calls `write` with the next `length` bytes of the piece, which must have room for them. Writes the piece when it is
    /// full.
    fn fill(&mut self, length: usize, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        if self.piece.is_none() {
            self.piece = Buffer::transient(PIECE_BYTES);
        }
        let room = self.piece.as_mut().and_then(|piece| piece.get_mut(self.filled..self.filled + length));
        write(room.ok_or_else(|| Error::store(self.key, "write", io::ErrorKind::OutOfMemory.into()))?)?;
        self.filled += length;
        if self.filled == PIECE_BYTES { self.put_filled() } else { Ok(()) }
    }

    fn put_filled(&mut self) -> Result<()> {
        let filled = std::mem::take(&mut self.filled);
        self.put(0..filled)
    }

    fn put(&mut self, range: Range<usize>) -> Result<()> {
        let Some(piece) = self.piece.take() else { return Ok(()) };
        let put = self.write(piece.get(range).unwrap_or_default());
        self.piece = Some(piece);
        put
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let mut file = self.file;
            match file.write(bytes) {
                Ok(0) => return Err(self.failed(io::ErrorKind::WriteZero.into())),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The filesystem does not support what it announced, or a short write ended within a block.
                Err(error) if self.is_direct && error.kind() == io::ErrorKind::InvalidInput => {
                    self.end_direct()?
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn end_direct(&mut self) -> Result<()> {
        self.is_direct = false;
        sys::set_direct(self.file.as_fd(), false).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::store(self.key, "write", error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::{DirectoryStore, Store};

    #[test]
    fn every_length_is_written_through_the_page_cache_and_directly() {
        let folder = tempfile::tempdir().unwrap();
        let long: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(folder.path().join("source"), &long).unwrap();
        let store = DirectoryStore::open(folder.path(), false).unwrap();
        let source = store.open("source").unwrap().unwrap();
        let lengths = [
            0,
            1,
            4095,
            4096,
            4097,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 5000,
            2 * PIECE_BYTES,
            2_999_999,
        ];
        for length in lengths {
            for copied in [0, 1, 5000, length / 2, length] {
                let copied = copied.min(length);
                let path = folder.path().join("made");
                let file = File::create(&path).unwrap();
                let mut output = Output::new(&file, length as u64, "made");
                let halves = long[..length - copied].split_at((length - copied) / 3);
                output.bytes(halves.0).unwrap();
                output.copy(source.as_ref(), &((length - copied) as u64..length as u64)).unwrap();
                output.bytes(halves.1).unwrap();
                output.finish().unwrap();
                let expected = [halves.0, &long[length - copied..length], halves.1].concat();
                assert!(std::fs::read(&path).unwrap() == expected, "{length} bytes, {copied} of them copied");
            }
        }
    }

    /// After one byte no direct write is aligned: the first one is refused, and all bytes go through the page cache.
    #[test]
    fn unaligned_bytes_go_through_the_page_cache() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"x").unwrap();
        let takes_direct = sys::direct_alignment(file.as_fd()).unwrap() > 0;
        let content: Vec<u8> = (0..2_500_000u32).map(|n| (n >> 7) as u8).collect();
        let mut output = Output::new(&file, content.len() as u64, "made");
        assert_eq!(output.is_direct, takes_direct);
        output.bytes(&content).unwrap();
        assert!(!output.is_direct);
        output.finish().unwrap();
        let mut written = vec![0; content.len() + 1];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut written, 0).unwrap();
        assert!(written[1..] == content);
    }
}
