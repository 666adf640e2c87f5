//! Files that get longer on a mount with `--create`: appends next to readers and other writers, sizes that are set, arrays that cannot grow,
//! and what other programs read afterwards.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::fixtures::python;
use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::uneven::v3;
use crate::support::{folders, say};
use serde_json::{Value, json};
use tempfile::TempDir;

const OPTIONS: [&str; 2] = ["--create", "--revalidate=0.2"];
/// Bytes of a row of most arrays here.
const ROW: usize = 20;

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn zstd() -> Value {
    json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}})
}

fn write_document(store: &Path, name: &str, key: &str, document: &Value) {
    fs::create_dir_all(store.join(name)).unwrap();
    fs::write(store.join(name).join(key), document.to_string()).unwrap();
}

/// Returns a store with arrays of rows of 20 bytes, of each kind that grows; all have the fill value 3.
fn store() -> (TempDir, Vec<&'static str>) {
    let folder = folders::in_memory();
    let shards = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [3, 4], "codecs": [little(), zstd()], "index_location": "end",
        "index_codecs": [little(), {"name": "crc32c"}]}});
    let mut zstd_chunks = v3("int16", &[7, 10], &[4, 5], &json!([little(), zstd()]));
    zstd_chunks["dimension_names"] = json!(["time", "x"]);
    let v2 = json!({"zarr_format": 2, "shape": [7, 10], "chunks": [4, 5], "dtype": ">i2",
        "fill_value": 3, "order": "F", "filters": null, "compressor": {"id": "zlib", "level": 1}});
    let arrays = [
        ("chunks", "zarr.json", zstd_chunks),
        ("shards", "zarr.json", v3("int16", &[7, 10], &[6, 8], &json!([shards]))),
        ("raw", "zarr.json", v3("int16", &[7, 10], &[4, 10], &json!([little()]))),
        ("v2", ".zarray", v2),
    ];
    for (name, key, document) in &arrays {
        write_document(folder.path(), name, key, document);
    }
    let names = arrays.map(|(name, ..)| name).to_vec();
    (folder, names)
}

fn length_of(store: &Path, name: &str) -> u64 {
    let document =
        ["zarr.json", ".zarray"].into_iter().find_map(|key| fs::read(store.join(name).join(key)).ok());
    let document: Value = serde_json::from_slice(&document.unwrap()).unwrap();
    document["shape"][0].as_u64().unwrap()
}

fn rows(numbers: std::ops::Range<usize>) -> Vec<u8> {
    numbers
        .flat_map(|row| {
            (0..ROW).map(move |at| if at % 2 == 0 { (row * 7 + at) as u8 } else { row as u8 % 100 })
        })
        .collect()
}

/// Compares the files with the arrays as zarr-python and tensorstore read them.
fn compare_with_others(store: &Path, files: &[(&str, Vec<u8>)]) {
    const PROGRAM: &str = "
import sys, numpy, zarr
try:
    import tensorstore
except ImportError:
    tensorstore = None
store, flat = sys.argv[1], sys.argv[2]
for name in sys.argv[3:]:
    expected = open(f'{flat}/{name}', 'rb').read()
    found = zarr.open_array(f'{store}/{name}', mode='r')[...].astype('<i2').tobytes()
    assert found == expected, f'{name}: zarr-python reads other bytes'
    if tensorstore:
        driver = 'zarr' if name == 'v2' else 'zarr3'
        spec = {'driver': driver, 'kvstore': {'driver': 'file', 'path': f'{store}/{name}'}}
        found = tensorstore.open(spec, read=True).result().read().result().astype('<i2').tobytes()
        assert found == expected, f'{name}: tensorstore reads other bytes'
print('zarr-python' + (' and tensorstore' if tensorstore else ''))
";
    let Some(python) = python("growth") else { return };
    let flat = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(flat.path().join(name), bytes).unwrap();
    }
    let output = Command::new(python)
        .args(["-c", PROGRAM])
        .args([store, flat.path()])
        .args(files.iter().map(|(name, _)| name))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    say(format!(
        "growth: {} arrays read back by {}",
        files.len(),
        String::from_utf8_lossy(&output.stdout).trim()
    ));
}

