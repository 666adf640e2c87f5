//! Commands that make, resize, rename and remove nodes of an overlay, and its commit, killed at every Nth operation, on a full
//! disk, and when the power fails; and what `overlay discard DIR PATH` takes back. The store below is a folder or a zip file; its bytes stay as they are until the commit.
//!
//! `ZARRFS_CRASH_POINTS` as in `crash.rs`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use zarrfs::store::overlay::{Access, OverlayOptions};
use zarrfs::store::{StoreOptions, open_with};

use crate::authoring::{copy, npy_file, state, state_of, store, zarrfs};
use crate::overlay::digest;
use crate::support::disk::Disk;
use crate::support::faulty::{CHANGES, Faults, KILL, Operation, next_point, tries_every_point};
use crate::support::folders::in_memory;
use crate::support::{level, own_process, say};

/// What an overlay has before each command: a node that was made, and one that was removed.
const BEFORE: [&[&str]; 3] =
    [&["import", "FILE", "@", "made", "--chunks", "7"], &["mkgroup", "@", "h"], &["rm", "@", "g", "--yes"]];
const COMMANDS: [&[&str]; 9] = [
    &["create", "@", "new", "--shape", "9,9", "--chunks", "4,4", "--dtype", "int16", "--attr", "n=1"],
    &["import", "FILE", "@", "new", "--chunks", "7", "--codecs", "gzip:1"],
    // In the place of what was removed.
    &["import", "FILE", "@", "g", "--chunks", "7"],
    &["resize", "@", "a", "13,3", "--discard"],
    &["resize", "@", "a", "14,14"],
    &["rm", "@", "a", "--yes"],
    &["rm", "@", "made", "--yes"],
    &["mv", "@", "made", "h/moved"],
    &["mv", "@", "made", "g"],
];
/// Those that are tried over a zip file, by their places.
const OVER_A_ZIP_FILE: [usize; 3] = [2, 5, 7];

/// Those that are tried on a full disk.
const ON_A_FULL_DISK: [usize; 3] = [1, 5, 8];

/// A store and the overlay before each command.
struct Template {
    folder: TempDir,
    store: PathBuf,
    overlay: PathBuf,
    file: PathBuf,
}

fn zip(store: &Path, path: &Path) {
    let mut writer = zip::ZipWriter::new(File::create(path).unwrap());
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(store).unwrap().to_str().unwrap().to_owned();
            writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            std::io::Write::write_all(&mut writer, &fs::read(path).unwrap()).unwrap();
        }
    }
    writer.finish().unwrap();
}

/// Runs a command in an overlay.
fn run(template: &Template, overlay: &Path, command: &[&str], faults: Option<&Faults>) -> Output {
    let all = [command, &["--overlay", overlay.to_str().unwrap()]].concat();
    zarrfs(&template.store, &template.file, &all, faults)
}

/// Returns what an overlay shows.
fn shown(store: &Path, overlay: &Path) -> Vec<String> {
    let overlay = Some(OverlayOptions { folder: overlay.to_owned(), access: Access::Read });
    let options = StoreOptions { overlay, ..StoreOptions::default() };
    state_of(&open_with(store.to_str().unwrap(), &options).unwrap())
}

