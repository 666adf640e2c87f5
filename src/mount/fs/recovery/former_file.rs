//! Files and folders that were open before a restart of the daemon. Each is opened again at its first request, or when the session
//! continues.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::array::Array;
use crate::cancellation::Cancellation;
use crate::formats::Role;
use crate::formats::virtual_file::VirtualFile;
use crate::mount::fs::array_files::open::ArrayFiles;
use crate::mount::fs::array_files::writer::UnreportedLoss;
use crate::mount::fs::arrays::ServedArrays;
use crate::mount::fs::entity::EntityKind;
use crate::mount::fs::entries::Entries;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::names::open::ScratchFiles;
use crate::mount::fs::open_file::{
    BegunWrite, CopyResult, FileRange, FileRead, FileWrite, FolderEntry, OpenFile, ReadData, ReplyBuffer,
};
use crate::mount::fs::page_cache::cache_mode::{CacheMode, CachePolicy, FormerMode};
use crate::mount::fs::page_cache::page_drops::{PageDrop, PageRead};
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::open::VirtualFiles;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::journal::Journal;
use crate::mount::journal::record::{
    BackingVersion, Content, LossReports, OpenForWriting, OpenRecord, Record,
};
use crate::store::Readers;

/// The rooms that open files again.
pub(in crate::mount::fs) struct Reopening {
    pub array_files: Arc<ArrayFiles>,
    pub virtual_files: Arc<VirtualFiles>,
    pub companions: Arc<Companions>,
    pub entries: Arc<Entries>,
    pub cache_policy: Arc<CachePolicy>,
    pub served: Arc<ServedArrays>,
    pub scratch_files: Arc<ScratchFiles>,
    pub drafts: Arc<Drafts>,
    /// The state of the session for another daemon, if it is kept.
    pub journal: OnceLock<Arc<Journal>>,
}

impl Reopening {
    /// Opens the array at a path, which makes dirty again what a former daemon had not stored.
    pub fn replay(&self, path: &str) -> FsResult<()> {
        self.served.shared_array(None, path).map(drop)
    }

    /// Returns whether it is certain that the store does not have an array at a path.
    pub fn is_gone(&self, path: &str) -> bool {
        self.served.is_gone(path)
    }

    /// Returns what a handle has to report: what a daemon before has not, and what was lost with the last one.
    fn loss(&self, handle: u64, array: &Array, unreported: LossReports) -> Option<UnreportedLoss> {
        let unreported = match array.writer().unstored().loss() {
            Some(_) => LossReports { by_fsync: true, by_close: true },
            None => unreported,
        };
        let journal = self.journal.get().cloned();
        let record = move |unreported| {
            if let Some(journal) = &journal {
                journal.append(&Record::Loss { handle, unreported });
            }
        };
        let is_left = unreported != LossReports::default();
        is_left.then(|| UnreportedLoss::new(unreported, Box::new(record)))
    }

    fn open(&self, inode: &Arc<Inode>, before: &FormerOpen) -> FsResult<Arc<dyn OpenFile>> {
        let (record, stale) = (&before.record, Failure::Errno(libc::ESTALE));
        match (&record.content, inode.entity.kind) {
            (Content::Array { .. }, EntityKind::Array) => {
                let cache_mode = former_mode(inode, before);
                let loss = |array: &Array| self.loss(record.handle, array, before.unreported);
                Ok(Arc::new(self.array_files.reopen(inode, cache_mode, record.writing, loss)?))
            }
            (Content::Unrepeatable, EntityKind::Scratch(number)) => {
                let access = match record.writing {
                    None => libc::O_RDONLY,
                    Some(OpenForWriting { may_map: true, .. }) => libc::O_RDWR,
                    Some(_) => libc::O_WRONLY,
                };
                Ok(Arc::new(self.scratch_files.open(number, access)?.file))
            }
            (Content::Unrepeatable, _) if record.writing.is_some() && inode.entity.is_sidecar() => {
                Ok(Arc::new(self.drafts.open(inode.clone())?.file))
            }
            (Content::Bytes(bytes), _) => {
                self.open_virtual(VirtualFile::from_bytes(bytes.clone()).into(), &[], record)
            }
            (Content::Made { fingerprint, readers }, EntityKind::Companion(format, place)) => {
                let file = self.companions.reopen(inode, format, place, *fingerprint)?;
                let bypasses = self.cache_policy.is_direct() || format.role == Role::Sidecar;
                if !record.is_direct && (bypasses || !file.is_steady()) {
                    return Err(stale);
                }
                self.open_virtual(file, readers, record)
            }
            (Content::Folder { .. }, kind) if kind.is_folder() => {
                let folder = self.entries.list(&inode.entity, false)?;
                if folder.content() == record.content { Ok(Arc::new(folder)) } else { Err(stale) }
            }
            _ => Err(stale),
        }
    }

    fn open_virtual(
        &self,
        file: Arc<VirtualFile>,
        readers: &[Readers],
        record: &OpenRecord,
    ) -> FsResult<Arc<dyn OpenFile>> {
        let mut opened = self.virtual_files.open(file, record.is_direct, &Cancellation::never())?;
        opened.file.admit_former(readers)?;
        Ok(Arc::new(opened.file))
    }
}

fn former_mode(inode: &Inode, before: &FormerOpen) -> CacheMode {
    let only_writes = before.record.writing.is_some_and(|writing| !writing.may_map);
    let mode = if let Some(version) = before.backing.filter(|_| before.record.is_passthrough) {
        FormerMode::Passthrough(version)
    } else if !before.record.is_direct {
        FormerMode::Cached
    } else if only_writes {
        FormerMode::DirectWriter
    } else {
        FormerMode::Direct
    };
    CacheMode::restore(&inode.state().page_cache_users, mode)
}

