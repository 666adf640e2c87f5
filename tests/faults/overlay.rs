//! Overlays when things go wrong: the daemon dies, their disk is full, a commit dies. The store below is read-only, and its
//! bytes never change before a commit.
//!
//! `ZARRFS_CRASH_ROUNDS` and `ZARRFS_CRASH_POINTS` as in `crash.rs`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::crash::{die_at, live_and_die};
use crate::power_loss::{cuts, live_until_the_power_fails};
use crate::support::disk::Disk;
use crate::support::faulty::{CHANGES, Faults, KILL, Operation, compiled, next_point};
use crate::support::manifest::Work;
use crate::support::mounted::Mount;
use crate::support::scene::{AS_STORED, Scene};
use crate::support::{Numbers, level, own_process, say, sha256};

const ENOSPC: i32 = 28;

/// A store that is only read, below the folder of an overlay.
struct Overlaid {
    scene: Scene,
    view: Disk,
    folder: TempDir,
    digest: String,
}

/// Returns all files of a folder with their content, as one number.
pub fn digest(folder: &Path) -> String {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let text = |path: &PathBuf| format!("{} {}\n", path.display(), sha256(&fs::read(path).unwrap()));
    sha256(files.iter().map(text).collect::<String>().as_bytes())
}

impl Overlaid {
    fn new(regions: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.zarr");
        fs::create_dir(&store).unwrap();
        let view = Disk::view(&store, "an overlay over a read-only folder")?;
        let scene = Scene::at(view.path(), AS_STORED, regions).with_overlay(&folder.path().join("overlay"));
        view.remount("bind,ro");
        let digest = digest(&store);
        Some(Overlaid { scene, view, folder, digest })
    }

    fn overlay(&self) -> PathBuf {
        self.folder.path().join("overlay")
    }

    fn assert_untouched(&self) {
        assert_eq!(
            digest(&self.folder.path().join("store.zarr")),
            self.digest,
            "the store below has changed"
        );
    }

    fn commit(&self) -> Output {
        zarrfs(&["overlay", "commit"], &self.overlay())
    }

    /// Commits, and compares the store with what was written.
    fn finish(self) {
        self.assert_untouched();
        self.view.remount("bind,rw");
        let committed = self.commit();
        assert!(committed.status.success(), "{committed:?}");
        let mut scene = self.scene.without_overlay();
        scene.check("the store after the commit");
        scene.compare_with_python("the store after a commit");
    }
}

fn zarrfs(words: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zarrfs")).args(words).arg(folder).output().unwrap()
}

#[test]
fn killed_at_random_moments() {
    let rounds: u64 = level::count("ZARRFS_CRASH_ROUNDS", 2, 8);
    let Some(writer) = compiled("mapped_writer.c", &[], "a program with a shared mapping") else { return };
    let Some(mut overlaid) = Overlaid::new(3) else { return };
    let (mut work, mut numbers) = (Work::default(), Numbers(5));
    for round in 0..rounds {
        let Some(done) = live_and_die(&mut overlaid.scene, &writer, &mut numbers) else { return };
        work += done;
        overlaid.scene.check(&format!("round {round} over an overlay"));
    }
    say(format!(
        "overlay: {rounds} kills, {} writes, {} acknowledged syncs of {} bytes",
        work.writes, work.syncs, work.bytes
    ));
    assert!(work.syncs > rounds && work.bytes > 0, "nothing was acknowledged, so nothing was tried");
    overlaid.finish();
}

#[test]
fn killed_at_each_operation() {
    let mut work = Work::default();
    let mut points = Vec::new();
    let Some(mut overlaid) = Overlaid::new(1) else { return };
    // Makes the overlay.
    overlaid.scene.check("before the first kill");
    for operation in CHANGES {
        // The first fdatasync makes the list of changes durable before there is a mount.
        let first = if operation == Operation::Fdatasync { 2 } else { 1 };
        let (mut number, mut tried, mut clean) = (first, 0, 0);
        for life in 1.. {
            let Some(is_clean) = die_at(&mut overlaid.scene, operation, number, life, &mut work) else {
                return;
            };
            if is_clean {
                clean += 1;
                // If nothing was killed yet, these writes may not have reached the operation.
                if tried > 0 || clean == 3 {
                    break;
                }
                continue;
            }
            tried += 1;
            overlaid.scene.check(&format!("{operation:?} {number} over an overlay"));
            number = next_point(number, 1 + 2 * number);
        }
        points.push(format!("{operation:?} {tried}"));
    }
    say(format!("overlay: killed at {}; {} acknowledged syncs", points.join(", "), work.syncs));
    overlaid.finish();
}