/// `cat more >> NAME`, with a reader that is there before, and one that comes later.
#[test]
fn cat_appends_while_tail_follows() {
    let (store, names) = store();
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    let more = store.path().join("more");
    let tail = |name: &str| {
        let mut command = Command::new("tail");
        command
            .args(["-c", "+1", "-s", "0.05", "-f"])
            .arg(mount.path(name))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut files = Vec::new();
    for name in &names {
        let mut expected = fs::read(mount.path(name)).unwrap();
        assert_eq!(expected.len(), 7 * ROW);
        let mut followers = vec![tail(name)];
        for (number, rows_of_it) in [3, 1, 9, 4000].into_iter().enumerate() {
            let first = expected.len() / ROW;
            let data = rows(first..first + rows_of_it);
            fs::write(&more, &data).unwrap();
            let appended = Command::new("sh")
                .args(["-c", "cat \"$0\" >> \"$1\""])
                .args([&more, &mount.path(name)])
                .status()
                .unwrap();
            assert!(appended.success(), "{name}: {}", mount.log());
            expected.extend(data);
            if number == 1 {
                followers.push(tail(name));
            }
        }
        for follower in &mut followers {
            let mut found = vec![0; expected.len()];
            follower.stdout.take().unwrap().read_exact(&mut found).unwrap();
            assert!(found == expected, "{name}: as tail reads it");
            follower.kill().unwrap();
            follower.wait().unwrap();
        }
        assert!(fs::read(mount.path(name)).unwrap() == expected, "{name}");
        assert_eq!(length_of(store.path(), name) as usize, expected.len() / ROW);
        files.push((*name, expected));
    }
    assert!(!mount.log().contains("ERROR"), "{}", mount.log());
    mount.unmount();
    compare_with_others(store.path(), &files);
}

/// A row comes in pieces that end anywhere; the size is that of what is written, until the last close says that a row is short.
#[test]
fn rows_come_in_pieces() {
    let (store, _) = store();
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    let path = mount.path("chunks");
    let data = rows(7..107);
    let mut file = File::options().append(true).open(&path).unwrap();
    let size = || fs::metadata(&path).unwrap().len() as usize;
    let mut at = 0;
    for piece in [1, 18, 1, 7, 40, 53, 200, 1680] {
        file.write_all(&data[at..at + piece]).unwrap();
        at += piece;
        assert_eq!(size(), 7 * ROW + at, "after a piece");
        assert_eq!(length_of(store.path(), "chunks") as usize, 7 + at.div_ceil(ROW));
        assert_eq!(file.sync_all().is_ok(), at.is_multiple_of(ROW), "a row is written in part");
        assert!(fs::read(&path).unwrap()[7 * ROW..] == data[..at]);
    }
    assert_eq!(at, data.len());
    file.write_all(&data[..7]).unwrap();
    drop(file);
    let short = fs::read(&path).unwrap();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while size() != 108 * ROW {
        // release(2) is answered a moment after close(2).
        assert!(std::time::Instant::now() < patience, "{} bytes", size());
        std::thread::yield_now();
    }
    assert!(short.starts_with(&[&[3, 0].repeat(70), &data[..], &data[..7]].concat()));
    let last_error = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    let made = "2,147 of 2,160 bytes were written; the last row lacks 13 bytes, which are fill value now";
    assert!(last_error.contains(made), "{last_error}");
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole[107 * ROW..107 * ROW + 7], data[..7]);
    assert_eq!(whole[107 * ROW + 8..], [3, 0].repeat(6));
    mount.unmount();
    compare_with_others(store.path(), &[("chunks", whole)]);
}

