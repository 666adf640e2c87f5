//! The store fails under a writable mount: every open descriptor gets an error, nothing old is destroyed, what was written is kept and
//! goes through when the cause is gone.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::disk::Disk;
use crate::support::faulty::{CHANGES, Faults, Operation};
use crate::support::fixtures::python;
use crate::support::kinds::{self, unfinished};
use crate::support::library;
use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::uneven::v3;
use crate::support::{Numbers, say};
use serde_json::json;
use tempfile::TempDir;

const WRITABLE: &[&str] = &["-o", "writable,tune=dirty-limit=16M"];

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Checks that all is stored once the cause is gone. The first may still report an earlier failure, such as that of the close(2) in a program
/// that another test has started.
fn goes_through(file: &File) {
    let _ = file.sync_all();
    file.sync_all().unwrap();
}

/// Bytes that are not the fill value.
fn content(size_bytes: u64, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..size_bytes).map(|_| numbers.next() as u8 | 1).collect()
}

/// Returns what the store holds of an array, without the mount.
fn stored(store: &Path, array: &str) -> Vec<u8> {
    let opened = zarrfs::store::open(store.to_str().unwrap(), false).unwrap();
    library::read(&opened, array).unwrap()
}

fn new_store() -> TempDir {
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    kinds::write(store.path());
    store
}

/// Mounts a new store with a daemon that can be made to fail.
fn faulty_mount(options: &[&str]) -> Option<(TempDir, Faults, Mount)> {
    let store = new_store();
    let faults = Faults::new(store.path(), "faults")?;
    let mount = Mount::with_environment(store.path(), options, &faults.environment(), "faults")?;
    Some((store, faults, mount))
}

/// Each operation on the way to the disk fails once: the fsync(2) that met it fails, the other descriptor gets the error at its next
/// one, and neither gets it twice.
#[test]
fn the_nth_operation_fails() {
    if own_process::has_run() {
        return;
    }
    let Some((store, faults, mount)) = faulty_mount(WRITABLE) else { return };
    let errnos = [libc::ENOSPC, libc::EIO, libc::EACCES, libc::EDQUOT];
    let mut cases = 0;
    for name in ["plain", "sharded"] {
        let (writer, other) = (open(&mount.path(name)), open(&mount.path(name)));
        let size_bytes = writer.metadata().unwrap().len();
        let mut old = stored(store.path(), name);
        for operation in [
            Operation::Mkdir,
            Operation::Create,
            Operation::Write,
            Operation::Fdatasync,
            Operation::Rename,
            Operation::Fsync,
        ] {
            for number in 1.. {
                let new = content(size_bytes, (number << 8) | operation as u64);
                writer.write_all_at(&new, 0).unwrap();
                let case = format!("{name}: {operation:?} {number}");
                let error = errnos[(number as usize + operation as usize) % errnos.len()];
                faults.arm(operation, error, number as u32, number as u32);
                let synced = writer.sync_all();
                faults.clear();
                if faults.fired() == 0 {
                    synced.unwrap();
                    old = new;
                    break;
                }
                assert_eq!(synced.map_err(|error| error.raw_os_error()), Err(Some(error)), "{case}");
                let now = stored(store.path(), name);
                assert!(
                    (0..now.len()).all(|at| [old[at], new[at]].contains(&now[at])),
                    "{case}: neither old nor new"
                );
                let reported = other.sync_all().map_err(|error| error.raw_os_error());
                assert_eq!(reported, Err(Some(error)), "{case}: the other descriptor: {}", mount.log());
                other.sync_all().unwrap_or_else(|error| panic!("{case}: reported twice: {error}"));
                writer.sync_all().unwrap_or_else(|error| panic!("{case}: reported twice: {error}"));
                assert!(stored(store.path(), name) == new, "{case}: not all went through");
                assert!(unfinished(store.path()).is_empty(), "{case}");
                old = new;
                cases += 1;
            }
        }
    }
    say(format!("faults: {cases} operations failed, each was reported and went through afterwards"));
    assert!(cases > 20);
    mount.unmount();
}

