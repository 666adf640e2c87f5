//! Real mounts of the built program. Skipped where /dev/fuse is missing, which is a failure in CI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "mount")]

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_zarrfs");
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether mounting is possible at all.
fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists();
    assert!(can || std::env::var_os("CI").is_none(), "/dev/fuse is needed");
    if !can {
        eprintln!("SKIPPED: /dev/fuse is missing");
    }
    can
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn zarrfs(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// What the program says on standard error, having failed with this exit code.
fn refusal(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

/// A folder with a store and a mount point, unmounted in the end whatever happens.
struct Place {
    folder: TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_mounted(&self.mountpoint()) {
            let mountpoint = self.mountpoint();
            let _ = Command::new(PROGRAM).arg("umount").arg("--force").arg(&mountpoint).output();
            if is_mounted(&mountpoint) {
                let _ = Command::new("fusermount3").arg("-uz").arg(&mountpoint).output();
            }
        }
    }
}

fn is_mounted(mountpoint: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == mountpoint.to_str())
}

impl Place {
    /// With an empty mount point and no store.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        Place { folder }
    }

    /// With the sample hierarchy.
    fn demo() -> Self {
        let place = Place::new();
        let made = zarrfs(&["demo", place.store().to_str().unwrap()]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        place
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store.zarr")
    }

    fn mountpoint(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mountpoint().join(name)
    }

    fn mount_command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("mount").args(options).arg(self.store()).arg(self.mountpoint()).stdin(Stdio::null());
        command
    }

    fn mount(&self, options: &[&str]) {
        let output = self.mount_command(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// In the foreground, once it answers.
    fn mount_in_foreground(&self, options: &[&str]) -> Child {
        let mut options = options.to_vec();
        options.push("--foreground");
        let child = self.mount_command(&options).spawn().unwrap();
        wait_for(|| is_mounted(&self.mountpoint()) && fs::metadata(self.path("__zarrfs__/stats")).is_ok());
        child
    }

    fn umount(&self) -> Output {
        zarrfs(&["umount", self.mountpoint().to_str().unwrap()])
    }

    fn put(&self, key: &str, content: impl AsRef<[u8]>) {
        let path = self.store().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// What an array's bytes are without a mount.
    fn cat(&self, array: &str) -> Vec<u8> {
        let output = zarrfs(&["cat", self.store().to_str().unwrap(), array]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn daemon(&self) -> u32 {
        let config = fs::read_to_string(self.path("__zarrfs__/config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        config["pid"].as_u64().unwrap().try_into().unwrap()
    }
}

fn wait_for(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "it takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_running(pid: u32) -> bool {
    // A zombie has ended.
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

fn array_document(rows: u64, fill: u8, data_type: &str) -> String {
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[{rows},1000],"data_type":"{data_type}","fill_value":{fill},
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[10,1000]}}}},
        "chunk_key_encoding":{{"name":"default"}},"codecs":["bytes"],"attributes":{{}}}}"#
    )
}

/// Files of the demonstration whose bytes the mount must serve.
const ARRAYS: [&str; 6] = [
    "climate/temperature",
    "microscope/cells",
    "small/answer",
    "small/fortran_order",
    "version_2/matrix",
    "version_2/events",
];

#[test]
fn the_mount_answers_when_the_command_returns() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
    place.mount(&[]);
    let root = fs::metadata(place.mountpoint()).unwrap();
    assert_eq!(root.nlink(), 1);
    for array in ARRAYS {
        let wanted = place.cat(array);
        let metadata = fs::metadata(place.path(array)).unwrap();
        assert_eq!(metadata.len(), wanted.len() as u64);
        assert_eq!(metadata.blocks(), metadata.len().div_ceil(512));
        assert_eq!(metadata.mode() & 0o7333, 0, "neither writable nor executable");
        assert!(fs::read(place.path(array)).unwrap() == wanted, "{array}");
        let sidecar = fs::read(place.path(&format!("{array}.json"))).unwrap();
        let sidecar: serde_json::Value = serde_json::from_slice(&sidecar).unwrap();
        assert_eq!(sidecar["nbytes"], wanted.len());
    }
    for entry in fs::read_dir(place.path("climate")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), entry.metadata().unwrap().ino());
    }
    let daemon = place.daemon();
    let mountpoint = place.mountpoint();
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = text.lines().find(|line| line.split(' ').nth(4) == mountpoint.to_str()).unwrap();
    assert!(line.contains(" - fuse.zarrfs "), "{line}");
    let output = place.umount();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!is_mounted(&mountpoint));
    assert!(!is_running(daemon), "umount returns when the daemon has gone");
}

