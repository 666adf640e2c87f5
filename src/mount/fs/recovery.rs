//! A session that another daemon takes over: what is recorded while files are open, and the tables made anew from it.
//!
//! Only for mounts that are only read. Inodes get their numbers back at once. A file that was open is opened again at its first request,
//! so that a daemon with a thousand of them replies as soon as one with none. Uses the rooms of `fs`, and `journal` for the
//! records.
//!
//! Invariant: a handle reads what it has read before, or fails with ESTALE: the array, the file of a format or the list of a folder is
//! compared with its record.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::formats::views::{self, FLAT};
use crate::formats::virtual_file::VirtualFile;
use crate::formats::{self, CompanionPlace, Format, Role};
use crate::hierarchy::View;
use crate::mount::fs::array_files::open::ArrayFiles;
use crate::mount::fs::entries::Entries;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, EntityKind, FormerInode, Inode, InodeChange, InodeTable};
use crate::mount::fs::open_file::{FileRead, FolderEntry, HandleTable, OpenFile, ReadData, ReplyBuffer};
use crate::mount::fs::page_cache::cache_mode::{CacheMode, CachePolicy};
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::open::VirtualFiles;
use crate::mount::journal::Journal;
use crate::mount::journal::held::{DescriptorHolder, HeldDescriptors};
use crate::mount::journal::record::{Content, OpenRecord, Record};
use crate::mount::journal::state::SessionState;

/// The records of a session, and the tables made anew from them.
pub struct Recovery {
    /// The state of the session for another daemon, if it is kept.
    journal: OnceLock<Arc<Journal>>,
    /// Keeps descriptors for another daemon, if somebody does.
    holder: OnceLock<Arc<dyn DescriptorHolder>>,
    /// What it has kept of the daemon before, and was not taken yet.
    held: Mutex<HeldDescriptors>,
    inodes: Arc<InodeTable>,
    handles: Arc<HandleTable>,
    reopening: Arc<Reopening>,
}

impl Recovery {
    /// Creates the room of a session whose state is not kept.
    pub(super) fn new(inodes: Arc<InodeTable>, handles: Arc<HandleTable>, reopening: Reopening) -> Self {
        Recovery {
            journal: OnceLock::new(),
            holder: OnceLock::new(),
            held: Mutex::default(),
            inodes,
            handles,
            reopening: Arc::new(reopening),
        }
    }

    /// Records from now on what another daemon needs to take the session over. Must be called before the first request.
    pub fn keep_journal(&self, journal: &Arc<Journal>, holder: Arc<dyn DescriptorHolder>) {
        let _ = self.holder.set(holder);
        let inodes = journal.clone();
        self.inodes.observe(Box::new(move |change| inodes.append(&change_record(change))));
        let _ = self.journal.set(journal.clone());
    }

    /// Returns who keeps descriptors for another daemon; `None` if the session ends with this one.
    pub fn holder(&self) -> Option<&Arc<dyn DescriptorHolder>> {
        self.holder.get()
    }

    /// Returns the descriptor that the daemon before gave to the holder under this name, which still holds it. Each is returned once.
    pub fn take_held(&self, name: &str) -> Option<OwnedFd> {
        self.held.lock().remove(name)
    }

    /// Takes the tables and the descriptors over from the daemon before, and keeps the journal. Must be called before the first request.
    pub fn restore(
        &self,
        journal: &Arc<Journal>,
        state: &SessionState,
        holder: Arc<dyn DescriptorHolder>,
        held: HeldDescriptors,
    ) -> Result<()> {
        *self.held.lock() = held;
        let passthrough: Vec<u64> =
            state.open.values().filter(|open| open.is_passthrough).map(|open| open.inode).collect();
        for (&number, known) in &state.inodes {
            let unknown =
                || Error::Usage(format!("the session has an inode of an unknown kind: '{}'", known.kind));
            let entity = parse_entity(&known.kind, &known.view, &known.path).ok_or_else(unknown)?;
            let former = FormerInode {
                number,
                entity,
                lookups: known.lookups,
                is_retired: known.is_retired,
                // The kernel reads one object for all handles of an inode, and this process cannot name that object again.
                is_closed_to_opens: passthrough.contains(&number),
            };
            let lacking = || Error::Usage(format!("the session lacks the inode before {number}"));
            self.inodes.restore(former).ok_or_else(lacking)?;
        }
        self.inodes.keep_transients_after(state.last_transient);
        self.handles.keep_numbers_after(state.last_handle);
        for (&number, record) in &state.open {
            let Some(inode) = self.inodes.get(record.inode) else { continue };
            self.handles
                .restore(number, Arc::new(FormerFile::new(inode, record.clone(), self.reopening.clone())));
        }
        self.keep_journal(journal, holder);
        Ok(())
    }