impl Template {
    fn new(zarr_format: u8, is_zip: bool, file: &Path) -> Self {
        let made = store(zarr_format);
        let folder = in_memory();
        let path = folder.path().join("store.zarr");
        if is_zip {
            zip(made.path(), &path);
        } else {
            fs::create_dir(&path).unwrap();
            copy(made.path(), &path);
        }
        let overlay = folder.path().join("overlay");
        let template = Template { folder, store: path, overlay, file: file.to_owned() };
        for command in BEFORE {
            let output = run(&template, &template.overlay, command, None);
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        template
    }

    fn digest(&self) -> String {
        if self.store.is_dir() {
            digest(&self.store)
        } else {
            crate::support::sha256(&fs::read(&self.store).unwrap())
        }
    }

    /// Returns a copy of the overlay.
    fn overlay(&self) -> TempDir {
        let folder = in_memory();
        copy(&self.overlay, folder.path());
        folder
    }
}

/// Returns what the overlay has of nodes that no one may ever see.
fn leftovers(overlay: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![overlay.join("objects")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.file_name().unwrap().to_string_lossy().starts_with(".zarrfs-") {
                found.push(path.display().to_string());
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Runs a command with the Nth operation of a kind failing, until there is none; returns how often it did.
fn run_until_clean(template: &Template, command: &[&str], operation: Operation, errno: i32) -> u32 {
    let old = shown(&template.store, &template.overlay);
    let clean = template.overlay();
    let done = run(template, clean.path(), command, None);
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    let new = shown(&template.store, clean.path());
    let (mut number, mut tried) = (1, 0);
    loop {
        let folder = template.overlay();
        let overlay = folder.path();
        let what = format!("{command:?}, {operation:?} {number} with {errno}");
        let Some(faults) = Faults::new(overlay, "nodes of an overlay") else { return 0 };
        faults.arm(operation, errno, number, number);
        let output = run(template, overlay, command, Some(&faults));
        if faults.fired() == 0 {
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
            return tried;
        }
        let found = shown(&template.store, overlay);
        if errno != KILL && found == old {
            assert!(!output.status.success(), "{what} succeeds and changes nothing");
        }
        assert!(found == old || found == new, "{what}: half of it is there:\n{old:#?}\n{found:#?}\n{new:#?}");
        // Once more without faults. (Or the next use has ended what was almost done, and there is nothing to do.)
        let again = run(template, overlay, command, None);
        let said = String::from_utf8_lossy(&again.stderr);
        assert_eq!(shown(&template.store, overlay), new, "{what}: {said}");
        let swept = run(template, overlay, &["mkgroup", "@", "swept"], None);
        assert!(swept.status.success(), "{what}: {}", String::from_utf8_lossy(&swept.stderr));
        assert_eq!(leftovers(overlay), [""; 0], "{what}");
        tried += 1;
        number = next_point(number, 1 + number + number / 2);
    }
}

#[test]
fn killed_at_every_operation_there_is_the_old_node_or_the_new_one() {
    let file = npy_file();
    let (mut kills, mut failures) = (0, 0);
    for (zarr_format, is_zip) in [(3, false), (2, true)] {
        let template = Template::new(zarr_format, is_zip, file.path());
        let before = template.digest();
        for (place, command) in COMMANDS.into_iter().enumerate() {
            if is_zip && !OVER_A_ZIP_FILE.contains(&place) {
                continue;
            }
            for operation in CHANGES {
                let case = format!("{zarr_format} {command:?} {operation:?}");
                if !level::is_in_sample(&case, 2) {
                    continue;
                }
                kills += run_until_clean(&template, command, operation, KILL);
                if ON_A_FULL_DISK.contains(&place) {
                    failures += run_until_clean(&template, command, operation, libc::ENOSPC);
                }
            }
        }
        assert_eq!(template.digest(), before, "the store below has changed");
    }
    say(format!(
        "nodes of an overlay: {kills} kills and {failures} failures, none was half made or half gone"
    ));
    assert!(kills > level::pick(5, 100) && failures >= level::pick(0, 21), "{kills}, {failures}");
}

/// Returns the paths of a consolidated copy in the root, which an overlay shows.
fn copied(store: &Path, overlay: &Path) -> BTreeSet<String> {
    let overlay = Some(OverlayOptions { folder: overlay.to_owned(), access: Access::Read });
    let options = StoreOptions { overlay, ..StoreOptions::default() };
    let opened = open_with(store.to_str().unwrap(), &options).unwrap();
    let (document, place) = match opened.head(".zmetadata").unwrap() {
        Some(_) => (".zmetadata", "/metadata"),
        None => ("zarr.json", "/consolidated_metadata/metadata"),
    };
    let text = opened.get(document, 1 << 20).unwrap().unwrap();
    let root: Value = serde_json::from_slice(&text).unwrap();
    let names = root.pointer(place).unwrap().as_object().unwrap().keys();
    let path = |name: &String| match document {
        ".zmetadata" => name.rsplit_once('/').map_or("", |(path, _)| path).to_owned(),
        _ => name.clone(),
    };
    names.map(path).filter(|path| !path.is_empty()).collect()
}

/// After `overlay discard DIR PATH`, the path and everything below it are the store's again, and everything else stays.
#[test]
fn changes_of_one_node_are_discarded() {
    let file = npy_file();
    let mut rounds = 0;
    for (zarr_format, is_zip) in [(3, false), (2, true)] {
        let template = Template::new(zarr_format, is_zip, file.path());
        let (before, store) = (template.digest(), template.store.as_path());
        let discard = |overlay: &Path, words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
            command.args(["overlay", "discard", "--yes"]).arg(overlay).args(words).output().unwrap()
        };
        let of_store = state(store);
        for (place, command) in COMMANDS.into_iter().enumerate() {
            if is_zip && !OVER_A_ZIP_FILE.contains(&place) {
                continue;
            }
            for path in ["a", "g", "h", "made", "new"] {
                let (folder, what) = (template.overlay(), format!("{command:?}, then discard {path}"));
                let overlay = folder.path();
                assert!(run(&template, overlay, command, None).status.success(), "{what}");
                let changed = shown(store, overlay);
                let output = discard(overlay, &[path]);
                let is_within =
                    |line: &&String| line.strip_prefix(path).is_some_and(|rest| rest.starts_with([' ', '/']));
                let mut expected: Vec<&String> = changed.iter().filter(|line| !is_within(line)).collect();
                expected.extend(of_store.iter().filter(is_within));
                expected.sort();
                let found = shown(store, overlay);
                let mut sorted: Vec<&String> = found.iter().collect();
                sorted.sort();
                assert_eq!(sorted, expected, "{what}: {output:?}");
                let paths = found.iter().filter_map(|line| line.split(' ').next());
                let paths: BTreeSet<String> =
                    paths.filter(|path| !path.is_empty()).map(str::to_owned).collect();
                assert_eq!(copied(store, overlay), paths, "{what}: the consolidated copy");
                let is_nothing = String::from_utf8_lossy(&output.stderr).contains("has no changes of");
                assert_eq!(output.status.success(), !is_nothing, "{what}: {output:?}");
                assert!(changed == found || output.status.success(), "{what}: {output:?}");
                rounds += u32::from(output.status.success());
            }
        }
        // Below what was removed there is nothing to discard.
        let folder = template.overlay();
        let output = discard(folder.path(), &["g/b"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("was removed with 'g'"), "{output:?}");
        // Nothing is left, not even a document of the root in the overlay.
        let output = discard(folder.path(), &["/g", "made/", "h"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(shown(store, folder.path()), of_store);
        let mut status = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        let status = status.args(["overlay", "status"]).arg(folder.path()).output().unwrap();
        assert!(String::from_utf8_lossy(&status.stdout).contains("nothing is changed"), "{status:?}");
        assert_eq!(template.digest(), before, "the store below has changed");
    }
    assert!(rounds > 20, "{rounds}");
}

/// The moments of a command at which the power fails.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// It has reported that all is done.
    AfterSuccess,
    /// Instead of the fdatasync(2) with this number. (The command does nothing afterwards.)
    Sync(u32),
}

/// Copies the template onto a disk, runs the command until the power fails, and starts the disk again. Returns whether the command
/// succeeded, and how often it called fdatasync(2).
fn cut_power(template: &Template, disk: &Disk, command: &[&str], moment: Moment) -> Option<(bool, u32)> {
    let overlay = disk.path().join("overlay");
    if overlay.exists() {
        fs::remove_dir_all(&overlay).unwrap();
    }
    fs::create_dir(&overlay).unwrap();
    copy(&template.overlay, &overlay);
    disk.sync();
    let faults = Faults::new(&overlay, "a power cut of an overlay's nodes")?;
    match moment {
        Moment::AfterSuccess => faults.clear(),
        Moment::Sync(number) => faults.arm(Operation::Fdatasync, KILL, number, number),
    }
    let output = run(template, &overlay, command, Some(&faults));
    disk.cut_power();
    disk.start_again();
    Some((output.status.success(), faults.count(Operation::Fdatasync)))
}

/// The disk of the overlay loses its power; the store below is on another one. A command that has succeeded is done, and of one that
/// has not there is the old node or the new one.
#[test]
fn the_power_fails() {
    if own_process::has_run() {
        return;
    }
    let Some(disk) = Disk::in_file("xfs", "a power cut of an overlay's nodes") else { return };
    let file = npy_file();
    let template = Template::new(3, false, file.path());
    let (before, overlay) = (template.digest(), disk.path().join("overlay"));
    let old = shown(&template.store, &template.overlay);
    let mut cuts = 0;
    for command in COMMANDS {
        let done = cut_power(&template, &disk, command, Moment::AfterSuccess);
        let Some((is_done, syncs)) = done else { return };
        assert!(is_done && syncs > 0, "{command:?}: {syncs} syncs");
        let new = shown(&template.store, &overlay);
        assert_ne!(new, old, "{command:?}: nothing of it is there after a power cut");
        let clean = template.overlay();
        run(&template, clean.path(), command, None);
        assert_eq!(new, shown(&template.store, clean.path()), "{command:?}: something is missing");
        let some = level::pick(BTreeSet::from([syncs]), BTreeSet::from([syncs.div_ceil(2), syncs]));
        let numbers = if tries_every_point() { (1..=syncs).collect() } else { some };
        for number in numbers {
            let what = format!("{command:?}, a power cut at fdatasync {number} of {syncs}");
            let (is_done, made) = cut_power(&template, &disk, command, Moment::Sync(number)).unwrap();
            // How many changes one fdatasync(2) covers is a matter of time.
            assert!(!is_done || made < number, "{what}: the command has succeeded");
            let found = shown(&template.store, &overlay);
            assert!(
                found == new || found == old && !is_done,
                "{what}: half of it is there: {old:#?}\n{found:#?}\n{new:#?}"
            );
            let again = run(&template, &overlay, command, None);
            let said = String::from_utf8_lossy(&again.stderr);
            assert_eq!(shown(&template.store, &overlay), new, "{what}: {said}");
            cuts += 1;
        }
        cuts += 1;
    }
    assert_eq!(template.digest(), before, "the store below has changed");
    say(format!("nodes of an overlay: {cuts} power cuts, none was half made, half gone or lost"));
}

/// Gives the files of a folder names in another one: they are the same versions of the same files there.
fn link(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            fs::create_dir(&target).unwrap();
            link(&source, &target);
        } else {
            fs::hard_link(&source, &target).unwrap();
        }
    }
}

/// Empties a folder, which stays the same one.
fn clear(folder: &Path) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// All that the overlay has is committed, however often the commit is killed.
#[test]
fn a_commit_that_is_killed_is_repeated() {
    let file = npy_file();
    let template = Template::new(3, false, file.path());
    for command in [&COMMANDS[0], &COMMANDS[2], &COMMANDS[3]] {
        let output = run(&template, &template.overlay, command, None);
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let expected = shown(&template.store, &template.overlay);
    let before = tempfile::tempdir_in(template.folder.path()).unwrap();
    link(&template.store, before.path());
    let commit = |overlay: &Path, faults: Option<&Faults>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.args(["overlay", "commit"]).arg(overlay);
        if let Some(faults) = faults {
            command.envs(faults.environment());
        }
        command.output().unwrap()
    };
    let mut kills = 0;
    for operation in CHANGES {
        for is_in_store in [true, false] {
            let mut number = 1;
            loop {
                let folder = template.overlay();
                let overlay = folder.path();
                clear(&template.store);
                link(before.path(), &template.store);
                let what = format!("a commit killed at {operation:?} {number} ({is_in_store})");
                let killed_in = if is_in_store { template.store.as_path() } else { overlay };
                let Some(faults) = Faults::new(killed_in, "a commit of nodes") else { return };
                faults.arm(operation, KILL, number, number);
                let output = commit(overlay, Some(&faults));
                assert_eq!(
                    shown(&template.store, overlay),
                    expected,
                    "{what}: the overlay shows something else"
                );
                if faults.fired() == 0 {
                    assert!(output.status.success(), "{what}: {output:?}");
                    assert_eq!(state(&template.store), expected, "{what}");
                    break;
                }
                kills += 1;
                let again = commit(overlay, None);
                assert!(again.status.success(), "{what}: {again:?}");
                assert_eq!(state(&template.store), expected, "{what}");
                number = next_point(number, 1 + 2 * number);
            }
        }
    }
    say(format!("nodes of an overlay: {kills} commits were killed and repeated, 0 nodes lost"));
    assert!(kills > level::pick(8, 20), "{kills}");
}
