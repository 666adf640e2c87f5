//! Catalogues that do harm: files that are not files, logs in stores, names that clash, members that others may not know of, and daemons that die
//! while members come and go.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{COLUMNS, Host, ROWS_OF_CHUNK, SECONDS, config, errno, names, state_of};
use crate::restarts::{next_daemon, some};
use crate::support::level;
use crate::support::mounted::Mount;
use crate::support::place::{PROGRAM, Place, can_mount, is_root, refusal, signal, wait_for, zarrfs};
use crate::support::{say, skip};

/// Runs the program, but not for ever.
fn run_for_a_while(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["30", PROGRAM]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The bug: a pipe without a writer was opened, which waits for one. A reload then never ended, and no later one began.
#[test]
fn what_is_not_a_regular_file_is_refused_at_once() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    host.store("b.zarr", 2, 20);
    fs::create_dir(host.path("host.d")).unwrap();
    let file = |name: &str| host.path("host.d").join(name);
    let pipe = |path: &Path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let folder = host.path("host.d");
    fs::write(file("a.toml"), format!("[a]\n{}\n", host.at("a.zarr"))).unwrap();
    pipe(&file("pipe.toml"));
    let sentence = refusal(&run_for_a_while(&["ls", folder.to_str().unwrap()]), 1);
    assert!(
        sentence.contains("pipe.toml: the catalogue cannot be read: it is not a regular file"),
        "{sentence}"
    );
    pipe(&host.catalogue());
    let sentence = refusal(&run_for_a_while(&["ls", host.catalogue().to_str().unwrap()]), 1);
    assert!(sentence.contains("it is not a regular file"), "{sentence}");
    fs::remove_file(file("pipe.toml")).unwrap();
    let Some(mount) = Mount::new(&folder, SECONDS, "a catalogue with a pipe") else { return };
    pipe(&file("pipe.toml"));
    signal(mount.pid(), "HUP");
    wait_for(|| mount.log().contains("it is not a regular file"));
    fs::remove_file(file("pipe.toml")).unwrap();
    fs::write(file("b.toml"), format!("[b]\n{}\n", host.at("b.zarr"))).unwrap();
    signal(mount.pid(), "HUP");
    wait_for(|| fs::read(mount.path("b/g/a")).is_ok_and(|read| read[0] == 2));
    mount.unmount();
}

/// The bug: only the store of a mount of one store was compared with its logs.
#[test]
fn a_log_is_not_inside_the_store_of_a_member() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    host.store("b.zarr", 2, 20);
    fs::create_dir_all(host.path("mnt")).unwrap();
    host.define(&[("a", host.at("a.zarr"))]);
    let (catalogue, mountpoint) = (host.catalogue(), host.path("mnt"));
    let (catalogue, mountpoint) = (catalogue.to_str().unwrap(), mountpoint.to_str().unwrap());
    for (option, what) in [("--log-file", "log file"), ("--access-log", "access log")] {
        let log = host.path("a.zarr/g/log");
        let sentence = refusal(&zarrfs(&["mount", option, log.to_str().unwrap(), catalogue, mountpoint]), 1);
        assert!(
            sentence.contains(&format!("'a' cannot be mounted here: the {what} is inside the store")),
            "{sentence}"
        );
        assert!(!log.exists());
    }
    // A reload that would do so changes nothing.
    let log = host.path("b.zarr/access");
    let options = ["--access-log", log.to_str().unwrap(), "-o", "revalidate=0"];
    let Some(mount) = Mount::new(&host.catalogue(), &options, "a log in a store") else { return };
    host.define(&[("b", host.at("b.zarr"))]);
    signal(mount.pid(), "HUP");
    wait_for(|| mount.log().contains("'b' cannot be mounted here"));
    assert!(fs::read(mount.path("a/g/a")).unwrap()[0] == 1 && !mount.path("b").exists());
    mount.unmount();
}

