//! Snapshots that `zarrfs commit` makes of what programs have written through a mount, read back by zarr-python.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use zarrfs::store::{Store, StoreOptions, open_with};

use crate::repositories::made::{self, local, made, mount, python};
use crate::support::mounted::Mount;
use crate::support::servers::{Kind, Server};

/// A copy of a repository, and the folder of an overlay.
struct Scene {
    repository: TempDir,
    folder: TempDir,
    what: &'static str,
}

impl Scene {
    fn new(what: &'static str) -> Option<Self> {
        let repository = made(what)?.copy("repository");
        Some(Scene { repository, folder: tempfile::tempdir().unwrap(), what })
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("changes")
    }

    fn mount(&self, options: &[&str]) -> Mount {
        let dir = self.dir();
        let all = [&["--writable", "--overlay", dir.to_str().unwrap()], options].concat();
        mount(None, &local(self.repository.path()), &all, self.what).unwrap()
    }

    /// Returns the branch as zarr-python sees it.
    fn read(&self, branch: &str) -> made::Read {
        made::read(self.repository.path(), branch, self.what).unwrap()
    }

    /// Returns the newest snapshot of the branch `main`.
    fn newest(&self) -> Arc<dyn Store> {
        open_with(&local(self.repository.path()), &StoreOptions::default()).unwrap()
    }

