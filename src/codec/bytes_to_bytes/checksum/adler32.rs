//! `numcodecs.adler32`: an Adler-32 (as in zlib) before the bytes, or after them. v2 id: `adler32`.
//!
//! Format: numcodecs `Adler32`. `location` is `"start"` when absent. Uses `checksum`.
//!
//! ```json
//! {"name": "numcodecs.adler32", "configuration": {}}
//! ```

use super::{Checksum, ChecksumLocation};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecResult, Context};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["numcodecs.adler32", "adler32"], v2: &["adler32"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let location = ChecksumLocation::read(&mut configuration)?.unwrap_or(ChecksumLocation::Start);
    configuration.finish()?;
    let compute = |bytes: &[u8]| simd_adler32::adler32(&bytes);
    Ok(Codec::BytesToBytes(Box::new(Checksum { name: "adler32", location, compute })))
}
