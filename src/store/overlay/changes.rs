//! Which objects an overlay changes: a list in memory, and a file of lines that is appended to.
//!
//! Uses its neighbours in `overlay` and `error`'s callers. Each line says what became of one key, and the last line of a key
//! counts. A line has a checksum, and how much of the file was durable when it was appended: so bytes that a crash left behind
//! the last durable line are told from damage before it.
//!
//! Invariant: a line is durable before the file in `objects/` that it is about gets or loses its name. A line without its file
//! says nothing: the object is as it was before ([`Entry::Written`] has which).

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};

use super::line::{Entry, Line};

/// The longest line that is read.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// A file with so many lines more than twice the number of entries is written anew when it is opened.
const SPARE_LINES: usize = 1024;

/// The changes of an overlay.
pub(super) struct Changes {
    path: PathBuf,
    state: RwLock<State>,
    /// Present where this process may change it.
    log: Option<Log>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<String, Logged>,
    touched: HashMap<String, SystemTime>,
    /// What was read of the file.
    inode: u64,
    size_bytes: u64,
    /// Keeps the inode from being used again.
    _file: Option<File>,
}

/// What the last line of a key says, and where it ends in the file.
#[derive(Clone, Copy)]
struct Logged {
    entry: Entry,
    end: u64,
}

/// The file, open for appending.
struct Log {
    file: File,
    tail: Mutex<Tail>,
    /// Held while the file is synced: who waits for it finds its own line durable.
    syncing: Mutex<()>,
}

/// The end of the file.
struct Tail {
    /// So many bytes are durable.
    durable: u64,
    /// The bytes after them.
    bytes: Vec<u8>,
    /// The bytes in the file may be others: an append or a sync failed.
    is_suspect: bool,
}

impl Tail {
    fn end(&self) -> u64 {
        self.durable + self.bytes.len() as u64
    }

    /// Writes what is not durable once more, after a failure. (After a failed sync the kernel believes it written.)
    fn mend(&mut self, file: &File) -> io::Result<()> {
        if self.is_suspect {
            file.set_len(self.end())?;
            write_at(file, &self.bytes, self.durable)?;
            self.is_suspect = false;
        }
        Ok(())
    }
}

/// The lock of the tail excludes others from the file's position.
fn write_at(mut file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

impl Log {
    fn append(&self, line: &Line) -> io::Result<u64> {
        let mut tail = self.tail.lock();
        tail.mend(&self.file)?;
        let text = line.encode(tail.durable);
        if let Err(error) = write_at(&self.file, text.as_bytes(), tail.end()) {
            tail.is_suspect = true;
            return Err(error);
        }
        tail.bytes.extend_from_slice(text.as_bytes());
        Ok(tail.end())
    }

    fn make_durable(&self, end: u64) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let all = {
            let mut tail = self.tail.lock();
            if tail.durable >= end {
                return Ok(());
            }
            tail.mend(&self.file)?;
            tail.end()
        };
        let synced = self.file.sync_data();
        let mut tail = self.tail.lock();
        match &synced {
            Ok(()) => {
                let length = (all - tail.durable) as usize;
                tail.bytes.drain(..length);
                tail.durable = all;
            }
            Err(_) => tail.is_suspect = true,
        }
        synced
    }
}

impl State {
    fn apply(&mut self, line: Line, end: u64) {
        match line {
            Line::Entry(key, entry) => {
                self.entries.insert(key, Logged { entry, end });
            }
            Line::Forget(key) => {
                self.entries.remove(&key);
            }
            Line::Touch(key, at) => {
                self.touched.insert(key, at);
            }
        }
    }

    /// Reads the lines from `start` on. Returns where the last good one ends, and how many there are.
    fn read(&mut self, file: &File, start: u64) -> io::Result<(u64, usize)> {
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(start))?;
        let (mut at, mut good_end, mut lines) = (start, start, 0);
        let mut first_bad = None;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let length = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)? as u64;
            if length == 0 {
                return Ok((good_end, lines));
            }
            at += length;
            match (Line::decode(&bytes), first_bad) {
                (None, _) => {
                    first_bad.get_or_insert(at - length);
                }
                (Some((durable, _)), Some(bad)) if durable > bad => {
                    let reason = format!("the list of changes is damaged at byte {bad}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                }
                // Never was durable, like the line before it.
                (Some(_), Some(_)) => {}
                (Some((_, line)), None) => {
                    self.apply(line, at);
                    (good_end, lines) = (at, lines + 1);
                }
            }
        }
    }
}

