//! Mounts whose daemon is killed at one system call after the other, while a program acts: `tests/programs/kill_at_call.c` kills,
//! `tests/programs/act.py` acts. The store is in the end as if there had been no kill.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::restarts::{end, has_keepers, keeper, next_daemon, some};
use crate::support::faulty::compiled;
use crate::support::misbehaving::{BUCKET, Service};
use crate::support::place::*;
use crate::support::{level, say, skip};

/// What programs do when the daemon dies.
const ACTS: [&str; 10] =
    ["read", "sync", "append", "rename", "mkdir", "rmdir", "unlink", "declare", "edit", "close"];
/// The calls of a daemon at which it is killed.
const MAX_CALL: u64 = 200;
/// More calls than an act takes.
const NEVER: u64 = 1 << 40;

fn place() -> Place {
    let place = Place::new();
    for group in ["zarr.json", "group/zarr.json"] {
        place.put(group, r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#);
    }
    place.put("rows/zarr.json", array_document(30, 0, "uint8"));
    for chunk in 0..3u64 {
        let rows = (0..10u64).flat_map(|row| {
            let number = 10 * chunk + row;
            (0..1000u64).map(move |byte| ((number * 13 + byte * 7) % 251) as u8)
        });
        place.put(&format!("rows/c/{chunk}/0"), rows.collect::<Vec<_>>());
    }
    place.put("single/zarr.json", array_document(10, 0, "uint8"));
    place.put("single/c/0/0", fs::read(place.store().join("rows/c/0/0")).unwrap());
    place.put("log/zarr.json", array_document(5, 0, "uint8"));
    place.put("edited/zarr.json", array_document(5, 0, "uint8"));
    place
}

/// Everything in a folder, by its path.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.insert(format!("{name}/"), Vec::new());
            let below = content(&entry.path()).into_iter();
            found.extend(below.map(|(path, bytes)| (format!("{name}/{path}"), bytes)));
        } else {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// A program, and the lines that it writes.
struct Helper {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Helper {
    fn start(place: &Place, program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", program]).args(arguments).current_dir(place.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Helper { child, lines }
    }

    fn line(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }

    fn begin(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap()).unwrap();
    }

    /// Waits for its end, which must be a success.
    fn end(self, what: &str) {
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{what}: {} {said}", output.status);
    }
}

/// What became of a daemon.
struct Outcome {
    /// It was killed at this call, by its number in the kernel.
    call: Option<u64>,
    /// How many calls it has begun.
    calls: u64,
    /// The store in the end.
    store: BTreeMap<String, Vec<u8>>,
}

/// Where the store is, and which daemon is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kills {
    /// The store is a folder.
    InFolder,
    /// It is in a bucket of a service.
    InBucket,
    /// The store is a folder. The daemon is killed at once, and the next one at its call.
    NextInFolder,
    /// The store is a folder, and the mount is read-only. The daemon is killed before the act, and the next one during it, at its call.
    NextReadOnly,
}

/// Mounts. Returns the service that has the store, if it is in a bucket.
fn mount(place: &Place, kills: Kills) -> Option<Service> {
    let options = ["--keeper", "--writable", "--create", "--delete"];
    if kills != Kills::InBucket {
        place.mount(if kills == Kills::NextReadOnly { &options[..1] } else { &options });
        return None;
    }
    let service = Service::start(place.folder.path());
    let (mut command, mountpoint) = (Command::new(PROGRAM), place.mountpoint());
    command.arg("mount").args(options).args(["--no-sign-request", "--endpoint-url", &service.endpoint()]);
    command.arg(format!("s3://{BUCKET}/store.zarr")).arg(mountpoint).env("AWS_PROFILE", "");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(service)
}

/// Has a program act while a daemon is killed at a call. `None` if this is not possible here.
fn act(killer: &Path, act: &str, call: u64, kills: Kills) -> Option<Outcome> {
    let (place, of_next) = (place(), kills == Kills::NextInFolder);
    let service = mount(&place, kills);
    if !has_keepers(&place) {
        return None;
    }
    let (what, keeper, mut daemon) = (format!("{act}, call {call}"), keeper(&place).unwrap(), place.daemon());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/act.py");
    let mut program = Helper::start(&place, "python3", &[script, act]);
    assert_eq!(program.line().as_deref(), Some("ready"), "{what}");
    if kills == Kills::NextReadOnly {
        signal(daemon, "KILL");
        daemon = next_daemon(&place, daemon);
    }
    let (traced, mode) = if of_next { (keeper, Some("next")) } else { (daemon, None) };
    let (traced, number) = (traced.to_string(), call.to_string());
    let arguments: Vec<&str> = [traced.as_str(), &number].into_iter().chain(mode).collect();
    let mut killer = Helper::start(&place, killer.to_str().unwrap(), &arguments);
    if killer.line().as_deref() != Some("attached") {
        skip("kills at system calls", "ptrace(2) is not allowed", false);
        return None;
    }
    if of_next {
        signal(daemon, "KILL");
    }
    program.begin();
    program.end(&what);
    let _ = Command::new("kill").arg(killer.child.id().to_string()).status();
    let said = killer.line().unwrap();
    let words: Vec<&str> = said.split(' ').collect();
    let calls = words[1].parse().unwrap();
    let call = words.get(2).map(|number| number.parse().unwrap());
    killer.end(&what);
    let last = place.daemon();
    assert_eq!(last != daemon, of_next || call.is_some(), "{what}");
    end(&place, &[last, keeper]);
    let mut store = content(&place.store());
    // A bucket has no folders.
    store.retain(|path, _| service.is_none() || !path.ends_with('/'));
    Some(Outcome { call, calls, store })
}