/// What was renamed into place before its bytes were on the disk would be empty or cut short after a power cut. So a put syncs its
/// bytes first, however it writes them: short objects through the page cache, long ones past it, and shards of copied parts.
#[test]
fn no_object_gets_its_name_before_its_bytes_are_on_the_disk() {
    if own_process::has_run() {
        return;
    }
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    let shard = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [300_000], "codecs": [{"name": "bytes"}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]);
    let gzip = json!([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]);
    let plain = json!([{"name": "bytes"}]);
    let arrays = [
        ("short", 1000, &plain),
        ("long", 3_000_001, &plain),
        ("compressed", 3_000_001, &gzip),
        ("shards", 3_000_000, &shard),
    ];
    for (name, length, codecs) in arrays {
        fs::create_dir(store.path().join(name)).unwrap();
        let document = v3("uint8", &[length], &[length], codecs);
        fs::write(store.path().join(name).join("zarr.json"), document.to_string()).unwrap();
    }
    let Some(faults) = Faults::new(store.path(), "syncs before renames") else { return };
    let Some(mount) = Mount::with_environment(store.path(), WRITABLE, &faults.environment(), "faults") else {
        return;
    };
    for (name, length, _) in arrays {
        let file = open(&mount.path(name));
        // All of it, and then a part, for which the rest is copied.
        for (seed, range) in [(1, 0..length), (2, 10..20)] {
            let old = stored(store.path(), name);
            file.write_all_at(&content(range.end - range.start, seed), range.start).unwrap();
            faults.arm(Operation::Fdatasync, libc::EIO, 1, u32::MAX);
            assert_eq!(errno(file.sync_all()), libc::EIO, "{name}: its bytes were not synced");
            assert!(stored(store.path(), name) == old, "{name}: it has its name all the same");
            faults.clear();
            goes_through(&file);
        }
    }
    mount.unmount();
}

/// A chunk that became fill value is deleted; that may fail, too.
#[test]
fn deleting_fails() {
    if own_process::has_run() {
        return;
    }
    let Some((store, faults, mount)) = faulty_mount(WRITABLE) else { return };
    let file = open(&mount.path("sharded"));
    let size_bytes = file.metadata().unwrap().len();
    file.write_all_at(&content(size_bytes, 1), 0).unwrap();
    file.sync_all().unwrap();
    // A file that was cut short grows by zeros.
    file.set_len(0).unwrap();
    file.set_len(size_bytes).unwrap();
    faults.arm(Operation::Unlink, libc::EROFS, 2, 3);
    assert_eq!(errno(file.sync_all()), libc::EROFS);
    let mut shown = vec![1; size_bytes as usize];
    file.read_exact_at(&mut shown, 0).unwrap();
    assert!(shown.iter().all(|byte| *byte == 0));
    faults.clear();
    goes_through(&file);
    assert!(!store.path().join("sharded/c/0/0").exists());
    drop(file);
    mount.unmount();
}

/// dd gets the error from close(2). The next program that opens the file finds what was written, and makes it safe.
#[test]
fn close_reports_a_failure() {
    if own_process::has_run() {
        return;
    }
    let Some((store, faults, mount)) = faulty_mount(WRITABLE) else { return };
    let path = mount.path("plain");
    let input = store.path().with_extension("input");
    let new = content(fs::metadata(&path).unwrap().len(), 7);
    fs::write(&input, &new).unwrap();
    faults.arm(Operation::Rename, libc::EIO, 1, u32::MAX);
    let dd = |more: &str| {
        let (from, to) = (format!("if={}", input.display()), format!("of={}", path.display()));
        Command::new("dd").args([&from, &to, "bs=5000", more]).output().unwrap()
    };
    for conversion in ["conv=notrunc", "conv=notrunc,fsync", "conv=nocreat"] {
        let output = dd(conversion);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("nput/output error"), "{conversion}: {text}");
    }
    assert!(stored(store.path(), "plain").chunks(4).all(|item| item == 7i32.to_le_bytes()));
    assert!(fs::read(&path).unwrap() == new, "what was written is kept");
    assert!(
        fs::read_to_string(mount.path("__zarrfs__/unsaved")).unwrap().starts_with("plain/c/0/0 [cannot ")
    );
    let refused = mount.umount(&[]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("plain/c/3/2") && text.contains("Input/output error"),
        "the keys are named: {text}"
    );
    assert!(mount.is_mounted());
    faults.clear();
    // An attempt of the timer that began before may fail after this open, which then gets the error.
    goes_through(&open(&path));
    assert!(stored(store.path(), "plain") == new);
    assert_eq!(fs::read_to_string(mount.path("__zarrfs__/unsaved")).unwrap(), "");
    fs::remove_file(input).unwrap();
    mount.unmount();
}

