//! `ls` with paths, globs and widths, `info`, `check` with its options, and the refusals of `preview`.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::{outcome, refused, run, sample};

/// Returns standard output of a command that succeeds.
fn shown(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = outcome(&run(arguments));
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

fn put(folder: &Path, key: &str, text: &str) {
    let path = folder.join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn ls_fits_any_width() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    for width in ["40", "80", "120", "200"] {
        let text = shown(&["ls", store, "-w", width]);
        let widest =
            text.lines().filter(|line| !line.contains("__formats__")).map(|line| line.chars().count());
        assert!(widest.max().unwrap() <= width.parse().unwrap(), "{width}\n{text}");
    }
    let text = shown(&["ls", store, "-w", "80"]);
    assert!(text.contains("(12, 180, 360)  3.0 MiB") && !text.contains("ONE PASS"), "{text}");
    let text = shown(&["ls", store, "-w", "80", "-l"]);
    assert!(
        text.contains("ONE PASS") && text.contains("time, lat, lon") && text.contains("-9999.0"),
        "{text}"
    );
}

#[test]
fn ls_takes_paths_globs_and_stores() {
    let (_folder, store) = sample();
    let (_other_folder, other) = sample();
    let (store, other) = (store.to_str().unwrap(), other.to_str().unwrap());
    let paths = |arguments: &[&str]| {
        let text = shown(&[&["ls", "--json"], arguments].concat());
        let nodes: Vec<Value> = serde_json::from_str(&text).unwrap();
        nodes.iter().map(|node| node["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(paths(&[store, "climate", "--depth", "0"]), ["/climate"]);
    assert_eq!(paths(&[store, "--depth", "1"]), ["/", "/climate", "/microscope", "/small", "/version_2"]);
    assert_eq!(paths(&[store, "l?t", "--arrays"]), ["/climate/lat"]);
    assert_eq!(paths(&[store, "l?t"]), ["/", "/climate", "/climate/lat"]);
    assert_eq!(paths(&[store, "micro*", "--arrays"]), ["/microscope/cells", "/microscope/overview"]);
    assert_eq!(
        paths(&[store, "climate/lat", other, "climate/l?n", "--arrays"]),
        ["/climate/lat", "/climate/lon"]
    );
    let text = shown(&["ls", store, other]);
    assert!(text.contains(store) && text.contains(other), "{text}");
    refused(
        &["ls", store, "nothing*"],
        1,
        &format!("nothing in {store} matches 'nothing*': 'zarrfs ls {store}' lists what is there"),
    );
    refused(
        &["ls", store, "climate/latt"],
        1,
        &format!(
            "no array or group 'climate/latt' in {store}: 'climate' contains lat, lon, packed_temperature, temperature, time"
        ),
    );
}

#[test]
fn the_json_of_ls_and_info_has_what_the_sidecar_has() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    let sidecar: Value =
        serde_json::from_str(&shown(&["cat", store, "climate/temperature", "--format", "json"])).unwrap();
    let listed: Vec<Value> =
        serde_json::from_str(&shown(&["ls", store, "climate/temperature", "--json"])).unwrap();
    let info: Value =
        serde_json::from_str(&shown(&["info", store, "climate/temperature", "--json"])).unwrap();
    for (name, value) in sidecar.as_object().unwrap() {
        assert_eq!(listed[0].get(name), Some(value), "{name}");
        assert_eq!(info.get(name), Some(value), "{name}");
    }
    assert_eq!((&info["objects"], &info["stored_objects"]), (&json!(72), &json!(72)));
    assert_eq!(info["coordinates"][1]["first"], json!(-89.5));
    assert_eq!(info["coordinates"][0]["text"], json!(["2000-01-16", "2000-12-12"]));
}

#[test]
fn info_shows_one_node() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    let text = shown(&["info", "--all", store, "climate/temperature", "--for", "numpy"]);
    for part in [
        "time 12 × lat 180 × lon 360",
        "3.0 MiB flat",
        "all 72 chunks",
        "-89.5 to 89.5 degrees_north, in steps of 1",
        "__formats__/nc/climate/temperature.nc",
        "np.memmap('temperature'",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // Without --all the text fits a terminal of 80 columns and 24 rows, with the prompt.
    for path in [
        "",
        "climate",
        "climate/temperature",
        "climate/packed_temperature",
        "microscope/cells",
        "small/mostly_missing",
    ] {
        let text = shown(&["info", store, path]);
        assert!(text.lines().count() < 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("--all shows "), "{text}");
    }
    let text = shown(&["info", store, "climate/temperature"]);
    for part in
        ["time 12 × lat 180 × lon 360", "envi, grads,", "planes@1", "-89.5 to 89.5 degrees_north", "units"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let text = shown(&["info", store, "small/mostly_missing"]);
    assert!(text.contains("1 of 64 chunks; 63 missing"), "{text}");
    assert!(shown(&["info", store, "small/station_names"]).contains("no flat file"));
    assert!(shown(&["info", store]).contains("climate, microscope, small, version_2"));
}

#[test]
fn check_reports_missing_chunks_and_checksums() {
    let (_folder, store) = sample();
    let path = store.to_str().unwrap();
    let check = |arguments: &[&str]| outcome(&run(&[&["check", path], arguments].concat()));

    let (code, stdout, stderr) = check(&["small/mostly_missing", "--missing=error"]);
    assert_eq!(
        (code, stdout.as_str()),
        (1, "small/mostly_missing: 63 of 64 chunks are missing\n"),
        "{stderr}"
    );
    let (code, _, stderr) = check(&["small/mostly_missing", "--missing=ignore", "-j", "3"]);
    assert!(code == 0 && !stderr.contains("missing,"), "{stderr}");
    assert!(stderr.contains("without a checksum") && stderr.contains("small/mostly_missing"), "{stderr}");
    assert!(!check(&["small/is_prime"]).2.contains("without a checksum"), "crc32c is one");
    // A name that was given must be checked; a walk may meet what it cannot check.
    assert_eq!(check(&["small/station_names", "-q"]), (1, String::new(), String::new()));
    assert_eq!(check(&["small", "--quiet", "--missing=ignore"]).0, 1);
    assert_eq!(check(&["-q"]), (0, String::new(), String::new()));

    put(&store, "small/answer/zarr.json", "{ not JSON");
    let chunk = store.join("climate/lat/c/0");
    fs::write(&chunk, "short").unwrap();
    let (code, stdout, _) = check(&["--json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let of = |path: &str| {
        report["arrays"].as_array().unwrap().iter().find(|row| row["path"] == path).unwrap().clone()
    };
    assert_eq!((code, &report["summary"]["damaged"]), (1, &json!(2)), "{stdout}");
    assert_eq!(of("/climate/lat")["damaged"][0]["key"], json!("climate/lat/c/0"));
    assert_eq!(of("/small/answer")["result"], json!("damaged"));
    assert_eq!(of("/small/station_names")["result"], json!("not checked"));
    assert_eq!(
        (&of("/small/mostly_missing")["missing"], &of("/small/is_prime")["checksum"]),
        (&json!(63), &json!(true))
    );
}

/// Writes a zip file with these members, as programs on Windows make them.
fn zip_of_windows(path: &Path, members: &[(&str, &str)]) {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in members {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    let mut bytes = writer.finish().unwrap().into_inner();
    for (name, _) in members {
        // Once in its own header, and once in the directory. No checksum covers it.
        for at in 0..bytes.len() - name.len() {
            if bytes[at..].starts_with(name.as_bytes()) {
                let name = name.replace('/', "\\");
                bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
            }
        }
    }
    fs::write(path, bytes).unwrap();
}

/// An array with chunks of other names was shown as fill value without a warning.
#[test]
fn objects_that_belong_to_no_chunk_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("s.zarr");
    let path = store.to_str().unwrap();
    let v2 = |separator: &str| {
        format!(
            r#"{{"zarr_format":2,"shape":[4,4],"chunks":[2,2],"dtype":"|u1","compressor":null,"fill_value":7,"order":"C",
                "filters":null,"dimension_separator":"{separator}"}}"#
        )
    };
    put(&store, "dots/.zarray", &v2("."));
    put(&store, "slashes/.zarray", &v2("/"));
    put(&store, "slashes/.zattrs", "{}");
    for number in ["0", "1"] {
        put(&store, &format!("dots/{number}/0"), "abcd");
        put(&store, &format!("slashes/{number}.1"), "abcd");
    }
    put(&store, "slashes/0/0", "abcd");
    let v3 = r#"{"zarr_format":3,"node_type":"array","shape":[2],"data_type":"uint8","fill_value":0,"codecs":["bytes"],
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[1]}},"chunk_key_encoding":{"name":"default"}}"#;
    put(&store, "shrunk/zarr.json", v3);
    for number in 0..12 {
        put(&store, &format!("shrunk/c/{number}"), "a");
    }
    let (code, json, notes) = outcome(&run(&["check", "--json", path]));
    assert_eq!(code, 0, "{notes}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let strays = |path: &str| {
        let mut rows = json["arrays"].as_array().unwrap().iter();
        rows.find(|row| row["path"] == path).unwrap()["strays"].clone()
    };
    assert_eq!((&strays("/dots")["count"], &strays("/slashes")["count"]), (&json!(2), &json!(2)));
    assert_eq!(strays("/dots")["reason"], "chunks named with '/' while the document says '.'");
    assert_eq!(strays("/slashes")["names"], json!(["0.1", "1.1"]));
    assert_eq!(strays("/shrunk")["count"], 10);
    assert!(notes.contains("note: dots: 2 objects belong to no chunk") && notes.contains("0/0"), "{notes}");
    assert!(notes.contains("past the end of the array") && notes.contains(" and 2 more"), "{notes}");
    let (_, _, quiet) = outcome(&run(&["check", "-q", path]));
    assert_eq!(quiet, "");
    let info = shown(&["info", "--all", path, "slashes"]);
    assert!(info.contains("strays        2 objects belong to no chunk"), "{info}");
    assert!(info.contains("chunks named with '.' while the document says '/'"), "{info}");
    assert!(!shown(&["info", path]).contains("strays"), "a group may have any file");

    let archive = folder.path().join("windows.zip");
    zip_of_windows(&archive, &[("zarr.json", v3), ("c/0", "a"), ("c/1", "b")]);
    let info: Value = serde_json::from_str(&shown(&["info", "--json", archive.to_str().unwrap()])).unwrap();
    assert_eq!(info["strays"]["names"], json!([r"c\0", r"c\1"]));
    assert!(info["strays"]["reason"].as_str().unwrap().contains("Windows"), "{info}");
    // Nothing is found at all in this one.
    zip_of_windows(&archive, &[("a/zarr.json", v3), ("a/c/0", "a")]);
    let (code, _, sentence) = outcome(&run(&["ls", archive.to_str().unwrap()]));
    assert!(code == 1 && sentence.contains("not a Zarr store: 2 objects"), "{sentence}");
    assert!(sentence.contains("Windows"), "{sentence}");
    let group = r#"{"zarr_format":3,"node_type":"group"}"#;
    zip_of_windows(&archive, &[("zarr.json", group), ("a/zarr.json", v3), ("a/c/0", "a")]);
    let archive = archive.to_str().unwrap();
    assert!(shown(&["info", archive]).contains("2 objects belong to no chunk"));
    let (_, _, notes) = outcome(&run(&["check", archive]));
    assert!(notes.contains("Windows") && notes.contains(r"a\\zarr.json"), "{notes}");
}

