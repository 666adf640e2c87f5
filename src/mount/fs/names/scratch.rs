//! A scratch file: its bytes in memory, then in an unlinked file, or in the array that is made of them.
//!
//! Uses `make.rs` for that array. Invariants: all scratch files together have no more bytes than the limit (those in an array do not
//! count); what stat(2) needs is never locked for long.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::Caller;
use super::make::Import;
use crate::array::ReplyBuffer;
use crate::cancellation::Cancellation;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::handle::{FileRead, OpenFile};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::read::ReadData;
use crate::mount::fs::write::truncation::SetAttr;
use crate::mount::fs::write::{AcceptedWrite, BegunWrite};
use crate::store::join;

/// A longer file is not in memory.
const MEMORY_BYTES: u64 = 16 << 20;

/// How many bytes scratch files have, and may have.
pub(super) struct Budget {
    used: AtomicU64,
    limit: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Budget { used: AtomicU64::new(0), limit }
    }

    /// A file becomes so long; `false` if that is too much.
    fn change(&self, from: u64, to: u64) -> bool {
        if to <= from {
            self.used.fetch_sub(from - to, Ordering::AcqRel);
            return true;
        }
        let grown = |used: u64| used.checked_add(to - from).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown).is_ok()
    }
}

/// What stat(2) tells, and what became of the file.
#[derive(Clone)]
pub(super) struct Meta {
    pub size_bytes: u64,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub modified: SystemTime,
    /// Written to since it was last judged.
    pub is_touched: bool,
    /// Why it is not what its name says; every close reports it until the next write.
    pub refusal: Option<Failure>,
    /// The same as a sentence.
    pub problem: Option<String>,
}

/// Where the bytes are.
pub(super) enum Content {
    Memory(Vec<u8>),
    Disk(File),
    Import(Box<Import>),
    /// They are a node's now.
    Ended,
}

/// A file that is no node.
pub struct ScratchFile {
    number: u64,
    /// The thread that expects no other name of what it becomes, 0 if none.
    thread: u32,
    /// Its group and its name.
    place: Mutex<(String, String)>,
    meta: Mutex<Meta>,
    content: Mutex<Content>,
    /// Bytes that count against the limit.
    counted: AtomicU64,
    budget: Arc<Budget>,
    /// Handles that may write.
    writers: AtomicUsize,
}

impl ScratchFile {
    pub(super) fn new(number: u64, mode: u16, caller: Caller, budget: &Arc<Budget>) -> Self {
        let meta = Meta {
            size_bytes: 0,
            mode,
            uid: caller.uid,
            gid: caller.gid,
            modified: SystemTime::now(),
            is_touched: false,
            refusal: None,
            problem: None,
        };
        ScratchFile {
            number,
            thread: caller.thread,
            place: Mutex::default(),
            meta: Mutex::new(meta),
            content: Mutex::new(Content::Memory(Vec::new())),
            counted: AtomicU64::new(0),
            budget: budget.clone(),
            writers: AtomicUsize::new(0),
        }
    }

    pub(super) fn entity(&self) -> Entity {
        Entity::new(Kind::Scratch(self.number), "")
    }

    pub(super) fn meta(&self) -> Meta {
        self.meta.lock().clone()
    }

    pub(super) fn caller(&self) -> Caller {
        let meta = self.meta.lock();
        Caller { uid: meta.uid, gid: meta.gid, thread: self.thread }
    }

    /// Its group and its name.
    pub(super) fn place(&self) -> (String, String) {
        self.place.lock().clone()
    }

    pub(super) fn set_place(&self, group: &str, name: &str) {
        *self.place.lock() = (group.to_owned(), name.to_owned());
    }

    fn path(&self) -> String {
        let (group, name) = self.place();
        join(&group, &name)
    }

    /// Notes how the file was judged.
    pub(super) fn note_judgement(&self, refusal: Option<Failure>, problem: Option<String>) {
        let mut meta = self.meta.lock();
        (meta.refusal, meta.problem) = (refusal, problem);
    }

    /// Has the file judged once for what was written; otherwise gives the last judgement.
    pub(super) fn begin_judgement(&self) -> Option<FsResult<()>> {
        let mut meta = self.meta.lock();
        if std::mem::take(&mut meta.is_touched) {
            return None;
        }
        Some(meta.refusal.clone().map_or(Ok(()), Err))
    }

    pub(super) fn touch(&self) {
        self.meta.lock().is_touched = true;
    }

