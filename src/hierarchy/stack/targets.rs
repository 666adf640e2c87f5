//! The arrays that a stack leads to: their metadata as they are now, and the open arrays.
//!
//! Uses `array`, `tree.rs` and `store`. Invariants: metadata is looked up again whenever a caller asks and it is not fresh; an open
//! target is that of one version of its metadata; the number of open targets is limited.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;
use parking_lot::Mutex;

use super::super::node::NodeVersion;
use super::super::{Node, Tree};
use crate::array::{Array, AxisSelection, Blocking, Engine, Layout, ReadRequest, Readahead, Reader};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::metadata::ArrayMetadata;
use crate::store::{Audience, Info, LinkedStore, LinkedStores, ObjectVersion, join, without_secrets};

/// The most arrays that are open at one time.
const MAX_OPEN: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);
/// How long what was found about a target on this machine counts: one look-up of a node asks several times.
const FRESH: Duration = Duration::from_millis(20);
/// How long what was found about a target at a service counts.
const REMOTE_FRESH: Duration = Duration::from_secs(1);
/// How many readers of a target are distinguished by the places that they have come to.
const MAX_READERS: usize = 8;
/// A reader that is nearer than this to a request has made it.
const READER_WINDOW_BYTES: u64 = 8 << 20;

/// Numbers that no two states of targets share.
static NEXT_STATE: AtomicU64 = AtomicU64::new(0);

fn next_state() -> u64 {
    NEXT_STATE.fetch_add(1, Ordering::Relaxed)
}

/// An array that a stack leads to, with one version of its metadata.
pub struct TargetState {
    /// The store as the document names it.
    pub store_text: String,
    /// The path in that store.
    pub path: String,
    /// The metadata.
    pub metadata: Arc<ArrayMetadata>,
    /// Owner, mode and time of its document.
    pub info: Info,
    linked: LinkedStore,
    /// The path in `linked.store`.
    full_path: String,
}

impl TargetState {
    /// Returns the name that messages have.
    pub fn name(&self) -> String {
        join(without_secrets(&self.store_text).trim_end_matches('/'), &self.path)
    }

    /// Whether it has the same documents, with the same owner, mode and time.
    fn is_same(&self, other: &TargetState) -> bool {
        let (metadata, others) = (&self.metadata, &other.metadata);
        self.info == other.info
            && Arc::ptr_eq(&self.linked.store, &other.linked.store)
            && metadata.document == others.document
            && metadata.attributes == others.attributes
            && metadata.is_stored_as(others)
    }

    /// Whether the elements of this array are where they were in `old`, which may have been shorter along the first axis.
    pub fn continues(&self, old: &TargetState, may_grow: bool) -> bool {
        let (new, old_metadata) = (&self.metadata, &old.metadata);
        let is_same = (&self.store_text, &self.path) == (&old.store_text, &old.path)
            && new.is_stored_as(old_metadata)
            && new.shape.get(1..) == old_metadata.shape.get(1..);
        let (now, before) = (new.shape.first(), old_metadata.shape.first());
        is_same && (now == before || (may_grow && now > before))
    }
}

/// What is known about a target.
struct KnownTarget {
    state: Result<Arc<TargetState>>,
    /// The version of its documents, if a later change of them would give another one.
    version: Option<ObjectVersion>,
    fresh_until: Instant,
}

/// The names of a target: the store and the path there.
type TargetNames = (String, String);

/// The targets of a stack.
pub struct StackTargets {
    stores: LinkedStores,
    trees: Mutex<HashMap<usize, Arc<Tree>>>,
    known: Mutex<HashMap<TargetNames, KnownTarget>>,
}

impl StackTargets {
    /// Returns the targets in these stores; none is known yet.
    pub fn new(stores: LinkedStores) -> Self {
        StackTargets { stores, trees: Mutex::default(), known: Mutex::default() }
    }

    /// Returns the stores.
    pub fn stores(&self) -> &LinkedStores {
        &self.stores
    }

