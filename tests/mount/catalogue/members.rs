//! Members of many kinds, each with its own options and permissions, members that cannot be opened, and catalogues that are refused.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{Host, SECONDS, errno, names, serve, state_of};
use crate::support::mounted::Mount;
use crate::support::place::{PROGRAM, copy_demo, is_root, refusal, signal, wait_for, zarrfs};

#[test]
fn forty_members_of_seven_kinds_are_one_tree_with_one_engine() {
    let host = Host::new();
    copy_demo(&host.path("demo.zarr"));
    let python = zarrfs(&["check", host.path("demo.zarr").to_str().unwrap()]);
    assert!(python.status.success());
    zip(&host.path("demo.zarr"), &host.path("demo.zip"));
    host.store("plain.zarr", 3, 20);
    let stack = json!({"zarrfs_stack": 1, "arrays": {"g/a": {"store": "plain.zarr", "path": "g/a"}}});
    fs::write(host.path("stack.json"), stack.to_string()).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (web, nobody) = (serve(host.path("plain.zarr")), silent.local_addr().unwrap().port());
    fs::write(host.path("notes.txt"), "notes").unwrap();
    fs::write(host.path("cut.zip"), "PK\x03\x04").unwrap();
    fs::create_dir(host.path("empty")).unwrap();
    let kinds = [
        ("folder", host.at("plain.zarr"), "g/a"),
        ("zip", host.at("demo.zip"), "small/spiral"),
        ("stack", host.at("stack.json"), "g/a"),
        ("overlay", host.at("plain.zarr") + "\nwritable = true", "g/a"),
        ("array", host.at("plain.zarr/g/a"), ""),
        ("inside", format!("store = \"{}|zip:climate\"", host.path("demo.zip").display()), "temperature"),
        ("url", format!("store = \"http://127.0.0.1:{web}/g/a\""), ""),
    ];
    let mut members = Vec::new();
    for number in 0..35 {
        let (kind, keys, path) = &kinds[number % kinds.len()];
        let name = format!("{kind}{number}");
        let path = if path.is_empty() { name.clone() } else { (*path).to_owned() };
        let overlay = format!("\noverlay = {:?}", host.path(&format!("changes{number}")));
        let keys = if *kind == "overlay" { keys.clone() + &overlay } else { keys.clone() };
        members.push((name, keys, Some(path)));
    }
    for (name, keys) in [
        ("missing", host.at("none.zarr")),
        ("notes", host.at("notes.txt")),
        ("cut", host.at("cut.zip")),
        ("empty", host.at("empty")),
        ("silent", format!("store = \"http://127.0.0.1:{nobody}/x.zarr\"")),
    ] {
        members.push((name.to_owned(), keys, None));
    }
    let mut defined: Vec<(&str, String)> =
        members.iter().map(|(name, keys, _)| (&**name, keys.clone())).collect();
    host.define(&defined);
    let options = ["--cache-size", "8M", "--tune", "threads=2"];
    let Some(mount) = Mount::new(&host.catalogue(), &options, "a catalogue") else { return };
    let listed = names(mount.point());
    for (name, _, path) in &members {
        assert!(listed.contains(name), "{name} is not in {listed:?}");
        if let Some(path) = path {
            wait_for(|| state_of(mount.point(), name) != "opening");
            let read = fs::read(mount.path(&format!("{name}/{path}")));
            let read = read.unwrap_or_else(|error| panic!("{name}/{path}: {error}: {}", mount.log()));
            match path.as_str() {
                "small/spiral" => assert_eq!(read.len(), 16_000, "{name}"),
                "temperature" => assert_eq!(read.len(), 12 * 180 * 360 * 4, "{name}"),
                _ => assert!(read.len() == 20_000 && read.iter().all(|byte| *byte == 3), "{name}"),
            }
        }
    }
    for (name, reason) in [
        ("missing", "no such folder or zip archive"),
        ("notes", "neither a folder nor a zip archive"),
        ("cut", "the zip archive cannot be read"),
        ("empty", "not a Zarr store"),
    ] {
        let sidecar: Value =
            serde_json::from_slice(&fs::read(mount.path(&format!("{name}.json"))).unwrap()).unwrap();
        assert!(sidecar["error"].as_str().unwrap().contains(reason), "{sidecar}");
        assert_eq!(errno(fs::read(mount.path(name))), libc::EIO);
    }
    // A member whose server does not answer is a folder until that is known.
    assert!(fs::metadata(mount.path("silent")).unwrap().is_dir());
    let stats = fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap();
    let value = |name: &str| -> Vec<f64> {
        let lines = stats.lines().filter(|line| line.split(' ').next() == Some(name));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
    };
    // One engine has one cache with one limit.
    assert!(
        value("zarrfs_cache_limit_bytes").len() == 1
            && value("zarrfs_cache_limit_bytes")[0] <= (8 << 20) as f64
    );
    assert!(value("zarrfs_cache_bytes")[0] <= value("zarrfs_cache_limit_bytes")[0]);
    assert_eq!(value("zarrfs_member_open{member=\"folder0\"}"), [1.0]);
    assert_eq!(value("zarrfs_member_open{member=\"missing\"}"), [0.0]);
    assert_eq!(value("zarrfs_member_read_bytes_total{member=\"folder0\"}"), [20_000.0]);
    assert_eq!(value("zarrfs_uptime_seconds").len(), 1);
    let listing = zarrfs(&["mounts"]);
    let listing = String::from_utf8(listing.stdout).unwrap();
    assert!(listing.contains("folder0") && listing.contains("failed"), "{listing}");
    // The busiest arrays begin with their members.
    let point = mount.point().display();
    let script = format!("stty rows 24 cols 100; timeout --foreground 60 {PROGRAM} top {point}");
    let mut top = Command::new("script")
        .args(["-qec", &script, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .env("TERM", "xterm")
        .spawn()
        .unwrap();
    top.stdin.take().unwrap().write_all(b"tq").unwrap();
    let shown = String::from_utf8_lossy(&top.wait_with_output().unwrap().stdout).into_owned();
    assert!(shown.contains("/inside5/temperature"), "{shown}");
    let stat = zarrfs(&["stat", mount.point().to_str().unwrap()]);
    let stat = String::from_utf8(stat.stdout).unwrap();
    assert!(stat.contains("inside5/temperature"), "{stat}");
    // One changes while the others are read: it has another store then, and the others what they had.
    let others: Vec<(String, Vec<u8>)> = members
        .iter()
        .filter(|(name, _, path)| path.is_some() && name != "folder0")
        .map(|(name, _, path)| format!("{name}/{}", path.as_ref().unwrap()))
        .map(|path| (path.clone(), fs::read(mount.path(&path)).unwrap()))
        .collect();
    host.store("another.zarr", 4, 20);
    defined[0].1 = host.at("another.zarr");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) || rounds == 0 {
                for (path, expected) in &others {
                    assert!(fs::read(mount.path(path)).unwrap() == *expected, "{path}");
                }
                rounds += 1;
            }
        });
        host.define(&defined);
        signal(mount.pid(), "HUP");
        wait_for(|| fs::read(mount.path("folder0/g/a")).is_ok_and(|read| read[0] == 4));
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    // The promise: the cache, the dirty limit, two chunks of each of two threads, and 64 MiB. The program's own pages are those of its file.
    let promised_kb = (8 + 2 + 64) * 1024 + 2 * 2 * 90 * 120 * 4 / 1024;
    let used_kb = mount.memory_kb("RssAnon");
    assert!(used_kb <= promised_kb, "{used_kb} kB, and {promised_kb} are promised");
    mount.unmount();
}

