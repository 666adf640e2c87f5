//! An overlay over a bucket: programs write, nothing is put until it is committed, and then on condition.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::disk::Disk;
use crate::support::mounted::Mount;
use crate::support::place::{can_mount, copy_demo};
use crate::support::servers::{Kind, Server};
use crate::support::{say, sha256};

fn zarrfs(server: &Server, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
    command.envs(server.environment()).args(words).output().unwrap()
}

/// Returns the bucket's objects with their content, as one number.
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

/// Returns a mount of the demo in a bucket, with its changes in this folder.
fn mount(server: &Server, overlay: &Path) -> Mount {
    let mut options = server.options();
    options.extend(["--writable", "--overlay", overlay.to_str().unwrap()].map(str::to_owned));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    let url = server.url("demo.zarr");
    Mount::with_environment(Path::new(&url), &options, &environment, "an overlay over a bucket").unwrap()
}

/// Starts a server with the demo in its bucket.
fn demo_in_a_bucket(folder: &Path) -> Server {
    fs::create_dir(folder.join("bucket")).unwrap();
    copy_demo(&folder.join("bucket/demo.zarr"));
    Server::start(Kind::Moto, &folder.join("bucket"))
}

/// Returns an array as another program reads it without the mount.
fn read_without_the_mount(server: &Server, overlay: &Path, array: &str) -> Vec<u8> {
    let (url, options) = (server.url("demo.zarr"), server.options());
    let mut words = vec!["cat", &url, array, "--overlay", overlay.to_str().unwrap()];
    words.extend(options.iter().map(String::as_str));
    let output = zarrfs(server, &words);
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// The disk of the overlay is full: fsync(2) says so, what was written stays in memory, and once there is room it is stored.
#[test]
fn on_a_full_disk() {
    const PIECE_BYTES: usize = 64 << 10;
    let Some(disk) = Disk::in_memory("size=1m", "an overlay over a bucket on a full disk") else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = demo_in_a_bucket(folder.path());
    let before = digest(&server);
    let overlay = disk.path().join("overlay");
    let mounted = mount(&server, &overlay);
    let mut expected = fs::read(mounted.path("climate/temperature")).unwrap();
    let write = |file: &File, expected: &mut [u8], at: usize| {
        let piece: Vec<u8> = (0..PIECE_BYTES).map(|n| ((n * n * (at + 7)) >> 5) as u8).collect();
        expected[at..at + PIECE_BYTES].copy_from_slice(&piece);
        file.write_all_at(&piece, at as u64).and_then(|()| file.sync_all())
    };
    let file = File::options().write(true).open(mounted.path("climate/temperature")).unwrap();
    write(&file, &mut expected, 0).unwrap();
    let filler = disk.path().join("filler");
    let full = std::io::copy(&mut std::io::repeat(1), &mut File::create(&filler).unwrap()).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    let failed = write(&file, &mut expected, 1 << 20).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::ENOSPC), "{}", mounted.log());
    assert!(mounted.log().contains("No space left"), "{}", mounted.log());
    assert!(fs::read(mounted.path("climate/temperature")).unwrap() == expected);
    let stored = read_without_the_mount(&server, &overlay, "climate/temperature");
    assert!(stored[..PIECE_BYTES] == expected[..PIECE_BYTES], "what was synced before is gone");
    fs::remove_file(&filler).unwrap();
    // A failure of write-back in between is reported once more.
    assert!((0..3).any(|_| file.sync_all().is_ok()), "{}", mounted.log());
    drop(file);
    mounted.unmount();
    assert_eq!(digest(&server), before, "the bucket has changed");
    assert!(read_without_the_mount(&server, &overlay, "climate/temperature") == expected);
}

#[test]
fn over_a_bucket() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = demo_in_a_bucket(folder.path());
    let before = digest(&server);
    let overlay = folder.path().join("overlay").to_str().unwrap().to_owned();
    let url = server.url("demo.zarr");
    let mounted = mount(&server, Path::new(&overlay));
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
    let mounted = mount(&server, Path::new(&overlay));
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
