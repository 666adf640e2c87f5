//! Everything that can be wrong with a metadata document, made by rule: each member of the documents of all versions, and each
//! member of each codec's configuration, is taken out and given values of every other kind. What is refused must be listed, fail
//! to open with EIO or EOPNOTSUPP, and its sidecar must name the document's key, the member and (for a codec) the codec.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::support::library::assert_none;
use crate::support::mounted::Mount;
use crate::support::say;
use serde_json::{Value, json};

/// One document with something wrong in it.
struct Case {
    /// What was done to it.
    what: String,
    /// Name of the document.
    name: &'static str,
    document: Value,
    /// What the sidecar must name in addition to the key.
    names: Vec<String>,
    /// The errno, where it is sure to be refused with this one.
    errno: Option<i32>,
}

fn v3(data_type: Value, fill: Value, codecs: Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": [6, 8], "data_type": data_type, "fill_value": fill,
           "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
           "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": codecs,
           "attributes": {}, "dimension_names": ["y", "x"], "storage_transformers": []})
}

fn v2(dtype: &str, filters: Value, compressor: Value) -> Value {
    json!({"zarr_format": 2, "shape": [6, 8], "chunks": [3, 4], "dtype": dtype, "fill_value": 0, "order": "C",
           "filters": filters, "compressor": compressor, "dimension_separator": "."})
}

fn v1() -> Value {
    json!({"zarr_format": 1, "shape": [6, 8], "chunks": [3, 4], "dtype": "<i4", "compression": "zlib",
           "compression_opts": 1, "fill_value": 0, "order": "C"})
}

fn bytes() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

/// Returns JSON values of every kind.
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0.5),
        json!(1e300),
        json!("no-such-thing"),
        json!([]),
        json!([[[]]]),
        json!({}),
        json!({"name": "no-such-thing"}),
    ]
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Makes the document with a member of `place` (a path in it) changed to each wrong value, or taken out.
fn spoilt(name: &'static str, document: &Value, place: &str, names: &[&str], cases: &mut Vec<Case>) {
    let members = document.pointer(place).unwrap().as_object().unwrap().clone();
    // A file named `meta` that is not a document of version 1 may be anything.
    for (member, good) in members.iter().filter(|(member, _)| name != "meta" || *member != "zarr_format") {
        let mut case = |what: String, value: Option<Value>| {
            let mut document = document.clone();
            let members = document.pointer_mut(place).unwrap().as_object_mut().unwrap();
            match &value {
                Some(value) => members.insert(member.clone(), value.clone()),
                None => members.shift_remove(member),
            };
            // The unknown name itself is enough.
            let is_named = member == "name" && value == Some(json!("no-such-thing"));
            let last = if is_named { "no-such-thing".to_owned() } else { member.clone() };
            let names = names.iter().map(|name| (*name).to_owned()).chain([last]).collect();
            cases.push(Case { what, name, document, names, errno: None });
        };
        case(format!("no {member}"), None);
        for value in values() {
            if kind(&value) != kind(good) || value == json!("no-such-thing") || value == json!(-1) {
                case(format!("{member} = {value}"), Some(value));
            }
        }
    }
}

