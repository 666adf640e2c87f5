//! What the next daemon makes of a catalogue.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{COLUMNS, Host, config, errno, names};
use crate::support::level;
use crate::support::place::{Place, can_mount, signal, wait_for, zarrfs};

#[test]
fn the_next_daemon_stores_what_is_left_and_reads_the_catalogue_anew() {
    if !can_mount() {
        return;
    }
    let host = Host::new();
    let place = Place::new();
    for name in ["stays.zarr", "leaves.zarr", "changes.zarr"] {
        host.store(name, 1, 20);
    }
    host.store("other.zarr", 2, 20);
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
    // Started now: a fork has copies of open files for a moment, and their close would store what was written.
    let mut killer =
        Command::new("sh").args(["-c", "read pid; kill -9 $pid"]).stdin(Stdio::piped()).spawn().unwrap();
    let open =
        |name: &str, writes: bool| File::options().read(true).write(writes).open(place.path(name)).unwrap();
    let (stays, leaves, changes) =
        (open("stays/g/a", true), open("leaves/g/a", false), open("changes/g/a", true));
    stays.write_all_at(&[5; 100], 0).unwrap();
    changes.write_all_at(&[6; 100], 0).unwrap();
    let former = place.daemon();
    host.define(&[("stays", writable("stays.zarr")), ("changes", writable("other.zarr"))]);
    writeln!(killer.stdin.take().unwrap(), "{former}").unwrap();
    assert!(killer.wait().unwrap().success());
    wait_for(|| fs::metadata(place.path("stays")).is_ok() && place.daemon() != former);
    let mut bytes = [0; 100];
    stays.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [5; 100], "what was written outlives the daemon");
    stays.sync_all().unwrap();
    assert_eq!(fs::read(host.path("stays.zarr/g/a/c/0/0")).unwrap()[..100], [5; 100]);
    // The members of before end after what was written to them is stored.
    wait_for(|| names(&mountpoint).iter().filter(|name| !name.starts_with("__")).count() == 2);
    wait_for(|| fs::read(place.path("changes/g/a")).is_ok_and(|read| read[100] == 2));
    assert_eq!(fs::read(host.path("changes.zarr/g/a/c/0/0")).unwrap()[..100], [6; 100]);
    // Another offset than the kernel may have pages of.
    assert_eq!(errno(leaves.read_at(&mut bytes, 15_000)), libc::ESTALE);
    assert_eq!(errno(changes.read_at(&mut bytes, 15_000)), libc::ESTALE);
    // What was written to the store that is gone is in no other store.
    assert_eq!(fs::read(host.path("other.zarr/g/a/c/0/0")).unwrap()[..100], [2; 100]);
    drop((stays, leaves, changes));
    assert!(place.umount().status.success());
}

