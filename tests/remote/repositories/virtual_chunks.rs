//! Chunks that are ranges of other files, under the rule of references.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::repositories::made::{local, mount, python, run};
use crate::support::mounted::Mount;
use crate::support::servers::{Kind, Server};

/// Returns the folder of `stores`, with references to files below this URL.
fn made(url: &str, what: &str) -> Option<TempDir> {
    let (python, folder) = (python(what)?, tempfile::tempdir().unwrap());
    run(&python, &["virtual", folder.path().to_str().unwrap(), url]);
    Some(folder)
}

/// Returns what an array shows that is there.
fn expected() -> Vec<u8> {
    (0..300).chain(std::iter::repeat_n(-1, 100)).flat_map(i32::to_le_bytes).collect()
}

/// Returns the number and the sentence of an array's error.
fn refused(mount: &Mount, array: &str) -> (i32, String) {
    let error = fs::read(mount.path(array)).unwrap_err();
    let sentence = fs::read_to_string(mount.path("__zarrfs__/last_error")).unwrap();
    (error.raw_os_error().unwrap(), sentence)
}

#[test]
fn in_a_folder() {
    let what = "virtual chunks in a folder";
    let Some(folder) = made("s3://corpus/data/", what) else { return };
    let stores = folder.path().join("stores");
    let location = local(&stores.join("virtual"));
    let data = stores.join("data").display().to_string();
    let Some(closed) = mount(None, &location, &[], what) else { return };
    for (array, prefix) in [
        ("local", data.as_str()),
        ("outside", "/etc"),
        ("own", "s3://corpus"),
        ("elsewhere", "s3://elsewhere"),
    ] {
        let (number, sentence) = refused(&closed, array);
        assert_eq!(number, libc::EACCES, "{array}: {sentence}");
        assert!(sentence.contains(&format!("--allow-references {prefix}")), "{sentence}");
    }
    closed.unmount();
    let Some(open) = mount(None, &location, &["--allow-references", &data], what) else { return };
    for array in ["local", "named"] {
        assert_eq!(fs::read(open.path(array)).unwrap(), expected(), "{array}");
    }
    for (array, reason) in [("changed", "has changed"), ("tagged", "has changed"), ("missing", "none.bin")] {
        let (number, sentence) = refused(&open, array);
        assert!(number == libc::EIO && sentence.contains(reason), "{array}: {number}, {sentence}");
    }
    assert_eq!(refused(&open, "outside").0, libc::EACCES);
    // Another file in its place is not what the snapshot refers to.
    let file = Path::new(&data).join("a b.bin");
    let content = fs::read(&file).unwrap();
    fs::write(&file, &content[..700]).unwrap();
    let (number, sentence) = refused(&open, "named");
    assert!(number == libc::EIO && sentence.contains("has 700"), "{sentence}");
    open.unmount();
}

fn at_a_service(kind: Kind) {
    let what = "virtual chunks at a service";
    let url = match kind {
        Kind::Azurite => "az://corpus/data/",
        Kind::Google => "gs://corpus/data/",
        _ => "s3://corpus/data/",
    };
    let Some(folder) = made(url, what) else { return };
    let server = Server::alone(kind, &folder.path().join("stores"));
    let location = format!("icechunk+{}", server.url("virtual"));
    let Some(mount) = mount(Some(&server), &location, &[], what) else { return };
    assert_eq!(fs::read(mount.path("own")).unwrap(), expected(), "{}", mount.log());
    for array in ["own_changed", "own_tagged"] {
        let (number, sentence) = refused(&mount, array);
        assert!(number == libc::EIO && sentence.contains("has changed"), "{array}: {sentence}");
    }
    for array in ["local", "outside", "elsewhere"] {
        assert_eq!(refused(&mount, array).0, libc::EACCES, "{array}");
    }
    mount.unmount();
}

#[test]
fn at_moto() {
    at_a_service(Kind::Moto);
}

#[test]
fn at_google() {
    at_a_service(Kind::Google);
}
