//! The one error of the crate: what failed, where in the store, and why.
//!
//! Every variant that concerns stored data names the store key. [`Error::errno`] is the only place
//! where an error becomes a number for the kernel, by an exhaustive match. Uses nothing else of the
//! crate. Cloneable, because one failure may be reported to many waiting readers.

use std::fmt;
use std::sync::Arc;

/// An error, with the store key that it concerns.
#[derive(Clone, Debug)]
pub enum Error {
    /// The store itself failed on this key (permission, I/O, a link out of the store, …).
    Store {
        /// The store key.
        key: String,
        /// The operation, as a verb: "open", "read", "list"; empty where `source` is a sentence of its own.
        operation: &'static str,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// A metadata document that breaks the rules: it is not JSON, or a member is missing or of the wrong type.
    Metadata {
        /// The store key of the document.
        key: String,
        /// The member and what is wrong with it.
        reason: String,
    },
    /// A well-formed feature that this program does not support: a codec, a data type, an extension.
    Unsupported {
        /// The store key of the document that asks for it.
        key: String,
        /// The feature, by its stored name.
        reason: String,
    },
    /// A folder that the service does not list, or not for this caller. Its other contents are unknown.
    Unlisted {
        /// The store key of the folder.
        key: String,
        /// Why.
        reason: String,
    },
    /// A stored object that cannot be decoded.
    Corrupt {
        /// The store key of the object.
        key: String,
        /// The decoder's reason.
        reason: String,
    },
    /// A file that exceeds the memory limit.
    TooLarge {
        /// The store key of the array's document, or of the object.
        key: String,
        /// The size, and the limit.
        reason: String,
    },
    /// A value that the codec chain of the array cannot encode.
    Unencodable {
        /// The store key of the chunk that was to be written.
        key: String,
        /// The codec and the value.
        reason: String,
    },
    /// A value that the data type does not have (a bool byte other than 0 and 1).
    InvalidValue(String),
    /// A file that was cut short (O_TRUNC, ftruncate) or became longer, and was closed before it was written to its end.
    CutShort {
        /// The bytes that were written.
        written_bytes: u64,
        /// The length of the file.
        size_bytes: u64,
        /// Whether it became longer, so that the rest is new.
        is_growth: bool,
    },
    /// The metadata of an open array changed: the handle no longer fits the stored data.
    Stale {
        /// The store key of the document.
        key: String,
    },
    /// An object is not, or no longer, the version that a change was based on.
    Changed {
        /// The store key.
        key: String,
    },
    /// The mount or the store takes no writes.
    ReadOnly(String),
    /// A store operation exceeded its deadline.
    TimedOut {
        /// The store key.
        key: String,
    },
    /// The work for a request ended early, because the request already has its reply. Programs never see this error.
    Cancelled {
        /// The next store key.
        key: String,
    },
    /// A user error: a bad option, a wrong path. The text is one sentence that says what to do.
    Usage(String),
}

/// The result of an operation that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns the store key in an error, shared or mutable as the reference to the error is.
macro_rules! key_in {
    ($error:expr) => {
        match $error {
            Error::Store { key, .. }
            | Error::Metadata { key, .. }
            | Error::Unsupported { key, .. }
            | Error::Unlisted { key, .. }
            | Error::Corrupt { key, .. }
            | Error::TooLarge { key, .. }
            | Error::Unencodable { key, .. }
            | Error::Stale { key }
            | Error::Changed { key }
            | Error::TimedOut { key }
            | Error::Cancelled { key } => Some(key),
            Error::InvalidValue(_) | Error::CutShort { .. } | Error::ReadOnly(_) | Error::Usage(_) => None,
        }
    };
}

impl Error {
    /// Creates the error for a failure of the store: the operating system's error for `operation` on `key`.
    pub fn store(key: impl Into<String>, operation: &'static str, source: std::io::Error) -> Self {
        Error::Store { key: key.into(), operation, source: Arc::new(source) }
    }
    /// Creates the error for an object that other writers keep busy (EBUSY). `reason` is a sentence of its own.
    pub fn busy(key: impl Into<String>, reason: impl Into<String>) -> Self {
        let source = std::io::Error::new(std::io::ErrorKind::ResourceBusy, reason.into());
        Error::Store { key: key.into(), operation: "", source: Arc::new(source) }
    }
    /// Creates the error for a broken metadata document.
    pub fn metadata(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Metadata { key: key.into(), reason: reason.into() }
    }
    /// Creates the error for a feature that is not supported.
    pub fn unsupported(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Unsupported { key: key.into(), reason: reason.into() }
    }
    /// Creates the error for an object that cannot be decoded.
    pub fn corrupt(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Corrupt { key: key.into(), reason: reason.into() }
    }

