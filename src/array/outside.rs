//! What is stored outside an array, for code that changes its shape.
//!
//! Uses `engine.rs`, `served/`, `write/`, `metadata` and `store`.

use std::sync::Arc;

use crate::array::Engine;
use crate::array::geometry::axis::Axis;
use crate::array::geometry::layout::FileLayout;
use crate::array::served::ServedArray;
use crate::array::served::open::ArrayToOpen;
use crate::array::write::clear::{OutsideElements, padded};
use crate::error::Result;
use crate::metadata::ArrayMetadata;
use crate::store::{Info, Store};

/// Deletes the objects that have elements only outside `inside`. The array's document need not know about them:
/// `metadata` describes an array that has them all. An object is deleted only if it was there before `may_delete` last
/// returned, so `may_delete` can check whether another program has begun to use it. Returns how many objects were
/// deleted.
pub fn delete_outside(
    engine: &Arc<Engine>,
    store: &Arc<dyn Store>,
    path: &str,
    metadata: ArrayMetadata,
    inside: &[u64],
    may_delete: &dyn Fn() -> Result<()>,
) -> Result<u64> {
    let (metadata, layout) = (Arc::new(metadata), FileLayout::default());
    let served = ServedArray::open(engine.loads(), ArrayToOpen { store, path, metadata, layout })?;
    let (resources, cores) = (&engine.writers().resources, engine.workers().count());
    OutsideElements::new(&Arc::new(served), resources, inside, cores).delete_objects(may_delete)
}

/// Sets the elements after the end of the array to the fill value, in all stored objects that were there before
/// `may_clear` last returned. The change is durable when this returns. Returns how many chunks changed.
pub fn clear_padding(
    engine: &Arc<Engine>,
    store: &Arc<dyn Store>,
    path: &str,
    metadata: &ArrayMetadata,
    may_clear: &(dyn Fn() -> Result<Info> + Sync),
) -> Result<u64> {
    let (metadata, layout) = (Arc::new(metadata.clone()), FileLayout::default());
    let served = ServedArray::open(engine.loads(), ArrayToOpen { store, path, metadata, layout })?;
    let Some(padded) = padded(&served, usize::MAX)? else { return Ok(0) };
    let inside: Vec<u64> = served.grid().axes().iter().map(Axis::extent).collect();
    let (resources, cores) = (&engine.writers().resources, engine.workers().count());
    OutsideElements::new(&padded, resources, &inside, cores).clear(may_clear)
}
