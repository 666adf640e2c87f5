//! `__formats__/nc/`: arrays and groups as netCDF-4 files, through a mount, opened by h5py, netCDF4, h5netcdf and xarray and
//! compared with zarr-python's values (tests/programs/netcdf.py).

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::fixtures::output_of;
use crate::support::fixtures::{corpus, has_modules, python};
use crate::support::mounted::Mount;
use crate::support::sorted_names;
use crate::support::{folders, say, skip};
use serde_json::{Value, json};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/netcdf.py");

/// Returns an interpreter with the libraries that open these files.
fn python_with_netcdf(what: &str) -> Option<PathBuf> {
    let python = python(what)?;
    if has_modules(&python, "h5py netCDF4 h5netcdf xarray") {
        return Some(python);
    }
    skip(what, "the interpreter lacks h5py, netCDF4, h5netcdf or xarray", true);
    None
}

fn run(python: &Path, arguments: &[&str]) -> String {
    output_of(python, PROGRAM, arguments)
}

/// Runs one command of the program, which must have nothing to complain about.
fn check(python: &Path, arguments: &[&str]) {
    let text = run(python, arguments);
    let last = text.lines().last().unwrap_or_default();
    say(format!("netCDF, {}: {last}", arguments[0]));
    assert!(last.starts_with("checked") && last.ends_with(" 0 wrong"), "{text}");
}

/// Returns the stores of the program, made once.
pub fn stores(python: &Path) -> &'static Path {
    static STORES: OnceLock<PathBuf> = OnceLock::new();
    STORES.get_or_init(|| {
        let folder = folders::of_process(env!("CARGO_TARGET_TMPDIR"), "netcdf");
        run(python, &["make", folder.to_str().unwrap()]);
        folder
    })
}

#[test]
#[ignore = "full: needs h5py, netCDF4, h5netcdf and xarray"]
fn every_type_and_shape_in_both_orders() {
    let Some(python) = python_with_netcdf("netCDF, types") else { return };
    let store = stores(&python).join("types");
    for (order, byte_order) in [("C", "little"), ("F", "big")] {
        let options = ["--order", order, "--byte-order", byte_order];
        let Some(mount) = Mount::new(&store, &options, "netCDF, types") else { return };
        let point = mount.point().to_str().unwrap().to_owned();
        check(&python, &["check", store.to_str().unwrap(), &point, order, byte_order]);
        mount.unmount();
    }
}

#[test]
#[ignore = "full: needs h5py, netCDF4, h5netcdf and xarray"]
fn dimensions_coordinates_and_attributes() {
    let Some(python) = python_with_netcdf("netCDF, climate") else { return };
    let Some(mount) = Mount::new(&stores(&python).join("climate"), &[], "netCDF, climate") else { return };
    check(&python, &["climate", mount.point().to_str().unwrap()]);
    mount.unmount();
}

#[test]
#[ignore = "full: needs h5py, netCDF4, h5netcdf and xarray"]
fn hostile_names_and_attributes() {
    let Some(python) = python_with_netcdf("netCDF, hostile") else { return };
    let Some(mount) = Mount::new(&stores(&python).join("hostile"), &[], "netCDF, hostile") else { return };
    check(&python, &["hostile", mount.point().to_str().unwrap()]);
    mount.unmount();
}

#[test]
#[ignore = "full: needs h5py, netCDF4, h5netcdf and xarray"]
fn arrays_that_others_wrote() {
    let Some(corpus) = corpus("netCDF, corpus") else { return };
    let Some(python) = python_with_netcdf("netCDF, corpus") else { return };
    let Some(mount) = Mount::new(&corpus, &[], "netCDF, corpus") else { return };
    check(&python, &["corpus", corpus.to_str().unwrap(), mount.point().to_str().unwrap()]);
    mount.unmount();
}

/// Writes an array of one axis without codecs.
fn write(folder: &Path, path: &str, length: u64, chunk: u64, more: &Value) {
    let mut document = json!({"zarr_format": 3, "node_type": "array", "shape": [length], "data_type": "float64",
        "fill_value": 2.5, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]});
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fs::create_dir_all(folder.join(path)).unwrap();
    fs::write(folder.join(path).join("zarr.json"), document.to_string()).unwrap();
}

#[test]
#[ignore = "full: needs h5py, netCDF4, h5netcdf and xarray"]
fn more_than_4_gib_and_100_gib() {
    let Some(python) = python_with_netcdf("netCDF, large") else { return };
    let store = tempfile::tempdir().unwrap();
    for (name, gib) in [("five", 5u64), ("hundred", 100)] {
        let length = (gib << 30) / 8;
        write(store.path(), name, length, 1 << 20, &json!({}));
    }
    let Some(mount) = Mount::new(store.path(), &[], "netCDF, large") else { return };
    for (name, gib) in [("five", 5u64), ("hundred", 100)] {
        let length = ((gib << 30) / 8).to_string();
        check(&python, &["large", mount.point().to_str().unwrap(), name, &length]);
    }
    mount.unmount();
}

