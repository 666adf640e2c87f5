//! Mounts that go on when their daemon does not: kills, restarts, the keeper, and every way to unmount.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::level;
use crate::support::place::*;
use crate::support::skip;

/// The rows of the array `rows`, 10 in each chunk.
const ROWS: u64 = 3000;

/// The sample hierarchy, an array of many chunks, and one that is a single object.
fn place() -> Place {
    let place = Place::demo();
    place.put("rows/zarr.json", array_document(ROWS, 0, "uint8"));
    for chunk in 0..ROWS / 10 {
        let bytes: Vec<u8> = (0..10_000u64).map(|byte| ((byte * 7 + chunk * 13) % 251) as u8).collect();
        place.put(&format!("rows/c/{chunk}/0"), bytes);
    }
    place.put("single/zarr.json", array_document(10, 0, "uint8"));
    place.put("single/c/0/0", (0..10_000u64).map(|byte| (byte % 241) as u8).collect::<Vec<_>>());
    place
}

fn config(place: &Place) -> serde_json::Value {
    crate::support::place::config(&place.mountpoint())
}

pub fn keeper(place: &Place) -> Option<u32> {
    config(place)["keeper"].as_u64().map(|pid| pid.try_into().unwrap())
}

/// Whether mounts here have keepers.
pub fn has_keepers(place: &Place) -> bool {
    let has = keeper(place).is_some();
    if !has {
        skip("a mount that goes on without its daemon", "the kernel is older than Linux 6.9", false);
    }
    has
}

/// The same store without a mount, as files to compare with.
fn expected(place: &Place, names: &[&str]) {
    for name in names {
        let path = place.folder.path().join("expected").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, fs::read(place.path(name)).unwrap()).unwrap();
    }
}

/// Readers, each of which begins again until the file `stop` is there, and fails at the first difference.
const READERS: [(&str, &str); 6] = [
    ("dd", "dd if=mnt/rows bs=61k status=none | cmp - expected/rows"),
    (
        "cmp",
        "cmp mnt/rows expected/rows && cmp mnt/single expected/single && cmp mnt/rows.json expected/rows.json",
    ),
    ("find", "find mnt -type f -size +0 | LC_ALL=C sort | cmp - list"),
    ("nc", "cmp mnt/__formats__/nc/rows.nc expected/__formats__/nc/rows.nc"),
    (
        "slices",
        "for n in 1 77 1999 2400; do dd if=mnt/rows bs=1000 skip=$n count=3 status=none | cmp - <(dd if=expected/rows bs=1000 skip=$n count=3 status=none) || exit 1; done",
    ),
    (
        "maps",
        "python3 - <<'END'
import mmap, os
whole = open('expected/rows', 'rb').read()
with open('mnt/rows', 'rb') as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as bytes:
        assert all(bytes[at:at + 4096] == whole[at:at + 4096] for at in range(0, len(whole), 40960))
        assert file.read() == whole and os.fstat(file.fileno()).st_size == len(whole)
END",
    ),
];

