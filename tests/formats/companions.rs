//! Companion files through a mount, opened by the libraries that know their formats, against zarr-python's values.
//!
//! `tests/programs/companions.py` has a function for each library; scripts/test-tools runs the programs that are too large for this.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::fixtures::{corpus, has_modules, python};
use crate::support::mounted::Mount;
use crate::support::{json_of, sorted_names};
use crate::support::{say, skip};
use serde_json::{Value, json};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/companions.py");
const LIBRARIES: &str = "SimpleITK mrcfile nibabel nrrd safetensors spectral tifffile";

/// Returns the interpreter, if it has all libraries.
pub fn python_with_libraries(what: &str) -> Option<PathBuf> {
    let python = python(what)?;
    if has_modules(&python, LIBRARIES) {
        return Some(python);
    }
    skip(what, &format!("the interpreter lacks one of {LIBRARIES}"), true);
    None
}

pub fn run(python: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(python).arg(PROGRAM).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn every_array_in_every_format() {
    let what = "companion files";
    let Some(python) = python_with_libraries(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &["write", text(folder.path())]);
    for (order, byte_order) in [("C", "little"), ("F", "little"), ("C", "big"), ("F", "big")] {
        let options = ["--order", order, "--byte-order", byte_order];
        let Some(mount) = Mount::new(folder.path(), &options, what) else { return };
        let report = run(&python, &["check", text(folder.path()), text(mount.point()), order]);
        for (format, found) in report.as_object().unwrap() {
            let (equal, absent, wrong) = (&found["equal"], &found["absent"], &found["wrong"]);
            say(format!(
                "companion files, {order} {byte_order}: {format}: equal {equal}, {absent} absent, wrong {wrong}"
            ));
            assert_eq!(*wrong, json!([]), "{format}");
            let is_expressed = format != "safetensors" || (order, byte_order) == ("C", "little");
            assert!(
                !is_expressed || equal.as_object().unwrap().values().all(|count| count.as_u64() >= Some(30))
            );
        }
        assert_eq!(report["npy"]["absent"], 0, "every type here is one of NumPy's");
        mount.unmount();
    }
}

#[test]
fn the_corpus_as_npy() {
    let Some(corpus) = corpus("corpus, npy") else { return };
    let Some(python) = python("corpus, npy") else { return };
    let Some(mount) = Mount::new(&corpus, &[], "corpus, npy") else { return };
    let report = run(&python, &["digests", text(&corpus.join("expected.json")), text(mount.point())]);
    say(format!(
        "corpus, npy: {} equal, absent {}, wrong {}",
        report["equal"], report["absent"], report["wrong"]
    ));
    assert_eq!((&report["wrong"], &report["absent"]), (&json!([]), &json!([])));
    mount.unmount();
}

/// Returns a group and arrays of uint8 with the fill value 9.
pub fn store(arrays: &[(&str, &[u64])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let group = json!({"zarr_format": 3, "node_type": "group"});
    fs::write(folder.path().join("zarr.json"), group.to_string()).unwrap();
    for (name, shape) in arrays {
        let chunk: Vec<u64> = shape.iter().map(|&length| length.min(4096)).collect();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 9,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]});
        fs::create_dir_all(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("zarr.json"), document.to_string()).unwrap();
    }
    folder
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn five_and_a_hundred_gibibytes() {
    let what = "large companion files";
    let Some(python) = python_with_libraries(what) else { return };
    let store = store(&[("five", &[5, 1 << 15, 1 << 15]), ("hundred", &[100, 1 << 15, 1 << 15])]);
    let Some(mount) = Mount::new(store.path(), &["--cache-size", "256M"], what) else { return };
    let report = run(&python, &["large", text(mount.point())]);
    assert_eq!(report["equal"], 6);
    let size = |path: &str| fs::metadata(mount.path(path)).unwrap().len();
    assert_eq!(size("__formats__/npy/hundred.npy"), (100 << 30) + 4096);
    mount.unmount();
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn libraries_see_the_voxels_where_ome_zarr_has_them() {
    let what = "places of companion files";
    let Some(python) = python_with_libraries(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &["write-places", text(folder.path())]);
    let Some(mount) = Mount::new(folder.path(), &[], what) else { return };
    assert_eq!(run(&python, &["places", text(mount.point())])["equal"], 2);
    mount.unmount();
}

#[test]
fn folders_of_detached_headers_show_the_data() {
    let store = store(&[("a", &[2, 3]), ("b 50%", &[2, 3]), ("deep/c", &[2]), ("scalar", &[])]);
    let Some(mount) = Mount::new(store.path(), &[], "names of companion files") else { return };
    let listed = |folder: &str| sorted_names(mount.path(folder));
    let names = ["a", "a.nhdr", "b+2050+25", "b+2050+25.nhdr", "deep"];
    assert_eq!(listed("__formats__/nrrd"), names);
    assert_eq!(listed("__formats__/nrrd/deep"), ["c", "c.nhdr"]);
    assert_eq!(listed("__formats__/npy"), ["a.npy", "b 50%.npy", "deep", "scalar.npy"]);
    assert_eq!(fs::read(mount.path("__formats__/nrrd/b+2050+25")).unwrap(), [9; 6]);
    let header = fs::read_to_string(mount.path("__formats__/nrrd/b 50%.nhdr")).unwrap();
    assert!(header.ends_with("\ndata file: b+2050+25\n\n"), "{header}");
    for absent in [
        "nrrd/b 50%",
        "nrrd/scalar",
        "nrrd/scalar.nhdr",
        "nrrd/a.npy",
        "npy/a",
        "nrrd/deep/d.nhdr",
        "grads/deep/c.ctl",
    ] {
        let found = fs::metadata(mount.path(&format!("__formats__/{absent}")));
        assert_eq!(found.unwrap_err().kind(), std::io::ErrorKind::NotFound, "{absent}");
    }
    let sidecar: Value = json_of(mount.path("b 50%.json"));
    assert_eq!(sidecar["companions"]["nrrd"], "__formats__/nrrd/b+2050+25.nhdr");
    for file in sidecar["companions"].as_object().unwrap().values() {
        assert!(fs::metadata(mount.path(file.as_str().unwrap())).unwrap().len() > 0, "{file}");
    }
    mount.unmount();
}

#[test]
fn a_root_that_is_an_array() {
    let folder = store(&[("root.zarr", &[2, 3])]);
    let Some(mount) = Mount::new(&folder.path().join("root.zarr"), &[], "companion files of a root") else {
        return;
    };
    let listed = |folder: &str| sorted_names(mount.path(folder));
    assert_eq!(listed("__formats__/npy"), ["root.npy"]);
    assert_eq!(listed("__formats__/mhd"), ["root", "root.mhd"]);
    assert_eq!(fs::read(mount.path("__formats__/mhd/root")).unwrap(), [9; 6]);
    assert_eq!(fs::read(mount.path("__formats__/npy/root.npy")).unwrap().len(), 4096 + 6);
    mount.unmount();
}

/// An open of a companion finds that a chunk was replaced. The kernel has old pages of the array's own file, which shows the new chunk at
/// its next open all the same; and the other way round.
#[test]
fn a_replaced_chunk_is_seen_by_every_reader() {
    // Two chunks: the kernel would read an array of one by itself.
    let store = store(&[("a", &[8192])]);
    let put = |value: u8| {
        let fresh = store.path().join("a/fresh");
        fs::write(&fresh, [value; 4096]).unwrap();
        fs::create_dir_all(store.path().join("a/c")).unwrap();
        fs::rename(fresh, store.path().join("a/c/1")).unwrap();
    };
    put(1);
    let Some(mount) = Mount::new(store.path(), &[], "replaced chunks") else { return };
    let files = [mount.path("a"), mount.path("__formats__/npy/a.npy"), mount.path("__views__/f-order/a")];
    let last =
        |path: &Path| fs::read(path).unwrap().split_off(fs::metadata(path).unwrap().len() as usize - 4096);
    for (number, order) in
        [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1], [0, 2, 1]].into_iter().enumerate()
    {
        let value = 2 + number as u8;
        put(value);
        for file in order {
            assert!(last(&files[file]) == [value; 4096], "{:?}, asked in the order {order:?}", files[file]);
        }
    }
    mount.unmount();
}

#[test]
fn what_is_written_to_an_array_is_in_its_companions() {
    let store = store(&[("a", &[100, 100])]);
    let Some(mount) = Mount::new(store.path(), &["--writable"], "writes and companion files") else { return };
    let npy = mount.path("__formats__/npy/a.npy");
    assert_eq!(fs::read(&npy).unwrap()[4096..], [9; 10_000]);
    let mut file = fs::File::options().write(true).open(mount.path("a")).unwrap();
    file.seek(SeekFrom::Start(5000)).unwrap();
    file.write_all(b"written").unwrap();
    let mut open = fs::File::open(&npy).unwrap();
    open.seek(SeekFrom::Start(4096 + 4999)).unwrap();
    let mut found = [0; 9];
    open.read_exact(&mut found).unwrap();
    assert_eq!(&found, b"\x09written\x09");
    drop((file, open));
    assert_eq!(fs::File::options().write(true).open(&npy).unwrap_err().raw_os_error(), Some(libc::EACCES));
    mount.unmount();
}
