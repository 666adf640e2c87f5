//! Tests of keys where a v2 document names no separator.
#![allow(clippy::unwrap_used)]

use crate::array::geometry::axis_order::AxisOrder;
use crate::array::source::objects::keys::Keys;
use crate::metadata::ChunkKeyEncoding;
use crate::store::MemoryStore;

fn keys() -> Keys {
    Keys::new("a", ChunkKeyEncoding::v2('.', true), AxisOrder::new(2, false, None))
}

fn store(objects: &[&str]) -> MemoryStore {
    let store = MemoryStore::new();
    objects.iter().for_each(|key| store.put(key, *b"x").unwrap());
    store
}

#[test]
fn the_first_stored_chunk_has_the_separator() {
    for (objects, before, found, after) in [
        (&["a/1/2"][..], "a/0.0", "a/1/2", "a/0/0"),
        (&["a/1.2"], "a/0.0", "a/1.2", "a/0.0"),
        (&["a/1.2", "a/1/2"], "a/0.0", "a/1.2", "a/0.0"),
        (&[], "a/0.0", "a/1.2", "a/0.0"),
    ] {
        let (keys, store) = (keys(), store(objects));
        assert_eq!(keys.key(&store, &[0, 0]).unwrap(), before, "missing under both keys");
        assert_eq!(keys.key(&store, &[1, 2]).unwrap(), found);
        assert_eq!(keys.key(&store, &[0, 0]).unwrap(), after);
    }
}

#[test]
fn a_writer_keeps_to_the_separator_of_other_chunks() {
    let (keys, store) = (keys(), store(&["a/.zarray", "a/1/2"]));
    assert_eq!(keys.encoding(&store, 2).unwrap().separator, '/');
    assert_eq!(keys.key(&store, &[0, 0]).unwrap(), "a/0/0", "a new chunk");
}
