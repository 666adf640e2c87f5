//! `numcodecs.crc32`: a CRC-32 (IEEE, as in zlib) before the bytes, or after them. v2 id: `crc32`.
//!
//! Format: numcodecs `CRC32`. `location` is `"start"` when absent. Uses `checksum`.
//!
//! ```json
//! {"name": "numcodecs.crc32", "configuration": {"location": "end"}}
//! ```

use super::{Checksum, ChecksumLocation};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecResult, Context};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.crc32", "crc32"], v2: &["crc32"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let location = ChecksumLocation::read(&mut configuration)?.unwrap_or(ChecksumLocation::Start);
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Checksum { name: "crc32", location, compute: crc32fast::hash })))
}