    /// Returns the error for the same object in a store that has everything below a folder: the key begins with that folder.
    #[must_use]
    pub fn below(mut self, folder: &str) -> Self {
        if let Some(key) = key_in!(&mut self) {
            *key = if key.is_empty() { folder.to_owned() } else { format!("{folder}/{key}") };
        }
        self
    }

    /// Returns the store key that the error is about.
    pub fn key(&self) -> Option<&str> {
        key_in!(self).map(String::as_str)
    }

    /// Explains why the object at `key` could not be stored, given that this was the last failure of its array. A
    /// reason that concerns the whole array comes without the key. `None` if the error concerns another object only.
    pub fn reason_for(&self, key: &str) -> Option<String> {
        let text = self.to_string();
        let Some(failed) = self.key() else { return Some(text) };
        let is_of_one = matches!(
            self,
            Error::Metadata { .. }
                | Error::Unsupported { .. }
                | Error::Corrupt { .. }
                | Error::TooLarge { .. }
                | Error::Changed { .. }
                | Error::Unencodable { .. }
        );
        let reason = text.strip_prefix(failed).and_then(|rest| rest.strip_prefix(": "));
        (failed == key || !is_of_one).then(|| reason.unwrap_or(&text).to_owned())
    }

    /// Returns the error number for the kernel, and so for the program that reads.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Store { source, .. } => source.raw_os_error().unwrap_or(match source.kind() {
                std::io::ErrorKind::ResourceBusy => libc::EBUSY,
                std::io::ErrorKind::PermissionDenied => libc::EACCES,
                std::io::ErrorKind::CrossesDevices => libc::EXDEV,
                std::io::ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
                _ => libc::EIO,
            }),
            Error::Metadata { .. } | Error::Corrupt { .. } => libc::EIO,
            Error::Unsupported { .. } | Error::Unlisted { .. } => libc::EOPNOTSUPP,
            Error::TooLarge { .. } => libc::EFBIG,
            Error::Unencodable { .. } => libc::EDOM,
            Error::InvalidValue(_) | Error::CutShort { .. } | Error::Usage(_) => libc::EINVAL,
            Error::Stale { .. } => libc::ESTALE,
            Error::Changed { .. } => libc::EBUSY,
            Error::ReadOnly(_) => libc::EROFS,
            Error::TimedOut { .. } | Error::Cancelled { .. } => libc::EIO,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |key: &str| if key.is_empty() { "(root)".to_owned() } else { key.to_owned() };
        match self {
            Error::Store { key, operation: "", source } => write!(f, "{}: {source}", name(key)),
            Error::Store { key, operation, source } => {
                write!(f, "{}: cannot {operation}: {source}", name(key))
            }
            Error::Metadata { key, reason } => write!(f, "{}: {reason}", name(key)),
            Error::Unsupported { key, reason } => write!(f, "{}: not supported: {reason}", name(key)),
            Error::Unlisted { key, reason } => write!(f, "{}: cannot be listed: {reason}", name(key)),
            Error::Corrupt { key, reason } => write!(f, "{}: cannot be decoded: {reason}", name(key)),
            Error::TooLarge { key, reason } => write!(f, "{}: too large: {reason}", name(key)),
            Error::Unencodable { key, reason } => write!(f, "{}: cannot be encoded: {reason}", name(key)),
            Error::InvalidValue(reason) => write!(f, "invalid value: {reason}"),
            Error::CutShort { written_bytes, size_bytes, is_growth } => {
                let (written, size) = (grouped(*written_bytes), grouped(*size_bytes));
                let rest = grouped(size_bytes.saturating_sub(*written_bytes));
                write!(f, "{written} of {size} bytes were written; ")?;
                if *is_growth {
                    write!(f, "the last row lacks {rest} bytes, which are fill value now")
                } else {
                    write!(f, "the rest is unchanged")
                }
            }
            Error::Stale { key } => write!(f, "{}: changed while the array was open", name(key)),
            Error::Changed { key } => write!(f, "{}: changed by another program meanwhile", name(key)),
            Error::ReadOnly(reason) => write!(f, "read-only: {reason}"),
            Error::TimedOut { key } => write!(f, "{}: the store did not answer in time", name(key)),
            Error::Cancelled { key } => write!(f, "{}: the request was given up", name(key)),
            Error::Usage(sentence) => f.write_str(sentence),
        }
    }
}

