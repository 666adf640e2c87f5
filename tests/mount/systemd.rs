//! What a service manager sees: the notify protocol over a real socket, and messages as the journal takes them. The units themselves
//! are verified by scripts/test, and run in a container by scripts/test-systemd.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::place::*;
use crate::support::skip;

struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn new(place: &Place) -> Self {
        let socket = UnixDatagram::bind(place.folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket }
    }

    /// Returns the next message, as lines.
    fn hear(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("the service manager got nothing more");
        String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned).collect()
    }

    fn has_more(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let has_more = self.socket.recv(&mut [0; 16]).is_ok();
        self.socket.set_nonblocking(false).unwrap();
        has_more
    }
}

fn start(place: &Place, options: &[&str]) -> Child {
    let mut command = place.mount_command(options);
    command.env("NOTIFY_SOCKET", place.folder.path().join("notify"));
    command.spawn().unwrap()
}

fn microseconds(message: &[String]) -> Option<u64> {
    message.iter().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC=")?.parse().ok())
}

#[test]
fn readiness_is_exact_and_the_end_is_announced() {
    let Some(place) = Place::mountable_demo() else { return };
    let manager = Manager::new(&place);
    let mut child = start(&place, &["--foreground", "--tune", "stop-deadline=20"]);
    let ready = manager.hear();
    // The first request after READY works.
    let answer = fs::read(place.path("small/answer")).unwrap();
    assert_eq!(ready[0], "READY=1");
    assert_eq!(ready[1], format!("STATUS=Serving {}", place.store().display()));
    assert_eq!(ready.len(), 2, "the process that was started is the daemon: {ready:?}");
    assert!(answer == place.cat("small/answer"));
    let held = File::open(place.path("climate/lat")).unwrap();
    assert!(!manager.has_more());
    signal(child.id(), "TERM");
    assert_eq!(manager.hear(), ["STOPPING=1", "STATUS=Stopping"]);
    // Again and again, since it is not known how long the user stays.
    for _ in 0..2 {
        let news = manager.hear();
        assert!(news[0].starts_with("STATUS=Stopping: 1 files open, 0 bytes"), "{news:?}");
        assert!(microseconds(&news).is_some_and(|time| time > 20_000_000), "{news:?}");
    }
    drop(held);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_mount_that_is_taken_away_ends_in_order_too() {
    let Some(place) = Place::mountable_demo() else { return };
    let manager = Manager::new(&place);
    let mut child = start(&place, &["--foreground"]);
    assert_eq!(manager.hear()[0], "READY=1");
    assert!(place.umount().status.success());
    assert_eq!(manager.hear()[0], "STOPPING=1");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_daemon_says_which_process_it_is() {
    let Some(place) = Place::mountable_demo() else { return };
    let manager = Manager::new(&place);
    assert!(start(&place, &[]).wait().unwrap().success());
    assert_eq!(manager.hear().last(), Some(&format!("MAINPID={}", place.daemon())));
    assert!(place.umount().status.success());
}

/// A service with a manager that stores descriptors.
pub struct Service {
    manager: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Service {
    pub fn new(place: &Place, options: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::at(place.store().to_str().unwrap(), place, options, variables)
    }

    /// One that mounts something else than the store of the place.
    pub fn at(location: &str, place: &Place, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/manager.py");
        let name = format!("zarrfs-test-{}", place.folder.path().file_name().unwrap().display());
        let mut command = Command::new("python3");
        command.arg(script).arg(name).arg(PROGRAM).args(["mount", "--foreground"]).args(options);
        command.arg(location).arg(place.mountpoint());
        command.env("FDSTORE", "100").envs(variables.iter().copied());
        let mut manager = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, replies) = (manager.stdin.take().unwrap(), manager.stdout.take().unwrap());
        Service { manager, commands, replies: BufReader::new(replies) }
    }

    /// Has the manager carry out a command. Returns its reply.
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        let mut reply = String::new();
        self.replies.read_line(&mut reply).unwrap();
        reply.trim_end().to_owned()
    }

    pub fn start(&mut self) {
        self.ask("start");
        self.ask("hear READY=1");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // With it go the descriptors, and with them a mount without a daemon.
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}

/// Whether the kernel can continue a session of this service, which has started.
pub fn is_stored(service: &mut Service) -> bool {
    let has = !service.ask("stored").is_empty();
    if !has {
        skip("a service that goes on without its daemon", "the kernel is older than Linux 6.9", false);
    }
    has
}

#[test]
fn a_service_goes_on_with_what_its_manager_stores() {
    let Some(place) = Place::mountable_demo() else { return };
    let mut service = Service::new(&place, &["-o", "allow-other=off"], &[]);
    service.start();
    if !is_stored(&mut service) {
        return;
    }
    assert_eq!(service.ask("stored"), "zarrfs.deaths zarrfs.device zarrfs.journal zarrfs.mark");
    let expected = place.cat("climate/temperature");
    let mut file = File::open(place.path("climate/temperature")).unwrap();
    let mut read = vec![0; 1000];
    file.read_exact(&mut read).unwrap();
    let stale = |is_mounted: bool| {
        let output = zarrfs(&["umount", "--stale", place.mountpoint().to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(self::is_mounted(&place.mountpoint()), is_mounted);
    };
    // A crash, and a planned restart.
    for (signal, end) in [("KILL", "-9"), ("USR2", "0"), ("KILL", "-9")] {
        let before = place.daemon();
        service.ask(&format!("signal {signal}"));
        assert_eq!(service.ask("wait"), end, "{signal}");
        stale(true);
        service.start();
        let mut part = vec![0; 1000];
        file.read_exact(&mut part).unwrap();
        read.extend(part);
        assert_ne!(place.daemon(), before);
    }
    assert!(read == expected[..read.len()]);
    drop(file);
    service.ask("signal TERM");
    assert_eq!(service.ask("wait"), "0");
    assert_eq!(service.ask("stored"), "");
    assert!(!is_mounted(&place.mountpoint()));
}

/// What was written, and not stored, is in the store of the manager, too.
#[test]
fn a_service_loses_nothing_that_was_written() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("a/zarr.json", array_document(20, 7, "uint8"));
    let mut service = Service::new(&place, &["--writable"], &[]);
    service.start();
    if !is_stored(&mut service) {
        return;
    }
    let mut file = File::options().read(true).write(true).open(place.path("a")).unwrap();
    let mut expected = vec![7; 20_000];
    for (round, (signal, end)) in [("KILL", "-9"), ("USR2", "0"), ("KILL", "-9")].into_iter().enumerate() {
        let part = &mut expected[round * 1000..][..1000];
        part.fill(round as u8);
        file.write_all(part).unwrap();
        service.ask(&format!("signal {signal}"));
        assert_eq!(service.ask("wait"), end, "{signal}");
        // A planned restart stores before.
        assert_eq!(place.store().join("a/c/0/0").exists(), round > 0);
        service.start();
    }
    assert!(fs::read(place.path("a")).unwrap() == expected);
    file.sync_all().unwrap();
    drop(file);
    service.ask("signal TERM");
    assert_eq!(service.ask("wait"), "0");
    assert_eq!(service.ask("stored"), "");
    assert!(place.cat("a") == expected);
}

#[test]
fn a_session_that_cannot_be_continued_is_made_anew() {
    let Some(place) = Place::mountable_demo() else { return };
    let mut service = Service::new(&place, &[], &[]);
    service.start();
    if !is_stored(&mut service) {
        return;
    }
    let file = File::open(place.path("climate/temperature")).unwrap();
    service.ask("spoil zarrfs.journal zarrfs session 0");
    service.ask("signal KILL");
    service.ask("wait");
    service.ask("start");
    assert_eq!(service.ask("wait"), "1");
    assert_eq!(service.ask("stored"), "");
    let read = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 10], 0);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    drop(file);
    let output = zarrfs(&["umount", "--stale", place.mountpoint().to_str().unwrap()]);
    assert!(output.status.success() && !is_mounted(&place.mountpoint()));
    service.start();
    assert_eq!(fs::read(place.path("small/answer")).unwrap(), place.cat("small/answer"));
    // It was unmounted while there was no daemon.
    service.ask("signal KILL");
    service.ask("wait");
    let mountpoint = place.mountpoint();
    let unmount = Command::new("fusermount3").args(["-u", "-z"]).arg(&mountpoint).status();
    assert!(unmount.unwrap().success());
    service.ask("start");
    assert_eq!(service.ask("wait"), "1", "it stores what the session has");
    assert_eq!(service.ask("stored"), "");
    service.start();
    assert_eq!(fs::read(place.path("small/answer")).unwrap(), place.cat("small/answer"));
    assert!(place.umount().status.success());
    assert_eq!(service.ask("wait"), "0");
    assert_eq!(service.ask("stored"), "");
}

#[test]
fn the_watchdog_hears_of_a_mount_that_replies() {
    let Some(place) = Place::mountable_demo() else { return };
    let mut service = Service::new(&place, &[], &[("WATCHDOG_USEC", "400000"), ("FDSTORE", "0")]);
    service.start();
    assert_eq!(service.ask("stored"), "", "the manager has no store");
    for _ in 0..3 {
        service.ask("hear WATCHDOG=1");
    }
    assert!(fs::metadata(place.path("__zarrfs__")).unwrap().is_dir());
    service.ask("hear WATCHDOG=1");
    // Without a session that is stored, a planned restart unmounts.
    service.ask("signal USR2");
    assert_eq!(service.ask("wait"), "0");
    assert!(!is_mounted(&place.mountpoint()));
}

/// Returns the units, of the system and of a user.
fn units() -> [String; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    ["zarrfs@.service", "user/zarrfs@.service"].map(|name| fs::read_to_string(folder.join(name)).unwrap())
}

/// Returns the last value of a setting.
fn setting<'a>(unit: &'a str, name: &str) -> Option<&'a str> {
    unit.lines().rev().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the command that a unit starts, as systemd makes it of the three variables.
