//! Commits into a base without versions: what stays in the overlay, and what readers of the base see then.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::into_base;
use crate::array::Engine;
use crate::hierarchy::author;
use crate::store::overlay::{Access, OverlayOptions, OverlayStore};
use crate::store::{MemoryStore, ObjectPart, PutOptions, RemoteOptions, Store};

fn array(length: usize) -> String {
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[{length}],"data_type":"uint8","fill_value":0,"chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[4]}}}},"chunk_key_encoding":{{"name":"default"}},"codecs":[{{"name":"bytes"}}]}}"#
    )
}

fn group(copy: &str) -> String {
    format!(
        r#"{{"zarr_format":3,"node_type":"group","consolidated_metadata":{{"kind":"inline","must_understand":false,"metadata":{{"a":{copy}}}}}}}"#
    )
}

fn text(store: &dyn Store, key: &str) -> String {
    String::from_utf8(store.get(key, 1 << 20).unwrap().unwrap()).unwrap()
}

/// The group's document was committed with the new shape, so readers of consolidated metadata saw an array that was not there.
#[test]
fn consolidated_metadata_stays_with_the_document_that_it_copies() {
    let base = Arc::new(MemoryStore::new());
    base.put("zarr.json", group(&array(4)).as_bytes()).unwrap();
    base.put("a/zarr.json", array(4).as_bytes()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    std::fs::create_dir(&place).unwrap();
    let options = OverlayOptions { folder: folder.path().join("overlay"), access: Access::Write };
    let (place, remote) = (place.to_str().unwrap(), RemoteOptions::default());
    let overlay = Arc::new(OverlayStore::open(base.clone(), place, &remote, &options, None).unwrap());
    let store: Arc<dyn Store> = overlay.clone();
    author::resize(&Engine::new(1 << 20, 1), &store, "a", &[8], false).unwrap();
    assert_eq!(text(&*store, "zarr.json"), group(&array(8)));
    let like = store.head("").unwrap().unwrap();
    let parts = [ObjectPart::Bytes(b"ours")];
    store.writer().unwrap().put("a/c/1", &parts, &PutOptions::new("a", &like)).unwrap();
    // Another program has put a chunk there, so the array does not become longer.
    base.put("a/c/1", *b"else").unwrap();
    let mut kept = Vec::new();
    into_base(&overlay, &mut |changes| kept.push(changes.key)).unwrap();
    assert_eq!(kept, ["a/c/1", "a/zarr.json", "zarr.json"]);
    let base: &dyn Store = base.as_ref();
    assert_eq!((text(base, "a/zarr.json"), text(base, "zarr.json")), (array(4), group(&array(4))));
    // Without the other program's chunk, all is committed.
    base.writer().unwrap().delete("a/c/1", crate::store::Precondition::Any).unwrap();
    let tally = into_base(&overlay, &mut |_| ()).unwrap();
    assert_eq!((tally.committed, tally.kept), (3, 0));
    assert_eq!((text(base, "a/zarr.json"), text(base, "zarr.json")), (array(8), group(&array(8))));
}
