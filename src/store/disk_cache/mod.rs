//! A cache of fetched bytes of remote objects, in a folder of this machine.
//!
//! An **entry** is one file: bytes of one version of an object (`entry.rs`), under a name that identifies them (`name.rs`).
//! Processes share a folder and find each other's entries, because the folder is the only index. New facts about an object
//! invalidate other entries of it (`knowledge.rs`, with the order of `clock.rs`). `space.rs` keeps the limit, `filler.rs`
//! writes, and `upkeep.rs` is for the commands. Uses `error`, `memory` and the rest of `store`; `remote/origin.rs` decides when
//! an entry may be used.
//!
//! Why this is not a library: with foyer's disk tier, two processes on one folder lose most of each other's entries, and its
//! folder is as large as the limit from the start; cacache has no limit, and two files for each entry.
//!
//! Invariants:
//! - An entry is used for the object, version and range that its header names, and only if its checksum is right.
//! - A reply or a write is recorded before its reader or writer gets the outcome: by then entries that contradict it are gone,
//!   and older replies that arrive later are not cached.
//! - A lost or damaged entry is a miss. Nothing waits for an entry to be written, and entries are not synced.
//! - The folder belongs to this user alone.

mod clock;
mod entry;
mod facts;
mod filler;
mod folder_names;
mod knowledge;
mod listings;
mod name;
#[cfg(test)]
mod schedules;
mod space;
#[cfg(test)]
mod tests;
mod upkeep;

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use self::clock::Clock;
use self::entry::{DiskEntry, Header, place};
pub use self::entry::{MAX_ENTRY_BYTES, ObjectMeta};
#[cfg(feature = "remote")]
pub use self::facts::{Observation, Presence, overtaken};
pub use self::filler::finish_all;
use self::filler::{Filler, NewEntry};
#[cfg(feature = "remote")]
pub use self::folder_names::FolderNames;
use self::folder_names::Listings;
use self::name::EntryContent;
pub use self::name::{EntryTimes, ObjectName};
use self::space::{ABOUT, NEW, OBJECTS, Space};
pub use self::upkeep::{DiskCacheSummary, DiskCacheVerified};
use super::{DiskCacheCounts, Wanted};
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::sys;

/// The largest default limit.
const MAX_DEFAULT_LIMIT_BYTES: u64 = 100 << 30;
/// The part of the free space that is the default limit.
const DEFAULT_PART_OF_FREE: u64 = 10;
/// The time of last use is updated no more often than this.
const USE_GRANULARITY: Duration = Duration::from_secs(60);

/// Options for a disk cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// The folder, which is created if it is missing.
    pub folder: PathBuf,
    /// The limit of its size; by default a tenth of the free space, and at most 100 GiB.
    pub limit_bytes: Option<u64>,
    /// Whether no requests are sent to the service: bytes that are not in the cache cannot be read.
    pub is_offline: bool,
    /// Whether it is an error if fetched bytes cannot be cached.
    pub must_keep: bool,
}

/// A disk cache: entries in a folder.
pub struct DiskCache {
    root: PathBuf,
    space: Arc<Space>,
    clock: Arc<Clock>,
    filler: Filler,
    hits: AtomicU64,
    misses: AtomicU64,
    read_bytes: AtomicU64,
    damaged: AtomicU64,
    listings: Listings,
}

/// Entries that have the requested bytes.
pub struct CachedBytes {
    /// The metadata that the service gave for the object.
    pub meta: ObjectMeta,
    /// The range of the requested bytes.
    pub range: Range<u64>,
    /// The header of the first file.
    header: Box<Header>,
    files: Files,
}

impl CachedBytes {
    /// Whether one entry has all of the bytes.
    pub fn is_one_entry(&self) -> bool {
        matches!(self.files.as_slice(), [(range, _)] if range.start <= self.range.start && self.range.end <= range.end)
    }
}

/// Files with bytes of one version, and their ranges.
type Files = Vec<(Range<u64>, PathBuf)>;

