//! The Python module of `packaging/python`: its own tests, with this program on PATH.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::fixtures::python;
use crate::support::place::*;

#[test]
fn the_module_mounts_for_a_block() {
    let Some(python) = python("the Python module") else { return };
    if !can_mount() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/python");
    let mut path = OsString::from(Path::new(PROGRAM).parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = Command::new(python)
        .arg(folder.join("test_zarrfs.py"))
        .envs([
            ("PYTHONPATH", folder.into_os_string()),
            ("PATH", path),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
