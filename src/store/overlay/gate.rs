//! The gate that writers of an overlay pass, and the mark of a commit whose outcome is not known, which keeps it closed.
//!
//! The mark is a file in the overlay's folder, so that it outlives the process.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::folder::write_durably;
use crate::error::{Error, Result};

/// The name of the file with the mark.
pub(super) const PENDING: &str = "commit";
/// More than that file has.
const MAX_PENDING_BYTES: u64 = 64 << 10;

/// A transaction of which it is not known whether it was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub branch: String,
    pub mark: String,
}

/// What writers pass.
#[derive(Default)]
pub(super) struct Gate {
    pub unsettled: Option<Unsettled>,
}

pub(super) struct Unsettled {
    pub pending: Pending,
    /// It is of a process that has died: this one shows what its user has asked for.
    pub is_of_another: bool,
    /// When the base was asked last, and why it did not say.
    pub asked: Option<(Instant, Error)>,
}

/// What was changed while a commit was sending.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Objects.
    pub keys: BTreeSet<String>,
    /// Whole folders changed as well.
    pub has_folders: bool,
}

impl Pending {
    pub fn new(branch: &str) -> io::Result<Self> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Pending { branch: branch.to_owned(), mark: format!("{:032x}", u128::from_le_bytes(bytes)) })
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
            (Some(branch), Some(mark)) => Ok(Some(Pending { branch, mark })),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a member is missing")),
        }
    }

    pub fn note(&self, folder: &Path) -> io::Result<()> {
        let text = json!({"branch": self.branch, "mark": self.mark}).to_string();
        write_durably(folder, PENDING, &text)
    }

    pub fn remove(folder: &Path) -> io::Result<()> {
        match std::fs::remove_file(folder.join(PENDING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(folder)?.sync_all(),
        }
    }
}

impl Gate {
    /// Of an overlay's folder, in which a dead process may have left a mark.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        let cannot =
            |error| Error::Usage(format!("{}: cannot be read: {error}", folder.join(PENDING).display()));
        let pending = Pending::read(folder).map_err(cannot)?;
        let unsettled = pending.map(|pending| Unsettled { pending, is_of_another: true, asked: None });
        Ok(Gate { unsettled })
    }
}
