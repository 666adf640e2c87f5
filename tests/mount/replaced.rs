//! Another array, or another store, comes into the place of the one that is written to: it does not get what was pending.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::place::wait_for;
use crate::support::{kinds, library};

const WRITABLE: &[&str] = &["-o", "writable,revalidate=0"];

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

fn stored(store: &Path, array: &str) -> Vec<u8> {
    let opened = zarrfs::store::open(store.to_str().unwrap(), false).unwrap();
    library::read(&opened, array).unwrap()
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn is_stale(result: std::io::Result<()>) -> bool {
    result.unwrap_err().raw_os_error() == Some(libc::ESTALE)
}

/// Lines of a log that name this.
fn lines(log: &str, what: &str) -> usize {
    log.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn an_arrays_folder() {
    if own_process::has_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("s.zarr");
    kinds::write(&store);
    let Some(mount) = Mount::new(&store, WRITABLE, "a replaced array") else { return };
    for (name, key) in [("plain", "plain/zarr.json"), ("fortran", "fortran/.zarray")] {
        let file = open(&mount.path(name));
        let size_bytes = file.metadata().unwrap().len() as usize;
        file.write_all_at(&vec![1; size_bytes], 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&vec![2; size_bytes], 0).unwrap();
        let aside = folder.path().join("aside");
        fs::rename(store.join(name), &aside).unwrap();
        copy(&aside, &store.join(name));
        assert!(is_stale(file.sync_all()), "{name}");
        assert!(lines(&mount.log(), key) > 0, "{}", mount.log());
        drop(file);
        assert!(stored(&store, name) == vec![1; size_bytes], "{name}: the new folder got what was pending");
        // The new one is shown, and can be written.
        assert!(fs::read(mount.path(name)).unwrap() == vec![1; size_bytes], "{name}");
        let new = open(&mount.path(name));
        new.write_all_at(&vec![3; size_bytes], 0).unwrap();
        new.sync_all().unwrap();
        drop(new);
        assert!(stored(&store, name) == vec![3; size_bytes], "{name}");
        assert!(!mount.umount(&[]).status.success(), "{name}: what is pending would be lost");
        // Back in its place, it gets what is its own.
        fs::remove_dir_all(store.join(name)).unwrap();
        fs::rename(&aside, store.join(name)).unwrap();
        wait_for(|| stored(&store, name) == vec![2; size_bytes]);
    }
    mount.unmount();
}

#[test]
fn a_whole_store() {
    if own_process::has_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (store, aside) = (folder.path().join("s.zarr"), folder.path().join("aside.zarr"));
    kinds::write(&store);
    let Some(mount) = Mount::new(&store, WRITABLE, "a replaced store") else { return };
    let file = open(&mount.path("plain"));
    let size_bytes = file.metadata().unwrap().len() as usize;
    file.write_all_at(&vec![1; size_bytes], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&vec![2; size_bytes], 0).unwrap();
    fs::rename(&store, &aside).unwrap();
    file.sync_all().unwrap();
    assert!(stored(&aside, "plain") == vec![2; size_bytes], "a store that is renamed is what it was");
    copy(&aside, &store);
    file.write_all_at(&vec![3; size_bytes], 0).unwrap();
    assert!(is_stale(file.sync_all()));
    let log = mount.log();
    assert_eq!(lines(&log, "another folder has this name now"), 1, "{log}");
    assert!(lines(&log, "plain/zarr.json") > 0, "{log}");
    drop(file);
    for store in [&store, &aside] {
        assert!(stored(store, "plain") == vec![2; size_bytes]);
    }
    let refused = mount.umount(&[]);
    assert!(!refused.status.success());
    // The store that was opened is back.
    fs::remove_dir_all(&store).unwrap();
    fs::rename(&aside, &store).unwrap();
    wait_for(|| stored(&store, "plain") == vec![3; size_bytes]);
    mount.unmount();
}
