//! What a failure means for the kernel. Uses `object_store`, `error` and the sentences of `refusal`.
//!
//! 404 means that an object is missing, and nothing else does, unless the user says that 403 does, too: and then only a 403 that does
//! not say whether there is such an object. Everything else is an error of the store with the kind that the kernel's number follows
//! from.

use std::io;

use crate::error::Error;
use crate::store::remote::client::causes;
use crate::store::remote::replies::refusal::{Cause, Refusal};
use crate::store::remote_options::secrets::redacted;

/// What became of a request.
pub(in crate::store::remote) type Reply<T> = Result<T, Failure>;

/// A request's failure.
#[derive(Clone, Debug)]
pub(in crate::store::remote) enum Failure {
    /// The object is missing.
    Missing,
    /// The object is another version than the one that was asked for.
    Changed,
    /// The object is the version that the caller has.
    NotModified,
    /// Nothing is asked of the service, and the disk cache does not have it.
    Offline,
    /// The range begins after the object's end.
    OutOfRange,
    /// The caller may not read the object, or there is none: the service does not say which.
    Undisclosed(String),
    /// The caller may not do this.
    Forbidden(String),
    /// No reply came, or one that says to try again later.
    Passing(String),
    /// The service does not know this kind of request.
    NotSupported(String),
    /// Anything else.
    Other(io::ErrorKind, String),
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error as Remote;
        if let Some(refusal) = refusal(&error) {
            let text = refusal.text.clone();
            return match (refusal.cause, refusal.status) {
                (Cause::Undisclosed, _) => Failure::Undisclosed(text),
                (Cause::Denied, _) => Failure::Forbidden(text),
                (Cause::Account, _) => Failure::Other(io::ErrorKind::PermissionDenied, text),
                (Cause::Other, 405 | 501) => Failure::NotSupported(text),
                _ if refusal.is_temporary() => Failure::Passing(text),
                _ => Failure::Other(io::ErrorKind::Other, text),
            };
        }
        let sentence = causes(&error);
        match error {
            Remote::NotFound { .. } => Failure::Missing,
            Remote::NotModified { .. } => Failure::NotModified,
            Remote::Precondition { .. } | Remote::AlreadyExists { .. } => Failure::Changed,
            Remote::NotSupported { .. } | Remote::NotImplemented { .. } => Failure::NotSupported(sentence),
            _ if sentence.contains("status code: 416") || sentence.contains("Invalid range") => {
                Failure::OutOfRange
            }
            _ => Failure::Other(io::ErrorKind::Other, sentence),
        }
    }
}

/// The refusal that an error comes from.
fn refusal(error: &object_store::Error) -> Option<&Refusal> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref() {
            return Some(refusal);
        }
        cause = error.source();
    }
    None
}

impl Failure {
    /// As an error of an operation on a key.
    pub(in crate::store::remote) fn at(self, key: &str, operation: &'static str) -> Error {
        let (kind, reason) = match self {
            Failure::Missing => (io::ErrorKind::NotFound, "the object is missing".to_owned()),
            Failure::Changed | Failure::NotModified => return Error::Stale { key: key.to_owned() },
            Failure::Offline => (
                io::ErrorKind::NetworkUnreachable,
                "it is not in the disk cache, and --offline asks no service".to_owned(),
            ),
            Failure::OutOfRange => {
                (io::ErrorKind::UnexpectedEof, "the object is shorter than that".to_owned())
            }
            Failure::Undisclosed(reason) | Failure::Forbidden(reason) => {
                (io::ErrorKind::PermissionDenied, reason)
            }
            Failure::Passing(reason) => (io::ErrorKind::Other, reason),
            Failure::NotSupported(reason) => (io::ErrorKind::Unsupported, reason),
            Failure::Other(kind, reason) => (kind, reason),
        };
        Error::store(key, operation, io::Error::new(kind, redacted(&reason)))
    }
}