impl Changes {
    /// Reads the list at `path`, to be changed by this process alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut state = State::default();
        let (end, lines) = state.read(&file, 0)?;
        file.set_len(end)?;
        file.sync_data()?;
        let mut changes = Changes { path: path.to_owned(), state: RwLock::new(state), log: None };
        changes.log = Some(Log::at(file, end));
        if lines > 2 * changes.len() + SPARE_LINES {
            changes.write_anew()?;
        }
        Ok(changes)
    }

    /// Reads the list at `path`, which another process may be changing.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        let changes = Changes { path: path.to_owned(), state: RwLock::default(), log: None };
        changes.refresh()?;
        Ok(changes)
    }

    /// Replaces the file by one with a line for each entry.
    pub fn write_anew(&mut self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&new)?;
        let mut writer = BufWriter::new(&file);
        let mut end = 0;
        let state = self.state.get_mut();
        for (key, logged) in &mut state.entries {
            let text = Line::Entry(key.clone(), logged.entry).encode(0);
            writer.write_all(text.as_bytes())?;
            end += text.len() as u64;
            logged.end = end;
        }
        for (key, at) in &state.touched {
            let text = Line::Touch(key.clone(), *at).encode(0);
            writer.write_all(text.as_bytes())?;
            end += text.len() as u64;
        }
        writer.flush()?;
        drop(writer);
        file.sync_data()?;
        std::fs::rename(&new, &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        self.log = Some(Log::at(file, end));
        Ok(())
    }

    /// Whether this process may change it.
    pub fn is_writable(&self) -> bool {
        self.log.is_some()
    }

    /// Reads what another process has appended.
    fn refresh(&self) -> io::Result<()> {
        let is_read =
            |state: &State, now: &Metadata| (state.inode, state.size_bytes) == (now.ino(), now.len());
        let now = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if is_read(&self.state.read(), &now) {
            return Ok(());
        }
        let file = File::open(&self.path)?;
        let now = file.metadata()?;
        let mut state = self.state.write();
        if state.inode != now.ino() || state.size_bytes > now.len() {
            *state = State { inode: now.ino(), _file: Some(file.try_clone()?), ..State::default() };
        }
        let start = state.size_bytes;
        let (end, _) = state.read(&file, start)?;
        state.size_bytes = end;
        Ok(())
    }

    fn refreshed(&self) -> io::Result<()> {
        if self.is_writable() { Ok(()) } else { self.refresh() }
    }

    /// What the overlay has at a key; `None` if it changes nothing there.
    pub fn entry(&self, key: &str) -> io::Result<Option<Entry>> {
        self.refreshed()?;
        Ok(self.state.read().entries.get(key).map(|logged| logged.entry))
    }

    /// Whether an object was written below a folder.
    pub fn is_any_written_below(&self, folder: &str) -> io::Result<bool> {
        self.refreshed()?;
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let state = self.state.read();
        let mut below = state.entries.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        Ok(below.any(|(_, logged)| matches!(logged.entry, Entry::Written { .. })))
    }

    /// When a document of the base was touched.
    pub fn touched(&self, key: &str) -> Option<SystemTime> {
        self.state.read().touched.get(key).copied()
    }

    /// All entries, by key.
    pub fn entries(&self) -> io::Result<Vec<(String, Entry)>> {
        self.refreshed()?;
        Ok(self.state.read().entries.iter().map(|(key, logged)| (key.clone(), logged.entry)).collect())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.state.read().entries.len()
    }

    fn log(&self) -> io::Result<&Log> {
        self.log.as_ref().ok_or_else(|| io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// Notes what a key becomes. It is durable when this returns.
    pub fn set(&self, key: &str, entry: Entry) -> io::Result<()> {
        let log = self.log()?;
        let known = self.state.read().entries.get(key).copied().filter(|logged| logged.entry == entry);
        let end = match known {
            Some(logged) => logged.end,
            None => {
                // Both in one step: the order of the lines is that of the entries.
                let mut state = self.state.write();
                let line = Line::Entry(key.to_owned(), entry);
                let end = log.append(&line)?;
                state.apply(line, end);
                end
            }
        };
        log.make_durable(end)
    }

    /// Forgets keys at which the overlay has nothing any more. This becomes durable some time later.
    pub fn forget(&self, key: &str) -> io::Result<()> {
        let log = self.log()?;
        let mut state = self.state.write();
        let line = Line::Forget(key.to_owned());
        let end = log.append(&line)?;
        state.apply(line, end);
        Ok(())
    }

    /// Notes that a document of the base is as if it was changed now. This becomes durable some time later.
    pub fn touch(&self, key: &str) -> io::Result<()> {
        let log = self.log()?;
        let mut state = self.state.write();
        let line = Line::Touch(key.to_owned(), SystemTime::now());
        let end = log.append(&line)?;
        state.apply(line, end);
        Ok(())
    }

    /// Makes all lines durable.
    pub fn sync(&self) -> io::Result<()> {
        let log = self.log()?;
        let end = log.tail.lock().end();
        log.make_durable(end)
    }
}

impl Log {
    fn at(file: File, durable: u64) -> Self {
        let tail = Tail { durable, bytes: Vec::new(), is_suspect: false };
        Log { file, tail: Mutex::new(tail), syncing: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::ObjectVersion;

    fn written(number: u64) -> Entry {
        Entry::Written { from: Some(ObjectVersion::of_number(number).digest()), hides: false }
    }

    #[test]
    fn what_was_noted_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes");
        let changes = Changes::open(&path).unwrap();
        let reader = Changes::open_to_read(&path).unwrap();
        changes.set("a/c/0", written(1)).unwrap();
        changes.set("a/c/1", written(2)).unwrap();
        changes.set("a/c/0", Entry::Deleted { from: None }).unwrap();
        changes.touch("a/zarr.json").unwrap();
        assert_eq!(reader.entry("a/c/1").unwrap(), Some(written(2)));
        changes.forget("a/c/1").unwrap();
        changes.set("odd\n\"key", written(3)).unwrap();
        for list in [&reader, &Changes::open_to_read(&path).unwrap()] {
            assert_eq!(list.entry("a/c/0").unwrap(), Some(Entry::Deleted { from: None }));
            assert_eq!(list.entry("a/c/1").unwrap(), None);
            assert_eq!(list.entries().unwrap().len(), 2);
            assert_eq!(list.touched("a/zarr.json"), changes.touched("a/zarr.json"));
            assert!(list.is_any_written_below("").unwrap() && !list.is_any_written_below("a").unwrap());
            assert!(list.set("a/c/0", written(1)).is_err());
        }
        let mut changes = changes;
        changes.write_anew().unwrap();
        changes.set("b", written(4)).unwrap();
        assert_eq!(reader.entries().unwrap(), changes.entries().unwrap());
        assert_eq!(Changes::open(&path).unwrap().entries().unwrap(), changes.entries().unwrap());
    }

    #[test]
    fn a_torn_end_is_cut_and_damage_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes");
        let changes = Changes::open(&path).unwrap();
        changes.set("a", written(1)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        changes.touch("t").unwrap();
        changes.touch("u").unwrap();
        drop(changes);
        let all = std::fs::read(&path).unwrap();
        for length in whole.len()..all.len() {
            std::fs::write(&path, &all[..length]).unwrap();
            let again = Changes::open(&path).unwrap();
            assert_eq!(again.entries().unwrap(), [("a".to_owned(), written(1))]);
            again.set("b", written(2)).unwrap();
            assert_eq!(Changes::open(&path).unwrap().len(), 2);
        }
        // The first of two lines that were not durable was lost.
        let mut lost = all.clone();
        lost[whole.len()..whole.len() + 5].fill(0);
        std::fs::write(&path, &lost).unwrap();
        assert_eq!(Changes::open(&path).unwrap().len(), 1);
        let mut damaged = all;
        damaged[3] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(Changes::open(&path).err().unwrap().kind(), io::ErrorKind::InvalidData);
    }
}
