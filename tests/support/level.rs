//! How much the tests try: a sample of every kind (`quick`), or everything (`full`). The tests of the crate's inside use this file,
//! too, so that it uses nothing of the others.
//!
//! `scripts/test` runs the first, `scripts/test --all` the second, by `ZARRFS_TEST_LEVEL`. What needs programs that only the
//! second installs is `#[ignore]`d with the reason, and `scripts/test --all` includes it.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;
use std::str::FromStr;
use std::sync::OnceLock;

/// The variable that names the level.
const VARIABLE: &str = "ZARRFS_TEST_LEVEL";

/// Returns whether everything is tried. `quick` unless `ZARRFS_TEST_LEVEL` says `full`.
pub fn is_full() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Ok("full") => true,
        Ok("quick") | Err(_) => false,
        Ok(other) => panic!("{VARIABLE} is quick or full, not '{other}'"),
    }
}

/// Returns `quick` or `full`, by the level.
pub fn pick<T>(quick: T, full: T) -> T {
    if is_full() { full } else { quick }
}

/// Returns whether a case of a matrix is tried: all are, or one of `share` at the quick level. The commit decides which.
pub fn is_in_sample(case: &str, share: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (seed(), case).hash(&mut hasher);
    is_full() || hasher.finish().is_multiple_of(share)
}

/// Returns what chooses a sample: the commit, so that each commit tries other cases. `ZARRFS_TEST_SEED` repeats a sample that failed.
pub fn seed() -> &'static str {
    static SEED: OnceLock<String> = OnceLock::new();
    SEED.get_or_init(|| {
        if let Ok(seed) = std::env::var("ZARRFS_TEST_SEED") {
            return seed;
        }
        let folder = env!("CARGO_MANIFEST_DIR");
        let commit = Command::new("git").args(["-C", folder, "rev-parse", "--short=12", "HEAD"]).output();
        // The source of a release has no commits.
        let commit = commit
            .ok()
            .filter(|output| output.status.success())
            .map_or(b"0".to_vec(), |output| output.stdout);
        String::from_utf8_lossy(&commit).trim().to_owned()
    })
}

/// Returns what [`pick`] does, unless `variable` names another number: so a campaign goes beyond both levels.
pub fn count<T: FromStr<Err: Debug>>(variable: &str, quick: T, full: T) -> T {
    match std::env::var(variable) {
        Ok(number) => number.parse().unwrap_or_else(|error| panic!("{variable}={number}: {error:?}")),
        Err(_) => pick(quick, full),
    }
}
