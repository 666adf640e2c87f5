//! The open arrays, one for each path and view. Each is opened at its first use, compared with the store, and lengthened in place or replaced.
//!
//! Uses `array`, `store` and `views.rs`. The array's own file and its companion files take the array from here, so they share its
//! chunk cache, its dirty chunks and its read-ahead. Chunks are read with the permissions of this process into caches that all readers
//! share, so every user who may read the array's file must be able to read them ([`SharedArray::audience`]).
//!
//! Invariants: at most one [`SharedArray`] of a path and view is not stale; a stale one never becomes current again; older metadata
//! never replaces newer metadata.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::views::ShownNodes;
use super::{Node, View};
use crate::array::{Array, Engine, FileLayout, Layout, Order};
use crate::error::{Error, Result};
use crate::metadata::ArrayMetadata;
use crate::store::{Audience, ObjectVersion, Store, member_name, store_at};

/// Metadata that takes more memory than this is kept without attributes.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// The state of a node in the store at some time.
#[derive(Clone, Copy)]
pub struct NodeState<'a> {
    /// The node; `None` if there is none.
    pub node: Option<&'a Node>,
    /// The version of its documents, from before they were read.
    pub version: Option<ObjectVersion>,
    /// When the store was read.
    pub read_at: Instant,
}

/// An array that was opened with one version of its metadata.
pub struct OpenArray {
    /// The metadata of the stored array, even if this is a view. Growth replaces it. Attributes that take much memory are left out.
    pub metadata: Arc<ArrayMetadata>,
    /// The same with all attributes.
    of_node: Weak<ArrayMetadata>,
    /// The version of the metadata document.
    pub version: Option<ObjectVersion>,
    /// When the metadata was read. Older metadata never replaces it.
    pub read_at: Instant,
    /// The array, or the reason why it cannot be served.
    pub array: Result<Arc<Array>>,
    /// Whether this process gave the array its present length.
    was_lengthened_here: bool,
}

impl OpenArray {
    /// Returns whether a program of this mount made the array at least this long. Then the kernel has that size, or gets it with the reply
    /// to that program. It does not have the size that other processes give an array.
    pub fn was_lengthened_to(&self, size_bytes: u64) -> bool {
        self.was_lengthened_here && self.array.as_ref().is_ok_and(|array| size_bytes <= array.size_bytes())
    }

    /// Returns whether the array was opened with this very metadata.
    pub fn is_of(&self, metadata: &Arc<ArrayMetadata>) -> bool {
        std::ptr::eq(self.of_node.as_ptr(), Arc::as_ptr(metadata))
    }

    fn is_older_than(&self, state: NodeState<'_>) -> bool {
        match state.node {
            Some(Node::Array { metadata, .. }) => !self.is_of(metadata) && state.read_at > self.read_at,
            _ => true,
        }
    }
}

/// The array at a path, shared by everything that reads or writes it.
pub struct SharedArray {
    /// The view of the stored array, if it is one.
    pub view: Option<View>,
    /// Its path in the hierarchy (`""` is the root).
    pub path: Arc<str>,
    /// The users who must be able to read every object that is read.
    pub audience: Arc<Audience>,
    current: RwLock<Option<Arc<OpenArray>>>,
    /// When the metadata of `current` was last compared with the store.
    checked_at: Mutex<Option<Instant>>,
    is_stale: AtomicBool,
}

impl SharedArray {
    fn new(view: Option<View>, path: &Arc<str>) -> Arc<Self> {
        Arc::new(SharedArray {
            view,
            path: path.clone(),
            audience: Arc::default(),
            current: RwLock::new(None),
            checked_at: Mutex::new(None),
            is_stale: AtomicBool::new(false),
        })
    }

    /// Returns the array that readers use now; `None` before its first use.
    pub fn current(&self) -> Option<Arc<OpenArray>> {
        self.current.read().clone()
    }

    /// Returns whether another array has taken its place. Then every use of this one fails with ESTALE.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// Returns whether the array was not compared with the store for `interval`. If so, the caller compares it now.
    pub fn is_check_due(&self, interval: Duration) -> bool {
        let now = Instant::now();
        let mut checked_at = self.checked_at.lock();
        if checked_at.is_some_and(|at| now.duration_since(at) < interval) {
            return false;
        }
        *checked_at = Some(now);
        true
    }

