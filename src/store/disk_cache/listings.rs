//! What a service said of names: which there are below a path, and that an object is missing.
//!
//! Uses its neighbours. A listing also says of everything that is not in it that it is missing, so offline a sparse array reads as
//! it is, without a mark for each of its chunks. Not of names that begin with a dot: some web servers hide those.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::filler::NewEntry;
use super::name::{ObjectName, Part};
use super::{DiskCache, MAX_ENTRY_BYTES, entry};
use crate::memory::Buffer;

/// The names directly below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names with something below them.
    pub folders: Vec<String>,
    /// Names of objects.
    pub objects: Vec<String>,
}

/// The listing that was asked last: of many objects of one folder in turn it is asked whether they are missing.
pub(super) type LastListing = Mutex<Option<(ObjectName, Arc<Names>)>>;

impl Names {
    /// As an entry has them.
    fn encode(&self) -> Vec<u8> {
        json!({ "folders": self.folders, "objects": self.objects }).to_string().into_bytes()
    }

    /// Sorted.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let texts = |member: &str| {
            let names = value.get(member)?.as_array()?.iter();
            let mut names = names.map(|name| Some(name.as_str()?.to_owned())).collect::<Option<Vec<_>>>()?;
            names.sort_unstable();
            Some(names)
        };
        Some(Names { folders: texts("folders")?, objects: texts("objects")? })
    }
}

fn has(sorted: &[String], name: &str) -> bool {
    sorted.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
}

impl DiskCache {
    /// Whether the service said that there is no such object: of itself, or by what it listed.
    pub fn is_missing(&self, object: &ObjectName) -> bool {
        let parts = self.parts(object);
        let has = |is_kind: fn(&Part) -> bool| parts.iter().any(|(part, _)| is_kind(part));
        // A listing may be older than what is kept of an object that it lacks.
        has(|part| *part == Part::Missing)
            || !has(|part| matches!(part, Part::Bytes { .. }))
                && self.is_unlisted(object, |names| &names.objects)
    }

    /// Whether a name is not among those that the nearest folder with a listing has.
    fn is_unlisted(&self, object: &ObjectName, kind: fn(&Names) -> &[String]) -> bool {
        let Some((folder, name)) = parent(object).filter(|(_, name)| !name.starts_with('.')) else {
            return false;
        };
        match self.stored_listing(&folder) {
            Some(names) => !has(kind(&names), &name),
            None => self.is_unlisted(&folder, |names| &names.folders),
        }
    }

    /// The names below a path, as they were kept. None, if nothing is there.
    pub fn listing(&self, folder: &ObjectName) -> Option<Names> {
        match self.stored_listing(folder) {
            Some(names) => Some(Names::clone(&names)),
            None => self.is_unlisted(folder, |names| &names.folders).then(Names::default),
        }
    }

    fn stored_listing(&self, folder: &ObjectName) -> Option<Arc<Names>> {
        let mut last = self.last_listing.lock();
        if let Some((_, names)) = last.as_ref().filter(|(known, _)| known == folder) {
            return Some(Arc::clone(names));
        }
        let (_, path) = self.parts(folder).into_iter().find(|(part, _)| *part == Part::Listing)?;
        let Some((header, bytes)) = entry::read(&path).ok()? else {
            self.drop_damaged(&path);
            return None;
        };
        let names = Arc::new(Names::decode(&bytes).filter(|_| header.object == *folder)?);
        *last = Some((folder.clone(), Arc::clone(&names)));
        Some(names)
    }

    /// Keeps that there is no such object.
    pub fn keep_missing(&self, object: ObjectName) {
        self.filler.add(mark(object));
    }

    /// As [`DiskCache::keep_missing`], but returns when it is written, or cannot be.
    pub fn keep_missing_now(&self, object: ObjectName) -> io::Result<()> {
        self.filler.write(&mark(object))
    }

    /// Keeps the names below a path.
    pub fn keep_listing(&self, folder: ObjectName, names: &Names) {
        if let Ok(entry) = new_listing(folder, names) {
            self.filler.add(entry);
        }
    }

    /// As [`DiskCache::keep_listing`], but returns when they are written, or cannot be.
    pub fn keep_listing_now(&self, folder: ObjectName, names: &Names) -> io::Result<()> {
        self.filler.write(&new_listing(folder, names)?)
    }
}

fn mark(object: ObjectName) -> NewEntry {
    NewEntry { object, part: Part::Missing, meta: None, bytes: Arc::default() }
}

fn new_listing(folder: ObjectName, names: &Names) -> io::Result<NewEntry> {
    let names = names.encode();
    if names.len() as u64 > MAX_ENTRY_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the folder has too many names"));
    }
    let bytes = Arc::new(Buffer::from(names));
    Ok(NewEntry { object: folder, part: Part::Listing, meta: None, bytes })
}

/// The folder that an object is in, and its name there.
fn parent(object: &ObjectName) -> Option<(ObjectName, String)> {
    if object.path.is_empty() {
        return None;
    }
    let (folder, name) = object.path.rsplit_once('/').unwrap_or(("", &object.path));
    Some((ObjectName { store: object.store.clone(), path: folder.to_owned() }, name.to_owned()))
}