    /// Records an open file or folder, before the kernel gets its handle.
    pub(super) fn record_open(&self, inode: &Inode, handle: u64, is_direct: bool, is_passthrough: bool) {
        if let Some(journal) = self.journal.get()
            && let Ok(file) = self.handles.get(handle)
        {
            let (inode, content) = (inode.number, file.content());
            journal.append(&Record::Opened(OpenRecord { handle, inode, is_direct, is_passthrough, content }));
        }
    }

    /// Records that a handle is closed.
    pub(super) fn record_release(&self, handle: u64) {
        if let Some(journal) = self.journal.get() {
            journal.append(&Record::Released { handle });
        }
    }
}

fn change_record(change: InodeChange<'_>) -> Record {
    match change {
        InodeChange::Added(inode) => {
            let Entity { kind, view, path } = &inode.entity;
            Record::Inode {
                number: inode.number,
                kind: kind_words(*kind),
                view: view.map(view_words).unwrap_or_default(),
                path: path.to_string(),
            }
        }
        InodeChange::Retired(number) => Record::Retired { number },
        InodeChange::LookedUp(number) => Record::Lookups { number, count: 1 },
        InodeChange::Forgotten(number, count) => Record::Forgotten { number, count },
    }
}

/// The kinds without a format, by their words.
const PLAIN_KINDS: [(&str, EntityKind); 10] = [
    ("group", EntityKind::Group),
    ("array", EntityKind::Array),
    ("internals", EntityKind::Internals),
    ("stats", EntityKind::Stats),
    ("config", EntityKind::Config),
    ("unsaved", EntityKind::DirtyReport),
    ("last-error", EntityKind::LastError),
    ("slow", EntityKind::SlowRequests),
    ("commit", EntityKind::Commit),
    ("formats", EntityKind::Formats),
];

/// Returns a kind of file or folder in the journal's words.
fn kind_words(kind: EntityKind) -> String {
    match kind {
        EntityKind::Companion(format, CompanionPlace::NextToNode) => format!("beside {}", format.name),
        EntityKind::Companion(format, CompanionPlace::FormatFolder) => format!("mirror {}", format.name),
        EntityKind::FormatFolder(format) => format!("format {}", format.name),
        EntityKind::Views(format) => format!("views {}", format.name),
        EntityKind::PlanesFolder(format) => format!("planes {}", format.name),
        kind => PLAIN_KINDS.iter().find(|(_, plain)| *plain == kind).map_or("", |(word, _)| word).to_owned(),
    }
}

/// Returns a view in the journal's words.
fn view_words(view: View) -> String {
    match view {
        View::Plane { axis, index } => format!("plane {axis} {index}"),
        view => views::folder(view).into_owned(),
    }
}

/// Returns what the words of [`kind_words`] and [`view_words`] stand for.
fn parse_entity(kind: &str, view: &str, path: &str) -> Option<Entity> {
    let format = |name: &str| -> Option<&'static Format> {
        if name == FLAT.name { Some(FLAT) } else { formats::find(name) }
    };
    let kind = match kind.split_once(' ') {
        None => PLAIN_KINDS.iter().find(|(word, _)| *word == kind).map(|(_, plain)| *plain)?,
        Some(("beside", name)) => EntityKind::Companion(format(name)?, CompanionPlace::NextToNode),
        Some(("mirror", name)) => EntityKind::Companion(format(name)?, CompanionPlace::FormatFolder),
        Some(("format", name)) => EntityKind::FormatFolder(format(name)?),
        Some(("views", name)) => EntityKind::Views(format(name)?),
        Some(("planes", name)) => EntityKind::PlanesFolder(format(name)?),
        Some(_) => return None,
    };
    let view = match view.split(' ').collect::<Vec<_>>().as_slice() {
        [""] => None,
        ["plane", axis, index] => Some(View::Plane { axis: axis.parse().ok()?, index: index.parse().ok()? }),
        _ => Some(views::find(view)?),
    };
    Some(Entity { kind, view, path: path.into() })
}

/// The rooms that open files again.
pub(super) struct Reopening {
    pub array_files: Arc<ArrayFiles>,
    pub virtual_files: Arc<VirtualFiles>,
    pub companions: Arc<Companions>,
    pub entries: Arc<Entries>,
    pub cache_policy: Arc<CachePolicy>,
}

