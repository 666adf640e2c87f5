//! `--formats`: companion files in the groups' own folders, and what the sidecar says of companion files.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::companions::{python_with_libraries, run, store};
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::say;

/// Returns the names in a folder, sorted, without sidecars.
fn listed(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.ends_with(".json")).collect();
    names.sort();
    names
}

fn sidecar(mount: &Mount, file: &str) -> Value {
    json_of(mount.path(file))
}

fn is_absent(mount: &Mount, file: &str) -> bool {
    fs::symlink_metadata(mount.path(file)).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[test]
#[ignore = "full: needs the libraries of companion files"]
fn listed_next_to_their_arrays() {
    let what = "companion files next to arrays";
    let store =
        store(&[("a", &[3, 5]), ("b 50%", &[3, 5]), ("LIST", &[2, 3]), ("scalar", &[]), ("deep/c", &[2])]);
    let root = store.path().file_name().unwrap().to_str().unwrap();
    let options = ["-o", "ro,formats=nc:nhdr:mhd,formats=ctl", "--formats", "npy,xdmf", "--formats", "vrt"];
    let Some(mount) = Mount::new(store.path(), &options, what) else { return };
    let mut expected: Vec<String> = [
        "LIST",
        "LIST.nc",
        "LIST.npy",
        "a",
        "a.ctl",
        "a.mhd",
        "a.nc",
        "a.nhdr",
        "a.npy",
        "a.vrt",
        "a.xmf",
        "b 50%",
        "b 50%.nc",
        "b 50%.npy",
        "deep",
        "deep.nc",
        "scalar",
        "scalar.nc",
        "scalar.npy",
    ]
    .map(str::to_owned)
    .into();
    expected.push(format!("{root}.nc"));
    expected.sort();
    assert_eq!(listed(mount.point()), expected, "and no __formats__");
    assert_eq!(listed(&mount.path("deep")), ["c", "c.mhd", "c.nc", "c.nhdr", "c.npy", "c.vrt"]);
    // A header cannot name these data files safely.
    for absent in
        ["b 50%.nhdr", "b+2050+25.nhdr", "b+2050+25", "LIST.mhd", "scalar.nhdr", "deep.npy", "a.hdr", "a.tif"]
    {
        assert!(is_absent(&mount, absent), "{absent}");
    }
    assert!(fs::read_to_string(mount.path("a.nhdr")).unwrap().ends_with("\ndata file: a\n\n"));
    for entry in fs::read_dir(mount.point()).unwrap().map(Result::unwrap).filter(|it| it.path().is_file()) {
        assert_eq!(entry.metadata().unwrap().len(), fs::read(entry.path()).unwrap().len() as u64);
    }
    let companions = &sidecar(&mount, "b 50%.json")["companions"];
    assert_eq!((&companions["npy"], &companions["nc"]), (&json!("b 50%.npy"), &json!("b 50%.nc")));
    assert_eq!(companions["nrrd"], "__formats__/nrrd/b+2050+25.nhdr");
    assert_eq!(sidecar(&mount, "deep/c.json")["companions"]["mhd"], "deep/c.mhd");
    assert_eq!(sidecar(&mount, "deep/__group__.json")["companions"], json!({"nc": "deep.nc"}));
    assert_eq!(sidecar(&mount, "__group__.json")["companions"], json!({"nc": format!("{root}.nc")}));
    let formats = json!(["grads", "mhd", "nc", "npy", "nrrd", "vrt", "xdmf"]);
    assert_eq!(sidecar(&mount, "__zarrfs__/config.json")["formats"], formats);
    // Programs open them there, and in a copy.
    if let Some(python) = python_with_libraries(what) {
        let copy = store.path().join("../").join(format!("{root}-copy"));
        assert!(Command::new("cp").arg("-r").arg(mount.point()).arg(&copy).status().unwrap().success());
        for folder in [mount.point(), &copy] {
            let report = run(&python, &["next", folder.to_str().unwrap()]);
            assert_eq!(report, json!({"equal": 9, "wrong": []}), "{}", folder.display());
        }
        fs::remove_dir_all(copy).unwrap();
    }
    mount.unmount();
}

#[test]
fn real_nodes_win() {
    let store = store(&[("a", &[3]), ("a.npy", &[2]), ("a.nc/b", &[4]), ("g/x", &[5]), ("g.nc", &[6])]);
    let options = ["--formats", "npy,nc", "--revalidate", "0.1"];
    let Some(mount) = Mount::new(store.path(), &options, "names next to arrays") else { return };
    let size = |file: &str| fs::metadata(mount.path(file)).unwrap().len();
    assert_eq!((size("a.npy"), size("g.nc")), (2, 6));
    assert!(fs::metadata(mount.path("a.nc")).unwrap().is_dir());
    let names = listed(mount.point());
    assert!(names.is_sorted_by(|one, other| one < other), "no name twice: {names:?}");
    assert_eq!(size("a.npy.npy"), 4096 + 2);
    let companions = |file: &str| sidecar(&mount, file)["companions"].clone();
    assert_eq!(companions("a.json")["npy"], "__formats__/npy/a.npy");
    assert_eq!(companions("a.json")["nc"], "__formats__/nc/a.nc");
    assert_eq!(companions("g/__group__.json")["nc"], "__formats__/nc/g.nc");
    assert_eq!(companions("g/x.json")["npy"], "g/x.npy");
    assert_eq!(size("__formats__/npy/a.npy"), 4096 + 3);
    // Also one that comes later.
    assert_eq!(size("g/x.npy"), 4096 + 5);
    fs::create_dir(store.path().join("g/x.npy")).unwrap();
    fs::copy(store.path().join("a/zarr.json"), store.path().join("g/x.npy/zarr.json")).unwrap();
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(size("g/x.npy"), 3);
    assert_eq!(companions("g/x.json")["npy"], "__formats__/npy/g/x.npy");
    mount.unmount();
}

#[test]
fn a_root_that_is_an_array_has_them_too() {
    let folder = store(&[("root.zarr", &[2, 3]), ("50%.zarr", &[2, 3])]);
    for (name, expected) in [("root", &["root", "root.mhd", "root.npy"][..]), ("50%", &["50%", "50%.npy"])] {
        let store = folder.path().join(format!("{name}.zarr"));
        let Some(mount) = Mount::new(&store, &["--formats=npy:mhd"], "a root's companions next to it") else {
            return;
        };
        assert_eq!(listed(mount.point()), expected);
        assert_eq!(sidecar(&mount, &format!("{name}.json"))["companions"]["npy"], format!("{name}.npy"));
        assert_eq!(fs::read(mount.path(&format!("{name}.npy"))).unwrap()[4096..], [9; 6]);
        mount.unmount();
    }
}

#[test]
fn the_sidecar_says_what_is_absent_and_left_out() {
    let store = store(&[("flat", &[2, 3]), ("empty", &[0])]);
    let path = store.path().join("flat/zarr.json");
    let mut document: Value = json_of(&path);
    document["dimension_names"] = json!(["y\"z", "x"]);
    document["attributes"] = json!({"scale": [1, 2], "units": ["m\ndata file: /etc/passwd", "m"], "CLASS": "x",
        "crs_wkt": "<SRS>", "_FillValue": {"a": 1}, "missing_value": 3});
    fs::write(&path, document.to_string()).unwrap();
    let Some(mount) = Mount::new(store.path(), &[], "what sidecars say of companions") else { return };
    let flat = sidecar(&mount, "flat.json");
    assert_eq!(
        flat["left_out"],
        json!({"envi": ["_FillValue", "crs_wkt"], "grads": ["_FillValue"],
        "nc": ["CLASS", "_FillValue"], "nifti": ["units"], "nrrd": ["units", "dimension_names"], "tiff": ["_FillValue", "units"],
        "vrt": ["_FillValue", "crs_wkt"]})
    );
    assert_eq!(
        flat["absent"],
        json!({"mrc": "holds int8, int16, uint16, float16, float32 and complex64, along 2 to 4 axes longer than 0"})
    );
    let empty = sidecar(&mount, "empty.json");
    let absent = empty["absent"].as_object().unwrap();
    let companions = empty["companions"].as_object().unwrap();
    assert_eq!(companions.keys().collect::<Vec<_>>(), ["nc", "npy", "safetensors"]);
    assert_eq!(absent.len() + companions.len(), 12);
    assert_eq!(absent.get("spikeglx"), None, "nothing says that it is a recording");
    assert_eq!(absent["nrrd"], "holds integers, float32 and float64, along 1 to 16 axes longer than 0");
    mount.unmount();
}

/// Attributes and names that would break a header: every file that there is opens, with the array's values.
#[test]
#[ignore = "full: needs the libraries of companion files"]
fn every_format_of_hostile_attributes() {
    let what = "hostile attributes in companion files";
    let Some(python) = python_with_libraries(what) else { return };
    let store = crate::netcdf::stores(&python).join("hostile");
    let Some(mount) = Mount::new(&store, &[], what) else { return };
    let report = run(&python, &["check", store.to_str().unwrap(), mount.point().to_str().unwrap(), "C"]);
    for (format, found) in report.as_object().unwrap() {
        say(format!("{what}: {format}: equal {}, {} absent", found["equal"], found["absent"]));
        assert_eq!(found["wrong"], json!([]), "{format}");
    }
    let left_out = |array: &str| sidecar(&mount, &format!("{array}.json"))["left_out"].clone();
    let names = left_out("names")["nc"].to_string();
    assert!(names.contains("\"CLASS\"") && names.contains("\"_FillValue\""), "{names}");
    assert_eq!(left_out("many")["nc"].as_array().unwrap().last(), Some(&json!("…")));
    let header = left_out("header");
    assert_eq!(header["nrrd"], json!(["units", "dimension_names"]));
    assert_eq!(header["vrt"], json!(["_FillValue", "missing_value", "crs_wkt", "spatial_ref"]));
    mount.unmount();
}
