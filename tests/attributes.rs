//! Attributes edited through the sidecars of a writable mount and by `zarrfs attrs`, read again by zarr-python; extended
//! attributes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::fixtures::python;
use support::mounted::Mount;

fn run(python: &Path, arguments: &[&Path], what: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/attributes.py");
    let output = Command::new(python).arg(script).arg(what).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}");
    support::say(text.trim());
}

#[test]
fn through_sidecars() {
    let Some(python) = python("attributes") else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &[folder.path()], "make");
    let Some(mount) = Mount::new(folder.path(), &["--writable"], "attributes") else { return };
    run(&python, &[folder.path(), mount.point()], "edit");
    assert!(mount.log().contains("\"shape\" is not what it was"), "{}", mount.log());
    mount.unmount();
    run(&python, &[folder.path()], "check");
}

fn attrs(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_zarrfs")).arg("attrs").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn by_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("a.zarr");
    fs::create_dir(&store).unwrap();
    let document = r#"{"zarr_format":3,"node_type":"group","attributes":{"a": 1E5, "b": NaN}}"#;
    fs::write(store.join("zarr.json"), document).unwrap();
    let store = store.to_str().unwrap();
    let printed = |text: &str| (0, format!("{text}\n"), String::new());
    assert_eq!(attrs(&[store, "/"]), printed(r#"{"a": 1E5, "b": NaN}"#));
    assert_eq!(attrs(&[store, "/", "c=[1, \"x\"]", "b=", "a=2=", "none="]).0, 2);
    let (code, _, error) = attrs(&[store, "/", "u=K"]);
    assert_eq!(code, 2);
    assert!(error.contains("'u'") && error.contains("u='\"K\"'"), "{error}");
    assert_eq!(attrs(&[store, "/", "u"]).2, "zarrfs: 'u' is not of the form KEY=JSON\n");
    assert_eq!(attrs(&[store, "/", "c=[1, \"x\"]", "b=", "none="]), (0, String::new(), String::new()));
    assert_eq!(attrs(&[store, ""]), printed(r#"{"a": 1E5, "c": [1, "x"]}"#));
    let written = fs::read_to_string(folder.path().join("a.zarr/zarr.json")).unwrap();
    assert_eq!(written, document.replace(r#", "b": NaN"#, r#", "c": [1, "x"]"#));
    let (code, _, error) = attrs(&[store, "nothing"]);
    assert!(code == 1 && error.contains("no array 'nothing'"), "{error}");
}
