//! The `zlib` codec: DEFLATE in the zlib wrapper.
//!
//! Spec: numcodecs "zlib"; in v3 as "numcodecs.zlib", and as "zlib" in the wild.
//!
//! ```json
//! {"name": "zlib", "configuration": {"level": 1}}
//! ```
//!
//! `deflate` has the implementation.

use super::deflate::{Wrapper, codec};
use crate::codec::CodecEntry;

/// `zlib` and its numcodecs spelling.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["zlib", "numcodecs.zlib"],
    v2: &["zlib"],
    build: |context| codec::build(context, Wrapper::Zlib),
};
