//! A scratch file. Its bytes are in memory first; when there are many, in an unlinked file, or in the array that is made of them.
//! If the session is to outlive its daemon, they are in an unnamed file from the beginning, which somebody else holds, too.
//!
//! This file uses `import.rs` for that array. Invariants: all scratch files together have no more bytes than the limit (those in an
//! array do not count); what stat(2) needs is never locked for long.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::mount::fs::attributes::SetAttr;
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::names::import::NpyImport;
use crate::mount::fs::request::RequestLog;
use crate::mount::journal::Journal;
use crate::mount::journal::held::DescriptorHolder;
use crate::mount::journal::record::Record;
use crate::store::join;
use crate::sys;

/// The longest file that is kept in memory.
const MEMORY_BYTES: u64 = 16 << 20;

/// The user and the thread that make a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The user's primary group.
    pub gid: u32,
    /// The thread, 0 if unknown.
    pub thread: u32,
    /// The number of the kernel's request, 0 if this is none.
    pub request: u64,
}

/// The bytes that all scratch files of a mount have and may have.
pub struct ScratchBudget {
    used: AtomicU64,
    limit: u64,
}

impl ScratchBudget {
    /// Creates an unused budget.
    pub fn new(limit: u64) -> Self {
        ScratchBudget { used: AtomicU64::new(0), limit }
    }

    /// Counts a change of a file's length, or returns `false` if that exceeds the limit.
    fn change(&self, from: u64, to: u64) -> bool {
        if to <= from {
            self.used.fetch_sub(from - to, Ordering::AcqRel);
            return true;
        }
        let grown = |used: u64| used.checked_add(to - from).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown).is_ok()
    }
}

/// What stat(2) shows, and why the file did not become a node.
#[derive(Clone)]
pub struct ScratchMeta {
    /// Size of the file.
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change.
    pub modified: SystemTime,
    /// Whether it was written to since it was last checked.
    pub is_modified: bool,
    /// Why it did not become what its name says. Every close reports this until the next write.
    pub refusal: Option<Failure>,
    /// The refusal as a sentence.
    pub problem: Option<String>,
}

/// The place of a scratch file's bytes.
pub enum ScratchContent {
    /// They are in memory.
    Memory(Vec<u8>),
    /// They are in a file without a name.
    Disk(File),
    /// They are in the array that is made of them.
    Import(Box<NpyImport>),
    /// A node has them now.
    Ended,
}

/// A file that is not a node.
pub struct ScratchFile {
    number: u64,
    /// The thread for which the other name of the node that it becomes is free, 0 if none.
    thread: u32,
    /// Its group and its name.
    place: Mutex<(String, String)>,
    meta: Mutex<ScratchMeta>,
    content: Mutex<ScratchContent>,
    /// The bytes that count against the limit.
    counted: AtomicU64,
    budget: Arc<ScratchBudget>,
    log: Arc<RequestLog>,
    /// The number of handles that may write.
    writers: AtomicUsize,
    /// Where the file is recorded and its bytes are held, if the session is to outlive the daemon.
    session: Option<Arc<KeptSession>>,
    /// The file with the bytes is in memory.
    is_memory_file: AtomicBool,
}

impl ScratchFile {
    /// Creates an empty file of a user. Its bytes are held for another daemon, if there is a holder.
    pub fn new(
        number: u64,
        mode: u16,
        caller: Caller,
        parts: &ScratchParts,
        session: Option<&Arc<KeptSession>>,
    ) -> Self {
        let held = session.and_then(|session| {
            let file = File::from(sys::memory_file(c"zarrfs-scratch").ok()?);
            session.holder.hold(&held_name(number), file.as_fd()).ok()?;
            Some((file, session.clone()))
        });
        let memory = ScratchContent::Memory(Vec::new());
        let mut file = Self::with_content(number, mode, caller, parts, memory);
        if let Some((held, session)) = held {
            (file.content, file.session) = (Mutex::new(ScratchContent::Disk(held)), Some(session));
            file.is_memory_file = AtomicBool::new(true);
        }
        file
    }