/// Puts the files of a folder into an archive.
fn zip(folder: &Path, archive: &Path) {
    let mut writer = zip::ZipWriter::new(File::create(archive).unwrap());
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
        writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(&fs::read(&path).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn each_member_has_its_own_options() {
    let host = Host::new();
    for name in ["read", "write", "all", "over"] {
        host.store(&format!("{name}.zarr"), 1, 20);
    }
    let overlay = format!("overlay = {:?}", host.path("changes"));
    host.define(&[
        ("read", host.at("read.zarr")),
        ("write", host.at("write.zarr") + "\nwritable = true"),
        ("all", host.at("all.zarr") + "\ncreate = true\ndelete = true"),
        ("over", host.at("over.zarr") + "\nwritable = true\n" + &overlay),
    ]);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "a writable catalogue") else { return };
    let write = |member: &str| {
        let file = File::options().write(true).open(mount.path(&format!("{member}/g/a")))?;
        file.write_all_at(&[7; 10], 5)?;
        file.sync_all()
    };
    assert_eq!(errno(write("read")), libc::EROFS);
    for member in ["write", "all", "over"] {
        write(member).unwrap();
    }
    let stored = |store: &str| fs::read(host.path(store).join("g/a/c/0/0")).unwrap()[5];
    assert_eq!(
        (stored("read.zarr"), stored("write.zarr"), stored("all.zarr"), stored("over.zarr")),
        (1, 7, 7, 1)
    );
    assert_eq!(fs::read(mount.path("over/g/a")).unwrap()[5], 7);
    // Names change where the member says so.
    assert_eq!(errno(fs::create_dir(mount.path("new"))), libc::EROFS);
    assert_eq!(errno(fs::create_dir(mount.path("read/new"))), libc::EROFS);
    assert_eq!(errno(fs::create_dir(mount.path("write/new"))), libc::EPERM);
    fs::create_dir(mount.path("all/new")).unwrap();
    assert_eq!(errno(fs::remove_file(mount.path("write/g/a"))), libc::EPERM);
    assert_eq!(errno(fs::rename(mount.path("all/g/a"), mount.path("over/g/b"))), libc::EPERM);
    fs::rename(mount.path("all/g/a"), mount.path("all/new/b")).unwrap();
    assert!(host.path("all.zarr/new/b/zarr.json").exists() && !host.path("all.zarr/g/a").exists());
    fs::remove_file(mount.path("all/new/b")).unwrap();
    assert!(!host.path("all.zarr/new/b").exists());
    // An array grows only where arrays may be made.
    let append = |member: &str| {
        let file = File::options().append(true).open(mount.path(&format!("{member}/g/a")))?;
        (&file).write_all(&vec![9; 1000])
    };
    assert!(append("write").is_err());
    let mode = |path: &str| fs::metadata(mount.path(path)).unwrap().permissions().mode() & 0o222;
    assert_eq!(
        (mode("read/g/a"), mode("write/g/a")),
        (
            0,
            0o200
                | (fs::metadata(host.path("write.zarr/g/a/zarr.json")).unwrap().permissions().mode() & 0o022)
        )
    );
    mount.unmount();
}

#[test]
fn a_member_that_is_mended_is_opened_again() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    host.define(&[("a", host.at("a.zarr")), ("b", host.at("b.zarr"))]);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "a member that comes back") else { return };
    assert!(fs::metadata(mount.path("b")).unwrap().is_file());
    host.store("b.zarr", 2, 20);
    wait_for(|| mount.path("b").is_dir());
    assert_eq!(fs::read(mount.path("b/g/a")).unwrap()[0], 2);
    mount.unmount();
}

