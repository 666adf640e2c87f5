//! `zarrfs cat` with an index and with a format, against NumPy's indexing of what zarr-python wrote.

use std::process::Command;

use crate::support::fixtures::python;
use crate::support::{level, say};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/slices.py");

fn run(what: &str, check: &str, arguments: &[&str]) {
    let Some(python) = python(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.zarr");
    let mut command = Command::new(python);
    command.args([PROGRAM, check, env!("CARGO_BIN_EXE_zarrfs")]).arg(&store).args(arguments);
    let output = command.env_remove("RUST_LOG").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    say(format!("{what}: {}", String::from_utf8_lossy(&output.stdout).trim_end()));
}

#[test]
fn any_index_of_any_array_gives_what_numpy_gives() {
    run("slices", "slices", &[level::pick("80", "400"), "26"]);
}

#[test]
#[ignore = "full: needs h5py, pynrrd and tifffile"]
fn each_format_is_what_a_mount_shows() {
    run("companions without a mount", "companions", &[]);
}