    /// Makes the file anew that a daemon before had, with the bytes that were held; `None` if a node has them.
    pub fn restore(
        number: u64,
        mode: u16,
        caller: Caller,
        parts: &ScratchParts,
        session: Option<&Arc<KeptSession>>,
        held: Option<OwnedFd>,
    ) -> Self {
        let Some(held) = held.map(File::from) else {
            return Self::with_content(number, mode, caller, parts, ScratchContent::Ended);
        };
        let (size_bytes, is_memory) =
            held.metadata().map_or((0, false), |found| (found.len(), found.len() <= MEMORY_BYTES));
        let mut file = Self::with_content(number, mode, caller, parts, ScratchContent::Disk(held));
        file.count(size_bytes);
        {
            let mut meta = file.meta.lock();
            // It may not have been checked since it was written to.
            (meta.size_bytes, meta.is_modified) = (size_bytes, true);
        }
        (file.session, file.is_memory_file) = (session.cloned(), AtomicBool::new(is_memory));
        file
    }

    fn with_content(
        number: u64,
        mode: u16,
        caller: Caller,
        parts: &ScratchParts,
        content: ScratchContent,
    ) -> Self {
        let meta = ScratchMeta {
            size_bytes: 0,
            mode,
            uid: caller.uid,
            gid: caller.gid,
            modified: SystemTime::now(),
            is_modified: false,
            refusal: None,
            problem: None,
        };
        ScratchFile {
            number,
            thread: caller.thread,
            place: Mutex::default(),
            meta: Mutex::new(meta),
            content: Mutex::new(content),
            counted: AtomicU64::new(0),
            budget: parts.budget.clone(),
            log: parts.log.clone(),
            writers: AtomicUsize::new(0),
            session: None,
            is_memory_file: AtomicBool::new(false),
        }
    }

    /// Returns its number among scratch files.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns what its inode stands for.
    pub fn entity(&self) -> Entity {
        Entity::new(EntityKind::Scratch(self.number), "")
    }

    /// Returns what stat(2) shows now.
    pub fn meta(&self) -> ScratchMeta {
        self.meta.lock().clone()
    }

    /// Returns its owner, with the thread for which another name is free.
    pub fn caller(&self) -> Caller {
        let meta = self.meta.lock();
        Caller { uid: meta.uid, gid: meta.gid, thread: self.thread, request: 0 }
    }

    /// Returns its group and its name.
    pub fn place(&self) -> (String, String) {
        self.place.lock().clone()
    }

    /// Sets its group and its name.
    pub fn set_place(&self, group: &str, name: &str) {
        *self.place.lock() = (group.to_owned(), name.to_owned());
    }

    fn path(&self) -> String {
        let (group, name) = self.place();
        join(&group, &name)
    }

    /// Records the result of a check.
    pub fn record_check(&self, refusal: Option<Failure>, problem: Option<String>) {
        let mut meta = self.meta.lock();
        (meta.refusal, meta.problem) = (refusal, problem);
    }

    /// Begins a check, if the file was written to since the last one; otherwise returns the result of that.
    pub fn begin_check(&self) -> Option<FsResult<()>> {
        let mut meta = self.meta.lock();
        if std::mem::take(&mut meta.is_modified) {
            return None;
        }
        Some(meta.refusal.clone().map_or(Ok(()), Err))
    }

    /// Makes the next close check the file again.
    pub fn touch(&self) {
        self.meta.lock().is_modified = true;
    }

