//! Catalogues on a mount: members of many kinds, members that cannot be opened or do not respond, each member's own options, reloads
//! while others are read, and a daemon that dies meanwhile.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::support::level;
use crate::support::mounted::Mount;
use crate::support::place::{Place, can_mount, copy_demo, is_root, refusal, signal, wait_for, zarrfs};
use crate::support::uneven::v3;

const SECONDS: &[&str] = &["-o", "revalidate=0"];

/// A folder with stores and a catalogue of them.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Host { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn catalogue(&self) -> PathBuf {
        self.path("host.toml")
    }

    /// Makes a store with an array of bytes that all have this value.
    fn store(&self, name: &str, value: u8, rows: u64) {
        put(&self.path(name), value, rows);
    }

    /// Replaces the catalogue.
    fn define(&self, members: &[(&str, String)]) {
        let table = |(name, keys): &(&str, String)| format!("[{name}]\n{keys}\n\n");
        let text: String = members.iter().map(table).collect();
        let new = self.path("host.toml.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.catalogue()).unwrap();
    }

    fn at(&self, name: &str) -> String {
        format!("store = {:?}", self.path(name).to_str().unwrap())
    }
}

const COLUMNS: u64 = 1000;
const ROWS_OF_CHUNK: u64 = 10;

/// Makes a store with a group `g` and the array `g/a` in it.
fn put(store: &Path, value: u8, rows: u64) {
    fs::create_dir_all(store.join("g")).unwrap();
    let group = json!({"zarr_format": 3, "node_type": "group"}).to_string();
    fs::write(store.join("zarr.json"), &group).unwrap();
    fs::write(store.join("g/zarr.json"), &group).unwrap();
    put_array(&store.join("g/a"), value, rows);
}

fn put_array(array: &Path, value: u8, rows: u64) {
    for chunk in 0..rows / ROWS_OF_CHUNK {
        let folder = array.join(format!("c/{chunk}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("0"), vec![value; (ROWS_OF_CHUNK * COLUMNS) as usize]).unwrap();
    }
    // With a codec, so that chunks go through the cache.
    let codecs = json!(["bytes"]);
    let document = v3("uint8", &[rows, COLUMNS], &[ROWS_OF_CHUNK, COLUMNS], &codecs);
    fs::write(array.join("zarr.json"), document.to_string()).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

fn errno(result: std::io::Result<impl Sized>) -> i32 {
    result.err().expect("it must fail").raw_os_error().unwrap()
}

fn config(point: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(point.join("__zarrfs__/config.json")).unwrap()).unwrap()
}

fn state_of(point: &Path, name: &str) -> String {
    let config = config(point);
    let members = config["members"].as_array().unwrap();
    let member = members.iter().find(|member| member["name"] == name);
    member.map_or("none", |member| member["state"].as_str().unwrap()).to_owned()
}

/// A web server for the files of a folder: whole objects and ranges, as far as the program asks for them.
fn serve(folder: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let folder = folder.clone();
            std::thread::spawn(move || answer(connection, &folder));
        }
    });
    port
}

