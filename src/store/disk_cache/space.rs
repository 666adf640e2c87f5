//! The space that the entries take, and eviction when there is no more. Uses `name` for the layout of the folder.
//!
//! `DIR/zarrfs-disk-cache` has the count of bytes, and is locked while space is taken, so that all processes that share the
//! folder count together. The count is never too small: space is taken before a file is created, and given back after it is
//! removed. A process that dies in between leaves it too large, which the next scan corrects. After a restart of the machine it
//! is not known what reached the disk, so the first process that takes space scans.
//!
//! Invariant: files never take more than the limit of the process that adds one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::name::{EntryName, entry_folder};
use crate::store::object::version::VersionDigest;

/// The file that marks the folder, locks it and has the count.
pub const ABOUT: &str = "zarrfs-disk-cache";
/// The folder of the entries.
pub const OBJECTS: &str = "objects";
/// The folder of files that are being written.
pub const NEW: &str = "new";
/// Files are counted in blocks of this size.
const BLOCK_BYTES: u64 = 4096;
/// A file that is being written for longer than this was left by a dead process.
const MAX_WRITING_TIME: Duration = Duration::from_secs(600);
/// The part of the limit that eviction frees: a scan costs as much for one entry as for many.
const FREED_PART: u64 = 10;

/// The space that a folder's files take.
pub struct Space {
    root: PathBuf,
    limit_bytes: u64,
    /// The file that is locked against other processes. The mutex locks it against other threads, because a file lock belongs
    /// to the open file.
    about: Mutex<File>,
    /// The identity of this run of the machine.
    boot: String,
    next_number: AtomicU64,
    /// Entries that were removed to make room.
    evicted: AtomicU64,
    used_bytes: AtomicU64,
}

/// A file that is being written.
pub struct NewFile {
    /// The file, with its final length.
    pub file: File,
    /// Its path until it gets its name.
    pub path: PathBuf,
}

/// A file of an entry.
pub struct EntryFile {
    /// The path.
    pub path: PathBuf,
    /// The space that it takes.
    pub size_bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
}

/// The count, under the lock.
struct Count<'a> {
    file: parking_lot::MutexGuard<'a, File>,
    boot: &'a str,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Count<'_> {
    /// Returns the count; `None` if it cannot be trusted.
    fn get(&self) -> Option<u64> {
        let mut text = [0; 256];
        let length = self.file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        let (boot, bytes) = text.lines().next()?.split_once(' ')?;
        if boot == self.boot { bytes.trim_end().parse().ok() } else { None }
    }

    fn set(&self, bytes: u64) -> io::Result<()> {
        // The text always has the same length, so that it replaces the older count completely.
        self.file.write_all_at(format!("{} {bytes:<20}\n", self.boot).as_bytes(), 0)
    }
}

/// Returns the space that a file takes. An empty file has an inode and a name.
fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).max(1) * BLOCK_BYTES
}

impl Space {
    /// Returns the space of the folder at `root`. `about` is its open file of that name.
    pub fn new(root: &Path, about: File, limit_bytes: u64) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Space {
            root: root.to_owned(),
            limit_bytes,
            about: Mutex::new(about),
            boot: VersionDigest::fnv1a(&boot).to_string(),
            next_number: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the limit of the files' size.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the number of entries that this process evicted.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the size of the files when this process last counted.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn count(&self) -> io::Result<Count<'_>> {
        let file = self.about.lock();
        file.lock()?;
        Ok(Count { file, boot: &self.boot })
    }

    /// Whether the count is from this run of the machine.
    pub fn is_from_this_boot(&self) -> bool {
        self.count().is_ok_and(|count| count.get().is_some())
    }

    /// Counts the files again, and removes those that dead processes have left.
    pub fn recount(&self) -> io::Result<u64> {
        let count = self.count()?;
        let bytes = self.scan(&mut |_| {})?;
        self.store(&count, bytes)?;
        Ok(bytes)
    }

    fn store(&self, count: &Count<'_>, bytes: u64) -> io::Result<()> {
        self.used_bytes.store(bytes, Ordering::Relaxed);
        count.set(bytes)
    }

    /// Creates a new file of this length, after evicting older entries if necessary; `None` if the limit is too small for it.
    pub fn take(&self, size_bytes: u64) -> io::Result<Option<NewFile>> {
        let needed = blocks(size_bytes);
        if needed > self.limit_bytes {
            return Ok(None);
        }
        let count = self.count()?;
        let mut used = match count.get() {
            Some(used) => used,
            None => self.scan(&mut |_| {})?,
        };
        if used.saturating_add(needed) > self.limit_bytes {
            used = self.evict(self.limit_bytes.saturating_sub(needed.max(self.limit_bytes / FREED_PART)))?;
        }
        if used.saturating_add(needed) > self.limit_bytes {
            self.store(&count, used)?;
            return Ok(None);
        }
        self.store(&count, used + needed)?;
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = self.root.join(NEW).join(format!("{}-{started}-{number}", std::process::id()));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let made = made.and_then(|file| {
            file.set_len(size_bytes)?;
            Ok(NewFile { file, path: path.clone() })
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&path);
            self.store(&count, used)?;
        }
        made.map(Some)
    }

    /// Gives a file its name.
    pub fn publish(&self, new: &NewFile, digest: &str, name: &str) -> io::Result<()> {
        let folder = self.root.join(OBJECTS).join(entry_folder(digest));
        let path = folder.join(name);
        match std::fs::rename(&new.path, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().mode(0o700).recursive(true).create(&folder)?;
                std::fs::rename(&new.path, &path)
            }
            renamed => renamed,
        }
    }

