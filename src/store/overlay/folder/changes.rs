//! The list of an overlay's changes: a table in memory, and a file of lines that is only appended to.
//!
//! Uses its neighbours in this folder. The last line of a key counts. Each line has a checksum, and the length of the file that was
//! durable when it was appended. So bytes after the last durable line, which a crash may leave, are distinguished from damage before it.
//!
//! Invariant: a line is durable before the file in `objects/` that it is about gets or loses its name. A line without its file
//! changes nothing ([`KeyEntry::Written`] says what is shown). One line removes a folder, however much it contains. If a crash
//! leaves files in it, they have no line and are not shown. The rename of a folder comes between two lines.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::RwLock;

use super::line::{HiddenFolder, KeyEntry, Line, RenameStep};
use super::log::ChangeLog;
use super::table::{ChangeTable, keys_below, unfinished_folder};

/// The name of the file.
pub const CHANGES: &str = "changes";
/// The name of the folder with the written objects, which is next to the file.
pub const OBJECTS: &str = "objects";
/// The file is rewritten on open if it has more lines than twice the number of entries and this.
const SPARE_LINES: usize = 1024;

/// The list of an overlay's changes.
pub struct ChangeList {
    path: PathBuf,
    table: RwLock<ChangeTable>,
    /// Present if this process may change the list.
    log: Option<ChangeLog>,
}

/// A file that is to replace the list.
struct NewList {
    path: PathBuf,
    file: File,
    /// Its length.
    end: u64,
    /// Where the line of each entry ends in it.
    ends: Vec<u64>,
}

