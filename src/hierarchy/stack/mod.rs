//! Stacks: documents that put arrays of other stores together, as a store.
//!
//! Uses `array`, `metadata`, `store` and its neighbours in `hierarchy`; docs/design/stack.md explains it. `document.rs` is the
//! document, `expand.rs` follows it to other documents, `targets.rs` knows the arrays that it leads to, `parts.rs` checks types and
//! shapes, `read.rs` reads elements (`converter.rs` and `means.rs` compute them), `virtual_array.rs` and `object.rs` show them as an
//! array of Zarr, `open.rs` opens a location, `author.rs` makes documents.
//!
//! Invariants: a virtual array is what its targets are at the time of the read, and a target that is missing or has changed is an
//! error. Chunks are never missing. Nothing can be written.

mod author;
mod converter;
mod document;
mod expand;
mod means;
mod object;
mod open;
mod parts;
mod read;
mod targets;
#[cfg(test)]
mod tests;
mod virtual_array;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

pub use author::{MadeStack, StackLayout, StackRequest, stack_document};
use document::StackOperation;
pub use document::{DownsampleMethod, SliceEntry};
pub use open::open_store;
use targets::{OpenTarget, OpenTargets, StackTargets};
use virtual_array::{ChunkPlace, VirtualArray};

use crate::array::Engine;
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::store::{
    ArrayForm, Audience, Composed, Info, ListEntry, MaybeClaim, Object, ObjectContent, ObjectVersion, Remote,
    StatFs, Store, Wanted, info_narrowed, is_key, join, read_whole,
};

/// The engine of a store that nothing gave one: it only has to be able to read.
const OWN_CACHE_BYTES: u64 = 64 << 20;

/// A store of virtual arrays.
pub struct StackStore {
    shared: Arc<SharedStack>,
    open: Arc<OpenTargets>,
    /// The users who get what is read, if there are others.
    audience: Option<Arc<Audience>>,
    /// The array that this store is for, as it was opened.
    bound: Option<BoundArray>,
}

/// An array as it was opened, for its readers.
#[derive(Clone)]
struct BoundArray {
    path: String,
    array: Arc<VirtualArray>,
}

struct SharedStack {
    location: String,
    /// The info of the document, for the readers of all documents that lead to the arrays.
    info: Info,
    groups: BTreeMap<String, Map<String, Value>>,
    arrays: BTreeMap<String, StackEntry>,
    targets: Arc<StackTargets>,
    engine: OnceLock<Arc<Engine>>,
    /// How many comparisons have begun.
    comparisons: AtomicU64,
    /// The last comparison of each array.
    compared: Mutex<BTreeMap<String, u64>>,
}

/// An array of the document.
struct StackEntry {
    operation: StackOperation,
    latest: Mutex<Option<Arc<VirtualArray>>>,
}

/// What a key of the store means.
enum StackKey<'a> {
    /// The document of a group.
    Group(&'a Map<String, Value>),
    /// A key below an array that is passed on: the store and the path of the array there, and what follows.
    Passed(&'a str, &'a str, &'a str),
    /// A key below a virtual array: its path, its entry, and what follows.
    Virtual(&'a str, &'a StackEntry, &'a str),
    /// Nothing.
    None,
}

impl SharedStack {
    fn find<'a>(&'a self, key: &'a str) -> StackKey<'a> {
        let splits = std::iter::once(("", key)).chain(
            key.match_indices('/')
                .map(|(at, _)| (key.get(..at).unwrap_or_default(), key.get(at + 1..).unwrap_or_default())),
        );
        for (path, rest) in splits.chain([(key, "")]) {
            let Some((path, entry)) = self.arrays.get_key_value(path) else { continue };
            return match &entry.operation {
                StackOperation::Array { store, path } => StackKey::Passed(store, path, rest),
                _ => StackKey::Virtual(path, entry, rest),
            };
        }
        let (folder, name) = key.rsplit_once('/').unwrap_or(("", key));
        match self.groups.get(folder).filter(|_| name == "zarr.json") {
            Some(attributes) => StackKey::Group(attributes),
            None => StackKey::None,
        }
    }

    fn is_folder(&self, path: &str) -> bool {
        self.groups.contains_key(path)
    }

    /// Returns a virtual array with the present metadata of its targets.
    fn array(&self, path: &str, entry: &StackEntry) -> Result<Arc<VirtualArray>> {
        let key = join(path, "zarr.json");
        let latest = entry.latest.lock().clone();
        if let Some(latest) = latest.filter(|latest| latest.is_current(&self.targets, &key)) {
            return Ok(latest);
        }
        let new = Arc::new(VirtualArray::build(path, &entry.operation, &self.targets, &self.info)?);
        *entry.latest.lock() = Some(new.clone());
        Ok(new)
    }

    fn engine(&self) -> &Arc<Engine> {
        self.engine.get_or_init(|| Engine::new(OWN_CACHE_BYTES, 1))
    }

    fn group_document(attributes: &Map<String, Value>) -> Vec<u8> {
        json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}).to_string().into_bytes()
    }

    /// Returns the info of a document that is made from the stack's document.
    fn document_info(&self, text: &[u8]) -> Info {
        let version = ObjectVersion::hashed((self.info.version, text));
        Info { size_bytes: text.len() as u64, version, ..self.info }
    }

    fn folder_info(&self) -> Info {
        Info { size_bytes: 0, ..self.info }.as_folder()
    }
}

