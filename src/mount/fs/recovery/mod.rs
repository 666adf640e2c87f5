//! A session that another daemon takes over: what is recorded while files are open, and how the next daemon rebuilds its tables from it.
//!
//! Inodes get their numbers back at once. A file that was open is opened again at its first request, so that a thousand open files
//! do not delay the first reply. Files that may write, and arrays with unstored bytes, are opened before the first request.
//! `former_file.rs` has these files, `words.rs` the words of the journal, and `array_identity.rs` compares arrays. Uses the rooms
//! of `fs`, and `journal` for the records.
//!
//! Invariants: a handle reads what it read before, or fails with ESTALE: its array, its companion file or its folder's list is
//! compared with the record. What a program has written is stored, or its handle fails.

pub mod array_identity;
mod former_file;
mod words;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::array::Engine;
use crate::error::{Error, Result};
use crate::hierarchy::author;
use crate::mount::fs::accesses::{Accesses, OpenMode};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::Failure;
use crate::mount::fs::inode::{FormerInode, InodeChange, InodeTable};
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::open_file::HandleTable;
use crate::mount::fs::request::RequestLog;
use crate::mount::journal::Journal;
use crate::mount::journal::held::{DescriptorHolder, SessionDescriptors, UNSTORED};
use crate::mount::journal::intents::NameIntents;
use crate::mount::journal::record::{BackingRecord, BackingVersion, IS_RESENT, OpenRecord, Record};
use crate::mount::journal::state::SessionState;
use crate::store::{LockKeeper, ObjectVersion, Store, store_at};
use crate::sys;

pub(super) use former_file::Reopening;
use former_file::{FormerFile, FormerOpen};
use words::{kind_words, parse_entity, view_words};

/// The records of a session, and the tables that are rebuilt from them.
pub struct Recovery {
    /// The descriptors that are held for another daemon, if there is a keeper or a service manager that does.
    descriptors: OnceLock<Arc<SessionDescriptors>>,
    /// The handles from before a restart, by the request of their open. If it comes again, the kernel has not got the handle.
    undelivered: Mutex<HashMap<u64, u64>>,
    /// Files that may write and could not be opened again yet.
    waiting: Mutex<Vec<Arc<FormerFile>>>,
    /// The arrays that could not be opened to store what was written before, each logged once.
    unstored: Mutex<HashSet<String>>,
    /// The inodes of arrays with lost bytes: the kernel is to drop their pages.
    lost: Mutex<Vec<u64>>,
    parts: RecoveryParts,
    reopening: Arc<Reopening>,
}

/// The parts of the mount that are recorded and rebuilt.
pub(super) struct RecoveryParts {
    pub inodes: Arc<InodeTable>,
    pub handles: Arc<HandleTable>,
    pub names: Arc<NameTable>,
    pub intents: Arc<NameIntents>,
    pub engine: Arc<Engine>,
    pub log: Arc<RequestLog>,
    pub accesses: Arc<Accesses>,
    pub store: Arc<dyn Store>,
    pub is_writable: bool,
}

impl Recovery {
    /// Creates the recovery of a session that is not recorded.
    pub(super) fn new(parts: RecoveryParts, reopening: Reopening) -> Self {
        Recovery {
            descriptors: OnceLock::new(),
            undelivered: Mutex::default(),
            waiting: Mutex::default(),
            unstored: Mutex::default(),
            lost: Mutex::default(),
            parts,
            reopening: Arc::new(reopening),
        }
    }

    /// Starts recording what another daemon needs to take over the session. Must be called before the first request.
    pub fn keep_journal(&self, journal: &Arc<Journal>, descriptors: &Arc<SessionDescriptors>) -> Result<()> {
        self.record_tables(journal, descriptors);
        if self.parts.is_writable {
            let unstored = sys::memory_file(c"zarrfs-unstored").map_err(cannot_record)?;
            descriptors.hold(UNSTORED, unstored.as_fd()).map_err(cannot_record)?;
            self.parts.engine.keep_unstored(File::from(unstored), false)?;
        }
        Ok(())
    }

