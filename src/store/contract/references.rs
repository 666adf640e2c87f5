//! The contract of references: inline bytes, ranges of one file, whole files.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Value, json};

use super::{Objects, Subject, contract, write_folder};
use crate::store::{ReferenceStore, StoreOptions};

fn open(folder: tempfile::TempDir, references: serde_json::Map<String, Value>) -> Subject {
    let path = folder.path().join("refs.json");
    std::fs::write(&path, Value::from(references).to_string()).unwrap();
    let store = ReferenceStore::open_file(&path, path.to_str().unwrap(), &StoreOptions::default()).unwrap();
    let root = folder.path().to_owned();
    let replace = move |key: &str, bytes: &[u8]| {
        std::fs::write(root.join(".new"), bytes).unwrap();
        std::fs::rename(root.join(".new"), root.join("data").join(key)).unwrap();
    };
    Subject { store: Arc::new(store), replace: Some(Box::new(replace)), _keep: Box::new(folder) }
}

fn inline(objects: Objects<'_>) -> Subject {
    let base64 = base64::engine::general_purpose::STANDARD;
    let reference = |(key, bytes): &(&str, &[u8])| {
        ((*key).to_owned(), Value::from(format!("base64:{}", base64.encode(bytes))))
    };
    let subject = open(tempfile::tempdir().unwrap(), objects.iter().map(reference).collect());
    Subject { replace: None, ..subject }
}

fn ranges(objects: Objects<'_>) -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let (mut data, mut references) = (vec![7], serde_json::Map::new());
    for (key, bytes) in objects {
        references.insert((*key).to_owned(), json!(["data.bin", data.len(), bytes.len()]));
        data.extend_from_slice(bytes);
        data.push(7);
    }
    std::fs::write(folder.path().join("data.bin"), data).unwrap();
    Subject { replace: None, ..open(folder, references) }
}

fn whole(objects: Objects<'_>) -> Subject {
    let folder = tempfile::tempdir().unwrap();
    write_folder(&folder.path().join(Path::new("data")), objects);
    let reference = |(key, _): &(&str, &[u8])| ((*key).to_owned(), json!([format!("data/{key}")]));
    open(folder, objects.iter().map(reference).collect())
}

#[test]
fn references() {
    contract(inline);
    contract(ranges);
    contract(whole);
}