    /// Records that the array was just compared with the store; returns whether this is the first time.
    pub fn record_check(&self) -> bool {
        self.checked_at.lock().replace(Instant::now()).is_none()
    }
}

/// The outcome of a comparison with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// The shared array has the metadata of the store: nothing changed, or it has grown in place.
    Current,
    /// The store has another array, or none. The caller retires this one.
    Replaced,
    /// The array must grow or be replaced, which may wait for a flush, and the caller must not wait.
    WouldBlock,
}

/// Arrays by path.
type ByPath = HashMap<Arc<str>, Arc<SharedArray>>;

/// The open arrays of a store.
pub struct OpenArrays {
    engine: Arc<Engine>,
    store: Arc<dyn Store>,
    layout: Layout,
    by_view: RwLock<HashMap<Option<View>, ByPath>>,
    shown: ShownNodes,
    /// Held while an array is replaced, which may wait for its store: one for each member of a catalogue.
    reconciling: Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

impl OpenArrays {
    /// Returns the open arrays of a store: none yet. All arrays except views are served in one layout.
    pub fn new(engine: &Arc<Engine>, store: &Arc<dyn Store>, layout: Layout) -> Self {
        let (engine, store) = (engine.clone(), store.clone());
        let (by_view, shown) = (RwLock::default(), ShownNodes::default());
        OpenArrays { engine, store, layout, by_view, shown, reconciling: Mutex::default() }
    }

    /// Returns the engine, which has the limits of the process.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the store that has a path: in a catalogue, the member's, which has the same keys.
    pub fn store_at(&self, path: &str) -> Arc<dyn Store> {
        store_at(&self.store, path)
    }

    /// Returns the layout of all arrays that are not views.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns a node as a view shows it, or the node itself; `None` if the view cannot show it.
    pub fn shown(&self, view: Option<&View>, node: &Arc<Node>) -> Option<Arc<Node>> {
        match view {
            Some(view) => self.shown.get(view, node),
            None => Some(node.clone()),
        }
    }

    /// Returns the shared array of a path, or a view of it ([`View::of_array`]). Creates it at its first use.
    pub fn of(&self, view: Option<View>, path: &Arc<str>) -> Arc<SharedArray> {
        if let Some(shared) = self.by_view.read().get(&view).and_then(|by_path| by_path.get(path)) {
            return shared.clone();
        }
        let mut by_view = self.by_view.write();
        let of_view = view.clone();
        let by_path = by_view.entry(view).or_default();
        by_path.entry(path.clone()).or_insert_with(|| SharedArray::new(of_view, path)).clone()
    }

    /// Returns the array at a path, or a view of it, that readers use now, if it is open.
    pub fn current(&self, view: Option<View>, path: &str) -> Option<Arc<OpenArray>> {
        self.by_view.read().get(&view)?.get(path)?.current()
    }

    /// Marks an array stale. The next use of its path gets another one.
    pub fn retire(&self, shared: &Arc<SharedArray>) {
        let mut by_view = self.by_view.write();
        shared.is_stale.store(true, Ordering::Release);
        let Some(by_path) = by_view.get_mut(&shared.view) else { return };
        if by_path.get(&shared.path).is_some_and(|now| Arc::ptr_eq(now, shared)) {
            by_path.remove(&shared.path);
        }
    }

    /// Returns the array, which the first call opens. Fails if it cannot be served, and with `Stale` if `state` has no array.
    pub fn open(&self, shared: &SharedArray, state: NodeState<'_>) -> Result<Arc<Array>> {
        let Some(Node::Array { metadata, .. }) = state.node else {
            return Err(Error::Stale { key: shared.path.to_string() });
        };
        let mut current = shared.current.write();
        let open = match &*current {
            Some(open) => open.clone(),
            None => {
                let light = light(shared, metadata);
                let array = self.build_shared(shared, &light);
                if let (Ok(array), None) = (&array, &shared.view) {
                    // If this fails, the array must not be read without what was written to it. The next use tries again.
                    array.writer().replay()?;
                }
                let open = Arc::new(OpenArray::new(light, metadata, state, array));
                *current = Some(open.clone());
                open
            }
        };
        drop(current);
        open.array.clone()
    }