/// A folder has its name, whatever the sidecar of another member would be called.
#[test]
fn a_member_with_the_name_of_a_sidecar_hides_no_reason() {
    let host = Host::new();
    host.store("a.zarr", 1, 20);
    let clashing =
        [("x", host.at("none.zarr")), ("\"x.json\"", host.at("a.zarr")), ("\"a b\\\\c\"", host.at("a.zarr"))];
    host.define(&clashing);
    let Some(mount) = Mount::new(&host.catalogue(), SECONDS, "members with clashing names") else { return };
    assert_eq!(fs::read(mount.path("x.json/g/a")).unwrap()[0], 1);
    assert_eq!(fs::read(mount.path("a b\\c/g/a")).unwrap()[0], 1);
    assert_eq!(errno(fs::read(mount.path("x"))), libc::EIO);
    let sidecar: Value =
        serde_json::from_slice(&fs::read(mount.path("__formats__/json/x.json")).unwrap()).unwrap();
    assert!(sidecar["error"].as_str().unwrap().contains("no such folder"), "{sidecar}");
    // The sidecar has its name once the folder is gone.
    host.define(&clashing[..1]);
    signal(mount.pid(), "HUP");
    wait_for(|| fs::metadata(mount.path("x.json")).is_ok_and(|found| found.is_file()));
    mount.unmount();
}

