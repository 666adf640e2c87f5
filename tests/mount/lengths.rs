//! What a mount shows while a command gives several arrays other lengths together, and when that command was killed: the old lengths, of all arrays.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::place::{wait_for, zarrfs};
use crate::support::uneven::v3;

const RECORD: &str = "g/.zarrfs-lengths.json";

/// Returns the document of an array of so many rows of 3 bytes.
fn document(rows: u64) -> Value {
    let mut document = v3("uint8", &[rows, 3], &[4, 3], &json!(["bytes"]));
    document["dimension_names"] = json!(["time", "x"]);
    document
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Makes two arrays of 5 rows, and stores 3 more after the end of each, as an append does.
fn make(store: &Path) {
    for name in ["g/a", "g/b"] {
        fs::create_dir_all(store.join(name).join("c/0")).unwrap();
        fs::create_dir_all(store.join(name).join("c/1")).unwrap();
        fs::write(store.join(name).join("zarr.json"), document(5).to_string()).unwrap();
        fs::write(store.join(name).join("c/0/0"), [1; 12]).unwrap();
        fs::write(store.join(name).join("c/1/0"), [2; 12]).unwrap();
    }
    fs::write(store.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    fs::write(store.join("g/zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
}

/// Records an append of 3 rows to both.
fn record(store: &Path) {
    let documents = ["a", "b"].map(|name| {
        json!({"key": format!("g/{name}/zarr.json"), "old": document(5).to_string(), "new": document(8).to_string()})
    });
    fs::write(store.join(RECORD), json!({"documents": documents}).to_string()).unwrap();
}

#[test]
fn arrays_that_grow_together_are_longer_in_one_step() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("s.zarr");
    make(&store);
    let Some(mount) = Mount::new(&store, &["-o", "revalidate=0"], "lengths that change together") else {
        return;
    };
    let sizes = || ["g/a", "g/b"].map(|name| fs::metadata(mount.path(name)).unwrap().len());
    let open = File::open(mount.path("g/a")).unwrap();
    assert_eq!(sizes(), [15, 15]);
    record(&store);
    assert_eq!(sizes(), [15, 15]);
    replace(&store.join("g/a/zarr.json"), &document(8).to_string());
    assert_eq!(sizes(), [15, 15], "one of the documents is replaced");
    assert_eq!(json_of(mount.path("g/a.json"))["shape"], json!([5, 3]));
    assert!(!mount.path("__views__/slice/g/a[5]").exists());
    // A mount that begins now sees the same, also of the group alone.
    for location in ["", "g"] {
        let Some(other) = Mount::new(&store.join(location), &[], "a second mount") else { return };
        let name = |name: &str| if location.is_empty() { format!("g/{name}") } else { name.to_owned() };
        for array in ["a", "b"] {
            assert_eq!(fs::read(other.path(&name(array))).unwrap().len(), 15, "{location} {array}");
        }
        other.unmount();
    }
    replace(&store.join("g/b/zarr.json"), &document(8).to_string());
    assert_eq!(sizes(), [15, 15], "both are replaced");
    fs::remove_file(store.join(RECORD)).unwrap();
    wait_for(|| sizes() == [24, 24]);
    let mut row = [0; 3];
    open.read_exact_at(&mut row, 21).unwrap();
    assert_eq!(row, [2; 3], "an open file has grown");
    assert_eq!(json_of(mount.path("g/a.json"))["shape"], json!([8, 3]));
    drop(open);
    mount.unmount();
}

/// After a command was killed, a program that appends to one of the arrays ends what was begun first.
#[test]
fn an_append_after_a_killed_command() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("s.zarr");
    make(&store);
    record(&store);
    replace(&store.join("g/a/zarr.json"), &document(8).to_string());
    let Some(mount) = Mount::new(&store, &["-o", "create,revalidate=0"], "an append after a crash") else {
        return;
    };
    let mut file = OpenOptions::new().append(true).open(mount.path("g/a")).unwrap();
    file.write_all(&[7; 3]).unwrap();
    drop(file);
    assert_eq!(fs::read(mount.path("g/a")).unwrap(), [[1; 12].as_slice(), &[2; 3], &[7; 3]].concat());
    assert_eq!(fs::metadata(mount.path("g/b")).unwrap().len(), 15);
    assert!(!store.join(RECORD).exists());
    // So does a program that writes to an element, also where all documents are new: then the arrays are longer.
    record(&store);
    for name in ["g/a", "g/b"] {
        replace(&store.join(name).join("zarr.json"), &document(8).to_string());
    }
    assert_eq!(fs::metadata(mount.path("g/b")).unwrap().len(), 15);
    let file = OpenOptions::new().write(true).open(mount.path("g/b")).unwrap();
    file.write_all_at(&[9; 3], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(mount.path("g/b")).unwrap(), [[9; 3].as_slice(), &[1; 9], &[2; 12]].concat());
    assert!(!store.join(RECORD).exists());
    mount.unmount();
}

/// The bug: after such an edit the new length stayed, and the arrays had two lengths for good.
#[test]
fn attributes_are_edited_after_a_killed_command() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("s.zarr");
    make(&store);
    record(&store);
    replace(&store.join("g/b/zarr.json"), &document(8).to_string());
    for arguments in [["attrs", "g/b", "n=1"].as_slice(), &["mkgroup", "g/next"]] {
        let [command, rest @ ..] = arguments else { unreachable!() };
        let done = zarrfs(&[&[*command, store.to_str().unwrap()], rest].concat());
        assert!(done.status.success(), "{done:?}");
    }
    let edited = json_of(store.join("g/b/zarr.json"));
    assert_eq!((&edited["shape"], &edited["attributes"]["n"]), (&json!([5, 3]), &json!(1)));
    assert!(!store.join(RECORD).exists());
}