/// A commit that is killed anywhere is repeated, and nothing is lost or doubled.
#[test]
fn killed_while_it_commits() {
    let Some(mut overlaid) = Overlaid::new(1) else { return };
    let mut numbers = Numbers(3);
    let mut work = Work::default();
    let mut kills = 0;
    for (number, operation) in
        (1..level::pick(2, 4)).flat_map(|n| CHANGES.map(|operation| (1 + n * n, operation)))
    {
        overlaid.view.remount("bind,ro");
        let never = u32::MAX;
        let Some(true) = die_at(&mut overlaid.scene, operation, never, numbers.next() >> 40, &mut work)
        else {
            return;
        };
        overlaid.view.remount("bind,rw");
        // In the store below in every other round, else in the overlay.
        let killed_in = if number % 2 == 0 { overlaid.view.path().to_owned() } else { overlaid.overlay() };
        let Some(faults) = Faults::new(&killed_in, "a commit that dies") else { return };
        faults.arm(operation, KILL, number, number);
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.envs(faults.environment()).args(["overlay", "commit"]).arg(overlaid.overlay());
        let is_clean = command.output().unwrap().status.success();
        assert_eq!(is_clean, faults.fired() == 0, "{operation:?} {number}");
        kills += u32::from(!is_clean);
        overlaid.scene.check(&format!("a commit killed at {operation:?} {number}"));
        let again = overlaid.commit();
        assert!(again.status.success(), "{operation:?} {number}: {again:?}");
        overlaid.scene.check("the commit after it");
    }
    say(format!("overlay: {kills} commits were killed and repeated"));
    assert!(kills > level::pick(1, 3), "{kills}");
    let mut scene = overlaid.scene.without_overlay();
    scene.check("the store after all commits");
    scene.compare_with_python("the store after all commits");
}

/// The disk of the overlay loses its power; the store below is on another one.
#[test]
fn the_power_fails() {
    if own_process::has_run() {
        return;
    }
    let Some(disk) = Disk::in_file("xfs", "a power cut of an overlay") else { return };
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    let mut scene = Scene::at(store.path(), AS_STORED, 2).with_overlay(&disk.path().join("overlay"));
    let before = digest(store.path());
    scene.check("before the first power cut");
    let Some(faults) = Faults::new(scene.written(), "a power cut of an overlay") else { return };
    let (mut numbers, mut work) = (Numbers(9), Work::default());
    for cut in 0..cuts() {
        let Some(done) = live_until_the_power_fails(&mut scene, &disk, &faults, &mut numbers) else { return };
        work += done;
        scene.check(&format!("overlay, power cut {cut}"));
    }
    say(format!("overlay: {} power cuts, {} acknowledged syncs of {} bytes", cuts(), work.syncs, work.bytes));
    assert!(work.syncs > cuts() && work.bytes > 0, "nothing was acknowledged, so nothing was tried");
    assert_eq!(digest(store.path()), before);
    let committed = zarrfs(&["overlay", "commit"], scene.written());
    assert!(committed.status.success(), "{committed:?}");
    scene.without_overlay().compare_with_python("the store after power cuts and a commit");
}

/// What does not fit stays in memory, as where the store itself is full; once there is room, it is stored.
#[test]
fn a_full_disk() {
    let Some(disk) = Disk::in_memory("size=200k", "an overlay on a full disk") else { return };
    let store = tempfile::Builder::new().suffix(".zarr").tempdir().unwrap();
    let scene = Scene::at(store.path(), AS_STORED, 1).with_overlay(&disk.path().join("overlay"));
    let before = digest(store.path());
    let Some(mount) = Mount::new(scene.store(), scene.options, "an overlay on a full disk") else { return };
    fs::write(disk.path().join("filler"), vec![1; 180 << 10]).unwrap();
    let bytes: Vec<u8> = (0..60 * 70 * 4u32).map(|at| (at * 7 % 251) as u8).collect();
    let file = File::options().write(true).open(mount.path("plain")).unwrap();
    let written = file.write_all_at(&bytes, 0).and_then(|()| file.sync_all());
    assert_eq!(written.unwrap_err().raw_os_error(), Some(ENOSPC));
    assert!(mount.log().contains("No space left"), "{}", mount.log());
    fs::remove_file(disk.path().join("filler")).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    // The first reports an attempt of the timer, if that was made before there was room.
    let _ = file.sync_all();
    file.sync_all().unwrap();
    drop(file);
    mount.unmount();
    let again = Mount::new(scene.store(), scene.options, "an overlay on a full disk").unwrap();
    assert!(fs::read(again.path("plain")).unwrap() == bytes);
    again.unmount();
    assert_eq!(digest(store.path()), before);
}
