//! The corpus (`ZARRFS_CORPUS`, with its expected.json) through a mount: every array byte-identical, or refused with a reason.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::library::assert_none;
use super::mounted::Mount;
use super::{say, sha256};

/// Arrays that had no flat form when the corpus was made: optional elements have their values, and a mask
/// (`tests/formats/registry.rs`).
pub const SHOWN_SINCE: [&str; 1] = ["zarrs/v3/array_optional.zarr/array"];

/// Returns the digest of each array, `None` for those that have no flat form.
pub fn expected(corpus: &Path) -> BTreeMap<String, Option<String>> {
    let document: Value = serde_json::from_slice(&fs::read(corpus.join("expected.json")).unwrap()).unwrap();
    let arrays = document.as_object().unwrap();
    let arrays = arrays.iter().filter(|(path, _)| !SHOWN_SINCE.contains(&path.as_str()));
    arrays.map(|(path, entry)| (path.clone(), entry["sha256"].as_str().map(str::to_owned))).collect()
}

/// Reads every array through the mount.
pub fn read_through(mount: &Mount, corpus: &Path, what: &str) {
    let (mut same, mut refused, mut failures) = (0, 0, Vec::new());
    let mut names = BTreeMap::new();
    for (path, digest) in expected(corpus) {
        let complaint = match &digest {
            Some(digest) => served(mount, &path, digest),
            None => refusal(mount, &path),
        };
        let complaint = complaint.or_else(|| listed(mount, &path, &mut names));
        match (complaint, digest) {
            (Some(what), _) => failures.push(format!("{path}: {what}")),
            (None, None) => refused += 1,
            (None, Some(_)) => same += 1,
        }
    }
    say(format!(
        "corpus, {what}: {same} arrays byte-identical, {refused} EOPNOTSUPP with a reason, {} wrong",
        failures.len()
    ));
    assert_none(&failures, "the mounted corpus");
    assert!(same > 0, "the corpus is empty");
}

fn served(mount: &Mount, path: &str, digest: &str) -> Option<String> {
    let bytes = match fs::read(mount.path(path)) {
        Ok(bytes) => bytes,
        Err(error) => return Some(error.to_string()),
    };
    let described = sidecar(mount, path)["nbytes"].as_u64();
    if sha256(&bytes) != digest {
        Some(format!("other bytes ({} of them)", bytes.len()))
    } else if described != Some(bytes.len() as u64) {
        Some(format!("the sidecar says {described:?} bytes of {}", bytes.len()))
    } else {
        None
    }
}

/// Checks that an array without a flat form is listed and cannot be opened, and that its sidecar says why: by the document's key, and its `dtype` or
/// `data_type`.
fn refusal(mount: &Mount, path: &str) -> Option<String> {
    let error = match fs::File::open(mount.path(path)) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
        other => Some(format!("open gave {other:?}")),
    };
    let said = sidecar(mount, path)["error"].as_str().map(str::to_owned);
    match said {
        Some(reason) if reason.contains(path) && reason.contains("type") => error,
        other => Some(format!("the sidecar's error is {other:?}")),
    }
}

/// Returns whether its folder lists it. Each folder is listed once.
fn listed(mount: &Mount, path: &str, names: &mut BTreeMap<String, Vec<OsString>>) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if !names.contains_key(folder) {
        let entries = match fs::read_dir(mount.path(folder)) {
            Ok(entries) => entries,
            Err(error) => return Some(format!("{folder}: {error}")),
        };
        names.insert(folder.to_owned(), entries.flatten().map(|entry| entry.file_name()).collect());
    }
    let is_here = names[folder].iter().any(|listed| listed == name);
    if is_here { None } else { Some("not listed".to_owned()) }
}

fn sidecar(mount: &Mount, path: &str) -> Value {
    let text = fs::read(mount.path(&format!("{path}.json"))).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}