/// An object of an array that is passed on: where it is.
struct PassedObject {
    store: Arc<dyn Store>,
    key: String,
}

impl StackStore {
    fn new(shared: Arc<SharedStack>) -> Self {
        let open = Arc::new(OpenTargets::new(&shared.targets, None));
        StackStore { shared, open, audience: None, bound: None }
    }

    fn passed(&self, store: &str, path: &str, rest: &str, key: &str) -> Result<PassedObject> {
        let stores = self.shared.targets.stores();
        let linked = match &self.audience {
            Some(audience) => stores.find_for(store, path, key, audience)?,
            None => stores.find(store, key)?,
        };
        let below = join(&linked.path, path);
        let below = below.trim_matches('/');
        let key = if rest.is_empty() { below.to_owned() } else { join(below, rest) };
        Ok(PassedObject { store: linked.store, key })
    }

    /// Returns the virtual array that this store is for, or another one as it is now.
    fn array(&self, path: &str, entry: &StackEntry) -> Result<Arc<VirtualArray>> {
        match self.bound.as_ref().filter(|bound| bound.path == path) {
            Some(bound) => Ok(bound.array.clone()),
            None => self.shared.array(path, entry),
        }
    }

    /// Calls `each` with the targets of a chunk that are open.
    fn open_targets(
        &self,
        array: &VirtualArray,
        place: &ChunkPlace,
        key: &str,
    ) -> Result<Vec<Arc<OpenTarget>>> {
        let mut states = Vec::new();
        array.part().each_target(&place.elements, &mut |state| states.push(state.clone()));
        states.iter().map(|state| self.open.open(state, self.shared.engine(), key)).collect()
    }

    fn chunk_info(&self, place: &ChunkPlace, targets: &[Arc<OpenTarget>]) -> Info {
        let states: Vec<u64> = targets.iter().map(|target| target.seen_state()).collect();
        let changed_at: Option<SystemTime> = targets.iter().filter_map(|target| target.changed_at()).max();
        Info {
            size_bytes: place.size_bytes,
            modified: changed_at,
            version: ObjectVersion::hashed((states, &place.range, place.size_bytes)),
            posix: self.shared.info.posix,
        }
    }

    fn virtual_object(
        &self,
        path: &str,
        entry: &StackEntry,
        rest: &str,
        key: &str,
    ) -> Result<Option<Box<dyn Object>>> {
        let array = self.array(path, entry)?;
        if rest == "zarr.json" {
            return Ok(Some(Box::new(DocumentObject {
                text: array.document().to_vec(),
                info: array.info(),
                key: key.to_owned(),
            })));
        }
        let Some(place) = array.chunk(rest) else { return Ok(None) };
        let targets = self.open_targets(&array, &place, key)?;
        let info = self.chunk_info(&place, &targets);
        Ok(Some(Box::new(object::VirtualChunk {
            array,
            targets: self.open.clone(),
            engine: self.shared.engine().clone(),
            key: key.to_owned(),
            range: place.range,
            size_bytes: place.size_bytes,
            version: info.version,
            modified: info.modified,
        })))
    }

    fn virtual_head(&self, path: &str, entry: &StackEntry, rest: &str, key: &str) -> Result<Option<Info>> {
        if rest.is_empty() || rest == "zarr.json" {
            let info = match self.array(path, entry) {
                Ok(array) => array.info(),
                // The document is there, and reading it says what is wrong.
                Err(error) => {
                    let version = ObjectVersion::hashed((self.shared.info.version, error.to_string()));
                    Info { version, ..self.shared.info }
                }
            };
            return Ok(Some(if rest.is_empty() { Info { size_bytes: 0, ..info }.as_folder() } else { info }));
        }
        let array = self.array(path, entry)?;
        let Some(place) = array.chunk(rest) else { return Ok(None) };
        let targets = self.open_targets(&array, &place, key)?;
        let needed = self.shared.compared.lock().get(path).copied().unwrap_or_default();
        for target in &targets {
            let current = self.shared.comparisons.load(Ordering::Acquire);
            target.compare(needed, current, &Cancellation::never())?;
        }
        Ok(Some(self.chunk_info(&place, &targets)))
    }
}

