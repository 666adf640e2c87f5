//! Why an index does not give a slice.

use crate::error::Error;

/// Why an index does not give a slice.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It is not an index. A sentence says why.
    Syntax(String),
    /// The node does not have these elements. A sentence says why.
    Outside(String),
    /// A coordinate cannot be read.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Failed(error)
    }
}
