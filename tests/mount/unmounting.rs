//! The end of a mount that was written to: nothing that can be stored is lost, whoever ends it and how; what cannot is named.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::Numbers;
use crate::support::faulty::{Faults, Operation};
use crate::support::fixtures::python;
use crate::support::kinds;
use crate::support::library;
use crate::support::mounted::Mount;
use crate::support::own_process;
use crate::support::place::signal;
use tempfile::TempDir;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// A mount of a store that takes nothing, with something written to it.
struct Stuck {
    store: TempDir,
    faults: Faults,
    mount: Mount,
    written: Vec<u8>,
}

impl Stuck {
    fn new(options: &[&str]) -> Option<Stuck> {
        let store = kinds::store();
        let faults = Faults::new(store.path(), "a stuck mount")?;
        let mount = Mount::with_environment(store.path(), options, &faults.environment(), "a stuck mount")?;
        let file = open(&mount.path("plain"));
        let written: Vec<u8> = (0..file.metadata().unwrap().len()).map(|at| at as u8 | 1).collect();
        faults.arm(Operation::Rename, libc::ENOSPC, 1, u32::MAX);
        file.write_all_at(&written, 0).unwrap();
        assert!(file.sync_all().is_err());
        Some(Stuck { store, faults, mount, written })
    }

    fn assert_lost(mut self) {
        assert_eq!(self.mount.end().code(), Some(1), "{}", self.mount.log());
        let log = self.mount.log();
        for key in ["plain/c/0/0", "plain/c/3/2"] {
            assert!(log.lines().any(|line| line.contains("LOST") && line.contains(key)), "{key}: {log}");
        }
        assert!(!self.mount.is_mounted());
    }

    fn assert_stored(mut self) {
        assert!(self.mount.end().success(), "{}", self.mount.log());
        assert!(!self.mount.log().contains("LOST"));
        assert!(library::stored(self.store.path(), "plain") == self.written);
        assert!(!self.mount.is_mounted());
    }
}

const SHORT: &[&str] = &["-o", "writable,tune=stop-deadline=1"];
const LONG: &[&str] = &["-o", "writable,tune=stop-deadline=20"];

#[test]
fn umount_refuses_and_force_goes_through() {
    if own_process::has_run() {
        return;
    }
    let Some(stuck) = Stuck::new(SHORT) else { return };
    let refused = stuck.mount.umount(&[]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("not unmounted") && text.contains("plain/c/0/0") && text.contains("No space"),
        "{text}"
    );
    assert!(text.lines().any(|line| line.starts_with("Fix the cause")), "{text}");
    // The reason is the array's, and names no other chunk than the one of its line.
    for line in text.lines().filter(|line| line.contains('[')) {
        assert_eq!(line.matches("plain/c/").count(), 1, "{text}");
    }
    assert!(stuck.mount.is_mounted());
    assert!(fs::read(stuck.mount.path("plain")).unwrap() == stuck.written);
    let forced = stuck.mount.umount(&["--force"]);
    let text = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert_eq!(forced.status.code(), Some(1), "{text}");
    // On a busy machine, the command has its list before the daemon gives up.
    let has_given_up = text.contains("could not be stored") || text.contains("were not stored by then");
    assert!(has_given_up && text.contains("plain/c/0/0"), "{text}");
    stuck.assert_lost();
}

/// The daemon goes on trying, and the command says what is not stored and until when.
#[test]
fn force_names_what_is_not_stored() {
    if own_process::has_run() {
        return;
    }
    let Some(stuck) = Stuck::new(LONG) else { return };
    let forced = stuck.mount.umount(&["--force"]);
    let text = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert_eq!(forced.status.code(), Some(1), "{text}");
    assert!(!stuck.mount.is_mounted());
    let daemon = format!("(process {}) tries to store them until 20", stuck.mount.pid());
    assert!(text.contains("plain/c/0/0") && text.contains(&daemon), "{text}");
    stuck.faults.clear();
    stuck.assert_stored();
}

/// Such a daemon cannot be asked what it has not stored.
#[test]
fn force_detaches_a_daemon_that_does_not_respond() {
    let store = kinds::store();
    let Some(mut mount) = Mount::new(store.path(), &["-o", "writable"], "a stopped daemon") else { return };
    signal(mount.pid(), "STOP");
    let forced = mount.umount(&["--force"]);
    signal(mount.pid(), "CONT");
    let text = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert_eq!(forced.status.code(), Some(1), "{text}");
    assert!(text.contains("is detached, but its daemon does not respond"), "{text}");
    assert!(!mount.is_mounted());
    assert!(mount.end().success(), "{}", mount.log());
}