/// A document that is made while it is opened.
struct DocumentObject {
    text: Vec<u8>,
    info: Info,
    key: String,
}

impl Object for DocumentObject {
    fn version(&self) -> ObjectVersion {
        self.info.version
    }

    fn size_bytes(&self) -> u64 {
        self.text.len() as u64
    }

    fn modified(&self) -> Option<SystemTime> {
        self.info.modified
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match self.text.get(start..start.saturating_add(out.len())) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => {
                let short = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(Error::store(&self.key, "read", short));
            }
        }
        Ok(())
    }
}

fn check(key: &str, operation: &'static str) -> Result<()> {
    if is_key(key) {
        return Ok(());
    }
    let wrong = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a key");
    Err(Error::store(key, operation, wrong))
}

impl Store for StackStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        check(key, "open")?;
        match self.shared.find(key) {
            StackKey::None => Ok(None),
            StackKey::Group(attributes) => {
                let text = SharedStack::group_document(attributes);
                let info = self.shared.document_info(&text);
                Ok(Some(Box::new(DocumentObject { text, info, key: key.to_owned() })))
            }
            StackKey::Passed(store, path, rest) => {
                let passed = self.passed(store, path, rest, key)?;
                passed.store.open(&passed.key)
            }
            StackKey::Virtual(path, entry, rest) => self.virtual_object(path, entry, rest, key),
        }
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        check(key, "read")?;
        let (object, info) = match self.shared.find(key) {
            StackKey::Passed(store, path, rest) => {
                let passed = self.passed(store, path, rest, key)?;
                let content = passed.store.content(&passed.key, limit_bytes)?;
                let info = |info: Info| {
                    info_narrowed(Info { posix: self.shared.info.posix, ..info }, [info.posix].into_iter())
                };
                return Ok(content.map(|content| ObjectContent { info: info(content.info), ..content }));
            }
            _ => (self.open(key)?, self.head(key)?),
        };
        let (Some(object), Some(info)) = (object, info) else { return Ok(None) };
        let bytes = read_whole(object.as_ref(), key, limit_bytes)?;
        Ok(Some(ObjectContent { bytes, info: Info { posix: info.posix, ..object.info() } }))
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        match self.head_object(key)? {
            None if self.shared.is_folder(key) => Ok(Some(self.shared.folder_info())),
            found => Ok(found),
        }
    }

    fn head_object(&self, key: &str) -> Result<Option<Info>> {
        check(key, "look at")?;
        match self.shared.find(key) {
            StackKey::None => Ok(None),
            StackKey::Group(attributes) => {
                Ok(Some(self.shared.document_info(&SharedStack::group_document(attributes))))
            }
            StackKey::Passed(store, path, rest) => {
                let passed = self.passed(store, path, rest, key)?;
                let own = self.shared.info.posix;
                let shown = |info: Info| info_narrowed(Info { posix: own, ..info }, [info.posix].into_iter());
                Ok(passed
                    .store
                    .head(&passed.key)?
                    .map(|info| if rest.is_empty() { info } else { shown(info) }))
            }
            StackKey::Virtual(path, entry, rest) => self.virtual_head(path, entry, rest, key),
        }
    }

    fn lacks_locks(&self) -> bool {
        true
    }

    fn identity(&self) -> Result<Option<String>> {
        Ok(Some(format!("stack {}", self.shared.info.version.digest())))
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        let mut entries = Vec::new();
        self.each_name(folder, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        check(folder, "list")?;
        match self.shared.find(folder) {
            StackKey::Passed(store, path, rest) => {
                let passed = self.passed(store, path, rest, folder)?;
                return passed.store.each_name(&passed.key, each);
            }
            StackKey::Virtual(path, entry, rest) => {
                return self.array(path, entry)?.each_name(rest, folder, each);
            }
            StackKey::Group(_) | StackKey::None => {}
        }
        if !self.shared.is_folder(folder) {
            return Ok(());
        }
        let name_below = |path: &str| {
            let below =
                if folder.is_empty() { Some(path) } else { path.strip_prefix(folder)?.strip_prefix('/') };
            let name = below?.split('/').next().filter(|name| !name.is_empty())?;
            Some(name.to_owned())
        };
        // Both are sorted, so only what is below the folder is looked at.
        let first = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let groups = self.shared.groups.range(first.clone()..).map(|(path, _)| path);
        let arrays = self.shared.arrays.range(first.clone()..).map(|(path, _)| path);
        let is_below = |path: &&String| path.starts_with(&first);
        let paths = groups.take_while(is_below).chain(arrays.take_while(is_below));
        let names: BTreeSet<String> = paths.filter_map(|path| name_below(path)).collect();
        let entries = names.into_iter().map(|name| ListEntry { name, is_folder: true });
        let document = ListEntry { name: "zarr.json".to_owned(), is_folder: false };
        let _ = entries.chain([document]).try_for_each(each);
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        self.shared.targets.stores().statfs()
    }

    fn describe(&self) -> String {
        self.shared.location.clone()
    }

    fn for_audience(&self, _path: &str, audience: &Arc<Audience>) -> Option<Arc<dyn Store>> {
        if !self.shared.targets.stores().are_for_others() {
            return None;
        }
        let open = Arc::new(OpenTargets::new(&self.shared.targets, Some(audience.clone())));
        Some(Arc::new(StackStore {
            shared: self.shared.clone(),
            open,
            audience: Some(audience.clone()),
            bound: None,
        }))
    }

    /// Binds an array to the places of its elements as they are now: it fails if they were others before.
    fn for_array(&self, array: &ArrayForm<'_>) -> Result<Option<Arc<dyn Store>>> {
        let key = join(array.path, "zarr.json");
        let StackKey::Virtual(path, entry, _) = self.shared.find(&key) else { return Ok(None) };
        let now = self.shared.array(path, entry)?;
        let stale = || Error::Stale { key: array.document_key.to_owned() };
        if (array.of_document)(&key, now.document()) != Some((array.form)()) {
            return Err(stale());
        }
        if let Some(bound) = self.bound.as_ref().filter(|bound| bound.path == path)
            && !now.continues(&bound.array)
        {
            return Err(stale());
        }
        Ok(Some(Arc::new(StackStore {
            shared: self.shared.clone(),
            open: self.open.clone(),
            audience: self.audience.clone(),
            bound: Some(BoundArray { path: path.to_owned(), array: now }),
        })))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.shared.targets.stores().may_be_remote().then_some(self)
    }

    fn composed(&self) -> Option<&dyn Composed> {
        Some(self)
    }
}