    /// Returns a target as it is now. Fails with an error of the key `key`, or of the target's document.
    pub fn state(&self, store: &str, path: &str, key: &str) -> Result<Arc<TargetState>> {
        let names = (store.to_owned(), path.to_owned());
        let known = {
            let known = self.known.lock();
            match known.get(&names) {
                Some(known) if Instant::now() < known.fresh_until => return known.state.clone(),
                Some(known) => known.state.as_ref().ok().map(|state| (state.clone(), known.version)),
                None => None,
            }
        };
        let linked = self.stores.find(store, key)?;
        let fresh_until = Instant::now() + if linked.store.is_remote() { REMOTE_FRESH } else { FRESH };
        let tree = self.tree(&linked);
        let full_path = join(&linked.path, path).trim_matches('/').to_owned();
        // The version is from before the documents are read, so a change in between is found the next time.
        let version =
            tree.version(&full_path)?.filter(NodeVersion::is_settled).map(|version| version.version);
        let state = match known {
            Some((state, before)) if version.is_some() && version == before => Ok(state),
            known => look(&tree, linked, full_path, &names, key).map(|new| match known {
                Some((old, _)) if old.is_same(&new) => old,
                _ => Arc::new(new),
            }),
        };
        self.known.lock().insert(names, KnownTarget { state: state.clone(), version, fresh_until });
        state
    }

    /// Fails with `Stale` if the elements of a target are not where its state says any more.
    fn check(&self, state: &TargetState, key: &str) -> Result<()> {
        let store = &state.linked.store;
        if !store.is_remote() {
            // This costs one look at the document.
            let document = store.head_object(&state.metadata.document_key)?;
            if document.is_some_and(|document| document.version == state.info.version) {
                return Ok(());
            }
            let names = (state.store_text.clone(), state.path.clone());
            if let Some(known) = self.known.lock().get_mut(&names) {
                known.fresh_until = Instant::now();
            }
        }
        let now = self.state(&state.store_text, &state.path, key)?;
        if now.continues(state, true) {
            return Ok(());
        }
        Err(Error::Stale { key: state.metadata.document_key.clone() })
    }

    fn tree(&self, linked: &LinkedStore) -> Arc<Tree> {
        let address = Arc::as_ptr(&linked.store).cast::<()>() as usize;
        let mut trees = self.trees.lock();
        trees.entry(address).or_insert_with(|| Arc::new(Tree::new(linked.store.clone()))).clone()
    }
}

/// Reads the documents of a target.
fn look(
    tree: &Tree,
    linked: LinkedStore,
    full_path: String,
    (store_text, path): &TargetNames,
    key: &str,
) -> Result<TargetState> {
    let name = join(without_secrets(store_text).trim_end_matches('/'), path);
    match tree.node(&full_path)? {
        Some(Node::Array { metadata, info }) => {
            let (store_text, path) = (store_text.clone(), path.clone());
            Ok(TargetState { store_text, path, metadata, info, linked, full_path })
        }
        Some(Node::Broken { error, .. }) => Err(error),
        Some(Node::Group { .. }) => {
            Err(Error::metadata(key, format!("it leads to {name}, which is a group, not an array")))
        }
        None => {
            let missing = std::io::Error::other(format!("it leads to {name}, which is missing"));
            Err(Error::store(key, "", missing))
        }
    }
}

/// The open targets of one store.
pub struct OpenTargets {
    targets: Arc<StackTargets>,
    /// The users who get what is read, if there are others.
    audience: Option<Arc<Audience>>,
    open: Mutex<LruCache<usize, OpenEntry>>,
}

/// An open target, by the address of its state, which the entry keeps.
struct OpenEntry {
    _state: Arc<TargetState>,
    target: Arc<OpenTarget>,
}

/// An open target.
pub struct OpenTarget {
    array: Arc<Array>,
    readers: Mutex<Vec<PlacedReader>>,
    /// A number that changes when a change of the array is seen.
    seen_state: AtomicU64,
    /// The number of the last comparison with the store.
    compared: Mutex<u64>,
}

/// A reader, and where it has come to.
struct PlacedReader {
    reader: Arc<Reader>,
    end: u64,
}

impl OpenTargets {
    /// Returns the open targets for these users; none is open yet.
    pub fn new(targets: &Arc<StackTargets>, audience: Option<Arc<Audience>>) -> Self {
        OpenTargets { targets: targets.clone(), audience, open: Mutex::new(LruCache::new(MAX_OPEN)) }
    }

