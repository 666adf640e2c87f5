//! Folders of nodes in an overlay: made where no reader sees them, renamed, removed. Uses its neighbours in `overlay`, `directory`
//! and the traits of `store`. Spec: v3 core "Hierarchy".
//!
//! A folder of the base is removed by one line that hides all of it, without a look at its chunks. What tells whether a commit
//! would remove the same nodes is a digest of their documents ([`census`]), and the time of the removal: an object that is newer
//! was not there. A folder that only the overlay has is renamed in
//! `objects/` between two lines, and the next writer ends what a crash has left between them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::line::{Hidden, Step};
use super::{OverlayStore, failed};
use crate::error::{Error, Result};
use crate::store::{
    FileId, GetReply, GetRequest, Info, ObjectVersion, Precondition, StagedFolder, Store, VersionDigest,
    Writer, is_temporary_name, join,
};
use crate::sys;

/// How many names are tried for what a removal may not remove.
const MAX_KEPT_NAMES: u32 = 100;
/// The documents that a node may have.
const DOCUMENTS: [&str; 7] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "meta", "attrs"];
/// Those of arrays of Zarr v2 and v1, by their places above.
const OF_ARRAYS: [usize; 2] = [1, 5];
/// A longer document is not read.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// How many folders are looked at in one batch.
const BATCH_FOLDERS: usize = 100;
/// How many objects are looked at in one batch.
const BATCH_OBJECTS: usize = 1000;

/// A node of the base that the overlay has removed, with all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its path.
    pub path: String,
    hidden: Hidden,
}

/// What a removal finds in the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InBase {
    /// Nothing, any more.
    Gone,
    /// The nodes that were removed, or what a commit that was killed has left of them.
    Same,
    /// Other nodes: another program has changed some, or added one.
    Changed,
}

/// Of a folder that has no owner.
fn no_info() -> Info {
    Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// A walk down through folders that ends however links lead.
struct Descent<'a> {
    base: &'a dyn Store,
    /// The folders that were entered, by their paths.
    entered: HashMap<String, FileId>,
}

impl<'a> Descent<'a> {
    fn new(base: &'a dyn Store) -> Self {
        Descent { base, entered: HashMap::new() }
    }

    /// Whether to look into a folder: not if a link has led back up to one of those above it. Only folders of a file system have links.
    fn enter(&mut self, folder: &str) -> Result<bool> {
        if self.base.is_remote() {
            return Ok(true);
        }
        let Some(file) = self.base.head(folder)?.and_then(|info| info.posix?.file) else { return Ok(true) };
        let mut above = folder;
        while let Some((path, _)) = above.rsplit_once('/') {
            if self.entered.get(path) == Some(&file) {
                return Ok(false);
            }
            above = path;
        }
        self.entered.insert(folder.to_owned(), file);
        Ok(true)
    }
}

/// What tells the nodes at and below a folder from others: the versions of their documents. `None` where there is nothing. The
/// folders of arrays are not listed.
fn census(base: &dyn Store, folder: &str) -> Result<Option<VersionDigest>> {
    let mut lines = Vec::new();
    let mut descent = Descent::new(base);
    let mut level = vec![folder.to_owned()];
    while !level.is_empty() {
        let mut next = Vec::new();
        for batch in level.chunks(BATCH_FOLDERS) {
            let groups = documents_of(base, batch, &mut lines)?;
            // Where nobody can write, no commit looks at it.
            for group in groups.iter().filter(|_| is_committable(base)) {
                if !descent.enter(group)? {
                    continue;
                }
                base.each_name(group, &mut |entry| {
                    if entry.is_folder {
                        next.push(join(group, &entry.name));
                    }
                    ControlFlow::Continue(())
                })?;
            }
        }
        level = next;
    }
    if lines.is_empty() && !is_any_in(base, folder)? {
        return Ok(None);
    }
    lines.sort_unstable();
    Ok(Some(VersionDigest::fnv1a(&lines.concat())))
}