impl Remote for StackStore {
    fn open_for(&self, key: &str, wanted: &Wanted) -> Result<Option<Box<dyn Object>>> {
        match self.shared.find(key) {
            StackKey::Passed(store, path, rest) => {
                let passed = self.passed(store, path, rest, key)?;
                passed.store.open_for(&passed.key, wanted)
            }
            _ => self.open(key),
        }
    }

    fn will_need(&self, wanted: &[(String, Wanted)]) -> Vec<MaybeClaim> {
        let claim = |(key, wanted): &(String, Wanted)| {
            let StackKey::Passed(store, path, rest) = self.shared.find(key) else { return None };
            let passed = self.passed(store, path, rest, key).ok()?;
            passed.store.remote()?.will_need(&[(passed.key, wanted.clone())]).pop()?
        };
        wanted.iter().map(claim).collect()
    }

    fn transfer_limit_bytes(&self) -> u64 {
        self.shared.targets.stores().transfer_limit_bytes()
    }

    fn forget_transfers(&self, key: &str) {
        if let StackKey::Passed(store, path, rest) = self.shared.find(key)
            && let Ok(passed) = self.passed(store, path, rest, key)
        {
            passed.store.forget_transfers(&passed.key);
        }
    }
}

impl Composed for StackStore {
    fn share_engine(&self, engine: Arc<dyn Any + Send + Sync>) {
        if let Ok(engine) = engine.downcast::<Engine>() {
            let _ = self.shared.engine.set(engine);
        }
    }

    fn begin_comparison(&self, path: &str) {
        let number = self.shared.comparisons.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.compared.lock().insert(path.to_owned(), number);
    }

    fn content_version(&self, path: &str) -> Result<Option<u64>> {
        let key = join(path, "zarr.json");
        let StackKey::Virtual(path, entry, _) = self.shared.find(&key) else { return Ok(None) };
        let array = self.array(path, entry)?;
        let mut versions = Vec::new();
        for state in array.targets() {
            let open = self.open.open(state, self.shared.engine(), &key)?;
            versions.push(open.array().content_version()?);
        }
        let mut hasher = DefaultHasher::new();
        versions.hash(&mut hasher);
        Ok(Some(hasher.finish()))
    }
}