#[test]
fn users_that_cannot_reach_a_store_cannot_enter_its_member() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.store("open.zarr", 1, 20);
    host.store("closed/in.zarr", 2, 20);
    fs::set_permissions(host.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    host.define(&[("open", host.at("open.zarr")), ("closed", host.at("closed/in.zarr"))]);
    let Some(mount) = Mount::new(&host.catalogue(), &["--allow-other"], "a member that is closed") else {
        return;
    };
    fs::set_permissions(mount.point().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let reads = |path: &str| {
        let path = mount.path(path);
        Command::new("cat").arg(path).uid(12_345).gid(12_345).output().unwrap().status.success()
    };
    assert!(reads("open/g/a") && !reads("closed/g/a"));
    assert_eq!(fs::read(mount.path("closed/g/a")).unwrap()[0], 2);
    mount.unmount();
}

#[test]
fn a_catalogue_with_a_fault_is_refused_with_its_line() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    let catalogue = host.catalogue();
    let (catalogue, mountpoint) = (catalogue.to_str().unwrap(), host.path("mnt"));
    let mountpoint = mountpoint.to_str().unwrap();
    host.define(&[("a", host.at("a.zarr") + "\nwriteable = true")]);
    let sentence = refusal(&zarrfs(&["mount", catalogue, mountpoint]), 1);
    assert!(
        sentence.contains("host.toml:3: unknown key 'writeable': did you mean 'writable'?"),
        "{sentence}"
    );
    host.define(&[("a", host.at("a.zarr"))]);
    let sentence = refusal(&zarrfs(&["mount", "--region", "x", catalogue, mountpoint]), 2);
    assert!(sentence.contains("--region is for one store"), "{sentence}");
    // A folder of such files is one catalogue; a name may be in one of them only.
    fs::create_dir(host.path("host.d")).unwrap();
    for name in ["one.toml", "two.toml"] {
        fs::copy(catalogue, host.path("host.d").join(name)).unwrap();
    }
    let folder = host.path("host.d");
    let sentence = refusal(&zarrfs(&["ls", folder.to_str().unwrap()]), 1);
    assert!(sentence.contains("two.toml: the member 'a' is in"), "{sentence}");
    fs::remove_file(folder.join("two.toml")).unwrap();
    let listed = zarrfs(&["ls", folder.to_str().unwrap()]);
    assert!(String::from_utf8(listed.stdout).unwrap().contains("uint8"));
}

