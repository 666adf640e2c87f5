//! A node as `formats` describes it, without a mount. Uses `formats` and `hierarchy`.

use std::sync::Arc;
use std::time::Instant;

use zarrfs::array::{Engine, Layout};
use zarrfs::error::{Error, Result};
use zarrfs::formats::{self, Place, Subject};
use zarrfs::hierarchy::{Node, NodeState, OpenArrays, SharedArray, Tree};

/// Calls `work` with a node, as if its companions were in the same folder.
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
        place: Place::Beside,
        open_array: Box::new(|path| open_array(&arrays, tree, path)),
        open_array_to_read: Box::new(|path| open_array(&arrays, tree, path)),
        find_node: Box::new(|path| Ok(tree.node(path)?.map(Arc::new))),
        children: Box::new(|path| tree.children(path)),
        beside: &[],
        is_node: Box::new(|path| Ok(tree.node(path)?.is_some())),
    })
}

fn open_array(arrays: &OpenArrays, tree: &Tree, path: &str) -> Result<Arc<SharedArray>> {
    let stale = || Error::Stale { key: path.to_owned() };
    let node = tree.node(path)?.ok_or_else(stale)?;
    let shared = arrays.of(None, &path.into());
    arrays.open(&shared, NodeState { node: Some(&node), version: None, read_at: Instant::now() })?;
    Ok(shared)
}
