//! Documents and numbers of zarr-python, tensorstore and ml_dtypes, against what this crate reads.
//!
//! `ZARRFS_TEST_PYTHON` (default `python3`) is an interpreter that has them; see tests/oracle/metadata.py.

use std::process::Command;

use serde_json::{Map, Value};
use zarrfs::metadata::{self, ArrayMetadata, ByteOrder, DataType, Document};

/// Returns the lines of one part of the script; `None`, with a message, where Python or a package is missing.
fn oracle(part: &str) -> Option<Vec<Value>> {
    let python = std::env::var("ZARRFS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/metadata.py");
    let output = Command::new(&python).args([script, part]).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8(output.stdout).unwrap();
            Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
        }
        failed => {
            let reason = match failed {
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{python} {part}: {reason}");
            eprintln!("SKIPPED: {python} could not run the part {part}: {reason}");
            None
        }
    }
}

fn parse(case: &Value) -> ArrayMetadata {
    let document = case["document"].to_string();
    if case["version"] == 2 {
        return metadata::parse_v2_array(".zarray", document.as_bytes(), None).unwrap();
    }
    match metadata::parse_v3("zarr.json", document.as_bytes()).unwrap() {
        Document::Array(array) => array,
        Document::Group(_) => panic!("{document} is a group"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn sizes_types_and_fill_values_of_zarr_python() {
    let Some(cases) = oracle("zarr") else { return };
    for case in &cases {
        let array = parse(case);
        assert_eq!(array.data_type.item_size().map(|size| size as u64), case["size"].as_u64(), "{case}");
        assert_eq!(array.data_type.numpy_descr(ByteOrder::Little), case["descr"], "{case}");
        assert_eq!(hex(&array.fill_value.bytes), case["fill"].as_str().unwrap(), "{case}");
        if case["version"] == 3 {
            // Our JSON form reads back to the same bytes.
            let mut document: Map<String, Value> = case["document"].as_object().unwrap().clone();
            document.insert("fill_value".to_owned(), array.fill_value.to_json(&array.data_type));
            let again = parse(&serde_json::json!({"version": 3, "document": document}));
            assert_eq!(again.fill_value, array.fill_value, "{case}");
        }
    }
    eprintln!("{} documents of zarr-python", cases.len());
}

#[test]
fn small_types_of_tensorstore() {
    let Some(cases) = oracle("tensorstore") else { return };
    for case in &cases {
        let array = parse(case);
        assert_eq!(array.data_type.name(), case["name"].as_str().unwrap(), "{case}");
        if case["version"] == 3 {
            let fill = array.fill_value.to_json(&array.data_type).as_f64();
            assert_eq!(fill, case["document"]["fill_value"].as_f64(), "{case}");
        }
    }
    eprintln!("{} documents of tensorstore", cases.len());
}

fn float(bits: &Value) -> f64 {
    f64::from_bits(u64::from_str_radix(bits.as_str().unwrap(), 16).unwrap())
}

#[test]
fn small_floats_of_ml_dtypes() {
    let Some(cases) = oracle("ml_dtypes") else { return };
    let (mut values, mut roundings) = (0, 0);
    for case in &cases {
        let name = case["name"].clone();
        let data_type: DataType = metadata::parse_data_type_v3(&name).unwrap();
        let format = data_type.minifloat().unwrap();
        for (code, value) in case["values"].as_array().into_iter().flatten().enumerate() {
            let (expected, found) = (float(value), format.decode(code as u16));
            let same = expected.to_bits() == found.to_bits() || (expected.is_nan() && found.is_nan());
            assert!(same, "{name} {code:#x}: {found}, and ml_dtypes {expected}");
            values += 1;
        }
        for pair in case["rounded"].as_array().into_iter().flatten() {
            let (value, code) = (float(&pair[0]), pair[1].as_u64().unwrap());
            assert_eq!(format.encode(value).map(u64::from), Some(code), "{name} {value}");
            roundings += 1;
        }
    }
    eprintln!("{values} values, {roundings} roundings of ml_dtypes");
}
