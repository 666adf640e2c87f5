//! What a failure of the crate `icechunk` means here: an error with its key and its reason.
//!
//! Its errors print the spans in which they arose over several lines, which no user needs: only their kinds are worded. A failure
//! of the repository's own store (`storage.rs`) is among the causes of the crate's error, and is reported as it is.

use std::error::Error as Cause;
use std::io;

use icechunk::session::{SessionError, SessionErrorKind};

use crate::error::Error;

/// The error of an operation on a key.
pub(super) fn failed<K: Cause + 'static>(key: &str, operation: &'static str, kind: &K) -> Error {
    if let Some(error) = of_store(kind) {
        return match error {
            Error::Store { key: file, source, .. } => {
                let reason = io::Error::new(source.kind(), format!("{file}: {source}"));
                Error::store(key, operation, reason)
            }
            Error::TooLarge { key: file, reason } => {
                Error::TooLarge { key: key.to_owned(), reason: format!("{file}: {reason}") }
            }
            other => other.clone(),
        };
    }
    Error::store(key, operation, io::Error::other(sentence(kind)))
}

/// The failure of the repository's store among the causes.
fn of_store<'a>(kind: &'a (dyn Cause + 'static)) -> Option<&'a Error> {
    let mut cause = Some(kind);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

/// A kind with its causes, each once, on one line.
pub(super) fn sentence(kind: &dyn Cause) -> String {
    let mut sentence = kind.to_string();
    let mut cause = kind.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // An error with its context: the kind is its cause.
        let text = text.split("\n\ncontext:").next().unwrap_or_default();
        if !sentence.contains(text) {
            sentence.push_str(": ");
            sentence.push_str(text);
        }
        cause = error.source();
    }
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether an error says that there is no such node, and nothing else.
pub(super) fn is_missing(error: &SessionError) -> bool {
    matches!(error.kind, SessionErrorKind::NodeNotFound { .. } | SessionErrorKind::NotAnArray { .. })
}