/// The moment of a removal. What was put into a folder before has no later time, and what is put there afterwards has one: times of
/// files come from a clock that moves in steps, so the next step is awaited.
fn moment(base: &dyn Store) -> i64 {
    let nanoseconds = |at: Duration| i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
    let now = nanoseconds(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    while !base.is_remote() && sys::time_of_files().is_some_and(|time| nanoseconds(time) < now) {
        std::thread::sleep(Duration::from_millis(1));
    }
    now
}

/// Gives the folder `aside` a name next to `path` that people see.
fn keep_under_another_name(writer: &dyn Writer, aside: &str, path: &str) -> Result<String> {
    for number in 1..=MAX_KEPT_NAMES {
        let name = format!("{path}.removed-{number}");
        match writer.rename_folder(aside, &name) {
            Err(Error::Changed { .. }) => {}
            renamed => return renamed.map(|()| name),
        }
    }
    Err(Error::Changed { key: path.to_owned() })
}

/// An object below a folder that was put there, or changed, after a moment. Of a file whose inode alone has changed since, it counts
/// when it was made: other permissions and hard links change the inode as well.
fn newer_object(base: &dyn Store, folder: &str, at: i64) -> Result<Option<String>> {
    let is_later = |time: Option<SystemTime>| {
        let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        since.and_then(|since| i64::try_from(since.as_nanos()).ok()).is_some_and(|time| time > at)
    };
    let is_newer = |key: &str, info: &Info| {
        let has_changed = info.version.changed().is_some_and(|changed| changed > at);
        Ok::<_, Error>(is_later(info.modified) || (has_changed && is_later(base.created_at(key)?)))
    };
    let mut descent = Descent::new(base);
    let mut level = vec![folder.to_owned()];
    while !level.is_empty() {
        let mut next = Vec::new();
        for folder in &level {
            if !descent.enter(folder)? {
                continue;
            }
            let mut keys = Vec::new();
            base.each_name(folder, &mut |entry| {
                let key = join(folder, &entry.name);
                if entry.is_folder {
                    next.push(key)
                } else {
                    keys.push(key)
                }
                ControlFlow::Continue(())
            })?;
            for batch in keys.chunks(BATCH_OBJECTS) {
                let found = base.head_many(&batch.iter().map(String::as_str).collect::<Vec<_>>());
                for (key, info) in batch.iter().zip(found) {
                    if let Some(info) = info?
                        && is_newer(key, &info)?
                    {
                        return Ok(Some(key.clone()));
                    }
                }
            }
        }
        level = next;
    }
    Ok(None)
}

/// Whether changes can be committed to a store.
fn is_committable(base: &dyn Store) -> bool {
    base.writer().is_some() || base.versions().is_some()
}

/// Whether there is a folder. In a remote store, whose folders are prefixes of keys, it has something in it.
fn is_any_in(base: &dyn Store, folder: &str) -> Result<bool> {
    if !base.is_remote() {
        return Ok(base.head(folder)?.is_some());
    }
    let mut is_any = false;
    base.each_name(folder, &mut |_| {
        is_any = true;
        ControlFlow::Break(())
    })?;
    Ok(is_any)
}

/// Notes the documents of folders. Returns the folders that are not arrays.
fn documents_of(base: &dyn Store, folders: &[String], lines: &mut Vec<String>) -> Result<Vec<String>> {
    let keys: Vec<String> =
        folders.iter().flat_map(|folder| DOCUMENTS.map(|name| join(folder, name))).collect();
    let found = base.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let found: Vec<Option<Info>> = found.into_iter().collect::<Result<_>>()?;
    for (key, info) in keys.iter().zip(&found) {
        let mut line = String::new();
        if let Some(info) = info {
            // Writing to a String does not fail.
            let _ = writeln!(line, "{key} {}", info.version.digest());
            lines.push(line);
        }
    }
    let mut groups = Vec::new();
    let mut unknown = Vec::new();
    for (folder, found) in folders.iter().zip(found.chunks(DOCUMENTS.len())) {
        let is_there = |place: &usize| found.get(*place).is_some_and(Option::is_some);
        if is_there(&0) {
            unknown.push(folder.clone());
        } else if !OF_ARRAYS.iter().any(is_there) {
            groups.push(folder.clone());
        }
    }
    let request = |folder: &String| {
        let key = join(folder, "zarr.json");
        GetRequest { key, limit_bytes: MAX_DOCUMENT_BYTES, known: None }
    };
    let requests: Vec<GetRequest> = unknown.iter().map(request).collect();
    for (folder, reply) in unknown.into_iter().zip(base.get_many(&requests)) {
        let is_array = match reply? {
            GetReply::Content(content) => {
                let document: Value = serde_json::from_slice(&content.bytes).unwrap_or_default();
                document.get("node_type").is_some_and(|kind| kind == "array")
            }
            _ => false,
        };
        if !is_array {
            groups.push(folder);
        }
    }
    Ok(groups)
}

impl OverlayStore {
    fn like(&self, like: &Info) -> Info {
        Info { posix: like.posix.filter(|_| self.shared.has_posix), ..*like }
    }

    /// Whether the base's object or folder at a key is hidden by a removal.
    pub fn is_hidden(&self, key: &str) -> Result<bool> {
        self.shared.folder.changes.is_hidden(key).map_err(failed(key, "look at"))
    }

    pub(super) fn stage_folder(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        let like = self.like(like);
        self.shared.folder.objects.make_folders(parent, &like)?;
        self.shared.objects()?.stage(parent, &like)
    }

    /// Removes a folder with all in it: one line, whatever it has.
    pub(super) fn remove_tree(&self, folder: &str) -> Result<()> {
        let is_staged = folder.split('/').any(is_temporary_name);
        let base = self.base.as_ref();
        let hidden = if is_staged || self.is_hidden(folder)? {
            None
        } else {
            let at = is_committable(base).then(|| moment(base));
            census(base, folder)?.map(|from| Hidden { from, at, is_begun: false })
        };
        let noted = self.shared.folder.changes.remove(folder, hidden);
        noted.map_err(failed(folder, "note in the overlay the removal of"))?;
        for place in [&self.shared.folder.documents, &self.shared.folder.objects] {
            if let Some(writer) = place.writer() {
                writer.remove_folder(folder)?;
            }
        }
        Ok(())
    }

    /// Whether only the overlay has a folder.
    pub(super) fn is_own(&self, folder: &str) -> Result<bool> {
        let is_staged = folder.split('/').any(is_temporary_name);
        let is_below =
            || -> Result<bool> { Ok(is_any_in(self.base.as_ref(), folder)? || self.has_documents(folder)?) };
        Ok(is_staged || self.is_hidden(folder)? || !is_below()?)
    }

    /// Gives a folder that only the overlay has another name. Durable after `sync`.
    pub(super) fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        if !self.is_own(from)? {
            let reason = "is in the store below, and nothing is renamed there: the overlay renames only nodes that were made in it";
            return Err(Error::store(from, "", io::Error::new(io::ErrorKind::CrossesDevices, reason)));
        }
        let is_taken = || Error::Changed { key: to.to_owned() };
        let mut is_empty = true;
        self.each_name(to, &mut |_| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        if !is_empty || (!self.base.is_remote() && self.open(to)?.is_some()) {
            return Err(is_taken());
        }
        let (objects, changes) = (self.shared.objects()?, &self.shared.folder.changes);
        // What is there has no line: a crash has left it.
        objects.remove_folder(to)?;
        let above = if self.shared.has_posix { self.head(parent(to))? } else { None };
        let like = above.map(|info| info.with_mode(|posix| posix.mode & 0o666)).unwrap_or_else(no_info);
        self.shared.folder.objects.make_folders(parent(to), &self.like(&like))?;
        let note = |step: Step| {
            changes.rename(from, to, step).map_err(failed(from, "note in the overlay the rename of"))
        };
        note(Step::Begun)?;
        let keys = [from.to_owned(), to.to_owned()];
        let renamed = objects.rename_folder(from, to).and_then(|()| objects.sync(&keys, ""));
        let renamed = renamed.and_then(|()| note(Step::Done));
        if renamed.is_err() && changes.is_renaming(from) {
            // Back, where it has happened.
            let _ = objects.rename_folder(to, from);
            changes.end_rename(from, to);
        }
        renamed
    }

    /// The nodes of the base that the overlay has removed.
    pub fn removals(&self) -> Result<Vec<Removal>> {
        let hidden = self.shared.folder.changes.hidden().map_err(failed("", "list the changes"))?;
        Ok(hidden.into_iter().map(|(path, hidden)| Removal { path, hidden }).collect())
    }

    /// Whether the base still has the nodes that were removed.
    pub fn find_removed(&self, removal: &Removal) -> Result<InBase> {
        self.find_removed_in(self.base.as_ref(), removal)
    }

    /// Whether a store, which the base is or follows, still has the nodes that were removed.
    pub fn find_removed_in(&self, base: &dyn Store, removal: &Removal) -> Result<InBase> {
        let (path, hidden) = (&removal.path, removal.hidden);
        let found = match census(base, path)? {
            None => InBase::Gone,
            Some(now) if now == hidden.from || !is_committable(base) => InBase::Same,
            Some(_) if hidden.is_begun && !self.has_documents(path)? => InBase::Same,
            Some(_) => InBase::Changed,
        };
        // A base of versions has no time for each object.
        let at = hidden.at.filter(|_| found == InBase::Same && self.shared.root.versions().is_none());
        match at {
            Some(at) if newer_object(base, path, at)?.is_some() => Ok(InBase::Changed),
            _ => Ok(found),
        }
    }

    /// Whether the base has a document of a node itself, which a commit removes before the rest.
    fn has_documents(&self, path: &str) -> Result<bool> {
        let keys = DOCUMENTS.map(|name| join(path, name));
        let found = self.base.head_many(&keys.each_ref().map(String::as_str));
        let found: Vec<Option<Info>> = found.into_iter().collect::<Result<_>>()?;
        Ok(found.iter().any(Option::is_some))
    }

    /// Notes that a commit removes these nodes from the base: what it leaves when it is killed is removed by the next one.
    pub fn begin_removal(&self, removal: &Removal) -> Result<()> {
        let hidden = Hidden { is_begun: true, ..removal.hidden };
        let noted = self.shared.folder.changes.hide(&removal.path, Some(hidden));
        noted.map_err(failed(&removal.path, "note the commit in the overlay"))
    }

    /// Removes the folder of a removal from the base, unless something in it is newer than the removal. `None` in a base without
    /// folders. The folder first loses its name, so that no program puts anything into it while it is looked at.
    pub fn remove_from_base(&self, removal: &Removal) -> Result<Option<bool>> {
        let (writer, base, path) = (self.base_writer()?, self.base.as_ref(), removal.path.as_str());
        // A service is not asked for what can only be a folder.
        if base.is_remote() {
            return Ok(None);
        }
        let like = base.head(path)?.unwrap_or_else(no_info);
        let Some(staged) = writer.stage(parent(path), &like)? else { return Ok(None) };
        let aside = join(&staged.key, "removed");
        let names = [path.to_owned(), staged.key.clone()];
        let is_newer = || match removal.hidden.at {
            Some(at) => Ok(newer_object(base, &aside, at)?.is_some()),
            None => Ok(false),
        };
        if let Err(error) = writer.rename_folder(path, &aside) {
            writer.remove_folder(&staged.key)?;
            return Err(error);
        }
        let found = writer.sync(&names, "").and_then(|()| is_newer());
        if !matches!(found, Ok(false)) {
            match writer.rename_folder(&aside, path) {
                // Another program has made another node there since. What may be newer than the removal is not removed.
                Err(Error::Changed { .. }) => {
                    let kept = keep_under_another_name(writer, &aside, path)?;
                    let base = base.describe();
                    log::warn!("{base}: {path} was made anew while it was removed; what it had is {kept}");
                }
                back => back?,
            }
            writer.remove_folder(&staged.key)?;
            writer.sync(&names, "")?;
            return found.map(|_| Some(false));
        }
        writer.remove_folder(&staged.key)?;
        writer.sync(&names, "").map(|()| Some(true))
    }

    /// Shows what the base has at the path of a removal.
    pub fn forget_removal(&self, removal: &Removal) -> Result<()> {
        let noted = self.shared.folder.changes.hide(&removal.path, None);
        noted.map_err(failed(&removal.path, "note what the overlay forgets"))
    }

    /// Removes the documents that are kept of an array.
    pub fn forget_documents(&self, path: &str) -> Result<()> {
        let Some(writer) = self.shared.folder.documents.writer() else { return Ok(()) };
        for key in super::lengths::DOCUMENTS.map(|name| join(path, name)) {
            writer.delete(&key, Precondition::Any)?;
        }
        Ok(())
    }
}
