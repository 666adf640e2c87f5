//! Others write the same store: a second mount, mounts inside each other, programs that know Zarr. No change of theirs is lost without an
//! error.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::support::faulty::{Faults, Operation};
use crate::support::fixtures::python;
use crate::support::kinds;
use crate::support::library;
use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::place::{PATIENCE, wait_for};

const WRITABLE: &[&str] = &["-o", "writable,revalidate=0"];

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Opens a file once its former writer has closed it.
fn open_soon(path: &Path) -> File {
    let started = Instant::now();
    loop {
        match open(path) {
            Err(_) if started.elapsed() < PATIENCE => {}
            opened => return opened.unwrap(),
        }
    }
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Two mounts of a store and one of a group in it: the first that writes an array keeps the others out of it, until it lets go and
/// everything is stored.
#[test]
fn a_second_writer_is_refused() {
    if own_process::has_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let outer = folder.path().join("outer.zarr");
    let inner = outer.join("group");
    kinds::write(&inner);
    let Some(faults) = Faults::new(&outer, "two writers") else { return };
    let mounts = [
        Mount::with_environment(&outer, WRITABLE, &faults.environment(), "two writers"),
        Mount::new(&outer, WRITABLE, "two writers"),
        Mount::new(&inner, WRITABLE, "two writers"),
    ];
    let [Some(first), Some(second), Some(nested)] = mounts else { return };
    let path = |mount: &Mount, array: &str| {
        let is_nested = mount.point() == nested.point();
        if is_nested { mount.path(array) } else { mount.path("group").join(array) }
    };
    let file = open(&path(&first, "plain")).unwrap();
    for refused in [&second, &nested] {
        assert_eq!(errno(open(&path(refused, "plain"))), Some(libc::EBUSY));
        assert!(refused.log().contains("another writer has this array open"), "{}", refused.log());
        assert_eq!(fs::read(path(refused, "plain")).unwrap().len(), 60 * 70 * 4, "reading is free");
        drop(open_soon(&path(refused, "big")));
    }
    drop(file);
    let by_turns = [&nested, &first, &second, &nested];
    for (turn, mount) in by_turns.iter().enumerate() {
        let file = open_soon(&path(mount, "plain"));
        file.write_all_at(&[turn as u8 + 1; 100], turn as u64 * 60).unwrap();
        for other in by_turns.iter().filter(|other| other.pid() != mount.pid()) {
            assert_eq!(errno(open(&path(other, "plain"))), Some(libc::EBUSY));
        }
    }
    let expected = |from: usize, turn: u8| {
        library::stored(&inner, "plain")[from..from + 60].iter().all(|byte| *byte == turn)
    };
    assert!((0..4).all(|turn| expected(turn * 60, turn as u8 + 1)));
    // What could not be stored keeps the others out, though no program has the file open any more.
    faults.arm(Operation::Rename, libc::EIO, 1, u32::MAX);
    let file = open(&path(&first, "nested")).unwrap();
    file.write_all_at(&[9; 100], 0).unwrap();
    assert!(file.sync_all().is_err());
    drop(file);
    assert_eq!(errno(open(&path(&second, "nested"))), Some(libc::EBUSY));
    faults.clear();
    wait_for(|| open(&path(&nested, "nested")).is_ok());
    assert!(library::stored(&inner, "nested")[..50].iter().all(|byte| *byte == 9));
    for mount in [first, second, nested] {
        mount.unmount();
    }
}

/// zarr-python changes chunks between our reading and our storing: both changes are there afterwards.
#[test]
fn a_foreign_change_is_merged() {
    if own_process::has_run() {
        return;
    }
    let Some(python) = python("a foreign change") else { return };
    let store = kinds::store();
    let Some(mount) = Mount::new(store.path(), WRITABLE, "a foreign change") else { return };
    for name in ["plain", "big", "sharded", "nested", "fortran"] {
        let path = mount.path(name);
        let file = open(&path).unwrap();
        let size_bytes = file.metadata().unwrap().len();
        let old: Vec<u8> = (0..size_bytes).map(|at| at as u8 | 1).collect();
        file.write_all_at(&old, 0).unwrap();
        file.sync_all().unwrap();
        // Read and written in part: the daemon has the whole chunk now, as it was.
        file.write_all_at(&[0xAA; 5], 3).unwrap();
        file.write_all_at(&[0xBB; 7], size_bytes - 9).unwrap();
        let mut piece = [0; 64];
        file.read_exact_at(&mut piece, 0).unwrap();
        file.read_exact_at(&mut piece, size_bytes - 64).unwrap();
        // A program that is started closes its copy of our file, which stores the file. So it is written once more afterwards.
        let script = "
import sys, zarr
array = zarr.open_array(sys.argv[1], mode='r+')
print('ready', flush=True)
sys.stdin.readline()
array[1:3] = 5
array[-3:-1, :2] = 6
";
        let mut child = Command::new(&python)
            .args(["-c", script])
            .arg(store.path().join(name))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.as_mut().unwrap()), &mut String::new())
            .unwrap();
        file.write_all_at(&[0xCC; 5], 3).unwrap();
        file.write_all_at(&[0xDD; 7], size_bytes - 9).unwrap();
        file.read_exact_at(&mut piece, 0).unwrap();
        file.read_exact_at(&mut piece, size_bytes - 64).unwrap();
        io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
        assert!(child.wait().unwrap().success());
        let mut expected = library::stored(store.path(), name);
        assert!(expected != old, "{name}: zarr-python wrote nothing");
        expected[3..8].fill(0xCC);
        expected[size_bytes as usize - 9..size_bytes as usize - 2].fill(0xDD);
        file.sync_all().unwrap();
        assert!(library::stored(store.path(), name) == expected, "{name}: not merged");
        drop(file);
        assert!(fs::read(&path).unwrap() == expected, "{name}: the mount shows something else");
    }
    // An object that was deleted meanwhile: its other bytes are fill value now.
    let file = open(&mount.path("big")).unwrap();
    file.write_all_at(&[0xEE; 5], 0).unwrap();
    file.read_exact_at(&mut [0; 8], 0).unwrap();
    fs::remove_file(store.path().join("big/c/0/0")).unwrap();
    file.sync_all().unwrap();
    assert_eq!(
        library::stored(store.path(), "big")[..16],
        *b"\xEE\xEE\xEE\xEE\xEE\xFF\xFF\xFF\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
    );
    drop(file);
    mount.unmount();
}