fn answer(mut connection: TcpStream, folder: &Path) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            let mut some = [0; 4096];
            match connection.read(&mut some) {
                Ok(0) | Err(_) => return,
                Ok(length) => buffer.extend_from_slice(&some[..length]),
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap().trim_start_matches('/'));
        let range = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("range").then(|| value.strip_prefix("bytes=").unwrap().to_owned())
        });
        let content = fs::read(folder.join(path)).ok();
        let (status, content, further) = match (content, range) {
            (None, _) => ("404 Not Found", Vec::new(), String::new()),
            (Some(content), None) => ("200 OK", content, String::new()),
            (Some(content), Some(range)) => {
                let total = content.len();
                let (from, to) = range.split_once('-').unwrap();
                let last = total.saturating_sub(1);
                let (from, to) = match (from.parse::<usize>(), to.parse::<usize>()) {
                    (Ok(from), to) => (from, to.unwrap_or(last).min(last)),
                    (Err(_), to) => (total.saturating_sub(to.unwrap()), last),
                };
                let further = format!("Content-Range: bytes {from}-{to}/{total}\r\n");
                ("206 Partial Content", content[from..=to].to_vec(), further)
            }
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\n{further}\r\n", content.len());
        let body = if method == "HEAD" { &[][..] } else { &content };
        if connection.write_all(&[head.as_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

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
    let defined: Vec<(&str, String)> =
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
fn reloads_leave_the_other_members_alone() {
    let host = Host::new();
    for (number, name) in ["stays", "comes", "other"].iter().enumerate() {
        host.store(&format!("{name}.zarr"), 10 + number as u8, 200);
    }
    let base = [("stays", host.at("stays.zarr")), ("kept", host.at("stays.zarr") + "\nwritable = true")];
    host.define(&base);
    let options = ["--direct-io", "--cache-size", "4M", "-o", "revalidate=0"];
    let Some(mount) = Mount::new(&host.catalogue(), &options, "a catalogue that changes") else { return };
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let open = File::open(mount.path("stays/g/a")).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let mut bytes = vec![0; 200_000];
                    open.read_exact_at(&mut bytes, 0).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 10));
                    let again = fs::read(mount.path("kept/g/a")).unwrap();
                    assert!(again.len() == 200_000 && again.iter().all(|byte| *byte == 10));
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..level::pick(20, 100) {
            let mut members = base.to_vec();
            match round % 4 {
                0 => members.push(("new", host.at("comes.zarr"))),
                1 => members.push(("new", host.at("other.zarr"))),
                2 => members.push(("broken", host.at("none.zarr"))),
                _ => {}
            }
            host.define(&members);
            signal(mount.pid(), "HUP");
            match round % 4 {
                0 | 1 => {
                    let expected = 11 + round as u8 % 4;
                    wait_for(|| {
                        fs::read(mount.path("new/g/a"))
                            .is_ok_and(|read| read.len() == 200_000 && read[0] == expected)
                    });
                    let read = fs::read(mount.path("new/g/a")).unwrap();
                    assert!(read.iter().all(|byte| *byte == expected));
                }
                2 => {
                    wait_for(|| state_of(mount.point(), "broken") == "failed" && !mount.path("new").exists())
                }
                _ => wait_for(|| !mount.path("broken").exists()),
            }
            let before = rounds.load(Ordering::Relaxed);
            wait_for(|| rounds.load(Ordering::Relaxed) > before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    mount.unmount();
}

#[test]
fn a_member_that_leaves_is_stored_and_its_open_files_are_stale() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    host.store("b.zarr", 1, 20);
    let writable = |name: &str| host.at(name) + "\nwritable = true";
    host.define(&[("a", writable("a.zarr")), ("b", writable("b.zarr"))]);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "a member that leaves") else { return };
    let open = |name: &str| File::options().read(true).write(true).open(mount.path(name)).unwrap();
    let (leaves, changes) = (open("a/g/a"), open("b/g/a"));
    leaves.write_all_at(&[5; 100], 0).unwrap();
    changes.write_all_at(&[6; 100], 0).unwrap();
    // The same array in another store is another array.
    host.store("c.zarr", 9, 20);
    host.define(&[("b", writable("c.zarr"))]);
    signal(mount.pid(), "HUP");
    wait_for(|| !mount.path("a").exists() && fs::read(mount.path("b/g/a")).is_ok_and(|read| read[0] == 9));
    let mut bytes = [0; 10];
    for file in [&leaves, &changes] {
        assert_eq!(errno(file.read_at(&mut bytes, 0)), libc::ESTALE);
        assert_eq!(errno(file.write_at(&bytes, 0)), libc::ESTALE);
    }
    assert_eq!(fs::read(host.path("a.zarr/g/a/c/0/0")).unwrap()[..100], [5; 100]);
    assert_eq!(fs::read(host.path("b.zarr/g/a/c/0/0")).unwrap()[..100], [6; 100]);
    assert_eq!(fs::read(host.path("c.zarr/g/a/c/0/0")).unwrap()[..100], [9; 100]);
    // A catalogue that cannot be read changes nothing.
    fs::write(host.catalogue(), "[b\n").unwrap();
    signal(mount.pid(), "HUP");
    wait_for(|| mount.log().contains("host.toml:1:"));
    assert_eq!(fs::read(mount.path("b/g/a")).unwrap()[0], 9);
    drop((leaves, changes));
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
fn the_next_daemon_reads_the_catalogue_anew() {
    if !can_mount() {
        return;
    }
    let host = Host::new();
    let place = Place::new();
    for name in ["stays.zarr", "leaves.zarr", "changes.zarr", "other.zarr"] {
        host.store(name, 1, 20);
    }
    let writable = |name: &str| host.at(name) + "\nwritable = true";
    host.define(&[
        ("stays", writable("stays.zarr")),
        ("leaves", host.at("leaves.zarr")),
        ("changes", writable("changes.zarr")),
    ]);
    let mountpoint = place.mountpoint();
    let mounted = zarrfs(&["mount", host.catalogue().to_str().unwrap(), mountpoint.to_str().unwrap()]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    if config(&mountpoint)["keeper"].is_null() {
        return;
    }
    let open =
        |name: &str, writes: bool| File::options().read(true).write(writes).open(place.path(name)).unwrap();
    let (stays, leaves, changes) =
        (open("stays/g/a", true), open("leaves/g/a", false), open("changes/g/a", true));
    stays.write_all_at(&[5; 100], 0).unwrap();
    changes.write_all_at(&[6; 100], 0).unwrap();
    let former = place.daemon();
    host.define(&[("stays", writable("stays.zarr")), ("changes", writable("other.zarr"))]);
    signal(former, "KILL");
    wait_for(|| fs::metadata(place.path("stays")).is_ok() && place.daemon() != former);
    let mut bytes = [0; 100];
    stays.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [5; 100], "what was written outlives the daemon");
    stays.sync_all().unwrap();
    assert_eq!(fs::read(host.path("stays.zarr/g/a/c/0/0")).unwrap()[..100], [5; 100]);
    // Another offset than the kernel may have pages of.
    assert_eq!(errno(leaves.read_at(&mut bytes, 15_000)), libc::ESTALE);
    assert_eq!(errno(changes.read_at(&mut bytes, 15_000)), libc::ESTALE);
    // What was written to the store that is gone is in no other store.
    assert_eq!(fs::read(host.path("other.zarr/g/a/c/0/0")).unwrap()[..100], [1; 100]);
    assert_eq!(names(&mountpoint).iter().filter(|name| !name.starts_with("__")).count(), 2);
    drop((stays, leaves, changes));
    assert!(place.umount().status.success());
}

#[test]
fn a_server_that_stops_answering_holds_up_nobody_else() {
    let host = Host::new();
    host.store("local.zarr", 1, 100);
    host.store("away.zarr", 2, 400);
    let web = serve(host.path("away.zarr"));
    // Forwards to the server until it is told to hang.
    let (front, hangs) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), std::sync::Arc::new(AtomicBool::new(false)));
    let (port, is_hanging) = (front.local_addr().unwrap().port(), hangs.clone());
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for connection in front.incoming().map_while(Result::ok) {
            if is_hanging.load(Ordering::Relaxed) {
                held.push(connection);
                continue;
            }
            let mut back = TcpStream::connect(("127.0.0.1", web)).unwrap();
            let (mut from, mut to) = (connection.try_clone().unwrap(), back.try_clone().unwrap());
            let is_hanging = is_hanging.clone();
            std::thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(length) = from.read(&mut some)
                    && length > 0
                {
                    while is_hanging.load(Ordering::Relaxed) {
                        std::thread::park();
                    }
                    if to.write_all(&some[..length]).is_err() {
                        return;
                    }
                }
            });
            let mut connection = connection;
            std::thread::spawn(move || std::io::copy(&mut back, &mut connection));
        }
    });
    let away = |path: &str| format!("store = \"http://127.0.0.1:{port}/{path}\"");
    host.define(&[("local", host.at("local.zarr")), ("away", away("g/a"))]);
    let options = ["--direct-io", "--tune", "threads=2", "-o", "revalidate=0"];
    let Some(mount) = Mount::new(&host.catalogue(), &options, "a server that hangs") else { return };
    wait_for(|| state_of(mount.point(), "away") == "open");
    let open = File::open(mount.path("away/away")).unwrap();
    let mut first = [0; 10];
    open.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(first, [2; 10]);
    hangs.store(true, Ordering::Relaxed);
    // More requests than there are threads of any kind: reads of every chunk, and lookups.
    for chunk in 1..40 {
        let file = open.try_clone().unwrap();
        std::thread::spawn(move || file.read_at(&mut [0; 10], chunk * ROWS_OF_CHUNK * COLUMNS));
        let path = mount.path(&format!("away/name{chunk}"));
        std::thread::spawn(move || fs::metadata(path));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    for _ in 0..3 {
        assert!(names(mount.point()).contains(&"away".to_owned()));
        assert!(fs::metadata(mount.path("away")).unwrap().is_dir());
        let read = fs::read(mount.path("local/g/a")).unwrap();
        assert!(read.len() == 100_000 && read.iter().all(|byte| *byte == 1));
        assert_eq!(
            fs::read(mount.path("__views__/slices/local/g/a[3:5,:]")).map(|read| read.len()).unwrap_or(2000),
            2000
        );
    }
    mount.kill();
}

#[test]
fn users_who_cannot_reach_a_store_cannot_enter_its_member() {
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
