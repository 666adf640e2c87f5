//! `__formats__/csv/`: groups as tables of text, through a mount, against zarr-python's values (tests/programs/tables.py).

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use zarrfs::codec::vlen::Vlen;

use crate::support::fixtures::python;
use crate::support::mounted::Mount;
use crate::support::say;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/tables.py");

fn run(python: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(python).arg(PROGRAM).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

#[test]
fn tables_of_zarr_python() {
    let what = "tables";
    let Some(python) = python(what) else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, &["make", folder.path().to_str().unwrap()]);
    let store = folder.path().join("tables.zarr");
    let mut texts = Vec::new();
    for options in
        [&[][..], &["--order", "F", "--byte-order", "big", "--cache-size", "4M", "--tune=prefetch=off"]]
    {
        let Some(mount) = Mount::new(&store, options, what) else { return };
        let report = run(&python, &["check", store.to_str().unwrap(), mount.point().to_str().unwrap()]);
        say(format!("tables, {options:?}: equal {}, wrong {}", report["equal"], report["wrong"]));
        assert_eq!(report["wrong"], json!([]));
        let text = fs::read(mount.path("__formats__/csv/spikes.csv")).unwrap();
        any_part(&mount.path("__formats__/csv/spikes.csv"), &text);
        texts.push(text);
        mount.unmount();
    }
    assert!(texts[0] == texts[1], "the layout of the mount does not matter");
}

/// Parts of a file, backwards too, are those of the whole.
fn any_part(file: &Path, text: &[u8]) {
    let mut open = fs::File::open(file).unwrap();
    for at in [text.len() - 5, 0, 70_000, 69_999, text.len() / 2, 1] {
        let length = 100_000.min(text.len() - at);
        let mut part = vec![0; length];
        open.seek(SeekFrom::Start(at as u64)).unwrap();
        open.read_exact(&mut part).unwrap();
        assert!(part == text[at..at + length], "{at}");
    }
}

/// Writes the document of an array of one axis in chunks.
fn write(store: &Path, path: &str, length: u64, chunk: u64, data_type: &str, fill_value: &Value) {
    let codecs = if data_type == "string" {
        json!(["vlen-utf8"])
    } else {
        json!([{"name": "bytes", "configuration": {"endian": "little"}}])
    };
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [length], "data_type": data_type,
        "fill_value": fill_value, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs});
    fs::create_dir_all(store.join(path).join("c")).unwrap();
    fs::write(store.join(path).join("zarr.json"), document.to_string()).unwrap();
}

fn write_strings(store: &Path, key: &str, strings: &[&str]) {
    fs::write(store.join(key), Vlen::Utf8.encode(strings).unwrap()).unwrap();
}

#[test]
fn changes_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path();
    write(store, "g/a", 3, 2, "int16", &json!(7));
    write(store, "g/s", 3, 3, "string", &json!("-"));
    let options = ["--writable", "--revalidate", "0.1", "--formats", "csv"];
    let Some(mount) = Mount::new(store, &options, "changes of tables") else { return };
    let file = mount.path("g.csv");
    let text = || {
        std::thread::sleep(Duration::from_millis(150));
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), text.len() as u64);
        text
    };
    assert_eq!(text(), "\"a\",\"s\"\n7,\"-\"\n7,\"-\"\n7,\"-\"\n");
    // Through the mount, before it is stored and afterwards.
    let mut array = fs::File::options().write(true).open(mount.path("g/a")).unwrap();
    array.write_all(&(-1234i16).to_le_bytes()).unwrap();
    let changed = "\"a\",\"s\"\n-1234,\"-\"\n7,\"-\"\n7,\"-\"\n";
    assert_eq!(text(), changed);
    array.sync_all().unwrap();
    drop(array);
    assert_eq!(text(), changed);
    // By other programs: elements, one more column, another length.
    write_strings(store, "g/s/c/0", &["x", "a \"b\"", ""]);
    assert_eq!(text(), "\"a\",\"s\"\n-1234,\"x\"\n7,\"a \"\"b\"\"\"\n7,\"\"\n");
    write(store, "g/b", 3, 3, "bool", &json!(true));
    assert_eq!(text(), "\"a\",\"b\",\"s\"\n-1234,TRUE,\"x\"\n7,TRUE,\"a \"\"b\"\"\"\n7,TRUE,\"\"\n");
    write(store, "g/b", 4, 4, "bool", &json!(true));
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(fs::metadata(&file).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    mount.unmount();
}

#[test]
fn what_cannot_be_made_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path();
    write(store, "nul/s", 2, 2, "string", &json!("-"));
    write_strings(store, "nul/s/c/0", &["x", "a\0b"]);
    write(store, "damaged/a", 4, 2, "int16", &json!(7));
    fs::write(store.join("damaged/a/c/1"), [1]).unwrap();
    write(store, "long/s", 1 << 14, 1, "string", &json!("x".repeat(1 << 20)));
    write(store, "code/c/codes", 3, 3, "int8", &json!(2));
    write(store, "code/c/categories", 2, 2, "int8", &json!(2));
    let group =
        json!({"zarr_format": 3, "node_type": "group", "attributes": {"encoding-type": "categorical"}});
    fs::write(store.join("code/c/zarr.json"), group.to_string()).unwrap();
    write(store, "cells/a", 100_000_001, 1 << 20, "int8", &json!(0));
    write(store, "most/a", 1_000_000, 1 << 20, "int64", &json!(i64::MIN));
    let Some(mount) = Mount::new(store, &["--cache-size", "8M"], "tables that cannot be made") else {
        return;
    };
    let file = |group: &str| mount.path(&format!("__formats__/csv/{group}.csv"));
    for (group, errno, text) in [
        (
            "nul",
            libc::EOPNOTSUPP,
            "nul/s/zarr.json: not supported: element 1: a string with a NUL cannot be written in CSV",
        ),
        ("damaged", libc::EIO, "damaged/a/c/1: "),
        ("code", libc::EIO, "code/c/codes/zarr.json: cannot be decoded: element 0: code 2 of 2 categories"),
        ("long", libc::EFBIG, "a block of rows is held in memory"),
    ] {
        assert_eq!(fs::metadata(file(group)).unwrap().len(), 0, "{group}");
        let error = fs::File::open(file(group)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "{group}");
        assert!(mount.log().contains(text), "{group}: {}", mount.log());
    }
    assert_eq!(
        fs::metadata(file("cells")).unwrap_err().kind(),
        std::io::ErrorKind::NotFound,
        "too many cells"
    );
    let length = fs::metadata(file("most")).unwrap().len();
    assert_eq!(length, 4 + 21 * 1_000_000);
    let mut last = vec![0; 21];
    let mut open = fs::File::open(file("most")).unwrap();
    open.seek(SeekFrom::End(-21)).unwrap();
    open.read_exact(&mut last).unwrap();
    drop(open);
    assert_eq!(last, b"-9223372036854775808\n");
    assert!(mount.memory_kb("VmHWM") < 8 * 1024 + 96 * 1024, "{} kB", mount.memory_kb("VmHWM"));
    mount.unmount();
}
