//! The life of a real mount: refusals, who may use it, signals, unmounting, dead daemons.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::support::json_of;
use crate::support::mounted::Mount;
use crate::support::place::*;

#[test]
fn refusals_are_sentences() {
    let Some(place) = Place::mountable_demo() else { return };
    let store = place.store();
    let store = store.to_str().unwrap();
    let at = |mountpoint: &Path| zarrfs(&["mount", store, mountpoint.to_str().unwrap()]);
    let missing = place.folder.path().join("missing");
    assert!(refusal(&at(&missing), 1).contains("does not exist: make it with 'mkdir -p"));
    fs::write(place.folder.path().join("file"), "").unwrap();
    assert!(refusal(&at(&place.folder.path().join("file")), 1).contains("is not a folder"));
    fs::create_dir_all(place.folder.path().join("full/of")).unwrap();
    assert!(refusal(&at(&place.folder.path().join("full")), 1).contains("is not empty"));
    assert!(refusal(&at(&place.store().join("climate")), 1).contains("inside the store"));
    assert!(refusal(&at(place.folder.path()), 1).contains("inside the mount point"));
    let nothing = zarrfs(&["mount", "/nonexistent-store", place.mountpoint().to_str().unwrap()]);
    assert!(refusal(&nothing, 1).contains("/nonexistent-store"));
    assert!(!is_mounted(&place.mountpoint()));
    assert!(refusal(&place.umount(), 1).contains("nothing is mounted"));
    assert!(refusal(&zarrfs(&["umount", "/proc"]), 1).contains("not one of zarrfs"));
    place.mount(&[]);
    assert!(refusal(&at(&place.mountpoint()), 1).contains("is busy"));
}

/// A pipe made the mount wait for a reader, and stay when the caller had gone; a link of somebody else led root anywhere.
#[test]
fn a_log_file_neither_holds_up_a_mount_nor_leads_it_away() {
    let Some(place) = Place::mountable_demo() else { return };
    let at = |name: &str| place.folder.path().join(name);
    let mount = |log: &str| {
        let mut command = Command::new("timeout");
        command.args(["20", PROGRAM, "mount", "--log-level", "trace", "--log-file", log]);
        command.arg(place.store()).arg(place.mountpoint()).stdin(Stdio::null());
        command
    };
    let mount_with = |log: &Path| mount(log.to_str().unwrap()).output().unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink(at("target"), at("link")).unwrap();
    assert!(refusal(&mount_with(&at("pipe")), 1).contains("this pipe has no reader"));
    assert!(refusal(&mount_with(&at("link")), 1).contains("is a symbolic link"));
    assert!(refusal(&mount_with(&place.store()), 1).contains("directory"));
    assert!(!is_mounted(&place.mountpoint()) && !at("target").exists());

    // A program holds the pipe open and reads nothing: the mount goes on.
    let mut reader = File::options().read(true).write(true).open(at("pipe")).unwrap();
    assert!(mount_with(&at("pipe")).status.success());
    for number in 0..2000 {
        let _ = fs::metadata(place.path(&format!("nothing{number}")));
    }
    assert!(fs::read_dir(place.mountpoint()).unwrap().count() > 0);
    assert!(place.umount().status.success());
    let mut some = [0; 1000];
    reader.read_exact(&mut some).unwrap();
    assert!(some.starts_with(b"["));

    let stderr = File::create(at("stderr")).unwrap();
    assert!(mount("/dev/stderr").stderr(stderr).status().unwrap().success());
    assert!(place.umount().status.success());
    assert!(fs::read(at("stderr")).unwrap().starts_with(b"["));
}

/// A daemon that keeps what it inherited keeps a parent waiting at its pipe, and a shell's lock locked.
#[test]
fn a_daemon_keeps_nothing_of_the_process_that_started_it() {
    let Some(place) = Place::mountable_demo() else { return };
    let script = r#"
exec 9>lock
flock 9
"$0" mount store.zarr mnt 8>&1 >/dev/null 2>&1
exec 9>&-
flock --nonblock lock echo free
"#;
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "-ec", script, PROGRAM]).current_dir(place.folder.path());
    // The end of this pipe is the end of all its writers.
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = shell.stdout.take().unwrap();
    let (sender, said) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        let _ = sender.send(text);
    });
    assert!(shell.wait().unwrap().success(), "the daemon holds the lock");
    assert_eq!(said.recv_timeout(PATIENCE).expect("the daemon holds the pipe"), "free\n");
    reader.join().unwrap();
    assert!(place.umount().status.success());
}