/// While nothing can be stored and the limit is reached, write(2) says why; a memory map's pages are taken nevertheless.
#[test]
fn writes_are_refused_and_pages_are_not() {
    if own_process::has_run() {
        return;
    }
    let Some((store, faults, mount)) = faulty_mount(&["-o", "writable,tune=dirty-limit=4K"]) else { return };
    let file = open(&mount.path("plain"));
    let size_bytes = file.metadata().unwrap().len();
    let new = content(size_bytes, 3);
    faults.arm(Operation::Fdatasync, libc::EDQUOT, 1, u32::MAX);
    let mut taken = vec![false; size_bytes as usize];
    for (number, piece) in new.chunks(500).enumerate() {
        match file.write_all_at(piece, number as u64 * 500) {
            Ok(()) => taken[number * 500..][..piece.len()].fill(true),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EDQUOT)),
        }
    }
    let bytes = taken.iter().filter(|taken| **taken).count();
    // A dirty chunk counts the memory that it takes, not what was written to it.
    assert!((500..12_000).contains(&bytes), "{bytes} bytes were taken");
    let fill = 7i32.to_le_bytes();
    let expected: Vec<u8> =
        (0..taken.len()).map(|at| if taken[at] { new[at] } else { fill[at % 4] }).collect();
    assert!(fs::read(mount.path("plain")).unwrap() == expected, "what was refused was not written");
    if let Some(python) = python("memory maps while storing fails") {
        let script = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(file, 0)
pages[:] = bytes([9]) * len(pages)
for attempt in pages.flush, lambda: os.close(file):
    try:
        attempt()
    except OSError as error:
        assert error.errno == 122, error
    else:
        raise SystemExit('all is well, they say')
";
        let mapped = Command::new(python).args(["-c", script]).arg(mount.path("big")).output().unwrap();
        assert!(mapped.status.success(), "{}", String::from_utf8_lossy(&mapped.stderr));
        assert!(fs::read(mount.path("big")).unwrap().iter().all(|byte| *byte == 9));
    }
    faults.clear();
    file.write_all_at(&new, 0).unwrap();
    goes_through(&file);
    drop(file);
    assert!(stored(store.path(), "plain") == new);
    mount.unmount();
    assert!(stored(store.path(), "big").iter().all(|byte| [9, 0xff, 0xfe].contains(byte)));
}

/// The rest of a chunk that is written in part must be read first; if that fails, nothing is stored in its place.
#[test]
fn a_chunk_that_cannot_be_read_is_not_wiped() {
    if own_process::has_run() {
        return;
    }
    let Some((store, faults, mount)) = faulty_mount(WRITABLE) else { return };
    for (name, key) in [("plain", "plain/c/0/0"), ("sharded", "sharded/c/0/0"), ("fortran", "fortran/0.0")] {
        let path = mount.path(name);
        let size_bytes = fs::metadata(&path).unwrap().len();
        let old = content(size_bytes, 5);
        let file = open(&path);
        file.write_all_at(&old, 0).unwrap();
        file.sync_all().unwrap();
        let object = store.path().join(key);
        let intact = fs::read(&object).unwrap();
        file.write_all_at(&[0xAB; 3], 1).unwrap();
        faults.arm(Operation::Read, libc::EIO, 1, u32::MAX);
        assert_eq!(errno(file.sync_all()), libc::EIO, "{name}: reading fails");
        faults.clear();
        assert!(fs::read(&object).unwrap() == intact);
        goes_through(&file);
        // Cut short: the shard's index, or the end of the compressed chunk.
        let cut = fs::read(&object).unwrap();
        fs::write(&object, &cut[..cut.len() - 3]).unwrap();
        file.write_all_at(&[0xCD; 3], 1).unwrap();
        assert_eq!(errno(file.sync_all()), libc::EIO, "{name}: decoding fails");
        assert_eq!(errno(file.sync_all()), libc::EIO, "{name}: again");
        assert!(fs::read(&object).unwrap() == cut[..cut.len() - 3], "{name}: it is left as it was");
        assert!(mount.log().contains(key), "{name}: {}", mount.log());
        fs::write(&object, &cut).unwrap();
        goes_through(&file);
        let mut expected = old.clone();
        expected[1..4].fill(0xCD);
        assert!(stored(store.path(), name) == expected, "{name}");
    }
    mount.unmount();
}

/// A disk that fills up, by bytes and by files, and is made larger.
#[test]
fn a_full_disk() {
    if own_process::has_run() {
        return;
    }
    for (small, large) in [("size=48k", "size=8m"), ("size=8m,nr_inodes=24", "nr_inodes=1000")] {
        let Some(disk) = Disk::in_memory(small, "a full disk") else { return };
        let store = disk.path().join("store.zarr");
        kinds::write(&store);
        let Some(mount) = Mount::new(&store, WRITABLE, "a full disk") else { return };
        let (file, other) = (open(&mount.path("big")), open(&mount.path("big")));
        let first = content(1000, 1);
        file.write_all_at(&first, 0).unwrap();
        file.sync_all().unwrap();
        let safe = stored(&store, "big");
        let size_bytes = file.metadata().unwrap().len();
        let new = content(size_bytes, 2);
        file.write_all_at(&new, 0).unwrap();
        // The filler takes the rest of the disk, so that not everything fits.
        let filler: Vec<_> = (0..40)
            .map_while(|i| {
                let filler = disk.path().join(format!("filler{i}"));
                fs::write(&filler, vec![1; 4096]).ok().map(|()| filler)
            })
            .collect();
        assert!(!filler.is_empty());
        assert_eq!(errno(file.sync_all()), libc::ENOSPC, "{small}");
        assert_eq!(errno(other.sync_all()), libc::ENOSPC, "{small}");
        let now = stored(&store, "big");
        assert!(
            (0..now.len()).all(|at| [safe[at], new[at]].contains(&now[at])),
            "{small}: neither old nor new"
        );
        drop((file, other));
        let refused = mount.umount(&[]);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && text.contains("No space left") && text.contains("big/c/"),
            "{small}: {text}"
        );
        assert!(fs::read(mount.path("big")).unwrap() == new, "{small}: what was written is kept");
        disk.remount(large);
        mount.unmount();
        assert!(stored(&store, "big") == new, "{small}");
        assert!(unfinished(&store).is_empty(), "{small}");
    }
}

