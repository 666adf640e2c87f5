//! Nodes in a store without folders. tests/formats/authoring.rs has the tests of nodes on disk.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::array::{Array, Engine, Layout};
use crate::metadata::author::{ArraySpec, ElementType, group_documents};
use crate::metadata::parse_array;
use crate::store::{DirectoryStore, MemoryStore};

fn store() -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let group = |path: &str| {
        let place = Place::find(&store, path).unwrap();
        create(&store, &place, group_documents(ZarrFormat::V3, &[]).unwrap()).unwrap();
    };
    group("");
    group("g");
    store
}

fn documents(shape: &[u64]) -> Vec<NodeDocument> {
    let spec = ArraySpec {
        zarr_format: ZarrFormat::V3,
        shape: shape.to_vec(),
        element: ElementType::parse("uint8").unwrap(),
        chunks: Some(vec![4; shape.len()]),
        shards: None,
        codecs: None,
        fill_value: Some("9"),
        dimension_names: None,
        attributes: Vec::new(),
    };
    spec.documents().unwrap()
}

fn has(store: &Arc<dyn Store>, path: &str) -> bool {
    Tree::new(store.clone()).node(path).unwrap().is_some()
}

fn array(engine: &Arc<Engine>, store: &Arc<dyn Store>, path: &str) -> Arc<Array> {
    let key = join(path, "zarr.json");
    let text = store.get(&key, 1 << 20).unwrap().unwrap();
    let metadata = parse_array(&key, &text).unwrap().unwrap();
    Array::open(engine, store, path, Arc::new(metadata), Layout::default()).unwrap()
}

#[test]
fn a_node_replaces_no_other_and_is_removed_with_everything_below_it() {
    let store = store();
    let place = Place::find(&store, "g/a").unwrap();
    create(&store, &place, documents(&[5])).unwrap();
    // As if another program had taken the place since it was found.
    assert!(matches!(create(&store, &place, documents(&[6])), Err(Error::Usage(_))));
    assert!(matches!(Place::find(&store, "g/a"), Err(Error::Usage(_))));
    assert!(matches!(Place::find(&store, "x/a"), Err(Error::Usage(_))));
    assert!(matches!(Place::find(&store, "g/a/b"), Err(Error::Usage(_))));
    let elsewhere = Place::find(&store, "h").unwrap();
    assert!(matches!(rename(&store, "g", &elsewhere), Err(Error::ReadOnly(_))));
    assert!(has(&store, "g/a"));
    assert!(matches!(remove(&store, ""), Err(Error::Usage(_))));
    remove(&store, "g").unwrap();
    assert!(!has(&store, "g") && !has(&store, "g/a"));
    assert_eq!(store.list("").unwrap().len(), 1);
}

#[test]
fn a_node_that_is_not_published_is_removed() {
    let store = store();
    let place = Place::find(&store, "a").unwrap();
    let mut node = NewNode::begin(&store, &place, documents(&[5])).unwrap();
    assert!(!has(&store, "a"));
    assert_eq!(node.path_for_chunks(None).unwrap(), "a");
    drop(node);
    assert!(!has(&store, "a") && store.list("a").unwrap().is_empty());
    let mut node = NewNode::begin(&store, &place, documents(&[5])).unwrap();
    node.path_for_chunks(None).unwrap();
    node.publish().unwrap();
    assert!(has(&store, "a"));
}

#[test]
fn discarded_elements_never_come_back() {
    let (store, engine) = (store(), Engine::new(1 << 20, 1));
    create(&store, &Place::find(&store, "a").unwrap(), documents(&[10, 10])).unwrap();
    let whole = array(&engine, &store, "a");
    whole.writer().open_for_writing().unwrap();
    whole.writer().write_at(0, &[1; 100]).unwrap();
    whole.writer().flush().unwrap();
    whole.writer().close_for_writing();
    assert!(matches!(resize(&engine, &store, "a", &[3, 10], false), Err(Error::Usage(_))));
    assert!(matches!(resize(&engine, &store, "a", &[3], true), Err(Error::Usage(_))));
    let resized = resize(&engine, &store, "a", &[3, 10], true).unwrap();
    // Rows of chunks 1 and 2 go, those of row 0 have a fourth row, and their last one has columns 10 and 11 already.
    assert_eq!(resized, Resized { deleted_objects: 6, cleared_chunks: 3 });
    assert_eq!(resize(&engine, &store, "a", &[6, 10], false).unwrap(), Resized::default());
    let longer = array(&engine, &store, "a");
    let mut read = vec![0; 60];
    longer.read_at(0, &mut read).unwrap();
    assert_eq!((&read[..30], &read[30..]), (&[1; 30][..], &[9; 30][..]));
}

/// In a folder where every user may create files, a record can be anybody's.
#[test]
fn a_record_of_another_user_changes_no_document() {
    if crate::sys::effective_ids().0 != 0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::open(folder.path(), false).unwrap());
    create(&store, &Place::find(&store, "").unwrap(), group_documents(ZarrFormat::V3, &[]).unwrap()).unwrap();
    for name in ["a", "b"] {
        create(&store, &Place::find(&store, name).unwrap(), documents(&[5])).unwrap();
    }
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name).join("zarr.json")).unwrap();
    let (record, now) = (folder.path().join(crate::hierarchy::lengths_record::RECORD), text("a"));
    let old = now.replace("5", "500");
    let documents = serde_json::json!([{"key": "a/zarr.json", "old": old, "new": now},
        {"key": "b/zarr.json", "old": now, "new": "{}"}]);
    std::fs::write(&record, serde_json::json!({"documents": documents}).to_string()).unwrap();
    let owner = |path: &std::path::Path, uid| std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
    owner(&record, 1234);
    interrupted::end_interrupted(store.as_ref(), "").unwrap();
    assert_eq!(text("a"), now);
    let engine = Engine::new(1 << 20, 1);
    let refused = lengths::NewLengths::begin(&engine, &store, "", "x", lengths::LengthChange::To(3));
    assert!(refused.err().unwrap().to_string().contains("another user's change of lengths"));
    // The documents of that user are changed back.
    owner(&folder.path().join("a/zarr.json"), 1234);
    owner(&folder.path().join("b/zarr.json"), 1234);
    interrupted::end_interrupted(store.as_ref(), "").unwrap();
    assert_eq!(text("a"), old);
    assert!(!record.exists());
}