#[test]
fn check_reads_of_a_shard_what_its_index_has() {
    let folder = tempfile::tempdir().unwrap();
    let side = 600u64;
    let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let sharding = json!({"name": "sharding_indexed",
        "configuration": {"chunk_shape": [1, 1], "codecs": [{"name": "bytes"}], "index_codecs": index}});
    // Transposed, and longer than the array.
    let codecs = json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, sharding]);
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [10, 2 * side], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [side, side]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs});
    put(folder.path(), "zarr.json", &document.to_string());
    // Stored are the elements [3, 5] and, with an impossible place, [4, 5]; [20, 5] lies past the end.
    let mut shard = vec![7u8];
    let mut entries = vec![0xff; 16 * (side * side) as usize];
    for (row, offset) in [(3, 0u64), (4, 1 << 40), (20, 0)] {
        let at = 16 * (5 * side + row) as usize;
        entries[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        entries[at + 8..at + 16].copy_from_slice(&1u64.to_le_bytes());
    }
    shard.extend(entries);
    fs::create_dir_all(folder.path().join("c/0")).unwrap();
    fs::write(folder.path().join("c/0/1"), shard).unwrap();
    let (code, stdout, stderr) = outcome(&run(&["check", folder.path().to_str().unwrap(), "--json"]));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let row = &report["arrays"][0];
    assert_eq!(
        (code, &row["read"], &row["missing"]),
        (1, &json!(2), &json!(20 * side - 2)),
        "{stdout}{stderr}"
    );
    assert_eq!(row["damaged"][0]["key"], json!("c/0/1"));
}

