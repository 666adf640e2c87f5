//! The failures of requests, and the errors that they become. Uses `object_store`, `error` and the messages of `refusal`.
//!
//! Only 404 means that an object is missing, and, if the user says so, a 403 that does not reveal whether the object exists.
//! Every other failure is an error of the store. Its kind determines the errno.

use std::io;

use crate::error::Error;
use crate::store::remote::http::causes;
use crate::store::remote::replies::refusal::{Cause, Refusal};
use crate::store::remote_options::secrets::redacted;

/// The outcome of a request.
pub(in crate::store::remote) type Reply<T> = Result<T, RequestFailure>;

/// A request's failure.
#[derive(Clone, Debug)]
pub(in crate::store::remote) enum RequestFailure {
    /// The object is missing.
    Missing,
    /// The object is not the version that was requested.
    Changed,
    /// The object is the version that the caller has.
    NotModified,
    /// The store is offline, and the bytes are not in the disk cache.
    Offline,
    /// The range begins after the object's end.
    OutOfRange,
    /// Either the caller may not read the object, or it is missing: the service does not say which.
    Undisclosed(String),
    /// The caller may not do this.
    Forbidden(String),
    /// There was no reply, or one that says to try again later.
    Passing(String),
    /// The service does not support this kind of request.
    NotSupported(String),
    /// Any other failure.
    Other(io::ErrorKind, String),
}

impl From<object_store::Error> for RequestFailure {
    fn from(error: object_store::Error) -> Self {
        use object_store::Error as Remote;
        if let Some(refusal) = refusal(&error) {
            let text = refusal.text.clone();
            return match (refusal.cause, refusal.status) {
                (Cause::Undisclosed, _) => RequestFailure::Undisclosed(text),
                (Cause::Denied, _) => RequestFailure::Forbidden(text),
                (Cause::Account, _) => RequestFailure::Other(io::ErrorKind::PermissionDenied, text),
                (Cause::Other, 405 | 501) => RequestFailure::NotSupported(text),
                _ if refusal.is_temporary() => RequestFailure::Passing(text),
                _ => RequestFailure::Other(io::ErrorKind::Other, text),
            };
        }
        let sentence = causes(&error);
        match error {
            Remote::NotFound { .. } => RequestFailure::Missing,
            Remote::NotModified { .. } => RequestFailure::NotModified,
            Remote::Precondition { .. } | Remote::AlreadyExists { .. } => RequestFailure::Changed,
            Remote::NotSupported { .. } | Remote::NotImplemented { .. } => {
                RequestFailure::NotSupported(sentence)
            }
            _ if sentence.contains("status code: 416") || sentence.contains("Invalid range") => {
                RequestFailure::OutOfRange
            }
            _ => RequestFailure::Other(io::ErrorKind::Other, sentence),
        }
    }
}

/// Returns the refusal that caused an error.
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

impl RequestFailure {
    /// Converts the failure to the error of an operation on a key.
    pub(in crate::store::remote) fn at(self, key: &str, operation: &'static str) -> Error {
        let (kind, reason) = match self {
            RequestFailure::Missing => (io::ErrorKind::NotFound, "the object is missing".to_owned()),
            RequestFailure::Changed | RequestFailure::NotModified => {
                return Error::Stale { key: key.to_owned() };
            }
            RequestFailure::Offline => (
                io::ErrorKind::NetworkUnreachable,
                "it is not in the disk cache, and --offline asks no service".to_owned(),
            ),
            RequestFailure::OutOfRange => {
                (io::ErrorKind::UnexpectedEof, "the object is shorter than that".to_owned())
            }
            RequestFailure::Undisclosed(reason) | RequestFailure::Forbidden(reason) => {
                (io::ErrorKind::PermissionDenied, reason)
            }
            RequestFailure::Passing(reason) => (io::ErrorKind::Other, reason),
            RequestFailure::NotSupported(reason) => (io::ErrorKind::Unsupported, reason),
            RequestFailure::Other(kind, reason) => (kind, reason),
        };
        Error::store(key, operation, io::Error::new(kind, redacted(&reason)))
    }
}