/// Two programs append at the same time, while a third opens the file again and again and writes what was there before: no record is
/// lost or torn. The bug: an open that met two growths, one after the other, was ESTALE.
#[test]
fn two_programs_append() {
    const RECORDS: usize = 60;
    let (store, names) = store();
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    for name in names {
        let path = mount.path(name);
        std::thread::scope(|scope| {
            for program in [40u8, 50] {
                let path = &path;
                scope.spawn(move || {
                    let mut file = File::options().append(true).open(path).unwrap();
                    for record in 0..RECORDS {
                        file.write_all(&[[program, 0].repeat(9), vec![record as u8, 0]].concat()).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..40u8 {
                    let file = File::options().read(true).write(true).open(&path).unwrap();
                    file.write_all_at(&[round, 0].repeat(70), 0).unwrap();
                    let mut back = [0; 7 * ROW];
                    file.read_exact_at(&mut back, 0).unwrap();
                    assert_eq!(back[..], [round, 0].repeat(70));
                }
            });
        });
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), (7 + 2 * RECORDS) * ROW);
        assert_eq!(bytes[..7 * ROW], [39, 0].repeat(70));
        for program in [40u8, 50] {
            let records: Vec<u8> = bytes[7 * ROW..]
                .chunks(ROW)
                .filter(|record| record[0] == program && record[..18] == [program, 0].repeat(9))
                .map(|record| record[18])
                .collect();
            assert_eq!(records, (0..RECORDS).map(|record| record as u8).collect::<Vec<_>>(), "{name}");
        }
    }
    assert!(!mount.log().contains("ERROR"), "{}", mount.log());
    mount.unmount();
}

/// What setting the size of a file does, and which sizes are refused.
#[test]
fn sizes_that_are_set() {
    let (store, names) = store();
    write_document(store.path(), "scalar", "zarr.json", &v3("int16", &[], &[], &json!([little()])));
    write_document(store.path(), "empty", "zarr.json", &v3("int16", &[5, 0], &[2, 2], &json!([little()])));
    write_document(store.path(), "none", "zarr.json", &v3("int16", &[0, 10], &[2, 2], &json!([little()])));
    let mut uneven = v3("int16", &[5, 10], &[5, 10], &json!([little()]));
    uneven["chunk_grid"] =
        json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[2, 3], [10]]}});
    write_document(store.path(), "uneven", "zarr.json", &uneven);
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    let errno = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    for name in ["scalar", "empty", "uneven"] {
        let file = File::options().read(true).write(true).open(mount.path(name)).unwrap();
        let size = file.metadata().unwrap().len();
        assert_eq!(errno(file.set_len(size + 20)), Some(libc::EFBIG), "{name}");
        assert_eq!(errno(file.write_all_at(&[0; 20], size)), Some(libc::EFBIG), "{name}");
    }
    let reasons = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    for reason in
        ["no dimensions", "another dimension of the array is 0 long", "rectilinear grid lists each chunk"]
    {
        assert!(reasons.contains(reason), "{reasons}");
    }
    for name in names.iter().chain(&["none"]) {
        let file = File::options().read(true).write(true).open(mount.path(name)).unwrap();
        let size = file.metadata().unwrap().len();
        assert_eq!(errno(file.set_len(size + 19)), Some(libc::EINVAL), "{name}");
        assert_eq!(errno(file.set_len(i64::MAX as u64 / 20 * 20)), None, "{name}: sparse");
        drop(file);
    }
    let (store, names) = self::store();
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    for name in names {
        let path = mount.path(name);
        // A path without a writer.
        let grown = Command::new("truncate").args(["-s", "260"]).arg(&path).status().unwrap();
        assert!(grown.success());
        assert_eq!(fs::read(&path).unwrap(), [3, 0].repeat(130), "{name}: fill value");
        // A gap before a write is zero, and what comes after it in its row is not written.
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[9; 4], 300).unwrap();
        assert_eq!(fs::read(&path).unwrap()[260..], [&[0; 40][..], &[9; 4]].concat(), "{name}");
        file.set_len(320).unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap()[304..], [0; 16], "{name}");
        // A program that leaves out zeros.
        let sparse = store.path().join("sparse");
        fs::write(&sparse, [&[1; 40][..], &[0; 9960]].concat()).unwrap();
        File::options().write(true).open(&sparse).unwrap().set_len(20_000).unwrap();
        let copied = Command::new("cp").args(["--sparse=always"]).args([&sparse, &path]).status().unwrap();
        assert!(copied.success());
        assert!(fs::read(&path).unwrap() == [&[1; 40][..], &[0; 19_960]].concat(), "{name}: zeros");
    }
    mount.unmount();
    let Some(mount) = Mount::new(store.path(), &["--writable"], "growth") else { return };
    let file = File::options().append(true).open(mount.path("raw")).unwrap();
    assert_eq!(errno(file.set_len(40_000)), Some(libc::EFBIG), "without --create");
    assert_eq!(errno((&file).write_all(&[0; 20])), Some(libc::EFBIG), "without --create");
    drop(file);
    mount.unmount();
}

