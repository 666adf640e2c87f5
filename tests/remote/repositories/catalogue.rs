//! Repositories and buckets as members of a catalogue, next to folders; and a bucket that does not respond.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::repositories::made::{local, made};
use crate::support::mounted::Mount;
use crate::support::place::{copy_demo, wait_for};
use crate::support::say;
use crate::support::servers::{Kind, Server};

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

/// Returns options of the command line as keys of a member.
fn keys(options: &[String]) -> String {
    let pairs = options.chunks(2).map(|pair| match pair {
        [name, value] => format!("{} = {value:?}\n", name.trim_start_matches("--")),
        _ => panic!("{options:?}"),
    });
    pairs.collect()
}

fn state_of(mount: &Mount, name: &str) -> String {
    let config: Value =
        serde_json::from_slice(&fs::read(mount.path("__zarrfs__/config.json")).unwrap()).unwrap();
    let members = config["members"].as_array().unwrap();
    let member = members.iter().find(|member| member["name"] == name).unwrap();
    member["state"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn repositories_and_buckets_are_members_like_others() {
    let Some(made) = made("repositories in a catalogue") else { return };
    let (folder, started) = (tempfile::tempdir().unwrap(), Instant::now());
    let content = folder.path().join("content");
    copy(&made.stores(), &content);
    let demo = content.join("demo.zarr");
    copy_demo(&demo);
    let server = Server::alone(Kind::S3s, &content);
    let away = keys(&server.options());
    let mut text = String::new();
    // The folder of each member, and what its arrays are.
    let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
    for (number, version) in made.versions.iter().enumerate() {
        let options = keys(&version.options);
        let here = local(&made.stores().join(&version.repository));
        let there = format!("icechunk+{}", server.url(&version.repository));
        text += &format!("[here{number}]\nstore = {here:?}\n{options}\n");
        text += &format!("[there{number}]\nstore = {there:?}\n{options}{away}\n");
        for (array, file) in &version.arrays {
            let bytes = fs::read(made.values().join(file)).unwrap();
            expected.push((format!("here{number}/{array}"), bytes.clone()));
            expected.push((format!("there{number}/{array}"), bytes));
        }
    }
    let changes = folder.path().join("changes");
    let bucket = server.url("demo.zarr");
    text += &format!("[folder]\nstore = {demo:?}\n[bucket]\nstore = {bucket:?}\n{away}\n");
    text += &format!("[writable]\nstore = {bucket:?}\nwritable = true\ncreate = true\n{away}\n");
    text += &format!("[over]\nstore = {bucket:?}\nwritable = true\noverlay = {changes:?}\n{away}\n");
    let catalogue = folder.path().join("host.toml");
    fs::write(&catalogue, text).unwrap();
    let environment: Vec<(&str, OsString)> =
        server.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    let options = ["-o", "revalidate=0", "--tune", "request-deadline=60", "--direct-io"];
    let Some(mount) = Mount::with_environment(&catalogue, &options, &environment, "buckets and repositories")
    else {
        return;
    };
    for (path, bytes) in &expected {
        let read =
            fs::read(mount.path(path)).unwrap_or_else(|error| panic!("{path}: {error}: {}", mount.log()));
        assert!(read == *bytes, "{path}: {} bytes, not {}", read.len(), bytes.len());
    }
    let spiral = fs::read(mount.path("folder/small/spiral")).unwrap();
    for name in ["bucket", "writable", "over"] {
        assert_eq!(fs::read(mount.path(&format!("{name}/small/spiral"))).unwrap(), spiral, "{name}");
    }
    let write = |name: &str, byte: u8| {
        let file = File::options().write(true).open(mount.path(&format!("{name}/small/spiral"))).unwrap();
        file.write_all_at(&[byte; 100], 0).unwrap();
        file.sync_all().unwrap();
    };
    write("over", 5);
    assert_eq!(fs::read(mount.path("bucket/small/spiral")).unwrap(), spiral);
    write("writable", 6);
    assert_eq!(fs::read(mount.path("bucket/small/spiral")).unwrap()[..100], [6; 100]);
    assert_eq!(fs::read(mount.path("over/small/spiral")).unwrap()[..100], [5; 100]);
    say(format!("read and written after {:?}", started.elapsed()));
    // The server stops: its members hold up neither the others nor the root.
    let open = File::open(mount.path("bucket/climate/temperature")).unwrap();
    server.signal("STOP");
    let programs: Vec<_> = (0..20)
        .map(|number| {
            let file = open.try_clone().unwrap();
            let path = mount.path(&format!("writable/new{number}"));
            let read = std::thread::spawn(move || file.read_at(&mut [0; 10], number * 150_000).map(drop));
            (read, std::thread::spawn(move || fs::create_dir(path)))
        })
        .collect();
    drop(open);
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..3 {
        assert!(fs::read_dir(mount.point()).unwrap().count() > 10);
        assert!(fs::metadata(mount.path("bucket")).unwrap().is_dir());
        assert_eq!(fs::read(mount.path("folder/small/spiral")).unwrap(), spiral);
        let (path, bytes) = &expected[0];
        assert!(path.starts_with("here") && fs::read(mount.path(path)).unwrap() == *bytes);
    }
    server.signal("CONT");
    say(format!("the server goes on after {:?}", started.elapsed()));
    for (number, (read, made)) in programs.into_iter().enumerate() {
        read.join().unwrap().unwrap();
        made.join().unwrap().unwrap();
        assert!(mount.path(&format!("writable/new{number}")).is_dir());
    }
    wait_for(|| state_of(&mount, "bucket") == "open");
    assert_eq!(fs::read(mount.path("bucket/small/spiral")).unwrap()[..100], [6; 100]);
    say(format!("all is well after {:?}", started.elapsed()));
    mount.unmount();
}
