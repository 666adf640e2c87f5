//! Sessions that another version of the program is to continue. One that reads the journal goes on. One that does not stores what was written, however
//! long the store is away, and loses nothing.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kept_synced::Descriptors;
use crate::restarts::{end, has_keepers, keeper, next_daemon, some};
use crate::restarts_of_writers::Scene;
use crate::support::level;
use crate::support::place::*;
use crate::systemd::{self, Service};

/// What a journal begins with, but for the number of its format.
const FORMAT: &[u8] = b"zarrfs session ";

/// Makes a program that differs from the one that is tested only in one byte, at this distance from the beginning of a text, wherever it has that.
fn patch_program(path: &Path, text: &[u8], distance: usize, byte: u8) {
    let mut program = Vec::new();
    File::open(PROGRAM).unwrap().read_to_end(&mut program).unwrap();
    let places: Vec<usize> = program
        .windows(text.len())
        .enumerate()
        .filter_map(|(at, part)| (part == text).then_some(at + distance))
        .collect();
    assert!(!places.is_empty(), "the program does not have the text");
    for at in places {
        program[at] = byte;
    }
    // cat(1) writes it: as long as a child of another test has a copy of the descriptor, it cannot be run (ETXTBSY).
    let script = format!("cat >'{}'", path.display());
    let mut cat =
        Command::new("sh").args(["-c", &script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(&program).unwrap();
    assert!(cat.wait().unwrap().success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn place() -> Place {
    let place = Place::new();
    place.put("zarr.json", r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    place.put("a/zarr.json", array_document(20, 1, "uint8"));
    place
}

/// Writes bytes that the store does not take.
fn write_unstorable(place: &Place, files: &mut Descriptors) {
    assert_eq!(files.run("open one mnt/a"), 0);
    // No chunk can be stored.
    fs::write(place.store().join("a/c"), "").unwrap();
    assert_eq!(files.run("write one 3000 5000"), 0);
}

fn is_written(bytes: &[u8]) -> bool {
    bytes[..3000].iter().all(|&byte| byte == 1) && bytes[3000..8000] == [7; 5000]
}

#[test]
fn a_version_that_cannot_read_the_journal_leaves_a_mount_to_the_one_before() {
    if !can_mount() {
        return;
    }
    let place = place();
    place.copy_program();
    let at = |name: &str| place.folder.path().join(name);
    let mut mount = Command::new("./zarrfs");
    mount.args(["mount", "--keeper", "--writable", "store.zarr", "mnt"]).current_dir(place.folder.path());
    assert!(mount.output().unwrap().status.success());
    if !has_keepers(&place) {
        return;
    }
    let (first, mut files) = (place.daemon(), Descriptors::new(&place));
    write_unstorable(&place, &mut files);
    patch_program(&at("other"), FORMAT, FORMAT.len(), b'x');
    fs::rename(at("other"), at("zarrfs")).unwrap();
    let refused = zarrfs(&["restart", place.mountpoint().to_str().unwrap()]);
    assert!(refusal(&refused, 1).contains("does not start"), "{}", String::from_utf8_lossy(&refused.stderr));
    let daemon = place.daemon();
    assert_ne!(daemon, first, "the one before continues in another process");
    assert!(is_written(&fs::read(place.path("a")).unwrap()));
    fs::remove_file(place.store().join("a/c")).unwrap();
    assert_eq!(["fsync one", "close one"].map(|line| files.run(line)), [0, 0]);
    files.end();
    let keeper = keeper(&place).unwrap();
    end(&place, &[daemon, keeper]);
    assert!(is_written(&place.cat("a")));
}

/// Programs that read and write notice no change to another version and back, while what they have written is not stored. The other version is the
/// program that ZARRFS_OTHER_PROGRAM names, such as a former release; without it, one that differs in the text of its version.
#[test]
fn programs_notice_no_change_of_the_version() {
    if !can_mount() {
        return;
    }
    let mut scene = Scene::new();
    scene.place.copy_program();
    let at = |name: &str| scene.place.folder.path().join(name);
    let (program, mountpoint, folder) = (at("zarrfs"), scene.place.mountpoint(), at(""));
    let copy =
        |from: &Path, to: &Path| assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
    copy(&program, &at("this"));
    match std::env::var_os("ZARRFS_OTHER_PROGRAM") {
        Some(other) => copy(Path::new(&other), &at("other")),
        None => {
            let version = env!("CARGO_PKG_VERSION").as_bytes();
            patch_program(&at("other"), version, version.len() - 1, b'x');
        }
    }
    scene.program = program.clone();
    let Some(keeper) = scene.mount() else { return };
    let (versions, place) = (RefCell::new(Vec::new()), &scene.place);
    let daemon = scene.end_daemons(level::pick(4, 20), &|round, daemon| {
        std::thread::sleep(Duration::from_millis(some(0..500, round)));
        copy(&folder.join(["other", "this"][round as usize % 2]), &folder.join("new"));
        fs::rename(folder.join("new"), &program).unwrap();
        let output = Command::new(&program).arg("restart").arg(&mountpoint).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let next = next_daemon(place, daemon);
        let config = fs::read_to_string(place.path("__zarrfs__/config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        versions.borrow_mut().push(config["version"].as_str().unwrap().to_owned());
        next
    });
    let versions = versions.into_inner();
    assert!(versions.windows(2).all(|two| two[0] != two[1]), "{versions:?}");
    scene.finish(&[daemon, keeper]);
}

/// The program was downgraded after a later version had continued the session, and now the daemon dies.
#[test]
fn a_mount_ends_if_no_version_can_read_its_journal() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mounted = zarrfs(&[
        "mount",
        "--keeper",
        "--writable",
        place.store().to_str().unwrap(),
        place.mountpoint().to_str().unwrap(),
    ]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    if !has_keepers(&place) {
        return;
    }
    let (daemon, keeper) = (place.daemon(), keeper(&place).unwrap());
    let mut files = Descriptors::new(&place);
    assert_eq!(["open one mnt/a", "write one 3000 5000"].map(|line| files.run(line)), [0, 0]);
    let is_journal = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:zarrfs-session"))
    };
    let open = fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let journal = open.into_iter().find(is_journal).expect("the keeper has the journal");
    let journal = File::options().write(true).open(journal).unwrap();
    journal.write_all_at(&[FORMAT, b"x"].concat(), 0).unwrap();
    signal(daemon, "KILL");
    wait_for(|| !is_running(keeper));
    assert!(is_written(&place.cat("a")), "what was written is stored before the mount ends");
    assert_ne!(files.run("fsync one"), 0);
    files.end();
    zarrfs(&["umount", "--stale", place.mountpoint().to_str().unwrap()]);
    assert!(!is_mounted(&place.mountpoint()));
}

#[test]
fn a_service_with_another_version_stores_what_was_written_when_the_store_is_back() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut service = Service::new(&place, &["--writable"], &[]);
    service.start();
    if !systemd::is_stored(&mut service) {
        return;
    }
    let mut files = Descriptors::new(&place);
    write_unstorable(&place, &mut files);
    service.ask("signal KILL");
    assert_eq!(service.ask("wait"), "-9");
    // To this version, it is the journal of another one.
    service.ask("spoil zarrfs.journal zarrfs session x");
    let is_held = |service: &mut Service| service.ask("stored").contains("unstored");
    for _ in 0..2 {
        service.ask("start");
        assert_eq!(service.ask("wait"), "1");
        assert!(is_held(&mut service), "what cannot be stored stays");
    }
    // The whole store is away.
    let (store, away) = (place.store(), place.folder.path().join("elsewhere"));
    fs::rename(&store, &away).unwrap();
    service.ask("start");
    assert_eq!(service.ask("wait"), "1");
    assert!(is_held(&mut service));
    fs::rename(&away, &store).unwrap();
    fs::remove_file(store.join("a/c")).unwrap();
    service.ask("start");
    assert_eq!(service.ask("wait"), "1");
    assert_eq!(service.ask("stored"), "");
    assert!(is_written(&place.cat("a")));
    files.end();
    let stale = zarrfs(&["umount", "--stale", place.mountpoint().to_str().unwrap()]);
    assert!(stale.status.success());
    service.start();
    let mut bytes = vec![0; 10_000];
    File::open(place.path("a")).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert!(is_written(&bytes));
    service.ask("signal TERM");
    assert_eq!(service.ask("wait"), "0");
}