impl DiskCache {
    /// Opens the cache in a folder, which is created if it is missing. Fails for a folder that others may write to or that has
    /// other files.
    pub fn open(options: &DiskCacheOptions) -> Result<Self> {
        let folder = &options.folder;
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(folder)
            .map_err(|error| refused(folder, &error))?;
        check_owner(folder)?;
        if !folder.join(ABOUT).exists() {
            let mut names = std::fs::read_dir(folder).map_err(|error| refused(folder, &error))?;
            if names.next().is_some() {
                return Err(usage(
                    folder,
                    "the folder has other files: name an empty one, or one that does not exist",
                ));
            }
        }
        Self::prepare(folder, options.limit_bytes).map_err(|error| refused(folder, &error))
    }

    /// Opens the cache in a folder that has one.
    pub fn open_existing(folder: &Path) -> Result<Self> {
        if !folder.join(ABOUT).exists() {
            return Err(usage(folder, "no disk cache is in this folder: name the DIR of --disk-cache"));
        }
        check_owner(folder)?;
        Self::prepare(folder, None).map_err(|error| refused(folder, &error))
    }

    fn prepare(folder: &Path, limit_bytes: Option<u64>) -> io::Result<Self> {
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        for name in [OBJECTS, NEW] {
            DirBuilder::new().mode(0o700).recursive(true).create(folder.join(name))?;
        }
        let about = folder.join(ABOUT);
        let about =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(about)?;
        // After a restart of the machine the clock may be older than the entries.
        let clock = Arc::new(Clock::open(folder)?);
        let known = Space::new(folder, about.try_clone()?, 0);
        if !known.is_from_this_boot() {
            clock.turn()?.advance_past(known.last_known()?)?;
        }
        let limit_bytes = match limit_bytes {
            Some(bytes) => bytes,
            // The cache's own files count as free space.
            None => default_limit(folder, known.recount()?)?,
        };
        let space = Arc::new(Space::new(folder, about, limit_bytes));
        let filler = Filler::start(folder, Arc::clone(&space), Arc::clone(&clock))?;
        let zero = || AtomicU64::new(0);
        let root = folder.to_owned();
        Ok(DiskCache {
            root,
            space,
            clock,
            filler,
            hits: zero(),
            misses: zero(),
            read_bytes: zero(),
            damaged: zero(),
            listings: Listings::default(),
        })
    }

    /// Finds entries with these bytes of an object; with `tag`, only of the version with this ETag. Of several versions, the
    /// one that was cached last counts.
    pub fn find(&self, object: &ObjectName, wanted: &Wanted, tag: Option<&str>) -> Option<CachedBytes> {
        let mut versions: Vec<(String, u64, Files)> = Vec::new();
        for DiskEntry { name, path } in self.entries_for(&object.digest()).unwrap_or_default() {
            let EntryContent::Bytes { tag, size_bytes, range } = name.part else { continue };
            match versions.iter_mut().find(|(known, size, _)| *known == tag && *size == size_bytes) {
                Some((.., files)) => files.push((range, path)),
                None => versions.push((tag, size_bytes, vec![(range, path)])),
            }
        }
        let found = versions.into_iter().filter_map(|(_, size_bytes, files)| {
            let range = resolved(wanted, size_bytes);
            let files = cover(files, &range)?;
            let (first, path) = files.first()?;
            let file = File::open(path).ok()?;
            let Some(header) = Header::read(&file).ok()?.filter(|header| header.has(first, size_bytes))
            else {
                self.drop_damaged(path);
                return None;
            };
            let kept = file.metadata().ok()?.modified().ok()?;
            let meta = header.meta.clone().filter(|_| header.object == *object)?;
            let is_asked_for = tag.is_none_or(|tag| tag == meta.e_tag);
            is_asked_for.then_some((kept, CachedBytes { meta, range, header: Box::new(header), files }))
        });
        found.max_by_key(|(kept, _)| *kept).map(|(_, found)| found)
    }

    /// Returns the metadata of an object that has some cached bytes.
    pub fn meta(&self, object: &ObjectName) -> Option<ObjectMeta> {
        let entries = self.entries_for(&object.digest()).unwrap_or_default();
        let entries =
            entries.into_iter().filter(|entry| matches!(entry.name.part, EntryContent::Bytes { .. }));
        let read = entries.filter_map(|entry| {
            let file = File::open(&entry.path).ok()?;
            let header = Header::read(&file).ok()??;
            let kept = file.metadata().ok()?.modified().ok()?;
            Some((kept, header.meta.filter(|_| header.object == *object)?))
        });
        read.max_by_key(|(kept, _)| *kept).map(|(_, meta)| meta)
    }