/// The bug: everybody could read in `config.json`, and in the sidecar of a member that cannot be opened, where its store is, and what is wrong
/// with files in folders of others.
#[test]
fn users_that_cannot_reach_a_store_do_not_learn_what_is_there() {
    if !can_mount() {
        return;
    }
    if !is_root() {
        return skip("private members", "needs root", true);
    }
    const MONITOR: (u32, u32) = (4712, 4713);
    let host = Host::new();
    host.store("open.zarr", 1, 20);
    host.store("vault/secret.zarr", 2, 20);
    fs::create_dir_all(host.path("vault/broken.zarr")).unwrap();
    fs::write(host.path("vault/broken.zarr/secret_notes"), "").unwrap();
    fs::set_permissions(host.path("vault"), fs::Permissions::from_mode(0o700)).unwrap();
    host.define(&[
        ("open", host.at("open.zarr")),
        ("failed", host.at("vault/broken.zarr")),
        ("inner", host.at("vault/secret.zarr")),
        ("missing", host.at("none.zarr")),
    ]);
    let options = ["--allow-other", "--stats-group", "4713", "-o", "revalidate=0"];
    let Some(mount) = Mount::new(&host.catalogue(), &options, "private members") else { return };
    fs::set_permissions(mount.point().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    wait_for(|| state_of(mount.point(), "failed") == "failed" && state_of(mount.point(), "inner") == "open");
    let read_as = |(user, group): (u32, u32), path: &str| {
        let mut command = Command::new("cat");
        let output = command.arg(mount.path(path)).uid(user).gid(group).current_dir("/").output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    // The names of arrays, and of files in a closed folder.
    assert!(read_as((0, 0), "inner/g/a").is_some());
    for round in 0..2 {
        let of_root = read_as((0, 0), "__zarrfs__/config.json").unwrap();
        assert!(of_root.contains("vault/secret.zarr") && of_root.contains("not a Zarr store"), "{of_root}");
        let found = read_as(MONITOR, "__zarrfs__/config.json").unwrap();
        let members = serde_json::from_str::<Value>(&found).unwrap()["members"].clone();
        assert_eq!(members.as_array().unwrap().len(), 4, "round {round}: {members}");
        assert!(!found.contains("vault") && !found.contains("none.zarr"), "round {round}: {found}");
        let stats = read_as(MONITOR, "__zarrfs__/stats").unwrap();
        assert!(!stats.contains("member=") && !stats.contains("array="), "{stats}");
        assert!(stats.contains("zarrfs_read_bytes_total 20000\n"), "{stats}");
    }
    for path in
        ["failed", "failed.json", "__formats__/json/failed.json", "inner/g/a", "__zarrfs__/last_error"]
    {
        assert_eq!(read_as(MONITOR, path), None, "{path}");
    }
    assert!(read_as((0, 0), "failed.json").unwrap().contains("not a Zarr store"));
    // Where the folders above are open, everybody may know.
    assert!(read_as(MONITOR, "missing.json").unwrap().contains("no such folder"));
    assert!(read_as(MONITOR, "open/g/a").is_some());
    mount.unmount();
}

/// What the mount refuses, no member allows, now or after a reload or a restart.
#[test]
fn a_read_only_mount_has_no_writable_member() {
    if !can_mount() {
        return;
    }
    let (host, place) = (Host::new(), Place::new());
    host.store("a.zarr", 1, 20);
    host.store("b.zarr", 1, 20);
    let all = |name: &str| host.at(name) + "\nwritable = true\ncreate = true\ndelete = true";
    host.define(&[("a", all("a.zarr"))]);
    let (catalogue, mountpoint) = (host.catalogue(), place.mountpoint());
    let mounted = zarrfs(&[
        "mount",
        "-o",
        "ro,revalidate=0",
        catalogue.to_str().unwrap(),
        mountpoint.to_str().unwrap(),
    ]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let refuses = |name: &str| {
        let file = |end: &str| place.path(&format!("{name}/{end}"));
        assert_eq!(errno(File::options().write(true).open(file("g/a"))), libc::EROFS);
        assert_eq!(errno(fs::create_dir(file("new"))), libc::EROFS);
        assert_eq!(errno(fs::remove_file(file("g/a"))), libc::EROFS);
        assert_eq!(errno(fs::set_permissions(file("g/a"), fs::Permissions::from_mode(0o600))), libc::EROFS);
    };
    refuses("a");
    host.define(&[("a", all("a.zarr")), ("b", all("b.zarr"))]);
    signal(place.daemon(), "HUP");
    wait_for(|| place.path("b/g/a").exists());
    ["a", "b"].into_iter().for_each(refuses);
    if !config(&mountpoint)["keeper"].is_null() {
        let daemon = place.daemon();
        signal(daemon, "KILL");
        next_daemon(&place, daemon);
        ["a", "b"].into_iter().for_each(refuses);
    }
    assert!(place.umount().status.success());
}

/// What may be in a row: what the last write(2) that was taken has put there, and what a later one may have, which failed.
type Rows = BTreeMap<u64, Vec<u8>>;

/// Writes rows to the array of a member, opens it anew whenever it has left, and records what it must have.
fn write_rows(path: &Path, is_over: &AtomicBool, writes: &AtomicU64) -> Rows {
    let (mut rows, mut value) = (Rows::new(), 1u8);
    while !is_over.load(Ordering::Relaxed) {
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) => {
                // It is not there now; or its folder, or the file, has just been looked up and left.
                let found = error.raw_os_error().unwrap();
                assert!([libc::ENOENT, libc::ESTALE].contains(&found), "open: {error}");
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        for turn in 0..100 {
            value = value % 250 + 2;
            let row = u64::from(value) * 7 % (20 * ROWS_OF_CHUNK);
            let written = file.write_all_at(&[value; COLUMNS as usize], row * COLUMNS);
            let expected = rows.entry(row).or_insert_with(|| vec![1]);
            if let Err(error) = written {
                assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "write: {error}");
                expected.push(value);
                break;
            }
            *expected = vec![value];
            writes.fetch_add(1, Ordering::Relaxed);
            if turn % 30 == 29
                && let Err(error) = file.sync_all()
            {
                assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "fsync: {error}");
                break;
            }
        }
    }
    rows
}

/// Daemons die at any moment of a reload: what write(2) has taken is in the store of the member that it was written to, and in no other one.
#[test]
fn daemons_that_die_while_members_come_and_go_lose_nothing() {
    if !can_mount() {
        return;
    }
    let (host, place) = (Host::new(), Place::new());
    for name in ["a.zarr", "b.zarr"] {
        host.store(name, 1, 20 * ROWS_OF_CHUNK);
    }
    host.store("stays.zarr", 9, 200);
    host.store("other.zarr", 8, 20 * ROWS_OF_CHUNK);
    let define = |round: u64| {
        let mut members = vec![("stays", host.at("stays.zarr"))];
        for (name, bit) in [("a", 1), ("b", 2)] {
            let keys = format!(
                "{}\nwritable = true\ntune = \"request-deadline={}\"",
                host.at(&format!("{name}.zarr")),
                60 + round / 3
            );
            if round == 0 || some(0..4, round * 3 + bit) != 0 {
                members.push((name, keys));
            }
        }
        // A name that has one store, and then another one.
        members.push(("moves", host.at(["a.zarr", "other.zarr"][round as usize % 2])));
        host.define(&members);
    };
    define(0);
    let (catalogue, mountpoint, log) = (host.catalogue(), place.mountpoint(), host.path("log"));
    let mounted = zarrfs(&[
        "mount",
        "--log-file",
        log.to_str().unwrap(),
        "-o",
        "revalidate=0",
        catalogue.to_str().unwrap(),
        mountpoint.to_str().unwrap(),
    ]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    if config(&mountpoint)["keeper"].is_null() {
        return;
    }
    let send = |pid: u32, signal: i32| {
        let process = zarrfs::sys::open_process(pid).unwrap();
        zarrfs::sys::signal_process(process.as_fd(), signal).unwrap();
    };
    let (is_over, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = level::pick(6, 12);
    let taken = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let open = File::open(place.path("stays/g/a")).unwrap();
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                let mut bytes = vec![0; 200_000];
                open.read_exact_at(&mut bytes, 0).unwrap();
                let anew = fs::read(place.path("stays/g/a")).unwrap();
                assert!(bytes.iter().chain(&anew).all(|byte| *byte == 9));
                rounds += 1;
            }
            rounds
        });
        let writers = ["a", "b"].map(|name| {
            let (path, is_over, writes) = (place.path(&format!("{name}/g/a")), &is_over, &writes);
            scope.spawn(move || write_rows(&path, is_over, writes))
        });
        let mut daemon = place.daemon();
        for round in 1..rounds {
            std::thread::sleep(Duration::from_millis(200 + some(0..300, round)));
            // Before, during and after the reload.
            let pause = Duration::from_millis(some(0..60, round + 1000));
            if round % 4 == 3 {
                send(daemon, libc::SIGKILL);
                define(round);
            } else {
                define(round);
                send(daemon, libc::SIGHUP);
                std::thread::sleep(pause);
                send(daemon, libc::SIGKILL);
            }
            daemon = next_daemon(&place, daemon);
            // A reload next to the one of the new daemon.
            if round % 2 == 0 {
                send(daemon, libc::SIGHUP);
            }
        }
        define(0);
        send(daemon, libc::SIGHUP);
        let before = writes.load(Ordering::Relaxed);
        wait_for(|| writes.load(Ordering::Relaxed) > before + 200);
        is_over.store(true, Ordering::Relaxed);
        let read = reader.join().unwrap();
        say(format!(
            "{} rows written, {read} reads of a member that stays, {} kills",
            writes.load(Ordering::Relaxed),
            rounds - 1
        ));
        writers.map(|writer| writer.join().unwrap())
    });
    assert!(names(&mountpoint).iter().any(|name| name == "a"));
    let output = place.umount();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = fs::read_to_string(&log).unwrap();
    for (name, rows) in ["a", "b"].iter().zip(taken) {
        let chunk = |number: u64| fs::read(host.path(&format!("{name}.zarr/g/a/c/{number}/0"))).unwrap();
        for (row, expected) in rows {
            let start = (row % ROWS_OF_CHUNK * COLUMNS) as usize;
            let found = chunk(row / ROWS_OF_CHUNK)[start..start + COLUMNS as usize].to_vec();
            assert!(
                expected.iter().any(|value| found.iter().all(|byte| byte == value)),
                "{name}, row {row}: {} is not one of {expected:?}\n{log}",
                found[0]
            );
        }
    }
    let other = fs::read(host.path("other.zarr/g/a/c/0/0")).unwrap();
    assert!(
        other.iter().all(|byte| *byte == 8),
        "what was written to a member is in the store of another one"
    );
    assert!(!log.contains("lost"), "{log}");
}