    pub(super) fn content(&self) -> parking_lot::MutexGuard<'_, Content> {
        self.content.lock()
    }

    /// Whether other handles may still write it.
    pub(super) fn has_more_writers_than(&self, writers: usize) -> bool {
        self.writers.load(Ordering::Acquire) > writers
    }

    /// The bytes are elsewhere now.
    pub(super) fn end(&self, content: &mut Content) {
        *content = Content::Ended;
        self.count(0);
    }

    /// Counts its bytes anew; `false` if they are too many.
    fn count(&self, bytes: u64) -> bool {
        let is_allowed = self.budget.change(self.counted.load(Ordering::Acquire), bytes);
        if is_allowed {
            self.counted.store(bytes, Ordering::Release);
        }
        is_allowed
    }

    /// Bytes from an offset; fewer at the end.
    pub(super) fn bytes(&self, content: &Content, offset: u64, length: u64) -> FsResult<Vec<u8>> {
        let size_bytes = self.meta.lock().size_bytes;
        let length = size_bytes.saturating_sub(offset).min(length);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        match content {
            Content::Memory(own) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(own) = own.get(from..from.saturating_add(bytes.len())) {
                    bytes.copy_from_slice(own);
                }
            }
            Content::Disk(file) => file.read_exact_at(&mut bytes, offset).map_err(failed)?,
            Content::Import(import) => import.read(offset, &mut bytes)?,
            Content::Ended => return Err(Failure::Errno(libc::ESTALE)),
        }
        Ok(bytes)
    }

    fn lock(&self, blocking: Blocking) -> FsResult<parking_lot::MutexGuard<'_, Content>> {
        match blocking {
            Blocking::Yes => Ok(self.content.lock()),
            Blocking::No => self
                .content
                .try_lock()
                .filter(|content| matches!(**content, Content::Memory(_)))
                .ok_or(Failure::WouldBlock),
        }
    }

    fn write(&self, fs: &FileSystem, offset: u64, data: &[u8], blocking: Blocking) -> FsResult<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Failure::Errno(libc::EFBIG))?;
        let mut content = self.lock(blocking)?;
        if matches!(*content, Content::Ended) {
            let sentence = "a close or rename has put the file in its place already: open it anew";
            return fs.refuse(("write", &self.path()), libc::ESTALE, sentence);
        }
        if matches!(*content, Content::Memory(_)) && end > MEMORY_BYTES {
            if blocking == Blocking::No {
                return Err(Failure::WouldBlock);
            }
            self.spill(fs, &mut content, offset)?;
        }
        if let Content::Import(import) = &mut *content {
            import.write(offset, data).map_err(|failure| fs.note_names("write", &self.path(), failure))?;
        } else {
            self.extend(fs, &mut content, end)?;
        }
        match &mut *content {
            Content::Memory(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(place) = bytes.get_mut(from..from.saturating_add(data.len())) {
                    place.copy_from_slice(data);
                }
            }
            Content::Disk(file) => file.write_all_at(data, offset).map_err(failed)?,
            Content::Import(_) => {}
            Content::Ended => return Err(Failure::Errno(libc::ESTALE)),
        }
        let mut meta = self.meta.lock();
        meta.size_bytes = meta.size_bytes.max(end);
        (meta.is_touched, meta.refusal, meta.problem, meta.modified) = (true, None, None, SystemTime::now());
        Ok(())
    }

    /// Writes the first bytes.
    pub(super) fn fill(&self, fs: &FileSystem, bytes: &[u8]) -> FsResult<()> {
        self.write(fs, 0, bytes, Blocking::Yes)
    }

    /// Makes room for bytes up to `end`.
    fn extend(&self, fs: &FileSystem, content: &mut Content, end: u64) -> FsResult<()> {
        let size_bytes = self.meta.lock().size_bytes.max(end);
        if !self.count(size_bytes) {
            let limit = self.budget.limit;
            let reason =
                format!("scratch files may have {limit} bytes in all: --scratch-limit is the option");
            return fs.refuse(("write", &self.path()), libc::ENOSPC, reason);
        }
        if let Content::Memory(bytes) = content {
            bytes.resize(usize::try_from(size_bytes).unwrap_or(usize::MAX), 0);
        }
        Ok(())
    }

    /// The file becomes too long for memory.
    fn spill(&self, fs: &FileSystem, content: &mut Content, offset: u64) -> FsResult<()> {
        let Content::Memory(bytes) = &mut *content else { return Ok(()) };
        let is_appended = offset == bytes.len() as u64;
        if let Some(import) = fs.begin_long_import(self, bytes).filter(|_| is_appended) {
            *content = Content::Import(Box::new(import));
            self.count(0);
            return Ok(());
        }
        let file = unlinked_file().map_err(failed)?;
        file.write_all_at(bytes, 0).map_err(failed)?;
        *content = Content::Disk(file);
        Ok(())
    }

    fn resize(&self, fs: &FileSystem, size_bytes: u64) -> FsResult<()> {
        let mut content = self.content.lock();
        if matches!(*content, Content::Memory(_)) && size_bytes > MEMORY_BYTES {
            self.spill(fs, &mut content, u64::MAX)?;
        }
        self.extend(fs, &mut content, size_bytes)?;
        match &mut *content {
            Content::Memory(bytes) => bytes.truncate(usize::try_from(size_bytes).unwrap_or(usize::MAX)),
            Content::Disk(file) => file.set_len(size_bytes).map_err(failed)?,
            Content::Import(import) if size_bytes >= import.end() && size_bytes <= import.total() => {}
            Content::Import(_) => return Err(Failure::Errno(libc::EINVAL)),
            Content::Ended => return Err(Failure::Errno(libc::ESTALE)),
        }
        if !matches!(*content, Content::Import(_)) {
            self.count(size_bytes);
        }
        let mut meta = self.meta.lock();
        (meta.size_bytes, meta.is_touched, meta.refusal, meta.problem) = (size_bytes, true, None, None);
        meta.modified = SystemTime::now();
        Ok(())
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        self.count(0);
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// A file without a name under TMPDIR.
fn unlinked_file() -> std::io::Result<File> {
    let folder = std::env::temp_dir();
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE).open(&folder) {
        // This filesystem has no files without names.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            static LAST: AtomicU64 = AtomicU64::new(0);
            let number = LAST.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!(".zarrfs-scratch-{}-{number}", std::process::id()));
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        file => file,
    }
}

