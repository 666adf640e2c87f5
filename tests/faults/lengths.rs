//! Commands that make several arrays longer together, killed at every Nth operation on the store, and on a full disk: readers see the old length
//! of all arrays or the new one, and so do the documents once the next command has looked at the group.

use std::fs;
use std::path::Path;

use super::authoring::{copy, state, zarrfs};
use crate::support::faulty::{CHANGES, Faults, KILL, Operation, next_point};
use crate::support::json_of;
use crate::support::{level, say};

/// A command. FILE has three more records.
const COMMANDS: [&[&str]; 3] = [
    &["import", "--append", "time", "FILE", "@", "g"],
    &["resize", "@", "g", "--dim", "time=+3"],
    &["resize", "@", "g", "--dim", "time=2", "--discard"],
];

/// Returns a classic netCDF file of four variables with `records` records of `value`.
fn netcdf(records: u32, value: u8) -> Vec<u8> {
    const NAMES: [&[u8; 4]; 4] = [b"aaaa", b"bbbb", b"cccc", b"time"];
    let number = |number: u32| number.to_be_bytes().to_vec();
    let mut header = [b"CDF\x01".to_vec(), number(records), number(10), number(2)].concat();
    for (name, length) in [(b"time", 0), (b"x\0\0\0", 3)] {
        let name_bytes = if name[1] == 0 { 1 } else { 4 };
        header.extend([number(name_bytes), name.to_vec(), number(length)].concat());
    }
    header.extend([number(0), number(0), number(11), number(4)].concat());
    // Of int32: `time` has one element for each record, the others three.
    let header_bytes = header.len() as u32 + NAMES.len() as u32 * 40 - 4;
    for (place, name) in NAMES.iter().enumerate() {
        let dimensions = if *name == b"time" { vec![0] } else { vec![0, 1] };
        header.extend([number(4), name.to_vec(), number(dimensions.len() as u32)].concat());
        dimensions.iter().for_each(|dimension| header.extend(number(*dimension)));
        let bytes = if *name == b"time" { 4 } else { 12 };
        header.extend(
            [number(0), number(0), number(4), number(bytes), number(header_bytes + place as u32 * 12)]
                .concat(),
        );
    }
    assert_eq!(header.len() as u32, header_bytes);
    for record in 0..records as u8 {
        header.extend((0..10).flat_map(|place| [0, 0, record + value, place]));
    }
    header
}

/// Returns the lengths along `time` in the documents of the arrays in the group.
fn lengths(store: &Path) -> Vec<u64> {
    let shape = |name: &str| {
        let text = fs::read(store.join("g").join(name).join("zarr.json")).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
        document["shape"][0].as_u64().unwrap()
    };
    ["aaaa", "bbbb", "cccc", "time"].map(shape).to_vec()
}

/// Returns the lengths along `time` in the consolidated metadata of the root.
fn consolidated_lengths(store: &Path) -> Vec<u64> {
    let root: serde_json::Value = json_of(store.join("zarr.json"));
    let copies = &root["consolidated_metadata"]["metadata"];
    ["aaaa", "bbbb", "cccc", "time"]
        .map(|name| copies[format!("g/{name}")]["shape"][0].as_u64().unwrap())
        .to_vec()
}

/// Runs a command with the Nth operation of a kind failing, until there is none; returns how often it did, and how often documents had different
/// lengths until the next command.
fn run_until_clean(
    command: &[&str],
    template: &Path,
    (operation, errno): (Operation, i32),
    file: &Path,
) -> (u32, u32) {
    let (old, complete) = (state(template), tempfile::Builder::new().suffix(".zarr").tempdir().unwrap());
    copy(template, complete.path());
    assert!(zarrfs(complete.path(), file, command, None).status.success());
    let new = state(complete.path());
    assert_ne!(old, new);
    let (mut number, mut failed, mut mixed) = (1, 0, 0);
    loop {
        let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
        let path = folder.path();
        copy(template, path);
        let what = format!("{command:?}, {operation:?} {number} with {errno}");
        let Some(faults) = Faults::new(path, "lengths") else { return (0, 0) };
        faults.arm(operation, errno, number, number);
        let output = zarrfs(path, file, command, Some(&faults));
        if faults.fired() == 0 {
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
            return (failed, mixed);
        }
        let found = lengths(path);
        mixed += u32::from(found.iter().any(|length| *length != found[0]));
        // What this program reads, and what programs read from consolidated metadata, is all old or all new at once.
        let seen = state(path);
        assert!(seen == old || seen == new, "{what}: readers see half of it:\n{old:#?}\n{seen:#?}\n{new:#?}");
        let copies = consolidated_lengths(path);
        assert!(copies.iter().all(|length| *length == copies[0]), "{what}: {copies:?}");
        let next = zarrfs(path, file, &["mkgroup", "@", "g/next"], None);
        assert!(next.status.success(), "{what}: {}", String::from_utf8_lossy(&next.stderr));
        assert!(zarrfs(path, file, &["rm", "@", "g/next", "--yes"], None).status.success(), "{what}");
        let found = state(path);
        // A command that makes arrays shorter may die before it clears what is outside.
        assert!(found == old || found == new, "{what}: half of it is there:\n{old:#?}\n{found:#?}\n{new:#?}");
        assert!(!path.join("g/.zarrfs-lengths.json").exists(), "{what}");
        if found == old {
            let again = zarrfs(path, file, command, None);
            assert!(
                again.status.success() && state(path) == new,
                "{what}: {}",
                String::from_utf8_lossy(&again.stderr)
            );
        }
        failed += 1;
        number = next_point(number, number + 1);
    }
}

#[test]
fn killed_at_every_operation_all_arrays_have_one_length() {
    let folder = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    let template = folder.path();
    let files = tempfile::tempdir().unwrap();
    let (first, more) = (files.path().join("first.nc"), files.path().join("more.nc"));
    fs::write(&first, netcdf(5, 1)).unwrap();
    fs::write(&more, netcdf(3, 100)).unwrap();
    let done = |arguments: &[&str], file: &Path| {
        let output = zarrfs(template, file, arguments, None);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    done(&["import", "--new", "FILE", "@", "g"], &first);
    done(&["consolidate", "@"], &first);
    assert_eq!(lengths(template), [5; 4]);
    let (mut failures, mut mixed) = (0, 0);
    for command in COMMANDS {
        for operation in CHANGES {
            for errno in [KILL, libc::ENOSPC] {
                let case = format!("lengths {command:?} {operation:?} {errno}");
                if level::is_in_sample(&case, 3) {
                    let found = run_until_clean(command, template, (operation, errno), &more);
                    (failures, mixed) = (failures + found.0, mixed + found.1);
                }
            }
        }
    }
    say(format!(
        "lengths: {failures} kills and failures, {mixed} with documents of two lengths until the next command"
    ));
    assert!(failures > level::pick(0, 100), "{failures}");
}