impl Reopening {
    fn open(&self, inode: &Arc<Inode>, record: &OpenRecord) -> FsResult<Arc<dyn OpenFile>> {
        let stale = Failure::Errno(libc::ESTALE);
        match (&record.content, inode.entity.kind) {
            (Content::Array { .. }, EntityKind::Array) => {
                let cache_mode = former_mode(inode, record);
                Ok(Arc::new(self.array_files.reopen(inode, cache_mode)?))
            }
            (Content::Bytes(bytes), _) => {
                self.open_virtual(VirtualFile::from_bytes(bytes.clone()).into(), record)
            }
            (&Content::Made { fingerprint }, EntityKind::Companion(format, place)) => {
                let file = self.companions.reopen(inode, format, place, fingerprint)?;
                let bypasses = self.cache_policy.is_direct() || format.role == Role::Sidecar;
                if !record.is_direct && (bypasses || !file.is_steady()) {
                    return Err(stale);
                }
                self.open_virtual(file, record)
            }
            (Content::Folder { .. }, kind) if kind.is_folder() => {
                let folder = self.entries.list(&inode.entity, false)?;
                if folder.content() == record.content { Ok(Arc::new(folder)) } else { Err(stale) }
            }
            _ => Err(stale),
        }
    }

    fn open_virtual(&self, file: Arc<VirtualFile>, record: &OpenRecord) -> FsResult<Arc<dyn OpenFile>> {
        let opened = self.virtual_files.open(file, record.is_direct, &Cancellation::never())?;
        Ok(Arc::new(opened.file))
    }
}

fn former_mode(inode: &Inode, record: &OpenRecord) -> CacheMode {
    CacheMode::restore_reader(&inode.page_cache_users, record.is_direct, record.is_passthrough)
}

/// A file or folder that was open before a restart of the daemon.
struct FormerFile {
    inode: Arc<Inode>,
    record: OpenRecord,
    reopening: Arc<Reopening>,
    /// Counts the handle from the beginning: files that are opened before its first request take account of it.
    cache_mode: Option<CacheMode>,
    file: OnceLock<Arc<dyn OpenFile>>,
    /// Held while it is opened.
    opening: Mutex<()>,
}

impl FormerFile {
    fn new(inode: Arc<Inode>, record: OpenRecord, reopening: Arc<Reopening>) -> Self {
        if let Content::Array { form, shape } = &record.content {
            inode.identity.expect(form.clone(), shape.clone());
        }
        let cache_mode = (inode.entity.kind == EntityKind::Array).then(|| former_mode(&inode, &record));
        FormerFile { inode, record, reopening, cache_mode, file: OnceLock::new(), opening: Mutex::new(()) }
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
        let file = self.reopening.open(&self.inode, &self.record)?;
        Ok(self.file.get_or_init(|| file))
    }
}

impl OpenFile for FormerFile {
    fn read<'a>(&self, read: FileRead<'_>, buffer: &'a mut ReplyBuffer) -> FsResult<ReadData<'a>> {
        self.file(read.blocking)?.read(read, buffer)
    }

    fn seek(&self, start: u64, wants_hole: bool, cancellation: &Cancellation) -> FsResult<Option<u64>> {
        self.file(Blocking::Yes)?.seek(start, wants_hole, cancellation)
    }