    /// Reads the bytes that were found; `None` if they are gone or damaged now.
    pub fn read(&self, found: &CachedBytes) -> Option<Buffer> {
        let range = &found.range;
        let mut bytes = Buffer::try_new(usize::try_from(range.end - range.start).ok()?)?;
        let is_read = match found.is_one_entry() {
            true => self.read_at(found, range.start, &mut bytes),
            false => self.assemble(found, &mut bytes).is_some(),
        };
        is_read.then(|| {
            self.count_hit();
            bytes
        })
    }

    /// Counts a hit.
    pub fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Fills `out` from an offset in the object with bytes that were found in one entry. Returns `false` if they are gone or
    /// damaged now, or are not among the bytes that were found.
    pub fn read_at(&self, found: &CachedBytes, offset: u64, out: &mut [u8]) -> bool {
        let [(range, path)] = found.files.as_slice() else { return false };
        let Some(place) = offset.checked_sub(range.start) else { return false };
        if offset.saturating_add(out.len() as u64) > range.end {
            return false;
        }
        self.read_entry(&found.header, path, place, out).is_some()
    }

    /// Fills `out` from several entries.
    fn assemble(&self, found: &CachedBytes, out: &mut [u8]) -> Option<()> {
        let wanted = &found.range;
        for (range, path) in &found.files {
            let header = Header::read(&File::open(path).ok()?).ok()?;
            let is_right = |header: &Header| {
                let is_same =
                    header.object == found.header.object && header.meta.as_ref() == Some(&found.meta);
                is_same && header.has(range, found.meta.size_bytes)
            };
            let Some(header) = header.filter(is_right) else {
                self.drop_damaged(path);
                return None;
            };
            let common = range.start.max(wanted.start)..range.end.min(wanted.end);
            let out = out.get_mut(place(&common, wanted.start)?)?;
            self.read_entry(&header, path, common.start - range.start, out)?;
        }
        Some(())
    }

    /// Fills `out` from a place in an entry.
    fn read_entry(&self, header: &Header, path: &Path, place: u64, out: &mut [u8]) -> Option<()> {
        let file = File::open(path).ok()?;
        if !header.read_at(&file, place, out).ok()? {
            self.drop_damaged(path);
            return None;
        }
        let now = SystemTime::now();
        let used = file.metadata().and_then(|metadata| metadata.modified()).unwrap_or(now);
        if now.duration_since(used).is_ok_and(|time| time > USE_GRANULARITY) {
            let _ = file.set_modified(now);
        }
        self.read_bytes.fetch_add(out.len() as u64, Ordering::Relaxed);
        Some(())
    }

    fn drop_damaged(&self, path: &Path) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        log::info!("{}: a damaged entry of the disk cache is removed", path.display());
        let _ = self.space.remove(path);
    }

    /// Counts a miss.
    pub fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Caches bytes of an object that was recorded at these times, unless too many bytes wait to be written.
    pub fn keep(&self, bytes: NewBytes, times: EntryTimes) {
        if let Ok(entry) = bytes.entry(times) {
            self.filler.add(entry);
        }
    }

    /// Caches bytes as [`DiskCache::keep`] does, but returns after they were written or could not be.
    pub fn keep_now(&self, bytes: NewBytes, times: EntryTimes) -> io::Result<()> {
        self.filler.write(&bytes.entry(times)?)
    }

    /// Caches the fact that an object is missing.
    pub fn keep_missing(&self, object: ObjectName, times: EntryTimes) {
        self.filler.add(NewEntry::missing(object, times));
    }

    /// Caches a fact as [`DiskCache::keep_missing`] does, but returns after it was written or could not be.
    pub fn keep_missing_now(&self, object: ObjectName, times: EntryTimes) -> io::Result<()> {
        self.filler.write(&NewEntry::missing(object, times))
    }

    /// Waits until no entry waits to be written.
    #[cfg(test)]
    pub fn wait_until_written(&self) {
        while !self.filler.wait(Duration::from_secs(60)) {}
    }

    /// Ends like a killed process: entries that wait to be written are lost.
    #[cfg(test)]
    pub fn abandon(&self) {
        self.filler.abandon();
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// Returns the counts since the cache was opened, and its size.
    pub fn counts(&self) -> DiskCacheCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (written_bytes, skipped_bytes) = self.filler.counts();
        DiskCacheCounts {
            hits: get(&self.hits),
            misses: get(&self.misses),
            read_bytes: get(&self.read_bytes),
            written_bytes,
            skipped_bytes,
            damaged: get(&self.damaged),
            evicted: self.space.evicted(),
            size_bytes: self.space.used_bytes(),
            limit_bytes: self.space.limit_bytes(),
        }
    }
}