/// Which files there are, where, and which users may read them.
#[test]
fn names_and_modes() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.zarr");
    write(&store, "a", 3, 3, &json!({}));
    write(&store, "g/b", 3, 3, &json!({}));
    write(&store, "g/secret", 3, 3, &json!({}));
    write(&store, "g/text", 3, 3, &json!({"data_type": "string", "fill_value": "", "codecs": ["vlen-utf8"]}));
    write(&store, "closed/c", 3, 3, &json!({}));
    let set_mode = |path: &str, mode| {
        fs::set_permissions(store.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode("g/secret/zarr.json", 0o600);
    set_mode("closed", 0o744);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let Some(mount) = Mount::new(&store, &[], "netCDF, names") else { return };
    let nc = mount.path("__formats__/nc");
    assert_eq!(sorted_names(&nc), ["a.nc", "closed", "closed.nc", "g", "g.nc", "store.nc"]);
    assert_eq!(sorted_names(nc.join("g")), ["b.nc", "secret.nc"]);
    let mode = |file: &str| fs::metadata(nc.join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a.nc"), mode("g.nc"), mode("g/secret.nc")), (0o444, 0o444, 0o400));
    assert_eq!(mode("closed.nc"), 0o400, "its folder may be listed by all and searched by its owner");
    let group = fs::read(nc.join("g.nc")).unwrap();
    let contains = |text: &[u8]| group.windows(text.len()).any(|window| window == text);
    assert!(contains(b"[\"secret\",\"text\"]"), "arrays that the file lacks are named");
    assert!(fs::metadata(nc.join("g/text.nc")).is_err() && fs::metadata(nc.join("none.nc")).is_err());
    mount.unmount();
}

/// Bytes that are written to an array, a longer array, and a new one are in files that are opened afterwards.
#[test]
fn changes_are_seen_at_the_next_open() {
    let store = tempfile::tempdir().unwrap();
    write(store.path(), "g/a", 600, 600, &json!({"dimension_names": ["x"]}));
    let options = ["--writable", "--revalidate", "0.1"];
    let Some(mount) = Mount::new(store.path(), &options, "netCDF, changes") else { return };
    let files = [mount.path("__formats__/nc/g/a.nc"), mount.path("__formats__/nc/g.nc")];
    let last_number = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        assert_eq!(fs::metadata(file).unwrap().len(), bytes.len() as u64);
        f64::from_le_bytes(bytes.last_chunk().copied().unwrap())
    };
    assert!(files.iter().all(|file| last_number(file) == 2.5));
    let opened = fs::File::open(&files[1]).unwrap();
    let array = fs::File::options().write(true).open(mount.path("g/a")).unwrap();
    array.write_all_at(&7f64.to_le_bytes(), 599 * 8).unwrap();
    let mut number = [0; 8];
    opened.read_exact_at(&mut number, opened.metadata().unwrap().len() - 8).unwrap();
    assert_eq!(f64::from_le_bytes(number), 7.0, "also by a handle that was open");
    assert!(files.iter().all(|file| last_number(file) == 7.0));
    drop((array, opened));
    let before = files.each_ref().map(|file| fs::metadata(file).unwrap().len());
    write(store.path(), "g/a", 1200, 600, &json!({"dimension_names": ["x"]}));
    assert!(files.iter().all(|file| last_number(file) == 2.5));
    let after = files.each_ref().map(|file| fs::metadata(file).unwrap().len());
    assert_eq!(after, before.map(|size| size + 600 * 8));
    write(store.path(), "g/x", 1200, 1200, &json!({"dimension_names": ["x"]}));
    assert!(fs::read(&files[0]).unwrap().len() as u64 > after[0] + 1200 * 8, "with its coordinate variable");
    mount.unmount();
}

/// Handles of one file that was made anew meanwhile read their own snapshots, although the kernel keeps pages of each inode.
#[test]
fn a_handle_keeps_its_snapshot() {
    let store = tempfile::tempdir().unwrap();
    let of_units = |units: &str| json!({"attributes": {"units": units}});
    write(store.path(), "a", 600, 600, &of_units("old"));
    let Some(mount) = Mount::new(store.path(), &["--revalidate", "0.1"], "netCDF, snapshots") else { return };
    let file = mount.path("__formats__/nc/a.nc");
    let content = |file: &fs::File| {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let says = |bytes: &[u8], word: &str| bytes.windows(word.len()).any(|window| window == word.as_bytes());
    let old = fs::File::open(&file).unwrap();
    let before = content(&old);
    assert!(says(&before, "old"));
    // The same length, then a longer header and a longer array.
    for (units, length) in [("new", 600), (&*"longer".repeat(1000), 1200)] {
        write(store.path(), "a", length, 600, &of_units(units));
        let new = fs::File::open(&file).unwrap();
        for _ in 0..2 {
            assert!(says(&content(&new), units) && !says(&content(&new), "old"));
            let of_old = content(&old);
            assert!(of_old == before, "{} of {} bytes", of_old.len(), before.len());
        }
        let again = fs::File::open(&file).unwrap();
        assert!(content(&again) == content(&new));
    }
    drop(old);
    mount.unmount();
}