    /// Returns the messages of the branch `main`, the newest first.
    fn messages(&self) -> Vec<String> {
        let output = succeeded(&["log", &local(self.repository.path()), "--json"]);
        let snapshots: Vec<Value> = serde_json::from_str(&output).unwrap();
        snapshots.iter().map(|snapshot| snapshot["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Fills an array of a branch as another program.
    fn change(&self, branch: &str, path: &str, value: &str) {
        let python = python(self.what).unwrap();
        made::run(&python, &["change", self.repository.path().to_str().unwrap(), branch, path, value]);
    }

    fn status(&self) -> Value {
        let status = succeeded(&["overlay", "status", self.dir().to_str().unwrap(), "--json"]);
        serde_json::from_str(&status).unwrap()
    }
}

fn zarrfs(arguments: &[&str]) -> Output {
    made::zarrfs(None, arguments)
}

/// Returns what a command that succeeds prints.
#[track_caller]
fn succeeded(arguments: &[&str]) -> String {
    let output = zarrfs(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns what a command that fails prints, on both outputs.
#[track_caller]
fn failed(arguments: &[&str], code: i32) -> String {
    let output = zarrfs(arguments);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    text
}

#[track_caller]
fn commit(place: &Path, message: &str) -> String {
    succeeded(&["commit", place.to_str().unwrap(), "-m", message])
}

fn open_to_write(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Fails unless the repository has what the mount shows.
fn compare(mount: &Mount, read: &made::Read) {
    let shown: BTreeMap<&String, Vec<u8>> =
        read.arrays.keys().map(|path| (path, fs::read(mount.path(path)).unwrap())).collect();
    for (path, bytes) in &read.arrays {
        assert!(shown[path] == *bytes, "{path}: {} bytes differ; {}", bytes.len(), mount.log());
    }
}

/// Starts a program that maps an array and writes it, without a sync, and ends when its input does.
fn map_and_write(python: &Path, path: &Path) -> Child {
    let program = "import sys, numpy as np\n\
                   m = np.memmap(sys.argv[1], 'u1', 'r+')\n\
                   m[8:4096] = 77\n\
                   print('ready', flush=True)\n\
                   sys.stdin.read()\n";
    let mut child = Command::new(python)
        .args(["-c", program])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn changes_of_every_kind_are_read_back() {
    let Some(scene) = Scene::new("commits of every kind") else { return };
    let mount = scene.mount(&["--create", "--delete"]);
    let point = mount.point();
    assert!(zarrfs(&["commit", point.to_str().unwrap(), "-m", "none"]).status.success());
    let held = open_to_write(&mount.path("small"));
    held.write_all_at(&[1, 2, 3], 1).unwrap();
    let mut mapping = map_and_write(&python(scene.what).unwrap(), &mount.path("raw"));
    fs::create_dir(mount.path("made")).unwrap();
    let declared = json!({"shape": [6, 5], "descr": "<i2", "chunks": [4, 5], "attributes": {"units": "K"}});
    fs::write(mount.path("made/new.json"), declared.to_string()).unwrap();
    let new: Vec<u8> = (0..60).collect();
    fs::write(mount.path("made/new"), &new).unwrap();
    fs::remove_file(mount.path("sparse")).unwrap();
    fs::write(mount.path("plain.json"), r#"{"attributes": {"title": "another"}}"#).unwrap();
    open_to_write(&mount.path("added")).set_len(8800).unwrap();
    let printed = commit(point, "of every kind");
    let (snapshot, rest) = printed.split_once(": ").unwrap();
    assert!(rest.contains("changes committed to main"), "{printed}");
    assert_eq!(scene.status()["nodes"].as_array().map(Vec::len), Some(0), "{}", scene.status());
    let read = scene.read("main");
    compare(&mount, &read);
    assert_eq!(read.arrays["small"][1..4], [1, 2, 3]);
    assert_eq!(read.arrays["raw"][8..4096], [77; 4088]);
    assert!(read.arrays["made/new"] == new && read.arrays["added"].len() == 8800);
    assert!(!read.arrays.contains_key("sparse") && read.groups.contains(&"made".to_owned()));
    assert_eq!(read.messages[0], "of every kind");
    let log = succeeded(&["log", "--limit", "1", &local(scene.repository.path())]);
    assert!(log.starts_with(snapshot), "{log}");
    let document = scene.newest().get("plain/zarr.json", 1 << 20).unwrap().unwrap();
    assert!(String::from_utf8(document).unwrap().contains("another"));
    // The handle, the map and the mount go on.
    held.write_all_at(&[9], 4).unwrap();
    drop(mapping.stdin.take());
    assert!(mapping.wait().unwrap().success());
    fs::remove_dir_all(mount.path("made")).unwrap();
    fs::create_dir(mount.path("made")).unwrap();
    fs::write(mount.path("__zarrfs__/commit"), "by a program\n").unwrap();
    let printed: Value =
        serde_json::from_str(&fs::read_to_string(mount.path("__zarrfs__/commit")).unwrap()).unwrap();
    assert!(printed["snapshot"].is_string() && printed["branch"] == "main", "{printed}");
    drop(held);
    let read = scene.read("main");
    compare(&mount, &read);
    assert_eq!((read.arrays["small"][4], read.messages[0].as_str()), (9, "by a program"));
    assert!(!read.arrays.contains_key("made/new"));
    // The folder of an overlay that is mounted stands for the mount.
    fs::write(mount.path("small"), [4; 5]).unwrap();
    assert!(commit(&scene.dir(), "by its folder").contains("changes committed to main"));
    fs::write(mount.path("small"), [5; 5]).unwrap();
    let output = mount.umount(&["--commit-message", "at the end"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(scene.messages()[..2], ["at the end", "by its folder"]);
    assert_eq!(scene.newest().get("small/c/1", 9).unwrap().unwrap(), [5, 5]);
    // Without a mount.
    let dir = scene.dir();
    assert_eq!(commit(&dir, "nothing"), "");
    let store = local(scene.repository.path());
    succeeded(&["attrs", &store, "small", "n=1", "--overlay", dir.to_str().unwrap()]);
    assert!(commit(&dir, "attributes").contains(": 1 change committed to main"));
    assert_eq!(scene.messages()[0], "attributes");
    let sentence = failed(&["overlay", "commit", dir.to_str().unwrap()], 1);
    assert!(sentence.contains("zarrfs commit"), "{sentence}");
}

#[test]
fn others_are_merged_and_conflicts_keep_everything() {
    let Some(scene) = Scene::new("commits next to others") else { return };
    let mount = scene.mount(&[]);
    let plain = open_to_write(&mount.path("plain"));
    plain.write_all_at(&[7; 4], 0).unwrap();
    scene.change("main", "small", "8");
    commit(mount.point(), "merged");
    // What others have done is shown with the commit.
    assert_eq!(fs::read(mount.path("small")).unwrap(), [8; 5]);
    plain.write_all_at(&[6; 4], 0).unwrap();
    plain.sync_all().unwrap();
    scene.change("main", "plain", "5");
    let before = scene.messages();
    let printed = failed(&["commit", mount.point().to_str().unwrap(), "-m", "no"], 1);
    assert!(printed.contains("plain/c/0/0: changed on the branch"), "{printed}");
    assert!(printed.contains("1 conflict: nothing is committed"), "{printed}");
    let output = mount.umount(&["--commit-message", "no"]);
    assert!(!output.status.success() && mount.is_mounted());
    let mut file = open_to_write(&mount.path("__zarrfs__/commit"));
    file.write_all(b"no").unwrap();
    let refused = file.sync_all().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    let mut printed = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut printed)).unwrap();
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["conflicts"][0]["key"], "plain/c/0/0");
    assert_eq!(fs::read(mount.path("plain")).unwrap()[..4], [6; 4]);
    drop((plain, file));
    mount.unmount();
    assert!(failed(&["commit", scene.dir().to_str().unwrap(), "-m", "no"], 1).contains("plain/c/0/0"));
    assert_eq!(scene.messages(), before);
    let mount = scene.mount(&[]);
    assert_eq!(fs::read(mount.path("plain")).unwrap()[..4], [6; 4], "nothing is lost");
    assert_eq!(scene.read("main").messages[..2], before[..2]);
}

#[test]
fn a_tag_is_committed_to_a_branch_that_is_named() {
    let Some(scene) = Scene::new("commits over a tag") else { return };
    let store = local(scene.repository.path());
    let place = scene.folder.path().join("mnt");
    let sentence = failed(&["mount", "--writable", &store, place.to_str().unwrap()], 2);
    assert!(sentence.contains("add --overlay DIR"), "{sentence}");
    let mount = scene.mount(&["--tag", "v1"]);
    open_to_write(&mount.path("raw")).write_all_at(&[3; 16], 0).unwrap();
    mount.unmount();
    let dir = scene.dir();
    assert!(failed(&["commit", dir.to_str().unwrap(), "-m", "where"], 2).contains("--branch"));
    let mount = scene.mount(&["--tag", "v1"]);
    let point = mount.point().to_str().unwrap();
    assert!(failed(&["commit", point, "-m", "where"], 1).contains("--branch"));
    assert!(failed(&["commit", point, "-m", "where", "--branch", "none"], 1).contains("no branch 'none'"));
    assert!(failed(&["commit", point, "-m", "where", "--tag", "v1"], 2).contains("--branch"));
    let printed = succeeded(&["commit", point, "-m", "there", "--branch", "dev", "--json"]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert!(printed["branch"] == "dev" && printed["changes"] == 1, "{printed}");
    let read = scene.read("dev");
    assert_eq!((read.arrays["raw"][..16].to_vec(), read.messages[0].as_str()), (vec![3; 16], "there"));
    assert_eq!(fs::read(mount.path("raw")).unwrap(), read.arrays["raw"], "the mount goes on there");
    open_to_write(&mount.path("raw")).write_all_at(&[4; 16], 0).unwrap();
    assert!(commit(mount.point(), "once more").contains("committed to dev"));
    mount.unmount();
    assert_eq!(commit(&dir, "nothing"), "");
    assert_eq!(scene.read("dev").messages[..2], ["once more", "there"]);
}

/// Bytes of a row of chunks of the array `raw`.
const CHUNK_BYTES: usize = 20 * 47 * 8;

#[test]
fn writers_go_on_while_commits_are_made() {
    const COMMITS: u64 = 8;
    let Some(scene) = Scene::new("commits while others write") else { return };
    let mount = scene.mount(&["--tune", "dirty-limit=1M"]);
    let (is_over, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let raw = open_to_write(&mount.path("raw"));
            for number in 1_u64.. {
                // One write(2) of two chunks.
                raw.write_all_at(&number.to_le_bytes().repeat(CHUNK_BYTES / 4), 0).unwrap();
                if number % 3 == 0 {
                    raw.sync_all().unwrap();
                    synced.store(number, Ordering::Release);
                }
                if is_over.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        scope.spawn(|| {
            let small = open_to_write(&mount.path("small"));
            for number in 0_u64.. {
                small.write_all_at(&[number as u8; 5], 0).unwrap();
                if number % 50 == 0 {
                    small.sync_all().unwrap();
                }
                assert!(fs::read(mount.path("plain")).is_ok());
                if is_over.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..COMMITS {
                let safe = synced.load(Ordering::Acquire);
                commit(mount.point(), &format!("round {round}"));
                let store = scene.newest();
                let chunks = ["raw/c/0/0", "raw/c/1/0"].map(|key| store.get(key, 1 << 20).unwrap().unwrap());
                let number = u64::from_le_bytes(chunks[0][..8].try_into().unwrap());
                assert!(number >= safe || safe == 0, "round {round}: {number} and not {safe}");
                if safe > 0 {
                    let whole = number.to_le_bytes().repeat(CHUNK_BYTES / 8);
                    assert!(chunks.iter().all(|chunk| *chunk == whole), "round {round}: a write is torn");
                }
                // A chunk of zeros, which are the fill value, is not stored.
                let small = ["small/c/0", "small/c/1"]
                    .map(|key| store.get(key, 9).unwrap().unwrap_or_else(|| vec![0]));
                assert!(small.concat().iter().all(|byte| *byte == small[0][0]), "{small:?}");
            }
        }));
        is_over.store(true, Ordering::Release);
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    commit(mount.point(), "all");
    let read = scene.read("main");
    compare(&mount, &read);
    assert!(read.messages.len() as u64 >= COMMITS, "{:?}", read.messages);
}

#[test]
fn a_daemon_that_is_killed_in_a_commit_has_committed_once() {
    const ROUNDS: u64 = 6;
    let Some(scene) = Scene::new("commits that are killed") else { return };
    let mut delay = Duration::from_millis(2);
    let (mut cut, mut published) = (0, 0);
    for round in 1..=ROUNDS {
        let mount = scene.mount(&[]);
        let raw = open_to_write(&mount.path("raw"));
        raw.write_all_at(&[round as u8; 2 * CHUNK_BYTES], 0).unwrap();
        raw.sync_all().unwrap();
        let message = format!("round {round}");
        let mut committing = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
            .args(["commit", mount.point().to_str().unwrap(), "-m", &message])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(delay);
        drop(raw);
        mount.kill();
        let was_cut = !committing.wait().unwrap().success();
        cut += u64::from(was_cut);
        // Sooner after a commit that has ended, later after one that had not begun.
        let is_published = scene.messages().contains(&message);
        delay = if was_cut && !is_published { delay * 3 } else { delay * 2 / 3 };
        published += u64::from(was_cut && is_published);
        let mount = scene.mount(&[]);
        let shown = fs::read(mount.path("raw")).unwrap();
        assert!(shown[..2 * CHUNK_BYTES].iter().all(|byte| u64::from(*byte) == round), "round {round}");
        commit(mount.point(), &message);
        mount.unmount();
        let messages = scene.messages();
        let times = messages.iter().filter(|other| **other == message).count();
        assert_eq!(times, 1, "{messages:?}");
        let chunk = scene.newest().get("raw/c/1/0", 1 << 20).unwrap().unwrap();
        assert!(chunk.iter().all(|byte| u64::from(*byte) == round), "round {round}");
    }
    crate::support::say(format!(
        "commits: {ROUNDS} daemons killed, {cut} in a commit, {published} after publishing"
    ));
}

fn at_a_service(kind: Kind) {
    let Some(made) = made("a commit at a service") else { return };
    let server = Server::start(kind, &made.stores());
    let location = format!("icechunk+{}", server.url("repository"));
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("changes");
    let options = ["--writable", "--overlay", dir.to_str().unwrap()];
    let mount = mount(Some(&server), &location, &options, "a commit at a service").unwrap();
    let mut sharded = open_to_write(&mount.path("sharded"));
    sharded.write_all(&[2; 4000]).unwrap();
    let printed = commit(mount.point(), "at a service");
    assert!(printed.contains("committed to main"), "{printed}");
    sharded.write_all(&[3; 400]).unwrap();
    drop(sharded);
    let shown = fs::read(mount.path("sharded")).unwrap();
    mount.unmount();
    let arguments = ["commit", dir.to_str().unwrap(), "-m", "without a mount", "--json"];
    let output = made::zarrfs(Some(&server), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let copy = tempfile::tempdir().unwrap();
    server.download(copy.path());
    let read = made::read(&copy.path().join("repository"), "main", "a commit at a service").unwrap();
    assert!(read.arrays["sharded"] == shown && shown[..4400].iter().all(|byte| [2, 3].contains(byte)));
    assert_eq!(read.messages[..2], ["without a mount", "at a service"]);
}

#[test]
fn a_repository_at_moto_is_committed() {
    at_a_service(Kind::Moto);
}

#[test]
fn a_repository_at_azurite_is_committed() {
    at_a_service(Kind::Azurite);
}

#[test]
fn a_repository_at_google_is_committed() {
    at_a_service(Kind::Google);
}
