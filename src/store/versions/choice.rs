//! Which snapshot of a repository is shown, and what is told of snapshots. Uses `remote_options` and `error`.
//!
//! Part of every build, like the options of remote stores.

use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::store::is_repository;

/// The snapshot that a user asks for; without any of these, the newest one of the branch `main`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionChoice {
    /// The newest snapshot of this branch.
    pub branch: Option<String>,
    /// The snapshot with this tag.
    pub tag: Option<String>,
    /// The snapshot with this ID.
    pub snapshot: Option<String>,
    /// The newest snapshot of the branch that is not later.
    pub at: Option<SystemTime>,
}

/// The branch that a repository has from its beginning.
pub const DEFAULT_BRANCH: &str = "main";

impl VersionChoice {
    /// Refuses a choice that contradicts itself, or is made for a store without versions.
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

    /// The branch whose newest snapshot is shown; `None` where a snapshot is shown that stays.
    pub fn followed(&self) -> Option<&str> {
        let is_fixed = self.tag.is_some() || self.snapshot.is_some() || self.at.is_some();
        (!is_fixed).then(|| self.branch_name())
    }

    /// The branch that the choice is about.
    pub fn branch_name(&self) -> &str {
        self.branch.as_deref().unwrap_or(DEFAULT_BRANCH)
    }
}

/// What is told of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its ID.
    pub id: String,
    /// When it was made.
    pub time: SystemTime,
    /// What its author says of it.
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
