//! The `gzip` codec: DEFLATE in the gzip wrapper.
//!
//! Spec: v3 "Gzip codec"; numcodecs "gzip".
//!
//! ```json
//! {"name": "gzip", "configuration": {"level": 1}}
//! ```
//!
//! `deflate` has the implementation.

use super::deflate::{Wrapper, codec};
use crate::codec::CodecEntry;

/// `gzip` and its numcodecs spelling.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["gzip", "numcodecs.gzip"],
    v2: &["gzip"],
    build: |context| codec::build(context, Wrapper::Gzip),
};