    fn release(&self) {
        if let Some(file) = self.file.get() {
            file.release();
        }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mount::fs::FileSystem;
    use crate::mount::options::Options;
    use crate::store::MemoryStore;

    #[test]
    fn entities_are_read_as_they_were_written() {
        let json = formats::JSON;
        let kinds = PLAIN_KINDS.iter().map(|(_, kind)| *kind).chain([
            EntityKind::Companion(json, CompanionPlace::NextToNode),
            EntityKind::Companion(FLAT, CompanionPlace::FormatFolder),
            EntityKind::FormatFolder(json),
            EntityKind::Views(FLAT),
            EntityKind::PlanesFolder(FLAT),
        ]);
        let plane = View::Plane { axis: 2, index: 1 << 40 };
        let views = [None, Some(View::FOrder), Some(View::Planes(0)), Some(View::Planes(3)), Some(plane)];
        for kind in kinds {
            for view in views {
                let entity = Entity { kind, view, path: "a b/ü".into() };
                let words = (kind_words(kind), view.map(view_words).unwrap_or_default());
                assert_eq!(parse_entity(&words.0, &words.1, "a b/ü"), Some(entity));
            }
        }
        assert_eq!(parse_entity("unheard-of", "", ""), None);
    }

    fn document(rows: u64, fill: u8) -> Vec<u8> {
        format!(
            r#"{{"zarr_format":3,"node_type":"array","shape":[{rows},4],"data_type":"uint8","fill_value":{fill},
            "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[2,4]}}}},
            "chunk_key_encoding":{{"name":"default"}},"codecs":["bytes"],"attributes":{{}}}}"#
        )
        .into_bytes()
    }

    fn store(rows: u64, fill: u8) -> Arc<MemoryStore> {
        let store = Arc::new(MemoryStore::new());
        let group = br#"{"zarr_format":3,"node_type":"group","attributes":{}}"#;
        store.put("zarr.json", group.as_slice()).unwrap();
        store.put("a/zarr.json", document(rows, fill)).unwrap();
        store
    }

    fn read(fs: &FileSystem, handle: u64) -> FsResult<Vec<u8>> {
        let (never, mut buffer) = (Cancellation::never(), ReplyBuffer::default());
        let read = FileRead { offset: 0, size: 4096, blocking: Blocking::Yes, cancellation: &never };
        fs.file(handle)?.read(read, &mut buffer).map(|data| data.to_vec())
    }

    /// Holds nothing.
    struct Nowhere;

    impl DescriptorHolder for Nowhere {
        fn hold(&self, _name: &str, _file: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
            Ok(())
        }

        fn release(&self, _name: &str) {}
    }

    #[test]
    fn another_daemon_has_the_same_numbers_and_reads_on() {
        let memory = || std::fs::File::from(crate::sys::memory_file(c"zarrfs-test").unwrap());
        let mut options = Options::new("s", "/mnt");
        options.formats = vec![formats::find("npy").unwrap()];
        let fs = |rows, fill| FileSystem::new(Arc::new(options.clone()), store(rows, fill));
        let file = memory();
        let first = fs(4, 7);
        let holder = || Arc::new(Nowhere);
        first
            .recovery()
            .keep_journal(&Arc::new(Journal::create(file.try_clone().unwrap()).unwrap()), holder());
        let number =
            |fs: &FileSystem, name: &str| fs.lookup(1, name, Blocking::Yes).unwrap().attributes.inode;
        let names = ["a", "a.json", "a.npy", "__zarrfs__"];
        let numbers = names.map(|name| number(&first, name));
        let never = Cancellation::never();
        let open = |inode| first.open(inode, libc::O_RDONLY, &never).unwrap().handle;
        let handles = [numbers[0], numbers[1], numbers[2]].map(open);
        let folder = first.open_folder(1).unwrap();
        let closed = open(numbers[0]);
        first.release(closed);
        let contents = handles.map(|handle| read(&first, handle).unwrap());
        let listed = |fs: &FileSystem| {
            let listing = fs.listing(folder, Blocking::Yes).unwrap();
            listing.entries().iter().map(|entry| (entry.name.clone(), entry.inode)).collect::<Vec<_>>()
        };
        let entries = listed(&first);
        let taken_over = |rows, fill| {
            let copy = memory();
            let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&copy, &bytes, 0).unwrap();
            let (journal, state) = Journal::open(copy).unwrap();
            let next = fs(rows, fill);
            let held =
                HeldDescriptors::from([("lock".to_owned(), crate::sys::memory_file(c"lock").unwrap())]);
            next.recovery().restore(&Arc::new(journal), &state, holder(), held).unwrap();
            assert!(
                next.recovery().take_held("lock").is_some() && next.recovery().take_held("lock").is_none()
            );
            next
        };
        let next = taken_over(4, 7);
        assert!(matches!(next.listing(folder, Blocking::No), Err(Failure::WouldBlock)));
        assert_eq!(listed(&next), entries);
        assert_eq!(names.map(|name| number(&next, name)), numbers);
        assert_eq!(handles.map(|handle| read(&next, handle).unwrap()), contents);
        assert!(matches!(read(&next, closed), Err(Failure::Errno(libc::EBADF))));
        let opened = next.open(numbers[0], libc::O_RDONLY, &never).unwrap();
        assert!(opened.handle > closed && !opened.keeps_cache, "pages of chunks that nobody knows any more");
        // The array has become longer, or another one.
        let longer = taken_over(6, 7);
        assert_eq!(read(&longer, handles[0]).unwrap(), [7; 24]);
        assert!(matches!(read(&longer, handles[2]), Err(Failure::Errno(libc::ESTALE))));
        let other = taken_over(4, 8);
        assert!(matches!(read(&other, handles[0]), Err(Failure::Errno(libc::ESTALE))));
        assert_ne!(number(&other, "a"), numbers[0]);
        assert_eq!(read(&other, handles[1]).unwrap(), contents[1], "a small file is in the journal");
    }
}
