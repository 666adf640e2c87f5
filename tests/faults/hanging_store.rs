//! A store that hangs in part: requests for that part fail at their deadline, and all other requests are answered meanwhile.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::hanging::HangingFolder;
use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::place::*;

/// More readers than there are threads to decode. They wait for the deadline one after the other, since they read the same page.
const READERS: usize = 3;

/// Makes three arrays of 20 rows of 1000 bytes, 10 rows in a chunk, fill value 7; the chunks of `bad` hang.
fn store() -> Option<(Place, HangingFolder)> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    for name in ["good", "bad", "other"] {
        place.put(&format!("{name}/zarr.json"), array_document(20, 7, "uint8"));
    }
    let chunks = place.store().join("bad/c");
    fs::create_dir(&chunks).unwrap();
    let hanging = HangingFolder::new(&chunks);
    Some((place, hanging))
}

/// Serves the hanging folder of other tests, which start it in a process of its own.
#[test]
fn serves_a_hanging_folder() {
    crate::support::hanging::serve();
}

#[test]
fn requests_fail_at_their_deadline_and_others_do_not_wait() {
    if own_process::has_run() {
        return;
    }
    let Some((place, hanging)) = store() else { return };
    let options = ["--tune", "request-deadline=2", "--tune", "threads=2", "--revalidate", "0.1"];
    let mount = Mount::new(&place.store(), &options, "a hanging store").unwrap();
    let bad = mount.path("bad");
    let (sender, hung) = channel();
    for _ in 0..READERS {
        let (bad, sender) = (bad.clone(), sender.clone());
        std::thread::spawn(move || {
            let read = File::open(bad).and_then(|file| file.read_at(&mut [0; 4096], 0));
            sender.send(read.map_err(|error| error.raw_os_error())).unwrap();
        });
    }
    wait_for(|| hanging.waiting() > 0);
    let mut bytes = Vec::new();
    File::open(mount.path("good")).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [7; 20_000]);
    assert_eq!(
        fs::read_dir(mount.point()).unwrap().count(),
        7,
        "three arrays, their sidecars, and the group's"
    );
    assert!(fs::metadata(mount.path("other.json")).unwrap().len() > 0);
    assert!(fs::read_to_string(mount.path("__zarrfs__/stats")).unwrap().contains("zarrfs_reads_total"));
    assert!(hung.try_recv().is_err(), "the others were answered while the bad one hangs");
    for _ in 0..READERS {
        assert_eq!(hung.recv_timeout(PATIENCE).unwrap(), Err(Some(libc::EIO)));
    }
    let log = mount.log();
    let line =
        log.lines().find(|line| line.contains("bytes at 0 of /bad: ")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("read of ") && line.contains("did not answer in time"), "{line}");
    hanging.open();
    wait_for(|| fs::read(&bad).is_ok_and(|bytes| bytes == [7; 20_000]));
    mount.unmount();
}

/// The watchdog is for the daemon, not for its store.
#[test]
fn a_store_that_hangs_does_not_trip_the_watchdog() {
    if own_process::has_run() {
        return;
    }
    let Some((place, hanging)) = store() else { return };
    let socket = place.folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut message = [0; 4096];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let options = ["--foreground", "--tune", "request-deadline=60,threads=2", "--revalidate", "0.1"];
    let mut command = place.mount_command(&options);
    let mut daemon = command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "400000").spawn().unwrap();
    while !hear().starts_with("READY=1") {}
    let bad = place.path("bad");
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let bad = bad.clone();
            std::thread::spawn(move || fs::read(bad).unwrap())
        })
        .collect();
    wait_for(|| hanging.waiting() > 0);
    // Those that wait in the socket are from before.
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 16]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    for _ in 0..5 {
        assert_eq!(hear(), "WATCHDOG=1");
    }
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    hanging.open();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), [7; 20_000]);
    }
    signal(daemon.id(), "TERM");
    assert!(daemon.wait().unwrap().success());
}

/// The bug: the timer, the end and a writer that needs room stored one array after the other, so that the first that hung
/// kept all others from ever being stored.
#[test]
fn what_can_be_stored_is_stored_while_another_array_hangs() {
    if own_process::has_run() {
        return;
    }
    let Some((place, hanging)) = store() else { return };
    let options = [
        "--writable",
        "--tune",
        "request-deadline=2",
        "--tune",
        "stop-deadline=1",
        "--tune",
        "dirty-limit=1M",
    ];
    let mut mount = Mount::new(&place.store(), &options, "a hanging store").unwrap();
    let open = |name: &str| File::options().read(true).write(true).open(mount.path(name)).unwrap();
    // A part of a chunk: the rest has to be read, which hangs.
    let mut bad = open("bad");
    bad.write_all(b"part").unwrap();
    let mut good = open("good");
    good.write_all(&[1; 10_000]).unwrap();
    // The timer comes to both.
    let stored = place.store().join("good/c/0/0");
    wait_for(|| stored.exists());
    wait_for(|| hanging.waiting() > 0);
    assert_eq!(fs::read(&stored).unwrap(), [1; 10_000]);
    // The bug: close had no deadline, so that a program that ended hung in it and could not be killed.
    let closed = bad.sync_all().unwrap_err().raw_os_error();
    assert_eq!(closed, Some(libc::EIO));
    let mut other = open("other");
    other.write_all(&[2; 10_000]).unwrap();
    good.write_all(&[3; 10_000]).unwrap();
    signal(mount.pid(), "TERM");
    wait_for(|| mount.log().contains("LOST: "));
    // A thread that waits for a file system below cannot be killed before that answers.
    hanging.open();
    let status = mount.end();
    assert_eq!(status.code(), Some(1), "something was lost: {}", mount.log());
    assert_eq!(fs::read(place.store().join("other/c/0/0")).unwrap(), [2; 10_000]);
    assert_eq!(fs::read(place.store().join("good/c/1/0")).unwrap(), [3; 10_000]);
    let log = mount.log();
    assert!(log.contains("LOST: /bad") && !log.contains("LOST: /good"), "{log}");
    drop((bad, good, other));
}

#[test]
fn a_store_that_hangs_at_once_is_not_reported_ready() {
    if own_process::has_run() {
        return;
    }
    let Some(place) = Place::mountable() else { return };
    fs::create_dir(place.store()).unwrap();
    let hanging = HangingFolder::new(&place.store());
    let mut child = place.mount_command(&[]).stderr(Stdio::null()).spawn().unwrap();
    wait_for(|| hanging.waiting() > 0);
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none() && !is_mounted(&place.mountpoint()));
    hanging.open();
    let mounted = child.wait().unwrap().success();
    assert_eq!(is_mounted(&place.mountpoint()), mounted);
    if mounted {
        assert!(place.umount().status.success());
    }
}