    fn record_tables(&self, journal: &Arc<Journal>, descriptors: &Arc<SessionDescriptors>) {
        let _ = self.descriptors.set(descriptors.clone());
        self.parts.store.keep_locks(&(descriptors.clone() as Arc<dyn LockKeeper>));
        self.parts.intents.keep_journal(journal);
        self.parts.accesses.keep_journal(journal);
        self.reopening.drafts.keep_journal(journal);
        self.parts.names.records().keep_session(journal, &(descriptors.clone() as Arc<dyn DescriptorHolder>));
        let inodes = journal.clone();
        self.parts.inodes.observe(Box::new(move |change| inodes.append(&change_record(change))));
        let ends = journal.clone();
        self.parts.inodes.observe_written_ends(Arc::new(move |inode, end| {
            ends.append(&Record::WrittenEnd { inode, end })
        }));
        let _ = self.reopening.journal.set(journal.clone());
    }

    /// Rebuilds the tables, takes over the descriptors of the former daemon, and continues its journal. Must be called before the
    /// first request.
    pub fn restore(
        &self,
        journal: &Arc<Journal>,
        state: &SessionState,
        descriptors: &Arc<SessionDescriptors>,
    ) -> Result<()> {
        if self.parts.is_writable {
            let unstored = descriptors.take(UNSTORED).ok_or_else(|| {
                Error::Usage("the session lacks what was written and not stored".to_owned())
            })?;
            self.parts.engine.keep_unstored(File::from(unstored), true)?;
        }
        self.restore_inodes(state)?;
        self.parts.inodes.keep_transients_after(state.last_transient);
        self.parts.handles.keep_numbers_after(state.last_handle);
        self.parts.intents.restore(state.begun.iter().copied());
        self.reopening.drafts.restore(state.drafts.iter().map(|(&inode, changes)| (inode, changes.clone())));
        let mut waiting = Vec::new();
        for (&number, record) in &state.open {
            let Some(inode) = self.parts.inodes.get(record.inode) else { continue };
            let backing = state.backings.get(&record.inode);
            if record.is_passthrough && backing.is_none() {
                // The daemon died before it registered the object, so the kernel has not got the handle.
                continue;
            }
            self.undelivered.lock().insert(record.request, number);
            let unreported = state.losses.get(&number).copied().unwrap_or_default();
            let before = FormerOpen {
                record: record.clone(),
                backing: backing.map(|backing| backing.version),
                unreported,
            };
            let file = Arc::new(FormerFile::new(inode.clone(), before, self.reopening.clone()));
            if record.writing.is_some() {
                waiting.push(file.clone());
            }
            self.parts.handles.restore(number, file);
            self.parts.accesses.restore(&inode, record, state.openers.get(&number));
        }
        *self.waiting.lock() = waiting;
        self.record_tables(journal, descriptors);
        self.parts.names.restore(state, |name| descriptors.take(name));
        Ok(())
    }

    fn restore_inodes(&self, state: &SessionState) -> Result<()> {
        for (&number, known) in &state.inodes {
            let unknown =
                || Error::Usage(format!("the session has an inode of an unknown kind: '{}'", known.kind));
            let entity = parse_entity(&known.kind, &known.view, &known.path).ok_or_else(unknown)?;
            if let EntityKind::Scratch(number) = entity.kind {
                self.parts.names.keep_numbers_after(number);
            }
            let former = FormerInode {
                number,
                entity,
                lookups: known.lookups,
                size_bytes: known.size_bytes,
                is_retired: known.is_retired,
            };
            let lacking = || Error::Usage(format!("the session lacks the inode before {number}"));
            let inode = self.parts.inodes.restore(former).ok_or_else(lacking)?;
            if let Some(end) = state.written_ends.get(&number) {
                inode.state().written_end.restore(end);
            }
        }
        Ok(())
    }

    /// Stores the unstored bytes of a session that cannot be continued. Gives up when nothing was stored for `stall_timeout`. Fails
    /// if something is left.
    pub fn store_left(&self, descriptors: &Arc<SessionDescriptors>, stall_timeout: Duration) -> Result<()> {
        let Some(unstored) = descriptors.take(UNSTORED) else { return Ok(()) };
        self.parts.store.keep_locks(&(descriptors.clone() as Arc<dyn LockKeeper>));
        self.parts.engine.keep_unstored(File::from(unstored), true)?;
        self.resume_writing();
        let failed = self.parts.engine.store_all(stall_timeout);
        let unopened = self.parts.engine.former_paths();
        match (failed.into_iter().next(), unopened.first()) {
            (Some((_, error)), _) => Err(error),
            (None, Some(path)) => {
                Err(Error::Usage(format!("{path} cannot be opened, and was written to before")))
            }
            (None, None) => Ok(()),
        }
    }

