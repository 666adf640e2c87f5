//! How to find out whether a stored chunk is of the array that reads it. Uses nothing.

use std::fmt;

use super::VersionDigest;

/// 64 bits of all that decides how the stored bytes of an array decode, and which elements a key has. `metadata` makes it; stores
/// only keep and compare it. Attributes and lengths are not in it: an array that was made longer is the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(u64);

impl Form {
    /// Of a text that says all of it.
    pub(crate) fn of(text: &str) -> Self {
        Form(VersionDigest::of(text).short())
    }

    /// The form that was shown so.
    pub(super) fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Form)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// An array whose chunks are read and written.
#[derive(Clone, Copy)]
pub struct ArrayForm<'a> {
    /// Its path.
    pub path: &'a str,
    /// The key of the document that it was opened from.
    pub document_key: &'a str,
    /// Its form.
    pub form: &'a dyn Fn() -> Form,
    /// The form that a document describes, by its key and bytes; `None` if it is not an array's.
    pub of_document: fn(&str, &[u8]) -> Option<Form>,
}
