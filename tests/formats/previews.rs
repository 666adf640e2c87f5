//! `zarrfs preview`: statistics that NumPy has too, and pictures that another library decodes.

use std::process::Command;

use crate::support::fixtures::python;
use crate::support::say;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/previews.py");

#[test]
#[ignore = "full: needs SimpleITK"]
fn statistics_and_pictures() {
    let what = "previews";
    let Some(python) = python(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.args([PROGRAM, env!("CARGO_BIN_EXE_zarrfs")]).arg(folder.path());
    let output = command.env_remove("RUST_LOG").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = String::from_utf8_lossy(&output.stdout).trim_end().replace('\n', ", ");
    say(format!("{what}: {found}"));
}