#[test]
fn dd_and_cmp_read_it() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
    place.mount(&[]);
    let wanted = place.folder.path().join("wanted");
    fs::write(&wanted, place.cat("climate/temperature")).unwrap();
    let file = place.path("climate/temperature");
    assert!(Command::new("cmp").arg(&file).arg(&wanted).status().unwrap().success());
    for block in ["bs=1M", "bs=4k", "bs=777", "bs=3M"] {
        let copied = place.folder.path().join("copied");
        let arguments =
            [format!("if={}", file.display()), format!("of={}", copied.display()), block.to_owned()];
        let output = Command::new("dd").args(arguments).output().unwrap();
        assert!(output.status.success());
        assert!(fs::read(&copied).unwrap() == fs::read(&wanted).unwrap(), "{block}");
    }
    let sizes = Command::new("stat").args(["-f", "-c", "%T %b %S"]).arg(&file).output().unwrap();
    assert!(
        !String::from_utf8_lossy(&sizes.stdout).contains(" 0 "),
        "statfs answers for the store's filesystem"
    );
}

#[test]
fn many_readers_at_random_places() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
    // With a cache of a few chunks, and with all of it.
    for options in [&["--cache-size", "1M"][..], &[], &["--direct-io"]] {
        place.mount(options);
        let wanted = place.cat("microscope/cells");
        std::thread::scope(|scope| {
            for reader in 0..8u64 {
                let (wanted, path) = (&wanted, place.path("microscope/cells"));
                scope.spawn(move || {
                    let file = File::open(path).unwrap();
                    let mut state = reader + 1;
                    for _ in 0..100 {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let offset = (state >> 20) as usize % wanted.len();
                        let length = ((state >> 8) as usize % 70_000).min(wanted.len() - offset);
                        let mut read = vec![0; length];
                        file.read_exact_at(&mut read, offset as u64).unwrap();
                        assert!(read == wanted[offset..offset + length], "{length} bytes at {offset}");
                    }
                });
            }
        });
        assert!(place.umount().status.success());
    }
}

/// Prints the file's bytes as it sees them through a mapping; its argument says of which kind.
const MAPPING_PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return 1;
    char *p = mmap(0, st.st_size, PROT_READ, argv[2][0] == 's' ? MAP_SHARED : MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return 2;
    /* Backwards first, so that it is not a sequential read. */
    unsigned long sum = 0;
    for (long i = st.st_size - 1; i >= 0; i -= 4096) sum += p[i];
    return fwrite(p, 1, st.st_size, stdout) == (size_t)st.st_size && sum != 12345 ? 0 : 3;
}
"#;

#[test]
fn mappings_shared_and_private() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
    let source = place.folder.path().join("map.c");
    let program = place.folder.path().join("map");
    fs::write(&source, MAPPING_PROGRAM).unwrap();
    let compiled = Command::new("cc").arg("-o").args([&program, &source]).status();
    if compiled.is_err() {
        assert!(std::env::var_os("CI").is_none(), "cc is needed");
        eprintln!("SKIPPED: cc is missing");
        return;
    }
    for options in [&[][..], &["--direct-io"]] {
        place.mount(options);
        for array in ["climate/temperature", "version_2/matrix"] {
            for kind in ["shared", "private"] {
                let output = Command::new(&program).arg(place.path(array)).arg(kind).output().unwrap();
                assert_eq!(output.status.code(), Some(0), "{array} {kind} {options:?}");
                assert!(output.stdout == place.cat(array), "{array} {kind} {options:?}");
            }
        }
        assert!(place.umount().status.success());
    }
}

#[test]
fn nothing_can_be_changed() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
    place.mount(&[]);
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let file = place.path("climate/temperature");
    assert_eq!(errno(File::options().write(true).open(&file).map(drop)), Some(30), "EROFS");
    assert_eq!(errno(File::create(place.path("new")).map(drop)), Some(30));
    assert_eq!(errno(fs::create_dir(place.path("new"))), Some(30));
    assert_eq!(errno(fs::remove_file(&file)), Some(30));
    assert_eq!(errno(fs::rename(&file, place.path("other"))), Some(30));
    assert_eq!(errno(fs::set_permissions(&file, fs::Permissions::from_mode(0o777))), Some(30));
}

#[test]
fn an_array_that_cannot_be_served_fails_alone() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
    place.put("small/odd/zarr.json", array_document(10, 0, "uint8").replace("\"bytes\"", "\"squeeze\""));
    place.put("small/cut/zarr.json", "{");
    place.mount(&[]);
    let names: Vec<_> = fs::read_dir(place.path("small")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.contains(&"odd".into()) && names.contains(&"cut.json".into()), "{names:?}");
    let errno = |name: &str| File::open(place.path(name)).unwrap_err().raw_os_error();
    assert_eq!(errno("small/odd"), Some(95), "EOPNOTSUPP");
    assert_eq!(errno("small/cut"), Some(5), "EIO");
    assert!(fs::read_to_string(place.path("small/odd.json")).unwrap().contains("squeeze"));
    assert!(fs::read(place.path("small/answer")).unwrap() == place.cat("small/answer"));
}