#[test]
fn sigterm_tries_until_its_deadline() {
    if own_process::has_run() {
        return;
    }
    let Some(stuck) = Stuck::new(SHORT) else { return };
    signal(stuck.mount.pid(), "TERM");
    stuck.assert_lost();
    let Some(stuck) = Stuck::new(LONG) else { return };
    signal(stuck.mount.pid(), "TERM");
    std::thread::sleep(Duration::from_millis(700));
    stuck.faults.clear();
    stuck.assert_stored();
}

/// umount(8) knows of no daemon: that one tries by itself.
#[test]
fn after_umount_8_the_daemon_stores() {
    if own_process::has_run() {
        return;
    }
    let unmount = |stuck: &Stuck| {
        assert!(Command::new("umount").arg(stuck.mount.point()).status().unwrap().success());
        assert!(!stuck.mount.is_mounted());
    };
    let Some(stuck) = Stuck::new(SHORT) else { return };
    unmount(&stuck);
    stuck.assert_lost();
    let Some(stuck) = Stuck::new(LONG) else { return };
    unmount(&stuck);
    stuck.faults.clear();
    stuck.assert_stored();
}

/// `zarrfs umount` waits for a file that is still open for a moment, and stores what is written to it until then.
#[test]
fn what_is_written_while_umount_waits_is_stored() {
    if own_process::has_run() {
        return;
    }
    let store = kinds::store();
    let Some(mount) = Mount::new(store.path(), &["-o", "writable"], "a late write") else { return };
    let file = open(&mount.path("big"));
    let new = vec![3; file.metadata().unwrap().len() as usize];
    let program = env!("CARGO_BIN_EXE_zarrfs");
    let umount =
        Command::new(program).arg("umount").arg(mount.point()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    file.write_all_at(&new, 0).unwrap();
    drop(file);
    let output = umount.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains("is busy") {
        // It did not wait for so long.
        mount.unmount();
    } else {
        assert!(output.status.success(), "{text}");
    }
    assert!(library::stored(store.path(), "big") == new);
}

/// A program that unmounts a stopped daemon gets an error that says so, and does not wait.
#[test]
fn a_daemon_that_does_not_answer() {
    if own_process::has_run() {
        return;
    }
    let store = kinds::store();
    let Some(mount) = Mount::new(store.path(), &["-o", "writable"], "a silent daemon") else { return };
    signal(mount.pid(), "STOP");
    let refused = mount.umount(&[]);
    signal(mount.pid(), "CONT");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && text.contains("does not respond"), "{text}");
    mount.unmount();
}

/// A program that maps a file and writes what the test asks for: its pages are dirty in the kernel, and it calls no msync(2).
struct Mapper {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Mapper {
    fn new(path: &Path) -> Option<Mapper> {
        let python = python("a memory map at the end of a mount")?;
        let script = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(file, 0)
os.close(file)
for line in sys.stdin:
    word, *numbers = line.split()
    if word == 'write':
        start, end, byte = map(int, numbers)
        pages[start:end] = bytes([byte]) * (end - start)
    else:
        del pages
    print('done', flush=True)
";
        let mut child = Command::new(python)
            .args(["-c", script])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Some(Mapper { child, answers })
    }