/// The document, its consolidated copy, sidecar, companions and views say the new length; `zarrfs resize` waits until the writer has gone.
#[test]
fn every_file_knows_the_new_length() {
    let (store, _) = store();
    let copy: Value = json_of(store.path().join("chunks/zarr.json"));
    let root = json!({"zarr_format": 3, "node_type": "group", "attributes": {},
        "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {"chunks": copy}}});
    fs::write(store.path().join("zarr.json"), root.to_string()).unwrap();
    let Some(mount) = Mount::new(store.path(), &["--create", "--revalidate=0"], "growth") else { return };
    let mut file = File::options().append(true).open(mount.path("chunks")).unwrap();
    let resize = |length: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.arg("resize").arg(store.path()).args(["chunks", length]).output().unwrap()
    };
    file.write_all(&rows(7..9)).unwrap();
    let output = resize("12,10");
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && reason.contains("another"), "{reason}");
    let root: Value = json_of(store.path().join("zarr.json"));
    assert_eq!(root["consolidated_metadata"]["metadata"]["chunks"]["shape"], json!([9, 10]));
    assert_eq!(root["consolidated_metadata"]["metadata"]["chunks"]["dimension_names"], json!(["time", "x"]));
    let sidecar: Value = json_of(mount.path("chunks.json"));
    assert_eq!((&sidecar["shape"], &sidecar["nbytes"]), (&json!([9, 10]), &json!(180)));
    let npy = fs::read(mount.path("__formats__/npy/chunks.npy")).unwrap();
    assert_eq!(npy.len() % 4096, 180, "after its header");
    assert!(npy.ends_with(&rows(7..9)), "{npy:?}");
    let view = fs::read(mount.path("__views__/big-endian/chunks")).unwrap();
    assert_eq!(view.len(), 180);
    drop(file);
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !resize("12,10").status.success() {
        assert!(std::time::Instant::now() < patience, "resize after the last close");
    }
    // The kernel keeps the former size for this long at most.
    assert_eq!(fs::read(mount.path("chunks")).unwrap().len(), 240);
    let mut file = File::options().append(true).open(mount.path("chunks")).unwrap();
    file.write_all(&rows(12..13)).unwrap();
    drop(file);
    let bytes = fs::read(mount.path("chunks")).unwrap();
    assert_eq!(bytes, [[3, 0].repeat(70), rows(7..9), [3, 0].repeat(30), rows(12..13)].concat());
    mount.unmount();
    compare_with_others(store.path(), &[("chunks", bytes)]);
}

