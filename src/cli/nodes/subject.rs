//! A node as the formats see it, without a mount. Uses `formats` and `hierarchy`.

use std::sync::Arc;
use std::time::Instant;

use zarrfs::array::{Engine, Layout};
use zarrfs::error::{Error, Result};
use zarrfs::formats::{self, CompanionPlace, Subject, Surroundings};
use zarrfs::hierarchy::{Child, Node, NodeState, OpenArrays, SharedArray, Tree, View};

/// Calls `work` with a node whose companions are, as far as it sees, in the node's own folder.
pub fn with_subject<T>(
    engine: &Arc<Engine>,
    tree: &Tree,
    (path, node): (&str, &Node),
    layout: Layout,
    work: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    let arrays = OpenArrays::new(engine, tree.store(), layout);
    let store = tree.store().describe();
    let root_name = formats::root_name(store.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
    work(&Subject {
        arrays: &arrays,
        audience: Arc::default(),
        path,
        root_name: &root_name,
        node,
        view: None,
        view_file: None,
        place: CompanionPlace::NextToNode,
        surroundings: Box::new(WholeTree { arrays: &arrays, tree }),
        formats: formats::FORMATS,
        listed: &[],
    })
}

/// A whole store that the caller may read.
struct WholeTree<'a> {
    arrays: &'a OpenArrays,
    tree: &'a Tree,
}

impl Surroundings for WholeTree<'_> {
    fn open_array(&self, path: &str) -> Result<Arc<SharedArray>> {
        let stale = || Error::Stale { key: path.to_owned() };
        let node = self.tree.node(path)?.ok_or_else(stale)?;
        let shared = self.arrays.of(None, &path.into());
        self.arrays.open(&shared, NodeState { node: Some(&node), version: None, read_at: Instant::now() })?;
        Ok(shared)
    }

    fn open_view(&self, view: View, path: &str) -> Result<Arc<SharedArray>> {
        let stale = || Error::Stale { key: path.to_owned() };
        let node = self.tree.node(path)?.ok_or_else(stale)?;
        let shared = self.arrays.of(Some(view), &path.into());
        self.arrays.open(&shared, NodeState { node: Some(&node), version: None, read_at: Instant::now() })?;
        Ok(shared)
    }

    fn node(&self, path: &str) -> Result<Option<Arc<Node>>> {
        Ok(self.tree.node(path)?.map(Arc::new))
    }

    fn children(&self, path: &str) -> Result<Vec<Child>> {
        self.tree.children(path)
    }
}
