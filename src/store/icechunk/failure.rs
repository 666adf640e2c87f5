//! Failures of the crate `icechunk`, as errors with a key and a reason.
//!
//! The crate's errors print the spans in which they arose over several lines, which no user needs, so only their kinds are
//! shown. A failure of the repository's own store (`storage.rs`) is among the causes of the crate's error, and is reported
//! unchanged.

use std::error::Error as Cause;
use std::io;

use icechunk::session::{SessionError, SessionErrorKind};

use crate::error::Error;

/// Returns the error of an operation on a key.
pub(super) fn failed<K: Cause + 'static>(key: &str, operation: &'static str, kind: &K) -> Error {
    if let Some(error) = store_error(kind) {
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

/// Returns the failure of the repository's store among the causes.
fn store_error<'a>(kind: &'a (dyn Cause + 'static)) -> Option<&'a Error> {
    let mut cause = Some(kind);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

/// Returns a kind with its causes, each once, on one line.
pub(super) fn sentence(kind: &dyn Cause) -> String {
    let mut sentence = kind.to_string();
    let mut cause = kind.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // This is an error with its context: the kind is its cause.
        let text = text.split("\n\ncontext:").next().unwrap_or_default();
        if !sentence.contains(text) {
            sentence.push_str(": ");
            sentence.push_str(text);
        }
        cause = error.source();
    }
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether an error says that the node does not exist.
pub(super) fn is_missing(error: &SessionError) -> bool {
    matches!(error.kind, SessionErrorKind::NodeNotFound { .. } | SessionErrorKind::NotAnArray { .. })
}
