//! Reading arrays through the library, without a mount.

use std::path::Path;
use std::sync::Arc;

use zarrfs::array::{Array, ByteOrder, Engine, Layout, Order};
use zarrfs::error::{Error, Result};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::store::Store;

/// The four ways in which an array can be served, named as in expected.json.
pub const LAYOUTS: [(&str, Layout); 4] = [
    ("C<", Layout { order: Order::C, byte_order: ByteOrder::Little }),
    ("C>", Layout { order: Order::C, byte_order: ByteOrder::Big }),
    ("F<", Layout { order: Order::F, byte_order: ByteOrder::Little }),
    ("F>", Layout { order: Order::F, byte_order: ByteOrder::Big }),
];

/// Returns the folder as a tree.
pub fn tree(folder: &Path) -> Tree {
    Tree::new(zarrfs::store::open(folder.to_str().unwrap(), false).unwrap())
}

/// Returns the array at a path. Anything else there is a `Usage` error.
pub fn open(tree: &Tree, engine: &Arc<Engine>, path: &str, layout: Layout) -> Result<Arc<Array>> {
    match tree.node(path)? {
        Some(Node::Array { metadata, .. }) => Array::open(engine, tree.store(), path, metadata, layout),
        Some(Node::Broken { error, .. }) => Err(error),
        Some(Node::Group { .. }) => Err(Error::Usage(format!("{path} is a group"))),
        None => Err(Error::Usage(format!("{path} is not there"))),
    }
}

/// Returns all bytes of the flat file.
pub fn read_all(array: &Array) -> Result<Vec<u8>> {
    let mut bytes = vec![0xEE; usize::try_from(array.size_bytes()).unwrap()];
    array.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Returns all bytes of the array at a path, in C order and little-endian.
pub fn read(store: &Arc<dyn Store>, path: &str) -> Result<Vec<u8>> {
    let engine = Engine::new(16 << 20, 2);
    read_all(&*open(&Tree::new(store.clone()), &engine, path, LAYOUTS[0].1)?)
}

/// Reads all of an array of a store on this machine.
pub fn stored(store: &Path, array: &str) -> Vec<u8> {
    let opened = zarrfs::store::open(store.to_str().unwrap(), false).unwrap();
    read(&opened, array).unwrap()
}

/// Runs `check` on every item, on as many threads as there are cores; gives what the calls returned, in order.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], check: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let per_thread = items.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(per_thread)
            .map(|part| scope.spawn(|| part.iter().map(&check).collect::<Vec<R>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

/// Fails with the first failures and how many there are, grouped by their first words.
pub fn assert_none(failures: &[String], of: &str) {
    if failures.is_empty() {
        return;
    }
    let shown: Vec<&str> = failures.iter().take(40).map(String::as_str).collect();
    panic!("{} failures in {of}:\n{}", failures.len(), shown.join("\n"));
}