    /// Compares a shared array with the store, and lengthens it in place if the stored array is longer. Calls `record_new_size` before
    /// readers see another size.
    pub fn reconcile(
        &self,
        shared: &SharedArray,
        state: NodeState<'_>,
        may_block: bool,
        record_new_size: impl FnOnce(),
    ) -> Reconciled {
        if !shared.current().is_some_and(|old| old.is_older_than(state)) {
            return Reconciled::Current;
        }
        // A service that does not answer does not mean that the array is gone.
        if matches!(state.node, Some(Node::Broken { error: Error::Store { .. }, .. }) if self.store_at(&shared.path).is_remote())
        {
            return Reconciled::Current;
        }
        // The rest may wait for a flush.
        if !may_block {
            return Reconciled::WouldBlock;
        }
        let reconciling = self.reconciling_at(&shared.path);
        let _one_at_a_time = reconciling.lock();
        let Some(old) = shared.current().filter(|old| old.is_older_than(state)) else {
            return Reconciled::Current;
        };
        let Some(Node::Array { metadata, .. }) = state.node else { return Reconciled::Replaced };
        let light = light(shared, metadata);
        let array = match (self.difference(shared.view.as_ref(), &old.metadata, metadata), &old.array) {
            // Dirty chunks of an array in a previous folder do not belong to this one.
            (_, Ok(array)) if array.writer().is_displaced() => return Reconciled::Replaced,
            (Difference::None, Ok(array)) => array.check_form().map(|()| array.clone()),
            (Difference::None, Err(_)) => old.array.clone(),
            (Difference::Grown, Ok(array)) => match served(shared, &light) {
                Ok(served) => array.grown(served.into_owned()),
                Err(error) => Err(error),
            },
            (Difference::Grown, Err(_)) => self.build_shared(shared, &light),
            (Difference::Other, Ok(_) | Err(_)) => return Reconciled::Replaced,
        };
        let Ok(new) = &array else { return Reconciled::Replaced };
        let is_same_length = old.array.as_ref().is_ok_and(|old| old.size_bytes() == new.size_bytes());
        if old.array.is_ok() && !is_same_length {
            record_new_size();
        }
        let mut new = OpenArray::new(light, metadata, state, array);
        // If this process wrote the document, the kernel still has its size.
        new.was_lengthened_here = old.was_lengthened_here && is_same_length;
        *shared.current.write() = Some(Arc::new(new));
        Reconciled::Current
    }

    /// Makes an open array longer. `replace` replaces its document, and `update_copies` the copies in consolidated metadata. Calls
    /// `record_new_size` before readers see another size.
    ///
    /// Until the copies are replaced they have the old shape, which would look like another array. So metadata that was read before
    /// that counts as older than the array that this opens.
    pub fn lengthen(
        &self,
        shared: &SharedArray,
        array: &Arc<Array>,
        longer: ArrayMetadata,
        (replace, update_copies): (impl FnOnce() -> Result<()>, impl FnOnce() -> Result<()>),
        record_new_size: impl FnOnce(),
    ) -> Result<()> {
        let stale = || Error::Stale { key: shared.path.to_string() };
        let reconciling = self.reconciling_at(&shared.path);
        let _one_at_a_time = reconciling.lock();
        let is_current = |open: &Arc<OpenArray>| open.array.as_ref().is_ok_and(|now| Arc::ptr_eq(now, array));
        if shared.is_stale() || !shared.current().as_ref().is_some_and(is_current) {
            return Err(stale());
        }
        let metadata = Arc::new(longer);
        let longer = array.lengthen(metadata.clone(), replace)?;
        let updated = update_copies();
        record_new_size();
        let open = OpenArray {
            of_node: Arc::downgrade(&metadata),
            metadata,
            version: None,
            read_at: Instant::now(),
            array: Ok(longer),
            was_lengthened_here: true,
        };
        *shared.current.write() = Some(Arc::new(open));
        updated
    }

    /// Opens another array next to the shared one. Fails if it cannot be served.
    pub fn build(
        &self,
        path: &str,
        metadata: &Arc<ArrayMetadata>,
        audience: &Arc<Audience>,
    ) -> Result<Arc<Array>> {
        let store = self.store_for(path, audience);
        Array::open(&self.engine, &store, path, metadata.clone(), self.layout)
    }