/// What other programs left after the end of an array, zarr-python's resize does, does not come back.
#[test]
fn what_was_cut_off_does_not_come_back() {
    let (store, names) = store();
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    for name in &names {
        let mut file = File::options().append(true).open(mount.path(name)).unwrap();
        file.write_all(&[9; 43 * ROW]).unwrap();
    }
    mount.unmount();
    for name in &names {
        let key = if *name == "v2" { ".zarray" } else { "zarr.json" };
        let path = store.path().join(name).join(key);
        let mut document: Value = json_of(&path);
        document["shape"] = json!([7, 10]);
        fs::write(&path, document.to_string()).unwrap();
    }
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    let mut files = Vec::new();
    for name in &names {
        // A chunk at the end is in memory, with what the store has of it.
        let file = File::options().read(true).write(true).open(mount.path(name)).unwrap();
        file.write_all_at(&[8; 2], 6 * ROW as u64).unwrap();
        let mut back = [0; 2 * ROW];
        assert_eq!(file.read_at(&mut back, 6 * ROW as u64).unwrap(), ROW);
        file.set_len(50 * ROW as u64).unwrap();
        let bytes = fs::read(mount.path(name)).unwrap();
        assert!(bytes[7 * ROW..] == [3, 0].repeat(43 * 10), "{name}: what was cut off is back");
        file.sync_all().unwrap();
        files.push((*name, bytes));
    }
    mount.unmount();
    compare_with_others(store.path(), &files);
}

/// With `order=F` the last axis grows, and elements are big-endian.
#[test]
fn in_fortran_order() {
    let (store, _) = store();
    let options = [&OPTIONS[..], &["--order", "F", "--byte-order", "big"]].concat();
    let Some(mount) = Mount::new(store.path(), &options, "growth") else { return };
    for name in ["chunks", "shards"] {
        let path = mount.path(name);
        let mut file = File::options().append(true).open(&path).unwrap();
        let column = |value: u8| [0, value].repeat(7);
        file.write_all(&[column(1), column(2), column(5)].concat()).unwrap();
        drop(file);
        let document: Value = json_of(store.path().join(name).join("zarr.json"));
        assert_eq!(document["shape"], json!([7, 13]));
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes, [[0, 3].repeat(70), column(1), column(2), column(5)].concat());
    }
    mount.unmount();
    let row: Vec<u8> = [[3, 0].repeat(10), vec![1, 0, 2, 0, 5, 0]].concat();
    compare_with_others(store.path(), &[("chunks", row.repeat(7)), ("shards", row.repeat(7))]);
}

/// A memory map shows what is appended, and what is written through it stays.
#[test]
fn growth_under_a_memory_map() {
    let (store, _) = store();
    let Some(mount) = Mount::new(store.path(), &OPTIONS, "growth") else { return };
    let Some(python) = python("growth under a map") else { return };
    const PROGRAM: &str = "
import mmap, os, sys
path, name = sys.argv[1], sys.argv[1].rsplit('/', 1)[1]
reader = os.open(path, os.O_RDWR)
before = mmap.mmap(reader, 0)
before[0:2] = b'\\x07\\x00'
writer = open(path, 'ab', buffering=0)
for row in range(500):
    writer.write(bytes([row % 100, 0]) * 10)
    before[2:4] = bytes([row % 100, 0])
after = mmap.mmap(reader, 0)
assert len(after) == 507 * 20, len(after)
for row in range(500):
    assert after[(7 + row) * 20:(8 + row) * 20] == bytes([row % 100, 0]) * 10, row
after[506 * 20:] = b'\\x05\\x00' * 10
after.flush()
assert before[:4] == b'\\x07\\x00\\x63\\x00'
";
    let output = Command::new(python).args(["-c", PROGRAM]).arg(mount.path("chunks")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(mount.path("chunks")).unwrap();
    mount.unmount();
    assert_eq!((&bytes[..4], &bytes[506 * 20..]), (&[7, 0, 99, 0][..], &[5, 0].repeat(10)[..]));
    compare_with_others(store.path(), &[("chunks", bytes)]);
}