/// Another program may append rows while the rows of an append are stored: it replaces the document first.
#[test]
fn an_append_ends_when_another_program_has_appended() {
    let (store, engine) = (store(), Engine::new(1 << 20, 1));
    let spec = || {
        let mut documents = documents(&[5]);
        let text = &mut documents.first_mut().unwrap().text;
        *text = text.replacen('{', "{\"dimension_names\": [\"x\"],", 1);
        documents
    };
    create(&store, &Place::find(&store, "a").unwrap(), spec()).unwrap();
    for is_open_before in [false, true] {
        let lengths =
            lengths::NewLengths::begin(&engine, &store, "", "x", lengths::LengthChange::Longer(3)).unwrap();
        let appended = lengths.arrays.first().unwrap();
        let open = || lengths.open_longer(appended, Layout::default());
        let before = is_open_before.then(|| open().unwrap());
        let (key, writer) = ("a/zarr.json", store.writer().unwrap());
        let (text, info) = crate::hierarchy::attributes::read(store.as_ref(), key).unwrap().unwrap();
        let length = appended.shape[0] - 3;
        let longer = crate::metadata::author::with_shape(&text, &[length + 1]).unwrap();
        writer.put(key, &[ObjectPart::Bytes(longer.as_bytes())], &PutOptions::new("a", &info)).unwrap();
        let other = array(&engine, &store, "a");
        other.writer().open_for_writing().unwrap();
        other.writer().write_at(length, &[7]).unwrap();
        other.writer().flush().unwrap();
        other.writer().close_for_writing();
        let stored = before.map_or_else(open, Ok).and_then(|longer| {
            longer.writer().write_at(length, &[1, 2, 3])?;
            lengths.close_longer(appended, &longer)
        });
        assert!(matches!(stored, Err(Error::Stale { .. })), "{is_open_before}: {stored:?}");
        let mut read = [0];
        array(&engine, &store, "a").read_at(length, &mut read).unwrap();
        assert_eq!(read, [7], "{is_open_before}");
    }
}

/// While a record of a change is there, the arrays in it have their old length, in both versions of Zarr.
#[test]
fn a_record_hides_new_lengths() {
    for (zarr_format, name) in [(ZarrFormat::V2, ".zarray"), (ZarrFormat::V3, "zarr.json")] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        create(&store, &Place::find(&store, "").unwrap(), group_documents(zarr_format, &[]).unwrap())
            .unwrap();
        let spec = ArraySpec {
            zarr_format,
            shape: vec![5],
            element: ElementType::parse("uint8").unwrap(),
            chunks: Some(vec![4]),
            shards: None,
            codecs: None,
            fill_value: Some("9"),
            dimension_names: Some(vec![Some("x".to_owned())]),
            attributes: Vec::new(),
        };
        create(&store, &Place::find(&store, "a").unwrap(), spec.documents().unwrap()).unwrap();
        let (key, record) = (join("a", name), crate::hierarchy::lengths_record::RECORD);
        let (old, info) = crate::hierarchy::attributes::read(store.as_ref(), &key).unwrap().unwrap();
        let with_length = |length: u64| crate::metadata::author::with_shape(&old, &[length]).unwrap();
        let (writer, tree) = (store.writer().unwrap(), Tree::new(store.clone()));
        let put = |key: &str, text: &str| {
            writer.put(key, &[ObjectPart::Bytes(text.as_bytes())], &PutOptions::new("a", &info)).unwrap();
        };
        let length = || match tree.node("a").unwrap() {
            Some(Node::Array { metadata, .. }) => metadata.shape[0],
            other => panic!("{other:?}"),
        };
        let documents = serde_json::json!([{"key": key, "old": old, "new": with_length(8)}]);
        put(record, &serde_json::json!({"documents": documents}).to_string());
        assert_eq!(length(), 5);
        put(&key, &with_length(6));
        assert_eq!(length(), 6, "another program's length");
        put(&key, &with_length(8));
        assert_eq!(length(), 5);
        let version_of_record = || {
            let found = tree.node_for("a", std::time::Duration::ZERO).unwrap().found.unwrap();
            found.lengths_record
        };
        assert!(version_of_record().is_some());
        writer.delete(record, Precondition::Any).unwrap();
        assert_eq!(length(), 8);
        assert_eq!(version_of_record(), None);
        // What is not a record hides nothing.
        for text in ["", "{}", r#"{"documents": [{"key": "a/../b/zarr.json", "old": "", "new": ""}]}"#] {
            put(record, text);
            assert_eq!(length(), 8, "{text}");
        }
        writer.delete(record, Precondition::Any).unwrap();
        let change = lengths::LengthChange::Shorter(9);
        let refused = lengths::NewLengths::begin(&Engine::new(1 << 20, 1), &store, "", "x", change);
        let refused = refused.err().unwrap().to_string();
        assert!(
            refused.contains("'a' is 8 long along this dimension: it cannot become 9 shorter"),
            "{refused}"
        );
    }
}
