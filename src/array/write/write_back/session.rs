//! An array that is open for writing: the lock that excludes other writers, and the document that described the array
//! when it was opened.
//!
//! Uses `served/`, `metadata`, `store` and `error`.
//!
//! Invariant: nothing is stored for an array if its document no longer describes it, or if its folder is another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::served::ServedArray;
use crate::array::source::MAX_CHUNK_BYTES;
use crate::array::sync::Mutex;
use crate::array::sync::atomic::{AtomicBool, Ordering};
use crate::error::{Error, Result};
use crate::metadata::{MAX_DOCUMENT_BYTES, ZarrFormat, document_form, read_only_n5};
use crate::store::{FileId, Info, ObjectVersion, Writer};

/// How long an open waits for another writer's lock.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// What the array looked like when it was opened for writing.
struct OpenSession {
    /// How many handles have it open for writing.
    writers: usize,
    /// Excludes other writers while it lives.
    _lock: Box<dyn Send + Sync>,
    /// The bytes of the metadata document, when it last described this array.
    document: Vec<u8>,
    /// The document's version at that time; `None` if it must be read again.
    version: Option<ObjectVersion>,
    /// The number of the array that stores. It changes when the array grows.
    array: u64,
    /// Device and inode of the array's folder, if the store has them.
    folder: Option<FileId>,
    /// Whether what the store has after the array's end is known to be fill value. That holds as long as no other
    /// program replaces the document.
    is_end_clear: bool,
}

/// Whether an array is open for writing. Arrays that grew from each other share it.
pub struct WriteSession {
    served: Arc<ServedArray>,
    /// Present while the array has a writer or a dirty chunk.
    opened: Arc<Mutex<Option<OpenSession>>>,
    /// Whether it is present. Writers ask, and do not wait for a thread that looks at the document under the lock.
    is_open: Arc<AtomicBool>,
}

impl WriteSession {
    /// Creates the session of an array that is not open for writing.
    pub fn new(served: &Arc<ServedArray>) -> Self {
        WriteSession { served: Arc::clone(served), opened: Arc::default(), is_open: Arc::default() }
    }

    /// Returns the session of an array that continues this one.
    pub fn successor(&self, served: &Arc<ServedArray>) -> Self {
        let (opened, is_open) = (Arc::clone(&self.opened), Arc::clone(&self.is_open));
        WriteSession { served: Arc::clone(served), opened, is_open }
    }