#[test]
fn umount_names_the_programs_that_use_it() {
    let Some(place) = Place::mountable_demo() else { return };
    place.mount(&[]);
    let held = File::open(place.path("climate/temperature")).unwrap();
    let sentence = refusal(&place.umount(), 1);
    assert!(sentence.contains(&format!("({})", std::process::id())), "{sentence}");
    assert!(is_mounted(&place.mountpoint()));
    drop(held);
    assert!(place.umount().status.success());
    place.mount(&[]);
    let daemon = place.daemon();
    let mut held = File::open(place.path("small/answer")).unwrap();
    let forced = zarrfs(&["umount", "--force", place.mountpoint().to_str().unwrap()]);
    assert!(forced.status.success() && !is_mounted(&place.mountpoint()));
    let warning = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert!(warning.contains("its daemon exits when programs have closed their files"), "{warning}");
    let mut read = Vec::new();
    held.read_to_end(&mut read).unwrap();
    assert!(read == place.cat("small/answer"), "a program that is inside is still served");
    drop(held);
    wait_for(|| !is_running(daemon));
}

#[test]
fn sigterm_and_sigint_unmount() {
    let Some(place) = Place::mountable_demo() else { return };
    for name in ["TERM", "INT"] {
        let mut child = place.mount_in_foreground(&[]);
        signal(child.id(), name);
        assert!(child.wait().unwrap().success());
        assert!(!is_mounted(&place.mountpoint()));
    }
    let mut child = place.mount_in_foreground(&[]);
    let mut held = File::open(place.path("climate/temperature")).unwrap();
    signal(child.id(), "TERM");
    wait_for(|| !is_mounted(&place.mountpoint()));
    let mut read = Vec::new();
    held.read_to_end(&mut read).unwrap();
    assert!(read == place.cat("climate/temperature"), "a program that is inside is served until it leaves");
    assert!(child.try_wait().unwrap().is_none());
    drop(held);
    assert!(child.wait().unwrap().success());
}

