//! Companion files, sidecars and views of recorded stores (`tests/recorded/stores.zip`) have the bytes that they had when libraries
//! last read them. So a changed header shows without these libraries.
//!
//! `tests/recorded/files.json` has a digest for each folder of a mount, and one for each node over all folders: a difference
//! names both. `ZARRFS_RECORD=1 cargo test --test formats recorded::` writes it anew, after `libraries_read_them` has passed
//! (`scripts/test --all`). `scripts/make_recorded.py` makes the stores.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use zarrfs::formats::FORMATS;

use crate::companions;
use crate::support::fixtures::recorded_folder;
use crate::support::mounted::Mount;
use crate::support::{level, say, sha256};

/// How the store is served: a name, and the options of the mount.
const LAYOUTS: [(&str, &[&str]); 2] =
    [("C little", &[]), ("F big", &["--order", "F", "--byte-order", "big"])];
/// The parts of the store in which companions are compared, and those in which views are.
const WITH_COMPANIONS: [&str; 3] = ["climate", "companions", "views"];
const WITH_VIEWS: [&str; 1] = ["views"];
const VIEWS: [&str; 8] = [
    "__views__/big-endian",
    "__views__/c-order",
    "__views__/f-order",
    "__views__/unpacked",
    "__views__/planes",
    "__views__/planes@1",
    "__formats__/npy/__views__/f-order",
    "__formats__/tiff/__views__/planes",
];

/// Returns all files below a folder of the mount, in order, without those that say where the store is.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("__group__.json") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns what a file belongs to: its path without suffixes.
fn node(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    format!("{folder}/{}", name.split('.').next().unwrap_or(name))
}

/// Returns the digest of each folder, and of each node over all folders.
fn digests(mount: &Mount) -> BTreeMap<String, String> {
    let formats = FORMATS.iter().map(|format| format!("__formats__/{}", format.name));
    let companions = formats.map(|folder| (folder, &WITH_COMPANIONS[..]));
    let views = VIEWS.map(|folder| (folder.to_owned(), &WITH_VIEWS[..]));
    let mut texts = BTreeMap::<String, String>::new();
    for (folder, parts) in companions.chain(views) {
        for file in parts.iter().flat_map(|part| files(&mount.path(&folder).join(part))) {
            let name = file.strip_prefix(mount.path(&folder)).unwrap().to_str().unwrap();
            let digest =
                sha256(&fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
            let line = format!("{folder} {name} {digest}\n");
            *texts.entry(format!("folder {folder}")).or_default() += &line;
            *texts.entry(format!("node {}", node(name))).or_default() += &line;
        }
    }
    // A short digest is enough to distinguish the texts.
    texts.into_iter().map(|(name, text)| (name, sha256(text.as_bytes())[..16].to_owned())).collect()
}

#[test]
fn files_are_as_recorded() {
    let recorded = recorded_folder().join("files.json");
    let is_recording = std::env::var_os("ZARRFS_RECORD").is_some();
    let expected: Value = match fs::read(&recorded) {
        Ok(text) => serde_json::from_slice(&text).unwrap(),
        Err(_) if is_recording => json!({}),
        Err(error) => panic!("{}: {error}", recorded.display()),
    };
    let (mut found, mut differences) = (serde_json::Map::new(), Vec::new());
    // The quick level compares one layout. The commit decides which.
    let layouts = if level::is_full() || is_recording {
        &LAYOUTS[..]
    } else if level::is_in_sample("the first layout", 2) {
        &LAYOUTS[..1]
    } else {
        &LAYOUTS[1..]
    };
    for &(layout, options) in layouts {
        let Some(mount) = Mount::new(&recorded_folder().join("stores.zip"), options, "recorded files") else {
            return;
        };
        let digests = digests(&mount);
        mount.unmount();
        let known = expected[layout].as_object().cloned().unwrap_or_default();
        let names = known.keys().chain(digests.keys().filter(|name| !known.contains_key(*name)));
        let differing = names.filter(|name| {
            known.get(*name).and_then(Value::as_str) != digests.get(*name).map(String::as_str)
        });
        differences.extend(differing.map(|name| format!("{layout}: {name}")));
        say(format!("recorded files, {layout}: {} folders and nodes", digests.len()));
        found.insert(layout.to_owned(), json!(digests));
    }
    if is_recording {
        fs::write(recorded, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
        return;
    }
    assert!(
        differences.is_empty(),
        "other bytes than recorded in:\n{}\n(if that is meant, see the head of {})",
        differences.join("\n"),
        file!()
    );
}

/// What is recorded is what libraries read: the same files, opened by them.
#[test]
#[ignore = "full: needs the libraries of companion files"]
fn libraries_read_them() {
    let Some(python) = companions::python_with_libraries("recorded files") else { return };
    let folder = tempfile::tempdir().unwrap();
    let stores = recorded_folder().join("stores.zip");
    let unpack = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])";
    let output = Command::new(&python).args(["-c", unpack]).arg(stores).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let views = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/views.py");
    for (layout, options) in LAYOUTS {
        let (order, byte_order) = layout.split_once(' ').unwrap();
        for part in WITH_COMPANIONS {
            let store = folder.path().join(part);
            let Some(mount) = Mount::new(&store, options, "recorded files") else { return };
            let (store, point) = (store.to_str().unwrap(), mount.point().to_str().unwrap());
            // An array of `views` has the name of another one's sidecar, which only the program of views knows; it opens companions, too.
            if !WITH_VIEWS.contains(&part) {
                let report = companions::run(&python, &["check", store, point, order]);
                for (format, found) in report.as_object().unwrap() {
                    assert_eq!(found["wrong"], json!([]), "{part}, {layout}: {format}");
                }
            } else {
                let output = Command::new(&python)
                    .args([views, "check", store, point, order, byte_order])
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with(" 0 wrong"));
            }
            mount.unmount();
        }
    }
}