/// Returns a line without the sequences that set colours.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect::<String>()
}

#[test]
fn what_preview_cannot_show_is_one_sentence() {
    let (_folder, store) = sample();
    let store = store.to_str().unwrap();
    for (arguments, code, sentence) in [
        (
            &["version_2/labels"][..],
            1,
            "'version_2/labels' has elements of type fixed_length_utf32, which are not numbers: preview shows integers, floats, bools, complex numbers and times",
        ),
        (
            &["climate/lat[::x]"],
            2,
            "'::x' is not an index: write integers, slices as START:STOP:STEP, or '...'",
        ),
        (
            &["climate/lat", "--range", "2,1"],
            2,
            "invalid value '2,1' for '--range <LOW,HIGH>': '2,1' is not a range: write two numbers, the lower one first, such as 0,1.5",
        ),
        (
            &["climate/lat", "-o", "/nonexistent/x.png"],
            1,
            "cannot write /nonexistent/x.png: No such file or directory (os error 2)",
        ),
    ] {
        refused(&[&["preview", store], arguments].concat(), code, sentence);
    }
    let text = shown(&["preview", store, "climate/temperature[0]", "--picture", "blocks"]);
    assert!(
        text.contains("\u{1b}[38;2;") && text.contains('▀') && text.contains("lat (degrees_north)"),
        "{text}"
    );
    assert!(!shown(&["preview", store, "climate/lat"]).contains('\u{1b}'));
    // The text fits a terminal of 80 columns and 24 rows, with the prompt.
    for path in ["climate/temperature", "climate/packed_temperature", "climate/lat", "microscope/cells"] {
        let text = shown(&["preview", store, path, "--picture", "blocks"]);
        let plain: Vec<String> = text.lines().map(without_colours).collect();
        assert!(
            plain.len() < 24 && plain.iter().all(|line| line.chars().count() <= 80),
            "{}",
            plain.join("\n")
        );
    }
    let unpacked = shown(&["preview", store, "climate/packed_temperature"]);
    assert!(unpacked.contains("  unpacked      int16 × "), "{unpacked}");
    let raw = shown(&["preview", store, "climate/packed_temperature", "--raw"]);
    assert!(!raw.contains("  unpacked ") && raw.contains(", not applied here"), "{raw}");
    let minimum = |text: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix("  minimum       ")).unwrap();
        line.parse().unwrap()
    };
    let attributes: Value =
        serde_json::from_str(&shown(&["info", store, "climate/packed_temperature", "--json"])).unwrap();
    let number = |name: &str| {
        attributes["attributes"][name].as_f64().unwrap_or(if name == "add_offset" { 0.0 } else { 1.0 })
    };
    let expected = minimum(&raw) * number("scale_factor") + number("add_offset");
    assert!((minimum(&unpacked) - expected).abs() < 1e-3, "{unpacked}{raw}");
}
