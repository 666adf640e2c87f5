//! The files of a repository that an answer comes from, and the users who may read all of them. Uses `readers`.
//!
//! Spec: Icechunk, "Layout". A document comes from the file that names the snapshot and from the snapshot; a chunk also comes
//! from its manifest. A user who may not read one of these files, or may not search a folder above it, could not get the answer
//! without this program, and does not get it from this program. Files at a service have no owners and are never checked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::Result;
use crate::store::readers::{Audience, Readers};
use crate::store::targets::object::target_error;
use crate::store::versions::VersionChoice;
use crate::store::{Posix, Store};

/// The file that names all snapshots, branches and tags, in version 2 of the format.
const REPOSITORY: &str = "repo";
/// The configuration, in version 1 of the format.
const CONFIGURATION: &str = "config.yaml";

/// The files of a repository in a folder that lead to the snapshot that is shown.
pub(super) struct Sources {
    files: Arc<dyn Store>,
    /// The file or folder whose owner owns the content of the repository.
    owner_key: &'static str,
    entrance: Vec<String>,
}

impl Sources {
    /// Returns the files that lead to the chosen snapshot. `owner_key` is a file of the repository, or its folder.
    pub(super) fn new(files: Arc<dyn Store>, owner_key: &'static str, choice: &VersionChoice) -> Self {
        let reference = match (&choice.tag, &choice.snapshot) {
            (Some(tag), _) => Some(format!("refs/tag.{tag}/ref.json")),
            (None, Some(_)) => None,
            (None, None) => Some(format!("refs/branch.{}/ref.json", choice.branch_name())),
        };
        let named = [Some(REPOSITORY.to_owned()), Some(CONFIGURATION.to_owned()), reference];
        let is_there = |file: &String| !matches!(files.head_object(file), Ok(None));
        let entrance = named.into_iter().flatten().filter(is_there).collect();
        Sources { files, owner_key, entrance }
    }

    /// Begins checks of files for one request.
    pub(super) fn checks(&self) -> FileChecks<'_> {
        FileChecks { sources: self, seen: HashMap::new() }
    }
}

/// The files and folders that were checked for one request, each once.
pub(super) struct FileChecks<'a> {
    sources: &'a Sources,
    seen: HashMap<String, Option<Posix>>,
}

impl FileChecks<'_> {
    /// Returns the repository's owner and mode, with the permissions of users who may read these files and the files that lead
    /// to the snapshot; `None` if nothing has an owner.
    pub(super) fn posix(&mut self, key: &str, files: &[&str]) -> Result<Option<Posix>> {
        let sources = self.sources;
        let Some(owner) = self.file_posix(key, sources.owner_key)? else { return Ok(None) };
        let mut readers = Readers::for_posix(&owner);
        let entrance = sources.entrance.iter().map(String::as_str);
        for file in entrance.chain(files.iter().copied()) {
            for folder in folders_above(file) {
                if let Some(folder) = self.file_posix(key, folder)? {
                    readers = readers.that_may_search(&Readers::for_posix(&folder));
                }
            }
            if let Some(file) = self.file_posix(key, file)? {
                readers = readers.that_may_read(&Readers::for_posix(&file));
            }
        }
        Ok(Some(Posix { mode: readers.mode, file: None, ..owner }))
    }

    /// Returns owner and mode of a file or folder, if it exists. A file that was removed after it was read excludes no user.
    fn file_posix(&mut self, key: &str, file: &str) -> Result<Option<Posix>> {
        if let Some(posix) = self.seen.get(file) {
            return Ok(*posix);
        }
        let info = self.sources.files.head(file).map_err(|error| target_error(key, file, error))?;
        let posix = info.and_then(|info| info.posix);
        self.seen.insert(file.to_owned(), posix);
        Ok(posix)
    }
}

/// Returns the folders that lead to a file, from the repository's own down.
fn folders_above(file: &str) -> impl Iterator<Item = &str> {
    let below = file.match_indices('/').filter_map(|(at, _)| file.get(..at));
    std::iter::once("").chain(below)
}

/// The users who get what is read of one array.
pub(super) struct ArrayUsers {
    /// The users.
    pub audience: Arc<Audience>,
    /// The repository's files, with the permissions of these users.
    pub files: Arc<dyn Store>,
}

impl ArrayUsers {
    /// Fails unless all users may read these files. `checked` has the files that were already checked for the same request.
    pub(super) fn check(&self, key: &str, files: &[&str], checked: &mut HashSet<String>) -> Result<()> {
        for file in files {
            if !checked.contains(*file) {
                self.files.head_object(file).map_err(|error| target_error(key, file, error))?;
                checked.insert((*file).to_owned());
            }
        }
        Ok(())
    }
}
