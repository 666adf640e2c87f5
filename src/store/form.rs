//! Forms, by which a store knows whether a stored chunk belongs to the array that reads it. Uses nothing.

use std::fmt;

use super::VersionDigest;

/// A digest (64 bits) of everything that decides how the stored bytes of an array decode, and which elements a key has.
/// `metadata` makes it; stores only keep and compare it. Attributes and lengths are not in it: an array that was made longer
/// keeps its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form(u64);

impl Form {
    /// Digests a text that says all of it.
    pub(crate) fn digest(text: &str) -> Self {
        Form(VersionDigest::fnv1a(text).short())
    }

    /// Parses a form that was displayed.
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
    /// Returns the form that a document describes, from its key and bytes; `None` if the document is not an array's.
    pub of_document: fn(&str, &[u8]) -> Option<Form>,
}
