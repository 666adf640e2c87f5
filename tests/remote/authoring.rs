//! The commands that make, resize and remove nodes, at real servers of each service: what they write is read by this program and by
//! zarr-python over obstore. And with an overlay, which writes nothing there until it is committed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::faulty::{Faults, KILL, Operation};
use crate::support::fixtures::python;
use crate::support::misbehaving::{BUCKET, Service};
use crate::support::servers::{Kind, Server};
use crate::support::{level, say};

/// Prints the nodes of a store as zarr-python reads them: shape, attributes, the sum of the elements. Arguments: service, bucket,
/// prefix, options.
const READ: &str = r#"
import json, os, sys, numpy, zarr, obstore.store
service, bucket, prefix, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
kind = {"s3": obstore.store.S3Store, "az": obstore.store.AzureStore, "gs": obstore.store.GCSStore}[service]
if service == "az":
    options["container_name"] = bucket
else:
    options["bucket"] = bucket
store = zarr.storage.ObjectStore(kind(prefix=prefix, **options), read_only=True)
group = zarr.open_group(store, mode="r", use_consolidated=False)
nodes = {}
for path, node in group.members(max_depth=None):
    nodes[path] = {"attributes": dict(node.attrs)}
    if isinstance(node, zarr.Array):
        nodes[path] |= {"shape": list(node.shape), "sum": int(numpy.sum(node[...], dtype="i8"))}
print(json.dumps(nodes, sort_keys=True), flush=True)
# obstore's threads may crash the interpreter when it ends.
os._exit(0)
"#;

/// A service with an empty bucket.
struct Scene {
    server: Server,
    folder: TempDir,
    kind: Kind,
}