    /// Returns a target, which the first call opens.
    pub fn open(&self, state: &Arc<TargetState>, engine: &Arc<Engine>, key: &str) -> Result<Arc<OpenTarget>> {
        if let Some(open) = self.try_open(state) {
            return Ok(open);
        }
        let store = match &self.audience {
            Some(audience) => {
                self.targets.stores.find_for(&state.store_text, &state.path, key, audience)?.store
            }
            None => state.linked.store.clone(),
        };
        let metadata = state.metadata.clone();
        let array = Array::open(engine, &store, &state.full_path, metadata, Layout::default())?;
        // Nothing was read yet, so that the first comparison that counts is complete.
        array.revalidate(&Cancellation::never())?;
        let new = Arc::new(OpenTarget {
            array,
            readers: Mutex::default(),
            seen_state: AtomicU64::new(next_state()),
            compared: Mutex::new(0),
        });
        let mut open = self.open.lock();
        let address = Arc::as_ptr(state) as usize;
        if let Some(other) = open.get(&address) {
            return Ok(other.target.clone());
        }
        open.put(address, OpenEntry { _state: state.clone(), target: new.clone() });
        Ok(new)
    }

    /// Returns a target, if it is open.
    pub fn try_open(&self, state: &Arc<TargetState>) -> Option<Arc<OpenTarget>> {
        // The entry holds the state, so no other one has its address.
        self.open.lock().get(&(Arc::as_ptr(state) as usize)).map(|open| open.target.clone())
    }

    /// Fails with `Stale` if a target has been replaced.
    pub fn check(&self, state: &TargetState, key: &str) -> Result<()> {
        self.targets.check(state, key)
    }
}

impl OpenTarget {
    /// Returns the array.
    pub fn array(&self) -> &Arc<Array> {
        &self.array
    }

    /// Returns a number that changes when a change of the array is seen.
    pub fn seen_state(&self) -> u64 {
        self.seen_state.load(Ordering::Acquire)
    }

    /// Returns when the newest change that was seen was made.
    pub fn changed_at(&self) -> Option<SystemTime> {
        self.array.changed_at()
    }

    /// Compares what was read with the store, unless that was done since comparison `needed` began. `current` is the last one that has
    /// begun.
    pub fn compare(&self, needed: u64, current: u64, cancellation: &Cancellation) -> Result<()> {
        let mut compared = self.compared.lock();
        if *compared >= needed {
            return Ok(());
        }
        if !self.array.revalidate(cancellation)? {
            self.seen_state.store(next_state(), Ordering::Release);
        }
        *compared = current;
        Ok(())
    }

    /// Fills `out` with selected elements. Returns `false` only if the read must not block and would have to.
    pub fn read(
        &self,
        selection: &[AxisSelection],
        out: &mut [u8],
        blocking: Blocking,
        cancellation: &Cancellation,
    ) -> Result<bool> {
        match self.array.range_of_slice(selection)? {
            Some(range) => self.read_range(range, out, blocking, cancellation),
            None => self.array.read_slice_at(selection, 0, out, blocking, cancellation),
        }
    }

    /// Reads a range of the target's own file, with read-ahead.
    fn read_range(
        &self,
        range: Range<u64>,
        out: &mut [u8],
        blocking: Blocking,
        cancellation: &Cancellation,
    ) -> Result<bool> {
        let end = range.end;
        let reader = self.reader(range.start);
        let request = ReadRequest { reader: &reader, range, blocking, cancellation };
        let is_read = self.array.read_part(&request, out)?;
        if is_read {
            self.record(&reader, end);
        }
        Ok(is_read)
    }

    /// Returns the reader that has come nearest to an offset, or a new one.
    fn reader(&self, offset: u64) -> Arc<Reader> {
        let readers = self.readers.lock();
        let near = readers.iter().filter(|placed| placed.end.abs_diff(offset) <= READER_WINDOW_BYTES);
        let nearest = near.min_by_key(|placed| placed.end.abs_diff(offset));
        nearest.map_or_else(|| Arc::new(Reader::new(Readahead::Chunks)), |placed| placed.reader.clone())
    }

    fn record(&self, reader: &Arc<Reader>, end: u64) {
        let mut readers = self.readers.lock();
        let known = readers.iter().position(|placed| Arc::ptr_eq(&placed.reader, reader));
        let end = known.and_then(|place| readers.get(place)).map_or(end, |placed| placed.end.max(end));
        if let Some(place) = known {
            readers.remove(place);
        } else if readers.len() >= MAX_READERS {
            // The reader that was used longest ago.
            readers.remove(0);
        }
        readers.push(PlacedReader { reader: reader.clone(), end });
    }
}
