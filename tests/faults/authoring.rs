//! Commands that make, resize, rename and remove nodes, killed at every Nth operation on the store, and on a full disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::Value;
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::store::Store;

use crate::support::faulty::{CHANGES, Faults, KILL, Operation, next_point};
use crate::support::json_of;
use crate::support::leftovers;
use crate::support::{level, say, sha256};

/// A command, and the one that must have succeeded afterwards.
const COMMANDS: [&[&str]; 9] = [
    &["create", "@", "new", "--shape", "9,9", "--chunks", "4,4", "--dtype", "int16", "--attr", "n=1"],
    &["mkgroup", "@", "new"],
    &["import", "FILE", "@", "new", "--chunks", "7", "--codecs", "gzip:1"],
    &["resize", "@", "a", "13,3", "--discard"],
    &["resize", "@", "a", "3,3", "--discard"],
    &["resize", "@", "a", "14,14"],
    &["rm", "@", "a", "--yes"],
    &["rm", "@", "g", "--yes"],
    &["mv", "@", "g", "moved"],
];

pub fn zarrfs(store: &Path, file: &Path, arguments: &[&str], faults: Option<&Faults>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    for argument in arguments {
        match *argument {
            "@" => command.arg(store),
            "FILE" => command.arg(file),
            other => command.arg(other),
        };
    }
    if let Some(faults) = faults {
        command.envs(faults.environment());
    }
    command.env_remove("RUST_LOG").output().unwrap()
}

/// Returns a store with an array full of ones and a group; the root has a consolidated copy of both.
pub fn store(zarr_format: u8) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    let store = folder.path();
    let ones = store.join("ones");
    let version = zarr_format.to_string();
    let done = |arguments: &[&str]| {
        let output = zarrfs(store, &ones, arguments, None);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    done(&["mkgroup", "@", "/", "--new", "--zarr-format", &version]);
    fs::write(&ones, [1; 200]).unwrap();
    let of_ones = ["--shape", "10,10", "--dtype", "int16", "--chunks", "4,4", "--fill-value", "5"];
    done(&[&["import", "FILE", "@", "a"][..], &of_ones].concat());
    done(&["mkgroup", "@", "g"]);
    done(&[&["import", "FILE", "@", "g/b"][..], &of_ones].concat());
    fs::remove_file(&ones).unwrap();
    consolidate(store, zarr_format);
    folder
}

/// Gives the root a copy of what is there.
fn consolidate(store: &Path, zarr_format: u8) {
    let read = |path: &str| -> Value { json_of(store.join(path)) };
    let nodes = ["a", "g", "g/b"];
    if zarr_format == 3 {
        let mut root = read("zarr.json");
        let copies: serde_json::Map<_, _> =
            nodes.iter().map(|path| ((*path).to_owned(), read(&format!("{path}/zarr.json")))).collect();
        root["consolidated_metadata"] =
            serde_json::json!({"kind": "inline", "must_understand": false, "metadata": copies});
        fs::write(store.join("zarr.json"), root.to_string()).unwrap();
        return;
    }
    let names = [
        ".zgroup",
        ".zattrs",
        "a/.zarray",
        "a/.zattrs",
        "g/.zgroup",
        "g/.zattrs",
        "g/b/.zarray",
        "g/b/.zattrs",
    ];
    let names = names.iter().filter(|name| store.join(name).exists());
    let copies: serde_json::Map<_, _> = names.map(|name| ((*name).to_owned(), read(name))).collect();
    let copy = serde_json::json!({"zarr_consolidated_format": 1, "metadata": copies});
    fs::write(store.join(".zmetadata"), copy.to_string()).unwrap();
}

pub fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (source, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if source.is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&source, &target);
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}

/// Returns every node with its shape and the digest of its elements.
pub fn state(store: &Path) -> Vec<String> {
    state_of(&zarrfs::store::open(store.to_str().unwrap(), false).unwrap())
}

