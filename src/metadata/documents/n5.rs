//! `attributes.json`: groups and datasets of N5, rewritten in v3's terms.
//!
//! Spec: N5 4.0.0, "File-system specification"; the compressions of n5-blosc, n5-zstandard, z5 and zarr-python's N5Store. Uses the other
//! files of this folder.
//!
//! ```json
//! {"dimensions": [512, 512, 64], "blockSize": [64, 64, 64], "dataType": "uint16", "compression": {"type": "gzip", "level": -1}}
//! ```
//!
//! The first dimension of N5 varies fastest. The array has the dimensions in reverse, as in zarr-python and z5, so its flat file in C order
//! has the elements in N5's order. A dataset is a chain of the one codec `n5_default` of the family N5, which knows that, and chunk keys in
//! reverse. Missing blocks are zeros. All other members are attributes; the group's `n5` is the version of the format.

use serde_json::{Map, Value, json as object};

use crate::metadata::json::parse_error::{ParseError, ParseResult};
use crate::metadata::{
    ArrayMetadata, ChunkGrid, ChunkKeyEncoding, CodecFamily, CodecSpec, DataType, Document, FillValue,
    GroupMetadata, ZarrFormat,
};
use crate::metadata::{array, json};

/// The newest version of N5 that is read.
const NEWEST_VERSION: u64 = 4;
/// The members that describe a dataset. `compressionType` is that of version 0.
const DATASET_MEMBERS: [&str; 5] = ["dimensions", "blockSize", "dataType", "compression", "compressionType"];
/// The member with the version of the format.
const VERSION: &str = "n5";
/// The default level of gzip, which chooses one itself.
const DEFAULT_LEVEL: i64 = -1;

/// Reads the members of an `attributes.json`.
pub fn parse(key: &str, mut members: Map<String, Value>) -> ParseResult<Document> {
    check_version(&members)?;
    // Groups of BigStitcher have the type of the datasets below them, and no dimensions.
    let is_dataset = ["blockSize", "dataType"].iter().any(|name| members.contains_key(*name));
    if is_dataset && members.contains_key("dimensions") {
        return parse_dataset(key, members).map(Document::Array);
    }
    members.shift_remove(VERSION);
    Ok(Document::Group(GroupMetadata {
        zarr_format: Some(ZarrFormat::N5),
        document_key: key.to_owned(),
        attributes: members,
        attributes_error: None,
        consolidated: None,
    }))
}

/// Fails if a root says that a newer version of N5 has written it.
fn check_version(members: &Map<String, Value>) -> ParseResult<()> {
    let Some(version) = members.get(VERSION).and_then(Value::as_str) else { return Ok(()) };
    let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    if major.is_some_and(|major| major > NEWEST_VERSION) {
        let version = json::shown_text(version);
        return Err(ParseError::unsupported(format_args!("version {version} of N5")));
    }
    Ok(())
}

fn parse_dataset(key: &str, members: Map<String, Value>) -> ParseResult<ArrayMetadata> {
    if members.get("isLabelMultiset") == Some(&Value::Bool(true)) {
        return Err(ParseError::unsupported("isLabelMultiset: lists of labels, which have no flat form"));
    }
    let shape = reversed(array::shape(json::required(&members, "dimensions")?)?);
    let data_type = json::required(&members, "dataType").and_then(data_type)?;
    let chunk_grid = json::required(&members, "blockSize")
        .and_then(json::unsigned_list)
        .map(|lengths| ChunkGrid::Regular(reversed(lengths)))
        .and_then(|grid| grid.check(&shape, data_type.item_size()).map(|()| grid))
        .map_err(|error| error.within("blockSize"))?;
    let codecs = vec![block_codec(&members)?];
    let (document, attributes): (Map<_, _>, Map<_, _>) = members
        .into_iter()
        .partition(|(name, _)| DATASET_MEMBERS.contains(&name.as_str()) || name == VERSION);
    let metadata = ArrayMetadata {
        zarr_format: ZarrFormat::N5,
        document_key: key.to_owned(),
        dimension_names: dimension_names(&attributes, shape.len()),
        fill_value: FillValue::zeros(&data_type),
        shape,
        data_type,
        chunk_grid,
        chunk_keys: ChunkKeyEncoding::n5(),
        codecs,
        attributes,
        attributes_error: None,
        skipped: Vec::new(),
        document,
    };
    array::check_size(&metadata)?;
    Ok(metadata)
}

fn reversed(mut lengths: Vec<u64>) -> Vec<u64> {
    lengths.reverse();
    lengths
}

fn data_type(value: &Value) -> ParseResult<DataType> {
    let name = json::name(value).map_err(|error| error.within("dataType"))?;
    Ok(match name {
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "float32" => DataType::Float32,
        "float64" => DataType::Float64,
        other => {
            let name = json::shown_text(other);
            return Err(ParseError::unsupported(format_args!(
                "dataType: {name}, which is not a type of numbers"
            )));
        }
    })
}

