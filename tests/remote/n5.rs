//! Stores of N5 in a bucket.

use std::fs;
use std::path::Path;

use crate::support::fixtures::recorded_folder;
use crate::support::misbehaving::{BUCKET, Service};
use crate::support::mounted::Mount;

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

/// Compares the arrays below a place of a mount with the elements of a library; returns how many.
fn compare(mount: &Mount, place: &str, expected: &Path) -> usize {
    let files: Vec<_> = fs::read_dir(expected).unwrap().map(|entry| entry.unwrap().path()).collect();
    for file in &files {
        let name = format!("{place}{}", file.file_stem().unwrap().to_str().unwrap());
        assert_eq!(fs::read(mount.path(&name)).unwrap(), fs::read(file).unwrap(), "{name}");
    }
    files.len()
}

#[test]
fn a_bucket_with_stores_of_n5() {
    let folder = unpacked(&["_int32", "float64"]);
    let service = Service::start(&folder.path().join("bucket"));
    let endpoint = service.endpoint();
    let options = ["--endpoint-url", &endpoint, "--no-sign-request"];
    let url = format!("s3://{BUCKET}/z5py.n5");
    let Some(mount) = Mount::new(Path::new(&url), &options, "N5 in a bucket") else { return };
    assert_eq!(compare(&mount, "", &folder.path().join("z5py")), 14);
    assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 29, "14 arrays, their sidecars and the group's");
    mount.unmount();
}
