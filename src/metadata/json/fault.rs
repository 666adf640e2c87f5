//! Why a document, or a part of one, is refused: a reason without the store key, which the caller adds.

use std::fmt;

use crate::error::Error;

/// A reason, in the words "member: what is wrong with it".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The document breaks the rules of its specification, or passes a limit.
    Invalid(String),
    /// The document requires something that this program does not support.
    Unsupported(String),
}

/// The result of reading a part of a document.
pub type ParseResult<T> = std::result::Result<T, Fault>;

impl Fault {
    /// Creates an error for a broken rule or limit.
    pub fn invalid(reason: impl fmt::Display) -> Self {
        Fault::Invalid(reason.to_string())
    }

    /// Creates an error for a feature that is not supported.
    pub fn unsupported(reason: impl fmt::Display) -> Self {
        Fault::Unsupported(reason.to_string())
    }

    /// Adds the name of the member in which the error was found.
    pub fn within(self, member: impl fmt::Display) -> Self {
        match self {
            Fault::Invalid(reason) => Fault::Invalid(format!("{member}: {reason}")),
            Fault::Unsupported(reason) => Fault::Unsupported(format!("{member}: {reason}")),
        }
    }

    /// Converts it to the crate's error for the document at `key`.
    pub fn into_error(self, key: &str) -> Error {
        match self {
            Fault::Invalid(reason) => Error::metadata(key, reason),
            Fault::Unsupported(reason) => Error::unsupported(key, reason),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Invalid(reason) | Fault::Unsupported(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Fault {}