#[test]
fn what_others_do_to_the_store_is_seen_at_open() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    place.put("t/zarr.json", array_document(20, 1, "uint8"));
    // The kernel may believe what it knows for a long time: only open(2) can tell it.
    place.mount(&["--revalidate", "600"]);
    let path = place.path("t");
    let inode = fs::metadata(&path).unwrap().ino();
    assert!(fs::read(&path).unwrap() == [1; 20_000]);
    place.put("t/c/0/0", [7; 10_000]);
    let seen = fs::read(&path).unwrap();
    assert!(seen[..10_000] == [7; 10_000] && seen[10_000..] == [1; 10_000], "a new chunk");
    place.put("t/c/0/0", [8; 10_000]);
    assert!(fs::read(&path).unwrap()[..10_000] == [8; 10_000], "a changed chunk");
    let mut held = File::open(&path).unwrap();
    place.put("t/zarr.json", array_document(30, 1, "uint8"));
    let seen = fs::read(&path).unwrap();
    assert_eq!(seen.len(), 30_000, "it has grown");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "in place");
    let mut tail = Vec::new();
    held.read_to_end(&mut tail).unwrap();
    assert!(tail == seen, "also for who had it open");
    place.put("t/zarr.json", array_document(30, 3, "int8"));
    let seen = fs::read(&path).unwrap();
    assert!(seen[10_000..] == [3; 20_000], "another array");
    assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
}

#[test]
fn refusals_are_sentences() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
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

#[test]
fn umount_names_who_uses_it() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
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
    let mut read = Vec::new();
    held.read_to_end(&mut read).unwrap();
    assert!(read == place.cat("small/answer"), "who is inside is still served");
    drop(held);
    wait_for(|| !is_running(daemon));
}

#[test]
fn sigterm_and_sigint_unmount() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
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
    assert!(read == place.cat("climate/temperature"), "who is inside is served until he leaves");
    assert!(child.try_wait().unwrap().is_none());
    drop(held);
    assert!(child.wait().unwrap().success());
}

#[test]
fn sighup_reads_metadata_again() {
    if !can_mount() {
        return;
    }
    let place = Place::demo();
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
    if !can_mount() {
        return;
    }
    let place = Place::demo();
    place.mount(&[]);
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
    assert!(stale().status.success(), "nothing there is no error");
    place.mount(&[]);
    assert!(fs::read(place.path("small/answer")).unwrap() == place.cat("small/answer"));
}

#[test]
fn a_folder_of_many_arrays_lists_quickly() {
    if !can_mount() {
        return;
    }
    const ARRAYS: usize = 2000;
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    for number in 0..ARRAYS {
        place.put(&format!("a{number:05}/zarr.json"), array_document(20, 1, "uint8"));
    }
    place.mount(&[]);
    let started = Instant::now();
    let mut sizes = 0;
    for entry in fs::read_dir(place.mountpoint()).unwrap() {
        sizes += entry.unwrap().metadata().unwrap().len();
    }
    assert!(sizes > 20_000 * ARRAYS as u64);
    eprintln!("{ARRAYS} arrays listed with attributes in {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// A command run as a user without rights. Needs root, and setpriv of util-linux.
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
    if !can_mount() {
        return;
    }
    let place = Place::demo();
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
grep -q ' - fuse.zarrfs store.zarr ' /proc/self/mountinfo
user cat mnt/climate/lon > lon
if ls mnt/climate 2>/dev/null; then echo 'others got in without allow-other'; exit 1; fi
user ./zarrfs umount mnt
if grep -q fuse.zarrfs /proc/self/mountinfo; then echo 'still mounted'; exit 1; fi
grep -q '^user_allow_other' /etc/fuse.conf || user ./zarrfs mount --allow-other=on store.zarr mnt 2> sentence || true
"#;

#[test]
fn a_plain_user_mounts_and_unmounts() {
    if !can_mount() || as_nobody(Path::new("true")).is_none() {
        return;
    }
    let place = Place::demo();
    fs::copy(PROGRAM, place.folder.path().join("zarrfs")).unwrap();
    std::os::unix::fs::chown(place.mountpoint(), Some(65534), Some(65534)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", USER_SCRIPT]).current_dir(place.folder.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(fs::read(place.folder.path().join("lon")).unwrap() == place.cat("climate/lon"));
    let sentence = fs::read(place.folder.path().join("sentence")).unwrap_or_default();
    assert!(sentence.is_empty() || text(&sentence).contains("user_allow_other"), "{}", text(&sentence));
}
