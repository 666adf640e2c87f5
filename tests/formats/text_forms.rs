//! `__formats__/jsonl/`: arrays of strings and of bytes as text, through a mount, against zarr-python's elements.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::fixtures::{corpus, python};
use crate::support::mounted::Mount;
use crate::support::say;
use crate::support::{json_of, sorted_names};
use serde_json::{Value, json};
use tempfile::TempDir;
use zarrfs::codec::vlen::Vlen;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/text_forms.py");

/// Elements in C order, by array.
type Expected = BTreeMap<String, Vec<String>>;

fn run(python: &Path, folder: &Path, corpus: Option<&Path>) -> Expected {
    let output = Command::new(python).arg(PROGRAM).arg(folder).args(corpus).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_value(json_of(folder.join("expected.json"))).unwrap()
}

fn text_file(mount: &Mount, path: &str) -> PathBuf {
    mount.path(&format!("__formats__/jsonl/{path}.jsonl"))
}

fn sidecar(mount: &Mount, path: &str) -> Value {
    json_of(mount.path(&format!("{path}.json")))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// Returns what is wrong with the text form of an array.
fn complaint(mount: &Mount, path: &str, expected: &[String]) -> Option<String> {
    let file = text_file(mount, path);
    let size = fs::metadata(&file).map(|found| found.len());
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => return Some(error.to_string()),
    };
    let found = lines(&text);
    let refusal = errno(fs::File::open(mount.path(path)));
    let named = sidecar(mount, path)["text_form"].as_str().map(|name| mount.path(name));
    if found != expected {
        Some(format!("{} elements, {} expected, and not the same", found.len(), expected.len()))
    } else if size.as_ref().ok() != Some(&(text.len() as u64)) {
        Some(format!("{} bytes, and stat says {size:?}", text.len()))
    } else if refusal != libc::EOPNOTSUPP || named.as_deref() != Some(&file) {
        Some(format!("its own file gives errno {refusal}, its sidecar names {named:?}"))
    } else {
        None
    }
}

fn assert_all(mount: &Mount, expected: &Expected, what: &str) {
    let check = |(path, elements): (&String, &Vec<String>)| {
        complaint(mount, path, elements).map(|complaint| format!("{path}: {complaint}"))
    };
    let complaints: Vec<String> = expected.iter().filter_map(check).collect();
    let elements: usize = expected.values().map(Vec::len).sum();
    say(format!("{what}: {} arrays, {elements} elements, {} wrong", expected.len(), complaints.len()));
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn what_zarr_python_wrote() {
    let Some(python) = python("text forms") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut expected = run(&python, folder.path(), None);
    for options in [&[][..], &["--order", "F", "--byte-order", "big", "--direct-io"]] {
        let Some(mount) = Mount::new(&folder.path().join("stores"), options, "text forms") else { return };
        assert_all(&mount, &expected, "text forms of zarr-python's arrays");
        names(&mount);
        mount.unmount();
    }
    let alone = BTreeMap::from([("root".to_owned(), expected.remove("root.zarr").unwrap())]);
    let mount = Mount::new(&folder.path().join("stores/root.zarr"), &[], "text forms").unwrap();
    assert_all(&mount, &alone, "text form of a root");
    let listed = |folder: &str| {
        let entries = fs::read_dir(mount.path(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(listed("__formats__/jsonl"), ["root.jsonl"]);
    mount.unmount();
}

/// Checks which files are listed, and which do not exist.
fn names(mount: &Mount) {
    let listed = |folder: &str| sorted_names(mount.path(folder));
    assert!(listed("__formats__").iter().any(|format| format == "jsonl"));
    assert_eq!(listed("__formats__/jsonl"), ["root.zarr.jsonl", "v2.zarr", "v3.zarr"]);
    assert_eq!(listed("__formats__/jsonl/v3.zarr/group/in a group"), ["nested.jsonl"]);
    let v3 = listed("__formats__/jsonl/v3.zarr");
    assert!(v3.contains(&"group".to_owned()) && v3.contains(&"sharded gaps.jsonl".to_owned()));
    assert!(!v3.contains(&"numbers.jsonl".to_owned()), "numbers have their flat file");
    for absent in ["v3.zarr/numbers", "v3.zarr/none", "v3.zarr/group", "v3.zarr"] {
        assert_eq!(errno(fs::metadata(text_file(mount, absent))), libc::ENOENT, "{absent}");
    }
    assert_eq!(errno(fs::metadata(mount.path("__formats__/npz"))), libc::ENOENT);
    assert!(!sidecar(mount, "v3.zarr/numbers").as_object().unwrap().contains_key("text_form"));
    let file = text_file(mount, "v3.zarr/big");
    assert_eq!(errno(fs::File::options().write(true).open(&file)), libc::EROFS);
    // Any part of it.
    let text = fs::read(&file).unwrap();
    let mut open = fs::File::open(&file).unwrap();
    for (offset, length) in [(0, 1), (4095, 2), (100_000, 70_000), (text.len() - 3, 3)] {
        let mut part = vec![0; length];
        open.seek(SeekFrom::Start(offset as u64)).unwrap();
        open.read_exact(&mut part).unwrap();
        assert_eq!(part, text[offset..offset + length]);
    }
}

#[test]
fn what_others_wrote() {
    let Some(corpus) = corpus("text forms of the corpus") else { return };
    let Some(python) = python("text forms of the corpus") else { return };
    let folder = tempfile::tempdir().unwrap();
    let expected = run(&python, folder.path(), Some(&corpus));
    assert!(expected.len() >= 15, "{:?}", expected.keys());
    let Some(mount) = Mount::new(&corpus, &[], "text forms of the corpus") else { return };
    assert_all(&mount, &expected, "text forms of the corpus");
    let json2 = "zarrita/v2/data.zarr/1d.contiguous.json2.O";
    assert_eq!(errno(fs::metadata(text_file(&mount, json2))), libc::ENOENT);
    let said = sidecar(&mount, json2);
    assert!(
        said["error"].as_str().unwrap().contains("\"json2\"") && said.get("text_form").is_none(),
        "{said}"
    );
    mount.unmount();
}

/// Writes an array of strings with one chunk per element.
fn write(folder: &Path, path: &str, shape: u64, codecs: &Value) {
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [shape], "data_type": "string", "fill_value": "-",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs});
    fs::create_dir_all(folder.join(path).join("c")).unwrap();
    fs::write(folder.join(path).join("zarr.json"), document.to_string()).unwrap();
}

fn write_chunk(folder: &Path, key: &str, element: &str) {
    fs::write(folder.join(key), Vlen::Utf8.encode(&[element]).unwrap()).unwrap();
}

fn small_store() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a", 3, &json!(["vlen-utf8"]));
    write_chunk(folder.path(), "a/c/1", "first");
    folder
}

#[test]
fn changes_are_seen_and_handles_are_snapshots() {
    let store = small_store();
    let Some(mount) = Mount::new(store.path(), &["--revalidate", "0.1"], "changes of a text form") else {
        return;
    };
    let file = text_file(&mount, "a");
    let mut before = fs::File::open(&file).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "\"-\"\n\"first\"\n\"-\"\n");
    for element in ["second", "a third, which is longer", ""] {
        write_chunk(store.path(), "a/c/1", element);
        // At once, whatever the kernel believes of the size.
        let expected = format!("\"-\"\n\"{element}\"\n\"-\"\n");
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
        assert_eq!(fs::metadata(&file).unwrap().len(), expected.len() as u64);
    }
    fs::remove_file(store.path().join("a/c/1")).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(fs::metadata(&file).unwrap().len(), 12);
    write(store.path(), "a", 1, &json!(["vlen-utf8"]));
    assert_eq!(fs::read_to_string(&file).unwrap(), "\"-\"\n");
    let mut text = String::new();
    before.read_to_string(&mut text).unwrap();
    assert_eq!(text, "\"-\"\n\"first\"\n\"-\"\n");
    drop(before);
    mount.unmount();
}

