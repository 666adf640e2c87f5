//! Views of arrays through a mount: their bytes, sidecars and companions against numpy and xarray (tests/programs/views.py), and
//! what they do where arrays are written, grow, are damaged or have hostile names.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::fixtures::output_of;
use crate::support::fixtures::{has_modules, python};
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::{level, say, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/views.py");

/// Returns an interpreter with the libraries that open companions of views.
fn python_with_libraries(what: &str) -> Option<PathBuf> {
    let python = python(what)?;
    if has_modules(&python, "nrrd tifffile netCDF4 xarray") {
        return Some(python);
    }
    skip(what, "the interpreter lacks nrrd, tifffile, netCDF4 or xarray", true);
    None
}

/// Runs one command of the program, which must succeed.
fn run(python: &Path, arguments: &[&str]) {
    let text = output_of(python, PROGRAM, arguments);
    if let Some(last) = text.lines().last() {
        say(format!("views, {}: {last}", arguments.join(" ")));
        assert!(last.starts_with("checked") && last.ends_with(" 0 wrong"), "{text}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn every_view_of_every_array() {
    let what = "views";
    let Some(python) = python_with_libraries(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &["write", text(folder.path())]);
    for (order, byte_order) in [("C", "little"), ("F", "little"), ("C", "big"), ("F", "big")] {
        let options = ["--order", order, "--byte-order", byte_order];
        let Some(mount) = Mount::new(folder.path(), &options, what) else { return };
        run(&python, &["check", text(folder.path()), text(mount.point()), order, byte_order]);
        mount.unmount();
    }
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn unpacked_as_xarray_decodes() {
    let what = "unpacked views";
    let Some(python) = python_with_libraries(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &["write-packed", text(folder.path())]);
    let Some(mount) = Mount::new(folder.path(), &[], what) else { return };
    run(&python, &["packed", text(folder.path()), text(mount.point())]);
    mount.unmount();
}

/// Returns the document of an array of int16 in chunks of 4 along each axis.
pub fn document(shape: &[u64], attributes: &Value) -> Value {
    let chunk = vec![4; shape.len()];
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int16", "fill_value": 9,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}, "attributes": attributes,
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]})
}

pub fn put(store: &Path, name: &str, document: &Value) {
    fs::create_dir_all(store.join(name)).unwrap();
    fs::write(store.join(name).join("zarr.json"), document.to_string()).unwrap();
}

/// Returns a group and arrays of int16 with fill value 9.
pub fn store(arrays: &[(&str, &[u64])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    for (name, shape) in arrays {
        put(folder.path(), name, &document(shape, &json!({})));
    }
    folder
}

fn listed(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

pub fn bytes_of(numbers: &[i16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn folders_and_names() {
    let store = store(&[("a", &[3, 2]), ("deep/b", &[2]), ("scalar", &[]), ("empty", &[0, 2])]);
    let Some(mount) = Mount::new(store.path(), &[], "names of views") else { return };
    let root = listed(mount.point());
    assert!(!root.iter().any(|name| name.starts_with("__views__")), "{root:?}");
    let found = Command::new("find").arg(mount.point()).output().unwrap();
    assert!(!String::from_utf8_lossy(&found.stdout).contains("__views__"));
    let views =
        ["big-endian", "c-order", "f-order", "little-endian", "mask", "planes", "planes@1", "planes@2"];
    assert_eq!(listed(&mount.path("__views__"))[..8], views);
    let arrays = ["a", "a.json", "deep", "empty", "empty.json", "scalar", "scalar.json"];
    let with_group: Vec<&str> = ["__group__.json"].into_iter().chain(arrays).collect();
    assert_eq!(listed(&mount.path("__views__/f-order")), with_group);
    assert_eq!(listed(&mount.path("__views__/f-order/deep")), ["__group__.json", "b", "b.json"]);
    assert_eq!(listed(&mount.path("__views__/planes")), ["a", "deep", "empty"]);
    assert_eq!(listed(&mount.path("__views__/planes@1")), ["a", "deep", "empty"]);
    assert_eq!(listed(&mount.path("__views__/planes/a")), ["000000", "000001", "000002"]);
    assert_eq!(listed(&mount.path("__views__/planes/empty")), [""; 0]);
    assert_eq!(listed(&mount.path("__views__/planes@1/empty")), ["000000", "000001"]);
    assert_eq!(listed(&mount.path("__views__/planes@7")), ["deep"]);
    assert_eq!(listed(&mount.path("__formats__/tiff/__views__/planes@1/a")), ["000000.tif", "000001.tif"]);
    let detached = ["000000", "000000.nhdr", "000001", "000001.nhdr"];
    assert_eq!(listed(&mount.path("__formats__/nrrd/__views__/planes@1/a")), detached);
    assert_eq!(listed(&mount.path("__formats__/npy/__views__/big-endian/deep")), ["b.npy"]);
    assert!(!listed(&mount.path("__formats__/npy")).contains(&"__views__".to_owned()));
    assert_eq!(fs::read(mount.path("__views__/planes/a/1")).unwrap(), bytes_of(&[9, 9]));
    let number = |path: &str| fs::metadata(mount.path(path)).unwrap().ino();
    assert_eq!(number("__views__/planes/a/1"), number("__views__/planes@0/a/000001"), "one file, two names");
    for absent in [
        "f-order/none",
        "f-order/a.npy",
        "f-order/planes",
        "planes/scalar",
        "planes/none",
        "planes/a/000003",
        "planes/a/3",
        "planes/a/-1",
        "planes/a/01",
        "planes/a/+1",
        "planes/a/000001x",
        "planes/a/0000001",
        "planes/a/000001.npy",
        "planes/a/18446744073709551616",
        "planes/a/99999999999999999999999999999999999",
        "planes@2/a",
        "planes@32",
        "planes@01",
        "planes@-1",
        "planes@",
        "nonsense",
        "__views__",
        "f-order/__views__",
        "f-order/__formats__",
    ] {
        let found = fs::metadata(mount.path(&format!("__views__/{absent}")));
        assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound, "{absent}");
    }
    for absent in
        ["jsonl/__views__", "npy/__views__/__views__", "npy/deep/__views__", "npy/__views__/f-order/a"]
    {
        let found = fs::metadata(mount.path(&format!("__formats__/{absent}")));
        assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound, "{absent}");
    }
    mount.unmount();
}

#[test]
fn a_root_that_is_an_array() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("image.zarr");
    put(&store, "", &document(&[2, 3], &json!({})));
    let Some(mount) = Mount::new(&store, &[], "views of a root") else { return };
    assert_eq!(listed(&mount.path("__views__/f-order")), ["image", "image.json"]);
    assert_eq!(listed(&mount.path("__views__/planes@1")), ["image"]);
    assert_eq!(listed(&mount.path("__views__/planes@1/image")), ["000000", "000001", "000002"]);
    assert_eq!(fs::read(mount.path("__views__/planes@1/image/000002")).unwrap(), bytes_of(&[9, 9]));
    assert_eq!(
        fs::metadata(mount.path("__formats__/npy/__views__/planes/image/000001.npy")).unwrap().len(),
        4102
    );
    let sidecar = json_of(mount.path("image.json"));
    assert_eq!(sidecar["views"]["planes@1"], "__views__/planes@1/image");
    assert_eq!(json_of(mount.path("__views__/f-order/image.json"))["path"], "/");
    mount.unmount();
}

#[test]
fn an_axis_of_a_thousand_million_planes() {
    let store = store(&[("long", &[1_000_000_000, 2]), ("across", &[2, 1_000_000_000])]);
    let Some(mount) = Mount::new(store.path(), &["--cache-size", "64M"], "many planes") else { return };
    for folder in ["planes/long", "planes@1/across"] {
        let folder = mount.path(&format!("__views__/{folder}"));
        let mut names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        for index in [0, 1, 2, 100_000] {
            let skip = if index == 100_000 { 99_997 } else { 0 };
            assert_eq!(names.nth(skip).unwrap().to_str(), Some(format!("{index:09}").as_str()));
        }
        drop(names);
        assert_eq!(fs::read(folder.join("999999999")).unwrap(), bytes_of(&[9, 9]));
        assert_eq!(fs::read(folder.join("7")).unwrap(), bytes_of(&[9, 9]));
        assert!(fs::metadata(folder.join("1000000000")).is_err());
    }
    // Inodes of planes go with the kernel's.
    let count = level::pick(5000, 20_000);
    for index in 0..count {
        let path = format!("__views__/planes/long/{index}");
        assert_eq!(fs::metadata(mount.path(&path)).unwrap().len(), 4);
    }
    let before = mount.memory_kb("VmRSS");
    for index in count..3 * count {
        fs::metadata(mount.path(&format!("__views__/planes/long/{index}"))).unwrap();
        if index % (count / 2) == 0 {
            let _ = fs::write("/proc/sys/vm/drop_caches", "2");
        }
    }
    say(format!(
        "many planes: {before} kB after {count} lookups, {} kB after three times as many",
        mount.memory_kb("VmRSS")
    ));
    mount.unmount();
}

#[test]
fn writes_are_seen_at_the_next_open() {
    let store = store(&[("a", &[5, 3])]);
    let Some(mount) = Mount::new(store.path(), &["--writable"], "writes in views") else { return };
    let views = ["f-order", "big-endian", "unpacked"].map(|view| mount.path(&format!("__views__/{view}/a")));
    let planes = [mount.path("__views__/planes/a/000002"), mount.path("__views__/planes@1/a/000001")];
    let npy = mount.path("__formats__/npy/__views__/f-order/a.npy");
    for path in views.iter().chain(&planes).chain([&npy]) {
        fs::read(path).unwrap();
    }
    let file = OpenOptions::new().read(true).write(true).open(mount.path("a")).unwrap();
    for round in 1..4i16 {
        let numbers: Vec<i16> = (0..15).map(|index| round * 100 + index).collect();
        file.write_all_at(&bytes_of(&numbers), 0).unwrap();
        let columns: Vec<i16> = (0..15).map(|index| numbers[index % 5 * 3 + index / 5]).collect();
        assert_eq!(fs::read(&views[0]).unwrap(), bytes_of(&columns), "round {round}");
        let big: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        assert_eq!(fs::read(&views[1]).unwrap(), big);
        assert_eq!(fs::read(&views[2]).unwrap(), bytes_of(&numbers));
        assert_eq!(fs::read(&planes[0]).unwrap(), bytes_of(&numbers[6..9]));
        assert_eq!(fs::read(&planes[1]).unwrap(), bytes_of(&columns[5..10]));
        assert_eq!(fs::read(&npy).unwrap()[4096..], bytes_of(&columns));
    }
    // What cannot be stored cannot be shown: a folder is where the chunk belongs.
    let chunk = store.path().join("a/c/0/0");
    fs::remove_file(&chunk).unwrap();
    fs::create_dir(&chunk).unwrap();
    file.write_all_at(&bytes_of(&[7; 12]), 0).unwrap();
    assert_eq!(fs::read(&planes[0]).unwrap(), bytes_of(&[7; 3]), "the array's own bytes");
    for path in [&views[0], &views[2], &planes[1], &npy] {
        assert!(File::open(path).is_err(), "{path:?}");
    }
    fs::remove_dir(&chunk).unwrap();
    let columns: Vec<i16> = (0..15).map(|index| if index % 5 < 4 { 7 } else { 312 + index / 5 }).collect();
    assert_eq!(fs::read(&views[0]).unwrap(), bytes_of(&columns));
    drop(file);
    // Another program's chunks.
    let chunk = store.path().join("a/c/1/0");
    let old = fs::read(&chunk).unwrap();
    fs::remove_file(&chunk).unwrap();
    assert_eq!(fs::read(&planes[1]).unwrap()[8..], bytes_of(&[9]));
    fs::write(&chunk, old).unwrap();
    assert_eq!(fs::read(&planes[1]).unwrap()[8..], bytes_of(&[313]));
    mount.unmount();
}

#[test]
fn views_are_only_read() {
    let store = store(&[("a", &[5, 3])]);
    for options in [&["--writable", "--tune", "truncate=zero"][..], &[]] {
        let Some(mount) = Mount::new(store.path(), options, "writing to views") else { return };
        for path in ["f-order/a", "f-order/a.json", "unpacked/a", "planes/a/000000", "planes/a/000000.json"] {
            let path = mount.path(&format!("__views__/{path}"));
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o222, 0, "{path:?}");
            assert!(OpenOptions::new().write(true).open(&path).is_err(), "{path:?}");
            assert!(OpenOptions::new().write(true).truncate(true).open(&path).is_err(), "{path:?}");
            assert!(fs::remove_file(&path).is_err() && fs::write(path.with_extension("x"), "").is_err());
        }
        let path = mount.path("__views__/f-order/a");
        let truncated = Command::new("truncate").args(["-s", "0"]).arg(&path).status().unwrap();
        assert!(!truncated.success());
        assert_eq!(fs::read(&path).unwrap(), bytes_of(&[9; 15]));
        mount.unmount();
    }
}

#[test]
fn arrays_that_grow_or_are_packed_in_another_way() {
    let store = store(&[("a", &[2, 3])]);
    let packed = |shape: &[u64], scale: f64| document(shape, &json!({"scale_factor": scale}));
    put(store.path(), "p", &packed(&[2], 0.5));
    let Some(mount) = Mount::new(store.path(), &["-o", "revalidate=0"], "growth of views") else { return };
    let path = |view: &str| mount.path(&format!("__views__/{view}"));
    let [mut c, mut f] = ["c-order/a", "f-order/a"].map(|view| File::open(path(view)).unwrap());
    let [mut plane, mut unread] =
        ["planes@1/a/000002", "planes@1/a/000001"].map(|plane| File::open(path(plane)).unwrap());
    let mut row = File::open(path("planes/a/000001")).unwrap();
    let mut unpacked = File::open(path("unpacked/p")).unwrap();
    let read = |file: &mut File| {
        let mut content = Vec::new();
        file.read_to_end(&mut content).map(|_| content)
    };
    assert_eq!(read(&mut plane).unwrap(), bytes_of(&[9, 9]));
    put(store.path(), "a", &document(&[4, 3], &json!({})));
    put(store.path(), "p", &packed(&[2], 2.0));
    assert_eq!(fs::read(path("c-order/a")).unwrap(), bytes_of(&[9; 12]));
    assert_eq!(fs::read(path("f-order/a")).unwrap(), bytes_of(&[9; 12]));
    assert_eq!(fs::read(path("planes@1/a/000002")).unwrap(), bytes_of(&[9; 4]));
    assert_eq!(listed(&path("planes/a")).len(), 4);
    assert_eq!(fs::read(path("unpacked/p")).unwrap(), [18.0f64, 18.0].map(f64::to_le_bytes).concat());
    let stale = |outcome: std::io::Result<Vec<u8>>| outcome.unwrap_err().raw_os_error() == Some(libc::ESTALE);
    assert_eq!(read(&mut c).unwrap(), bytes_of(&[9; 6]), "the bytes have kept their place");
    assert!(stale(read(&mut f)) && stale(read(&mut unpacked)));
    assert!(stale(read(&mut unread)), "a plane across the new rows has become longer");
    assert_eq!(read(&mut row).unwrap(), bytes_of(&[9; 3]), "a plane of an old row is as it was");
    // Another program takes the packing away, and then breaks it.
    put(store.path(), "p", &document(&[2], &json!({})));
    assert_eq!(fs::read(path("unpacked/p")).unwrap(), bytes_of(&[9, 9]));
    put(store.path(), "p", &document(&[2], &json!({"scale_factor": "2"})));
    assert_eq!(fs::metadata(path("unpacked/p")).unwrap_err().kind(), ErrorKind::NotFound);
    drop((c, f, plane, unread, row, unpacked));
    fs::remove_dir_all(store.path().join("a")).unwrap();
    assert_eq!(fs::metadata(path("f-order/a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::metadata(path("planes/a")).unwrap_err().kind(), ErrorKind::NotFound);
    mount.unmount();
}

#[test]
fn a_damaged_chunk_is_an_error() {
    let store = store(&[("a", &[8, 8])]);
    fs::create_dir_all(store.path().join("a/c/1")).unwrap();
    fs::write(store.path().join("a/c/1/1"), vec![1; 36]).unwrap();
    put(store.path(), "unknown", &{
        let mut unknown = document(&[2], &json!({}));
        unknown["codecs"] = json!([{"name": "squeeze"}]);
        unknown
    });
    let Some(mount) = Mount::new(store.path(), &[], "damage in views") else { return };
    let errno = |path: &str| {
        let outcome = fs::read(mount.path(path));
        outcome.map_err(|error| error.raw_os_error())
    };
    for path in ["f-order/a", "big-endian/a", "unpacked/a", "planes/a/000005", "planes@1/a/000005"] {
        assert_eq!(errno(&format!("__views__/{path}")), Err(Some(libc::EIO)), "{path}");
    }
    assert_eq!(errno("__formats__/npy/__views__/f-order/a.npy"), Err(Some(libc::EIO)));
    assert_eq!(errno("__views__/planes/a/000003"), Ok(bytes_of(&[9; 8])));
    assert_eq!(errno("__views__/planes@1/a/000003"), Ok(bytes_of(&[9; 8])));
    assert_eq!(errno("unknown"), errno("__views__/f-order/unknown"));
    assert!(errno("__views__/planes/unknown/000000").is_err());
    assert!(
        json_of(mount.path("__views__/f-order/unknown.json"))["error"].as_str().unwrap().contains("squeeze")
    );
    mount.unmount();
}

#[test]
fn spacings_are_those_of_the_remaining_axes() {
    let folder = store(&[]);
    let attributes = json!({"scale": [5.0, 0.5, 0.25], "translation": [1.0, 2.0, 3.0]});
    let mut placed = document(&[3, 4, 5], &attributes);
    placed["dimension_names"] = json!(["z", "y", "x"]);
    put(folder.path(), "a", &placed);
    for (order, f_order) in [("C", "0.25 0.5 5.0"), ("F", "5.0 0.5 0.25")] {
        let Some(mount) = Mount::new(folder.path(), &["--order", order], "places of views") else { return };
        let header = |path: &str| {
            let path = format!("__formats__/mhd/__views__/{path}.mhd");
            let text = fs::read_to_string(mount.path(&path)).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("ElementSpacing = "));
            line.unwrap_or_default().to_owned()
        };
        assert_eq!(header(if order == "C" { "c-order/a" } else { "f-order/a" }), f_order);
        let of_plane = |spacings: [&str; 2]| {
            let [slow, fast] = spacings;
            if order == "C" { format!("{fast} {slow}") } else { format!("{slow} {fast}") }
        };
        assert_eq!(header("planes/a/000001"), of_plane(["0.5", "0.25"]));
        assert_eq!(header("planes@1/a/000001"), of_plane(["5.0", "0.25"]));
        assert_eq!(header("planes@2/a/000001"), of_plane(["5.0", "0.5"]));
        mount.unmount();
    }
}