impl Scene {
    fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bucket")).unwrap();
        let server = Server::start(kind, &folder.path().join("bucket"));
        Scene { server, folder, kind }
    }

    fn url(&self) -> String {
        self.server.url("made/data.zarr")
    }

    /// Returns a raw file of `count` times the same `int32`.
    fn file(&self, number: i32, count: usize) -> String {
        let path = self.folder.path().join(format!("{number}.raw"));
        fs::write(&path, number.to_le_bytes().repeat(count)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.envs(self.server.environment()).args(words).args(self.server.options());
        command.env_remove("RUST_LOG").env("AWS_PROFILE", "");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that must succeed; otherwise says all that is known.
    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(
            output.status.success(),
            "{words:?} at {:?} ended with {:?}:\n{}\nThe service said:\n{}",
            self.kind,
            output.status,
            String::from_utf8_lossy(&output.stderr),
            self.server.log()
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the nodes as zarr-python reads them.
    fn nodes(&self, python: &Path) -> Value {
        let service = match self.kind {
            Kind::Azurite => "az",
            Kind::Google => "gs",
            _ => "s3",
        };
        let bucket = self.server.bucket_name();
        let options = self.server.obstore_options().to_string();
        let words = ["-c", READ, service, bucket, "made/data.zarr", &options];
        // Nothing writes meanwhile: a service that fails under load is asked again, and that is said.
        for attempt in 1..=3 {
            let output = Command::new(python).args(words).output().unwrap();
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).unwrap();
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            say(format!("zarr-python at {:?}, attempt {attempt}, {}:\n{said}", self.kind, output.status));
        }
        panic!(
            "zarr-python cannot read what was written at {:?}. The service said:\n{}",
            self.kind,
            self.server.log()
        );
    }
}

fn every_command(kind: Kind) {
    let what = format!("authoring at {kind:?}");
    let Some(python) = python(&what) else { return };
    let scene = Scene::new(kind);
    let url = scene.url();
    let store = url.as_str();
    scene.done(&["mkgroup", store, "/", "--new", "--attr", "title=\"made\""]);
    scene.done(&["mkgroup", store, "inner/group", "--parents"]);
    let create = ["--shape", "30,40", "--chunks", "10,40", "--dtype", "int16", "--fill-value", "2"];
    scene.done(&[&["create", store, "inner/a", "--attr", "n=1"][..], &create].concat());
    let raw = scene.file(3, 30 * 50);
    let import = ["--shape", "30,50", "--dtype", "int32", "--chunks", "10,10", "--codecs", "gzip"];
    scene.done(&[&["import", &raw, store, "b"][..], &import].concat());
    scene.done(&[&["import", &raw, store, "c"][..], &import, &["--shards", "30,10"]].concat());
    let taken = scene.run(&[&["create", store, "b"][..], &create].concat());
    assert_eq!(taken.status.code(), Some(1), "{taken:?}");
    let expected = json!({
        "inner": {"attributes": {}}, "inner/group": {"attributes": {}},
        "inner/a": {"attributes": {"n": 1}, "shape": [30, 40], "sum": 2 * 30 * 40},
        "b": {"attributes": {}, "shape": [30, 50], "sum": 3 * 30 * 50},
        "c": {"attributes": {}, "shape": [30, 50], "sum": 3 * 30 * 50},
    });
    assert_eq!(scene.nodes(&python), expected);
    scene.done(&["resize", store, "b", "15,60", "--discard"]);
    scene.done(&["resize", store, "b", "40,60"]);
    scene.done(&["resize", store, "inner/a", "31,40"]);
    scene.done(&["rm", store, "inner/group", "--yes"]);
    scene.done(&["rm", store, "c", "--yes"]);
    let moved = scene.run(&["mv", store, "b", "moved"]);
    let sentence = String::from_utf8_lossy(&moved.stderr).into_owned();
    assert!(!moved.status.success() && sentence.contains("renamed"), "{moved:?}");
    let expected = json!({
        "inner": {"attributes": {}},
        "inner/a": {"attributes": {"n": 1}, "shape": [31, 40], "sum": 2 * 31 * 40},
        "b": {"attributes": {}, "shape": [40, 60], "sum": 3 * 15 * 50},
    });
    assert_eq!(scene.nodes(&python), expected);
    let listed = scene.done(&["ls", store]);
    assert!(listed.contains("[40, 60]") || listed.contains("40"), "{listed}");
    assert_eq!(scene.done(&["cat", store, "b[14, 48:52]"]).len(), 16);
    scene.done(&["check", store]);
    with_an_overlay(&scene, &python, expected);
    say(format!("{what}: {}", scene.nodes(&python)));
}

/// Makes and removes nodes in an overlay; the bucket is as it was until that is committed.
fn with_an_overlay(scene: &Scene, python: &Path, before: Value) {
    let url = scene.url();
    let store = url.as_str();
    let overlay = scene.folder.path().join("overlay").to_str().unwrap().to_owned();
    let over = ["--overlay", overlay.as_str()];
    let raw = scene.file(4, 20);
    scene.done(&[&["import", &raw, store, "d", "--shape", "20", "--dtype", "int32"][..], &over].concat());
    scene.done(&[&["mv", store, "d", "e"][..], &over].concat());
    scene.done(&[&["rm", store, "inner", "--yes"][..], &over].concat());
    let import = ["import", &raw, store, "b", "--shape", "4,5", "--dtype", "int32", "--chunks", "2,5"];
    scene.done(&[&["rm", store, "b", "--yes"][..], &over].concat());
    scene.done(&[&import[..], &over].concat());
    assert_eq!(scene.nodes(python), before, "the bucket has changed");
    let said = scene.done(&["overlay", "status", &overlay]);
    for line in ["inner: removed", "b: removed, and a new array", "e: new array"] {
        assert!(said.contains(line), "{said}");
    }
    scene.done(&["overlay", "commit", &overlay]);
    let array = |shape: Value| json!({"attributes": {}, "shape": shape, "sum": 80});
    assert_eq!(scene.nodes(python), json!({"b": array(json!([4, 5])), "e": array(json!([20]))}));
    assert!(scene.done(&["overlay", "status", &overlay]).contains("nothing is changed"));
}

#[test]
fn at_s3_by_moto() {
    every_command(Kind::Moto);
}

#[test]
#[ignore = "full: needs s3s-fs"]
fn at_s3_by_s3s() {
    every_command(Kind::S3s);
}

#[test]
#[ignore = "full: needs Azurite"]
fn at_azure() {
    every_command(Kind::Azurite);
}

#[test]
#[ignore = "full: needs the Google server"]
fn at_google() {
    every_command(Kind::Google);
}

fn folder_of(path: &Path) -> PathBuf {
    fs::create_dir_all(path).unwrap();
    path.to_owned()
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &folder_of(&target));
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}

