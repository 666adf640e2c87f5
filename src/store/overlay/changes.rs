//! Which objects an overlay changes: a list in memory, and a file of lines that is appended to.
//!
//! Uses its neighbours in `overlay` and `error`'s callers. Each line says what became of one key, and the last line of a key
//! counts. A line has a checksum, and how much of the file was durable when it was appended: so bytes that a crash left behind
//! the last durable line are told from damage before it.
//!
//! Invariant: a line is durable before the file in `objects/` that it is about gets or loses its name. A line without its file
//! says nothing: the object is as it was before ([`Entry::Written`] has which). One line removes a folder, however much is in it:
//! files that a crash leaves there have no line, and are not shown. A folder is renamed between two lines.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::RwLock;

use super::line::{Entry, Hidden, Line, Step};
use super::lines::Log;
use super::state::{State, keys_below, unfinished};

/// The folder of the written objects, beside the file.
pub(super) const OBJECTS: &str = "objects";
/// A file with so many lines more than twice the number of entries is written anew when it is opened.
const SPARE_LINES: usize = 1024;

/// The changes of an overlay.
pub(super) struct Changes {
    path: PathBuf,
    state: RwLock<State>,
    /// Present where this process may change it.
    log: Option<Log>,
}

impl Changes {
    /// Reads the list at `path`, to be changed by this process alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut state = State::default();
        let end = state.read(&file, 0)?;
        file.set_len(end)?;
        file.sync_data()?;
        let mut changes = Changes { path: path.to_owned(), state: RwLock::new(state), log: None };
        changes.log = Some(Log::at(file, end));
        Ok(changes)
    }

    /// Replaces the file where most of its lines count no more. All that a dead process left is cleared away before.
    pub fn compact(&mut self) -> io::Result<()> {
        let state = self.state.get_mut();
        if state.lines > 2 * (state.entries.len() + state.hidden.len()) + SPARE_LINES {
            self.write_anew()?;
        }
        Ok(())
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
        let touched = state.touched.iter().map(|(key, at)| Line::Touch(key.clone(), *at));
        let hidden = state.hidden.iter().map(|(key, hidden)| Line::Hide(key.clone(), Some(*hidden)));
        for line in touched.chain(hidden) {
            let text = line.encode(0);
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
        if is_read(&self.state.read(), &now) && self.state.read().renames.is_empty() {
            return Ok(());
        }
        let file = File::open(&self.path)?;
        let now = file.metadata()?;
        let mut state = self.state.write();
        if state.inode != now.ino() || state.size_bytes > now.len() {
            *state = State::of_file(file.try_clone()?, now.ino());
        }
        let start = state.size_bytes;
        let end = state.read(&file, start)?;
        state.size_bytes = end;
        // A writer that has died is not waited for.
        state.end_renames(&self.path.with_file_name(OBJECTS));
        Ok(())
    }

    fn refreshed(&self) -> io::Result<()> {
        if self.is_writable() { Ok(()) } else { self.refresh() }
    }

    /// What the overlay has at a key; `None` if it changes nothing there.
    pub fn entry(&self, key: &str) -> io::Result<Option<Entry>> {
        self.refreshed()?;
        let state = self.state.read();
        let is_hidden = state.is_hidden(key);
        Ok(match state.entries.get(key).map(|logged| logged.entry) {
            Some(Entry::Written { from, form, hides, sent }) => {
                Some(Entry::Written { from, form, hides: hides || is_hidden, sent })
            }
            None if is_hidden => Some(Entry::Deleted { from: None, form: None }),
            entry => entry,
        })
    }

    /// Whether the base's object or folder at a key is not shown, because it, or a folder above it, was removed.
    pub fn is_hidden(&self, key: &str) -> io::Result<bool> {
        self.refreshed()?;
        Ok(self.state.read().is_hidden(key))
    }

    /// Folders of the base that were removed.
    pub fn hidden(&self) -> io::Result<Vec<(String, Hidden)>> {
        self.refreshed()?;
        Ok(self.state.read().hidden.iter().map(|(key, hidden)| (key.clone(), *hidden)).collect())
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

    /// All entries, by key, without those of nodes that are not complete.
    pub fn entries(&self) -> io::Result<Vec<(String, Entry)>> {
        self.refreshed()?;
        let state = self.state.read();
        let entries = state.entries.iter().filter(|(key, _)| unfinished(key).is_none());
        Ok(entries.map(|(key, logged)| (key.clone(), logged.entry)).collect())
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

    /// Appends a line. It becomes durable some time later.
    fn append(&self, line: Line) -> io::Result<u64> {
        let log = self.log()?;
        let mut state = self.state.write();
        let end = log.append(&line)?;
        state.apply(line, end);
        Ok(end)
    }

    /// Forgets a key at which the overlay has nothing any more. This becomes durable some time later.
    pub fn forget(&self, key: &str) -> io::Result<()> {
        self.append(Line::Forget(key.to_owned())).map(drop)
    }

    /// Notes that a document of the base is as if it was changed now. This becomes durable some time later.
    pub fn touch(&self, key: &str) -> io::Result<()> {
        self.append(Line::Touch(key.to_owned(), SystemTime::now())).map(drop)
    }

    /// Makes all lines durable.
    pub fn sync(&self) -> io::Result<()> {
        self.log()?.sync()
    }

    /// Removes all below a folder in one step, and hides what the base has there. Durable when this returns.
    pub fn remove(&self, folder: &str, hidden: Option<Hidden>) -> io::Result<()> {
        let end = self.append(Line::Remove(folder.to_owned(), hidden))?;
        self.log()?.make_durable(end)
    }

    /// Hides a folder of the base, or shows it again. Durable when this returns.
    pub fn hide(&self, folder: &str, hidden: Option<Hidden>) -> io::Result<()> {
        let end = self.append(Line::Hide(folder.to_owned(), hidden))?;
        self.log()?.make_durable(end)
    }

    /// Notes a step of a rename. That it begins is durable when this returns, the other steps some time later.
    pub fn rename(&self, from: &str, to: &str, step: Step) -> io::Result<()> {
        let end = self.append(Line::Rename(from.to_owned(), to.to_owned(), step))?;
        if step == Step::Begun { self.log()?.make_durable(end) } else { Ok(()) }
    }

    /// Whether a rename has begun, and no line says that it is done.
    pub fn is_renaming(&self, from: &str) -> bool {
        self.state.read().renames.contains_key(from)
    }

    /// Ends a rename of which no line says that it is done, by what there is in `objects/`.
    pub fn end_rename(&self, from: &str, to: &str) {
        let mut state = self.state.write();
        state.end_renames(&self.path.with_file_name(OBJECTS));
        if state.renames.remove(from).is_some() {
            let line = Line::Rename(from.to_owned(), to.to_owned(), Step::Undone);
            if let Err(error) = self.log().and_then(|log| log.append(&line)) {
                // The next writer finds what there is.
                log::debug!("{from}: {error}");
            }
        }
    }

    /// Renames that have begun, with the old name and the new one.
    pub fn renames(&self) -> Vec<(String, String)> {
        self.state.read().renames.iter().map(|(from, to)| (from.clone(), to.clone())).collect()
    }

    /// Removes what dead processes have not completed. Returns the folders in `objects/` of which nothing is left, and those in
    /// which unfinished ones may be.
    pub fn clear_unfinished(&self) -> io::Result<(Vec<String>, BTreeSet<String>)> {
        let keys: BTreeSet<String> = {
            let state = self.state.read();
            state.entries.keys().filter_map(|key| unfinished(key).map(str::to_owned)).collect()
        };
        for folder in &keys {
            self.append(Line::Remove(folder.clone(), None))?;
        }
        let state = self.state.read();
        let is_empty = |folder: &&String| keys_below(&state.entries, folder).is_empty();
        let above = keys.iter().map(|key| key.rsplit_once('/').map_or("", |(above, _)| above).to_owned());
        Ok((state.removed.iter().filter(is_empty).cloned().collect(), above.collect()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::overlay::origin::{Origin, OriginFile};
    use crate::store::{Form, ObjectVersion};

    impl Changes {
        fn len(&self) -> usize {
            self.entries().unwrap().len()
        }
    }

    fn written(number: u64) -> Entry {
        let version = ObjectVersion::numbered(number).digest();
        let file = OriginFile { changed: (number > 2).then_some(-7), content: u64::MAX };
        let from = Some(Origin { version, file: (number > 1).then_some(file), lengths: None });
        Entry::Written { from, form: (number > 1).then(|| Form::digest("f4")), hides: false, sent: None }
    }

    #[test]
    fn what_was_noted_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes");
        let changes = Changes::open(&path).unwrap();
        let reader = Changes::open_to_read(&path).unwrap();
        changes.set("a/c/0", written(1)).unwrap();
        changes.set("a/c/1", written(2)).unwrap();
        changes.set("a/c/0", Entry::Deleted { from: None, form: None }).unwrap();
        changes.touch("a/zarr.json").unwrap();
        assert_eq!(reader.entry("a/c/1").unwrap(), Some(written(2)));
        changes.forget("a/c/1").unwrap();
        changes.set("odd\n\"key", written(3)).unwrap();
        for list in [&reader, &Changes::open_to_read(&path).unwrap()] {
            assert_eq!(list.entry("a/c/0").unwrap(), Some(Entry::Deleted { from: None, form: None }));
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
