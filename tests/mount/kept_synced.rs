//! Mounts with `--keep=synced` after the death of a daemon: what was synced is there, and the loss of the rest is an error of each descriptor.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::restarts::{end, has_keepers, keeper, next_daemon};
use crate::support::place::*;

/// EIO.
const LOST: i32 = 5;
const OPTIONS: [&str; 6] = ["--keeper", "--writable", "--keep=synced", "--log-file", "log", "--mkdir"];

/// A process with descriptors of the mount. A test that had them itself would give copies to each program that it starts, which closes them and
/// waits for the daemon.
pub struct Descriptors {
    process: Child,
    lines: BufReader<ChildStdout>,
    commands: ChildStdin,
}

impl Descriptors {
    pub fn new(place: &Place) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/descriptors.py");
        let mut command = Command::new("python3");
        command.arg(script).current_dir(place.folder.path());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let commands = process.stdin.take().unwrap();
        Descriptors { process, lines, commands }
    }

    /// Returns the number of the error, or 0.
    pub fn run(&mut self, line: &str) -> i32 {
        writeln!(self.commands, "{line}").unwrap();
        let mut reply = String::new();
        self.lines.read_line(&mut reply).unwrap();
        reply.trim().parse().unwrap_or_else(|_| panic!("{line}: '{reply}'"))
    }

    pub fn end(self) {
        let Descriptors { mut process, commands, .. } = self;
        drop(commands);
        assert!(process.wait().unwrap().success());
    }
}

fn place() -> Option<Place> {
    if !can_mount() {
        return None;
    }
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    for name in ["a", "b"] {
        place.put(&format!("{name}/zarr.json"), array_document(300, 1, "uint8"));
    }
    let output = place.mount_command(&OPTIONS).current_dir(place.folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    has_keepers(&place).then_some(place)
}

fn kill(place: &Place) {
    let daemon = place.daemon();
    signal(daemon, "KILL");
    next_daemon(place, daemon);
}

fn chunk(place: &Place, key: &str) -> Option<Vec<u8>> {
    fs::read(place.store().join(key)).ok()
}

#[test]
fn a_loss_is_an_error_of_each_descriptor_and_what_was_synced_stays() {
    let Some(place) = place() else { return };
    let mut files = Descriptors::new(&place);
    for line in ["open one mnt/a", "open two mnt/a", "open other mnt/b", "write other 0 100", "fsync other"] {
        assert_eq!(files.run(line), 0, "{line}");
    }
    assert_eq!((files.run("write one 0 100"), files.run("fsync one")), (0, 0));
    // The timer may store what is written just before the kill, on a machine that is slow enough.
    let mut row = 0;
    let lost = loop {
        row += 10;
        assert_eq!(files.run(&format!("write one {} 1000", row * 1000)), 0);
        assert_eq!(fs::read(place.path("a")).unwrap()[row * 1000], 7);
        kill(&place);
        if chunk(&place, &format!("a/c/{}/0", row / 10)).is_none() {
            break row;
        }
        let replies = ["fsync one", "fsync two"].map(|line| files.run(line));
        assert!(replies.iter().all(|&reply| reply == 0 || reply == LOST), "{replies:?}");
    };
    let failures = || fs::read_to_string(place.path("__zarrfs__/last_error")).unwrap();
    wait_for(|| failures().contains("/a\tEIO\trestart of the daemon: a/zarr.json"));
    assert!(!failures().contains("/b"), "{}", failures());
    // A second death before any of them has reported it.
    kill(&place);
    let lines = ["fsync one", "fsync one", "close one", "close two", "fsync other", "close other"];
    assert_eq!(lines.map(|line| files.run(line)), [LOST, 0, 0, LOST, 0, 0]);
    let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
    assert!(log.contains("restart of the daemon of /a: a/zarr.json"), "{log}");
    // The kernel has dropped its pages of the lost bytes.
    wait_for(|| fs::read(place.path("a")).unwrap()[lost * 1000] == 1);
    assert_eq!(fs::read(place.path("a")).unwrap()[..101], [[7; 100].as_slice(), &[1]].concat());
    // What comes after it is as before.
    let again = format!("write one {} 1000", lost * 1000);
    for line in ["open one mnt/a", &again, "fsync one"] {
        assert_eq!(files.run(line), 0, "{line}");
    }
    kill(&place);
    assert_eq!(["fsync one", "close one"].map(|line| files.run(line)), [0, 0], "all of it was synced");
    assert_eq!(fs::read(place.path("a")).unwrap()[lost * 1000], 7);
    files.end();
    end(&place, &[]);
}

#[test]
fn a_planned_restart_loses_nothing_even_if_the_store_takes_nothing() {
    let Some(place) = place() else { return };
    let mut files = Descriptors::new(&place);
    for line in ["open one mnt/a", "open other mnt/b", "write one 0 5000", "write other 5000 5000"] {
        assert_eq!(files.run(line), 0, "{line}");
    }
    // No chunk of `b` can be stored.
    let chunks = place.store().join("b/c");
    fs::write(&chunks, "").unwrap();
    let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
    let restarted = zarrfs(&["restart", place.mountpoint().to_str().unwrap()]);
    assert!(restarted.status.success(), "{}", String::from_utf8_lossy(&restarted.stderr));
    assert_ne!(place.daemon(), daemon);
    fs::remove_file(Path::new(&chunks)).unwrap();
    assert_eq!(chunk(&place, "a/c/0/0").map(|bytes| bytes[..5000] == [7; 5000]), Some(true));
    let read = |name: &str| {
        let mut bytes = vec![0; 10_000];
        File::open(place.path(name)).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(read("b")[5000..], [7; 5000]);
    for line in ["fsync one", "close one", "fsync other", "close other"] {
        let reply = files.run(line);
        assert!(reply == 0, "{line}: {reply}");
    }
    assert_eq!(chunk(&place, "b/c/0/0").map(|bytes| bytes[5000..] == [7; 5000]), Some(true));
    files.end();
    end(&place, &[keeper]);
}