/// Reads the names of the dimensions: xarray's, which are in the order of the array, or a list `axes` in the order of N5.
fn dimension_names(attributes: &Map<String, Value>, rank: usize) -> Option<Vec<Option<String>>> {
    if attributes.contains_key("_ARRAY_DIMENSIONS") {
        return super::v2::dimension_names(attributes, rank);
    }
    let names = attributes.get("axes")?.as_array().filter(|names| names.len() == rank)?;
    names.iter().rev().map(|name| json::name(name).ok().map(|name| Some(name.to_owned()))).collect()
}

/// Returns the codec of a block: its elements as big-endian bytes, and the compression.
fn block_codec(members: &Map<String, Value>) -> ParseResult<CodecSpec> {
    let (compressor, place) = match (members.get("compression"), members.get("compressionType")) {
        (None, Some(old)) => (compressor(old, &Map::new()), "compressionType"),
        _ => {
            let compression = json::required(members, "compression")?;
            let named = json::object(compression)
                .and_then(|members| Ok((json::required(members, "type")?, members)))
                .and_then(|(name, members)| compressor(name, members));
            (named, "compression")
        }
    };
    let compressor = compressor.map_err(|error| error.within(place))?;
    let bytes = object!({"name": "bytes", "configuration": {"endian": "big"}});
    let codecs: Vec<Value> = std::iter::once(bytes).chain(compressor).collect();
    Ok(CodecSpec {
        family: CodecFamily::N5,
        name: "n5_default".to_owned(),
        configuration: Map::from_iter([("codecs".to_owned(), Value::Array(codecs))]),
        must_understand: true,
        place: place.to_owned(),
    })
}

