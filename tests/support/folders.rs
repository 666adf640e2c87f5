//! Folders of tests: in memory, and of what all tests of a process share. `src/lib.rs` has this file, too, for the unit tests.
//!
//! A killed process removes nothing, and statics are never dropped. So the names say which process a folder belongs to, and the next process
//! removes the folders of those that have ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use tempfile::TempDir;

/// The beginning of the names. The number of the process follows.
const PREFIX: &str = "zarrfs-test-";

/// Returns a new folder in memory if possible, so that no disk is waited for.
pub fn in_memory() -> TempDir {
    static LOOKED: Once = Once::new();
    let shared_memory = Path::new("/dev/shm");
    LOOKED.call_once(|| remove_leftovers(shared_memory));
    let prefix = format!("{}-", own_prefix());
    let mut new = tempfile::Builder::new();
    new.prefix(&prefix);
    new.tempdir_in(shared_memory).or_else(|_| new.tempdir()).unwrap()
}

/// Returns a new folder below `target`, the target folder's place for tests, for a static of this process. Each name is used once.
pub fn of_process(target: &str, name: &str) -> PathBuf {
    static LOOKED: Once = Once::new();
    let target = Path::new(target);
    LOOKED.call_once(|| remove_leftovers(target));
    let folder = target.join(format!("{}-{name}", own_prefix()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn own_prefix() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// Removes the folders of processes that have ended, and of an ended process that had this process's number.
fn remove_leftovers(from: &Path) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let is_leftover = process.is_some_and(|process: u32| {
            process == std::process::id() || !Path::new(&format!("/proc/{process}")).exists()
        });
        if is_leftover {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[test]
fn folders_of_ended_processes_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let names = [format!("{PREFIX}{}-a", child.id()), format!("{PREFIX}1-b"), "other".to_owned()];
    names.iter().for_each(|name| fs::create_dir(place.path().join(name)).unwrap());
    remove_leftovers(place.path());
    assert_eq!(names.map(|name| place.path().join(name).exists()), [false, true, true]);
}