    /// Opens the files that may write, and the arrays with bytes that a former daemon had not stored. Returns whether all could be
    /// opened. If not, call it again later: until then requests to these files fail, and nothing is lost.
    pub fn resume_writing(&self) -> bool {
        self.waiting.lock().retain(|file| file.reopen().is_err_and(|failure| may_succeed_later(&failure)));
        for path in self.parts.engine.former_paths() {
            let Err(failure) = self.reopening.replay(&path) else { continue };
            // An array is given up only if it is certainly gone. Otherwise its document may be broken for a moment, or the store
            // may not respond.
            if self.reopening.is_gone(&path) {
                self.parts.engine.drop_former(&path);
            } else if self.unstored.lock().insert(path.clone()) {
                let error = failure.into_error(&path);
                log::warn!("/{path}: what was written before cannot be stored yet: {error}");
            }
        }
        self.parts.names.end_restoring();
        let is_clean = self.parts.names.end_lost_puts(|path, puts| {
            let taken_back = author::take_back(&store_at(&self.parts.store, path), path, puts);
            taken_back.inspect_err(|error| log::warn!("/{path}: is not complete: {error}")).is_ok()
        });
        let is_done =
            is_clean && self.waiting.lock().is_empty() && self.parts.engine.former_paths().is_empty();
        if is_done {
            self.report_losses();
        }
        if is_done && let Some(descriptors) = self.descriptors.get() {
            // What is left are locks of arrays that no longer have writers.
            descriptors.end_locks();
        }
        is_done
    }

    /// Reports which arrays have lost bytes. All handles that may have written them are open again, and report it, too.
    fn report_losses(&self) {
        for (path, error) in self.parts.engine.lost() {
            let inode = self.parts.inodes.get_or_add(&Entity::array(None, path));
            self.parts.log.record_failure(&inode, "restart of the daemon", &Failure::Error(error));
            self.lost.lock().push(inode.number);
        }
        self.parts.engine.end_losses();
    }

    /// Returns the inodes of arrays that have lost bytes, each once: the kernel may still have pages with them.
    pub fn take_lost(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lost.lock())
    }

    /// Gives a held descriptor up, if descriptors are held.
    pub fn release(&self, name: &str) {
        if let Some(descriptors) = self.descriptors.get() {
            DescriptorHolder::release(&**descriptors, name);
        }
    }

    /// Records an open file or folder, before the kernel gets its handle with the reply to the request with this number.
    pub(super) fn record_open(&self, inode: u64, handle: u64, mode: OpenMode, request: u64) {
        if let Some(journal) = self.reopening.journal.get()
            && let Ok(file) = self.parts.handles.get(handle)
        {
            let (content, writing) = (file.content(), file.writing());
            let (request, OpenMode { is_direct, is_passthrough }) = (request & !IS_RESENT, mode);
            let opened = OpenRecord { handle, inode, request, is_direct, is_passthrough, writing, content };
            journal.append(&Record::Opened(opened));
        }
    }

    /// Returns the handle that a former daemon opened for this request, if the kernel sends the request again because it did not
    /// receive the handle.
    pub fn take_undelivered(&self, request: u64) -> Option<u64> {
        if request & IS_RESENT == 0 {
            return None;
        }
        self.undelivered.lock().remove(&(request & !IS_RESENT))
    }

    /// Records an object that was registered for the kernel to read by itself, before the kernel gets a handle that reads it.
    pub fn record_backing(&self, inode: u64, id: u32, version: &ObjectVersion) {
        if let Some(journal) = self.reopening.journal.get() {
            let backing = BackingRecord { id, version: BackingVersion::of(version) };
            journal.append(&Record::Backed { inode, backing });
        }
    }

    /// Records that the kernel has forgotten the object of an inode.
    pub fn record_end_of_backing(&self, inode: u64) {
        if let Some(journal) = self.reopening.journal.get() {
            journal.append(&Record::Unbacked { inode });
        }
    }

    /// Records that the kernel does not read a file by itself, although it was opened so.
    pub fn record_refused_backing(&self, inode: u64, handle: u64, request: u64) {
        self.record_open(inode, handle, OpenMode { is_direct: true, is_passthrough: false }, request);
    }

    /// Records that a handle is closed.
    pub(super) fn record_release(&self, handle: u64) {
        if let Some(journal) = self.reopening.journal.get() {
            journal.append(&Record::Released { handle });
        }
    }
}