impl ChangeList {
    /// Opens the list at `path` for changes by this process alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut table = ChangeTable::default();
        let end = table.read(&file, 0)?;
        file.set_len(end)?;
        file.sync_data()?;
        let log = Some(ChangeLog::new(file, end));
        Ok(ChangeList { path: path.to_owned(), table: RwLock::new(table), log })
    }

    /// Rewrites the file if most of its lines no longer count. Call it after everything that a dead process left is cleared away.
    pub fn compact(&mut self) -> io::Result<()> {
        let table = self.table.get_mut();
        if table.lines > 2 * (table.entries.len() + table.hidden.len()) + SPARE_LINES {
            match self.write_anew() {
                Ok(anew) => self.replace(anew)?,
                // On a full disk, the longer list does as well.
                Err(error) => {
                    log::warn!(
                        "{}: the list of changes cannot be made shorter: {error}",
                        self.path.display()
                    );
                }
            }
        }
        Ok(())
    }

    /// Opens the list at `path` for reading. Another process may change it meanwhile.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        let changes = ChangeList { path: path.to_owned(), table: RwLock::default(), log: None };
        changes.refresh()?;
        Ok(changes)
    }

    /// Writes another file, with a line for each entry.
    fn write_anew(&self) -> io::Result<NewList> {
        let path = self.path.with_extension("new");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        let mut writer = BufWriter::new(&file);
        let (mut end, mut ends) = (0, Vec::new());
        let table = self.table.read();
        for (key, logged) in &table.entries {
            let text = Line::Entry(key.clone(), logged.entry).encode(0);
            writer.write_all(text.as_bytes())?;
            end += text.len() as u64;
            ends.push(end);
        }
        let touched = table.touched.iter().map(|(key, at)| Line::Touch(key.clone(), *at));
        let hidden = table.hidden.iter().map(|(key, hidden)| Line::Hide(key.clone(), Some(*hidden)));
        for line in touched.chain(hidden) {
            let text = line.encode(0);
            writer.write_all(text.as_bytes())?;
            end += text.len() as u64;
        }
        writer.flush()?;
        drop(writer);
        file.sync_data()?;
        Ok(NewList { path, file, end, ends })
    }

    /// Replaces the file by a new one. Durable when this returns.
    fn replace(&mut self, new: NewList) -> io::Result<()> {
        std::fs::rename(&new.path, &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        for (logged, end) in self.table.get_mut().entries.values_mut().zip(new.ends) {
            logged.end = end;
        }
        self.log = Some(ChangeLog::new(new.file, new.end));
        Ok(())
    }

    /// Returns whether this process may change the list.
    pub fn is_writable(&self) -> bool {
        self.log.is_some()
    }

    /// Reads what another process has appended.
    fn refresh(&self) -> io::Result<()> {
        let is_read =
            |table: &ChangeTable, now: &Metadata| (table.inode, table.size_bytes) == (now.ino(), now.len());
        let now = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if is_read(&self.table.read(), &now) && self.table.read().renames.is_empty() {
            return Ok(());
        }
        let file = File::open(&self.path)?;
        let now = file.metadata()?;
        let mut table = self.table.write();
        if table.inode != now.ino() || table.size_bytes > now.len() {
            *table = ChangeTable::new(file.try_clone()?, now.ino());
        }
        let start = table.size_bytes;
        let end = table.read(&file, start)?;
        table.size_bytes = end;
        // The writer may have died, so its next line is not waited for.
        table.end_renames(&self.path.with_file_name(OBJECTS));
        Ok(())
    }

    fn refreshed(&self) -> io::Result<()> {
        if self.is_writable() { Ok(()) } else { self.refresh() }
    }

    /// Returns what the overlay has at a key; `None` if it changes nothing there.
    pub fn entry(&self, key: &str) -> io::Result<Option<KeyEntry>> {
        self.refreshed()?;
        let table = self.table.read();
        let is_hidden = table.is_hidden(key);
        Ok(match table.entries.get(key).map(|logged| logged.entry) {
            Some(KeyEntry::Written { from, form, hides, sent }) => {
                Some(KeyEntry::Written { from, form, hides: hides || is_hidden, sent })
            }
            None if is_hidden => Some(KeyEntry::Deleted { from: None, form: None }),
            entry => entry,
        })
    }

    /// Returns whether the base's object or folder at a key is hidden, because it or a folder above it was removed.
    pub fn is_hidden(&self, key: &str) -> io::Result<bool> {
        self.refreshed()?;
        Ok(self.table.read().is_hidden(key))
    }

    /// Returns the folders of the base that were removed.
    pub fn hidden(&self) -> io::Result<Vec<(String, HiddenFolder)>> {
        self.refreshed()?;
        Ok(self.table.read().hidden.iter().map(|(key, hidden)| (key.clone(), *hidden)).collect())
    }

    /// Returns whether an object was written below a folder.
    pub fn is_any_written_below(&self, folder: &str) -> io::Result<bool> {
        self.refreshed()?;
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let table = self.table.read();
        let mut below = table.entries.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        Ok(below.any(|(_, logged)| matches!(logged.entry, KeyEntry::Written { .. })))
    }

    /// Returns when a document of the base was touched.
    pub fn touched(&self, key: &str) -> Option<SystemTime> {
        self.table.read().touched.get(key).copied()
    }

    /// Returns all entries by key, without those of incomplete nodes.
    pub fn entries(&self) -> io::Result<Vec<(String, KeyEntry)>> {
        self.refreshed()?;
        let table = self.table.read();
        let entries = table.entries.iter().filter(|(key, _)| unfinished_folder(key).is_none());
        Ok(entries.map(|(key, logged)| (key.clone(), logged.entry)).collect())
    }

    fn log(&self) -> io::Result<&ChangeLog> {
        self.log.as_ref().ok_or_else(|| io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// Sets what the overlay has at a key. Durable when this returns.
    pub fn set(&self, key: &str, entry: KeyEntry) -> io::Result<()> {
        let log = self.log()?;
        let known = self.table.read().entries.get(key).copied().filter(|logged| logged.entry == entry);
        let end = match known {
            Some(logged) => logged.end,
            None => {
                // Under one lock, so that the file has the lines in the order in which the table got them.
                let mut table = self.table.write();
                let line = Line::Entry(key.to_owned(), entry);
                let end = log.append(&line)?;
                table.apply(line, end);
                end
            }
        };
        log.make_durable(end)
    }

    /// Appends a line, which becomes durable some time later.
    fn append(&self, line: Line) -> io::Result<u64> {
        let log = self.log()?;
        let mut table = self.table.write();
        let end = log.append(&line)?;
        table.apply(line, end);
        Ok(end)
    }

    /// Forgets a key at which the overlay no longer has anything. This becomes durable some time later.
    pub fn forget(&self, key: &str) -> io::Result<()> {
        self.append(Line::Forget(key.to_owned())).map(drop)
    }

    /// Gives a document of the base the present mtime. This becomes durable some time later.
    pub fn touch(&self, key: &str) -> io::Result<()> {
        self.append(Line::Touch(key.to_owned(), SystemTime::now())).map(drop)
    }

    /// Makes all lines durable.
    pub fn sync(&self) -> io::Result<()> {
        self.log()?.sync()
    }

    /// Removes everything below a folder in one step, and hides the base's folder. Durable when this returns.
    pub fn remove(&self, folder: &str, hidden: Option<HiddenFolder>) -> io::Result<()> {
        let end = self.append(Line::Remove(folder.to_owned(), hidden))?;
        self.log()?.make_durable(end)
    }

    /// Hides a folder of the base, or shows it again. Durable when this returns.
    pub fn hide(&self, folder: &str, hidden: Option<HiddenFolder>) -> io::Result<()> {
        let end = self.append(Line::Hide(folder.to_owned(), hidden))?;
        self.log()?.make_durable(end)
    }

    /// Records a step of a rename. The first step is durable when this returns, the others become durable some time later.
    pub fn rename(&self, from: &str, to: &str, step: RenameStep) -> io::Result<()> {
        let end = self.append(Line::Rename(from.to_owned(), to.to_owned(), step))?;
        if step == RenameStep::Begun { self.log()?.make_durable(end) } else { Ok(()) }
    }

    /// Returns whether a rename has begun and no line says that it is done.
    pub fn is_renaming(&self, from: &str) -> bool {
        self.table.read().renames.contains_key(from)
    }

    /// Ends a rename that no line ends. Whether it is done depends on the name that the folder has in `objects/`.
    pub fn end_rename(&self, from: &str, to: &str) {
        let mut table = self.table.write();
        table.end_renames(&self.path.with_file_name(OBJECTS));
        if table.renames.remove(from).is_some() {
            let line = Line::Rename(from.to_owned(), to.to_owned(), RenameStep::Undone);
            if let Err(error) = self.log().and_then(|log| log.append(&line)) {
                // The next writer finds out by the names.
                log::debug!("{from}: {error}");
            }
        }
    }

    /// Returns the renames that have begun, each with the old name and the new one.
    pub fn renames(&self) -> Vec<(String, String)> {
        self.table.read().renames.iter().map(|(from, to)| (from.clone(), to.clone())).collect()
    }

    /// Removes the incomplete nodes of dead processes. Returns the folders in `objects/` that should be empty, and the folders that
    /// may contain incomplete nodes.
    pub fn clear_unfinished(&self) -> io::Result<(Vec<String>, BTreeSet<String>)> {
        let keys: BTreeSet<String> = {
            let table = self.table.read();
            table.entries.keys().filter_map(|key| unfinished_folder(key).map(str::to_owned)).collect()
        };
        for folder in &keys {
            self.append(Line::Remove(folder.clone(), None))?;
        }
        let table = self.table.read();
        let is_empty = |folder: &&String| keys_below(&table.entries, folder).is_empty();
        let above = keys.iter().map(|key| key.rsplit_once('/').map_or("", |(above, _)| above).to_owned());
        Ok((table.removed.iter().filter(is_empty).cloned().collect(), above.collect()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::overlay::origin::{Origin, OriginFile};
    use crate::store::{Form, ObjectVersion};

    impl ChangeList {
        fn len(&self) -> usize {
            self.entries().unwrap().len()
        }
    }

    fn written(number: u64) -> KeyEntry {
        let version = ObjectVersion::numbered(number).digest();
        let file = OriginFile { changed: (number > 2).then_some(-7), content: u64::MAX };
        let from = Some(Origin { version, file: (number > 1).then_some(file), shape: None });
        KeyEntry::Written { from, form: (number > 1).then(|| Form::digest("f4")), hides: false, sent: None }
    }

    #[test]
    fn what_was_set_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes");
        let changes = ChangeList::open(&path).unwrap();
        let reader = ChangeList::open_to_read(&path).unwrap();
        changes.set("a/c/0", written(1)).unwrap();
        changes.set("a/c/1", written(2)).unwrap();
        changes.set("a/c/0", KeyEntry::Deleted { from: None, form: None }).unwrap();
        changes.touch("a/zarr.json").unwrap();
        assert_eq!(reader.entry("a/c/1").unwrap(), Some(written(2)));
        changes.forget("a/c/1").unwrap();
        changes.set("odd\n\"key", written(3)).unwrap();
        for list in [&reader, &ChangeList::open_to_read(&path).unwrap()] {
            assert_eq!(list.entry("a/c/0").unwrap(), Some(KeyEntry::Deleted { from: None, form: None }));
            assert_eq!(list.entry("a/c/1").unwrap(), None);
            assert_eq!(list.entries().unwrap().len(), 2);
            assert_eq!(list.touched("a/zarr.json"), changes.touched("a/zarr.json"));
            assert!(list.is_any_written_below("").unwrap() && !list.is_any_written_below("a").unwrap());
            assert!(list.set("a/c/0", written(1)).is_err());
        }
        let mut changes = changes;
        let anew = changes.write_anew().unwrap();
        changes.replace(anew).unwrap();
        changes.set("b", written(4)).unwrap();
        assert_eq!(reader.entries().unwrap(), changes.entries().unwrap());
        assert_eq!(ChangeList::open(&path).unwrap().entries().unwrap(), changes.entries().unwrap());
    }

    /// The bug: an overlay on a full disk could not be opened for writing once its list was long, so no other daemon could continue a mount
    /// of it.
    #[test]
    fn a_list_that_cannot_be_made_shorter_is_used_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes");
        let changes = ChangeList::open(&path).unwrap();
        for number in 0..SPARE_LINES as u64 + 10 {
            changes.set("a", written(number)).unwrap();
        }
        drop(changes);
        // In the place of a full disk.
        std::fs::create_dir(path.with_extension("new")).unwrap();
        let length = || std::fs::metadata(&path).unwrap().len();
        let before = length();
        let mut changes = ChangeList::open(&path).unwrap();
        changes.compact().unwrap();
        changes.set("b", written(2)).unwrap();
        assert!(length() > before);
        std::fs::remove_dir(path.with_extension("new")).unwrap();
        changes.compact().unwrap();
        assert!(length() < before);
        assert_eq!(ChangeList::open(&path).unwrap().entries().unwrap(), changes.entries().unwrap());
    }

    #[test]
    fn a_torn_end_is_cut_and_damage_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changes");
        let changes = ChangeList::open(&path).unwrap();
        changes.set("a", written(1)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        changes.touch("t").unwrap();
        changes.touch("u").unwrap();
        drop(changes);
        let all = std::fs::read(&path).unwrap();
        for length in whole.len()..all.len() {
            std::fs::write(&path, &all[..length]).unwrap();
            let again = ChangeList::open(&path).unwrap();
            assert_eq!(again.entries().unwrap(), [("a".to_owned(), written(1))]);
            again.set("b", written(2)).unwrap();
            assert_eq!(ChangeList::open(&path).unwrap().len(), 2);
        }
        // The first of two lines that were not durable was lost.
        let mut lost = all.clone();
        lost[whole.len()..whole.len() + 5].fill(0);
        std::fs::write(&path, &lost).unwrap();
        assert_eq!(ChangeList::open(&path).unwrap().len(), 1);
        let mut damaged = all;
        damaged[3] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(ChangeList::open(&path).err().unwrap().kind(), io::ErrorKind::InvalidData);
    }
}
