//! What the integration tests share: Python and the stores that it makes (`fixtures`), stores of others (`corpus`), servers of
//! object stores (`servers`), one that misbehaves (`misbehaving`), arrays to write to, small (`kinds`) and
//! larger (`uneven`), reading through the library (`library`), a mount that always ends (`mounted`), disks that fill up or fail
//! (`disk`), folders in memory and of processes (`folders`), faults in its daemon (`faulty`), requests by handle (`handles`), what a crash may leave (`manifest`), a place to try mounting in (`place`), references to
//! files of other formats (`references`), a store that is written while things break (`scene`), a store that calls a test's code
//! (`hooked`), stores that count or show other bytes (`stores`), stores of two users (`users`), tests that need a process to themselves (`own_process`), how much the tests try
//! (`level`). May use the crate, and nothing of the tests.

#![allow(dead_code, unused_imports)] // each test binary uses its part

pub mod corpus;
pub mod disk;
pub mod faults;
pub mod faulty;
pub mod fixtures;
pub mod folders;
pub mod handles;
pub mod hanging;
pub mod hooked;
pub mod kinds;
pub mod level;
pub mod library;
pub mod manifest;
pub mod misbehaving;
pub mod mounted;
pub mod own_process;
pub mod place;
pub mod references;
pub mod scene;
#[cfg(feature = "remote")]
pub mod servers;
pub mod stores;
pub mod uneven;
pub mod users;

use std::io::Write;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Writes to standard error past the capture of the test harness, so that it is seen when all is well, too.
pub fn say(sentence: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "{}", sentence.as_ref());
}

/// Says that a test was skipped. In continuous integration (`CI=true`) that is a failure, where `required`.
pub fn skip(what: &str, why: &str, required: bool) {
    say(format!("SKIPPED {what}: {why}"));
    assert!(!(required && std::env::var("CI").is_ok_and(|value| value == "true")), "{what}: {why}");
}

/// Returns the JSON in a file, such as a sidecar or a metadata document.
pub fn json_of(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names in a folder in order.
pub fn sorted_names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the names of unfinished files and folders in a folder of a store.
pub fn leftovers(folder: &Path) -> Vec<String> {
    sorted_names(folder).into_iter().filter(|name| name.starts_with(".zarrfs-")).collect()
}

/// Returns the digest as expected.json spells it.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers that look random and are the same in every run (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `end` (0 when `end` is 0).
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// Returns a range inside a file of `size` bytes: offset and length. Short ones as often as long ones.
    pub fn range(&mut self, size: u64) -> (u64, u64) {
        let offset = self.below(size + 1);
        let longest = match self.below(3) {
            0 => 16,
            1 => 5000,
            _ => size,
        };
        (offset, self.below((size - offset).min(longest) + 1))
    }
}
