//! The `blosc` codec: blocks, shuffled and compressed by one of six compressors.
//!
//! Spec: v3 "Blosc codec"; C-Blosc's chunk format; numcodecs "blosc", where `shuffle` is a number and -1 means
//! bit-shuffle for items of one byte and shuffle for others.
//!
//! ```json
//! {"name": "blosc", "configuration":
//!   {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}
//! ```
//!
//! A buffer describes its own encoding; the configuration matters only to encoding. C-Blosc does the work, unless
//! `direct.rs` is faster. The whole structure of the buffer is checked first, since C-Blosc was not written for hostile input.

mod blocks;
mod c_blosc;
mod direct;
mod header;

use std::borrow::Cow;
use std::ffi::{CStr, c_int};

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::{
    BoundedEncoder, BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize,
    PartialDecoder, StoredBytes, scratch,
};
use c_blosc::Blosc;
use header::{BloscHeader, HEADER_BYTES, MAX_DECODED_BYTES};

/// `blosc` and its numcodecs spelling.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["blosc", "numcodecs.blosc"], v2: &["blosc"], build };

const COMPRESSORS: &[(&str, &CStr)] = &[
    ("blosclz", c"blosclz"),
    ("lz4", c"lz4"),
    ("lz4hc", c"lz4hc"),
    ("snappy", c"snappy"),
    ("zlib", c"zlib"),
    ("zstd", c"zstd"),
];

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let (_, item_size) = context.bytes()?;
    let mut configuration = Configuration::new(context);
    let compressor = configuration.choice("cname", COMPRESSORS)?.unwrap_or(c"lz4");
    let level = configuration.integer("clevel", 0..=9)?.unwrap_or(5) as c_int;
    let type_size = configuration.integer("typesize", 1..=i64::from(i32::MAX))?;
    let type_size = type_size.map_or(item_size, |size| size as usize).max(1);
    let shuffle = match configuration.value("shuffle") {
        None => 1,
        Some(Value::String(name)) => match name.as_str() {
            "noshuffle" => 0,
            "shuffle" => 1,
            "bitshuffle" => 2,
            _ => return Err(configuration.error("shuffle", "must be noshuffle, shuffle or bitshuffle")),
        },
        Some(number) => match number.as_i64() {
            Some(-1) if type_size == 1 => 2,
            Some(-1) => 1,
            Some(number @ 0..=2) => number as c_int,
            _ => return Err(configuration.error("shuffle", "must be a name, or a number from -1 to 2")),
        },
    };
    let block_size = configuration.integer("blocksize", 0..=i64::from(i32::MAX))?.unwrap_or(0) as usize;
    configuration.finish()?;
    Ok(Codec::BytesToBytes(Box::new(Blosc { compressor, level, shuffle, type_size, block_size })))
}

impl BytesToBytes for Blosc {
    fn is_lossless(&self) -> bool {
        true
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        let length = BloscHeader::parse(encoded)?.decoded_bytes;
        scratch::decoded(length, limit_bytes, |out| self.decode_into(encoded, out))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        blocks::decode(encoded, out)
    }

    fn partial(&self) -> Option<&dyn PartialDecoder> {
        Some(self)
    }

    fn bounded(&self) -> Option<&dyn BoundedEncoder> {
        Some(self)
    }
}

impl PartialDecoder for Blosc {
    fn block_bytes(&self, stored: &dyn StoredBytes) -> CodecResult<Option<u64>> {
        blocks::block_bytes(stored)
    }

    fn decode_part(
        &self,
        stored: &dyn StoredBytes,
        decoded_bytes: usize,
        start: usize,
        out: &mut [u8],
    ) -> CodecResult<usize> {
        blocks::decode_part(stored, decoded_bytes, start, out)
    }
}

impl BoundedEncoder for Blosc {
    fn bound(&self, decoded_bytes: usize) -> usize {
        decoded_bytes.saturating_add(HEADER_BYTES)
    }

    fn encode_into(&self, decoded: &[u8], out: &mut [u8]) -> CodecResult<usize> {
        if decoded.len() > MAX_DECODED_BYTES {
            return Err(CodecError::new(format_args!(
                "{} bytes, but one buffer holds at most {MAX_DECODED_BYTES}",
                decoded.len()
            )));
        }
        c_blosc::compress(self, decoded, out)
    }
}

#[cfg(test)]
mod tests;
