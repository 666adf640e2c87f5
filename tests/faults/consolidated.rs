//! Consolidated metadata that cannot follow a new node or a new name: the change is taken back, so that readers of the copies see what
//! all others see.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::authoring::{copy, npy_file, state, store, zarrfs};
use crate::support::faulty::{Faults, Operation, next_point};
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::{level, say};

/// Commands in a group: its own copy, and that of the root, must follow.
const COMMANDS: [&[&str]; 5] = [
    &["create", "@", "g/new", "--shape", "9,9", "--chunks", "4,4", "--dtype", "int16", "--attr", "n=1"],
    &["mkgroup", "@", "g/new"],
    &["import", "FILE", "@", "g/new", "--chunks", "7"],
    &["mv", "@", "g/b", "moved"],
    &["rm", "@", "g/b", "--yes"],
];
const OPERATIONS: [Operation; 5] =
    [Operation::Create, Operation::Write, Operation::Fdatasync, Operation::Rename, Operation::Fsync];

/// Gives the group `g` a copy of its own.
fn consolidate_group(store: &Path) {
    let read = |path: &str| -> Value { json_of(store.join(path)) };
    if store.join("g/zarr.json").exists() {
        let mut group = read("g/zarr.json");
        group["consolidated_metadata"] = json!({
            "kind": "inline", "must_understand": false, "metadata": {"b": read("g/b/zarr.json")}
        });
        fs::write(store.join("g/zarr.json"), group.to_string()).unwrap();
    } else {
        let names = [".zgroup", ".zattrs", "b/.zarray", "b/.zattrs"].into_iter();
        let names = names.filter(|name| store.join("g").join(name).exists());
        let metadata: serde_json::Map<_, _> =
            names.map(|name| (name.to_owned(), read(&format!("g/{name}")))).collect();
        let copy = json!({"zarr_consolidated_format": 1, "metadata": metadata});
        fs::write(store.join("g/.zmetadata"), copy.to_string()).unwrap();
    }
}

/// Collects every document below a group that has a copy, by its key there.
fn documents(folder: &Path, prefix: &str, is_v3: bool, found: &mut Vec<(String, Value)>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with(".zarrfs-") {
            continue;
        }
        if path.is_dir() {
            documents(&path, &format!("{prefix}{name}/"), is_v3, found);
            continue;
        }
        let key = match name.as_str() {
            "zarr.json" if is_v3 && prefix.is_empty() => continue,
            "zarr.json" if is_v3 => prefix.trim_end_matches('/').to_owned(),
            ".zarray" | ".zgroup" | ".zattrs" => format!("{prefix}{name}"),
            _ => continue,
        };
        let mut document: Value = json_of(&path);
        document.as_object_mut().unwrap().remove("consolidated_metadata");
        found.push((key, document));
    }
}

/// Checks that the copy of every group has exactly what is below it.
pub fn check(store: &Path, groups: &[&str], what: &str) {
    for group in groups.iter().map(|group| store.join(group)).filter(|group| group.exists()) {
        let (name, place) = if group.join(".zmetadata").exists() {
            (".zmetadata", "/metadata")
        } else {
            ("zarr.json", "/consolidated_metadata/metadata")
        };
        let text: Value = json_of(group.join(name));
        let Some(copies) = text.pointer(place).and_then(Value::as_object) else {
            panic!("{what}: {} has no copy", group.display());
        };
        let mut found = Vec::new();
        documents(&group, "", name == "zarr.json", &mut found);
        let keys: Vec<&String> = found.iter().map(|(key, _)| key).collect();
        let shown = group.display();
        for (key, document) in &found {
            assert_eq!(copies.get(key), Some(document), "{what}: {key} in the copy of {shown}");
        }
        for key in copies.keys() {
            assert!(keys.contains(&key), "{what}: the copy of {shown} has {key}, which is not there");
        }
    }
}

/// Runs a command with operations of a kind failing from the Nth on (`is_full`), or only the Nth, until none fails; returns how often
/// it did.
fn run_until_clean(
    command: &[&str],
    template: &Path,
    operation: Operation,
    is_full: bool,
    file: &Path,
) -> u32 {
    let old = state(template);
    let groups: &[&str] = if is_full { &[""] } else { &["", "g"] };
    let (mut number, mut failed) = (1, 0);
    loop {
        let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
        let path = folder.path();
        copy(template, path);
        if !is_full {
            consolidate_group(path);
        }
        let what = format!("{command:?}, {operation:?} {number}");
        let Some(faults) = Faults::new(path, "consolidated") else { return 0 };
        faults.arm(operation, libc::ENOSPC, number, if is_full { u32::MAX } else { number });
        let output = zarrfs(path, file, command, Some(&faults));
        let said = String::from_utf8_lossy(&output.stderr);
        let is_changed = state(path) != old;
        // A removal that is not durable yet is a failure, too.
        let may_fail_late = command[0] == "rm" && is_changed;
        assert!(output.status.success() == is_changed || may_fail_late, "{what}: {said}");
        check(path, groups, &format!("{what}: {said}"));
        if faults.fired() == 0 {
            assert!(is_changed, "{what}: {said}");
            return failed;
        }
        let again = zarrfs(path, file, command, None);
        assert_eq!(again.status.success(), !is_changed, "{what}: {}", String::from_utf8_lossy(&again.stderr));
        check(path, groups, &what);
        failed += 1;
        number = next_point(number, number + 1);
    }
}

/// A program died after it had stored the document of an array, or attributes of it. The first open for writing finds that.
#[test]
fn a_copy_that_is_behind_follows_its_document() {
    for (template, document) in [3, 2].map(store).iter().zip(["a/zarr.json", "a/.zarray"]) {
        let path = template.path();
        let mut longer: Value = json_of(path.join(document));
        longer["shape"] = json!([12, 10]);
        fs::write(path.join(document), longer.to_string()).unwrap();
        let Some(mount) = Mount::new(path, &["--writable"], "consolidated") else { return };
        let file = fs::File::options().write(true).open(mount.path("a")).unwrap();
        check(path, &[""], document);
        drop(file);
        mount.unmount();
    }
}

#[test]
fn what_consolidated_readers_do_not_see_is_taken_back() {
    let file = npy_file();
    let mut failures = 0;
    for zarr_format in [3, 2] {
        let template = store(zarr_format);
        for command in COMMANDS {
            for operation in OPERATIONS {
                if level::is_in_sample(&format!("{zarr_format} {command:?} {operation:?}"), 2) {
                    failures += run_until_clean(command, template.path(), operation, false, file.path());
                }
            }
        }
        // The disk stays full.
        for command in &COMMANDS[..3] {
            for operation in &OPERATIONS[..3] {
                failures += run_until_clean(command, template.path(), *operation, true, file.path());
            }
        }
    }
    say(format!("consolidated: {failures} failures, and the copies always had what there was"));
    assert!(failures > level::pick(5, 100), "{failures}");
}
