//! `zarrfs import` of netCDF, HDF5 and TIFF files that netCDF4, scipy, h5netcdf, h5py and tifffile make: xarray's own reading of each file equals its
//! reading of the store (tests/programs/import_files.py).

use std::process::Command;

use crate::support::fixtures::{has_modules, python};
use crate::support::{level, say, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/import_files.py");

/// Runs a part of the program.
fn check(what: &str, modules: &'static str) {
    let Some(python) = python(what) else { return };
    if !has_modules(&python, modules) {
        return skip(what, "the interpreter lacks one of its libraries", true);
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(PROGRAM)
        .args([env!("CARGO_BIN_EXE_zarrfs"), folder.path().to_str().unwrap(), what])
        .arg(level::pick("8", "60"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    say(format!("imported, {what}: {}", text.trim().replace('\n', ", ")));
}

#[test]
#[ignore = "full: needs netCDF4, scipy and xarray"]
fn classic_files_are_read_as_xarray_reads_them() {
    check("classic", "netCDF4 scipy xarray zarr");
}

#[test]
#[ignore = "full: needs h5py, h5netcdf, netCDF4 and xarray"]
fn hdf5_files_are_read_as_xarray_reads_them() {
    check("hdf5", "h5py h5netcdf netCDF4 xarray zarr");
}

#[test]
#[ignore = "full: needs h5py and hdf5plugin"]
fn filters_of_hdf5_are_decoded() {
    check("filters", "h5py hdf5plugin zarr");
}

#[test]
#[ignore = "full: needs tifffile"]
fn tiff_files_are_read_as_tifffile_reads_them() {
    check("tiff", "tifffile imagecodecs zarr");
}

#[test]
#[ignore = "full: needs h5py, netCDF4, tifffile and xarray"]
fn parts_of_files_are_those_of_other_readers() {
    check("sliced", "h5py netCDF4 tifffile xarray zarr cftime");
}

#[test]
#[ignore = "full: needs netCDF4 and xarray"]
fn files_are_appended_to_all_arrays_at_once() {
    check("append", "netCDF4 xarray zarr");
}

#[test]
#[ignore = "full: needs h5py, netCDF4 and tifffile"]
fn damaged_files_leave_one_sentence_and_no_store() {
    check("refused", "h5py netCDF4 tifffile");
}