    /// Opens the array, or the view that `shared` is.
    fn build_shared(&self, shared: &SharedArray, metadata: &Arc<ArrayMetadata>) -> Result<Arc<Array>> {
        let served = served(shared, metadata)?.into_owned();
        let layout = shared.view.as_ref().map_or(self.layout, |view| view.layout(self.layout));
        let store = self.store_for(&shared.path, &shared.audience);
        let layout = FileLayout { layout, slowest: shared.view.as_ref().and_then(View::slowest_axis) };
        Array::open(&self.engine, &store, &shared.path, served, layout)
    }

    /// Waits until an array at a path that is being replaced has been.
    pub fn wait_for_replacement(&self, path: &str) {
        let reconciling = self.reconciling_at(path);
        drop(reconciling.lock());
    }

    /// Returns the lock for replacing an array at a path.
    fn reconciling_at(&self, path: &str) -> Arc<Mutex<()>> {
        let name = self.store.catalogue().and_then(|_| member_name(path)).unwrap_or_default();
        self.reconciling.lock().entry(name.to_owned()).or_default().clone()
    }

    /// Returns how the metadata of an array, or of a view of it, differs from the metadata that its readers opened.
    fn difference(
        &self,
        view: Option<&View>,
        old: &Arc<ArrayMetadata>,
        new: &Arc<ArrayMetadata>,
    ) -> Difference {
        let Some(view) = view else { return difference(old, new, slowest(self.layout, new)) };
        let (Some(old), Some(new)) = (view.metadata(old), view.metadata(new)) else {
            return Difference::Other;
        };
        let by_layout = slowest(view.layout(self.layout), &new);
        difference(&old, &new, view.slowest_axis().unwrap_or(by_layout))
    }

    /// Returns the store with the permissions of the array's readers.
    pub fn store_for(&self, path: &str, audience: &Arc<Audience>) -> Arc<dyn Store> {
        let store = self.store_at(path);
        store.for_audience(path, audience).unwrap_or(store)
    }
}

impl OpenArray {
    fn new(
        metadata: Arc<ArrayMetadata>,
        of_node: &Arc<ArrayMetadata>,
        state: NodeState<'_>,
        array: Result<Arc<Array>>,
    ) -> Self {
        OpenArray {
            metadata,
            of_node: Arc::downgrade(of_node),
            version: state.version,
            read_at: state.read_at,
            array,
            was_lengthened_here: false,
        }
    }
}

/// How the metadata of an array differs from the metadata that its readers opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// No difference in the served bytes.
    None,
    /// Longer along the slowest axis of the file: all previous bytes keep their place.
    Grown,
    /// Another array.
    Other,
}

/// Returns the slowest axis of an array's file.
fn slowest(layout: Layout, metadata: &ArrayMetadata) -> usize {
    match layout.order {
        Order::C => 0,
        Order::F => metadata.shape.len().saturating_sub(1),
    }
}

/// Returns the metadata that an open array keeps. Views keep attributes, because they may depend on them.
fn light(shared: &SharedArray, metadata: &Arc<ArrayMetadata>) -> Arc<ArrayMetadata> {
    if shared.view.is_none() && metadata.memory_bytes() > MAX_KEPT_BYTES {
        Arc::new(metadata.without_attributes())
    } else {
        metadata.clone()
    }
}

/// Returns the metadata that is served of an array, or of a view of it.
fn served<'a>(shared: &SharedArray, metadata: &'a Arc<ArrayMetadata>) -> Result<Cow<'a, Arc<ArrayMetadata>>> {
    let stale = || Error::Stale { key: shared.path.to_string() };
    match &shared.view {
        Some(view) => view.metadata(metadata).ok_or_else(stale),
        None => Ok(Cow::Borrowed(metadata)),
    }
}

fn difference(old: &ArrayMetadata, new: &ArrayMetadata, slowest: usize) -> Difference {
    if !old.is_stored_as(new) || old.shape.len() != new.shape.len() {
        return Difference::Other;
    }
    if old.shape == new.shape {
        return Difference::None;
    }
    let mut axes = old.shape.iter().zip(&new.shape).enumerate();
    let has_grown =
        axes.all(|(axis, (before, after))| before == after || (axis == slowest && before < after));
    if has_grown { Difference::Grown } else { Difference::Other }
}
