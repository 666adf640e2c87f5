//! The value without data is the same in every form of an array: sidecar, companion files, the view `unpacked`, `zarrfs preview`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::mounted::Mount;

/// Writes two rows of three elements. The last element is without data.
fn write_v2(store: &Path, name: &str, dtype: &str, elements: &[u8], fill: &Value, attributes: &Value) {
    let folder = store.join(name);
    fs::create_dir_all(&folder).unwrap();
    let zarray = json!({"zarr_format": 2, "shape": [2, 3], "chunks": [2, 3], "dtype": dtype, "order": "C",
        "compressor": null, "filters": null, "fill_value": fill});
    fs::write(folder.join(".zarray"), zarray.to_string()).unwrap();
    fs::write(folder.join(".zattrs"), attributes.to_string()).unwrap();
    fs::write(folder.join("0.0"), elements).unwrap();
}

fn cat(store: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_zarrfs")).arg("cat").arg(store).args(arguments).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn every_format_knows_the_no_data_value() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path();
    fs::write(store.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let floats: Vec<u8> =
        [1f32, 2.0, 3.0, 4.0, 5.0, 1e20].iter().flat_map(|value| value.to_le_bytes()).collect();
    let integers: Vec<u8> = [1i16, 2, 3, 4, 5, -9999].iter().flat_map(|value| value.to_le_bytes()).collect();
    let dimensions = json!({"_ARRAY_DIMENSIONS": ["y", "x"]});
    // As xarray writes a `_FillValue` into v2.
    write_v2(store, "floats", "<f4", &floats, &json!(1e20), &dimensions);
    write_v2(store, "integers", "<i2", &integers, &json!(-9999), &dimensions);
    // As GDAL's programs name it.
    write_v2(store, "named", "<i2", &integers, &Value::Null, &json!({"nodata": -9999}));
    let line: Vec<u8> = [1i16, -9999, 3, 4, 5, 6].iter().flat_map(|value| value.to_le_bytes()).collect();
    for name in ["table/a", "table/b"] {
        write_v2(store, name, "<i2", &line, &json!(-9999), &json!({"_ARRAY_DIMENSIONS": ["row"]}));
        let zarray = fs::read_to_string(store.join(name).join(".zarray")).unwrap().replace("[2,3]", "[6]");
        fs::write(store.join(name).join(".zarray"), zarray).unwrap();
        fs::rename(store.join(name).join("0.0"), store.join(name).join("0")).unwrap();
    }
    fs::write(store.join("table/.zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    for order in ["little", "big"] {
        let Some(mount) = Mount::new(store, &["--byte-order", order], "tables without data") else {
            continue;
        };
        let text = fs::read_to_string(mount.path("__formats__/csv/table.csv")).unwrap();
        assert_eq!(text, "\"a\",\"b\"\n1,1\n,\n3,3\n4,4\n5,5\n6,6\n");
        mount.unmount();
    }
    // 1e20 as float32, exactly.
    for (name, exact) in [("floats", "1.0000000200408773e20"), ("integers", "-9999.0"), ("named", "-9999.0")]
    {
        let header = |format: &str| String::from_utf8(cat(store, &[name, "--format", format])).unwrap();
        assert!(header("vrt").contains(&format!("<NoDataValue>{exact}</NoDataValue>")), "{name}");
        assert!(header("envi").contains(&format!("data ignore value = {exact}\n")), "{name}");
        let undefined = format!("UNDEF {:e}\n", exact.parse::<f64>().unwrap());
        assert!(header("grads").contains(&undefined), "{name}: {}", header("grads"));
        let tiff = cat(store, &[name, "--format", "tiff"]);
        assert!(contains(&tiff, format!("{exact}\0").as_bytes()), "{name}");
        let nc = cat(store, &[name, "--format", "nc"]);
        assert!(contains(&nc, b"_FillValue"), "{name}");
        let sidecar: Value = serde_json::from_slice(&cat(store, &[name, "--format", "json"])).unwrap();
        let listed = sidecar["no_data"].as_array().map(|values| values.iter().map(Value::as_f64).collect());
        assert_eq!(listed, Some(vec![exact.parse().ok()]), "{name}");
        let preview = Command::new(env!("CARGO_BIN_EXE_zarrfs")).arg("preview").arg(store).arg(name).output();
        let preview = String::from_utf8(preview.unwrap().stdout).unwrap();
        assert!(preview.contains("mean") && preview.contains('3'), "{preview}");
        let Some(mount) = Mount::new(store, &[], "values without data") else { continue };
        let unpacked = fs::read(mount.path(&format!("__views__/unpacked/{name}"))).unwrap();
        let last = f32::from_le_bytes(*unpacked.last_chunk().unwrap());
        assert!(unpacked.len() == 24 && last.is_nan(), "{name}: {last}");
        mount.unmount();
    }
}