pub fn start_reader(place: &Place, script: &str) -> Child {
    let script = format!("until [ -e stop ]; do ( {script}\n) || exit 1; done; exit 0");
    let mut command = Command::new("timeout");
    command.args(["900", "bash", "-c", &script]).current_dir(place.folder.path());
    command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

pub fn finish_readers(place: &Place, readers: Vec<(&str, Child)>) {
    fs::write(place.folder.path().join("stop"), "").unwrap();
    for (name, reader) in readers {
        let output = reader.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {} {said}", output.status);
    }
}

/// Waits for a daemon other than this one.
pub fn next_daemon(place: &Place, before: u32) -> u32 {
    let mut daemon = before;
    wait_for(|| {
        daemon = place.daemon();
        daemon != before
    });
    daemon
}

pub fn end(place: &Place, processes: &[u32]) {
    let output = place.umount();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(processes.iter().all(|&pid| !is_running(pid)), "umount returned before {processes:?} had ended");
}

/// Somewhere in a range, from the seed of the tests and a number.
pub fn some(range: std::ops::Range<u64>, number: u64) -> u64 {
    let seed = level::seed().bytes().fold(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    range.start + (seed >> 20) % (range.end - range.start)
}

/// The bug: the next daemon knew the file's readers of now, and not those of the time when it was opened. What the owner had closed since
/// was read through the old handle.
#[test]
fn a_handle_of_before_reads_nothing_that_was_closed_since() {
    reads_nothing_that_was_closed_since("rows");
}

/// The same bug was left in companion files.
#[test]
fn a_companion_of_before_reads_nothing_that_was_closed_since() {
    reads_nothing_that_was_closed_since("__formats__/npy/rows.npy");
}

fn reads_nothing_that_was_closed_since(name: &str) {
    if !can_mount() || !is_root() {
        return;
    }
    let place = place();
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place.mount(&["--keeper", "-o", "revalidate=0"]);
    if !has_keepers(&place) {
        return;
    }
    let script = "exec 3<mnt/$0 4<mnt/$0 5<mnt/$0; echo open; while read handle chunk; do \
        dd bs=10000 skip=$chunk count=1 status=none <&$handle 2>&1 | tr -cd 'A-Za-z '; echo; done";
    let mut reader = Command::new("sh")
        .args(["-c", script, name])
        .env("LC_ALL", "C")
        .current_dir(place.folder.path())
        .uid(65_534)
        .gid(65_534)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "open");
    let mut read = |handle: u64, chunk: u64| {
        writeln!(reader.stdin.as_mut().unwrap(), "{handle} {chunk}").unwrap();
        lines.next().unwrap().unwrap()
    };
    // Backwards, since the kernel reads ahead. A companion's header moves the rows, so each read has bytes of two chunks.
    for chunk in [199, 200, 49, 50] {
        place.put(&format!("rows/c/{chunk}/0"), vec![b'S'; 10_000]);
    }
    assert!(read(3, 200).contains("SSSS"), "it is open to all");
    let close = |key: &str| {
        let path = place.store().join(key);
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    ["rows/zarr.json", "rows/c/99/0", "rows/c/100/0", "rows/c/49/0", "rows/c/50/0"]
        .into_iter()
        .for_each(close);
    let answer = read(4, 100);
    assert!(answer.contains("ermission denied"), "without a restart: {answer}");
    let daemon = place.daemon();
    signal(daemon, "KILL");
    next_daemon(&place, daemon);
    let answer = read(5, 50);
    assert!(!answer.contains("SSSS"), "the chunk was closed before it was read");
    drop(reader.stdin.take());
    reader.wait().unwrap();
    end(&place, &[]);
}

#[test]
fn programs_that_read_notice_no_kill() {
    if !can_mount() {
        return;
    }
    let place = place();
    place.mount(&["--keeper", "-o", "allow-other=off"]);
    if !has_keepers(&place) {
        return;
    }
    let keeper = keeper(&place).unwrap();
    expected(&place, &["rows", "rows.json", "single", "__formats__/nc/rows.nc"]);
    let list = "find mnt -type f -size +0 | LC_ALL=C sort > list";
    assert!(
        Command::new("sh").args(["-c", list]).current_dir(place.folder.path()).status().unwrap().success()
    );
    let readers = READERS.map(|(name, script)| (name, start_reader(&place, script)));
    let (mut daemon, mut waits) = (place.daemon(), Vec::new());
    for round in 0..level::pick(10, 30) {
        // A daemon that dies soon makes the next one wait, and a keeper gives up where they die faster than this.
        let least = if round > 20 { 3000 } else { round % 2 * 1000 };
        let pause = least + some(0..400, round);
        std::thread::sleep(Duration::from_millis(pause));
        signal(daemon, "KILL");
        let killed = Instant::now();
        daemon = next_daemon(&place, daemon);
        waits.push(killed.elapsed().as_millis());
    }
    waits.sort_unstable();
    println!("a reply after {} ms (median), {} ms (longest)", waits[waits.len() / 2], waits[waits.len() - 1]);
    finish_readers(&place, readers.into());
    assert_eq!(self::keeper(&place), Some(keeper));
    end(&place, &[daemon, keeper]);
}

#[test]
fn open_files_read_on_or_are_stale() {
    if !can_mount() {
        return;
    }
    let place = place();
    place.put("changed/zarr.json", array_document(20, 3, "uint8"));
    place.put("gone/zarr.json", array_document(20, 4, "uint8"));
    place.put("longer/zarr.json", array_document(20, 5, "uint8"));
    place.mount(&["--keeper", "--direct-io"]);
    if !has_keepers(&place) {
        return;
    }
    let open = |name: &str| File::open(place.path(name)).unwrap();
    let files = ["rows", "changed", "gone", "longer"].map(open);
    let mut listing = fs::read_dir(place.path("climate")).unwrap();
    let first = listing.next().unwrap().unwrap().file_name();
    let whole: Vec<_> =
        fs::read_dir(place.path("climate")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut sidecar = open("rows.json");
    let text = fs::read_to_string(place.path("rows.json")).unwrap();
    let mut half = vec![0; 20];
    sidecar.read_exact(&mut half).unwrap();
    let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
    signal(keeper, "STOP");
    signal(daemon, "KILL");
    place.put("changed/zarr.json", array_document(20, 3, "int32"));
    fs::remove_dir_all(place.store().join("gone")).unwrap();
    place.put("longer/zarr.json", array_document(30, 5, "uint8"));
    signal(keeper, "CONT");
    let read = |file: &File| {
        let mut bytes = [0; 100];
        file.read_exact_at(&mut bytes, 10_000).map(|()| bytes)
    };
    assert_eq!(read(&files[0]).unwrap()[..], place.cat("rows")[10_000..10_100]);
    for file in &files[1..3] {
        assert_eq!(read(file).unwrap_err().raw_os_error(), Some(116), "ESTALE");
    }
    assert_eq!(read(&files[3]).unwrap(), [5; 100]);
    let mut rest = String::new();
    sidecar.read_to_string(&mut rest).unwrap();
    assert_eq!(String::from_utf8(half).unwrap() + &rest, text);
    let mut names = vec![first];
    names.extend(listing.map(|entry| entry.unwrap().file_name()));
    assert_eq!(names, whole);
    wait_for(|| fs::metadata(place.path("changed")).unwrap().len() == 80_000);
    drop((files, sidecar));
    let daemon = place.daemon();
    end(&place, &[daemon, keeper]);
}

#[test]
fn inodes_and_open_planes_keep_their_numbers() {
    if !can_mount() {
        return;
    }
    let place = place();
    place.mount(&["--keeper"]);
    if !has_keepers(&place) {
        return;
    }
    let names = ["rows", "rows.json", "climate", "__views__/planes/rows/000005", "__formats__/npy/rows.npy"];
    let numbers = || names.map(|name| fs::metadata(place.path(name)).unwrap().ino());
    let before = numbers();
    let mut plane = File::open(place.path(names[3])).unwrap();
    let bytes = fs::read(place.path(names[3])).unwrap();
    let mut daemon = place.daemon();
    for _ in 0..3 {
        signal(daemon, "KILL");
        daemon = next_daemon(&place, daemon);
    }
    let mut again = Vec::new();
    plane.seek(SeekFrom::Start(0)).unwrap();
    plane.read_to_end(&mut again).unwrap();
    assert_eq!(again, bytes);
    assert_eq!(numbers()[..4], before[..4]);
    drop(plane);
    end(&place, &[daemon, keeper(&place).unwrap_or(daemon)]);
}

/// Only the kernel holds the object then, and a lease of it is refused as long as anybody does (fcntl(2), F_SETLEASE).
#[test]
fn an_object_that_the_kernel_reads_is_let_go_after_the_last_close() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = place();
    place.mount(&["--keeper"]);
    if !has_keepers(&place) {
        return;
    }
    let ask = "import fcntl, sys; fcntl.fcntl(open(sys.argv[1]), fcntl.F_SETLEASE, fcntl.F_WRLCK)";
    let is_held = || {
        let object = place.store().join("single/c/0/0");
        let output = Command::new("python3").args(["-c", ask]).arg(object).output().unwrap();
        !output.status.success()
    };
    let open = || File::open(place.path("single")).unwrap();
    // It is closed at the daemon that has opened it, at the next one without another open, and at one with.
    for (kills, opens) in [(0, 1), (1, 0), (1, 1), (2, 1)] {
        let first = open();
        for _ in 0..kills {
            let daemon = place.daemon();
            signal(daemon, "KILL");
            next_daemon(&place, daemon);
        }
        let others: Vec<File> = (0..opens).map(|_| open()).collect();
        drop(others);
        let mut bytes = [0; 10];
        first.read_exact_at(&mut bytes, 500).unwrap();
        // The daemon itself keeps objects open for later reads.
        assert!(zarrfs(&["restart", place.mountpoint().to_str().unwrap()]).status.success());
        assert!(is_held(), "{kills} kills, {opens} opens: the file is open");
        drop(first);
        wait_for(|| !is_held());
    }
    let daemon = place.daemon();
    end(&place, &[daemon, keeper(&place).unwrap_or(daemon)]);
}

#[test]
fn without_its_keeper_a_mount_ends_with_its_daemon() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mountpoint = place.mountpoint();
    for kills_both in [false, true] {
        place.mount(&["--keeper"]);
        if !has_keepers(&place) {
            return;
        }
        let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
        signal(keeper, "KILL");
        if !kills_both {
            wait_for(|| !is_running(keeper));
            assert_eq!(fs::read(place.path("single")).unwrap(), place.cat("single"));
            let restarted = zarrfs(&["restart", mountpoint.to_str().unwrap()]);
            assert!(refusal(&restarted, 1).contains("the keeper of"));
        }
        signal(daemon, "KILL");
        wait_for(|| fs::read_dir(&mountpoint).is_err_and(|error| error.raw_os_error() == Some(107)));
        assert!(zarrfs(&["umount", "--stale", mountpoint.to_str().unwrap()]).status.success());
        assert!(!is_mounted(&mountpoint));
    }
    for options in [&["--keeper=off"][..], &["--keeper=off", "--writable"]] {
        place.mount(options);
        assert_eq!(keeper(&place), None, "{options:?}");
        assert!(refusal(&zarrfs(&["restart", mountpoint.to_str().unwrap()]), 1).contains("has no keeper"));
        assert!(place.umount().status.success());
    }
}

/// Aborts the connection of a mount, as an administrator does. `false` where that is not possible.
pub fn abort(device: u64) -> bool {
    let control = Path::new("/sys/fs/fuse/connections");
    if fs::read_dir(control).is_ok_and(|mut entries| entries.next().is_none()) {
        let _ = Command::new("mount").args(["-t", "fusectl", "fusectl", "/sys/fs/fuse/connections"]).output();
    }
    let minor = device & 0xff | device >> 12 & !0xff;
    fs::write(control.join(minor.to_string()).join("abort"), "1").is_ok()
}

#[test]
fn no_process_is_left_whichever_way_a_mount_ends() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mountpoint = place.mountpoint();
    let point = mountpoint.to_str().unwrap();
    let run = |line: &[&str]| {
        let output = Command::new(line[0]).args(&line[1..]).output().unwrap();
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let ways = ["zarrfs", "umount", "umount -l", "fusermount3", "TERM", "abort", "busy", "dead"];
    for way in ways {
        place.mount(&["--keeper"]);
        if !has_keepers(&place) {
            return;
        }
        let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
        let rss = fs::read_to_string(format!("/proc/{keeper}/status")).unwrap();
        let rss = rss.lines().find(|line| line.starts_with("RssAnon")).unwrap().to_owned();
        println!("keeper: {rss}");
        match way {
            "zarrfs" => end(&place, &[daemon, keeper]),
            "umount -l" if is_root() => run(&["umount", "-i", "-l", point]),
            "umount" if is_root() => run(&["umount", "-i", point]),
            "TERM" => signal(daemon, "TERM"),
            "abort" if is_root() && abort(fs::metadata(&mountpoint).unwrap().dev()) => {
                // What a keeper holds is not stale.
                wait_for(|| !is_running(daemon) && !is_running(keeper));
                let _ = zarrfs(&["umount", "--stale", point]);
            }
            "busy" => {
                let file = File::open(place.path("rows")).unwrap();
                run(&["fusermount3", "-u", "-z", point]);
                let mut bytes = [0; 10];
                file.read_exact_at(&mut bytes, 20_000).unwrap();
            }
            "dead" => {
                signal(keeper, "STOP");
                signal(daemon, "KILL");
                run(&["fusermount3", "-u", "-z", point]);
                signal(keeper, "CONT");
            }
            _ => run(&["fusermount3", "-u", point]),
        }
        wait_for(|| !is_running(daemon) && !is_running(keeper));
        assert!(!is_mounted(&mountpoint), "{way}");
    }
}

#[test]
fn restart_changes_to_the_program_on_the_disk() {
    if !can_mount() {
        return;
    }
    let place = place();
    place.copy_program();
    let at = |name: &str| place.folder.path().join(name);
    let mount = Command::new("./zarrfs")
        .args(["mount", "--keeper", "store.zarr", "mnt"])
        .current_dir(place.folder.path())
        .output();
    assert!(mount.unwrap().status.success());
    if !has_keepers(&place) {
        return;
    }
    let point = place.mountpoint();
    let restart = || zarrfs(&["restart", point.to_str().unwrap()]);
    let file = File::open(place.path("rows")).unwrap();
    let read = || {
        let mut bytes = vec![0; 3000];
        file.read_exact_at(&mut bytes, 123_456).unwrap();
        bytes
    };
    let bytes = read();
    let replace = |make: &dyn Fn(&Path)| {
        make(&at("new"));
        fs::rename(at("new"), at("zarrfs")).unwrap();
    };
    let daemon = place.daemon();
    replace(&|path| assert!(Command::new("cp").arg(PROGRAM).arg(path).status().unwrap().success()));
    let output = restart();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let second = place.daemon();
    assert_ne!(second, daemon);
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program(second), at("zarrfs"));
    assert_eq!(read(), bytes);
    // One that does not start.
    replace(&|path| {
        fs::copy("/bin/false", path).unwrap();
    });
    assert!(refusal(&restart(), 1).contains("does not start"));
    assert_eq!(read(), bytes);
    signal(place.daemon(), "KILL");
    assert_eq!(read(), bytes);
    assert_eq!(fs::read(place.path("single")).unwrap(), place.cat("single"));
    let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
    drop(file);
    end(&place, &[daemon, keeper]);
}