/// Formats a number with a comma after every three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Store { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errnos that docs/semantics.md promises.
    #[test]
    fn every_variant_has_its_errno() {
        let key = || "a".to_owned();
        let too_large = Error::TooLarge { key: key(), reason: "r".to_owned() };
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let cases = [
            (Error::store("a", "read", std::io::Error::from_raw_os_error(libc::ENOSPC)), libc::ENOSPC),
            (Error::store("a", "read", denied), libc::EACCES),
            (Error::store("a", "read", std::io::Error::other("a reset")), libc::EIO),
            (Error::busy("a", "r"), libc::EBUSY),
            (Error::metadata("a", "r"), libc::EIO),
            (Error::unsupported("a", "r"), libc::EOPNOTSUPP),
            (Error::Unlisted { key: key(), reason: "r".to_owned() }, libc::EOPNOTSUPP),
            (Error::corrupt("a", "r"), libc::EIO),
            (too_large, libc::EFBIG),
            (Error::Unencodable { key: key(), reason: "r".to_owned() }, libc::EDOM),
            (Error::InvalidValue("r".to_owned()), libc::EINVAL),
            (Error::CutShort { written_bytes: 1, size_bytes: 2, is_growth: false }, libc::EINVAL),
            (Error::Stale { key: key() }, libc::ESTALE),
            (Error::Changed { key: key() }, libc::EBUSY),
            (Error::ReadOnly("r".to_owned()), libc::EROFS),
            (Error::TimedOut { key: key() }, libc::EIO),
            (Error::Cancelled { key: key() }, libc::EIO),
            (Error::Usage("r".to_owned()), libc::EINVAL),
        ];
        for (error, errno) in cases {
            assert_eq!(error.errno(), errno, "{error:?}");
        }
    }

    #[test]
    fn messages() {
        let error = Error::CutShort { written_bytes: 1000, size_bytes: 24_000_000, is_growth: false };
        assert_eq!(error.to_string(), "1,000 of 24,000,000 bytes were written; the rest is unchanged");
        let busy = Error::busy("a", "attributes changed concurrently; gave up after 10 attempts");
        assert_eq!(busy.to_string(), "a: attributes changed concurrently; gave up after 10 attempts");
        assert_eq!(busy.errno(), libc::EBUSY);
        let full = Error::store("a/c/0", "rename", std::io::Error::from_raw_os_error(libc::ENOSPC));
        let reason = Some("cannot rename: No space left on device (os error 28)".to_owned());
        assert_eq!((full.reason_for("a/c/0"), full.reason_for("a/c/1")), (reason.clone(), reason));
        let value = Error::Unencodable { key: "a/c/0".to_owned(), reason: "300".to_owned() };
        assert_eq!(value.reason_for("a/c/0").as_deref(), Some("cannot be encoded: 300"));
        assert_eq!(value.reason_for("a/c/1"), None, "the value is not in that chunk");
        assert_eq!(grouped(0) + &grouped(999) + &grouped(123_456), "0999123,456");
    }
}
