//! `numcodecs.crc32`: a CRC-32 (IEEE, as in zlib) before the bytes, or after them. v2 id: `crc32`.
//!
//! Format: numcodecs `CRC32`. `location` is `"start"` when absent. Uses `checksum`.
//!
//! ```json
//! {"name": "numcodecs.crc32", "configuration": {"location": "end"}}
//! ```

use super::{Checksum, Location};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecResult, Context, Entry};

/// The codec's names and constructor.
pub const ENTRY: Entry = Entry { v3: &["numcodecs.crc32", "crc32"], v2: &["crc32"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::of(context);
    let location = Location::read(&mut configuration)?.unwrap_or(Location::Start);
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Checksum { name: "crc32", location, compute: crc32fast::hash })))
}
