//! Nodes that the commands make, resize, rename and remove, against zarr-python, tensorstore and NumPy.

use std::process::Command;

use crate::support::fixtures::python;
use crate::support::say;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/authoring.py");

fn run(check: &str) {
    let what = format!("authoring, {check}");
    let Some(python) = python(&what) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.args([PROGRAM, check, env!("CARGO_BIN_EXE_zarrfs")]).arg(folder.path());
    let output = command.env_remove("RUST_LOG").output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    say(format!("{what}: {}", String::from_utf8_lossy(&output.stdout).trim_end()));
}

#[test]
fn documents_are_zarr_pythons_over_a_matrix() {
    run("matrix");
}

#[test]
fn imported_files_are_read_by_others() {
    run("imports");
}

#[test]
fn any_sequence_of_resizes_equals_numpys() {
    run("resizes");
}

#[test]
fn consolidated_metadata_stays_in_step() {
    run("copies");
}

#[test]
fn what_cannot_be_is_one_sentence() {
    run("names");
}
