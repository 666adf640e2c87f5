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

/// `zlib` and its spellings in numcodecs and imagecodecs.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["zlib", "numcodecs.zlib", "imagecodecs_zlib", "imagecodecs_deflate"],
    v2: &["zlib", "imagecodecs_zlib", "imagecodecs_deflate"],
    build: |context| codec::build(context, Wrapper::Zlib),
};
