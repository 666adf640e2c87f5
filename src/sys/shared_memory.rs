//! A part of a file in memory that is mapped, as a safe type. What is written there is in the file at once, and outlives the process if
//! another one holds the file. Part of `sys.rs`; like it, it uses nothing of the crate.
//!
//! A copy into mapped memory takes a quarter of the time of pwrite(2), and a short one needs no system call.
//!
//! Manual pages: mmap(2), madvise(2), memfd_create(2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;
/// So much memory is provided at one time: a page fault for every 4 KiB would cost more than the copy.
const STEP_BYTES: usize = 256 << 10;

/// A mapping, unmapped with the last bytes that were taken from it.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping can be unmapped by any thread.
unsafe impl Send for Mapping {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and all bytes that were taken from it are gone: each part holds an `Arc` of it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A mapped range of a file from which bytes are taken, one part after the other.
pub struct SharedMemory {
    mapping: Arc<Mapping>,
    /// The start of the bytes that were not taken.
    at: usize,
    /// The end of the bytes that have memory.
    provided: usize,
}

impl SharedMemory {
    /// Maps `length` bytes of a file, from `offset` on. Both are multiples of 4096, and the file is that long. It must be a file in memory
    /// that no process shortens, and no other one writes to this range.
    pub fn map(file: &File, offset: u64, length: usize) -> io::Result<SharedMemory> {
        let is_in_pages = offset.is_multiple_of(PAGE_BYTES as u64) && length.is_multiple_of(PAGE_BYTES);
        let end = offset.checked_add(length as u64);
        if !is_in_pages || length == 0 || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if end > Some(file.metadata()?.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory. The range is inside the file.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, access, kind, file.as_raw_fd(), offset as libc::off_t)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(SharedMemory { mapping: Arc::new(Mapping { start, length }), at: 0, provided: 0 })
    }

    /// Returns how many bytes were not taken yet.
    pub fn remaining(&self) -> usize {
        self.mapping.length - self.at
    }

    /// Takes the next bytes, which are what the file has there. Fails if there are fewer, or if the system has no memory.
    pub fn take(&mut self, length: usize) -> io::Result<SharedBytes> {
        if length > self.remaining() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let end = self.at + length;
        if end > self.provided {
            let until = end.next_multiple_of(STEP_BYTES).min(self.mapping.length);
            // SAFETY: the range is inside the mapping and begins on a page. Providing memory changes no content. Without memory the call
            // fails, and a write would end the process.
            super::check(unsafe {
                libc::madvise(
                    self.mapping.start.as_ptr().add(self.provided).cast(),
                    until - self.provided,
                    libc::MADV_POPULATE_WRITE,
                )
            })?;
            self.provided = until;
        }
        // SAFETY: `at` is inside the mapping.
        let start = unsafe { self.mapping.start.add(self.at) };
        self.at = end;
        Ok(SharedBytes { start, length, _mapping: Arc::clone(&self.mapping) })
    }

    /// Lets all bytes be taken again. Returns whether that is possible: nothing that was taken may be in use.
    pub fn rewind(&mut self) -> bool {
        let is_unused = Arc::get_mut(&mut self.mapping).is_some();
        if is_unused {
            self.at = 0;
        }
        is_unused
    }
}

/// Bytes of a file that this value alone may write.
pub struct SharedBytes {
    start: NonNull<u8>,
    length: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: it is the only owner of its bytes, which are plain memory.
unsafe impl Send for SharedBytes {}
// SAFETY: through a shared reference they can only be read.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// Writes eight bytes from `at` on, after everything that was written before: a process that finds them in the file finds that, too, even if
    /// this process is killed at any instruction. Fails if their address is not a multiple of 8, or if they do not fit.
    pub fn publish(&mut self, at: usize, bytes: [u8; 8]) -> io::Result<()> {
        let start = self.start.as_ptr().wrapping_add(at);
        let is_inside = at.checked_add(bytes.len()).is_some_and(|end| end <= self.length);
        if !is_inside || !start.cast::<u64>().is_aligned() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the eight bytes are inside of this part, aligned, and `&mut self` is the only access in this process.
        let word = unsafe { AtomicU64::from_ptr(start.cast()) };
        word.store(u64::from_ne_bytes(bytes), Ordering::Release);
        Ok(())
    }
}

impl std::ops::Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped and have memory as long as `_mapping` lives, and no other part has any of them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for SharedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_written_is_in_the_file() {
        let file = File::from(super::super::memory_file(c"zarrfs-test").unwrap());
        file.set_len(1 << 20).unwrap();
        let mut memory = SharedMemory::map(&file, 4096, 512 << 10).unwrap();
        let mut first = memory.take(100).unwrap();
        let mut second = memory.take(300 << 10).unwrap();
        first.copy_from_slice(&[1; 100]);
        second.fill(2);
        first.publish(8, [3; 8]).unwrap();
        assert!(first.publish(96, [4; 8]).is_err(), "it is outside");
        assert!(first.publish(1, [4; 8]).is_err(), "it is not aligned");
        let mut found = vec![0; 102];
        file.read_exact_at(&mut found, 4096).unwrap();
        assert_eq!(found, [vec![1; 8], vec![3; 8], vec![1; 84], vec![2; 2]].concat());
        assert!(!memory.rewind());
        drop((first, second));
        assert!(memory.rewind());
        assert_eq!(&memory.take(16).unwrap()[8..], [3; 8]);
        assert!(memory.take(memory.remaining() + 1).is_err());
        assert!(memory.take(memory.remaining()).is_ok());
    }

    #[test]
    fn ranges_outside_of_the_file_are_refused() {
        let file = File::from(super::super::memory_file(c"zarrfs-test").unwrap());
        file.set_len(8192).unwrap();
        for (offset, length) in
            [(0, 0), (1, 4096), (0, 100), (4096, 8192), (u64::MAX - 4095, 4096), (8192, 4096)]
        {
            assert!(SharedMemory::map(&file, offset, length).is_err(), "{offset} {length}");
        }
        assert!(SharedMemory::map(&file, 4096, 4096).is_ok());
    }
}
