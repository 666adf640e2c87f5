//! Stores that others wrote (`ZARRFS_CORPUS`, with its expected.json): every array byte-identical, through the library
//! and through one mount of the whole folder. The corpus is no part of the project.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::fixtures::corpus;
use crate::support::library::{LAYOUTS, assert_none, open, read_all, tree};
use crate::support::mounted::Mount;
use crate::support::{say, sha256};
use serde_json::Value;
use zarrfs::array::Engine;

/// The digest of each array, `None` for those that have no flat form.
fn expected(corpus: &Path) -> BTreeMap<String, Option<String>> {
    let document: Value = serde_json::from_slice(&fs::read(corpus.join("expected.json")).unwrap()).unwrap();
    let arrays = document.as_object().unwrap();
    arrays.iter().map(|(path, entry)| (path.clone(), entry["sha256"].as_str().map(str::to_owned))).collect()
}

#[test]
fn through_the_library() {
    let Some(corpus) = corpus("corpus, library") else { return };
    let (tree, engine) = (tree(&corpus), Engine::new(64 << 20, 2));
    let (mut same, mut refused, mut failures) = (0, 0, Vec::new());
    for (path, digest) in expected(&corpus) {
        let read = open(&tree, &engine, &path, LAYOUTS[0].1).and_then(|array| read_all(&array));
        match (digest, read) {
            (Some(digest), Ok(bytes)) if sha256(&bytes) == digest => same += 1,
            (None, Err(error)) if error.errno() == libc::EOPNOTSUPP => refused += 1,
            (Some(_), Ok(bytes)) => failures.push(format!("{path}: other bytes ({} of them)", bytes.len())),
            (Some(_), Err(error)) => failures.push(format!("{path}: {error}")),
            (None, Ok(_)) => failures.push(format!("{path}: opened, though it has no flat form")),
            (None, Err(error)) => failures.push(format!("{path}: errno {}: {error}", error.errno())),
        }
    }
    say(format!(
        "corpus, library: {same} arrays byte-identical, {refused} without a flat form, {} wrong",
        failures.len()
    ));
    assert_none(&failures, "the corpus");
}

#[test]
fn through_one_mount() {
    let Some(corpus) = corpus("corpus, mount") else { return };
    let Some(mount) = Mount::new(&corpus, &[], "corpus, mount") else { return };
    let (mut same, mut refused, mut failures) = (0, 0, Vec::new());
    for (path, digest) in expected(&corpus) {
        let complaint = match &digest {
            Some(digest) => served(&mount, &path, digest),
            None => refusal(&mount, &path),
        };
        match (complaint, digest) {
            (Some(what), _) => failures.push(format!("{path}: {what}")),
            (None, None) => refused += 1,
            (None, Some(_)) => same += 1,
        }
    }
    say(format!(
        "corpus, one mount: {same} arrays byte-identical, {refused} EOPNOTSUPP with a reason, {} wrong",
        failures.len()
    ));
    assert_none(&failures, "the mounted corpus");
    mount.unmount();
}

fn served(mount: &Mount, path: &str, digest: &str) -> Option<String> {
    let listed = listed(mount, path);
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
        listed
    }
}

/// An array without a flat form stays listed, cannot be opened, and its sidecar says why: by the document's key, and its `dtype` or
/// `data_type`.
fn refusal(mount: &Mount, path: &str) -> Option<String> {
    let error = match fs::File::open(mount.path(path)) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
        other => Some(format!("open gave {other:?}")),
    };
    let said = sidecar(mount, path)["error"].as_str().map(str::to_owned);
    match said {
        Some(reason) if reason.contains(path) && reason.contains("type") => {
            error.or_else(|| listed(mount, path))
        }
        other => Some(format!("the sidecar's error is {other:?}")),
    }
}

fn listed(mount: &Mount, path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let names = match fs::read_dir(mount.path(folder)) {
        Ok(names) => names,
        Err(error) => return Some(format!("{folder}: {error}")),
    };
    let here = names.flatten().any(|entry| entry.file_name() == name);
    if here { None } else { Some("not listed".to_owned()) }
}

fn sidecar(mount: &Mount, path: &str) -> Value {
    let text = fs::read(mount.path(&format!("{path}.json"))).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}
