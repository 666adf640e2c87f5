//! What identifies the nodes below a folder of the base: a digest of their documents, and the times of their objects. Uses the
//! traits of `store`. Spec: v3 core "Hierarchy".

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::store::overlay::shape_digest::MAX_DOCUMENT_BYTES;
use crate::store::{FileId, GetReply, GetRequest, Info, ObjectVersion, Store, VersionDigest, join};
use crate::sys;

/// The names of the documents that a node may have.
pub const DOCUMENTS: [&str; 7] =
    ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata", "meta", "attrs"];
/// The places in that list of the documents that only arrays of Zarr v2 and v1 have.
const ARRAY_PLACES: [usize; 2] = [1, 5];
/// How many folders are looked up in one batch.
const BATCH_FOLDERS: usize = 100;
/// How many objects are looked up in one batch.
const BATCH_OBJECTS: usize = 1000;

/// Returns the info of a folder that has no owner.
pub fn info_without_owner() -> Info {
    Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None }
}

/// A walk through nested folders that ends even if links lead back up.
struct Descent<'a> {
    base: &'a dyn Store,
    /// The identities of the folders that were entered, by their paths.
    entered: HashMap<String, FileId>,
}

impl<'a> Descent<'a> {
    fn new(base: &'a dyn Store) -> Self {
        Descent { base, entered: HashMap::new() }
    }

    /// Returns whether to look into a folder. `false` if a link has led back to a folder above it. Only file systems have links.
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

/// Returns a digest of the nodes at and below a folder, made of the versions of their documents; `None` if the folder is missing. The
/// folders of arrays are not listed.
pub fn census(base: &dyn Store, folder: &str) -> Result<Option<VersionDigest>> {
    let mut lines = Vec::new();
    let mut descent = Descent::new(base);
    let mut level = vec![folder.to_owned()];
    while !level.is_empty() {
        let mut next = Vec::new();
        for batch in level.chunks(BATCH_FOLDERS) {
            let groups = add_documents(base, batch, &mut lines)?;
            // Only commits use what is below, and a base that cannot be written has none.
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
    if lines.is_empty() && !is_folder(base, folder)? {
        return Ok(None);
    }
    lines.sort_unstable();
    Ok(Some(VersionDigest::fnv1a(lines.concat())))
}

/// Returns the time of a removal. Objects that were put into the folder before do not have a later mtime, and later objects do. The
/// mtimes of files come from a clock that moves in steps, so this waits for its next step.
pub fn removal_time(base: &dyn Store) -> i64 {
    let nanoseconds = |at: Duration| i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
    let now = nanoseconds(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    while !base.is_remote() && sys::time_of_files().is_some_and(|time| nanoseconds(time) < now) {
        std::thread::sleep(Duration::from_millis(1));
    }
    now
}

/// Finds an object below a folder that was put there, or changed, after the time `at`. If only the ctime of a file is later, its birth
/// time decides, because new permissions and hard links also change the ctime.
pub fn newer_object(base: &dyn Store, folder: &str, at: i64) -> Result<Option<String>> {
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

/// Returns whether changes can be committed to a store.
pub fn is_committable(base: &dyn Store) -> bool {
    base.writer().is_some() || base.versions().is_some()
}

/// Returns whether a folder exists. In a remote store, where folders are only prefixes of keys, it exists if it contains an object.
pub fn is_folder(base: &dyn Store, folder: &str) -> Result<bool> {
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

/// Adds a line for each document in these folders. Returns the folders that are not arrays.
fn add_documents(base: &dyn Store, folders: &[String], lines: &mut Vec<String>) -> Result<Vec<String>> {
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
        } else if !ARRAY_PLACES.iter().any(is_there) {
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
