//! Operations other than write(2) that change ranges of a file: fallocate(2) and copy_file_range(2).

use crate::array::ReplyBuffer;
use crate::cancellation::Cancellation;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::{FileRead, OpenFile};
use crate::mount::fs::page_cache::page_drops::PageDrop;
use crate::mount::fs::write::{AcceptedWrite, BegunWrite};

/// Bytes copied or zeroed at a time.
const PART_BYTES: usize = 1 << 20;

/// The result of copy_file_range(2).
#[derive(Debug)]
pub struct CopyResult {
    /// The number of bytes.
    pub length: u64,
    /// Pages to drop besides those of the range, which the kernel drops itself.
    pub drop: Option<PageDrop>,
}

impl FileSystem {
    /// fallocate(2): holes and zero ranges are written as zeros; space is never reserved, and the size never
    /// changes. Returns the pages to drop besides those of the range, which the kernel drops itself.
    pub fn allocate(
        &self,
        handle: u64,
        (offset, length): (u64, u64),
        mode: i32,
        cancellation: &Cancellation,
    ) -> FsResult<Option<PageDrop>> {
        let _entered = self.enter(Blocking::Yes)?;
        let file = self.file(handle)?;
        let (array, size_bytes) = self.writable(&*file)?;
        let end = offset.checked_add(length).ok_or(Failure::Errno(libc::EFBIG))?;
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        match mode {
            0 if end > size_bytes => Err(Failure::Errno(libc::EFBIG)),
            0 => self.extend(array, end, size_bytes),
            _ if mode == libc::FALLOC_FL_PUNCH_HOLE | keep || mode == libc::FALLOC_FL_ZERO_RANGE | keep => {
                // Bytes after the written end of a truncated file are not part of such a range.
                let written_end = array.inode.written_end.get().unwrap_or(size_bytes);
                let end = end.min(size_bytes).min(written_end);
                self.write_zeros(&*file, offset, end, cancellation).map(|()| None)
            }
            libc::FALLOC_FL_ZERO_RANGE if end <= size_bytes => {
                let drop = self.extend(array, end, size_bytes)?;
                let zeroed = self.write_zeros(&*file, offset, end, cancellation);
                if zeroed.is_err() && drop.is_some() {
                    // The kernel may still cache what was in the gap, and no reply names it.
                    array.inode.page_cache_users.drops.note_reason();
                }
                zeroed.map(|()| drop)
            }
            libc::FALLOC_FL_ZERO_RANGE => Err(Failure::Errno(libc::EFBIG)),
            _ => Err(Failure::Errno(libc::EOPNOTSUPP)),
        }
    }

    fn write_zeros(
        &self,
        file: &dyn OpenFile,
        offset: u64,
        end: u64,
        cancellation: &Cancellation,
    ) -> FsResult<()> {
        let zeros = vec![0; PART_BYTES];
        let mut at = offset;
        while at < end {
            cancellation.check("")?;
            let length = usize::try_from(end - at).unwrap_or(PART_BYTES).min(PART_BYTES);
            let data = zeros.get(..length).unwrap_or(&zeros);
            let written = file.write(self, (at, data), false, Blocking::Yes)?;
            at += u64::from(written.finish().length);
        }
        Ok(())
    }

    /// copy_file_range(2) between two files of this mount.
    pub fn copy(
        &self,
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
        cancellation: &Cancellation,
    ) -> FsResult<CopyResult> {
        let _entered = self.enter(Blocking::Yes)?;
        let (source, file) = (self.file(from), self.file(to)?);
        self.writable(&*file)?;
        let source = source?;
        let mut drop = None;
        let mut buffer = ReplyBuffer::default();
        let mut done = 0;
        while done < length {
            let part = u32::try_from(length - done).unwrap_or(u32::MAX).min(PART_BYTES as u32);
            let range = (from_offset + done, part);
            let read = FileRead { range, blocking: Blocking::Yes, cancellation };
            let data = self.read_file(&*source, read, &mut buffer)?;
            if data.is_empty() {
                break;
            }
            let written = file.write(self, (to_offset + done, &data), false, Blocking::Yes);
            match written.map(BegunWrite::finish) {
                Ok(AcceptedWrite { length, overtaken }) => {
                    done += u64::from(length);
                    drop = drop.or(overtaken);
                }
                Err(_) if done > 0 => break,
                Err(failure) => return Err(failure),
            }
            if data.len() < part as usize {
                break;
            }
        }
        Ok(CopyResult { length: done, drop })
    }
}
