//! Faults in the daemon's own system calls: the Nth operation on the store fails, or is the last that the daemon does.
//!
//! A library in C (tests/programs/faulty.c) is preloaded into the daemon; a file shared with it says what is to happen.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::NamedTempFile;

use super::{level, skip};

/// What the daemon does to its store. The numbers are those of faulty.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// openat(2) that makes a file.
    Create = 0,
    /// write(2)
    Write = 1,
    /// fdatasync(2)
    Fdatasync = 2,
    /// renameat(2)
    Rename = 3,
    /// fsync(2)
    Fsync = 4,
    /// mkdirat(2)
    Mkdir = 5,
    /// unlinkat(2)
    Unlink = 6,
    /// pread(2)
    Read = 7,
}

/// All that changes a store.
pub const CHANGES: [Operation; 7] = [
    Operation::Create,
    Operation::Write,
    Operation::Fdatasync,
    Operation::Rename,
    Operation::Fsync,
    Operation::Mkdir,
    Operation::Unlink,
];

/// In the place of an errno: SIGKILL, after half of a write.
pub const KILL: i32 = 1000;

/// In the place of an errno: the operation does nothing and returns success. For syncs only.
pub const SKIP: i32 = 1001;

const WORD_OPERATION: u64 = 0;
const WORD_ACTION: u64 = 1;
const WORD_FIRST: u64 = 2;
const WORD_LAST: u64 = 3;
const WORD_FIRED: u64 = 4;
const WORD_COUNTS: u64 = 8;
const WORDS: u64 = 16;

/// The end of a series of runs that each fail at one operation: no run has as many operations.
const BEYOND_ANY_RUN: u32 = 1_000_000;

/// Returns the operation at which the next run of a series fails. The quick level tries the first operation only, and then a run without
/// a fault; the full level tries `usual`, and `ZARRFS_CRASH_POINTS=all` each one.
pub fn next_point(number: u32, usual: u32) -> u32 {
    if tries_every_point() { number + 1 } else { level::pick(BEYOND_ANY_RUN, usual) }
}

/// Returns whether this is the campaign that fails at each operation, which takes longer than either level.
pub fn tries_every_point() -> bool {
    std::env::var("ZARRFS_CRASH_POINTS").is_ok_and(|points| points == "all")
}

/// Faults of one daemon.
pub struct Faults {
    shared: NamedTempFile,
    store: PathBuf,
}

impl Faults {
    /// Makes a set without faults for a daemon over this store. `None`, with a message, without a C compiler.
    pub fn new(store: &Path, what: &str) -> Option<Faults> {
        library(what)?;
        let shared = NamedTempFile::new().unwrap();
        shared.as_file().set_len(WORDS * 4).unwrap();
        Some(Faults { shared, store: store.to_owned() })
    }

    /// Returns what the daemon is to be started with.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let library = library("faults").unwrap();
        vec![
            ("LD_PRELOAD", library.into()),
            ("ZARRFS_TEST_FAULT", self.shared.path().into()),
            ("ZARRFS_TEST_STORE", self.store.clone().into()),
        ]
    }

    fn set(&self, word: u64, value: u32) {
        self.shared.as_file().write_all_at(&value.to_le_bytes(), word * 4).unwrap();
    }

    fn get(&self, word: u64) -> u32 {
        let mut bytes = [0; 4];
        self.shared.as_file().read_exact_at(&mut bytes, word * 4).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// Lets the operations numbered `first` to `last` (from 1) fail with this errno, or [`KILL`].
    pub fn arm(&self, operation: Operation, errno: i32, first: u32, last: u32) {
        self.clear();
        (WORD_FIRED..WORDS).for_each(|word| self.set(word, 0));
        self.set(WORD_OPERATION, operation as u32);
        self.set(WORD_FIRST, first);
        self.set(WORD_LAST, last);
        self.set(WORD_ACTION, errno as u32);
    }

    /// Lets nothing fail any more.
    pub fn clear(&self) {
        self.set(WORD_ACTION, 0);
    }

    /// Returns how many operations failed since it was armed.
    pub fn fired(&self) -> u32 {
        self.get(WORD_FIRED)
    }

    /// Returns how many operations of a kind there were since it was armed.
    pub fn count(&self, operation: Operation) -> u32 {
        self.get(WORD_COUNTS + operation as u64)
    }
}

/// Returns the preloaded library.
fn library(what: &str) -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY.get_or_init(|| compiled("faulty.c", &["-shared", "-fPIC"], what)).as_deref()
}

/// Compiles one of tests/programs. `None`, with a message, without a C compiler.
pub fn compiled(source: &str, options: &[&str], what: &str) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        skip(what, "cc is not installed", true);
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join(source.file_stem().unwrap());
    // Other tests may be running the one that is there, or compiling it at the same time.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let fresh = program.with_extension(format!("{}-{call}", std::process::id()));
    let output =
        Command::new("cc").arg("-O1").args(options).arg("-o").arg(&fresh).arg(&source).output().unwrap();
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&fresh, &program).unwrap();
    assert!(File::open(&program).is_ok());
    Some(program)
}
