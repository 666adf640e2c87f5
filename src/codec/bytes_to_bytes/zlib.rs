//! The `zlib` codec: DEFLATE in the zlib wrapper.
//!
//! Spec: numcodecs "zlib"; in v3 as "numcodecs.zlib", and as "zlib" in the wild.
//!
//! ```json
//! {"name": "zlib", "configuration": {"level": 1}}
//! ```
//!
//! Decoding is in `deflate`.

use std::borrow::Cow;

use super::deflate::Wrapper;
use super::deflate::resume::ResumableInflate;
use crate::codec::config::Configuration;
use crate::codec::{
    BoundedEncoder, BytesToBytes, Codec, CodecResult, Context, EncodedSize, Entry, ResumableDecoder,
};

/// `zlib` and its numcodecs spelling.
pub const ENTRY: Entry = Entry { v3: &["zlib", "numcodecs.zlib"], v2: &["zlib"], build };

struct Zlib {
    level: i32,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::of(context);
    // Only encoding uses it. -1 is zlib's word for its default, 6; absent is numcodecs' default.
    let level = configuration.integer("level", -1..=9)?.unwrap_or(1);
    configuration.finish()?;
    let level = if level < 0 { 6 } else { level as i32 };
    Ok(Codec::BytesToBytes(Box::new(Zlib { level })))
}

impl BytesToBytes for Zlib {
    fn is_lossless(&self) -> bool {
        true
    }

    fn has_checksum(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        Wrapper::Zlib.decode(encoded, limit_bytes).map(Cow::Owned)
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        Wrapper::Zlib.decode_into(encoded, out)
    }

    fn resumable(&self, decoded_bytes: usize) -> Option<Box<dyn ResumableDecoder>> {
        Some(Box::new(ResumableInflate::new(Wrapper::Zlib, decoded_bytes)))
    }

    fn bounded(&self) -> Option<&dyn BoundedEncoder> {
        Some(self)
    }
}

impl BoundedEncoder for Zlib {
    fn bound(&self, decoded_bytes: usize) -> usize {
        Wrapper::Zlib.encoded_bound(decoded_bytes)
    }

    fn encode_into(&self, decoded: &[u8], out: &mut [u8]) -> CodecResult<usize> {
        Wrapper::Zlib.encode_into(decoded, self.level, out)
    }
}