/// The next daemon answers before it has opened the files: each is opened at its first request.
#[test]
fn a_restart_with_many_inodes_and_open_files_keeps_them_all() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    let (arrays, handles) = level::pick((300, 50), (10_000, 1000));
    let document = array_document(10, 7, "uint8");
    for array in 0..arrays {
        place.put(&format!("a{array}/zarr.json"), &document);
    }
    place.mount(&["--keeper"]);
    if !has_keepers(&place) {
        return;
    }
    // In processes of their own: a program that this one starts would get copies of the descriptors.
    let script = "import os, sys, time
names = sorted(name for name in os.listdir('mnt') if not name.endswith('.json'))
numbers = {name: os.stat('mnt/' + name).st_ino for name in names}
files = [os.open('mnt/' + name, os.O_RDONLY) for name in names[:int(sys.argv[1])]]
print(len(numbers), flush=True)
sys.stdin.readline()
begun = time.monotonic()
first = os.pread(files[0], 100, 5000)
waited = time.monotonic() - begun
assert first == bytes([7]) * 100
assert all(os.pread(file, 10000, 0) == bytes([7]) * 10000 for file in files)
assert {name: os.stat('mnt/' + name).st_ino for name in names} == numbers
print(f'{len(numbers)} inodes, {len(files)} open files: the first byte after {1000 * waited:.0f} ms, all after {time.monotonic() - begun:.2f} s')";
    let mut program = Command::new("python3");
    program.args(["-c", script, &handles.to_string()]).current_dir(place.folder.path());
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), arrays.to_string());
    let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
    signal(daemon, "KILL");
    writeln!(program.stdin.as_mut().unwrap()).unwrap();
    println!("{}", lines.next().unwrap().unwrap());
    assert!(program.wait().unwrap().success());
    let daemon = next_daemon(&place, daemon);
    end(&place, &[daemon, keeper]);
}