/// Returns every codec with its configuration, and the member of the document that it stands in.
fn codecs_v2() -> Vec<(&'static str, &'static str, Value)> {
    let lzma = [json!({"id": 3, "dist": 4}), json!({"id": 33, "preset": 1})];
    vec![
        ("compressor", "<i4", json!({"id": "zlib", "level": 1})),
        ("compressor", "<i4", json!({"id": "gzip", "level": 1})),
        ("compressor", "<i4", json!({"id": "bz2", "level": 1})),
        ("compressor", "<i4", json!({"id": "lz4", "acceleration": 1})),
        ("compressor", "<i4", json!({"id": "zstd", "level": 1, "checksum": false})),
        (
            "compressor",
            "<i4",
            json!({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}),
        ),
        (
            "compressor",
            "<i4",
            json!({"id": "lzma", "format": 3, "check": -1, "preset": null, "filters": lzma}),
        ),
        ("compressor", "<i4", json!({"id": "pcodec", "level": 8, "mode_spec": "auto", "delta_spec": "auto"})),
        (
            "compressor",
            "<f4",
            json!({"id": "zfpy", "mode": 4, "tolerance": 0.1, "rate": -1, "precision": -1}),
        ),
        ("filters", "<i4", json!({"id": "delta", "dtype": "<i4", "astype": "<i4"})),
        (
            "filters",
            "<f4",
            json!({"id": "fixedscaleoffset", "offset": 1, "scale": 2, "dtype": "<f4", "astype": "<i2"}),
        ),
        ("filters", "<f4", json!({"id": "quantize", "digits": 2, "dtype": "<f4", "astype": "<f4"})),
        ("filters", "<f4", json!({"id": "bitround", "keepbits": 5})),
        ("filters", "<i4", json!({"id": "astype", "encode_dtype": "<i2", "decode_dtype": "<i4"})),
        ("filters", "|b1", json!({"id": "packbits"})),
        ("filters", "<i4", json!({"id": "shuffle", "elementsize": 4})),
        (
            "filters",
            "<U2",
            json!({"id": "categorize", "labels": ["a", "b"], "dtype": "<U2", "astype": "|u1"}),
        ),
        ("filters", "<i4", json!({"id": "crc32", "location": "start"})),
        ("filters", "<i4", json!({"id": "crc32c", "location": "end"})),
        ("filters", "<i4", json!({"id": "adler32", "location": "start"})),
        ("filters", "<i4", json!({"id": "fletcher32"})),
        ("filters", "<i4", json!({"id": "jenkins_lookup3", "initval": 0, "prefix": null})),
        ("filters", "<i4", json!({"id": "base64"})),
    ]
}

/// Returns codecs as (name, data type, configuration, whether it stands for `bytes`, whether it stands after it).
fn codecs_v3() -> Vec<(&'static str, &'static str, Value, bool, bool)> {
    let sharding = json!({"chunk_shape": [3, 2], "codecs": [bytes()], "index_codecs": [bytes()], "index_location": "end"});
    let map = json!({"encode": [["NaN", 255]], "decode": [[255, "NaN"]]});
    vec![
        ("bytes", "int32", json!({"endian": "little"}), true, false),
        ("gzip", "int32", json!({"level": 1}), false, true),
        ("zstd", "int32", json!({"level": 1, "checksum": false}), false, true),
        (
            "blosc",
            "int32",
            json!({"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}),
            false,
            true,
        ),
        ("crc32c", "int32", json!({}), false, true),
        ("transpose", "int32", json!({"order": [1, 0]}), false, false),
        ("sharding_indexed", "int32", sharding, true, false),
        (
            "packbits",
            "bool",
            json!({"padding_encoding": "first_byte", "first_bit": 0, "last_bit": 0}),
            true,
            false,
        ),
        ("reshape", "int32", json!({"shape": [-1]}), false, false),
        ("bitround", "float32", json!({"keepbits": 5}), false, false),
        ("scale_offset", "int32", json!({"offset": 1, "scale": 2}), false, false),
        (
            "cast_value",
            "float32",
            json!({"data_type": "uint8", "rounding": "nearest-even", "out_of_range": "clamp", "scalar_map": map}),
            false,
            false,
        ),
        (
            "numcodecs.lzma",
            "int32",
            json!({"format": 1, "check": -1, "preset": 1, "filters": null}),
            false,
            true,
        ),
        ("numcodecs.delta", "int32", json!({"dtype": "<i4", "astype": "<i4"}), false, false),
        ("numcodecs.pcodec", "int32", json!({"level": 8}), true, false),
        ("numcodecs.zfpy", "float32", json!({"mode": 4, "tolerance": 0.1}), true, false),
        ("numcodecs.shuffle", "int32", json!({"elementsize": 4}), false, true),
    ]
}

/// Returns every case, made by rule.
fn by_rule() -> Vec<Case> {
    let mut cases = Vec::new();
    spoilt("zarr.json", &v3(json!("int32"), json!(0), json!([bytes()])), "", &[], &mut cases);
    for place in [
        "/chunk_grid",
        "/chunk_key_encoding",
        "/chunk_grid/configuration",
        "/chunk_key_encoding/configuration",
    ] {
        let member = place.split('/').nth(1).unwrap();
        spoilt("zarr.json", &v3(json!("int32"), json!(0), json!([bytes()])), place, &[member], &mut cases);
    }
    let grid =
        json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[3, 3], 4]}});
    let mut rectilinear = v3(json!("int32"), json!(0), json!([bytes()]));
    rectilinear["chunk_grid"] = grid;
    spoilt("zarr.json", &rectilinear, "/chunk_grid/configuration", &["chunk_grid"], &mut cases);
    for data_type in [
        json!({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}),
        json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}),
        json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 8}}),
        json!({"name": "raw_bytes", "configuration": {"length_bytes": 8}}),
        json!({"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "int8"}]}}),
    ] {
        let fill = match data_type["name"].as_str().unwrap() {
            "numpy.datetime64" => json!(0),
            "struct" => json!({"a": 0}),
            _ => json!(""),
        };
        let document = v3(data_type, fill, json!([bytes()]));
        for place in ["/data_type", "/data_type/configuration"] {
            spoilt("zarr.json", &document, place, &["data_type"], &mut cases);
        }
    }
    spoilt(".zarray", &v2("<i4", json!(null), json!({"id": "zlib"})), "", &[], &mut cases);
    spoilt("meta", &v1(), "", &[], &mut cases);
    for (member, dtype, codec) in codecs_v2() {
        let id = codec["id"].as_str().unwrap().to_owned();
        let (document, place) = match member {
            "filters" => (v2(dtype, json!([codec]), json!(null)), "/filters/0"),
            _ => (v2(dtype, json!(null), codec), "/compressor"),
        };
        let start = cases.len();
        spoilt(".zarray", &document, place, &[member, &id], &mut cases);
        // A codec with a spoilt id has no id that could be named.
        for case in &mut cases[start..] {
            if case.names.last().is_some_and(|name| name == "id") {
                case.names = vec![member.to_owned()];
            }
        }
    }
    for (name, data_type, configuration, is_to_bytes, is_after) in codecs_v3() {
        let fill = if data_type == "bool" { json!(false) } else { json!(0) };
        let codec = json!({"name": name, "configuration": configuration});
        let chain = match (is_to_bytes, is_after) {
            (true, _) => json!([codec]),
            (_, true) => json!([bytes(), codec]),
            _ => json!([codec, bytes()]),
        };
        let place = if is_after { "/codecs/1/configuration" } else { "/codecs/0/configuration" };
        spoilt("zarr.json", &v3(json!(data_type), fill, chain), place, &["codecs", name], &mut cases);
    }
    cases
}

