//! Stores that others wrote (`ZARRFS_CORPUS`, with its expected.json): every array byte-identical, through the library
//! and through one mount of the whole folder. The corpus is not part of the project.

use crate::support::corpus::{expected, read_through};
use crate::support::fixtures::corpus;
use crate::support::library::{LAYOUTS, assert_none, open, read_all, tree};
use crate::support::mounted::Mount;
use crate::support::{say, sha256};
use zarrfs::array::Engine;

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
    read_through(&mount, &corpus, "one mount");
    mount.unmount();
}
