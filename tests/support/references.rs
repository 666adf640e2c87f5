//! Files of HDF5, netCDF and TIFF, references to them, and their values (tests/programs/references.py).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use super::fixtures::output_of;
use super::fixtures::{has_modules, python};
use super::mounted::Mount;
use super::{folders, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/references.py");

/// The bytes of each array of each references file or folder, as files.
pub type Expected = BTreeMap<String, BTreeMap<String, String>>;

fn python_with_kerchunk(what: &str) -> Option<PathBuf> {
    let python = python(what)?;
    if has_modules(&python, "kerchunk scipy virtualizarr fastparquet tifffile") {
        return Some(python);
    }
    skip(what, "the interpreter lacks kerchunk, virtualizarr, fastparquet or scipy", true);
    None
}

/// Returns the folder of the program, made once, and what is expected.
pub fn made(what: &str) -> Option<(&'static Path, Expected)> {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let python = python_with_kerchunk(what)?;
    let folder = FOLDER.get_or_init(|| {
        let folder = folders::of_process(env!("CARGO_TARGET_TMPDIR"), "references");
        output_of(&python, PROGRAM, &["make", folder.to_str().unwrap()]);
        folder
    });
    let expected = fs::read(folder.join("expected.json")).unwrap();
    Some((folder, serde_json::from_slice(&expected).unwrap()))
}

/// Writes references to files below a URL, `urls.json` and `urls.parq`, into a new folder.
pub fn to_url(base: &str, what: &str) -> Option<TempDir> {
    let python = python_with_kerchunk(what)?;
    let (made, _) = made(what)?;
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    fs::copy(made.join("data/a.h5"), folder.path().join("data/a.h5")).unwrap();
    output_of(&python, PROGRAM, &["urls", folder.path().to_str().unwrap(), base]);
    Some(folder)
}

/// Fails unless a mount shows these bytes.
pub fn compare(mount: &Mount, folder: &Path, arrays: &BTreeMap<String, String>, of: &str) {
    for (array, values) in arrays {
        let read = fs::read(mount.path(array))
            .unwrap_or_else(|error| panic!("{of}, {array}: {error}; {}", mount.log()));
        assert!(read == fs::read(folder.join(values)).unwrap(), "{of}, {array}: {} bytes differ", read.len());
    }
}
