//! The reason why a document, or a part of one, is refused. It has no store key: the caller adds it.

use std::fmt;

use crate::error::Error;

/// A reason, in the form "member: what is wrong with it".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The document breaks a rule of its specification, or exceeds a limit.
    Invalid(String),
    /// The document requires something that this program does not support.
    Unsupported(String),
}

/// The result of reading a part of a document.
pub type ParseResult<T> = std::result::Result<T, ParseError>;

impl ParseError {
    /// Creates an error for a broken rule or limit.
    pub fn invalid(reason: impl fmt::Display) -> Self {
        ParseError::Invalid(reason.to_string())
    }

    /// Creates an error for a feature that is not supported.
    pub fn unsupported(reason: impl fmt::Display) -> Self {
        ParseError::Unsupported(reason.to_string())
    }

    /// Adds the name of the member in which the error was found.
    pub fn within(self, member: impl fmt::Display) -> Self {
        match self {
            ParseError::Invalid(reason) => ParseError::Invalid(format!("{member}: {reason}")),
            ParseError::Unsupported(reason) => ParseError::Unsupported(format!("{member}: {reason}")),
        }
    }

    /// Converts it to the crate's error for the document at `key`.
    pub fn into_error(self, key: &str) -> Error {
        match self {
            ParseError::Invalid(reason) => Error::metadata(key, reason),
            ParseError::Unsupported(reason) => Error::unsupported(key, reason),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::Invalid(reason) | ParseError::Unsupported(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ParseError {}
