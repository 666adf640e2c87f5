//! The `gzip` codec: DEFLATE in the gzip wrapper.
//!
//! Spec: v3 "Gzip codec"; numcodecs "gzip".
//!
//! ```json
//! {"name": "gzip", "configuration": {"level": 1}}
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

/// `gzip` and its numcodecs spelling.
pub const ENTRY: Entry = Entry { v3: &["gzip", "numcodecs.gzip"], v2: &["gzip"], build };

struct Gzip {
    level: i32,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::of(context);
    // Only encoding uses it. -1 is zlib's word for its default, 6; absent is numcodecs' default.
    let level = configuration.integer("level", -1..=9)?.unwrap_or(1);
    configuration.finish()?;
    let level = if level < 0 { 6 } else { level as i32 };
    Ok(Codec::BytesToBytes(Box::new(Gzip { level })))
}

impl BytesToBytes for Gzip {
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
        Wrapper::Gzip.decode(encoded, limit_bytes).map(Cow::Owned)
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        Wrapper::Gzip.decode_into(encoded, out)
    }

    fn resumable(&self, decoded_bytes: usize) -> Option<Box<dyn ResumableDecoder>> {
        Some(Box::new(ResumableInflate::new(Wrapper::Gzip, decoded_bytes)))
    }

    fn bounded(&self) -> Option<&dyn BoundedEncoder> {
        Some(self)
    }
}

impl BoundedEncoder for Gzip {
    fn bound(&self, decoded_bytes: usize) -> usize {
        Wrapper::Gzip.encoded_bound(decoded_bytes)
    }

    fn encode_into(&self, decoded: &[u8], out: &mut [u8]) -> CodecResult<usize> {
        Wrapper::Gzip.encode_into(decoded, self.level, out)
    }
}