/// Returns the same of a store that is open.
pub fn state_of(opened: &Arc<dyn Store>) -> Vec<String> {
    let engine = Engine::new(1 << 20, 1);
    let mut nodes = Vec::new();
    for visit in Tree::new(opened.clone()).walk("", usize::MAX) {
        nodes.push(match visit.node.unwrap() {
            Node::Array { metadata, .. } => {
                let shape = metadata.shape.clone();
                let array =
                    Array::open(&engine, opened, &visit.path, Arc::clone(&metadata), Layout::default())
                        .unwrap();
                let mut bytes = vec![0; array.size_bytes() as usize];
                array.read_at(0, &mut bytes).unwrap();
                format!("{} {shape:?} {}", visit.path, sha256(&bytes))
            }
            Node::Group { metadata, .. } => format!("{} {:?}", visit.path, metadata.zarr_format),
            Node::Broken { error, .. } => panic!("{}: {error}", visit.path),
        });
    }
    nodes
}

/// Checks that the consolidated copies name only nodes that exist.
fn check_copies(store: &Path, what: &str) {
    for (document, place) in [("zarr.json", "/consolidated_metadata/metadata"), (".zmetadata", "/metadata")] {
        let Ok(text) = fs::read(store.join(document)) else { continue };
        let root: Value = serde_json::from_slice(&text).unwrap();
        let Some(copies) = root.pointer(place).and_then(Value::as_object) else { continue };
        for name in copies.keys() {
            let path = store.join(name);
            assert!(path.exists(), "{what}: the copy in {document} has {name}, which is not there");
        }
    }
}

/// Runs a command with the Nth operation of a kind failing, until there is none; returns how often it did.
fn run_until_clean(
    command: &[&str],
    template: &Path,
    (operation, errno): (Operation, i32),
    file: &Path,
) -> u32 {
    let old = state(template);
    let (mut number, mut failed) = (1, 0);
    loop {
        let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
        let path = folder.path();
        copy(template, path);
        let what = format!("{command:?}, {operation:?} {number} with {errno}");
        let Some(faults) = Faults::new(path, "authoring") else { return 0 };
        faults.arm(operation, errno, number, number);
        let output = zarrfs(path, file, command, Some(&faults));
        if faults.fired() == 0 {
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
            return failed;
        }
        let found = state(path);
        check_copies(path, &what);
        if errno != KILL && found == old {
            assert!(!output.status.success(), "{what} succeeds and changes nothing");
            assert_eq!(leftovers(path), [""; 0], "{what}");
        }
        // Once more without faults: what was old becomes new, and what is new stays.
        let again = zarrfs(path, file, command, None);
        let new = state(path);
        assert!(new != old, "{what}: {}", String::from_utf8_lossy(&again.stderr));
        assert!(found == old || found == new, "{what}: half of it is there:\n{old:#?}\n{found:#?}\n{new:#?}");
        assert!(found == new || again.status.success(), "{what}: {}", String::from_utf8_lossy(&again.stderr));
        let swept = zarrfs(path, file, &["mkgroup", "@", "swept"], None);
        assert!(swept.status.success(), "{what}: {}", String::from_utf8_lossy(&swept.stderr));
        assert_eq!(leftovers(path), [""; 0], "{what}");
        check_copies(path, &what);
        failed += 1;
        number = next_point(number, number + 1);
    }
}

/// Returns an .npy file of threes.
pub fn npy_file() -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".npy").tempfile().unwrap();
    let header = format!("{:<117}\n", "{'descr': '<i2', 'fortran_order': False, 'shape': (30,), }");
    let npy = [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &[3; 60]].concat();
    fs::write(file.path(), npy).unwrap();
    file
}

#[test]
fn killed_at_every_operation_there_is_the_old_node_or_the_new_one() {
    let file = npy_file();
    let (mut kills, mut failures) = (0, 0);
    for (zarr_format, rare) in [(3, libc::ENOSPC), (2, KILL)] {
        let template = store(zarr_format);
        let template = template.path();
        for command in COMMANDS {
            for operation in CHANGES {
                let case = format!("{zarr_format} {command:?} {operation:?}");
                if !level::is_in_sample(&case, 3) {
                    continue;
                }
                // The quick level has one way to fail for each version.
                for errno in
                    [KILL, libc::ENOSPC].into_iter().filter(|errno| level::is_full() || *errno != rare)
                {
                    let failed = run_until_clean(command, template, (operation, errno), file.path());
                    if errno == KILL { kills += failed } else { failures += failed }
                }
            }
        }
    }
    say(format!("authoring: {kills} kills and {failures} failures, no node was half made or half gone"));
    assert!(kills.min(failures) > level::pick(0, 200), "{kills}, {failures}");
}
