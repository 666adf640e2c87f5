//! Files that grow in a bucket: the document is put on condition, and other mounts see the new length.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::place::can_mount;
use crate::support::say;
use crate::support::servers::{Kind, Server};
use crate::support::uneven::v3;

const ROW: usize = 20;

/// Appends rows of one value to the array, in two writes, and syncs them.
fn append(expected: &mut Vec<u8>, mount: &Mount, value: u8, rows: usize) {
    let data = [value, 0].repeat(rows * ROW / 2);
    let mut file = File::options().append(true).open(mount.path("a")).unwrap();
    for part in [&data[..7], &data[7..]] {
        file.write_all(part).unwrap_or_else(|error| panic!("rows of {value}: {error}\n{}", mount.log()));
    }
    file.sync_all().unwrap_or_else(|error| panic!("rows of {value}: {error}\n{}", mount.log()));
    expected.extend(data);
}

fn grow_at(kind: Kind) {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("bucket/store.zarr");
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let document = v3("int16", &[7, 10], &[4, 5], &json!([little, zstd]));
    fs::create_dir_all(store.join("a")).unwrap();
    fs::write(store.join("a/zarr.json"), document.to_string()).unwrap();
    let root = json!({"zarr_format": 3, "node_type": "group", "attributes": {},
        "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {"a": document}}});
    fs::write(store.join("zarr.json"), root.to_string()).unwrap();
    let server = Server::start(kind, &folder.path().join("bucket"));
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    let url = server.url("store.zarr");
    let mount = |further: &[&str]| {
        let mut options = server.options();
        options.extend(further.iter().map(|option| (*option).to_owned()));
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Mount::with_environment(Path::new(&url), &options, &environment, "growth in a bucket").unwrap()
    };
    let first = mount(&["--create"]);
    let second = mount(&["--create", "--revalidate=0"]);
    let mut expected = [3, 0].repeat(70);
    // What is started meanwhile closes the files that it inherits: the kernel sends FLUSH between writes and during them.
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| (0..10).for_each(|_| append(&mut expected, &first, 1, 3)));
        while !appending.is_finished() {
            assert!(Command::new("true").status().unwrap().success());
        }
    });
    append(&mut expected, &first, 2, 30);
    // Another mount goes on where this one ended, and the other way round: each open for writing looks at the document.
    append(&mut expected, &second, 4, 3);
    append(&mut expected, &first, 5, 3);
    assert!(fs::read(second.path("a")).unwrap() == expected, "as the other mount reads it");
    // One of two appends to the same end is refused, and nothing of the other is lost.
    let mut stale = File::options().append(true).open(first.path("a")).unwrap();
    append(&mut expected, &second, 6, 2);
    let refused = stale.write_all(&[7, 0].repeat(10));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ESTALE), "{}", first.log());
    drop(stale);
    first.unmount();
    second.unmount();
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    server.download(&copy);
    let read = |key: &str| -> Value {
        let path = [copy.join(key), copy.join("store.zarr").join(key)].into_iter().find(|path| path.exists());
        json_of(path.unwrap())
    };
    let shape = json!([expected.len() / ROW, 10]);
    assert_eq!(read("a/zarr.json")["shape"], shape);
    assert_eq!(read("zarr.json")["consolidated_metadata"]["metadata"]["a"]["shape"], shape);
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    let output =
        command.envs(server.environment()).args(["cat", &url, "a"]).args(server.options()).output().unwrap();
    assert!(output.stdout == expected, "{}", String::from_utf8_lossy(&output.stderr));
    say(format!("growth in a bucket of {kind:?}: {} rows appended by two mounts", expected.len() / ROW - 7));
}

#[test]
fn at_moto() {
    grow_at(Kind::Moto);
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn at_s3s() {
    grow_at(Kind::S3s);
}
