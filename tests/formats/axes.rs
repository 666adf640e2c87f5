//! Axes of times in companion files: a right date, or no file and the reason.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::json_of;
use crate::support::mounted::Mount;

fn write(store: &Path, name: &str, document: &Value, chunk: Option<(&str, &[f64])>) {
    let folder = store.join(name);
    fs::create_dir_all(folder.join("c")).unwrap();
    fs::write(folder.join("zarr.json"), document.to_string()).unwrap();
    if let Some((key, values)) = chunk {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        fs::write(folder.join(key), bytes).unwrap();
    }
}

fn document(shape: &[u64], names: &[&str], data_type: &str, attributes: &Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default"}, "attributes": attributes, "dimension_names": names,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]})
}

fn write_times(store: &Path, values: &[f64]) {
    let of_time = json!({"units": "days since 2001-01-01", "calendar": "noleap"});
    let times = document(&[values.len() as u64], &["time"], "float64", &of_time);
    write(store, "time", &times, Some(("c/0", values)));
}

fn cat(store: &Path, format: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.arg("cat").arg(store).args(["t", "--format", format]).output().unwrap()
}

fn absent(mount: &Mount) -> Value {
    let sidecar: Value = json_of(mount.path("t.json"));
    assert_eq!(sidecar["companions"]["grads"].is_null(), !sidecar["absent"]["grads"].is_null());
    sidecar["absent"]["grads"].clone()
}

#[test]
fn grads_has_right_dates_or_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path();
    fs::write(store.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    write(store, "t", &document(&[4, 2, 4], &["time", "lat", "lon"], "float32", &json!({})), None);
    write(
        store,
        "lat",
        &document(&[2], &["lat"], "float64", &json!({"units": "degrees_north"})),
        Some(("c/0", &[60.0, 10.0])),
    );
    write_times(store, &[15.5, 45.0, 74.5, 105.0]);
    let text = String::from_utf8(cat(store, "grads").stdout).unwrap();
    assert!(text.contains("TDEF 4 LINEAR 00:00Z16JAN2001 1MO\n"), "{text}");
    assert!(text.contains("yrev 365_day_calendar\n") && text.contains("YDEF 2 LINEAR 10.0 50.0\n"), "{text}");
    let times = String::from_utf8(cat(store, "xdmf").stdout).unwrap_or_default();
    assert!(!times.contains("Collection"), "three axes have no times");
    let Some(mount) = Mount::new(store, &["--revalidate", "0"], "times in companions") else { return };
    assert_eq!(fs::read_to_string(mount.path("__formats__/grads/t.ctl")).unwrap(), text);
    assert_eq!(absent(&mount), Value::Null);

    // No single step leads from one of them to the next.
    write_times(store, &[0.0, 31.0, 80.0, 81.0]);
    let output = cat(store, "grads");
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && reason.contains("format 'grads' cannot express 't'"), "{reason}");
    assert!(reason.contains("its axis 'time' has times with no step"), "{reason}");
    let sentence = absent(&mount);
    assert!(sentence.as_str().unwrap_or_default().contains("its axis 'time'"), "{sentence}");
    let missing = fs::metadata(mount.path("__formats__/grads/t.ctl")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let names: Vec<_> = fs::read_dir(mount.path("__formats__/grads"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.contains(&"t.ctl".to_owned()), "{names:?}");
    assert!(fs::metadata(mount.path("__formats__/nrrd/t.nhdr")).is_ok(), "other formats do not mind");
    mount.unmount();
}

/// Each grid of a collection has its own time, so times need no step.
#[test]
fn xdmf_has_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path();
    fs::write(store.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    let names = ["time", "z", "y", "x"];
    write(store, "t", &document(&[3, 2, 2, 2], &names, "float32", &json!({})), None);
    write_times(store, &[0.0, 31.0, 80.0]);
    let text = String::from_utf8(cat(store, "xdmf").stdout).unwrap();
    for value in ["0.0", "31.0", "80.0"] {
        assert!(text.contains(&format!("<Time Value=\"{value}\"/>")), "{text}");
    }
}