/// Returns whether a file that could not be opened again may be opened later.
fn may_succeed_later(failure: &Failure) -> bool {
    let Failure::Error(error) = failure else { return false };
    matches!(
        error,
        Error::Store { .. } | Error::TimedOut { .. } | Error::Changed { .. } | Error::Unlisted { .. }
    )
}

fn cannot_record(error: io::Error) -> Error {
    Error::Usage(format!("cannot record what is written, for a daemon that dies: {error}"))
}

fn change_record(change: InodeChange<'_>) -> Record {
    match change {
        InodeChange::Added(inode) => {
            let Entity { kind, view, path } = &inode.entity;
            Record::Inode {
                number: inode.number,
                kind: kind_words(*kind),
                view: view.as_ref().map(view_words).unwrap_or_default(),
                path: path.to_string(),
            }
        }
        InodeChange::Retired(number) => Record::Retired { number },
        InodeChange::Sized(number, size_bytes) => Record::Sized { number, size_bytes },
        InodeChange::LookedUp(number) => Record::Lookups { number, count: 1 },
        InodeChange::Forgotten(number, count) => Record::Forgotten { number, count },
    }
}

#[cfg(test)]
mod at_requests;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::cancellation::Cancellation;
    use crate::formats;
    use crate::mount::fs::FileSystem;
    use crate::mount::fs::error::{Blocking, FsResult};
    use crate::mount::fs::names::Caller;
    use crate::mount::fs::open_file::{FileRead, FileWrite, ReplyBuffer};
    use crate::mount::journal::held::HeldDescriptors;
    use crate::mount::options::Options;
    use crate::store::MemoryStore;

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
        fn hold(&self, _name: &str, _file: BorrowedFd<'_>) -> io::Result<()> {
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
        let nothing = || SessionDescriptors::new(Arc::new(Nowhere), HeldDescriptors::new());
        first
            .recovery()
            .keep_journal(&Arc::new(Journal::create(file.try_clone().unwrap()).unwrap()), &nothing())
            .unwrap();
        let number =
            |fs: &FileSystem, name: &str| fs.lookup(1, name, Blocking::Yes).unwrap().attributes.inode;
        let names = ["a", "a.json", "a.npy", "__zarrfs__"];
        let numbers = names.map(|name| number(&first, name));
        let never = Cancellation::never();
        let open = |inode| first.opens().open(inode, libc::O_RDONLY, &never).unwrap().handle;
        let handles = [numbers[0], numbers[1], numbers[2]].map(open);
        let folder = first.opens().open_folder(1).unwrap();
        let closed = open(numbers[0]);
        first.opens().release(closed);
        let contents = handles.map(|handle| read(&first, handle).unwrap());
        let listed = |fs: &FileSystem| {
            let listing = fs.opens().listing(folder, Blocking::Yes).unwrap();
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
            let held = SessionDescriptors::new(Arc::new(Nowhere), held);
            next.recovery().restore(&Arc::new(journal), &state, &held).unwrap();
            assert!(held.take("lock").is_some() && held.take("lock").is_none());
            next
        };
        let next = taken_over(4, 7);
        assert!(matches!(next.opens().listing(folder, Blocking::No), Err(Failure::WouldBlock)));
        assert_eq!(listed(&next), entries);
        assert_eq!(names.map(|name| number(&next, name)), numbers);
        assert_eq!(handles.map(|handle| read(&next, handle).unwrap()), contents);
        assert!(matches!(read(&next, closed), Err(Failure::Errno(libc::EBADF))));
        let opened = next.opens().open(numbers[0], libc::O_RDONLY, &never).unwrap();
        assert!(opened.handle > closed && !opened.keeps_cache, "pages of chunks that are no longer known");
        // The array has become longer, or another one.
        let longer = taken_over(6, 7);
        assert_eq!(read(&longer, handles[0]).unwrap(), [7; 24]);
        assert!(matches!(read(&longer, handles[2]), Err(Failure::Errno(libc::ESTALE))));
        let other = taken_over(4, 8);
        assert!(matches!(read(&other, handles[0]), Err(Failure::Errno(libc::ESTALE))));
        assert_ne!(number(&other, "a"), numbers[0]);
        assert_eq!(read(&other, handles[1]).unwrap(), contents[1], "a small file is in the journal");
    }

    /// Keeps descriptors for the next file system.
    #[derive(Default)]
    pub(super) struct Kept(pub(super) Mutex<HeldDescriptors>);

    impl DescriptorHolder for Kept {
        fn hold(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
            self.0.lock().insert(name.to_owned(), file.try_clone_to_owned()?);
            Ok(())
        }

        fn release(&self, name: &str) {
            self.0.lock().remove(name);
        }
    }

    pub(super) fn write(fs: &FileSystem, handle: u64, offset: u64, data: &[u8]) -> FsResult<()> {
        let blocking = Blocking::Yes;
        let write = FileWrite { offset, data, is_page: false, blocking, request: 0 };
        fs.file(handle)?.write(write).map(|begun| drop(begun.finish()))
    }

    #[test]
    fn another_daemon_has_what_was_written_and_one_that_cannot_go_on_stores_it() {
        let mut options = Options::new("s", "/mnt");
        (options.writable, options.create) = (true, true);
        let options = Arc::new(options);
        let (store, kept) = (store(4, 7), Arc::new(Kept::default()));
        let journal_file = std::fs::File::from(sys::memory_file(c"zarrfs-test").unwrap());
        let fs = FileSystem::new(options.clone(), store.clone());
        let journal = Arc::new(Journal::create(journal_file.try_clone().unwrap()).unwrap());
        let held = || {
            let kept = kept.0.lock();
            let copies = kept.iter().map(|(name, file)| (name.clone(), file.try_clone().unwrap()));
            copies.collect::<HeldDescriptors>()
        };
        let descriptors = || SessionDescriptors::new(kept.clone(), held());
        fs.recovery().keep_journal(&journal, &descriptors()).unwrap();
        let number = fs.lookup(1, "a", Blocking::Yes).unwrap().attributes.inode;
        let handle = fs.opens().open(number, libc::O_RDWR, &Cancellation::never()).unwrap().handle;
        write(&fs, handle, 3, b"abcde").unwrap();
        let caller = Caller { uid: 0, gid: 0, thread: 0, request: 4 };
        let (_, scratch) = fs.opens().create(1, "b.json", 0o644, libc::O_WRONLY, caller).unwrap();
        write(&fs, scratch.handle, 0, br#"{"shape":[2],"data_type":"uint8"}"#).unwrap();
        // It is left as it is, without any destructor.
        std::mem::forget(fs);
        let (journal, state) = Journal::open(journal_file).unwrap();
        let next = FileSystem::new(options.clone(), store.clone());
        next.recovery().restore(&Arc::new(journal), &state, &descriptors()).unwrap();
        assert!(next.recovery().resume_writing());
        assert_eq!(read(&next, handle).unwrap()[..9], *b"\x07\x07\x07abcde\x07");
        next.file(scratch.handle).unwrap().flush(scratch.handle, 0).unwrap();
        assert!(store.get("b/zarr.json", 1 << 20).unwrap().is_some());
        assert_eq!(next.recovery().take_undelivered(4 | IS_RESENT), Some(scratch.handle));
        std::mem::forget(next);
        // One that cannot read the journal.
        let last = FileSystem::new(options.clone(), store.clone());
        last.recovery().store_left(&descriptors(), Duration::from_secs(9)).unwrap();
        let stored = store.get("a/c/0/0", 1 << 20).unwrap().unwrap();
        assert_eq!(stored, *b"\x07\x07\x07abcde");
    }

    /// What was written to an array is dropped only if it is certain that there is no such array.
    #[test]
    fn an_array_is_gone_only_if_the_store_says_so() {
        let mut options = Options::new("s", "/mnt");
        (options.writable, options.create) = (true, true);
        let store = store(4, 7);
        store.put("a/c/0/0", b"12345678".as_slice()).unwrap();
        let fs = FileSystem::new(Arc::new(options), store.clone());
        let is_gone = |path: &str| fs.recovery().reopening.is_gone(path);
        assert!(!is_gone("a") && is_gone("b"));
        // The document is broken for a moment, or of something that this version cannot serve.
        for document in ["", "{", r#"{"zarr_format":3,"node_type":"array"}"#, r#"{"zarr_format":9}"#] {
            store.put("a/zarr.json", document.as_bytes()).unwrap();
            assert!(!is_gone("a"), "{document}");
        }
        // Chunks without a document, as a removal in a store without folders leaves them for a moment.
        assert!(store.delete("a/zarr.json") && is_gone("a"));
        assert!(store.delete("a/c/0/0") && is_gone("a"));
        let group = br#"{"zarr_format":3,"node_type":"group","attributes":{}}"#;
        store.put("a/zarr.json", group.as_slice()).unwrap();
        assert!(is_gone("a"));
    }
}
