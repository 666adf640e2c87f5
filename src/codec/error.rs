//! The error of codecs. It has no store key, since codecs do not know it.

use std::fmt;

/// Why a codec cannot be built, cannot decode or cannot encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError {
    /// One sentence, without a key.
    pub reason: String,
    /// Whether the request is well-formed but not supported (EOPNOTSUPP rather than EIO).
    pub is_unsupported: bool,
}

impl CodecError {
    /// Creates an error from anything that can be displayed: a bad configuration, bad bytes, a value that cannot be
    /// encoded.
    pub fn new(reason: impl fmt::Display) -> Self {
        CodecError { reason: reason.to_string(), is_unsupported: false }
    }

    /// Creates an error for a feature that is not supported, by its stored name.
    pub fn unsupported(feature: impl fmt::Display) -> Self {
        CodecError { reason: feature.to_string(), is_unsupported: true }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CodecError {}

/// The result of a codec.
pub type CodecResult<T> = std::result::Result<T, CodecError>;

/// Fails unless there are exactly `expected` bytes.
pub fn check_length(found: usize, expected: usize) -> CodecResult<()> {
    if found == expected {
        return Ok(());
    }
    Err(CodecError::new(format_args!("{found} bytes where {expected} were expected")))
}

/// Fails if there are more than `limit_bytes`.
pub fn check_limit(found: usize, limit_bytes: usize) -> CodecResult<()> {
    if found <= limit_bytes {
        return Ok(());
    }
    Err(CodecError::new(format_args!("{found} bytes where at most {limit_bytes} were expected")))
}