/// Kills at the calls of one act.
fn kill_at_calls(killer: &Path, name: &str, which: Kills, kills: u64) -> Option<()> {
    let Outcome { calls, store, .. } = act(killer, name, NEVER, which)?;
    // A request to a service takes many.
    let last = if which == Kills::InBucket { calls } else { calls.min(MAX_CALL) };
    let kills = kills.min(last);
    let mut died_in = BTreeMap::new();
    for kill in 0..kills {
        let (start, end) = (1 + kill * last / kills, 1 + (kill + 1) * last / kills);
        let call = some(start..end, kill);
        let outcome = act(killer, name, call, which)?;
        let Some(number) = outcome.call else { continue };
        *died_in.entry(number).or_insert(0u64) += 1;
        for (path, bytes) in &store {
            assert!(outcome.store.get(path) == Some(bytes), "{name}, call {call} ({number}): {path} differs");
        }
        // The next command that makes or removes a node removes what is hidden.
        let is_new = |path: &&String| !store.contains_key(*path) && !path.contains(".zarrfs-");
        let more: Vec<_> = outcome.store.keys().filter(is_new).collect();
        assert!(more.is_empty(), "{name}, call {call} ({number}): the store has {more:?}");
    }
    let killed: u64 = died_in.values().sum();
    say(format!(
        "{name}: {killed} kills at the calls 1 to {last} of {calls}, in {} system calls",
        died_in.len()
    ));
    Some(())
}

#[test]
fn a_kill_at_any_call_of_a_request_is_noticed_by_nobody() {
    let Some(killer) = compiled("kill_at_call.c", &[], "kills at system calls") else { return };
    if !can_mount() {
        return;
    }
    let kills = level::count("ZARRFS_CALL_KILLS", 2, 6);
    for name in acts().filter(|name| level::is_in_sample(name, 3)) {
        if kill_at_calls(&killer, name, Kills::InFolder, kills).is_none() {
            return;
        }
    }
}

/// The bug: close(2) of a new sidecar failed with EINVAL if the daemon was killed between the put of the array's document and its reply.
#[cfg(feature = "remote")]
#[test]
fn a_kill_at_any_call_of_a_request_to_an_object_store_is_noticed_by_nobody() {
    let Some(killer) = compiled("kill_at_call.c", &[], "kills at system calls") else { return };
    if !can_mount() {
        return;
    }
    let kills = level::count("ZARRFS_CALL_KILLS", 3, 6);
    // Objects have no other name.
    for name in acts().filter(|name| *name != "rename" && level::is_in_sample(&format!("{name} at S3"), 6)) {
        if kill_at_calls(&killer, name, Kills::InBucket, kills).is_none() {
            return;
        }
    }
}

/// What programs do, or only what `ZARRFS_ACTS` names.
fn acts() -> impl Iterator<Item = &'static str> {
    let named = std::env::var("ZARRFS_ACTS").ok();
    let is_named =
        move |act: &&str| named.as_ref().is_none_or(|named| named.split(',').any(|name| name == *act));
    ACTS.into_iter().filter(is_named)
}

#[test]
fn a_kill_at_any_call_of_the_next_daemon_is_noticed_by_nobody() {
    let Some(killer) = compiled("kill_at_call.c", &[], "kills at system calls") else { return };
    if can_mount() {
        let kills = level::count("ZARRFS_CALL_KILLS", 4, 15);
        let _ = kill_at_calls(&killer, "continue", Kills::NextInFolder, kills);
    }
}

/// The bug: an array that the kernel reads by itself was given another inode at a restart, so its next open(2) was ESTALE once, for the
/// kernel to look it up again. If the daemon was killed in the second one, the open was ESTALE twice, and failed.
#[test]
fn a_kill_at_any_call_of_an_open_after_a_restart_is_noticed_by_nobody() {
    let Some(killer) = compiled("kill_at_call.c", &[], "kills at system calls") else { return };
    if can_mount() {
        let kills = level::count("ZARRFS_CALL_KILLS", 5, 30);
        let _ = kill_at_calls(&killer, "open", Kills::NextReadOnly, kills);
    }
}
