//! The kinds of open files: an array's own file, a sidecar that is written, a virtual file, a folder.
//!
//! What an array's file does is in `read.rs` and `write`, as functions of the file system.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::{Array, Reader, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::formats::virtual_file::{FileReader, VirtualFile};
use crate::mount::fs::FileSystem;
use crate::mount::fs::arrays::ArrayInUse;
use crate::mount::fs::error::{Blocking, FsResult};
use crate::mount::fs::handle::{FileRead, FolderEntry, OpenFile, Writer};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::page_cache::cache_mode::CacheMode;
use crate::mount::fs::page_cache::page_drops::{OpenDrop, PageDrop};
use crate::mount::fs::read::ReadData;
use crate::mount::fs::virtual_files::sidecar_edit::Draft;
use crate::mount::fs::virtual_files::views::PlaneNames;
use crate::mount::fs::write::{AcceptedWrite, BegunWrite};
use crate::store::Readers;

/// An array's own file.
pub struct ArrayFile {
    /// The array.
    pub inode: Arc<Inode>,
    /// The reader's position and access pattern.
    pub reader: Reader,
    /// Present if the handle may write.
    pub writer: Option<Writer>,
    /// Whether the kernel caches the data of this handle.
    pub cache_mode: CacheMode,
    /// The page drop that goes with the reply to the open.
    pub drop: OpenDrop,
    /// The users that may read the array.
    pub readers: Arc<Readers>,
    /// Opened with O_APPEND.
    pub appends: bool,
}

impl ArrayFile {
    /// Whether the kernel reads the object of this handle itself.
    pub fn is_passthrough(&self) -> bool {
        self.cache_mode.is_passthrough()
    }

    /// Whether a write with these flags (those of the file and of the write itself: O_DSYNC for RWF_DSYNC)
    /// must be stored before the reply. For writes through the page cache the kernel sends an fsync itself.
    pub fn stores_at_once(&self, flags: i32) -> bool {
        flags & libc::O_DSYNC != 0 && (self.cache_mode.is_direct() || flags & libc::O_DIRECT != 0)
    }

    /// Whether the file was truncated and is not written to its end yet.
    pub fn is_cut_short(&self) -> bool {
        self.inode.written_end.get().is_some()
    }

    /// Whether a write at `offset` leaves a gap that must be zeroed.
    pub fn has_gap(&self, offset: u64) -> bool {
        self.inode.written_end.get().is_some_and(|end| end < offset)
    }

    /// The page drop that lossy codecs need: the pages hold what was written, the store holds something else.
    pub fn lossy_pages(&self) -> Option<PageDrop> {
        self.writer.as_ref()?;
        let open = self.inode.open_array()?;
        let is_lossy = open.array.as_ref().is_ok_and(|array| !array.is_lossless());
        is_lossy.then(|| self.inode.page_cache_users.drops.begin(None))
    }
}

impl ArrayFile {
    /// Whether the last operation of a writer was a close(2).
    fn note_closing(&self, is_closing: bool) {
        if let Some(writer) = &self.writer {
            writer.is_closing.store(is_closing, Ordering::Relaxed);
        }
    }
}

impl OpenFile for ArrayFile {
    fn read<'a>(
        &self,
        fs: &FileSystem,
        read: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        self.drop.note_use();
        let data = fs.read_array(self, read, buffer);
        fs.note_failed_read(&self.inode, read.range, data)
    }

    fn write<'a>(
        &self,
        fs: &FileSystem,
        (offset, data): (u64, &'a [u8]),
        is_page: bool,
        blocking: Blocking,
    ) -> FsResult<BegunWrite<'a>> {
        fs.write_within(self, offset, data, is_page, blocking)
    }

    fn flush(&self, fs: &FileSystem, number: u64, process: u32) -> FsResult<()> {
        // Whatever close(2) returns, the descriptor is gone.
        self.note_closing(true);
        fs.store(self, "close", Array::flush, |writer, now| {
            let reported_by_close = writer.reported_by_close.swap(now, Ordering::AcqRel);
            reported_by_close.max(writer.reported.load(Ordering::Acquire))
        })?;
        fs.ensure_complete(self, Some((number, process)))
    }

    fn fsync(&self, fs: &FileSystem) -> FsResult<()> {
        self.note_closing(false);
        fs.store(self, "fsync", Array::sync, |writer, now| writer.reported.swap(now, Ordering::AcqRel))
    }

    fn seek(
        &self,
        fs: &FileSystem,
        start: u64,
        wants_hole: bool,
        cancellation: &Cancellation,
    ) -> FsResult<Option<u64>> {
        fs.recheck(&self.inode)?;
        let array = fs.array_of(&self.inode)?;
        let size_bytes = self.inode.written_end.shown_size(array.size_bytes());
        let found = match wants_hole {
            _ if start >= size_bytes => None,
            true => array.next_hole(start, cancellation)?.map(|hole| hole.min(size_bytes)),
            false => array.next_data(start, cancellation)?.filter(|&data| data < size_bytes),
        };
        Ok(found)
    }

    fn release(&self, fs: &FileSystem) {
        self.drop.note_use();
        fs.end_writer(self);
    }

    fn is_writer(&self) -> bool {
        self.writer.is_some()
    }

    fn as_array(&self) -> Option<&ArrayFile> {
        Some(self)
    }
}

