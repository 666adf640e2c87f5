//! Stacks (`zarrfs stack`) against xarray and tensorstore (tests/programs/stacks.py): concatenations of 30 stores, every operation,
//! documents that lead to documents, and sentences about what does not agree.

use std::process::Command;

use crate::support::fixtures::{has_modules, python};
use crate::support::{level, say, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/stacks.py");

#[test]
fn stacks_are_what_xarray_and_tensorstore_make() {
    let what = "stacks";
    let Some(python) = python(what) else { return };
    if !has_modules(&python, "xarray tensorstore") {
        return skip(what, "the interpreter lacks xarray or tensorstore", level::is_full());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.args([PROGRAM, "check", env!("CARGO_BIN_EXE_zarrfs")]).arg(folder.path());
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap_or_default();
    say(format!("stacks: {last}"));
    assert!(last.ends_with(" 0 wrong"), "{text}");
}
