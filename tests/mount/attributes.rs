//! Attributes edited through the sidecars of a writable mount and by `zarrfs attrs`, read again by zarr-python; extended
//! attributes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::fixtures::python;
use crate::support::mounted::Mount;
use crate::support::place::wait_for;
use crate::support::sorted_names;

fn run(python: &Path, arguments: &[&Path], what: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/attributes.py");
    let output = Command::new(python).arg(script).arg(what).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}");
    crate::support::say(text.trim());
}

#[test]
fn through_sidecars() {
    let Some(python) = python("attributes") else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &[folder.path()], "make");
    let Some(mount) = Mount::new(folder.path(), &["--writable"], "attributes") else { return };
    run(&python, &[folder.path(), mount.point()], "edit");
    assert!(mount.log().contains("\"shape\" was changed"), "{}", mount.log());
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
    assert!(code == 1 && error.contains("no array or group 'nothing'"), "{error}");
}

/// The bug: an edit that was killed left its temporary file in the group's folder, and only those of arrays were removed.
#[test]
fn what_a_killed_edit_left_goes_with_the_next_writable_mount() {
    let folder = tempfile::tempdir().unwrap();
    let group = r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#;
    for path in ["", "g", "g/deep", "other"] {
        fs::create_dir_all(folder.path().join(path)).unwrap();
        fs::write(folder.path().join(path).join("zarr.json"), group).unwrap();
        fs::write(folder.path().join(path).join(".zarrfs-99999999-1.tmp"), "{\"zarr").unwrap();
    }
    let of_the_living = fs::File::create(folder.path().join("g/.zarrfs-99999999-2.tmp")).unwrap();
    of_the_living.lock().unwrap();
    let left = |path: &str| {
        let entries = fs::read_dir(folder.path().join(path)).unwrap();
        entries
            .filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b".zarrfs-"))
            .count()
    };
    let names = |mount: &Mount, path: &str| sorted_names(mount.path(path));
    let Some(mount) = Mount::new(folder.path(), &[], "leftovers") else { return };
    assert_eq!(
        (names(&mount, ""), names(&mount, "g")),
        (
            vec!["__group__.json".into(), "g".into(), "other".into()],
            vec!["__group__.json".into(), "deep".into()]
        )
    );
    mount.unmount();
    assert_eq!((left(""), left("g"), left("g/deep")), (1, 2, 1), "a mount that only reads removes nothing");
    let Some(mount) = Mount::new(folder.path(), &["--writable"], "leftovers") else { return };
    names(&mount, "");
    assert_eq!(names(&mount, "g"), ["__group__.json", "deep"]);
    wait_for(|| left("") == 0 && left("g") == 1);
    assert_eq!((left("g"), left("g/deep")), (1, 1), "what a living writer has locked stays");
    names(&mount, "g/deep");
    wait_for(|| left("g/deep") == 0);
    mount.unmount();
    assert_eq!(attrs(&[folder.path().to_str().unwrap(), "other", "a=1"]).0, 0);
    assert_eq!(left("other"), 0, "an edit removes what is left where it writes");
}

/// The bug: if the root of a store is an array, edits of its attributes took no lock, since the lock of its folder belongs to
/// programs that write data. An edit through a mount of a part of a store did not exclude one through the whole store either.
/// Some of several edits at the same time were lost.
#[test]
fn edits_at_the_same_time_are_all_there() {
    const EDITS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let array = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"uint8","fill_value":0,"codecs":["bytes"],
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},"chunk_key_encoding":{"name":"default"},"attributes":{}}"#;
    let group = format!(
        r#"{{"zarr_format":3,"node_type":"group","attributes":{{}},"consolidated_metadata":{{"kind":"inline","must_understand":false,"metadata":{{"a":{array}}}}}}}"#
    );
    fs::create_dir_all(store.join("a")).unwrap();
    fs::write(store.join("zarr.json"), group).unwrap();
    fs::write(store.join("a/zarr.json"), array).unwrap();
    let (whole, part) = (store.to_str().unwrap().to_owned(), store.join("a").to_str().unwrap().to_owned());
    // Who writes the array's data does not keep edits out.
    let data = fs::File::open(&part).unwrap();
    data.lock().unwrap();
    std::thread::scope(|scope| {
        for number in 0..EDITS {
            let (whole, part) = (&whole, &part);
            scope.spawn(move || {
                for (name, store, node) in [("p", part, "/"), ("w", whole, "a"), ("r", part, "/")] {
                    let edited = attrs(&[store, node, &format!("{name}{number}={number}")]);
                    assert_eq!(edited, (0, String::new(), String::new()));
                }
            });
        }
    });
    let count =
        |text: &str| text.matches("\"p").count() + text.matches("\"w").count() + text.matches("\"r").count();
    let (own, copy) = (attrs(&[&whole, "a"]).1, fs::read_to_string(store.join("zarr.json")).unwrap());
    assert_eq!(count(&own), 3 * EDITS, "{own}");
    let copy: serde_json::Value = serde_json::from_str(&copy).unwrap();
    let copied = copy["consolidated_metadata"]["metadata"]["a"]["attributes"].to_string();
    assert!(count(&copied) >= EDITS, "the edits through the whole store: {copied}");
}