fn start_of_unit(unit: &str, place: &Place, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    for word in setting(unit, "ExecStart").unwrap().split(' ').skip(1) {
        match word {
            "$OPTIONS" => command.args(options),
            "${STORE}" => command.arg(place.store()),
            "${MOUNTPOINT}" => command.arg(place.mountpoint()),
            _ => command.arg(word),
        };
    }
    command.stdin(Stdio::null());
    command
}

/// The bug: a store that did not exist yet got only five starts in 2.5 s, and a mistyped option got as many.
#[test]
fn the_units_wait_for_a_store_and_not_for_another_command_line() {
    if !can_mount() {
        return;
    }
    for unit in units() {
        // A service manager that gives up drops what a dead daemon has not stored.
        assert_eq!(setting(&unit, "StartLimitIntervalSec"), Some("0"));
        // systemd before 254 does not know RestartSteps and has one pause.
        assert_eq!(setting(&unit, "RestartSec"), Some("1s"));
        assert_eq!(setting(&unit, "RestartPreventExitStatus"), Some("2"));
        assert_eq!(setting(&unit, "Restart"), Some("on-failure"));

        let place = Place::new();
        let fails = |options: &[&str], code| {
            let output = start_of_unit(&unit, &place, options).output().unwrap();
            refusal(&output, code)
        };
        fs::remove_dir(place.mountpoint()).unwrap();
        assert!(fails(&[], 1).contains("no such folder or zip archive"));
        assert!(!place.mountpoint().exists(), "a mount that failed leaves no folder");
        assert!(fails(&["--cache-sise=1G"], 2).contains("--cache-size"));
        copy_demo(&place.store());
        let mut child = start_of_unit(&unit, &place, &["--cache-size=64M"]).spawn().unwrap();
        wait_for(|| is_mounted(&place.mountpoint()) && fs::metadata(place.path("__zarrfs__/stats")).is_ok());
        signal(child.id(), "TERM");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn nothing_is_said_where_mounting_fails() {
    let Some(place) = Place::mountable() else { return };
    let manager = Manager::new(&place);
    let mut command = place.mount_command(&["--foreground"]);
    command.env("NOTIFY_SOCKET", place.folder.path().join("notify"));
    assert!(!command.stderr(Stdio::null()).status().unwrap().success());
    assert!(!manager.has_more());
    // A manager that has gone does not keep a user from mounting.
    let place = Place::demo();
    let mut child = start(&place, &["--foreground"]);
    wait_for(|| is_mounted(&place.mountpoint()));
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn failures_reach_the_journal_once_with_priority_array_range_and_reason() {
    let Some(place) = Place::mountable() else { return };
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("t\u{1}<0>/zarr.json", array_document(20, 7, "uint8"));
    place.put("t\u{1}<0>/c/1/0", "too short");
    let mut log = tempfile::tempfile().unwrap();
    let about = log.metadata().unwrap();
    let mut command = place.mount_command(&["--foreground"]);
    command.env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino())).env_remove("RUST_LOG");
    let mut child = command.stderr(log.try_clone().unwrap()).spawn().unwrap();
    wait_for(|| is_mounted(&place.mountpoint()) && fs::metadata(place.path("__zarrfs__/stats")).is_ok());
    let file = File::open(place.path("t\u{1}<0>")).unwrap();
    let read = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 100], 12_288);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(file);
    signal(child.id(), "USR1");
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("read of")).collect();
    let [line] = lines[..] else { panic!("{text}") };
    assert!(
        line.starts_with("<3>read of ") && line.contains(" at ") && line.contains("/t\\x01<0>: "),
        "{line}"
    );
    assert!(line.contains("c/1/0"), "{line}");
}
