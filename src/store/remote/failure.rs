//! What a service's failures mean. Uses `object_store` and `error`.
//!
//! 404 means that an object is missing, and nothing else does, unless the user says that 403 does, too. Everything else is an
//! error of the store with the kind that the kernel's number follows from.

use std::io;

use crate::error::Error;

/// What became of a request.
pub(super) type Reply<T> = Result<T, Failure>;

/// A request's failure.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// There is no such object.
    Missing,
    /// The object is another version than the one that was asked for.
    Changed,
    /// The range begins after the object's end.
    OutOfRange,
    /// The service does not know this kind of request.
    NotSupported(String),
    /// Anything else.
    Other(io::ErrorKind, String),
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error as Remote;
        let sentence = causes(&error);
        match error {
            Remote::NotFound { .. } => Failure::Missing,
            Remote::Precondition { .. } | Remote::NotModified { .. } | Remote::AlreadyExists { .. } => {
                Failure::Changed
            }
            Remote::NotSupported { .. } | Remote::NotImplemented { .. } => Failure::NotSupported(sentence),
            Remote::PermissionDenied { .. } => Failure::Other(
                io::ErrorKind::PermissionDenied,
                format!(
                    "403, access denied (a bucket that you may not list answers so for missing objects, \
                     too: --missing-status 403): {sentence}"
                ),
            ),
            Remote::Unauthenticated { .. } => Failure::Other(
                io::ErrorKind::PermissionDenied,
                format!("401, the credentials are missing, wrong or expired: {sentence}"),
            ),
            _ if sentence.contains("416") || sentence.contains("Invalid range") => Failure::OutOfRange,
            _ => Failure::Other(io::ErrorKind::Other, sentence),
        }
    }
}

impl Failure {
    /// As an error of an operation on a key.
    pub(super) fn at(self, key: &str, operation: &'static str) -> Error {
        let (kind, reason) = match self {
            Failure::Missing => (io::ErrorKind::NotFound, "the object is missing".to_owned()),
            Failure::Changed => return Error::Stale { key: key.to_owned() },
            Failure::OutOfRange => {
                (io::ErrorKind::UnexpectedEof, "the object is shorter than that".to_owned())
            }
            Failure::NotSupported(reason) => (io::ErrorKind::Unsupported, reason),
            Failure::Other(kind, reason) => (kind, reason),
        };
        Error::store(key, operation, io::Error::new(kind, reason))
    }
}

/// An error with its causes, each of them once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !sentence.contains(&text) {
            sentence.push_str(": ");
            sentence.push_str(&text);
        }
        cause = error.source();
    }
    sentence
}