/// A store that goes read-only under a writer, and comes back.
#[test]
fn a_disk_that_goes_read_only() {
    if own_process::has_run() {
        return;
    }
    let folder = new_store();
    let Some(view) = Disk::view(folder.path(), "a read-only disk") else { return };
    let Some(mount) = Mount::new(view.path(), WRITABLE, "a read-only disk") else { return };
    let file = open(&mount.path("nested"));
    let new = content(file.metadata().unwrap().len(), 4);
    view.remount("bind,ro");
    file.write_all_at(&new, 0).unwrap();
    assert_eq!(errno(file.sync_all()), libc::EROFS);
    // Opened while nothing can be stored.
    let closed = Command::new("dd")
        .args(["if=/dev/zero", &format!("of={}", mount.path("big").display()), "conv=notrunc", "count=1"])
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!closed.success());
    view.remount("bind,rw");
    goes_through(&file);
    drop(file);
    mount.unmount();
    assert!(stored(folder.path(), "nested") == new);
    assert!(stored(folder.path(), "big")[..512].iter().all(|byte| *byte == 0));
}

/// Many programs write and sync while operations of all kinds fail now and then. In the end all that was written is there.
#[test]
fn a_storm() {
    if own_process::has_run() {
        return;
    }
    let store = new_store();
    let Some(faults) = Faults::new(store.path(), "a storm") else { return };
    let Some(mount) = Mount::with_environment(store.path(), WRITABLE, &faults.environment(), "a storm")
    else {
        return;
    };
    let kinds = kinds::write(store.path());
    let (is_over, reported) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut fired = 0;
    let written: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
        let write = |path: PathBuf, start: u64, length: u64, seed: u64| {
            let (is_over, reported) = (&is_over, &reported);
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                let mut mine = content(length, seed);
                let mut file = open(&path);
                file.write_all_at(&mine, start).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let (offset, length) = numbers.range(mine.len() as u64);
                    let piece = content(length, numbers.next());
                    mine[offset as usize..][..piece.len()].copy_from_slice(&piece);
                    file.write_all_at(&piece, start + offset).unwrap();
                    if numbers.below(4) == 0 {
                        reported.fetch_add(u64::from(file.sync_data().is_err()), Ordering::Relaxed);
                    }
                    if numbers.below(10) == 0 {
                        file = open(&path);
                    }
                }
                mine
            })
        };
        let threads: Vec<Vec<_>> = (kinds.iter().zip(0u64..))
            .map(|(kind, seed)| {
                let half = (kind.size_bytes / 2) | 1;
                let halves = [(0, half), (half, kind.size_bytes - half)];
                let start =
                    |(start, length)| write(mount.path(kind.name), start, length, seed * 10 + start + 1);
                halves.map(start).into()
            })
            .collect();
        let mut numbers = Numbers(77);
        for _ in 0..120 {
            let operation = CHANGES[numbers.below(CHANGES.len() as u64) as usize];
            let errno = [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EROFS][numbers.below(4) as usize];
            let first = numbers.below(5) as u32;
            faults.arm(operation, errno, first, first + numbers.below(6) as u32);
            std::thread::sleep(Duration::from_millis(20));
            fired += faults.fired();
        }
        faults.clear();
        is_over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|halves| halves.into_iter().map(|half| half.join().unwrap()).collect())
            .collect()
    });
    for (kind, halves) in kinds.iter().zip(written) {
        goes_through(&open(&mount.path(kind.name)));
        assert!(stored(store.path(), kind.name) == halves.concat(), "{}", kind.name);
    }
    assert!(unfinished(store.path()).is_empty());
    say(format!(
        "faults: a storm of {fired} failures, {} of them were reported",
        reported.load(Ordering::Relaxed)
    ));
    assert!(fired > 20 && reported.load(Ordering::Relaxed) > 0);
    mount.unmount();
}