    fn send(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sigterm_takes_dirty_pages_of_living_programs() {
    if own_process::has_run() {
        return;
    }
    let store = kinds::store();
    let Some(mut mount) = Mount::new(store.path(), &["-o", "writable,tune=stop-deadline=4"], "a memory map")
    else {
        return;
    };
    let Some(mut mapper) = Mapper::new(&mount.path("plain")) else { return };
    mapper.send("write 0 9000 1");
    signal(mount.pid(), "TERM");
    // It is still served, and still there at the deadline.
    std::thread::sleep(Duration::from_millis(800));
    mapper.send("write 5000 12000 2");
    assert!(mount.end().success(), "{}", mount.log());
    let bytes = library::stored(store.path(), "plain");
    assert!(bytes[..5000].iter().all(|byte| *byte == 1) && bytes[5000..12_000].iter().all(|byte| *byte == 2));
    assert!(!mount.is_mounted());
}

/// Programs that write on and on are served until the deadline; every write(2) that succeeded is stored. (A write that was answered
/// behind the last store, right before the end of the process, was lost.)
#[test]
fn sigterm_under_writers_that_do_not_stop() {
    if own_process::has_run() {
        return;
    }
    let store = kinds::store();
    let options = ["-o", "writable,tune=stop-deadline=1:dirty-limit=64K"];
    let Some(mut mount) = Mount::new(store.path(), &options, "writers at the end") else { return };
    let names = ["plain", "big", "sharded", "nested"];
    let written = std::thread::scope(|scope| {
        let write = |name: &'static str| {
            let path = mount.path(name);
            scope.spawn(move || {
                let mut numbers = Numbers(name.len() as u64);
                let file = open(&path);
                // What each byte was last written as, and what the write that failed may have made of it.
                let mut bytes: Vec<Vec<u8>> =
                    fs::read(&path).unwrap().into_iter().map(|byte| vec![byte]).collect();
                let mut count = 0_u64;
                loop {
                    let (offset, length) = numbers.range(bytes.len() as u64);
                    let piece: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
                    let is_written = file.write_all_at(&piece, offset).is_ok();
                    for (byte, value) in bytes[offset as usize..].iter_mut().zip(piece) {
                        if is_written {
                            byte.clear();
                        }
                        byte.push(value);
                    }
                    if !is_written {
                        return (bytes, count);
                    }
                    count += 1;
                }
            })
        };
        let threads: Vec<_> = names.into_iter().map(write).collect();
        std::thread::sleep(Duration::from_millis(200));
        signal(mount.pid(), "TERM");
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(mount.end().success(), "{}", mount.log());
    for (name, (bytes, count)) in names.into_iter().zip(written) {
        let stored = library::stored(store.path(), name);
        let lost = (0..stored.len()).filter(|&at| !bytes[at].contains(&stored[at])).count();
        assert!(count > 10 && lost == 0, "{name}: {lost} bytes of {count} writes are lost");
    }
}

/// The same through a memory map: what a store instruction wrote is stored, until one is answered with SIGBUS. (Pages that were
/// had again after the kernel gave them up outlived the daemon, and accepted writes that were lost.)
#[test]
fn sigterm_under_a_map_that_is_written_to_without_end() {
    if own_process::has_run() {
        return;
    }
    let store = kinds::store();
    let options = ["-o", "writable,tune=stop-deadline=1"];
    let Some(mut mount) = Mount::new(store.path(), &options, "a memory map") else { return };
    let Some(python) = python("a memory map at the end of a mount") else { return };
    let script = "
import mmap, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(file, 0)
os.close(file)
size, n, end = len(pages), 0, time.monotonic() + 30
while time.monotonic() < end:
    pages[n % size] = (n + n // size * 13) % 256
    os.write(1, b'%d\\n' % n)
    n += 1
";
    let mut child = Command::new(python)
        .args(["-c", script])
        .arg(mount.path("big"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = 0_usize;
    let pid = mount.pid();
    for line in lines {
        last = line.unwrap().parse().unwrap();
        if last == 3000 {
            signal(pid, "TERM");
        }
    }
    assert!(!child.wait().unwrap().success(), "the map outlives its daemon");
    assert!(mount.end().success(), "{}", mount.log());
    let stored = library::stored(store.path(), "big");
    let size = stored.len();
    let value = |n: usize| ((n + n / size * 13) % 256) as u8;
    assert!(last > 2 * size, "only {last} bytes were written");
    let lost: Vec<usize> = (last - size + 2..=last).filter(|&n| stored[n % size] != value(n)).collect();
    assert!(lost.is_empty(), "of {last} bytes the last {} are lost", lost.len());
}

/// Pages written after the last close(2) and never synced, and umount(8).
#[test]
fn pages_written_after_the_last_close_are_stored() {
    if own_process::has_run() {
        return;
    }
    let store = kinds::store();
    let Some(mut mount) = Mount::new(store.path(), &["-o", "writable"], "a memory map") else { return };
    let Some(mut mapper) = Mapper::new(&mount.path("sharded")) else { return };
    mapper.send("write 100 15000 7");
    mapper.send("unmap");
    assert!(Command::new("umount").arg(mount.point()).status().unwrap().success());
    assert!(mount.end().success(), "{}", mount.log());
    assert!(library::stored(store.path(), "sharded")[100..15_000].iter().all(|byte| *byte == 7));
}