/// Bytes of an object to cache.
pub struct NewBytes {
    /// The object.
    pub object: ObjectName,
    /// The metadata that the service gave for it.
    pub meta: ObjectMeta,
    /// The offset of the bytes.
    pub start: u64,
    /// The bytes.
    pub bytes: Arc<Buffer>,
}

impl NewBytes {
    /// Makes an entry of the bytes, unless there are too many.
    fn entry(self, times: EntryTimes) -> io::Result<NewEntry> {
        let NewBytes { object, meta, start, bytes } = self;
        let length = bytes.len() as u64;
        if length > MAX_ENTRY_BYTES || start.saturating_add(length) > meta.size_bytes {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than an entry may be"));
        }
        let part = EntryContent::bytes(&meta.e_tag, meta.size_bytes, start..start + length);
        Ok(NewEntry { object, part, times, meta: Some(meta), bytes })
    }
}

fn usage(folder: &Path, sentence: &str) -> Error {
    Error::Usage(format!("{}: {sentence}", folder.display()))
}

fn refused(folder: &Path, error: &io::Error) -> Error {
    usage(folder, &format!("cannot be used as a disk cache: {error}"))
}

/// Fails for a folder whose files others could change.
fn check_owner(folder: &Path) -> Result<()> {
    let metadata = std::fs::metadata(folder).map_err(|error| refused(folder, &error))?;
    let (user, _) = sys::effective_ids();
    if !metadata.is_dir() {
        return Err(usage(folder, "is not a folder: name one for the disk cache"));
    }
    if metadata.uid() != user {
        return Err(usage(folder, "belongs to another user: name a folder of your own for the disk cache"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(usage(
            folder,
            "others may write to it, so its entries are not to be trusted: run chmod 700 on it, or name another folder",
        ));
    }
    Ok(())
}

/// Returns a tenth of the free space, including the cache's own files.
fn default_limit(folder: &Path, used_bytes: u64) -> io::Result<u64> {
    let folder = File::open(folder)?;
    let stat = sys::statvfs(std::os::fd::AsFd::as_fd(&folder))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize).saturating_add(used_bytes);
    Ok((free / DEFAULT_PART_OF_FREE).min(MAX_DEFAULT_LIMIT_BYTES))
}

/// Returns the range that is wanted of an object of this size.
fn resolved(wanted: &Wanted, size_bytes: u64) -> Range<u64> {
    match wanted {
        Wanted::Whole { .. } => 0..size_bytes,
        Wanted::Range(range) => range.start.min(size_bytes)..range.end.min(size_bytes),
        Wanted::Last(bytes) => size_bytes.saturating_sub(*bytes)..size_bytes,
    }
}

/// Chooses files that together have all of a range, in order: one file if it has all of it.
fn cover(mut files: Files, wanted: &Range<u64>) -> Option<Files> {
    let has_all = |range: &Range<u64>| range.start <= wanted.start && wanted.end <= range.end;
    let smallest = files.iter().enumerate().filter(|(_, (range, _))| has_all(range));
    if let Some((at, _)) = smallest.min_by_key(|(_, (range, _))| range.end - range.start) {
        return Some(vec![files.swap_remove(at)]);
    }
    files.sort_unstable_by_key(|(range, _)| range.start);
    let (mut chosen, mut end) = (Files::new(), wanted.start);
    let mut rest = files.into_iter().peekable();
    while end < wanted.end {
        let mut best: Option<(Range<u64>, PathBuf)> = None;
        while let Some(file) = rest.next_if(|(range, _)| range.start <= end) {
            if best.as_ref().is_none_or(|(range, _)| range.end < file.0.end) {
                best = Some(file);
            }
        }
        let best = best.filter(|(range, _)| range.end > end)?;
        end = best.0.end;
        chosen.push(best);
    }
    Some(chosen)
}
