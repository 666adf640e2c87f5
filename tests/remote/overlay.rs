//! An overlay over a bucket: programs write, nothing is put until it is committed, and then on condition.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::mounted::Mount;
use crate::support::place::can_mount;
use crate::support::servers::{Kind, Server};
use crate::support::{say, sha256};

fn zarrfs(server: &Server, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.envs(server.environment()).args(words).output().unwrap()
}

/// The bucket's objects with their content, as one number.
fn digest(server: &Server) -> String {
    let folder = tempfile::tempdir().unwrap();
    server.download(folder.path());
    let output = Command::new("sh")
        .args(["-c", "cd \"$1\" && find . -type f | LC_ALL=C sort | xargs sha256sum", "sh"])
        .arg(folder.path())
        .output()
        .unwrap();
    sha256(&output.stdout)
}

#[test]
fn over_a_bucket() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
        .arg("demo")
        .arg(folder.path().join("bucket/demo.zarr"))
        .output();
    assert!(made.unwrap().status.success());
    let server = Server::start(Kind::Moto, &folder.path().join("bucket"));
    let before = digest(&server);
    let overlay = folder.path().join("overlay").to_str().unwrap().to_owned();
    let mut options = server.options();
    options.extend(["--writable".to_owned(), "--overlay".to_owned(), overlay.clone()]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    let url = server.url("demo.zarr");
    let mount = || {
        Mount::with_environment(Path::new(&url), &options, &environment, "an overlay over a bucket").unwrap()
    };
    let mounted = mount();
    let mut expected = fs::read(mounted.path("climate/temperature")).unwrap();
    let file = File::options().write(true).open(mounted.path("climate/temperature")).unwrap();
    for number in 0..40 {
        let at = number * 77_000 + 13;
        file.write_all_at(&[number as u8; 900], at as u64).unwrap();
        expected[at..at + 900].fill(number as u8);
    }
    file.sync_all().unwrap();
    drop(file);
    fs::write(mounted.path("small/answer"), 7i64.to_le_bytes()).unwrap();
    mounted.unmount();
    assert_eq!(digest(&server), before, "the bucket has changed");
    let mounted = mount();
    assert!(fs::read(mounted.path("climate/temperature")).unwrap() == expected);
    mounted.unmount();
    // Another program puts a chunk.
    server.put(vec![("demo.zarr/small/answer/c".to_owned(), 9i64.to_le_bytes().to_vec())]);
    let output = zarrfs(&server, &["overlay", "commit", &overlay]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("small/answer/c: changed in the store"),
        "{output:?}"
    );
    say(String::from_utf8_lossy(&output.stderr));
    let mut words = vec!["cat", &url, "climate/temperature"];
    let endpoint = server.options();
    words.extend(endpoint.iter().map(String::as_str));
    assert!(zarrfs(&server, &words).stdout == expected, "the bucket has other bytes");
    let output = zarrfs(&server, &["overlay", "discard", "--yes", &overlay]);
    assert!(output.status.success(), "{output:?}");
}
