//! Nodes made, removed and renamed through a mount while the daemon is killed at every Nth operation on the store, or the disk is full:
//! there is the old node or the new one, and what is left of an unfinished one goes with the next writable mount. And a power cut after
//! such changes and growth, on ext4 and on xfs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use zarrfs::array::{Array, Engine, Layout};
use zarrfs::hierarchy::{Node, Tree};

use crate::consolidated::check;
use crate::support::disk::Disk;
use crate::support::faulty::{CHANGES, Faults, KILL, Operation, next_point};
use crate::support::leftovers;
use crate::support::library;
use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::place::wait_for;
use crate::support::{level, say};

const OPTIONS: &[&str] = &["-o", "create,delete,revalidate=0"];

/// A change of names.
type Change = (&'static str, fn(&Path) -> std::io::Result<()>);

const CHANGES_OF_NAMES: [Change; 7] = [
    ("mkdir", |mount| fs::create_dir(mount.join("new"))),
    ("declare", |mount| save(mount, "new.json", br#"{"shape":[9],"descr":"|u1","chunks":[4]}"#)),
    ("import", |mount| save(mount, "new.npy", &npy())),
    ("unlink", |mount| fs::remove_file(mount.join("a"))),
    ("rmdir", |mount| fs::remove_dir(mount.join("e"))),
    ("rename an array", |mount| fs::rename(mount.join("a.json"), mount.join("g/b.json"))),
    ("rename a group", |mount| fs::rename(mount.join("g"), mount.join("e/g"))),
];

fn npy() -> Vec<u8> {
    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }");
    [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &[3; 9]].concat()
}

/// Copies bytes into a new file with a program that reports what close(2) returns.
fn save(mount: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let source = tempfile::NamedTempFile::new()?;
    fs::write(source.path(), bytes)?;
    let output = Command::new("cp").arg(source.path()).arg(mount.join(name)).output()?;
    if output.status.success() { Ok(()) } else { Err(std::io::Error::other("cp fails")) }
}

fn make(store: &Path) {
    let group = r#"{"zarr_format":3,"node_type":"group"}"#;
    let array = r#"{"zarr_format":3,"node_type":"array","shape":[8],"data_type":"uint8","fill_value":7,
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},
        "chunk_key_encoding":{"name":"default"},"codecs":[{"name":"bytes"}]}"#;
    for (path, document) in [("", group), ("g", group), ("e", group), ("a", array), ("g/c", array)] {
        fs::create_dir_all(store.join(path)).unwrap();
        fs::write(store.join(path).join("zarr.json"), document).unwrap();
    }
    for path in ["a", "g/c"] {
        fs::create_dir(store.join(path).join("c")).unwrap();
        fs::write(store.join(path).join("c/1"), [1, 2, 3, 4]).unwrap();
    }
    let copy = format!(r#"{{"g":{group},"e":{group},"a":{array},"g/c":{array}}}"#);
    let root = format!(
        r#"{{"zarr_format":3,"node_type":"group","consolidated_metadata":{{"kind":"inline","must_understand":false,"metadata":{copy}}}}}"#
    );
    fs::write(store.join("zarr.json"), root).unwrap();
}

/// Returns every node, and the elements of arrays.
fn state(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let opened = zarrfs::store::open(store.to_str().unwrap(), false).unwrap();
    let engine = Engine::new(1 << 20, 1);
    let elements = |node: Node, path: &str| match node {
        Node::Array { metadata, .. } => {
            let array =
                Array::open(&engine, &opened, path, Arc::clone(&metadata), Layout::default()).unwrap();
            let mut bytes = vec![0; array.size_bytes() as usize];
            array.read_at(0, &mut bytes).unwrap();
            bytes
        }
        Node::Group { .. } => Vec::new(),
        Node::Broken { error, .. } => panic!("{path}: {error}"),
    };
    let tree = Tree::new(opened.clone());
    tree.walk("", usize::MAX)
        .map(|visit| (visit.path.clone(), elements(visit.node.unwrap(), &visit.path)))
        .collect()
}

/// Makes the change with the Nth operation of a kind failing, until there is none; returns how often it did.
fn run_until_clean((name, change): Change, operation: Operation, errno: i32) -> u32 {
    let (mut number, mut failed) = (1, 0);
    loop {
        let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
        let store = folder.path();
        make(store);
        let old = state(store);
        let what = format!("{name}, {operation:?} {number} with {errno}");
        let Some(faults) = Faults::new(store, "names") else { return 0 };
        let environment = faults.environment();
        let Some(mut mount) = Mount::with_environment(store, OPTIONS, &environment, "names") else {
            return 0;
        };
        faults.arm(operation, errno, number, number);
        let changed = change(mount.point());
        let has_fired = faults.fired() > 0;
        faults.clear();
        let found = state(store);
        if !has_fired {
            changed.unwrap_or_else(|error| panic!("{what}: {error}: {}", mount.log()));
            assert_ne!(found, old, "{what}");
            mount.unmount();
            return failed;
        }
        if errno != KILL {
            check(store, &[""], &what);
        }
        if errno == KILL {
            assert!(!mount.end().success());
            mount.kill();
            let Some(next) = Mount::new(store, OPTIONS, "names") else { return 0 };
            mount = next;
        }
        // Once more without faults: what was old becomes new, and what is new stays.
        let again = change(mount.point());
        let new = state(store);
        assert!(found == old || found == new, "{what}: half of it is there:\n{old:?}\n{found:?}\n{new:?}");
        assert!(found == new || again.is_ok(), "{what}: {again:?}: {}", mount.log());
        assert!(changed.is_err() || found == new, "{what}: it was acknowledged");
        if errno != KILL && !leftovers(store).is_empty() {
            // What this daemon could not remove, the next one does.
            mount.unmount();
            let Some(next) = Mount::new(store, OPTIONS, "names") else { return 0 };
            mount = next;
        }
        for group in ["", "e", "g"] {
            let _ = fs::read_dir(mount.path(group)).map(Iterator::count);
        }
        for group in
            ["", "e", "g", "e/g"].map(|group| store.join(group)).into_iter().filter(|group| group.exists())
        {
            wait_for(|| leftovers(&group).is_empty());
        }
        mount.unmount();
        failed += 1;
        number = next_point(number, number + 1);
    }
}

#[test]
fn killed_at_every_operation_there_is_the_old_name_or_the_new_one() {
    let counts = library::in_parallel(&CHANGES_OF_NAMES, |change| {
        let (mut kills, mut failures) = (0, 0);
        for operation in CHANGES {
            for (errno, count) in [(KILL, &mut kills), (libc::ENOSPC, &mut failures)] {
                if level::is_in_sample(&format!("{} {operation:?} {errno}", change.0), 3) {
                    *count += run_until_clean(*change, operation, errno);
                }
            }
        }
        (kills, failures)
    });
    let kills: u32 = counts.iter().map(|(kills, _)| kills).sum();
    let failures: u32 = counts.iter().map(|(_, failures)| failures).sum();
    say(format!("names: {kills} kills and {failures} failures, no node was half made or half gone"));
}

/// Cuts the power after names were made, removed and moved, and fsync(2) acknowledged rows.
fn lose_power_on(kind: &str) {
    let Some(disk) = Disk::in_file(kind, "names and a power cut") else { return };
    let store = disk.path().join("store.zarr");
    make(&store);
    disk.sync();
    let Some(mount) = Mount::new(&store, OPTIONS, "names and a power cut") else { return };
    let change =
        |name: &str| CHANGES_OF_NAMES.iter().find(|(other, _)| *other == name).unwrap().1(mount.point());
    let append = |name: &str, bytes: &[u8]| {
        let mut file = fs::File::options().append(true).open(mount.path(name)).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
    };
    change("rename a group").unwrap();
    append("e/g/c", &[5; 6]);
    append("a", &[6; 3]);
    fs::rename(mount.path("a.json"), mount.path("e/b.json")).unwrap();
    append("e/b", &[8]);
    change("mkdir").unwrap();
    save(mount.point(), "new/t.json", br#"{"shape":[9],"descr":"|u1","chunks":[4],"fill_value":1}"#).unwrap();
    append("new/t", &[2; 9]);
    for name in ["copied", "gone"] {
        save(mount.point(), &format!("{name}.json"), br#"{"shape":[9],"descr":"|u1","chunks":[4]}"#).unwrap();
    }
    append("gone", &[3]);
    fs::remove_file(mount.path("gone")).unwrap();
    let acknowledged = state(&store);
    // No fsync(2): all of it or nothing.
    fs::remove_file(mount.path("copied")).unwrap();
    save(mount.point(), "copied.npy", &npy()).unwrap();
    disk.cut_power();
    mount.kill();
    disk.start_again();
    let mut found = state(&store);
    let grown = [7, 7, 7, 7, 1, 2, 3, 4];
    assert_eq!(found["e/g/c"], [&grown[..], &[5; 6]].concat(), "{kind}");
    assert_eq!(found["e/b"], [&grown[..], &[6; 3], &[8]].concat(), "{kind}");
    assert_eq!(found["new/t"], [[1; 9], [2; 9]].concat(), "{kind}");
    assert!(["a", "g", "gone"].iter().all(|name| !found.contains_key(*name)), "{kind}: {found:?}");
    let imported = found.insert("copied".to_owned(), acknowledged["copied"].clone());
    assert!(imported.is_none_or(|elements| elements == [0; 9] || elements == [3; 9]), "{kind}");
    assert_eq!(found, acknowledged, "{kind}");
}

#[test]
fn names_and_growth_survive_a_power_cut() {
    if own_process::has_run() {
        return;
    }
    for kind in ["ext4", "xfs"] {
        lose_power_on(kind);
    }
}

/// The bug: an array that could not be renamed or removed took no writes from then on.
#[test]
fn files_are_written_on_after_a_change_that_fails() {
    if own_process::has_run() {
        return;
    }
    for (name, change) in
        CHANGES_OF_NAMES.into_iter().filter(|(name, _)| ["unlink", "rename an array"].contains(name))
    {
        let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
        make(folder.path());
        let Some(faults) = Faults::new(folder.path(), "names") else { return };
        let Some(mount) = Mount::with_environment(folder.path(), OPTIONS, &faults.environment(), "names")
        else {
            return;
        };
        let file = File::options().write(true).open(mount.path("a")).unwrap();
        file.write_all_at(&[9; 4], 0).unwrap();
        faults.arm(Operation::Rename, libc::ENOSPC, 1, u32::MAX);
        assert!(change(mount.point()).is_err(), "{name}");
        faults.clear();
        file.write_all_at(&[8; 4], 4).unwrap_or_else(|error| panic!("{name}: {error}: {}", mount.log()));
        // The first one may report the failure.
        let _ = file.sync_all();
        file.sync_all().unwrap();
        drop(file);
        assert_eq!(state(folder.path())["a"], [9, 9, 9, 9, 8, 8, 8, 8], "{name}");
        mount.unmount();
    }
}