/// An open scratch file.
pub(super) struct ScratchHandle {
    pub file: Arc<ScratchFile>,
    pub may_write: bool,
    /// It is open for reading too, so it may be mapped: writes come after the close.
    pub may_map: bool,
}

impl OpenFile for ScratchHandle {
    fn read<'a>(
        &self,
        _fs: &FileSystem,
        FileRead { range: (offset, size), blocking, .. }: FileRead<'_>,
        buffer: &'a mut ReplyBuffer,
    ) -> FsResult<ReadData<'a>> {
        let content = self.file.lock(blocking)?;
        let bytes = self.file.bytes(&content, offset, size.into())?;
        Ok(ReadData::Copied(buffer.copy_part(&bytes, 0, size)))
    }

    fn write<'a>(
        &self,
        fs: &FileSystem,
        (offset, data): (u64, &'a [u8]),
        _is_page: bool,
        blocking: Blocking,
    ) -> FsResult<BegunWrite<'a>> {
        self.file.write(fs, offset, data, blocking)?;
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Ok(BegunWrite { accepted: AcceptedWrite { length, overtaken: None }, pending: None })
    }

    fn flush(&self, fs: &FileSystem, _number: u64, _process: u32) -> FsResult<()> {
        if !self.may_write || self.may_map {
            return Ok(());
        }
        fs.finish_scratch(&self.file, "close", 1)
    }

    fn seek(
        &self,
        _fs: &FileSystem,
        start: u64,
        wants_hole: bool,
        _cancellation: &Cancellation,
    ) -> FsResult<Option<u64>> {
        let size_bytes = self.file.meta().size_bytes;
        Ok((start < size_bytes).then_some(if wants_hole { size_bytes } else { start }))
    }

    fn release(&self, fs: &FileSystem) {
        if self.may_write && self.file.writers.fetch_sub(1, Ordering::AcqRel) == 1 {
            // It is logged.
            let _ = fs.finish_scratch(&self.file, "last close", 0);
            fs.drop_empty_edit(&self.file);
        }
    }

    fn is_writer(&self) -> bool {
        self.may_write
    }
}

impl FileSystem {
    /// Opens a scratch file; returns the handle, and whether it may write.
    pub(in crate::mount::fs) fn open_scratch(&self, number: u64, flags: i32) -> FsResult<(u64, bool)> {
        let file = self.names.by_number(number).ok_or(Failure::Errno(libc::ESTALE))?;
        let access = flags & libc::O_ACCMODE;
        let may_write = access != libc::O_RDONLY;
        file.writers.fetch_add(usize::from(may_write), Ordering::AcqRel);
        let handle = ScratchHandle { file, may_write, may_map: access == libc::O_RDWR };
        Ok((self.handles.add(handle), may_write))
    }

    /// setattr of a scratch file.
    pub(in crate::mount::fs) fn set_scratch(&self, number: u64, change: &SetAttr) -> FsResult<()> {
        let file = self.names.by_number(number).ok_or(Failure::Errno(libc::ESTALE))?;
        if let Some(size_bytes) = change.size_bytes {
            file.resize(self, size_bytes)?;
        }
        if change.mode.or(change.uid).or(change.gid).is_none() {
            return Ok(());
        }
        // While it becomes a node, it is not certain which mode that gets.
        let content = file.content();
        if matches!(*content, Content::Ended) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let mut meta = file.meta.lock();
        meta.mode = change.mode.map_or(meta.mode, |mode| (mode & 0o777) as u16);
        meta.uid = change.uid.unwrap_or(meta.uid);
        meta.gid = change.gid.unwrap_or(meta.gid);
        Ok(())
    }
}
