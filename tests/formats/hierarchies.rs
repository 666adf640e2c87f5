//! `__formats__/hdf5/`: hierarchies as HDF5 files, through a mount, opened by h5py, netCDF4, anndata and pynwb and compared with what
//! zarr-python, anndata and hdmf-zarr read of the stores (tests/programs/hierarchies.py).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::fixtures::output_of;
use crate::support::fixtures::{has_modules, python};
use crate::support::mounted::Mount;
use crate::support::sorted_names;
use crate::support::{say, skip};
use serde_json::{Value, json};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/hierarchies.py");

/// Returns an interpreter with these modules.
fn python_with(modules: &'static str, what: &str) -> Option<PathBuf> {
    let python = python(what)?;
    if has_modules(&python, modules) {
        return Some(python);
    }
    skip(what, &format!("the interpreter lacks one of {modules}"), true);
    None
}

fn run(python: &Path, arguments: &[&str]) -> String {
    output_of(python, PROGRAM, arguments)
}

/// Makes the stores of a command, mounts each, and compares its file, which must give no cause for complaint.
fn compare(python: &Path, make: &str, stores: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    run(python, &[make, folder.path().to_str().unwrap()]);
    for (store, command) in stores {
        let store = folder.path().join(store);
        let Some(mount) = Mount::new(&store, &[], make) else { return };
        let text = run(python, &[command, store.to_str().unwrap(), mount.point().to_str().unwrap()]);
        let last = text.lines().last().unwrap_or_default();
        say(format!("hierarchies, {}: {last}", store.display()));
        assert!(last.starts_with("checked") && last.ends_with(" 0 wrong"), "{text}");
        mount.unmount();
    }
}

#[test]
#[ignore = "full: needs h5py and netCDF4"]
fn nested_groups_strings_and_hostile_trees() {
    let Some(python) = python_with("h5py netCDF4", "hierarchies, plain") else { return };
    compare(&python, "make", &[("plain.zarr", "plain"), ("hostile.zarr", "hostile")]);
}

#[test]
#[ignore = "full: needs anndata"]
fn anndata_opens_its_stores_as_h5ad() {
    let Some(python) = python_with("anndata h5py", "hierarchies, AnnData") else { return };
    let stores = ["sparse.zarr", "dense.zarr", "bare.zarr"].map(|store| (store, "anndata"));
    compare(&python, "make-anndata", &stores);
}

#[test]
#[ignore = "full: needs pynwb and hdmf-zarr"]
fn pynwb_opens_stores_of_hdmf_zarr() {
    let Some(python) = python_with("pynwb hdmf_zarr", "hierarchies, NWB") else { return };
    let stores = ["recording.zarr", "behaviour.zarr", "bare.zarr"].map(|store| (store, "nwb"));
    compare(&python, "make-nwb", &stores);
}

fn write(folder: &Path, path: &str, members: &Value) {
    let mut document = json!({"zarr_format": 3});
    document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    fs::create_dir_all(folder.join(path)).unwrap();
    fs::write(folder.join(path).join("zarr.json"), document.to_string()).unwrap();
}

fn group(attributes: &Value) -> Value {
    json!({"node_type": "group", "attributes": attributes})
}

fn array(data_type: &str, fill: &Value, codec: &Value) -> Value {
    json!({"node_type": "array", "shape": [3], "data_type": data_type, "fill_value": fill, "codecs": [codec],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}, "chunk_key_encoding": {"name": "default"}})
}

fn bytes() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

