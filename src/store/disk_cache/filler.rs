//! Writing entries, on a thread of its own, so that no reader waits for it. Uses its neighbours.
//!
//! Invariants: waiting entries take at most [`MAX_WAITING_BYTES`] of memory, and others are skipped. A full disk only stops
//! writing for a while. The end of the program waits for what waits to be written ([`finish_all`]).

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::clock::Clock;
use super::entry::{DiskEntry, Header, ObjectMeta, parts};
use super::facts::{fact, overtaken};
use super::name::{EntryContent, EntryName, EntryTimes, ObjectName, entry_folder};
use super::space::{OBJECTS, Space};
use crate::memory::Buffer;

/// The most memory of entries that wait to be written.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// The time for which nothing is written after a write failed.
const PAUSE: Duration = Duration::from_secs(60);
/// The time that the end of the process waits for entries that are not written yet.
const MAX_LAST_WAIT: Duration = Duration::from_secs(5);

/// The writing threads of this process. A store does not always end before the process does: threads that never end have the store of a
/// mount, and a request that has been answered has its store for a moment longer than the program that asked.
static WRITING_THREADS: Mutex<Vec<Weak<FillerState>>> = Mutex::new(Vec::new());

/// Waits until all disk caches of this process have written what waits to be written, but not long. For the end of the process.
pub fn finish_all() {
    let end = Instant::now() + MAX_LAST_WAIT;
    let threads: Vec<Arc<FillerState>> = WRITING_THREADS.lock().iter().filter_map(Weak::upgrade).collect();
    for thread in threads {
        thread.wait_until(end);
    }
}

/// An entry to write.
pub struct NewEntry {
    /// The object.
    pub object: ObjectName,
    /// The content of the entry.
    pub part: EntryContent,
    /// The times at which it was known.
    pub times: EntryTimes,
    /// The metadata that the service gave for the object.
    pub meta: Option<ObjectMeta>,
    /// The bytes.
    pub bytes: Arc<Buffer>,
}

impl NewEntry {
    /// Returns the mark of a missing object.
    pub fn missing(object: ObjectName, times: EntryTimes) -> Self {
        NewEntry { object, part: EntryContent::Missing, times, meta: None, bytes: Arc::default() }
    }
}

/// The writing thread, and its queue.
pub struct Filler {
    shared: Arc<FillerState>,
}

struct FillerState {
    root: PathBuf,
    space: Arc<Space>,
    clock: Arc<Clock>,
    waiting: Mutex<WriteQueue>,
    /// Notified when there is more to do, or nothing left.
    changed: Condvar,
    written_bytes: AtomicU64,
    skipped_bytes: AtomicU64,
}

/// The outcome of writing an entry.
enum WriteOutcome {
    /// The entry was written.
    New,
    /// The entry already existed.
    Known,
    /// Something else became known about the object.
    Outdated,
    /// There is no room for the entry.
    NoRoom,
}

#[derive(Default)]
struct WriteQueue {
    entries: VecDeque<NewEntry>,
    bytes: usize,
    is_writing: bool,
    is_closed: bool,
    #[cfg(test)]
    is_abandoned: bool,
}

impl Filler {
    /// Starts the thread.
    pub fn start(root: &Path, space: Arc<Space>, clock: Arc<Clock>) -> io::Result<Self> {
        let shared = Arc::new(FillerState {
            root: root.to_owned(),
            space,
            clock,
            waiting: Mutex::new(WriteQueue { is_writing: true, ..WriteQueue::default() }),
            changed: Condvar::new(),
            written_bytes: AtomicU64::new(0),
            skipped_bytes: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let mut threads = WRITING_THREADS.lock();
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&shared));
        drop(threads);
        std::thread::Builder::new()
            .name("zarrfs-disk-cache".to_owned())
            .spawn(move || of_thread.write_all())?;
        Ok(Filler { shared })
    }

    /// Queues an entry, unless too many wait.
    pub fn add(&self, entry: NewEntry) {
        let length = entry.bytes.len();
        let mut waiting = self.shared.waiting.lock();
        #[cfg(test)]
        if waiting.is_abandoned {
            return;
        }
        if waiting.bytes + length > MAX_WAITING_BYTES {
            self.shared.skipped_bytes.fetch_add(length as u64, Ordering::Relaxed);
            return;
        }
        waiting.bytes += length;
        waiting.entries.push_back(entry);
        self.shared.changed.notify_all();
    }

    /// Writes an entry immediately. Fails if there is no room for it.
    pub fn write(&self, entry: &NewEntry) -> io::Result<()> {
        let written = self.shared.write(entry)?;
        match written {
            WriteOutcome::New => &self.shared.written_bytes,
            WriteOutcome::Known | WriteOutcome::Outdated | WriteOutcome::NoRoom => &self.shared.skipped_bytes,
        }
        .fetch_add(entry.bytes.len() as u64, Ordering::Relaxed);
        match written {
            WriteOutcome::NoRoom => {
                Err(io::Error::new(io::ErrorKind::StorageFull, "--disk-cache-size is too small"))
            }
            WriteOutcome::Outdated => Err(overtaken()),
            WriteOutcome::New | WriteOutcome::Known => Ok(()),
        }
    }

