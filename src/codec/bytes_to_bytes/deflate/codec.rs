//! `gzip` and `zlib` as codecs: one implementation, with the wrapper as a parameter. Uses its neighbours.

use std::borrow::Cow;

use super::Wrapper;
use super::resume::ResumableInflate;
use crate::codec::config::Configuration;
use crate::codec::{
    BoundedEncoder, BytesToBytes, Codec, CodecError, CodecResult, Context, EncodedSize, ResumableDecoder,
};

struct Deflate {
    wrapper: Wrapper,
    level: i32,
}

/// Builds the codec with a wrapper.
pub fn build(context: &Context<'_>, wrapper: Wrapper) -> CodecResult<Codec> {
    context.bytes()?;
    let mut configuration = Configuration::new(context);
    let is_of_imagecodecs = context.name.starts_with("imagecodecs_");
    if is_of_imagecodecs && configuration.boolean("raw")? == Some(true) {
        return Err(CodecError::unsupported(format_args!("codec \"{}\" without a header", context.name)));
    }
    // Only encoding uses it. -1 is zlib's word for its default, 6; absent is numcodecs' default. libdeflate, which imagecodecs uses, has
    // slower levels.
    let last = if is_of_imagecodecs { 12 } else { 9 };
    let level = configuration.integer("level", -1..=last)?.unwrap_or(1);
    configuration.finish()?;
    let level = if level < 0 { 6 } else { level.min(9) as i32 };
    Ok(Codec::BytesToBytes(Box::new(Deflate { wrapper, level })))
}

impl BytesToBytes for Deflate {
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
        self.wrapper.decode(encoded, limit_bytes).map(Cow::Owned)
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.wrapper.decode_into(encoded, out)
    }

    fn resumable(&self, decoded_bytes: usize) -> Option<Box<dyn ResumableDecoder>> {
        Some(Box::new(ResumableInflate::new(self.wrapper, decoded_bytes)))
    }

    fn bounded(&self) -> Option<&dyn BoundedEncoder> {
        Some(self)
    }
}

impl BoundedEncoder for Deflate {
    fn bound(&self, decoded_bytes: usize) -> usize {
        self.wrapper.encoded_bound(decoded_bytes)
    }

    fn encode_into(&self, decoded: &[u8], out: &mut [u8]) -> CodecResult<usize> {
        self.wrapper.encode_into(decoded, self.level, out)
    }
}