/// Features that zarrfs does not have, and what their refusal must name.
fn features() -> Vec<Case> {
    let case = |what: &str, document: Value, names: &[&str]| Case {
        what: what.to_owned(),
        name: if document["zarr_format"] == 3 { "zarr.json" } else { ".zarray" },
        document,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        errno: Some(libc::EOPNOTSUPP),
    };
    let changed = |member: &str, value: Value| {
        let mut document = v3(json!("int32"), json!(0), json!([bytes()]));
        document[member] = value;
        document
    };
    let object = |filter: Value| {
        let mut document = v2("|O", json!([filter]), json!(null));
        document["fill_value"] = json!("");
        document
    };
    let vlen = |name: &str, codec: &str| v3(json!(name), json!(""), json!([{"name": codec}]));
    let optional = json!({"name": "optional", "configuration": {"name": "int16", "configuration": {}}});
    let mut cases = vec![
        case("a codec", changed("codecs", json!([bytes(), {"name": "x.codec"}])), &["codecs", "x.codec"]),
        case("1st codec", changed("codecs", json!([{"name": "x.codec"}, bytes()])), &["codecs", "x.codec"]),
        case("a data type", changed("data_type", json!("float999")), &["data_type", "float999"]),
        case("a data type's name", changed("data_type", json!({"name": "x.type"})), &["data_type", "x.type"]),
        case("a grid", changed("chunk_grid", json!({"name": "x.grid"})), &["chunk_grid", "x.grid"]),
        case(
            "keys",
            changed("chunk_key_encoding", json!({"name": "x.keys"})),
            &["chunk_key_encoding", "x.keys"],
        ),
        case(
            "a transformer",
            changed("storage_transformers", json!([{"name": "x.t"}])),
            &["storage_transformers", "x.t"],
        ),
        case("a member", changed("x_member", json!(1)), &["x_member", "must_understand"]),
        case(
            "a member that must be understood",
            changed("x_member", json!({"must_understand": true})),
            &["x_member", "must_understand"],
        ),
        case("optional", v3(optional, json!(null), json!([bytes()])), &["data_type", "optional"]),
        case("string", vlen("string", "vlen-utf8"), &["data_type", "string"]),
        case(
            "variable_length_bytes",
            vlen("variable_length_bytes", "vlen-bytes"),
            &["data_type", "variable_length_bytes"],
        ),
        case("vlen-utf8", object(json!({"id": "vlen-utf8"})), &["dtype", "|O"]),
        case("vlen-bytes", object(json!({"id": "vlen-bytes"})), &["dtype", "|O"]),
        case("vlen-array", object(json!({"id": "vlen-array", "dtype": "<i4"})), &["dtype", "vlen-array"]),
        case("pickle", object(json!({"id": "pickle"})), &["dtype", "pickle"]),
        case("json2", object(json!({"id": "json2"})), &["dtype", "json2"]),
        case("msgpack2", object(json!({"id": "msgpack2"})), &["dtype", "msgpack2"]),
        case("a filter", v2("<i4", json!([{"id": "x-filter"}]), json!(null)), &["filters", "x-filter"]),
        case(
            "a compressor",
            v2("<i4", json!(null), json!({"id": "x-compressor"})),
            &["compressor", "x-compressor"],
        ),
    ];
    let kinds = ["<g16", "<c32", "<f16"];
    cases.extend(kinds.map(|kind| case(kind, v2(kind, json!(null), json!(null)), &["dtype", kind])));
    cases
}

