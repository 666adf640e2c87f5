//! The changes of an overlay in memory, as the lines of its list say. Uses `line.rs` and `version`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use super::line::{HiddenFolder, KeyEntry, Line, RenameStep};
use crate::store::is_temporary_name;

/// The longest line that is read.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The changes that the lines describe.
#[derive(Default)]
pub struct ChangeTable {
    /// The last line of each key.
    pub entries: BTreeMap<String, LoggedEntry>,
    /// Documents of the base that are shown with another mtime.
    pub touched: HashMap<String, SystemTime>,
    /// Folders of the base that are hidden.
    pub hidden: BTreeMap<String, HiddenFolder>,
    /// Renames that have begun: the new name by the old one.
    pub renames: BTreeMap<String, String>,
    /// Folders that were removed. A crash may have left files in them.
    pub removed: BTreeSet<String>,
    /// How many lines were read.
    pub lines: usize,
    /// The inode of the file that was read.
    pub inode: u64,
    /// How much of it was read.
    pub size_bytes: u64,
    /// Keeps the inode from being reused.
    _file: Option<File>,
}

/// The content of the last line of a key, and where the line ends in the file.
#[derive(Clone, Copy)]
pub struct LoggedEntry {
    pub entry: KeyEntry,
    pub end: u64,
}

/// Returns the keys below a folder.
pub fn keys_below<V>(map: &BTreeMap<String, V>, folder: &str) -> Vec<String> {
    let below = format!("{folder}/");
    let keys = map.range(below.clone()..).map(|(key, _)| key);
    keys.take_while(|key| key.starts_with(&below)).cloned().collect()
}

impl ChangeTable {
    /// Returns the empty table of a file that was not read yet.
    pub fn new(file: File, inode: u64) -> Self {
        ChangeTable { inode, _file: Some(file), ..ChangeTable::default() }
    }

    /// Returns whether a key, or a folder above it, is hidden.
    pub fn is_hidden(&self, key: &str) -> bool {
        let is_hidden = |folder: &str| self.hidden.contains_key(folder);
        !self.hidden.is_empty()
            && (is_hidden(key) || key.match_indices('/').any(|(at, _)| key.get(..at).is_some_and(is_hidden)))
    }

    /// Removes all entries below a folder. Returns them with the part of their keys after the folder.
    fn take_below(&mut self, folder: &str) -> Vec<(String, LoggedEntry)> {
        let keys = keys_below(&self.entries, folder);
        let take = |key: String| {
            self.touched.remove(&key);
            let logged = self.entries.remove(&key)?;
            Some((key.get(folder.len()..)?.to_owned(), logged))
        };
        keys.into_iter().filter_map(take).collect()
    }

    fn remove(&mut self, folder: String, hidden: Option<HiddenFolder>) {
        self.take_below(&folder);
        self.renames.retain(|from, to| *from != folder && *to != folder);
        for below in keys_below(&self.hidden, &folder) {
            self.hidden.remove(&below);
        }
        if let Some(hidden) = hidden
            && !self.is_hidden(&folder)
        {
            self.hidden.insert(folder.clone(), hidden);
        }
        self.removed.insert(folder);
    }

    fn move_below(&mut self, from: &str, to: &str) {
        let moved = self.take_below(from);
        if !moved.is_empty() {
            self.take_below(to);
        }
        for (rest, logged) in moved {
            self.entries.insert(format!("{to}{rest}"), logged);
        }
    }

    /// Applies a step of a rename. The rename may have ended before: by [`ChangeTable::end_renames`], or by a line that became durable
    /// after all.
    fn rename(&mut self, from: String, to: String, step: RenameStep) {
        let is_under_way = self.renames.remove(&from).is_some();
        match step {
            RenameStep::Begun => {
                self.renames.retain(|_, other| *other != to);
                self.renames.insert(from, to);
            }
            RenameStep::Done if is_under_way => self.move_below(&from, &to),
            RenameStep::Undone if !is_under_way => self.move_below(&to, &from),
            RenameStep::Done | RenameStep::Undone => {}
        }
    }

    /// Ends the renames whose folder has its new name in `objects/`, whether or not a line says so.
    pub fn end_renames(&mut self, objects: &Path) {
        let is_there = |folder: &str| objects.join(folder).symlink_metadata().is_ok();
        for (from, to) in std::mem::take(&mut self.renames) {
            match (is_there(&from), is_there(&to)) {
                (false, true) => self.move_below(&from, &to),
                _ => {
                    self.renames.insert(from, to);
                }
            }
        }
    }

    /// Applies a line that ends at `end` in the file.
    pub fn apply(&mut self, line: Line, end: u64) {
        match line {
            Line::Entry(key, entry) => {
                self.entries.insert(key, LoggedEntry { entry, end });
            }
            Line::Forget(key) => {
                self.entries.remove(&key);
            }
            Line::Touch(key, at) => {
                self.touched.insert(key, at);
            }
            Line::Remove(folder, hidden) => self.remove(folder, hidden),
            Line::Hide(folder, Some(hidden)) => {
                self.hidden.insert(folder, hidden);
            }
            Line::Hide(folder, None) => {
                self.hidden.remove(&folder);
            }
            Line::Rename(from, to, step) => self.rename(from, to, step),
        }
    }

    /// Reads the lines from `start` on. Returns where the last undamaged one ends.
    pub fn read(&mut self, file: &File, start: u64) -> io::Result<u64> {
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(start))?;
        let (mut at, mut good_end) = (start, start);
        let mut first_bad = None;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let length = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)? as u64;
            if length == 0 {
                return Ok(good_end);
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
                // It was never durable, like the damaged line before it.
                (Some(_), Some(_)) => {}
                (Some((_, line)), None) => {
                    self.apply(line, at);
                    good_end = at;
                    self.lines += 1;
                }
            }
        }
    }
}

/// Returns the temporary folder of an incomplete node, if a key is in one.
pub fn unfinished_folder(key: &str) -> Option<&str> {
    if !key.contains(".zarrfs-") {
        return None;
    }
    let mut start = 0;
    for name in key.split('/') {
        let end = start + name.len();
        if is_temporary_name(name) {
            return key.get(..end);
        }
        start = end + 1;
    }
    None
}
