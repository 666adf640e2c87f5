//! Writes entries, on a thread of its own, so that no reader waits for it. Uses its neighbours.
//!
//! Invariants: what waits takes at most [`MAX_WAITING_BYTES`] of memory, and more is skipped; a disk that is full stops filling for a
//! while, and nothing else.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::clock::Clock;
use super::entry::{Entry, Header, ObjectMeta, parts};
use super::facts::{fact, overtaken};
use super::name::{EntryName, ObjectName, Part, Times, folder_of};
use super::space::{OBJECTS, Space};
use crate::memory::Buffer;

/// Memory of entries that wait to be written.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// How long nothing is written after the disk was found to be full.
const PAUSE: Duration = Duration::from_secs(60);
/// How long the end of the process waits for entries that are not written yet.
const MAX_LAST_WAIT: Duration = Duration::from_secs(5);

/// An entry that is to be written.
pub struct NewEntry {
    /// The object.
    pub object: ObjectName,
    /// What the entry has.
    pub part: Part,
    /// When that was known.
    pub times: Times,
    /// What the service said of the object.
    pub meta: Option<ObjectMeta>,
    /// The bytes.
    pub bytes: Arc<Buffer>,
}

impl NewEntry {
    /// The mark of an object that is not there.
    pub fn missing(object: ObjectName, times: Times) -> Self {
        NewEntry { object, part: Part::Missing, times, meta: None, bytes: Arc::default() }
    }
}

/// The thread, and what it has to do.
pub struct Filler {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    space: Arc<Space>,
    clock: Arc<Clock>,
    waiting: Mutex<Waiting>,
    /// Notified when there is more to do, or nothing any more.
    changed: Condvar,
    written_bytes: AtomicU64,
    skipped_bytes: AtomicU64,
}

/// What became of an entry.
enum Written {
    /// It is there now.
    New,
    /// It was there.
    Known,
    /// Something else became known of the object.
    Outdated,
    /// It cannot be kept.
    NoRoom,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<NewEntry>,
    bytes: usize,
    is_writing: bool,
    is_closed: bool,
}

impl Filler {
    /// Starts the thread.
    pub fn start(root: &Path, space: Arc<Space>, clock: Arc<Clock>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            space,
            clock,
            waiting: Mutex::new(Waiting { is_writing: true, ..Waiting::default() }),
            changed: Condvar::new(),
            written_bytes: AtomicU64::new(0),
            skipped_bytes: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("zarrfs-disk-cache".to_owned())
            .spawn(move || of_thread.write_all())?;
        Ok(Filler { shared })
    }

    /// Has an entry written, unless too many wait.
    pub fn add(&self, entry: NewEntry) {
        let length = entry.bytes.len();
        let mut waiting = self.shared.waiting.lock();
        if waiting.bytes + length > MAX_WAITING_BYTES {
            self.shared.skipped_bytes.fetch_add(length as u64, Ordering::Relaxed);
            return;
        }
        waiting.bytes += length;
        waiting.entries.push_back(entry);
        self.shared.changed.notify_all();
    }

    /// Writes an entry at once. That there is no room for it is an error.
    pub fn write(&self, entry: &NewEntry) -> io::Result<()> {
        let written = self.shared.write(entry)?;
        match written {
            Written::New => &self.shared.written_bytes,
            Written::Known | Written::Outdated | Written::NoRoom => &self.shared.skipped_bytes,
        }
        .fetch_add(entry.bytes.len() as u64, Ordering::Relaxed);
        match written {
            Written::NoRoom => {
                Err(io::Error::new(io::ErrorKind::StorageFull, "--disk-cache-size is too small"))
            }
            Written::Outdated => Err(overtaken()),
            Written::New | Written::Known => Ok(()),
        }
    }

    /// Waits until all is written, or for so long.
    pub fn wait(&self, at_most: Duration) {
        let end = Instant::now() + at_most;
        let mut waiting = self.shared.waiting.lock();
        while (waiting.is_writing || !waiting.entries.is_empty())
            && !self.shared.changed.wait_until(&mut waiting, end).timed_out()
        {}
    }

    /// What waits is lost, as with a process that is killed.
    #[cfg(test)]
    pub fn abandon(&self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.entries.clear();
        waiting.bytes = 0;
    }

    /// Bytes that were written, and bytes that were left out.
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

impl Shared {
    fn write_all(&self) {
        // Processes that died may have left files.
        if let Err(error) = self.space.recount() {
            log::warn!("{}: the disk cache cannot be counted: {error}", self.root.display());
        }
        let mut paused_until: Option<Instant> = None;
        while let Some(entry) = self.next() {
            let length = entry.bytes.len() as u64;
            let is_paused = paused_until.is_some_and(|end| Instant::now() < end);
            let written = if is_paused { Ok(Written::NoRoom) } else { self.write(&entry) };
            match written {
                Ok(Written::New) => &self.written_bytes,
                Ok(Written::Known | Written::Outdated | Written::NoRoom) => &self.skipped_bytes,
                Err(error) => {
                    let (shown, seconds) = (self.root.display(), PAUSE.as_secs());
                    log::warn!("{shown}: the disk cache keeps nothing more for {seconds} s: {error}");
                    paused_until = Some(Instant::now() + PAUSE);
                    &self.skipped_bytes
                }
            }
            .fetch_add(length, Ordering::Relaxed);
        }
    }

    /// The next entry, as soon as there is one; `None` at the end.
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

    /// Writes an entry, unless it is there, or no longer true.
    fn write(&self, entry: &NewEntry) -> io::Result<Written> {
        let digest = entry.object.digest();
        let folder = self.root.join(OBJECTS).join(folder_of(&digest));
        if parts(&folder, &digest)?.iter().any(|known| known.name.part.covers(&entry.part)) {
            return Ok(Written::Known);
        }
        let name = EntryName { part: entry.part.clone(), times: entry.times };
        let header = match entry.part {
            // The name says it all.
            Part::Missing => Some(Vec::new()),
            _ => Header::encode(&entry.object, &name, entry.meta.as_ref(), &entry.bytes),
        };
        let Some(header) = header else { return Ok(Written::NoRoom) };
        let length = (header.len() + entry.bytes.len()) as u64;
        let Some(new) = self.space.take(length)? else { return Ok(Written::NoRoom) };
        let written = new.file.write_all_at(&header, 0);
        let written = written.and_then(|()| new.file.write_all_at(&entry.bytes, header.len() as u64));
        let publish = || {
            // Nothing else becomes known while it gets its name.
            let turn = self.clock.turn()?;
            let says_the_same = |known: &Entry| known.name.part.says_the_same(&entry.part);
            let is_true = turn.is_last(&digest, fact(&entry.part))?
                || parts(&folder, &digest)?.iter().any(says_the_same);
            if is_true {
                self.space.publish(&new, &digest, &name.text(&digest))?;
            }
            Ok(is_true)
        };
        match written.and_then(|()| publish()) {
            Ok(true) => Ok(Written::New),
            Ok(false) => self.space.remove(&new.path).map(|()| Written::Outdated),
            Err(error) => {
                self.space.remove(&new.path)?;
                Err(error)
            }
        }
    }
}
