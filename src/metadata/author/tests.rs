//! What users write and what comes of it. tests/formats/authoring.rs compares the documents with zarr-python's.

#![allow(clippy::unwrap_used)]

use super::*;

fn spec(zarr_format: ZarrFormat, element: &str) -> ArraySpec<'static> {
    ArraySpec {
        zarr_format,
        shape: vec![10, 20],
        element: ElementType::parse(element).unwrap(),
        chunks: Some(vec![5, 10]),
        shards: None,
        codecs: None,
        fill_value: None,
        dimension_names: None,
        attributes: Vec::new(),
    }
}

fn document(spec: &ArraySpec<'_>) -> Value {
    let documents = spec.documents().unwrap();
    json::parse(documents.last().unwrap().text.as_bytes()).unwrap()
}

#[test]
fn names_of_types_in_any_spelling() {
    for (spellings, v3, v2) in [
        (&["float32", "f4", "<f4", "=f4"][..], json!("float32"), json!("<f4")),
        (&[">f4"], json!("float32"), json!(">f4")),
        (&["bool", "?", "b1", "|b1"], json!("bool"), json!("|b1")),
        (&["uint8", "u1", "|u1"], json!("uint8"), json!("|u1")),
        (
            &["datetime64[10ms]", "M8[10ms]", "<M8[10ms]"],
            json!({"name": "numpy.datetime64", "configuration": {"unit": "ms", "scale_factor": 10}}),
            json!("<M8[10ms]"),
        ),
        (
            &["S8", "|S8"],
            json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 8}}),
            json!("|S8"),
        ),
    ] {
        for spelling in spellings {
            let element = ElementType::parse(spelling).unwrap();
            assert_eq!((element.v3().unwrap(), element.v2().unwrap()), (v3.clone(), &v2), "{spelling}");
        }
    }
    assert_eq!(ElementType::parse("bfloat16").unwrap().v3().unwrap(), json!("bfloat16"));
    assert!(ElementType::parse("bfloat16").unwrap().v2().is_err());
    for refused in ["float31", "", "O", "string", "S0", "r", "[", "<"] {
        assert!(ElementType::parse(refused).is_err(), "{refused}");
    }
}

#[test]
fn codecs_in_words_and_in_json() {
    let with = |zarr_format, codecs| {
        let document = ArraySpec { codecs: Some(codecs), ..spec(zarr_format, "int16") }.documents();
        document.map(|documents| json::parse(documents.last().unwrap().text.as_bytes()).unwrap())
    };
    let v3 = |codecs| with(ZarrFormat::V3, codecs).unwrap()["codecs"].clone();
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    assert_eq!(v3("none"), json!([little]));
    assert_eq!(
        v3("zstd:3,crc32c"),
        json!([little, {"name": "zstd", "configuration": {"level": 3, "checksum": false}}, {"name": "crc32c"}])
    );
    assert_eq!(
        v3(r#"[{"name": "bytes", "configuration": {"endian": "big"}}]"#)[0]["configuration"]["endian"],
        "big"
    );
    let v2 = |codecs| with(ZarrFormat::V2, codecs).unwrap();
    assert_eq!(v2("blosc:zstd:1:bitshuffle")["compressor"]["shuffle"], 2);
    let filtered =
        v2(r#"{"filters": [{"id": "delta", "dtype": "<i2"}], "compressor": {"id": "zlib", "level": 2}}"#);
    assert_eq!(
        (&filtered["filters"][0]["id"], &filtered["compressor"]["level"]),
        (&json!("delta"), &json!(2))
    );
    for refused in
        ["zst", "zstd:x", "zstd:23", "gzip:10", "blosc:lz4:-1", "zstd:1:2", "{}", "[1]", "gzip:5:6", ""]
    {
        assert!(with(ZarrFormat::V3, refused).is_err(), "{refused}");
    }
    for refused in ["zstd:1,crc32c", "[]", r#"{"x": 1}"#, "blosc:lz4:5:sideways"] {
        assert!(with(ZarrFormat::V2, refused).is_err(), "{refused}");
    }
}

#[test]
fn contradictions_are_refused() {
    let v3 = || spec(ZarrFormat::V3, "float32");
    for refused in [
        ArraySpec { chunks: Some(vec![5]), ..v3() },
        ArraySpec { chunks: Some(vec![0, 5]), ..v3() },
        ArraySpec { chunks: None, shards: Some(vec![10, 20]), ..v3() },
        ArraySpec { shards: Some(vec![10, 15]), ..v3() },
        ArraySpec { shards: Some(vec![10, 20]), ..spec(ZarrFormat::V2, "float32") },
        ArraySpec { fill_value: Some("red"), ..v3() },
        ArraySpec { fill_value: Some("300"), ..spec(ZarrFormat::V3, "uint8") },
        ArraySpec { dimension_names: Some(vec![None]), ..v3() },
        ArraySpec { dimension_names: Some(vec![None, None]), ..spec(ZarrFormat::V2, "float32") },
        ArraySpec { attributes: vec![("a".to_owned(), "{".to_owned())], ..v3() },
        ArraySpec { shape: vec![u64::MAX, 2], ..v3() },
        ArraySpec { zarr_format: ZarrFormat::V1, ..v3() },
    ] {
        assert!(refused.documents().is_err(), "{refused:?}");
    }
}

#[test]
fn attributes_keep_their_text() {
    let attributes = vec![("n".to_owned(), "1E5".to_owned()), ("x".to_owned(), "NaN".to_owned())];
    let documents = ArraySpec { attributes: attributes.clone(), ..spec(ZarrFormat::V3, "float32") };
    assert!(documents.documents().unwrap()[0].text.contains(r#""attributes": {"n": 1E5,"x": NaN}"#));
    let group = group_documents(ZarrFormat::V2, &attributes).unwrap();
    assert_eq!((group[0].name, group[0].text.as_str()), (".zattrs", r#"{"n": 1E5,"x": NaN}"#));
    let named =
        ArraySpec { dimension_names: Some(vec![Some("y".into()), None]), ..spec(ZarrFormat::V3, "u1") };
    assert_eq!(document(&named)["dimension_names"], json!(["y", null]));
}
