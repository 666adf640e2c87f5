//! A node, or a slice of it, as the formats see it, without a mount. Uses `formats` and `hierarchy`.

use std::sync::Arc;
use std::time::Instant;

use zarrfs::array::{Engine, Layout};
use zarrfs::error::{Error, Result};
use zarrfs::formats::{self, CompanionPlace, Subject, Surroundings, views};
use zarrfs::hierarchy::slices::Slice;
use zarrfs::hierarchy::{Child, Node, NodeState, OpenArrays, SharedArray, Tree, View};

use super::open;
use crate::cli::exit::{Exit, Outcome};

/// Calls `work` with a node whose companions are, as far as it sees, in the node's own folder.
pub fn with_subject<T>(
    engine: &Arc<Engine>,
    tree: &Tree,
    (path, node): (&str, &Node),
    layout: Layout,
    work: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    with_view(engine, tree, ShownNode { path, stored: node, shown: node, view: None }, layout, work)
}

/// Calls `work` with a slice of a node. Fails if the node cannot be sliced.
pub fn with_slice<T>(
    engine: &Arc<Engine>,
    tree: &Tree,
    (path, stored, slice): (&str, &Node, &Arc<Slice>),
    layout: Layout,
    work: impl FnOnce(&Subject<'_>) -> T,
) -> Outcome<T> {
    let view = View::Slice(slice.clone());
    let shown = view
        .node(stored)
        .ok_or_else(|| Exit::Failed(format!("'{}' has no flat bytes, and no slices", open::shown(path))))?;
    let node = ShownNode { path, stored, shown: &shown, view: Some(view) };
    Ok(with_view(engine, tree, node, layout, work))
}

/// A node, as it is stored and as a view shows it.
struct ShownNode<'a> {
    path: &'a str,
    stored: &'a Node,
    shown: &'a Node,
    view: Option<View>,
}

fn with_view<T>(
    engine: &Arc<Engine>,
    tree: &Tree,
    node: ShownNode<'_>,
    layout: Layout,
    work: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    let ShownNode { path, stored, shown, view } = node;
    let arrays = OpenArrays::new(engine, tree.store(), layout);
    let store = tree.store().describe();
    let root_name = formats::root_name(store.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
    work(&Subject {
        arrays: &arrays,
        audience: Arc::default(),
        path,
        root_name: &root_name,
        node: shown,
        view_file: view.as_ref().map(|view| {
            let file = if path.is_empty() { root_name.as_str() } else { path };
            views::own_file(view, file, stored)
        }),
        place: CompanionPlace::NextToNode,
        surroundings: Box::new(WholeTree {
            arrays: &arrays,
            tree,
            neighbour_view: view.as_ref().and_then(View::of_neighbours),
        }),
        view: view.map(|view| (view, stored)),
        formats: formats::FORMATS,
        listed: &[],
        walk: Default::default(),
    })
}

/// A whole store that the caller may read.
struct WholeTree<'a> {
    arrays: &'a OpenArrays,
    tree: &'a Tree,
    /// The view of the nodes next to the subject.
    neighbour_view: Option<View>,
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
        let found = self.whole_node(path)?;
        Ok(match (&self.neighbour_view, found) {
            (Some(view), Some(found)) => self.arrays.shown(Some(view), &found),
            (_, found) => found,
        })
    }

    fn whole_node(&self, path: &str) -> Result<Option<Arc<Node>>> {
        Ok(self.tree.node(path)?.map(Arc::new))
    }

    fn is_node(&self, path: &str) -> Result<bool> {
        Ok(self.tree.node(path)?.is_some())
    }

    fn children(&self, path: &str) -> Result<Vec<Child>> {
        self.tree.children(path)
    }
}
