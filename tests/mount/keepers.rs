//! The keeper of a mount after the last daemon: what programs have written is stored all the same.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::kept_synced::Descriptors;
use crate::restarts::{abort, has_keepers, keeper};
use crate::support::place::*;

/// Mounts an array with a keeper, writes to it, and ends the connection while there is no daemon, as an administrator does. Returns the keeper.
fn end_without_daemon(place: &Place, before: impl FnOnce()) -> Option<u32> {
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("a/zarr.json", array_document(300, 1, "uint8"));
    place.mount(&["--keeper", "--writable"]);
    if !has_keepers(place) {
        return None;
    }
    let (daemon, keeper) = (place.daemon(), keeper(place).unwrap());
    let mut files = Descriptors::new(place);
    assert_eq!(["open one mnt/a", "write one 2000 5000"].map(|line| files.run(line)), [0, 0]);
    before();
    let device = fs::metadata(place.mountpoint()).unwrap().dev();
    signal(keeper, "STOP");
    signal(daemon, "KILL");
    let is_ended = is_root() && abort(device);
    signal(keeper, "CONT");
    files.end();
    if !is_ended {
        return None;
    }
    let output = Command::new("umount").args(["-i", "-l"]).arg(place.mountpoint()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(keeper)
}

fn is_stored(place: &Place) -> bool {
    let chunk = fs::read(place.store().join("a/c/0/0"));
    chunk.is_ok_and(|bytes| bytes[2000..7000] == [7; 5000] && bytes[7000..].iter().all(|&byte| byte == 1))
}

/// The bug: a keeper that found its mount unmounted, or had seen too many deaths, ended, and with it what was not stored.
#[test]
fn what_was_written_is_stored_when_the_mount_ends_without_a_daemon() {
    let Some(place) = Place::mountable() else { return };
    let Some(keeper) = end_without_daemon(&place, || {}) else { return };
    wait_for(|| !is_running(keeper));
    assert!(is_stored(&place));
    assert!(!is_mounted(&place.mountpoint()));
}

#[test]
fn a_keeper_keeps_what_the_store_does_not_take() {
    let Some(place) = Place::mountable() else { return };
    let chunks = place.store().join("a/c");
    // No chunk can be stored.
    let Some(keeper) = end_without_daemon(&place, || fs::write(&chunks, "").unwrap()) else { return };
    wait_for(|| !is_mounted(&place.mountpoint()));
    // No other mount may write the array meanwhile.
    place.mount(&["--writable", "--keeper=off"]);
    let refused = File::options().write(true).open(place.path("a")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(16), "EBUSY");
    assert!(place.umount().status.success());
    assert!(is_running(keeper));
    fs::remove_file(&chunks).unwrap();
    wait_for(|| !is_running(keeper));
    assert!(is_stored(&place));
}

/// A keeper that is killed costs the mount its next daemon, and nothing that was written. If both are killed, what was synced is in the store, the
/// programs get an error, and the arrays can be written again.
#[test]
fn what_was_synced_outlives_the_keeper_and_the_daemon() {
    for kills_both in [false, true] {
        let Some(place) = Place::mountable() else { return };
        place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
        place.put("a/zarr.json", array_document(300, 1, "uint8"));
        place.mount(&["--keeper", "--writable"]);
        if !has_keepers(&place) {
            return;
        }
        let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
        let mut files = Descriptors::new(&place);
        let lines = ["open one mnt/a", "write one 2000 5000", "fsync one", "write one 12000 5000"];
        assert_eq!(lines.map(|line| files.run(line)), [0; 4]);
        signal(keeper, "KILL");
        wait_for(|| !is_running(keeper));
        let row_is_stored = |chunk: u64| {
            fs::read(place.store().join(format!("a/c/{chunk}/0")))
                .is_ok_and(|bytes| bytes[2000..7000] == [7; 5000])
        };
        if kills_both {
            signal(daemon, "KILL");
            wait_for(|| fs::read_dir(place.mountpoint()).is_err());
            assert_eq!(["write one 22000 100", "close one"].map(|line| files.run(line)), [libc::ENOTCONN; 2]);
            assert!(zarrfs(&["umount", "--stale", place.mountpoint().to_str().unwrap()]).status.success());
            assert!(is_stored(&place));
            // Nobody has the lock of the array.
            place.mount(&["--writable"]);
            fs::write(place.path("a"), vec![8; 300_000]).unwrap();
            assert!(place.umount().status.success());
            assert!(place.cat("a") == vec![8; 300_000]);
        } else {
            let lines = ["write one 22000 5000", "fsync one", "write one 32000 5000"];
            assert_eq!(lines.map(|line| files.run(line)), [0; 3]);
            assert!((0..3).all(row_is_stored));
            // Without a close, which would store.
            assert!(
                Command::new("fusermount3")
                    .args(["-u", "-z"])
                    .arg(place.mountpoint())
                    .status()
                    .unwrap()
                    .success()
            );
            assert_eq!(files.run("close one"), 0);
            wait_for(|| !is_running(daemon));
            assert!((0..4).all(row_is_stored));
        }
        files.end();
    }
}
