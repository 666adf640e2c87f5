//! Tests that need a process to themselves, though the other tests of their binary run as threads at the same time.
//!
//! A child process that another test starts has copies of all open files until its exec(2) closes them. Each close is a
//! close(2) to FUSE: it stores what was written so far, and while it lasts the file, its locks and its mount stay in use. So a test
//! runs by itself if it holds files and depends on when they are stored or closed, or if it measures its own process.

use std::process::{Command, Stdio};

/// Names the test in the environment of its own process.
const TEST: &str = "ZARRFS_TEST_OWN_PROCESS";

/// Runs the calling test in a process of its own and returns true, so that there is nothing left to do; false in that process.
/// The first thing that a test calls if it needs a process to itself.
pub fn has_run() -> bool {
    has_run_with(&[])
}

/// Does what [`has_run`] does, with further variables in the process's environment.
pub fn has_run_with(environment: &[(&str, &str)]) -> bool {
    let thread = std::thread::current();
    // A test has a thread, which is named after it, unless tests run one after the other.
    let Some(test) = thread.name().filter(|name| *name != "main") else { return false };
    if std::env::var_os(TEST).is_some_and(|name| name == test) {
        return false;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(TEST, test)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // Indented: it has lines that look like those of the whole run.
    let shown = text.replace('\n', "\n    ");
    assert!(output.status.success() && text.contains("1 passed"), "in its own process: {shown}");
    true
}