#[test]
fn what_cannot_be_made_is_shown_empty_and_says_why() {
    let store = small_store();
    let folder = store.path();
    write(folder, "damaged", 2, &json!(["vlen-utf8"]));
    fs::write(folder.join("damaged/c/1"), [1, 0, 0, 0, 9, 0, 0, 0, b'x']).unwrap();
    write(folder, "unknown", 2, &json!(["vlen-utf8", "nonesuch"]));
    write(folder, "vast", 1 << 60, &json!(["vlen-utf8"]));
    write(folder, "large", 1, &json!(["vlen-utf8"]));
    write_chunk(folder, "large/c/0", &"x".repeat(20 << 20));
    let Some(mount) = Mount::new(folder, &["--cache-size", "16M"], "text forms that cannot be made") else {
        return;
    };
    for (path, expected, text) in [
        ("damaged", libc::EIO, "damaged/c/1: cannot be decoded: codec \"vlen-utf8\""),
        ("unknown", libc::EOPNOTSUPP, "unknown/zarr.json: not supported: codecs[1]: codec \"nonesuch\""),
        ("vast", libc::EFBIG, "vast/zarr.json: too large: its text form is longer than the cache size"),
        ("large", libc::EFBIG, "large/c/0: too large: elements of variable length are held in memory"),
    ] {
        let file = text_file(&mount, path);
        assert_eq!(fs::metadata(&file).unwrap().len(), 0);
        assert_eq!(errno(fs::File::open(&file)), expected, "{path}");
        assert!(
            mount.log().contains(&format!("opening the jsonl form of /{path}: {text}")),
            "{}",
            mount.log()
        );
    }
    let said = sidecar(&mount, "unknown");
    assert!(
        said["error"].as_str().unwrap().contains("\"nonesuch\"") && said.get("text_form").is_none(),
        "{said}"
    );
    assert_eq!(fs::read_to_string(text_file(&mount, "a")).unwrap().lines().count(), 3);
    assert!(mount.memory_kb("VmHWM") < 16 * 1024 + 96 * 1024, "{} kB", mount.memory_kb("VmHWM"));
    mount.unmount();
}
