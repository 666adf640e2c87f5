//! The gate that every writer of an overlay passes. It is closed while the outcome of a commit is not known. Uses `folder/`.
//!
//! The mark of that commit is a file in the overlay's folder, so that it outlives the process.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::store::overlay::folder::write_durably;

/// The name of the file with the mark.
const PENDING: &str = "commit";
/// A longer file is not read.
const MAX_PENDING_BYTES: u64 = 64 << 10;

/// A transaction that may have been published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCommit {
    pub branch: String,
    pub mark: String,
}

/// The gate that every writer passes.
#[derive(Default)]
pub struct CommitGate {
    /// Present while the gate is closed.
    pub unsettled: Option<UnsettledCommit>,
}

/// A commit whose outcome is not known.
pub struct UnsettledCommit {
    pub pending: PendingCommit,
    /// Whether a process that has died has begun it. Then this process keeps to the branch that its user has asked for.
    pub is_inherited: bool,
    /// When the base was last asked for the outcome, and the error that it gave.
    pub asked: Option<(Instant, Error)>,
}

/// The changes that were made while a commit was sending.
#[derive(Debug, Default)]
pub struct RecordedChanges {
    /// The keys of objects.
    pub keys: BTreeSet<String>,
    /// Whether folders were created, renamed or removed.
    pub has_folders: bool,
}

impl PendingCommit {
    /// Returns a commit to a branch, with a random mark.
    pub fn new(branch: &str) -> io::Result<Self> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(PendingCommit { branch: branch.to_owned(), mark: format!("{:032x}", u128::from_le_bytes(bytes)) })
    }

    fn read(folder: &Path) -> io::Result<Option<Self>> {
        let mut text = String::new();
        match File::open(folder.join(PENDING)) {
            Ok(file) => file.take(MAX_PENDING_BYTES).read_to_string(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let members: Value = serde_json::from_str(&text)?;
        let member = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
        match (member("branch"), member("mark")) {
            (Some(branch), Some(mark)) => Ok(Some(PendingCommit { branch, mark })),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a member is missing")),
        }
    }

    /// Writes the mark into the overlay's folder, durably.
    pub fn record(&self, folder: &Path) -> io::Result<()> {
        let text = json!({"branch": self.branch, "mark": self.mark}).to_string();
        write_durably(folder, PENDING, &text)
    }

    /// Removes the mark from the overlay's folder, durably.
    pub fn remove(folder: &Path) -> io::Result<()> {
        match std::fs::remove_file(folder.join(PENDING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(folder)?.sync_all(),
        }
    }
}

impl CommitGate {
    /// Returns the gate of an overlay's folder, in which a dead process may have left a mark.
    pub fn read(folder: &Path) -> Result<Self> {
        let cannot =
            |error| Error::Usage(format!("{}: cannot be read: {error}", folder.join(PENDING).display()));
        let pending = PendingCommit::read(folder).map_err(cannot)?;
        let unsettled = pending.map(|pending| UnsettledCommit { pending, is_inherited: true, asked: None });
        Ok(CommitGate { unsettled })
    }
}