    /// Returns whether the array has a writer or a dirty chunk.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Returns whether two arrays share a session, because one grew from the other.
    pub fn is_shared_with(&self, other: &WriteSession) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened)
    }

    /// Adds a writer. The first one takes the lock that excludes other writers, and removes the unfinished files of
    /// dead writers. Then calls `opened` before any other thread can find the array open.
    pub fn open(&self, opened_first: impl FnOnce()) -> Result<()> {
        let mut opened = self.opened.lock();
        if let Some(opened) = opened.as_mut() {
            opened.writers += 1;
            return Ok(());
        }
        let (served, store) = (&self.served, self.served.store());
        let document_key = served.document_key();
        let Some(writer) = store.writer() else {
            return Err(Error::ReadOnly(format!("{} does not support writing", store.describe())));
        };
        self.check_writable()?;
        let Some(lock) = lock_folder(writer, served.path())? else {
            let busy = std::io::Error::new(
                std::io::ErrorKind::ResourceBusy,
                "another writer has this array open, here or in another mount: close it there first",
            );
            return Err(Error::store(document_key, "lock", busy));
        };
        let Some(info) = store.head_object(document_key)? else {
            let reason =
                format!("{document_key} is missing: an array is written only if it has its own document");
            return Err(Error::ReadOnly(reason));
        };
        let document = store.get(document_key, MAX_DOCUMENT_BYTES)?;
        let document = document.filter(|document| served.is_described_by(document));
        let document = document.ok_or_else(|| self.stale())?;
        // A new chunk gets a key like those that are stored.
        served.source().keys().encoding(store, served.levels().object_axes().len())?;
        let folder = served.folder_identity()?;
        let removed = writer.remove_unfinished(served.path())?;
        if removed > 0 {
            log::warn!("{document_key}: removed {removed} unfinished files of a dead writer");
        }
        *opened = Some(OpenSession {
            writers: 1,
            _lock: lock,
            document,
            version: Some(info.version),
            array: served.number(),
            folder,
            is_end_clear: false,
        });
        self.is_open.store(true, Ordering::Release);
        opened_first();
        Ok(())
    }

    /// Fails if the array can only be read.
    fn check_writable(&self) -> Result<()> {
        let served = &self.served;
        let document_key = served.document_key();
        if let Some(codec) = served.skipped_codecs().first().or(served.metadata().skipped.first()) {
            let reason = format!("writing: codec \"{codec}\" is unknown and was skipped for reading");
            return Err(Error::unsupported(document_key, reason));
        }
        if let Some(proposal) = served.metadata().proposals().first() {
            let reason = format!("writing: the {proposal} is a proposal, so the array is read-only");
            return Err(Error::unsupported(document_key, reason));
        }
        if served.metadata().zarr_format == ZarrFormat::N5 && served.store().as_overlay().is_none() {
            return Err(read_only_n5(document_key));
        }
        let chunk_bytes = served.grid().largest_chunk_bytes();
        if chunk_bytes > MAX_CHUNK_BYTES {
            let reason = format!("writing chunks of {chunk_bytes} bytes (at most {MAX_CHUNK_BYTES})");
            return Err(Error::unsupported(document_key, reason));
        }
        Ok(())
    }

    /// Removes a writer.
    pub fn close(&self) {
        if let Some(opened) = self.opened.lock().as_mut() {
            opened.writers = opened.writers.saturating_sub(1);
        }
    }

    /// Returns how many handles have the array open for writing.
    pub fn writers(&self) -> usize {
        self.opened.lock().as_ref().map_or(0, |opened| opened.writers)
    }

    /// Releases the lock if the array has no writer, and `is_dirty` says that nothing is dirty. Calls `released` before
    /// the array can be opened again if it is not open now.
    pub fn release_if_idle(&self, is_dirty: impl FnOnce() -> bool, released: impl FnOnce()) {
        let mut opened = self.opened.lock();
        if opened.as_ref().is_some_and(|opened| opened.writers == 0) && !is_dirty() {
            self.is_open.store(false, Ordering::Release);
            *opened = None;
        }
        if opened.is_none() {
            released();
        }
    }

    /// Releases the lock although the array has writers: it has ended, and nothing is stored for it any more.
    pub fn end(&self) {
        let mut opened = self.opened.lock();
        self.is_open.store(false, Ordering::Release);
        *opened = None;
    }

    /// Returns whether another folder has replaced the one that is written to.
    pub fn is_displaced(&self) -> bool {
        let written = self.opened.lock().as_ref().map(|opened| opened.folder);
        written.is_some_and(|folder| self.served.folder_identity().is_ok_and(|now| now != folder))
    }

    /// Returns whether this array stores, and not one that has grown from it.
    pub fn is_current_writer(&self) -> bool {
        self.opened.lock().as_ref().is_some_and(|opened| opened.array == self.served.number())
    }

    /// Lets this array store from now on, in place of the one that it grew from. Fails with `Stale` if that one does
    /// not store, or if `is_possible` returns `false`. Calls `taken` before any other thread can find the new array
    /// open.
    pub fn take_over(
        &self,
        old: &WriteSession,
        is_possible: impl FnOnce() -> bool,
        taken: impl FnOnce(),
    ) -> Result<()> {
        let mut opened = self.opened.lock();
        if !is_possible() {
            return Err(self.stale());
        }
        if let Some(opened) = opened.as_mut() {
            if opened.array != old.served.number() {
                return Err(self.stale());
            }
            (opened.array, opened.version) = (self.served.number(), None);
        }
        taken();
        Ok(())
    }

    /// Returns whether what the store has after the array's end is known to be fill value.
    pub fn is_end_clear(&self) -> bool {
        self.opened.lock().as_ref().is_some_and(|opened| opened.is_end_clear)
    }

    /// Records whether what the store has after the array's end is fill value.
    pub fn set_end_clear(&self, is_clear: bool) {
        if let Some(opened) = self.opened.lock().as_mut() {
            opened.is_end_clear = is_clear;
        }
    }

    /// Returns the metadata document's owner and mode. Fails with `Stale` if the document no longer describes this
    /// array.
    pub fn check_document(&self) -> Result<Info> {
        let (served, store) = (&self.served, self.served.store());
        let key = served.document_key();
        let mut opened = self.opened.lock();
        let opened = opened.as_mut().filter(|opened| opened.array == served.number());
        let opened = opened.ok_or_else(|| self.stale())?;
        if let Some(writer) = store.writer() {
            writer.check_place().map_err(|_| self.stale())?;
        }
        // Another folder with the same document is another array.
        if served.folder_identity()? != opened.folder {
            return Err(self.stale());
        }
        let now = store.head_object(key)?.ok_or_else(|| self.stale())?;
        if opened.version != Some(now.version) {
            let document = store.get(key, MAX_DOCUMENT_BYTES)?.ok_or_else(|| self.stale())?;
            if document != opened.document {
                if !served.is_described_by(&document) {
                    return Err(self.stale());
                }
                opened.document = document;
            }
            served.check_form()?;
            opened.version = Some(now.version);
        }
        Ok(now)
    }

    /// Returns whether the document still describes an array of this form, perhaps a longer or shorter one. One request, unless the document
    /// was replaced since [`WriteSession::check_document`].
    pub fn is_of_same_form(&self) -> Result<bool> {
        let (served, store) = (&self.served, self.served.store());
        let key = served.document_key();
        let known = self.opened.lock().as_ref().and_then(|opened| opened.version);
        let Some(now) = store.head_object(key)? else { return Ok(false) };
        if known == Some(now.version) {
            return Ok(true);
        }
        let document = store.get(key, MAX_DOCUMENT_BYTES)?;
        Ok(document.is_some_and(|document| document_form(key, &document) == Some(served.metadata().form())))
    }

    /// Updates the document's modification time, so that make and rsync see the change.
    pub fn touch_document(&self) {
        let store = self.served.store();
        let mut opened = self.opened.lock();
        let (Some(writer), Some(opened)) = (store.writer(), opened.as_mut()) else { return };
        let Some(version) = opened.version else { return };
        match writer.touch(self.served.document_key(), version) {
            // `None` means that another program has just changed it. The next flush reads it.
            Ok(touched) => opened.version = touched,
            // The data are stored. A document of another owner keeps its time.
            Err(error) => log::debug!("{error}"),
        }
    }

    /// Returns the error of a write to an array that is no longer the one that was opened.
    pub fn stale(&self) -> Error {
        Error::Stale { key: self.served.document_key().to_owned() }
    }
}

/// Locks a folder. Waits a moment for a writer that has just closed its last file: the kernel reports the release of a
/// file only after close(2).
pub fn lock_folder(writer: &dyn Writer, folder: &str) -> Result<Option<Box<dyn Send + Sync>>> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match writer.lock(folder)? {
            None if Instant::now() < deadline => std::thread::sleep(LOCK_PATIENCE / 25),
            lock => return Ok(lock),
        }
    }
}
