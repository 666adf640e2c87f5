//! Keys that cannot be asked for, in listings of a bucket, and the same in a folder and in an archive: they hide nothing of what is
//! next to them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::misbehaving::{BUCKET, Service};
use crate::support::mounted::Mount;

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group"}"#;
const ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"uint8","fill_value":0,
    "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},"chunk_key_encoding":{"name":"default"},
    "codecs":["bytes"]}"#;
/// Objects that belong to no node.
const ODD: [&str; 9] =
    ["/x", "a//b", "a/./b", "a/../b", "a/c/x\ty", "a/c/\x7f", "a/line\nbreak", "a/\u{1}", "a/c//0"];

fn bucket() -> (tempfile::TempDir, Service) {
    let folder = tempfile::tempdir().unwrap();
    let at = |key: &str| folder.path().join("store").join(key);
    fs::create_dir_all(at("a/c")).unwrap();
    fs::write(at("zarr.json"), GROUP).unwrap();
    fs::write(at("a/zarr.json"), ARRAY).unwrap();
    fs::write(at("a/c/0"), [1, 2]).unwrap();
    fs::write(at("a/c/1"), [3, 4]).unwrap();
    let service = Service::start(&folder.path().join("store"));
    (folder, service)
}

fn run(service: &Service, arguments: &[&str]) -> Output {
    let (endpoint, url) = (service.endpoint(), format!("s3://{BUCKET}"));
    let of_service = [arguments[0], "--endpoint-url", &endpoint, "--no-sign-request", &url];
    zarrfs(&[&of_service, &arguments[1..]].concat())
}

fn zarrfs(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zarrfs"))
        .args(arguments)
        .env("AWS_PROFILE", "")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_is_next_to_odd_keys_is_listed_and_sound() {
    let (_folder, service) = bucket();
    for keys in ODD.iter().map(std::slice::from_ref).chain([&ODD[..]]) {
        service.list_also(keys);
        let output = run(&service, &["ls"]);
        let (listed, said) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success() && listed.contains("uint8") && listed.contains(" 4 B"),
            "{keys:?}: {output:?}"
        );
        assert_eq!((said.lines().count(), said.contains("left out")), (1, true), "{keys:?}: {said}");
        let output = run(&service, &["check"]);
        assert!(
            output.status.success() && text(&output.stderr).contains("2 chunks read"),
            "{keys:?}: {output:?}"
        );
    }
    let Some(mount) = Mount::with_environment(
        Path::new(&format!("s3://{BUCKET}")),
        &["--endpoint-url", &service.endpoint(), "--no-sign-request"],
        &[("AWS_PROFILE", std::ffi::OsString::new())],
        "odd keys",
    ) else {
        return;
    };
    let names: Vec<_> = fs::read_dir(mount.point()).unwrap().map(|name| name.unwrap().file_name()).collect();
    assert!(names.iter().any(|name| name == "a"), "{names:?}");
    assert_eq!(fs::read(mount.path("a")).unwrap(), [1, 2, 3, 4]);
}

/// What a program on Windows has uploaded with its own separator: the groups and chunks are missing.
#[test]
fn names_with_backslashes_are_named_by_check() {
    let (_folder, service) = bucket();
    service.list_also(&[r"sub\zarr.json", r"sub\c\0"]);
    let output = run(&service, &["check"]);
    let said = text(&output.stderr);
    assert!(said.contains("as a zip file made on Windows") && said.contains("zarr.json"), "{said}");
}

/// A folder may be a node: the exit code says that it was not seen.
#[test]
fn a_folder_that_cannot_be_asked_for_is_said_to_be_unseen() {
    let (_folder, service) = bucket();
    service.list_also(&["tab\there/zarr.json"]);
    for command in ["ls", "check"] {
        let output = run(&service, &[command]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(r"tab\there"), "{command}: {said}");
        assert!(command == "check" || said.contains("uint8"), "{said}");
    }
    let output = run(&service, &["check", "a"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn nothing_but_odd_keys_is_not_a_folder_with_a_name_of_nothing() {
    let (_folder, service) = bucket();
    service.list_also(&["a/", "a/c/", "b/"]);
    let output = run(&service, &["ls"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(text(&output.stdout).matches("uint8").count(), 1, "{output:?}");
}

#[test]
fn a_folder_with_names_that_are_not_utf8_is_listed() {
    let (folder, _service) = bucket();
    let store = folder.path().join("store");
    let path = store.to_str().unwrap();
    let odd = |name: &[u8]| store.join(std::ffi::OsStr::from_bytes(name));
    fs::write(odd(b"a/c/\xff"), "").unwrap();
    fs::write(odd(b"a/c/\xfe"), "").unwrap();
    let output = zarrfs(&["ls", path]);
    let said = text(&output.stderr);
    assert!(output.status.success() && text(&output.stdout).contains("uint8"), "{output:?}");
    assert_eq!((said.lines().count(), said.contains("left out")), (1, true), "{said}");
    assert!(zarrfs(&["check", path]).status.success());
    // A name with a line end is a name.
    fs::create_dir_all(store.join("line\nend/c")).unwrap();
    fs::write(store.join("line\nend/zarr.json"), ARRAY).unwrap();
    let output = zarrfs(&["ls", path]);
    assert!(output.status.success() && text(&output.stdout).matches("uint8").count() == 2, "{output:?}");
    // And this one might be the name of an array.
    fs::create_dir_all(odd(b"\xff\x1b")).unwrap();
    for command in ["ls", "check"] {
        let output = zarrfs(&[command, path]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(r"\xff\x1b"), "{command}: {said}");
    }
}

#[test]
fn members_of_an_archive_that_cannot_be_keys_are_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.zip");
    let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    for (name, content) in
        [("zarr.json", GROUP), ("a/zarr.json", ARRAY), ("a//b", ""), ("/x", ""), ("a/./c", "")]
    {
        archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut archive, content.as_bytes()).unwrap();
    }
    archive.finish().unwrap();
    for command in ["ls", "check"] {
        let output = zarrfs(&[command, path.to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(output.status.success() && said.matches("left out").count() == 1, "{command}: {output:?}");
    }
}
