//! Stores of N5 in a bucket, and in zips there, at a web server and in a folder, in both orders: as z5py and tensorstore read them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::fixtures::{has_modules, in_f_order, python, recorded_folder};
use crate::support::json_of;
use crate::support::misbehaving::{BUCKET, Service};
use crate::support::mounted::Mount;
use crate::support::skip;

/// Unpacks the recorded stores of zarr-python and z5py: the arrays of every compression whose types end so.
fn unpacked(types: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let archive = recorded_folder().join("n5.zip");
    zip::ZipArchive::new(fs::File::open(archive).unwrap()).unwrap().extract(folder.path()).unwrap();
    fs::create_dir(folder.path().join("bucket")).unwrap();
    for store in ["zarr.n5", "z5py.n5"] {
        fs::rename(folder.path().join(store), folder.path().join("bucket").join(store)).unwrap();
    }
    for library in ["zarr", "z5py"] {
        for file in fs::read_dir(folder.path().join(library)).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            if !types.iter().any(|end| name.ends_with(end)) {
                fs::remove_dir_all(folder.path().join(format!("bucket/{library}.n5/{name}"))).unwrap();
                fs::remove_file(&file).unwrap();
            }
        }
    }
    folder
}

/// Compares the arrays of a mount with the elements that a library reads, in the mount's own order and as a view in the other one; returns how many.
fn compare(mount: &Mount, is_f_order: bool, expected: &Path) -> usize {
    let files: Vec<_> = fs::read_dir(expected).unwrap().map(|entry| entry.unwrap().path()).collect();
    for file in &files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let sidecar: Value = json_of(mount.path(&format!("{name}.json")));
        let lengths = sidecar["shape"].as_array().unwrap().iter();
        let shape: Vec<usize> = lengths.map(|length| length.as_u64().unwrap() as usize).collect();
        let c_order = fs::read(file).unwrap();
        let f_order = in_f_order(&c_order, &shape);
        let (own, view) = if is_f_order { (&f_order, "c-order") } else { (&c_order, "f-order") };
        assert_eq!(&fs::read(mount.path(name)).unwrap(), own, "{name}");
        let other = if is_f_order { &c_order } else { &f_order };
        assert_eq!(
            &fs::read(mount.path(&format!("__views__/{view}/{name}"))).unwrap(),
            other,
            "{name} in {view}"
        );
    }
    files.len()
}

/// Packs a folder into a zip, in a folder of this name.
fn pack(folder: &Path, name: &str, to: &Path) {
    let mut zip = zip::ZipWriter::new(fs::File::create(to).unwrap());
    let mut folders = vec![(folder.to_owned(), name.to_owned())];
    while let Some((folder, name)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                folders.push((entry.path(), name));
                continue;
            }
            zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(&fs::read(entry.path()).unwrap()).unwrap();
        }
    }
    zip.finish().unwrap();
}

/// Mounts a store at these places in both orders, and compares it.
fn at_every_place(bucket: &Path, store: &str, (expected, count): (&Path, usize)) {
    pack(&bucket.join(store), store, &bucket.join("packed.zip"));
    let service = Service::start(bucket);
    let endpoint = service.endpoint();
    let s3 = ["--endpoint-url", &endpoint, "--no-sign-request"];
    let own = |place: &str| format!("s3://{BUCKET}/{place}");
    for (url, options) in [
        (own(store), &s3[..]),
        (own(&format!("packed.zip|zip:{store}/")), &s3),
        (format!("{endpoint}/{BUCKET}/packed.zip|zip:{store}/"), &[]),
        (bucket.join(format!("packed.zip|zip:{store}/")).display().to_string(), &[]),
    ] {
        for order in ["C", "F"] {
            let options = [options, &["--order", order]].concat();
            let Some(mount) = Mount::new(Path::new(&url), &options, "N5 at many places") else { return };
            assert_eq!(compare(&mount, order == "F", expected), count, "{url} {order}");
            mount.unmount();
        }
    }
}

#[test]
fn stores_of_z5py_in_a_bucket_and_in_zips() {
    let folder = unpacked(&["_int32", "float64"]);
    at_every_place(&folder.path().join("bucket"), "z5py.n5", (&folder.path().join("z5py"), 14));
}

#[test]
fn stores_of_tensorstore_in_a_bucket_and_in_zips() {
    let what = "tensorstore's N5 in a bucket";
    let Some(python) = python(what) else { return };
    if !has_modules(&python, "tensorstore") {
        return skip(what, "the interpreter lacks tensorstore", true);
    }
    let folder = tempfile::tempdir().unwrap();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/n5_stores.py");
    let output = Command::new(&python).arg(program).arg(folder.path()).arg("tensorstore").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bucket = folder.path().join("bucket");
    fs::create_dir(&bucket).unwrap();
    fs::rename(folder.path().join("tensorstore.n5"), bucket.join("tensorstore.n5")).unwrap();
    at_every_place(&bucket, "tensorstore.n5", (&folder.path().join("tensorstore"), 70));
}

#[test]
fn a_bucket_with_a_store_of_n5_is_listed() {
    let folder = unpacked(&["_int32", "float64"]);
    let service = Service::start(&folder.path().join("bucket"));
    let endpoint = service.endpoint();
    let options = ["--endpoint-url", &endpoint, "--no-sign-request"];
    let url = format!("s3://{BUCKET}/z5py.n5");
    let Some(mount) = Mount::new(Path::new(&url), &options, "N5 in a bucket") else { return };
    assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 29, "14 arrays, their sidecars and the group's");
    mount.unmount();
}