/// Returns what is wrong with how the mount shows a case; `Ok(true)` where it is refused as it should be, `Ok(false)` where it is served.
fn check(mount: &Mount, number: usize, case: &Case, listed: &BTreeSet<String>) -> Result<bool, String> {
    let node = number.to_string();
    if !listed.contains(&node) || !listed.contains(&format!("{node}.json")) {
        return Err("is not listed".to_owned());
    }
    let sidecar = fs::read(mount.path(&format!("{node}.json"))).map_err(|error| error.to_string())?;
    let sidecar: Value = serde_json::from_slice(&sidecar).map_err(|error| error.to_string())?;
    let errno = match fs::File::open(mount.path(&node)) {
        Ok(_) if case.errno.is_some() => return Err("was opened".to_owned()),
        Ok(_) if sidecar["error"].is_null() => return Ok(false),
        Ok(_) => return Err(format!("was opened, though its sidecar says {}", sidecar["error"])),
        Err(error) => error.raw_os_error().unwrap(),
    };
    let Some(error) = sidecar["error"].as_str() else { return Err("its sidecar gives no error".to_owned()) };
    if errno != case.errno.unwrap_or(errno) || ![libc::EIO, libc::EOPNOTSUPP].contains(&errno) {
        return Err(format!("errno {errno}: {error}"));
    }
    let key = format!("{node}/{}", case.name);
    let silent = [&key].into_iter().chain(&case.names).find(|name| !error.contains(name.as_str()));
    match silent {
        Some(name) => Err(format!("'{error}' does not name {name}")),
        None => Ok(true),
    }
}

#[test]
fn every_refusal_says_what_it_is() {
    let cases: Vec<Case> = features().into_iter().chain(by_rule()).collect();
    let folder = tempfile::tempdir().unwrap();
    for (number, case) in cases.iter().enumerate() {
        let node = folder.path().join(number.to_string());
        fs::create_dir(&node).unwrap();
        fs::write(node.join(case.name), case.document.to_string()).unwrap();
    }
    let Some(mount) = Mount::new(folder.path(), &["--log-level", "off"], "refusals") else { return };
    let names = fs::read_dir(mount.point()).unwrap();
    let listed: BTreeSet<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let (mut refused, mut served, mut failures) = (0, BTreeMap::<&str, Vec<&str>>::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        match check(&mount, number, case, &listed) {
            Ok(true) => refused += 1,
            Ok(false) => served.entry(case.name).or_default().push(&case.what),
            Err(what) => failures.push(format!("{} [{}]: {what}", case.what, case.names.join(", "))),
        }
    }
    mount.unmount();
    let count: usize = served.values().map(Vec::len).sum();
    say(format!(
        "refusals: {} documents; {refused} refused with key and member, {count} served, {} wrong",
        cases.len(),
        failures.len()
    ));
    if std::env::var_os("ZARRFS_SHOW_SERVED").is_some() {
        say(format!("{served:#?}"));
    }
    assert_none(&failures, "refusals");
}
