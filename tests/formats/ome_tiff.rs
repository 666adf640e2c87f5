//! Images of OME-Zarr as OME-TIFF through a mount: in tifffile and ImageJ, against zarr-python's values (tests/programs/ome_tiff.py), and their names.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::companions;
use crate::support::fixtures::python;
use crate::support::mounted::Mount;
use crate::support::place::wait_for;
use crate::support::{json_of, sorted_names};
use crate::support::{say, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/ome_tiff.py");

fn run(python: &Path, arguments: &[&Path]) -> Value {
    let output = Command::new(python).arg(PROGRAM).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn tifffile_reads_every_level_of_every_image() {
    let what = "OME-TIFF in tifffile";
    let Some(python) = companions::python_with_libraries(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &[Path::new("write"), folder.path()]);
    for byte_order in ["little", "big"] {
        let Some(mount) = Mount::new(folder.path(), &["--byte-order", byte_order], what) else { return };
        let report = run(&python, &[Path::new("check"), folder.path(), mount.point()]);
        assert_eq!(report, json!({"equal": 27}), "{byte_order}");
        mount.unmount();
    }
}

#[test]
#[ignore = "full: needs ImageJ"]
fn image_j_shows_channels_slices_and_frames() {
    let what = "OME-TIFF in ImageJ";
    let Some(python) = python(what) else { return };
    if !Path::new("/usr/share/java/ij.jar").exists() {
        skip(what, "ImageJ is not installed", true);
        return;
    }
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&python, &[Path::new("write"), folder.path()]);
    for byte_order in ["little", "big"] {
        let Some(mount) = Mount::new(folder.path(), &["--byte-order", byte_order], what) else { return };
        let report = run(&python, &[Path::new("imagej"), folder.path(), mount.point(), scratch.path()]);
        say(format!("{what}, {byte_order}-endian: {report}"));
        assert_eq!(report, json!({"equal": 18, "pictures": 18}));
        mount.unmount();
    }
}

/// Makes the group of an image, with an array of each of these lengths.
fn put_image(group: &Path, data_type: &str, levels: &[u64]) {
    let datasets: Vec<Value> = (0..levels.len())
        .map(|level| {
            let scale = json!([{"type": "scale", "scale": [1.0, 0.5, 0.5]}]);
            json!({"path": level.to_string(), "coordinateTransformations": scale})
        })
        .collect();
    let axes = json!([{"name": "c", "type": "channel"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]);
    let ome = json!({"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]});
    let document = json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome}});
    fs::create_dir_all(group).unwrap();
    fs::write(group.join("zarr.json"), document.to_string()).unwrap();
    for (level, length) in levels.iter().enumerate() {
        let shape = [2, *length, *length];
        let array = json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": 9,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]});
        fs::create_dir_all(group.join(level.to_string())).unwrap();
        fs::write(group.join(level.to_string()).join("zarr.json"), array.to_string()).unwrap();
    }
}

#[test]
fn names_of_images() {
    let what = "names of OME-TIFF files";
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("cells.ome.zarr");
    put_image(&store, "uint16", &[8, 4]);
    put_image(&store.join("labels/nuclei"), "uint32", &[8, 4]);
    put_image(&store.join("wide"), "int64", &[8]);
    put_image(&store.join("sub.ome"), "uint8", &[8]);
    let Some(mount) = Mount::new(&store, &[], what) else { return };
    let listed = |folder: &str| sorted_names(mount.path(folder));
    let tiff = "__formats__/tiff";
    assert_eq!(listed(tiff), ["0.tif", "1.tif", "cells.ome.tif", "labels", "sub.ome", "sub.ome.tif", "wide"]);
    assert_eq!(listed(&format!("{tiff}/labels")), ["nuclei", "nuclei.ome.tif"]);
    assert!(!listed("__formats__").contains(&"ome-tiff".to_owned()));
    for absent in
        ["tiff/wide.ome.tif", "tiff/0.ome.tif", "tiff/labels.ome.tif", "ome-tiff", "ome-tiff/cells.ome.tif"]
    {
        let found = fs::metadata(mount.path(&format!("__formats__/{absent}")));
        assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound, "{absent}");
    }
    let sidecar = |path: &str| -> Value { json_of(mount.path(path)) };
    assert_eq!(sidecar("__group__.json")["companions"]["ome-tiff"], "__formats__/tiff/cells.ome.tif");
    let reason = "its elements are integers of 64 bits or half-precision floats";
    assert_eq!(sidecar("wide/__group__.json")["absent"]["ome-tiff"], reason);
    assert_eq!(sidecar("0.json")["absent"].get("ome-tiff"), None);
    // A size that is right, and the bytes of both levels at its end.
    let bytes = fs::read(mount.path(&format!("{tiff}/cells.ome.tif"))).unwrap();
    assert_eq!(bytes.len() as u64, fs::metadata(mount.path(&format!("{tiff}/cells.ome.tif"))).unwrap().len());
    assert!(bytes.ends_with(&[9, 0].repeat(2 * 4 * 4)));
    // A level that is removed leaves the file without it.
    fs::remove_dir_all(store.join("1")).unwrap();
    let described = || {
        String::from_utf8_lossy(&fs::read(mount.path(&format!("{tiff}/cells.ome.tif"))).unwrap()[..2000])
            .into_owned()
    };
    wait_for(|| described().contains("Left out: the levels 1"));
    mount.unmount();
}

/// The bug: a level with a codec that zarrfs does not have took the whole file away.
#[test]
fn a_smaller_level_that_cannot_be_read_is_left_out_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("cells.zarr");
    put_image(&store, "uint16", &[8, 4, 2, 1]);
    fs::write(store.join("1/zarr.json"), "{").unwrap();
    let document = fs::read_to_string(store.join("2/zarr.json")).unwrap();
    fs::write(store.join("2/zarr.json"), document.replace("\"bytes\"", "\"no-such-codec\"")).unwrap();
    let Some(mount) = Mount::new(&store, &[], "levels that cannot be read") else { return };
    let bytes = fs::read(mount.path("__formats__/tiff/cells.ome.tif")).unwrap();
    assert!(bytes.ends_with(&[9, 0].repeat(2)));
    let text = String::from_utf8_lossy(&bytes[..4000]).into_owned();
    assert!(
        text.contains("Left out: the levels 1 (1/zarr.json: ") && text.contains(", 2 (2/zarr.json: "),
        "{text}"
    );
    let sidecar: Value = json_of(mount.path("__group__.json"));
    let left_out: Vec<&str> =
        sidecar["left_out"]["ome-tiff"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    assert!(left_out[0].starts_with("level 1 (1/zarr.json: "), "{left_out:?}");
    assert!(left_out[1].contains("no-such-codec"), "{left_out:?}");
    // The largest one is the image.
    fs::write(store.join("0/zarr.json"), "{").unwrap();
    wait_for(|| fs::metadata(mount.path("__formats__/tiff/cells.ome.tif")).is_err());
    mount.unmount();
}