    /// Waits until everything is written, but at most this long. Returns whether it is.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.shared.wait_until(Instant::now() + at_most)
    }

    /// Drops the waiting entries, as if the process were killed.
    #[cfg(test)]
    pub fn abandon(&self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.entries.clear();
        waiting.bytes = 0;
        waiting.is_abandoned = true;
    }

    /// Returns whether [`Filler::abandon`] was called.
    #[cfg(test)]
    pub fn is_abandoned(&self) -> bool {
        self.shared.waiting.lock().is_abandoned
    }

    /// Returns the bytes that were written, and those that were skipped.
    pub fn counts(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.shared.written_bytes), get(&self.shared.skipped_bytes))
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.wait(MAX_LAST_WAIT);
        self.shared.waiting.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl FillerState {
    /// Waits until everything is written, but at most until `end`. Returns whether it is.
    fn wait_until(&self, end: Instant) -> bool {
        let mut waiting = self.waiting.lock();
        loop {
            if !waiting.is_writing && waiting.entries.is_empty() {
                return true;
            }
            if self.changed.wait_until(&mut waiting, end).timed_out() {
                return false;
            }
        }
    }

    fn write_all(&self) {
        // Dead processes may have left files.
        if let Err(error) = self.space.recount() {
            log::warn!("{}: the disk cache cannot be counted: {error}", self.root.display());
        }
        let mut paused_until: Option<Instant> = None;
        while let Some(entry) = self.next() {
            let length = entry.bytes.len() as u64;
            let is_paused = paused_until.is_some_and(|end| Instant::now() < end);
            let written = if is_paused { Ok(WriteOutcome::NoRoom) } else { self.write(&entry) };
            match written {
                Ok(WriteOutcome::New) => &self.written_bytes,
                Ok(WriteOutcome::Known | WriteOutcome::Outdated | WriteOutcome::NoRoom) => {
                    &self.skipped_bytes
                }
                Err(error) => {
                    let (shown, seconds) = (self.root.display(), PAUSE.as_secs());
                    log::warn!("{shown}: the disk cache stores nothing more for {seconds} s: {error}");
                    paused_until = Some(Instant::now() + PAUSE);
                    &self.skipped_bytes
                }
            }
            .fetch_add(length, Ordering::Relaxed);
        }
    }

    /// Returns the next entry, as soon as there is one; `None` at the end.
    fn next(&self) -> Option<NewEntry> {
        let mut waiting = self.waiting.lock();
        waiting.is_writing = false;
        loop {
            if let Some(entry) = waiting.entries.pop_front() {
                waiting.bytes -= entry.bytes.len();
                waiting.is_writing = true;
                return Some(entry);
            }
            self.changed.notify_all();
            if waiting.is_closed {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    /// Writes an entry, unless it exists or is no longer true.
    fn write(&self, entry: &NewEntry) -> io::Result<WriteOutcome> {
        let digest = entry.object.digest();
        let folder = self.root.join(OBJECTS).join(entry_folder(&digest));
        if parts(&folder, &digest)?.iter().any(|known| known.name.part.covers(&entry.part)) {
            return Ok(WriteOutcome::Known);
        }
        let name = EntryName { part: entry.part.clone(), times: entry.times };
        let header = match entry.part {
            // The name says everything.
            EntryContent::Missing => Some(Vec::new()),
            _ => Header::encode(&entry.object, &name, entry.meta.as_ref(), &entry.bytes),
        };
        let Some(header) = header else { return Ok(WriteOutcome::NoRoom) };
        let length = (header.len() + entry.bytes.len()) as u64;
        let Some(new) = self.space.take(length)? else { return Ok(WriteOutcome::NoRoom) };
        let written = new.file.write_all_at(&header, 0);
        let written = written.and_then(|()| new.file.write_all_at(&entry.bytes, header.len() as u64));
        let publish = || {
            // Nothing else can become known while the entry gets its name.
            let turn = self.clock.turn()?;
            let says_the_same = |known: &DiskEntry| known.name.part.says_the_same(&entry.part);
            let is_true = turn.is_last(&digest, fact(&entry.part))?
                || parts(&folder, &digest)?.iter().any(says_the_same);
            if is_true {
                self.space.publish(&new, &digest, &name.text(&digest))?;
            }
            Ok(is_true)
        };
        match written.and_then(|()| publish()) {
            Ok(true) => Ok(WriteOutcome::New),
            Ok(false) => self.space.remove(&new.path).map(|()| WriteOutcome::Outdated),
            Err(error) => {
                self.space.remove(&new.path)?;
                Err(error)
            }
        }
    }
}