/// A daemon with threads that must wait for the kernel to make room lets its first readers wait, too.
#[test]
fn there_is_room_for_descriptors_before_the_first_read() {
    let Some(place) = Place::mountable_demo() else { return };
    let mut child = place.mount_in_foreground(&[]);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
    assert!(room.trim().parse::<u32>().unwrap() >= 1024, "{room}");
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn sighup_reads_metadata_again() {
    let Some(place) = Place::mountable_demo() else { return };
    let mut child = place.mount_in_foreground(&["--revalidate", "0.5"]);
    assert!(!place.path("late").exists());
    place.put("late/zarr.json", array_document(20, 1, "uint8"));
    signal(child.id(), "HUP");
    signal(child.id(), "USR1");
    wait_for(|| place.path("late").exists());
    signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_dead_daemons_mount_is_cleaned_up() {
    let Some(place) = Place::mountable_demo() else { return };
    place.mount(&["--keeper=off"]);
    let daemon = place.daemon();
    let mountpoint = place.mountpoint();
    let stale = || zarrfs(&["umount", "--stale", mountpoint.to_str().unwrap()]);
    assert!(stale().status.success());
    assert!(is_mounted(&mountpoint), "a living mount is left alone");
    signal(daemon, "KILL");
    wait_for(|| fs::metadata(&mountpoint).is_err_and(|error| error.kind() != ErrorKind::NotFound));
    let refused = place.mount_command(&[]).output().unwrap();
    assert!(refusal(&refused, 1).contains("zarrfs umount --stale"));
    assert!(stale().status.success());
    assert!(!is_mounted(&mountpoint));
    assert!(stale().status.success(), "an empty place is not an error");
    place.mount(&[]);
    assert!(fs::read(place.path("small/answer")).unwrap() == place.cat("small/answer"));
}

/// Returns a command run as a user without rights. Needs root, and setpriv of util-linux.
fn as_nobody(program: &Path) -> Option<Command> {
    if !is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("SKIPPED: needs root and setpriv");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command.stdin(Stdio::null());
    Some(command)
}

#[test]
fn others_see_what_the_store_would_show_them() {
    let Some(place) = Place::mountable_demo() else { return };
    let set = |name: &str, mode: u32| {
        fs::set_permissions(place.store().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("climate/temperature/zarr.json", 0o600);
    set("climate/lat", 0o700);
    set("small", 0o700);
    let can_read = |name: &str| {
        let command = as_nobody(Path::new("cat"));
        command.map(|mut command| command.arg(place.path(name)).output().unwrap().status.success())
    };
    place.mount(&[]);
    if can_read("climate/lon").is_none() {
        return;
    }
    assert_eq!(can_read("climate/lon"), Some(true));
    assert_eq!(can_read("climate/temperature"), Some(false), "its document is private");
    assert_eq!(can_read("climate/temperature.json"), Some(false));
    assert_eq!(can_read("climate/lat"), Some(false), "its folder is private");
    assert_eq!(can_read("small/answer"), Some(false), "its group is private");
    assert_eq!(can_read("__formats__/json/small/answer.json"), Some(false));
    assert!(place.umount().status.success());
    // Above the store: a private folder with a public store in it.
    fs::create_dir(place.folder.path().join("private")).unwrap();
    fs::rename(place.store(), place.folder.path().join("private/store.zarr")).unwrap();
    fs::set_permissions(place.folder.path().join("private"), fs::Permissions::from_mode(0o700)).unwrap();
    let mounted = zarrfs(&[
        "mount",
        place.folder.path().join("private/store.zarr").to_str().unwrap(),
        place.mountpoint().to_str().unwrap(),
    ]);
    assert!(mounted.status.success());
    assert_eq!(can_read("climate/lon"), Some(false));
    assert!(place.umount().status.success());
}

/// Run by root in a mount namespace of its own, where everybody may use /dev/fuse, as on any ordinary system.
const USER_SCRIPT: &str = r#"
set -e
mknod device c 10 229 && chmod 666 device && mount --bind device /dev/fuse
user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
user ./zarrfs mount store.zarr mnt
grep "$PWD/mnt " /proc/self/mountinfo | grep -q ' - fuse.zarrfs store.zarr '
user cat mnt/climate/lon > lon
if ls mnt/climate 2>/dev/null; then echo 'others got in without allow-other'; exit 1; fi
user ./zarrfs umount mnt
user ./zarrfs mount store.zarr mnt
user umount mnt
mkdir roots && ./zarrfs mount store.zarr roots
user ./zarrfs umount roots 2> not-yours && exit 1
grep -q "the user that mounted it" not-yours
./zarrfs umount roots
if grep -q "$PWD/mnt " /proc/self/mountinfo; then echo 'still mounted'; exit 1; fi
user env PATH=/nonexistent ./zarrfs mount store.zarr mnt 2> no-helper && exit 1
grep -q "apt install fuse3" no-helper
mount -t tmpfs none /dev
./zarrfs mount store.zarr mnt 2> no-device && exit 1
grep -q "modprobe fuse" no-device
umount /dev
grep -q '^user_allow_other' /etc/fuse.conf || user ./zarrfs mount --allow-other=on store.zarr mnt 2> sentence || true
"#;

#[test]
fn a_plain_user_mounts_and_unmounts() {
    if !can_mount() || as_nobody(Path::new("true")).is_none() {
        return;
    }
    let place = Place::demo();
    place.copy_program();
    std::os::unix::fs::chown(place.mountpoint(), Some(65534), Some(65534)).unwrap();
    let mut command = Command::new("unshare");
    let script = format!("{LEAVE_OTHER_MOUNTS}{USER_SCRIPT}");
    command.args(["--mount", "--", "sh", "-c", &script]).current_dir(place.folder.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(fs::read(place.folder.path().join("lon")).unwrap() == place.cat("climate/lon"));
    let sentence = fs::read(place.folder.path().join("sentence")).unwrap_or_default();
    assert!(sentence.is_empty() || text(&sentence).contains("user_allow_other"), "{}", text(&sentence));
}

#[test]
fn session_threads_are_by_cores_whatever_a_removed_option_says() {
    let place = Place::demo();
    for options in [&[][..], &["-o", "session_threads=1"], &["--session-threads=30"]] {
        let Some(mount) = Mount::new(&place.store(), options, "session threads") else { return };
        assert_eq!(fs::read(mount.path("climate/temperature")).unwrap().len(), 12 * 180 * 360 * 4);
        let config: serde_json::Value = json_of(mount.path("__zarrfs__/config.json"));
        let configured = config["session-threads"].as_u64().unwrap() as usize;
        assert!((2..=8).contains(&configured), "{options:?}: {configured}");
        // A thread has the name of the thread that started it until it runs and takes its own: a session thread may not have
        // its name yet, and a worker may still have that of a session thread.
        wait_for(|| {
            let tasks = fs::read_dir(format!("/proc/{}/task", mount.pid())).unwrap();
            let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
            let names: BTreeSet<String> = names.filter(|name| name.starts_with("fuser-")).collect();
            assert!(names.len() <= configured, "{options:?}: {names:?}");
            names.len() == configured
        });
        mount.unmount();
    }
}