#[test]
fn a_member_and_the_mount_point_are_not_inside_each_other() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    let catalogue = host.catalogue();
    let mount = |mountpoint: &Path| {
        fs::create_dir_all(mountpoint).unwrap();
        refusal(&zarrfs(&["mount", catalogue.to_str().unwrap(), mountpoint.to_str().unwrap()]), 1)
    };
    host.define(&[("a", host.at("a.zarr"))]);
    let sentence = mount(&host.path("a.zarr/mnt"));
    assert!(
        sentence.contains("'a' cannot be mounted here: the mount point")
            && sentence.contains("inside the store"),
        "{sentence}"
    );
    // Also by another path.
    std::os::unix::fs::symlink(host.path("a.zarr"), host.path("link")).unwrap();
    host.define(&[("b", host.at("link"))]);
    assert!(mount(&host.path("a.zarr/mnt")).contains("'b' cannot be mounted here"));
    let mountpoint = host.path("mnt");
    for keys in [
        host.at("mnt/in.zarr"),
        host.at("a.zarr") + &format!("\nwritable = true\noverlay = {:?}", mountpoint.join("changes")),
    ] {
        host.define(&[("a", keys)]);
        let sentence = mount(&mountpoint);
        assert!(sentence.contains("inside"), "{sentence}");
    }
    // A reload that would do so changes nothing.
    host.define(&[("a", host.at("a.zarr"))]);
    let Some(mount) = Mount::new(&catalogue, SECONDS, "a member inside the mount point") else { return };
    let inside = format!("store = {:?}", mount.path("a/g"));
    host.define(&[("b", inside)]);
    signal(mount.pid(), "HUP");
    wait_for(|| mount.log().contains("'b' cannot be mounted here"));
    assert!(fs::read(mount.path("a/g/a")).unwrap()[0] == 1 && !mount.path("b").exists());
    mount.unmount();
}

#[test]
fn an_overlay_that_a_catalogue_has_mounted_is_not_committed() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    let changes = host.path("changes");
    let keys = host.at("a.zarr") + &format!("\nwritable = true\noverlay = {changes:?}");
    host.define(&[("weather", keys)]);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "a commit through a catalogue") else { return };
    wait_for(|| state_of(mount.point(), "weather") == "open");
    let sentence = refusal(&zarrfs(&["commit", changes.to_str().unwrap(), "-m", "x"]), 1);
    assert!(sentence.contains("is the overlay of 'weather', a member of the catalogue"), "{sentence}");
    // What the sentence says works.
    host.define(&[]);
    signal(mount.pid(), "HUP");
    wait_for(|| !mount.path("weather").exists());
    let sentence = refusal(&zarrfs(&["commit", changes.to_str().unwrap(), "-m", "x"]), 1);
    assert!(sentence.contains("does not keep versions"), "{sentence}");
    let overlay = zarrfs(&["overlay", "commit", changes.to_str().unwrap()]);
    assert!(overlay.status.success(), "{}", String::from_utf8_lossy(&overlay.stderr));
    let sentence = refusal(&zarrfs(&["commit", mount.point().to_str().unwrap(), "-m", "x"]), 1);
    assert!(sentence.contains("makes no snapshots"), "{sentence}");
    mount.unmount();
}