    /// Removes a file, and gives its space back.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let size_bytes = match std::fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let count = self.count()?;
        match std::fs::remove_file(path) {
            Ok(()) => match count.get() {
                Some(used) => self.store(&count, used.saturating_sub(blocks(size_bytes))),
                None => Ok(()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the least recently used entries, until all files take at most this much.
    fn evict(&self, most_bytes: u64) -> io::Result<u64> {
        let mut entries = Vec::new();
        let mut used = self.scan(&mut |entry| entries.push(entry))?;
        entries.sort_unstable_by_key(|entry| entry.used);
        for entry in entries {
            if used <= most_bytes {
                break;
            }
            match std::fs::remove_file(&entry.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => used = used.saturating_sub(entry.size_bytes),
            }
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(used)
    }

    /// Removes all entries.
    pub fn clear(&self) -> io::Result<u64> {
        let count = self.count()?;
        let (mut removed, mut failed) = (0, Ok(()));
        let _ = self.scan(&mut |entry| match std::fs::remove_file(&entry.path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failed = Err(error),
        })?;
        let bytes = self.scan(&mut |_| {})?;
        self.store(&count, bytes)?;
        failed.map(|()| removed)
    }

    /// Returns all entries.
    pub fn entries(&self) -> io::Result<Vec<EntryFile>> {
        let mut entries = Vec::new();
        self.scan(&mut |entry| entries.push(entry))?;
        Ok(entries)
    }

    /// Returns when the last entry became known; 0 without entries.
    pub fn last_known(&self) -> io::Result<u64> {
        let mut last = 0;
        self.scan(&mut |entry| {
            let name = entry.path.file_name().and_then(|name| name.to_str());
            last = last.max(name.and_then(EntryName::known).unwrap_or(0));
        })?;
        Ok(last)
    }

    /// Calls `each` with each entry, and returns the space that all files take.
    fn scan(&self, each: &mut dyn FnMut(EntryFile)) -> io::Result<u64> {
        let mut used = 0;
        for file in files(&self.root.join(NEW))? {
            let is_left = file.used.elapsed().is_ok_and(|time| time > MAX_WRITING_TIME);
            if !is_left || std::fs::remove_file(&file.path).is_err() {
                used += file.size_bytes;
            }
        }
        for folder in std::fs::read_dir(self.root.join(OBJECTS))? {
            let folder = folder?;
            if folder.file_type()?.is_dir() {
                for file in files(&folder.path())? {
                    used += file.size_bytes;
                    each(file);
                }
            }
        }
        Ok(used)
    }
}

/// Returns the files of one folder. Files that are removed meanwhile are left out.
fn files(folder: &Path) -> io::Result<Vec<EntryFile>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if let Ok(metadata) = entry.metadata()
            && metadata.is_file()
        {
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push(EntryFile { path: entry.path(), size_bytes: blocks(metadata.len()), used });
        }
    }
    Ok(found)
}
