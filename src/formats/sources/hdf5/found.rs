//! Datasets, and their names.
//!
//! Uses its neighbours above.

use hdf5_reader::Dataset;

use crate::error::Error;
use crate::formats::sources::variable::refused;

/// The prefix of a variable that has the name of a dimension, and is not its coordinate.
const NOT_COORDINATE: &str = "_nc4_non_coord_";

/// A dataset, and its place in the file.
pub struct Found {
    /// The path of its group.
    pub group: String,
    /// The dataset.
    pub dataset: Dataset,
}

impl Found {
    /// Returns the name of the variable.
    pub fn name(&self) -> &str {
        let name = leaf(self.dataset.name());
        name.strip_prefix(NOT_COORDINATE).unwrap_or(name)
    }

    /// Returns the path of the variable.
    pub fn path(&self) -> String {
        join(&self.group, self.name())
    }
}

/// Returns the last name of a path.
pub fn leaf(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the path of a name in a group.
pub fn join(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") }
}

/// Returns the error for a variable that cannot be brought in.
pub fn unsupported(name: &str, path: &str, what: &str) -> Error {
    refused(name, format!("'{path}' has {what}; '--exclude {path}' leaves it out"))
}
