//! The choice of a snapshot in a repository, and the description of a snapshot. Uses `remote_options` and `error`.
//!
//! This file is part of every build, like the options of remote stores.

use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::store::is_repository;

/// The snapshot that a user asks for. By default it is the newest one of the branch `main`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionChoice {
    /// The newest snapshot of this branch.
    pub branch: Option<String>,
    /// The snapshot with this tag.
    pub tag: Option<String>,
    /// The snapshot with this ID.
    pub snapshot: Option<String>,
    /// The newest snapshot of the branch that is not later than this.
    pub at: Option<SystemTime>,
}

/// The branch that a repository has from its beginning.
pub const DEFAULT_BRANCH: &str = "main";

impl VersionChoice {
    /// Fails if the choice contradicts itself, or if the store has no versions.
    pub fn check(&self, location: &str) -> Result<()> {
        let given = [
            ("--branch", self.branch.is_some()),
            ("--tag", self.tag.is_some()),
            ("--snapshot", self.snapshot.is_some()),
            ("--at", self.at.is_some()),
        ];
        let given: Vec<&str> =
            given.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
        match given.as_slice() {
            [first, ..] if !is_repository(location) => Err(Error::Usage(format!(
                "{first}: {location} has no versions: a repository of Icechunk is named icechunk+URL or icechunk+PATH"
            ))),
            [] | [_] | ["--branch", "--at"] => Ok(()),
            [first, second, ..] => {
                Err(Error::Usage(format!("{first} and {second} name two snapshots: leave one out")))
            }
        }
    }

    /// Returns the branch whose newest snapshot is shown; `None` if one fixed snapshot is shown.
    pub fn followed(&self) -> Option<&str> {
        let is_fixed = self.tag.is_some() || self.snapshot.is_some() || self.at.is_some();
        (!is_fixed).then(|| self.branch_name())
    }

    /// Returns the branch that the choice refers to.
    pub fn branch_name(&self) -> &str {
        self.branch.as_deref().unwrap_or(DEFAULT_BRANCH)
    }
}

/// The description of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its ID.
    pub id: String,
    /// The time when it was created.
    pub time: SystemTime,
    /// The message of its author.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_snapshot_is_chosen() {
        let name = || Some("x".to_owned());
        let at = Some(SystemTime::UNIX_EPOCH);
        let repository = "icechunk+/data/r";
        let of_branch = VersionChoice { branch: name(), ..VersionChoice::default() };
        let of_time = VersionChoice { at, ..of_branch.clone() };
        let two = VersionChoice { tag: name(), ..of_branch.clone() };
        assert_eq!(VersionChoice::default().followed(), Some("main"));
        assert_eq!((of_branch.followed(), of_time.followed()), (Some("x"), None));
        assert!(of_branch.check(repository).is_ok() && of_time.check(repository).is_ok());
        assert!(two.check(repository).is_err() && of_branch.check("s3://bucket/r").is_err());
        assert!(VersionChoice { at, ..two }.check(repository).is_err());
        assert!(VersionChoice::default().check("/data/a.zarr").is_ok());
    }
}