/// The next daemon could not start while the file had a fault, and programs waited for it.
#[test]
fn a_catalogue_with_a_fault_keeps_no_daemon_from_going_on() {
    if !can_mount() {
        return;
    }
    let (host, place) = (Host::new(), Place::new());
    host.store("read.zarr", 3, 200);
    host.store("write.zarr", 1, 200);
    host.store("more.zarr", 9, 20);
    let members = [
        ("read", host.at("read.zarr") + "\ntune = \"request-deadline=77\""),
        ("write", host.at("write.zarr") + "\nwritable = true\ncreate = true"),
    ];
    host.define(&members);
    let (mountpoint, log) = (place.mountpoint(), host.path("log"));
    let mounted = zarrfs(&[
        "mount",
        "--log-file",
        log.to_str().unwrap(),
        "-o",
        "revalidate=0",
        host.catalogue().to_str().unwrap(),
        mountpoint.to_str().unwrap(),
    ]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    if config(&mountpoint)["keeper"].is_null() {
        return;
    }
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let open = File::open(place.path("read/g/a")).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let mut bytes = vec![0; 200_000];
                    open.read_exact_at(&mut bytes, 0).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 3));
                    assert_eq!(fs::read(place.path("read/g/a")).unwrap().len(), 200_000);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let writer = scope.spawn(|| {
            let open = File::options().write(true).open(place.path("write/g/a")).unwrap();
            let mut row = 0;
            while !is_over.load(Ordering::Relaxed) {
                let value = (row / 200 % 250 + 1) as u8;
                open.write_all_at(&[value; COLUMNS as usize], row % 200 * COLUMNS).unwrap();
                row += 1;
            }
            open.sync_all().unwrap();
            row
        });
        for round in 0..level::pick(3, 12) {
            let fault = ["[read\n", "[read]\nstoer = \"x\"\n", ""][round % 3];
            // Without any file, too.
            match fault {
                "" => fs::remove_file(host.catalogue()).unwrap(),
                fault => fs::write(host.catalogue(), fault).unwrap(),
            }
            let former = place.daemon();
            if round % 2 == 0 {
                signal(former, "KILL");
            } else {
                assert!(zarrfs(&["restart", mountpoint.to_str().unwrap()]).status.success());
            }
            wait_for(|| fs::metadata(place.path("read/g/a")).is_ok() && place.daemon() != former);
            let before = rounds.load(Ordering::Relaxed);
            wait_for(|| rounds.load(Ordering::Relaxed) > before + 4);
            assert_eq!(names(&mountpoint).iter().filter(|name| !name.starts_with("__")).count(), 2);
        }
        is_over.store(true, Ordering::Relaxed);
        let rows = writer.join().unwrap();
        let read = fs::read(place.path("write/g/a")).unwrap();
        for last in rows.saturating_sub(200)..rows {
            let (at, value) = ((last % 200 * COLUMNS) as usize, (last / 200 % 250 + 1) as u8);
            assert!(
                read[at..at + COLUMNS as usize].iter().all(|byte| *byte == value),
                "row {last} of {rows}"
            );
        }
    });
    let written = fs::read_to_string(&log).unwrap();
    assert!(
        written.contains("host.toml:1:") && written.contains("the catalogue is not read again"),
        "{written}"
    );
    // A reload reads the file again.
    let mut more = members.to_vec();
    more.push(("more", host.at("more.zarr")));
    host.define(&more);
    signal(place.daemon(), "HUP");
    wait_for(|| fs::read(place.path("more/g/a")).is_ok_and(|read| read[0] == 9));
    assert!(place.umount().status.success());
}

/// What the file allows since does not count: the session has no place for what would be written.
#[test]
fn a_mount_that_was_begun_read_only_goes_on_read_only() {
    if !can_mount() {
        return;
    }
    let (host, place) = (Host::new(), Place::new());
    host.store("a.zarr", 3, 20);
    host.define(&[("a", host.at("a.zarr"))]);
    let mountpoint = place.mountpoint();
    let mounted = zarrfs(&["mount", host.catalogue().to_str().unwrap(), mountpoint.to_str().unwrap()]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    if config(&mountpoint)["keeper"].is_null() {
        return;
    }
    let open = File::open(place.path("a/g/a")).unwrap();
    host.define(&[("a", host.at("a.zarr") + "\nwritable = true\ncreate = true\ndelete = true")]);
    for has_fault in [false, true] {
        if has_fault {
            fs::write(host.catalogue(), "[a\n").unwrap();
        }
        let former = place.daemon();
        // It begins with the command line, and a daemon that dies is followed by one with the options of before.
        assert!(zarrfs(&["restart", mountpoint.to_str().unwrap()]).status.success());
        wait_for(|| fs::metadata(place.path("a")).is_ok() && place.daemon() != former);
        // The daemon reads the file again when it has begun. A program that opens an array while its member is replaced gets ESTALE.
        wait_for(|| match fs::read(place.path("a/g/a")) {
            Ok(read) => {
                assert!(read.len() == 20_000 && read.iter().all(|byte| *byte == 3));
                true
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
                false
            }
        });
        assert_eq!(config(&mountpoint)["writable"], false);
    }
    drop(open);
    assert!(place.umount().status.success());
}