/// A sidecar that is open for writing.
pub struct DraftFile {
    /// The sidecar.
    pub inode: Arc<Inode>,
    /// Its text, shared by all handles that write it.
    pub draft: Arc<Draft>,
}

impl OpenFile for DraftFile {
    fn read<'a>(
        &self,
        _fs: &FileSystem,
        FileRead { range: (offset, size), .. }: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        Ok(ReadData::Copied(self.draft.read(offset, size, buffer)))
    }

    fn write<'a>(
        &self,
        _fs: &FileSystem,
        (offset, data): (u64, &'a [u8]),
        _is_page: bool,
        _blocking: Blocking,
    ) -> FsResult<BegunWrite<'a>> {
        let length = self.draft.write(offset, data)?;
        Ok(BegunWrite { accepted: AcceptedWrite { length, overtaken: None }, pending: None })
    }

    fn flush(&self, fs: &FileSystem, _number: u64, _process: u32) -> FsResult<()> {
        fs.apply_draft(&self.inode, &self.draft, "close")
    }

    fn fsync(&self, fs: &FileSystem) -> FsResult<()> {
        fs.apply_draft(&self.inode, &self.draft, "fsync")
    }

    fn seek(
        &self,
        _fs: &FileSystem,
        start: u64,
        wants_hole: bool,
        _cancellation: &Cancellation,
    ) -> FsResult<Option<u64>> {
        Ok(all_data(self.draft.size_bytes() as u64, start, wants_hole))
    }

    fn release(&self, fs: &FileSystem) {
        if Arc::strong_count(&self.draft) == 1 {
            let _ = fs.apply_draft(&self.inode, &self.draft, "last close");
        }
    }

    fn is_writer(&self) -> bool {
        true
    }
}

/// A generated file or a companion file: a snapshot taken at open, except for the bytes of arrays in it.
pub struct OpenVirtualFile {
    /// The file.
    pub file: Arc<VirtualFile>,
    /// The place of this handle in it.
    pub reader: FileReader,
    /// The arrays in it.
    pub arrays: Vec<ArrayInUse>,
}

impl OpenFile for OpenVirtualFile {
    fn read<'a>(
        &self,
        fs: &FileSystem,
        read: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        let data = fs.read_virtual(self, read, buffer);
        match self.arrays.first() {
            Some(array) => fs.note_failed_read(&array.inode, read.range, data),
            None => data,
        }
    }

    fn seek(
        &self,
        _fs: &FileSystem,
        start: u64,
        wants_hole: bool,
        _cancellation: &Cancellation,
    ) -> FsResult<Option<u64>> {
        Ok(all_data(self.file.size_bytes(), start, wants_hole))
    }

    fn release(&self, _fs: &FileSystem) {
        self.file.rest();
    }
}

/// A folder: a snapshot taken at open.
pub struct Folder {
    /// Its entries.
    pub entries: Vec<FolderEntry>,
    /// The names of planes, if they are in it, too.
    pub planes: Option<PlaneNames>,
}

impl OpenFile for Folder {
    fn entries(&self) -> Option<&[FolderEntry]> {
        Some(&self.entries)
    }

    fn plane(&self, number: u64) -> Option<FolderEntry> {
        self.planes.as_ref()?.entry(number)
    }
}

/// The next hole or data of a file without holes.
fn all_data(size_bytes: u64, start: u64, wants_hole: bool) -> Option<u64> {
    (start < size_bytes).then_some(if wants_hole { size_bytes } else { start })
}