/// Which files are listed, which are found by name, and which users may read them.
#[test]
fn names_and_modes() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.zarr");
    write(&store, "", &group(&json!({})));
    for (path, attributes) in [
        ("plain", json!({})),
        ("cells", json!({"encoding-type": "anndata"})),
        ("cells/obs", json!({"encoding-type": "dataframe"})),
        ("session", json!({"nwb_version": "2.9.0"})),
        ("closed", json!({})),
        ("closed/inner", json!({})),
    ] {
        write(&store, path, &group(&attributes));
    }
    write(&store, "plain/a", &array("int32", &json!(7), &bytes()));
    write(&store, "closed/inner/b", &array("int32", &json!(7), &bytes()));
    fs::set_permissions(store.join("closed/inner"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let Some(mount) = Mount::new(&store, &[], "hierarchies, names") else { return };
    let hdf5 = mount.path("__formats__/hdf5");
    let listed = [
        "cells",
        "cells.h5",
        "cells.h5ad",
        "closed",
        "plain",
        "session",
        "session.h5",
        "session.nwb",
        "store.h5",
    ];
    assert_eq!(sorted_names(&hdf5), listed);
    assert_eq!(sorted_names(hdf5.join("cells")), ["obs"]);
    let signature = |name: &str| fs::read(hdf5.join(name)).unwrap().starts_with(b"\x89HDF\r\n\x1a\n");
    for name in ["plain.h5", "cells.h5ad", "cells/obs.h5", "session.nwb", "closed/inner.h5", "store.h5"] {
        assert!(signature(name), "{name}");
    }
    for name in ["plain.h5ad", "plain.nwb", "plain/a.h5", "none.h5", "store.nwb", "cells.nwb", ".h5"] {
        assert!(fs::metadata(hdf5.join(name)).is_err(), "{name}");
    }
    let mode = |file: &str| fs::metadata(hdf5.join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("plain.h5"), mode("closed.h5"), mode("store.h5")), (0o444, 0o400, 0o400));
    mount.unmount();
    // The axes of AnnData and NWB are described in order C.
    let Some(mount) = Mount::new(&store, &["--order", "F"], "hierarchies, order F") else { return };
    let listed = sorted_names(mount.path("__formats__/hdf5"));
    assert_eq!(listed, ["cells", "closed", "plain", "session", "store.h5"]);
    assert!(fs::metadata(mount.path("__formats__/hdf5/cells.h5ad")).is_err());
    mount.unmount();
}

/// A new group, a longer array and other strings are in files that are opened afterwards, and an open file keeps its own.
#[test]
fn changes_are_seen_at_the_next_open() {
    let store = tempfile::tempdir().unwrap();
    write(store.path(), "g", &group(&json!({})));
    write(store.path(), "g/a", &array("int32", &json!(7), &bytes()));
    write(store.path(), "g/in/text", &array("string", &json!("before"), &json!({"name": "vlen-utf8"})));
    let Some(mount) = Mount::new(store.path(), &["--revalidate", "0.1"], "hierarchies, changes") else {
        return;
    };
    let file = mount.path("__formats__/hdf5/g.h5");
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let read = || {
        let bytes = fs::read(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), bytes.len() as u64);
        bytes
    };
    let (before, mut open) = (read(), fs::File::open(&file).unwrap());
    assert!(has(&before, "before") && !has(&before, "after!"));
    write(store.path(), "g/in/text", &array("string", &json!("after!"), &json!({"name": "vlen-utf8"})));
    write(store.path(), "g/more/b", &array("int32", &json!(9), &bytes()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let after = read();
    assert!(has(&after, "after!") && !has(&after, "before") && has(&after, "more"));
    let mut still = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut still).unwrap();
    assert!(still == before, "an open file keeps its content");
    drop(open);
    mount.unmount();
}

/// Strings that do not fit into the cache make no file.
#[test]
fn strings_are_bounded() {
    let store = tempfile::tempdir().unwrap();
    let mut text = array("string", &json!("x"), &json!({"name": "vlen-utf8"}));
    text["shape"] = json!([1u64 << 40]);
    text["chunk_grid"]["configuration"]["chunk_shape"] = json!([1u64 << 40]);
    write(store.path(), "g/text", &text);
    let Some(mount) = Mount::new(store.path(), &[], "hierarchies, bounds") else { return };
    let error = fs::read(mount.path("__formats__/hdf5/g.h5")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    mount.unmount();
}