/// A file that becomes an array while it is written is lost with its daemon, and the program learns that. Nothing is left of the array.
#[test]
fn a_long_npy_file_that_loses_its_daemon_is_an_error_and_leaves_nothing() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.mount(&["--keeper", "--create"]);
    if !has_keepers(&place) {
        return;
    }
    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (20971520,), }");
    let whole = [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), header.as_bytes(), &[9; 20 << 20]].concat();
    let script = "import errno, sys
data = sys.stdin.buffer.read()
file = open('mnt/long.npy', 'wb', buffering=0)
for at in range(0, 18 << 20, 1 << 20):
    file.write(data[at:at + (1 << 20)])
print('written', flush=True)
open('go').read()
try:
    file.write(data[18 << 20:])
    file.close()
    print(0)
except OSError as error:
    print(error.errno)
    try:
        file.close()
    except OSError as error:
        assert error.errno == errno.ESTALE, error
with open('mnt/long.npy', 'wb') as file:
    file.write(data)
print('again', flush=True)";
    let go = place.folder.path().join("go");
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let mut program = Command::new("python3");
    program.args(["-c", script]).current_dir(place.folder.path());
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    program.stdin.take().unwrap().write_all(&whole).unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "written");
    let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
    signal(daemon, "KILL");
    let daemon = next_daemon(&place, daemon);
    assert!(!place.path("long").exists() && !place.store().join("long").exists());
    fs::write(&go, "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), libc::ESTALE.to_string());
    assert_eq!(lines.next().unwrap().unwrap(), "again");
    assert!(program.wait().unwrap().success());
    assert!(fs::read(place.path("long")).unwrap() == [9; 20 << 20]);
    end(&place, &[daemon, keeper]);
    let left = fs::read_dir(place.store()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["long", "zarr.json"]);
}