/// What is recorded of a file or folder that was open before a restart of the daemon.
pub(super) struct FormerOpen {
    /// How it was opened.
    pub record: OpenRecord,
    /// The version of the object that the kernel reads by itself for its inode.
    pub backing: Option<BackingVersion>,
    /// What a daemon before had to report, and has not.
    pub unreported: LossReports,
}

/// A file or folder that was open before a restart of the daemon.
pub(super) struct FormerFile {
    inode: Arc<Inode>,
    before: FormerOpen,
    reopening: Arc<Reopening>,
    /// Counts the handle from the beginning: files that are opened before its first request take account of it.
    cache_mode: Option<CacheMode>,
    file: OnceLock<Arc<dyn OpenFile>>,
    /// Held while it is opened.
    opening: Mutex<()>,
    /// Keeps the users who may have opened it in the array's audience from the beginning, because the pages that it reads may be
    /// filled through other handles.
    _readers: Option<Arc<Readers>>,
}

impl FormerFile {
    /// Creates a file that is not opened yet.
    pub fn new(inode: Arc<Inode>, before: FormerOpen, reopening: Arc<Reopening>) -> Self {
        let mut of_array = None;
        if let Content::Array { form, shape, readers } = &before.record.content {
            inode.state().identity.expect(form.clone(), shape.clone());
            of_array = inode.state().shared.as_ref().map(|shared| shared.audience.admit(*readers));
        }
        let cache_mode = (inode.entity.kind == EntityKind::Array).then(|| former_mode(&inode, &before));
        let (file, opening) = (OnceLock::new(), Mutex::new(()));
        FormerFile { inode, before, reopening, cache_mode, file, opening, _readers: of_array }
    }

    /// Opens it, unless it is open already.
    pub fn reopen(&self) -> FsResult<()> {
        self.file(Blocking::Yes).map(drop)
    }

    fn file(&self, blocking: Blocking) -> FsResult<&Arc<dyn OpenFile>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        if blocking == Blocking::No {
            return Err(Failure::WouldBlock);
        }
        let _opening = self.opening.lock();
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.reopening.open(&self.inode, &self.before)?;
        Ok(self.file.get_or_init(|| file))
    }
}

impl OpenFile for FormerFile {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.file(read.blocking)?.read(read, buffer)
    }

    fn write<'a>(&self, write: FileWrite<'a>) -> FsResult<BegunWrite<'a>> {
        self.file(write.blocking)?.write(write)
    }

    fn flush(&self, handle: u64, process: u32) -> FsResult<()> {
        if self.before.record.writing.is_none() {
            return Ok(());
        }
        self.file(Blocking::Yes)?.flush(handle, process)
    }

    fn fsync(&self) -> FsResult<()> {
        self.file(Blocking::Yes)?.fsync()
    }

    fn sync(&self) -> FsResult<()> {
        self.file(Blocking::Yes)?.sync()
    }

    fn allocate(
        &self,
        range: FileRange,
        mode: i32,
        cancellation: &Cancellation,
    ) -> FsResult<Option<PageDrop>> {
        self.file(Blocking::Yes)?.allocate(range, mode, cancellation)
    }

    fn copy_from(
        &self,
        source: &dyn OpenFile,
        from: u64,
        to: u64,
        length: u64,
        cancellation: &Cancellation,
    ) -> FsResult<CopyResult> {
        self.file(Blocking::Yes)?.copy_from(source, from, to, length, cancellation)
    }

    fn seek(&self, start: u64, wants_hole: bool, cancellation: &Cancellation) -> FsResult<Option<u64>> {
        self.file(Blocking::Yes)?.seek(start, wants_hole, cancellation)
    }

    fn release(&self) {
        if let Some(file) = self.file.get() {
            file.release();
        }
    }

    fn is_writer(&self) -> bool {
        self.before.record.writing.is_some()
    }

    fn is_active_writer_of(&self, inode: u64) -> bool {
        match self.file.get() {
            Some(file) => file.is_active_writer_of(inode),
            None => self.before.record.writing.is_some() && self.inode.number == inode,
        }
    }

    fn record_page_read(&self, range: FileRange) -> Option<PageRead> {
        self.file.get()?.record_page_read(range)
    }

    fn is_synchronous(&self, flags: i32) -> bool {
        let is_direct = self.before.record.is_direct || flags & libc::O_DIRECT != 0;
        self.before.record.writing.is_some() && flags & libc::O_DSYNC != 0 && is_direct
    }

    fn needs_store(&self, range: FileRange) -> bool {
        self.file.get().is_none_or(|file| file.needs_store(range))
    }

    fn is_incomplete(&self) -> bool {
        self.file.get().is_some_and(|file| file.is_incomplete())
    }

    fn lossy_pages(&self) -> Option<PageDrop> {
        self.file.get()?.lossy_pages()
    }

    fn content(&self) -> Content {
        self.before.record.content.clone()
    }

    fn writing(&self) -> Option<OpenForWriting> {
        self.before.record.writing
    }

    fn is_passthrough(&self) -> bool {
        self.cache_mode.as_ref().is_some_and(CacheMode::is_passthrough)
    }

    fn is_report(&self) -> bool {
        self.inode.entity.kind.is_report()
    }

    fn prepare(&self, blocking: Blocking) -> FsResult<()> {
        self.file(blocking).map(|_| ())
    }

    fn entries(&self) -> Option<&[FolderEntry]> {
        self.file.get()?.entries()
    }

    fn plane(&self, number: u64) -> Option<FolderEntry> {
        self.file.get()?.plane(number)
    }
}
