//! docs/semantics.md and docs/sidecar.md, held to what they show.
//!
//! Each fenced `sh` block of docs/semantics.md is an example: its commands (`$ `, continued by `> `) run one after the other in
//! one shell, in a folder with `sample.zarr` and its mount `mnt`, and what each prints is compared with the lines below it.
//! Each fenced `json` block of docs/sidecar.md is the text of a sidecar of the sample store.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::place::*;

const SEMANTICS: &str = include_str!("../../docs/semantics.md");
const SIDECAR: &str = include_str!("../../docs/sidecar.md");

/// How many examples run at a time.
const EXAMPLES_AT_ONCE: usize = 4;

/// Separates the output of one command from that of the next.
const SEPARATOR: char = '\x1e';

/// A command, and what it prints.
#[derive(Debug, Default)]
pub struct Step {
    pub command: String,
    pub output: String,
}

/// Returns the fenced blocks of a page in a language, each with the number of its first line.
pub fn blocks(page: &str, language: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(of) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
        if of == language {
            blocks.push((number + 2, body.join("\n") + "\n"));
        }
    }
    blocks
}

pub fn steps(example: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in example.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: format!("{command}\n"), output: String::new() });
            continue;
        }
        let step = steps.last_mut().expect("an example begins with a command");
        match line.strip_prefix("> ") {
            Some(more) if step.output.is_empty() => step.command += &format!("{more}\n"),
            _ => step.output += &format!("{line}\n"),
        }
    }
    steps
}

/// Returns a place with `sample.zarr`, mounted writable on `mnt`.
pub fn sample() -> Place {
    let place = Place::new();
    copy_demo(&place.folder.path().join("sample.zarr"));
    let arguments = ["mount", "--writable", "sample.zarr", "mnt"];
    let output = zarrfs_in(place.folder.path()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place
}

fn zarrfs_in(folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Returns what each step prints, both outputs together.
pub fn outputs(steps: &[Step], folder: &Path) -> Vec<String> {
    let mut script = String::from("exec 2>&1\n");
    for step in steps {
        script += &format!("printf '\\036'\n{}", step.command);
    }
    let mut path = OsString::from(Path::new(PROGRAM).parent().unwrap());
    path.push(":");
    // `python3` is the one of the other tests.
    let python = std::env::var_os("ZARRFS_TEST_PYTHON").map(PathBuf::from);
    if let Some(folder) = python.as_deref().and_then(Path::parent) {
        path.push(folder);
        path.push(":");
    }
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .envs([("PATH", path), ("LC_ALL", "C".into())])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(SEPARATOR).skip(1).map(str::to_owned).collect()
}

/// Returns what an example prints otherwise than the page shows.
fn differences(line: usize, example: &str) -> String {
    let mut wrong = String::new();
    let place = sample();
    let steps = steps(example);
    let outputs = outputs(&steps, place.folder.path());
    for (index, step) in steps.iter().enumerate() {
        let output = outputs.get(index).map_or("the shell has ended", String::as_str);
        if output != step.output {
            wrong += &format!(
                "\ndocs/semantics.md, example at line {line}\n$ {}--- shown\n{}--- printed\n{output}",
                step.command, step.output
            );
        }
    }
    if is_mounted(&place.mountpoint()) {
        let output = place.umount();
        if !output.status.success() {
            wrong += &format!("\nexample at line {line}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    wrong
}

#[test]
fn examples_print_what_the_page_shows() {
    if !can_mount() {
        return;
    }
    let examples = blocks(SEMANTICS, "sh");
    assert!(examples.len() >= 10, "{} examples are left", examples.len());
    // Each has a folder and a mount of its own, and some wait for attributes to expire.
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(String::new()));
    std::thread::scope(|scope| {
        for _ in 0..EXAMPLES_AT_ONCE {
            scope.spawn(|| {
                while let Some((line, example)) = examples.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = differences(*line, example);
                    wrong.lock().unwrap().push_str(&found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn promises_are_numbered_in_order() {
    let numbers =
        SEMANTICS.lines().filter_map(|line| line.strip_prefix("**")?.split_once('.')?.0.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    assert!(numbers.len() >= 10);
    assert!(numbers.iter().copied().eq(1..=numbers.len()), "{numbers:?}");
}

#[test]
fn sidecars_are_as_the_page_shows_them() {
    if !can_mount() {
        return;
    }
    let place = sample();
    let shown = blocks(SIDECAR, "json");
    assert!(!shown.is_empty());
    for (line, text) in shown {
        let sidecar: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("line {line}: {error}"));
        let path = sidecar["path"].as_str().unwrap().trim_start_matches('/');
        let is_array = sidecar.get("data_file").is_some();
        let file = if is_array { format!("{path}.json") } else { format!("{path}/__group__.json") };
        let real = std::fs::read_to_string(place.path(&file)).unwrap();
        assert_eq!(text, real, "docs/sidecar.md, line {line}: {file}");
    }
}

#[test]
fn every_member_of_a_sidecar_is_explained() {
    if !can_mount() {
        return;
    }
    let rows = SIDECAR.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let explained: BTreeSet<&str> = rows.map(|(member, _)| member).collect();
    let place = sample();
    let names = ["climate/temperature", "microscope/cells", "small/station_names", "version_2/events"];
    for file in names.map(|name| format!("{name}.json")).into_iter().chain(["climate/__group__.json".into()])
    {
        let text = std::fs::read_to_string(place.path(&file)).unwrap();
        let Value::Object(members) = serde_json::from_str(&text).unwrap() else { panic!("{file}: {text}") };
        for member in members.keys() {
            assert!(
                explained.contains(member.as_str()),
                "docs/sidecar.md explains no member {member:?} ({file})"
            );
        }
    }
}
