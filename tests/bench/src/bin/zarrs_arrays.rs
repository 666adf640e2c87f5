//! Writes arrays of the zarrs crate's data types, codecs, grids and keys, for tests/recorded/zarrs.zip (`scripts/make_recorded.py`).
//!
//!     zarrs_arrays FOLDER
//!
//! Each array is a store of its own, `NAME/`. `NAME.bin` has its elements as zarrfs serves them, `NAME.mask.bin` the mask of optional
//! ones, and `NAME.jsonl` strings.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use zarrs::array::{Array, ArrayBytes};
use zarrs::filesystem::FilesystemStore;
use zarrs::metadata::ArrayMetadata;

type Outcome = Result<(), Box<dyn Error>>;

/// An array of 5 × 7 elements in chunks of 2 × 3.
fn document(data_type: Value, fill_value: Value, codecs: Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": [5, 7], "data_type": data_type, "fill_value": fill_value,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": codecs})
}

fn bytes(endian: &str) -> Value {
    json!({"name": "bytes", "configuration": {"endian": endian}})
}

/// Returns bytes that repeat late; of each byte only `bits` are used.
fn sample(length: usize, bits: u32) -> Vec<u8> {
    let byte = |number: usize| (number.wrapping_mul(2_654_435_761) >> 7) as u8;
    (0..length).map(|number| byte(number) & (0xff >> (8 - bits))).collect()
}

fn write(folder: &Path, name: &str, document: &Value, elements: ArrayBytes<'_>) -> Outcome {
    let store = Arc::new(FilesystemStore::new(folder.join(name))?);
    let metadata: ArrayMetadata = serde_json::from_value(document.clone())?;
    let array = Array::new_with_metadata(store, "/", metadata)?;
    array.store_metadata()?;
    // The document as it was asked for: zarrs adds what it knows about itself.
    fs::write(folder.join(name).join("zarr.json"), document.to_string())?;
    array.store_array_subset(&array.subset_all(), elements)?;
    Ok(())
}

fn write_fixed(folder: &Path, name: &str, document: &Value, elements: Vec<u8>) -> Outcome {
    fs::write(folder.join(format!("{name}.bin")), &elements)?;
    write(folder, name, document, ArrayBytes::new_flen(elements))
}

fn complex(folder: &Path) -> Outcome {
    let small = [
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ];
    for part in small.into_iter().chain(["float16", "bfloat16", "float32", "float64"]) {
        let size = match part {
            "float16" | "bfloat16" => 4,
            "float32" => 8,
            "float64" => 16,
            _ => 2,
        };
        let bits = if part.contains('4') && part.starts_with("float4") {
            4
        } else if part.starts_with("float6") {
            6
        } else {
            8
        };
        let elements = sample(5 * 7 * size, bits);
        let data_type = json!(format!("complex_{part}"));
        let fill = json!(["0x", "0x"].map(|prefix| format!("{prefix}{}", "01".repeat(size / 2))));
        for endian in ["little", "big"] {
            let document = document(data_type.clone(), fill.clone(), json!([bytes(endian)]));
            write_fixed(folder, &format!("complex_{part}_{endian}"), &document, elements.clone())?;
        }
        if bits < 8 {
            let document = document(data_type, fill, json!([{"name": "packbits", "configuration": {}}]));
            write_fixed(folder, &format!("complex_{part}_packbits"), &document, elements)?;
        }
    }
    Ok(())
}

fn optional(folder: &Path) -> Outcome {
    let configuration = json!({"name": "float32", "configuration": {}});
    let data_type = json!({"name": "zarrs.optional", "configuration": configuration});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    for (name, fill) in [("null", json!(null)), ("value", json!([1.5]))] {
        let codecs = json!([{"name": "zarrs.optional", "configuration": {
            "mask_codecs": [{"name": "packbits", "configuration": {}}, gzip], "data_codecs": [bytes("big"), gzip]}}]);
        let mask: Vec<u8> = (0..35u32).map(|number| u8::from(number % 3 != 1 && number > 4)).collect();
        let values = sample(35 * 4, 8);
        let own: f32 = if name == "value" { 1.5 } else { 0.0 };
        let served = values.chunks(4).zip(&mask).flat_map(|(value, &has_value)| {
            if has_value == 1 { value.to_vec() } else { own.to_le_bytes().to_vec() }
        });
        fs::write(folder.join(format!("optional_{name}.bin")), served.collect::<Vec<u8>>())?;
        fs::write(folder.join(format!("optional_{name}.mask.bin")), &mask)?;
        let elements = ArrayBytes::new_flen(values).with_optional_mask(mask);
        write(folder, &format!("optional_{name}"), &document(data_type.clone(), fill, codecs), elements)?;
    }
    Ok(())
}

fn strings(folder: &Path) -> Outcome {
    let vlen = |location: &str, data_type: &str| {
        json!({"name": "zarrs.vlen", "configuration": {
        "data_codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}],
        "index_codecs": [bytes("little"), {"name": "crc32c"}], "index_data_type": data_type, "index_location": location}})
    };
    for (name, codec) in [
        ("vlen_start", vlen("start", "uint32")),
        ("vlen_end", vlen("end", "uint64")),
        ("vlen_v2", json!({"name": "zarrs.vlen_v2"})),
    ] {
        let strings: Vec<String> =
            (0..35).map(|number| "é".repeat(number % 5) + &number.to_string()).collect();
        let text: String = strings.iter().map(|string| format!("\"{string}\"\n")).collect();
        fs::write(folder.join(format!("{name}.jsonl")), text)?;
        let (mut data, mut offsets) = (Vec::new(), vec![0]);
        for string in &strings {
            data.extend_from_slice(string.as_bytes());
            offsets.push(data.len());
        }
        let elements = ArrayBytes::new_vlen(data, zarrs::array::ArrayBytesOffsets::new(offsets)?)?;
        write(folder, name, &document(json!("string"), json!("fill"), json!([codec])), elements)?;
    }
    Ok(())
}

fn places(folder: &Path) -> Outcome {
    let elements = sample(5 * 7 * 2, 8);
    let plain = document(json!("uint16"), json!(7), json!([bytes("little")]));
    let mut bounded = plain.clone();
    bounded["chunk_grid"]["name"] = json!("zarrs.regular_bounded");
    write_fixed(folder, "regular_bounded", &bounded, elements.clone())?;
    for (name, separator) in [("suffix_slash", "/"), ("suffix_dot", ".")] {
        let mut suffix = plain.clone();
        let configuration = json!({"separator": separator, "suffix": ".tiff"});
        suffix["chunk_key_encoding"] =
            json!({"name": "zarrs.default_suffix", "configuration": configuration});
        write_fixed(folder, name, &suffix, elements.clone())?;
    }
    let mut squeezed = document(
        json!("uint16"),
        json!(7),
        json!([{"name": "zarrs.squeeze", "configuration": {}},
        {"name": "transpose", "configuration": {"order": [1, 0]}}, bytes("big")]),
    );
    squeezed["shape"] = json!([5, 1, 7]);
    squeezed["chunk_grid"]["configuration"]["chunk_shape"] = json!([2, 1, 3]);
    write_fixed(folder, "squeeze", &squeezed, elements)
}

fn main() -> Outcome {
    let folder = std::env::args().nth(1).ok_or("usage: zarrs_arrays FOLDER")?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    complex(folder)?;
    optional(folder)?;
    strings(folder)?;
    places(folder)
}