/// Returns the codec that a compression of N5 stands for; `None` for "raw".
fn compressor(name: &Value, members: &Map<String, Value>) -> ParseResult<Option<Value>> {
    let name = json::name(name).map_err(|error| error.within("type"))?;
    let level = |default: i64| members.get("level").cloned().unwrap_or(Value::from(default));
    // Members that only say how to encode, such as the number of threads, are left out.
    let kept = |names: &[&str]| {
        let is_kept = |name: &str| names.contains(&name);
        let members = members.iter().filter(|(name, _)| is_kept(name.as_str()));
        Value::Object(members.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let is_zlib = members.get("useZlib").and_then(Value::as_bool).unwrap_or(false);
    let (name, configuration) = match name {
        "raw" => return Ok(None),
        "gzip" if is_zlib => ("numcodecs.zlib", object!({"level": level(DEFAULT_LEVEL)})),
        "gzip" => ("gzip", object!({"level": level(DEFAULT_LEVEL)})),
        "bzip2" => {
            ("numcodecs.bz2", object!({"level": members.get("blockSize").unwrap_or(&Value::from(9u64))}))
        }
        "xz" => {
            let preset = members.get("preset").cloned().unwrap_or(Value::from(6u64));
            ("numcodecs.lzma", object!({"format": 1, "check": -1, "preset": preset}))
        }
        // zarr-python says the preset even if the filters have their own.
        "lzma" if members.get("filters").is_some_and(|filters| !filters.is_null()) => {
            ("numcodecs.lzma", kept(&["format", "check", "filters"]))
        }
        "lzma" => ("numcodecs.lzma", kept(&["format", "check", "preset"])),
        "blosc" => ("numcodecs.blosc", kept(&["cname", "clevel", "shuffle", "blocksize"])),
        "zstd" => ("zstd", object!({"level": level(3), "checksum": false})),
        "lz4" if members.contains_key("acceleration") => ("numcodecs.lz4", kept(&["acceleration"])),
        "lz4" => ("n5_lz4", kept(&["blockSize"])),
        other => {
            let name = json::shown_text(other);
            return Err(ParseError::unsupported(format_args!("type: {name} is unknown")));
        }
    };
    Ok(Some(object!({"name": name, "configuration": configuration})))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::parse_n5;
    use serde_json::json;

    /// Parses a small dataset with `changes` applied (null removes a member).
    fn parse(changes: Value) -> std::result::Result<Document, String> {
        let mut document = json!({"dimensions": [6, 5, 4], "blockSize": [3, 2, 4], "dataType": "int16",
            "compression": {"type": "raw"}});
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(document.as_object_mut().unwrap().remove(name)),
                value => document[name] = value.clone(),
            }
        }
        parse_n5("a/attributes.json", document.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    fn array(changes: Value) -> ArrayMetadata {
        match parse(changes) {
            Ok(Document::Array(array)) => array,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn dimensions_are_reversed() {
        let array = array(json!({"unit": "um", "n5": "2.5.0"}));
        assert_eq!(
            (array.shape.as_slice(), array.fill_value.bytes.as_slice()),
            (&[4, 5, 6][..], &[0, 0][..])
        );
        assert_eq!(array.chunk_grid, ChunkGrid::Regular(vec![4, 2, 3]));
        assert_eq!(array.chunk_keys.key(&[0, 1, 2]), "2/1/0");
        assert_eq!(Value::Object(array.attributes), json!({"unit": "um"}));
        assert_eq!(array.document.len(), 5);
    }

    #[test]
    fn names_of_dimensions() {
        let names =
            |changes| array(changes).dimension_names.map(|names| names.into_iter().flatten().collect());
        let zyx = Some(["z", "y", "x"].map(str::to_owned).to_vec());
        assert_eq!(names(json!({"axes": ["x", "y", "z"]})), zyx);
        assert_eq!(names(json!({"_ARRAY_DIMENSIONS": ["z", "y", "x"]})), zyx);
        assert_eq!(names(json!({"axes": ["x", "y"]})), None);
        assert_eq!(names(json!({"axes": [{"name": "x"}, "y", "z"]})), None);
    }

    #[test]
    fn groups_of_any_attributes() {
        for document in [
            json!({"n5": "4.0.0"}),
            json!({"dataType": "uint16", "downsamplingFactors": [[1, 1, 1]]}),
            json!({"dimensions": [1, 2]}),
            json!({"n5": {"a": 1}}),
        ] {
            match parse_n5("attributes.json", document.to_string().as_bytes()).unwrap() {
                Document::Group(group) => assert_eq!(group.zarr_format, Some(ZarrFormat::N5)),
                Document::Array(_) => panic!("{document}"),
            }
        }
    }

    #[test]
    fn compressions() {
        let chain = |compression: Value| {
            let codecs = array(json!({"compression": compression})).codecs.remove(0).configuration;
            codecs["codecs"].as_array().unwrap().get(1).cloned().unwrap_or(Value::Null)
        };
        let codec = |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
        for (compression, expected) in [
            (json!({"type": "raw"}), Value::Null),
            (json!({"type": "gzip", "level": -1, "useZlib": false}), codec("gzip", json!({"level": -1}))),
            (
                json!({"type": "gzip", "level": 2, "useZlib": true}),
                codec("numcodecs.zlib", json!({"level": 2})),
            ),
            (json!({"type": "bzip2", "blockSize": 4}), codec("numcodecs.bz2", json!({"level": 4}))),
            (json!({"type": "lz4", "blockSize": 65536}), codec("n5_lz4", json!({"blockSize": 65536}))),
            (json!({"type": "lz4", "acceleration": 1}), codec("numcodecs.lz4", json!({"acceleration": 1}))),
            (
                json!({"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "nthreads": 4}),
                codec("numcodecs.blosc", json!({"cname": "lz4", "clevel": 5, "shuffle": 1})),
            ),
            (json!({"type": "zstd", "nbWorkers": 0}), codec("zstd", json!({"level": 3, "checksum": false}))),
        ] {
            assert_eq!(chain(compression.clone()), expected, "{compression}");
        }
        let old = array(json!({"compression": null, "compressionType": "gzip"}));
        assert_eq!(old.codecs[0].place, "compressionType");
    }

    #[test]
    fn what_has_no_flat_form_is_refused() {
        for (changes, reason) in [
            (json!({"dataType": "object"}), "dataType: \"object\", which is not a type of numbers"),
            (json!({"dataType": "string"}), "dataType: \"string\""),
            (json!({"isLabelMultiset": true}), "isLabelMultiset: lists of labels"),
            (json!({"n5": "5.0.0"}), "version \"5.0.0\" of N5"),
            (json!({"compression": {"type": "jpeg"}}), "compression: type: \"jpeg\" is unknown"),
        ] {
            let error = parse(changes.clone()).unwrap_err();
            assert!(error.contains(reason) && error.starts_with("a/attributes.json: "), "{changes}: {error}");
        }
    }

    #[test]
    fn broken_documents_name_the_member() {
        for (changes, reason) in [
            (json!({"blockSize": null}), "blockSize is missing"),
            (json!({"dataType": null}), "dataType is missing"),
            (json!({"compression": null}), "compression is missing"),
            (json!({"compression": "gzip"}), "compression: must be an object"),
            (json!({"compression": {}}), "compression: type is missing"),
            (json!({"blockSize": [3, 2]}), "blockSize: the grid has 2 dimensions, the shape 3"),
            (json!({"blockSize": [3, 2, 0]}), "blockSize: "),
            (json!({"dimensions": [1u64 << 62, 6, 6]}), "shape: the array has more than 2^63-1 bytes"),
            (json!({"dimensions": [-1, 6, 6]}), "shape: 0: must be an integer"),
        ] {
            let error = parse(changes.clone()).unwrap_err();
            assert!(error.contains(reason), "{changes}: {error}");
        }
    }
}