/// The document is another, or gone: the write is ESTALE, the log has the key, nothing is made anew; once it is back, all
/// goes through.
#[test]
fn a_document_that_changes_under_dirty_data() {
    if own_process::has_run() {
        return;
    }
    let store = kinds::store();
    let Some(mount) = Mount::new(store.path(), WRITABLE, "a changed document") else { return };
    let safe = store.path().with_extension("aside");
    for (name, key) in [("plain", "plain/zarr.json"), ("fortran", "fortran/.zarray")] {
        for change in ["another type", "no document", "no folder"] {
            let file = open(&mount.path(name)).unwrap();
            let size_bytes = file.metadata().unwrap().len();
            let document = store.path().join(key);
            let text = fs::read_to_string(&document).unwrap();
            let new: Vec<u8> =
                (0..size_bytes).map(|at| (at as u8).wrapping_mul(3) | change.len() as u8).collect();
            file.write_all_at(&new, 0).unwrap();
            match change {
                "another type" => {
                    fs::write(&document, text.replace("\"int32\"", "\"int16\"").replace(">f8", ">f4"))
                        .unwrap();
                }
                "no document" => fs::remove_file(&document).unwrap(),
                _ => fs::rename(store.path().join(name), &safe).unwrap(),
            }
            assert_eq!(errno(file.sync_all()), Some(libc::ESTALE), "{name}, {change}");
            assert!(mount.log().contains(key), "{name}, {change}: {}", mount.log());
            let refused = mount.umount(&[]);
            assert!(!refused.status.success(), "{name}, {change}: umount would lose it");
            match change {
                "no folder" => {
                    assert!(!store.path().join(name).exists(), "{name}: a folder was made anew");
                    fs::rename(&safe, store.path().join(name)).unwrap();
                }
                _ => fs::write(&document, &text).unwrap(),
            }
            drop(file);
            wait_for(|| library::stored(store.path(), name) == new);
            wait_for(|| open(&mount.path(name)).is_ok());
        }
    }
    mount.unmount();
}

/// `zarrfs mv` and `rm` took a node away under a program that was writing it, and what that had not stored yet was lost.
#[test]
fn a_command_does_not_remove_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("outer.zarr");
    kinds::write(&store.join("group"));
    let Some(mount) = Mount::new(&store, WRITABLE, "a command next to a writer") else { return };
    let file = open(&mount.path("group").join("plain")).unwrap();
    file.write_all_at(&[7; 4], 0).unwrap();
    let run = |words: &[&str]| {
        let (command, paths) = words.split_first().unwrap();
        let mut zarrfs = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        zarrfs.arg(command).arg(&store).args(paths).output().unwrap()
    };
    let commands: [&[&str]; 4] = [
        &["rm", "--yes", "group/plain"],
        &["rm", "--yes", "group"],
        &["mv", "group/plain", "group/p"],
        &["mv", "group", "g"],
    ];
    for words in commands {
        let output = run(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{words:?}");
        assert!(text.contains("group/plain") && text.contains("open for writing"), "{words:?}: {text}");
    }
    file.sync_all().unwrap();
    assert_eq!(library::stored(&store, "group/plain")[..4], [7; 4]);
    drop(file);
    for words in [&["mv", "group/plain", "group/p"][..], &["rm", "--yes", "group"]] {
        let output = run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    assert!(!store.join("group").exists());
    mount.unmount();
}
