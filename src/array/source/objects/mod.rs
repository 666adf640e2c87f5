//! The objects of an array: their keys, those that are stored, and strays, which lie among them and are not theirs.
//!
//! Uses `array/geometry`, `metadata`, `store` and `error`.

pub mod keys;
pub mod stored_objects;
pub mod strays;

use std::hash::{Hash, Hasher};

use crate::error::Result;
use crate::store::Store;

/// How many objects are looked up in one batch.
const BATCH_OBJECTS: usize = 512;

/// Adds the versions of objects to a hash, without reading the objects.
pub fn hash_versions(
    store: &dyn Store,
    mut keys: impl Iterator<Item = Result<String>>,
    version: &mut impl Hasher,
) -> Result<()> {
    loop {
        let batch = keys.by_ref().take(BATCH_OBJECTS).collect::<Result<Vec<String>>>()?;
        if batch.is_empty() {
            return Ok(());
        }
        for found in store.head_many(&batch.iter().map(String::as_str).collect::<Vec<_>>()) {
            found?.map(|info| info.version).hash(version);
        }
    }
}