/// Commands in an overlay over a bucket when things go wrong in its folder: there is the old node or the new one.
#[test]
fn nodes_over_a_bucket_when_commands_fail() {
    let scene = Scene::new(Kind::Moto);
    let url = scene.url();
    let store = url.as_str();
    let raw = scene.file(4, 20);
    let import = ["--shape", "20", "--dtype", "int32", "--chunks", "5"];
    scene.done(&["mkgroup", store, "/", "--new"]);
    scene.done(&[&["import", &raw, store, "a"][..], &import].concat());
    let template = scene.folder.path().join("overlay");
    let shown = |overlay: &Path| -> Vec<String> {
        let listed = scene.done(&["ls", "--json", store, "--overlay", overlay.to_str().unwrap()]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let mut names: Vec<String> = Vec::new();
        collect(&listed, &mut names);
        names
    };
    scene.done(&["mkgroup", store, "g", "--overlay", template.to_str().unwrap()]);
    let old = shown(&template);
    let commands: [Vec<&str>; 2] =
        [[&["import", &raw, store, "n"][..], &import].concat(), vec!["rm", store, "a", "--yes"]];
    let at = |operations: &[Operation], errno: i32, numbers: &[u32]| -> Vec<(Operation, i32, u32)> {
        let of_one = |operation: &Operation| {
            let operation = *operation;
            numbers.iter().map(move |number| (operation, errno, *number))
        };
        operations.iter().flat_map(of_one).collect()
    };
    let deadly = [Operation::Create, Operation::Fdatasync, Operation::Rename, Operation::Write];
    let without_room = [Operation::Create, Operation::Mkdir, Operation::Write];
    let (kills_at, failures_at) = level::pick((&[2][..], &[1][..]), (&[1, 2, 5], &[1, 3]));
    let moments = [at(&deadly, KILL, kills_at), at(&without_room, libc::ENOSPC, failures_at)].concat();
    let (mut kills, mut failures) = (0, 0);
    for (place, command) in commands.iter().enumerate() {
        for &(operation, errno, number) in &moments {
            let overlay = scene.folder.path().join(format!("{place}-{operation:?}-{errno}-{number}"));
            copy(&template, &folder_of(&overlay));
            let Some(faults) = Faults::new(&overlay, "nodes over a bucket") else { return };
            faults.arm(operation, errno, number, number);
            let words = [&command[..], &["--overlay", overlay.to_str().unwrap()]].concat();
            let what = format!("{words:?}: {operation:?} {number} with {errno}");
            let environment: Vec<(&str, OsString)> = faults.environment();
            let output = scene.command(&words).envs(environment).output().unwrap();
            let has_fired = faults.fired() > 0;
            let found = shown(&overlay);
            if errno == KILL {
                kills += u32::from(has_fired);
            } else {
                failures += u32::from(has_fired);
                assert!(found != old || !output.status.success(), "{what}: {output:?}");
            }
            let _ = scene.run(&words);
            let new = shown(&overlay);
            assert!(found == old || found == new, "{what}: {found:?}");
            assert_ne!(new, old, "{what}");
        }
    }
    say(format!(
        "nodes over a bucket: {kills} commands were killed, {failures} found no room, none was half made or half gone"
    ));
    assert!(kills > level::pick(3, 10) && failures > level::pick(1, 4), "{kills}, {failures}");
}

/// Collects the names, kinds and shapes in a tree as `ls --json` shows it.
fn collect(node: &Value, names: &mut Vec<String>) {
    match node {
        Value::Array(nodes) => nodes.iter().for_each(|node| collect(node, names)),
        Value::Object(members) => {
            names.push(format!(
                "{:?} {:?} {:?}",
                members.get("path"),
                members.get("kind"),
                members.get("shape")
            ));
            members.values().filter(|value| value.is_array()).for_each(|value| collect(value, names));
        }
        _ => {}
    }
}

/// Runs a command that is killed when the service gets its change of this number; returns whether it was.
fn killed_at(service: &Service, mut command: Command, number: u64) -> (Output, bool) {
    // The rule waits for the lock until the command has its number.
    let process = Arc::new(Mutex::new(None::<u32>));
    let mut known = process.lock().unwrap();
    let fired = Arc::new(AtomicBool::new(false));
    let (of_command, is_fired) = (process.clone(), fired.clone());
    let mut count = 0;
    service.misbehave(move |asked| {
        count += u64::from(["PUT", "DELETE", "POST"].contains(&asked.method.as_str()));
        if count >= number && !is_fired.swap(true, Ordering::SeqCst) {
            let process = of_command.lock().unwrap().unwrap().to_string();
            assert!(Command::new("kill").args(["-KILL", &process]).status().unwrap().success());
        }
        None
    });
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    *known = Some(started.id());
    drop(known);
    let output = started.wait_with_output().unwrap();
    service.be_well();
    (output, fired.load(Ordering::SeqCst))
}

/// A commit to a bucket that is killed when the service gets its Nth change, before or after that is done, and then repeated.
#[test]
fn commits_to_a_bucket_are_killed_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder_of(&folder.path().join("store"));
    let raw = folder.path().join("raw");
    fs::write(&raw, 4i32.to_le_bytes().repeat(20)).unwrap();
    let service = Service::start(&place);
    let endpoint = service.endpoint();
    let url = format!("s3://{BUCKET}/data.zarr");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zarrfs"));
        command.args(words).args(["--endpoint-url", &endpoint, "--no-sign-request"]);
        command.env_remove("RUST_LOG").env("AWS_PROFILE", "");
        command
    };
    let done = |words: &[&str]| {
        let output = run(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let raw = raw.to_str().unwrap();
    let import = ["--shape", "20", "--dtype", "int32", "--chunks", "5"];
    let mut kills = 0;
    let mut rounds = 0;
    let mut number = 1;
    loop {
        // A store of its own for each round: two arrays; one is removed and one made anew in the overlay.
        let (url, overlay) = (format!("{url}/{number}"), folder.path().join(format!("overlay{number}")));
        let (store, overlay) = (url.as_str(), overlay.to_str().unwrap());
        done(&["mkgroup", store, "/", "--new"]);
        done(&["mkgroup", store, "g"]);
        done(&[&["import", raw, store, "g/gone"][..], &import].concat());
        done(&[&["import", raw, store, "anew"][..], &import].concat());
        let over = ["--overlay", overlay];
        done(&[&["rm", store, "g", "--yes"][..], &over].concat());
        done(&[&["rm", store, "anew", "--yes"][..], &over].concat());
        done(&[&["import", raw, store, "anew", "--shape", "10,2", "--dtype", "int32"][..], &over].concat());
        done(&[&["import", raw, store, "new"][..], &import, &over].concat());
        let expected = done(&["ls", store, "--overlay", overlay]);
        let (output, has_fired) = killed_at(&service, run(&["overlay", "commit", overlay]), number);
        kills += u32::from(has_fired);
        assert_eq!(output.status.success(), !has_fired, "round {number}: {output:?}");
        assert_eq!(done(&["ls", store, "--overlay", overlay]), expected, "round {number}");
        done(&["overlay", "commit", overlay]);
        assert_eq!(done(&["ls", store]), expected, "round {number}");
        for name in ["anew", "new"] {
            let bytes = run(&["cat", store, name]).output().unwrap().stdout;
            assert_eq!(bytes, 4i32.to_le_bytes().repeat(20), "round {number}: {name}");
        }
        rounds += 1;
        if !has_fired {
            break;
        }
        number += level::pick(3 + number / 2, 1 + number / 4);
    }
    say(format!(
        "commits to a bucket: killed at {kills} of {number} changes and repeated, 0 lost in {rounds} rounds"
    ));
    assert!(kills > level::pick(2, 5), "{kills}");
}