    /// Locks the bytes.
    pub fn content(&self) -> parking_lot::MutexGuard<'_, ScratchContent> {
        self.content.lock()
    }

    /// Counts one more handle that may write.
    pub fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one handle less that may write, and returns whether it was the last one.
    pub fn remove_writer(&self) -> bool {
        self.writers.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Does chmod(2) and chown(2).
    pub fn set_owner_and_mode(&self, change: &SetAttr) -> FsResult<()> {
        if change.mode.or(change.uid).or(change.gid).is_none() {
            return Ok(());
        }
        // A file that is becoming a node keeps the lock: the node might get the old mode, and the caller the success.
        let content = self.content();
        if matches!(*content, ScratchContent::Ended) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let mut meta = self.meta.lock();
        meta.mode = change.mode.map_or(meta.mode, |mode| (mode & 0o777) as u16);
        meta.uid = change.uid.unwrap_or(meta.uid);
        meta.gid = change.gid.unwrap_or(meta.gid);
        Ok(())
    }

    /// Returns whether more handles than this may write it.
    pub fn has_more_writers_than(&self, writers: usize) -> bool {
        self.writers.load(Ordering::Acquire) > writers
    }

    /// Gives the bytes up, because a node has them now. Later writes fail.
    pub fn end(&self, content: &mut ScratchContent) {
        *content = ScratchContent::Ended;
        self.count(0);
        if let Some(session) = &self.session {
            session.journal.append(&Record::ScratchEnded { number: self.number });
        }
        self.give_up_held();
    }

    fn give_up_held(&self) {
        if let Some(session) = &self.session {
            session.holder.release(&held_name(self.number));
        }
    }

    /// Returns whether the bytes are in memory.
    fn is_in_memory(&self, content: &ScratchContent) -> bool {
        match content {
            ScratchContent::Memory(_) => true,
            ScratchContent::Disk(_) => self.is_memory_file.load(Ordering::Acquire),
            ScratchContent::Import(_) | ScratchContent::Ended => false,
        }
    }

    /// Sets the bytes that count against the limit, or returns `false` if they are too many.
    fn count(&self, bytes: u64) -> bool {
        let is_allowed = self.budget.change(self.counted.load(Ordering::Acquire), bytes);
        if is_allowed {
            self.counted.store(bytes, Ordering::Release);
        }
        is_allowed
    }

    /// Returns bytes from an offset, fewer at the end.
    pub fn bytes(&self, content: &ScratchContent, offset: u64, length: u64) -> FsResult<Vec<u8>> {
        let size_bytes = self.meta.lock().size_bytes;
        let length = size_bytes.saturating_sub(offset).min(length);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        match content {
            ScratchContent::Memory(memory) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(part) = memory.get(from..from.saturating_add(bytes.len())) {
                    bytes.copy_from_slice(part);
                }
            }
            ScratchContent::Disk(file) => file.read_exact_at(&mut bytes, offset).map_err(failed)?,
            ScratchContent::Import(import) => import.read(offset, &mut bytes)?,
            ScratchContent::Ended => return Err(Failure::Errno(libc::ESTALE)),
        }
        Ok(bytes)
    }

    /// Locks the bytes; without blocking, only bytes in memory.
    pub fn lock(&self, blocking: Blocking) -> FsResult<parking_lot::MutexGuard<'_, ScratchContent>> {
        match blocking {
            Blocking::Yes => Ok(self.content.lock()),
            Blocking::No => self
                .content
                .try_lock()
                .filter(|content| self.is_in_memory(content))
                .ok_or(Failure::WouldBlock),
        }
    }

    /// Writes bytes, and makes the next close check the file. If it gets too long for memory, `begin_import` begins the array that is
    /// made of it.
    pub fn write(
        &self,
        offset: u64,
        data: &[u8],
        blocking: Blocking,
        begin_import: impl FnOnce(&[u8]) -> Option<NpyImport>,
    ) -> FsResult<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(Failure::Errno(libc::EFBIG))?;
        let mut content = self.lock(blocking)?;
        if matches!(*content, ScratchContent::Ended) {
            let sentence = "a close or rename has put the file in its place already: open it anew";
            return self.log.refuse_name("write", &self.path(), libc::ESTALE, sentence);
        }
        if end > MEMORY_BYTES && self.is_in_memory(&content) {
            if blocking == Blocking::No {
                return Err(Failure::WouldBlock);
            }
            self.spill(&mut content, offset, begin_import)?;
        }
        if let ScratchContent::Import(import) = &mut *content {
            import
                .write(offset, data)
                .map_err(|failure| self.log.record_failed_name("write", &self.path(), failure))?;
        } else {
            self.extend(&mut content, end)?;
        }
        match &mut *content {
            ScratchContent::Memory(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(place) = bytes.get_mut(from..from.saturating_add(data.len())) {
                    place.copy_from_slice(data);
                }
            }
            ScratchContent::Disk(file) => file.write_all_at(data, offset).map_err(failed)?,
            ScratchContent::Import(_) => {}
            ScratchContent::Ended => return Err(Failure::Errno(libc::ESTALE)),
        }
        let mut meta = self.meta.lock();
        meta.size_bytes = meta.size_bytes.max(end);
        (meta.is_modified, meta.refusal, meta.problem, meta.modified) = (true, None, None, SystemTime::now());
        Ok(())
    }

    /// Writes the first bytes.
    pub fn fill(&self, bytes: &[u8]) -> FsResult<()> {
        self.write(0, bytes, Blocking::Yes, |_| None)
    }

    /// Counts bytes up to `end`, and makes room for them in memory.
    fn extend(&self, content: &mut ScratchContent, end: u64) -> FsResult<()> {
        let size_bytes = self.meta.lock().size_bytes.max(end);
        if !self.count(size_bytes) {
            let limit = self.budget.limit;
            let reason = format!(
                "scratch files may have {limit} bytes in all: raise it with --tune scratch-limit=SIZE"
            );
            return self.log.refuse_name("write", &self.path(), libc::ENOSPC, reason);
        }
        if let ScratchContent::Memory(bytes) = content {
            bytes.resize(usize::try_from(size_bytes).unwrap_or(usize::MAX), 0);
        }
        Ok(())
    }

    /// Moves bytes out of memory before a write at `offset`.
    fn spill(
        &self,
        content: &mut ScratchContent,
        offset: u64,
        begin_import: impl FnOnce(&[u8]) -> Option<NpyImport>,
    ) -> FsResult<()> {
        let bytes = &self.bytes(content, 0, MEMORY_BYTES)?;
        // A program that goes on at the end writes the file in order. Another one may come back to the header, which is then final.
        let is_appended = offset == bytes.len() as u64;
        if is_appended && let Some(import) = begin_import(bytes) {
            *content = ScratchContent::Import(Box::new(import));
            self.count(0);
            // The array that is made does not outlive the daemon.
            self.give_up_held();
            return Ok(());
        }
        let file = unlinked_file().map_err(failed)?;
        file.write_all_at(bytes, 0).map_err(failed)?;
        if let Some(session) = &self.session {
            session.holder.hold(&held_name(self.number), file.as_fd()).map_err(failed)?;
        }
        *content = ScratchContent::Disk(file);
        self.is_memory_file.store(false, Ordering::Release);
        Ok(())
    }

    /// Sets the size of the file.
    pub fn resize(
        &self,
        size_bytes: u64,
        begin_import: impl FnOnce(&[u8]) -> Option<NpyImport>,
    ) -> FsResult<()> {
        let mut content = self.content.lock();
        if size_bytes > MEMORY_BYTES && self.is_in_memory(&content) {
            self.spill(&mut content, u64::MAX, begin_import)?;
        }
        match &mut *content {
            ScratchContent::Memory(_) | ScratchContent::Disk(_) => self.extend(&mut content, size_bytes)?,
            // The bytes of an array do not count.
            ScratchContent::Import(import) if size_bytes >= import.end() && size_bytes <= import.total() => {
                import.extend(size_bytes)?;
            }
            ScratchContent::Import(_) => return Err(Failure::Errno(libc::EINVAL)),
            ScratchContent::Ended => return Err(Failure::Errno(libc::ESTALE)),
        }
        match &mut *content {
            ScratchContent::Memory(bytes) => {
                bytes.truncate(usize::try_from(size_bytes).unwrap_or(usize::MAX));
                self.count(size_bytes);
            }
            ScratchContent::Disk(file) => {
                file.set_len(size_bytes).map_err(failed)?;
                self.count(size_bytes);
            }
            ScratchContent::Import(_) | ScratchContent::Ended => {}
        }
        let mut meta = self.meta.lock();
        (meta.size_bytes, meta.is_modified, meta.refusal, meta.problem) = (size_bytes, true, None, None);
        meta.modified = SystemTime::now();
        Ok(())
    }
}

/// Where scratch files and their names are recorded, and where their bytes are held.
pub struct KeptSession {
    /// The journal of the session.
    pub journal: Arc<Journal>,
    /// Holds descriptors for another daemon.
    pub holder: Arc<dyn DescriptorHolder>,
}

/// What all scratch files of a mount share.
pub struct ScratchParts {
    /// The bytes that they have.
    pub budget: Arc<ScratchBudget>,
    /// The log of refused requests.
    pub log: Arc<RequestLog>,
}

/// Returns the name under which the bytes of a file are held.
pub fn held_name(number: u64) -> String {
    format!("scratch-{number}")
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        self.count(0);
        self.give_up_held();
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Creates a file without a name under TMPDIR.
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
