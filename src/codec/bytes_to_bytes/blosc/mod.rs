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
//! A buffer describes its own encoding; the configuration matters only to encoding. C-Blosc does the work, except what
//! `direct.rs` decodes faster. The whole structure of the buffer is checked first, since C-Blosc was not written for hostile input.
#![allow(unsafe_code)]

mod blocks;
mod direct;

use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::sync::Once;

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::{
    BoundedEncoder, BytesToBytes, Codec, CodecError, CodecResult, Context, EncodedSize, Entry,
    PartialDecoder, StoredBytes, scratch,
};

/// `blosc` and its numcodecs spelling.
pub const ENTRY: Entry = Entry { v3: &["blosc", "numcodecs.blosc"], v2: &["blosc"], build };

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 16;
/// The most bytes that a buffer can hold (`BLOSC_MAX_BUFFERSIZE`).
const MAX_DECODED_BYTES: usize = i32::MAX as usize - HEADER_BYTES;
/// Blocks of typesize up to this may be split by byte (`MAX_SPLITS`), if a part has at least
/// [`MIN_PART_BYTES`] (`MIN_BUFFERSIZE`).
pub(super) const MAX_PARTS: usize = 16;
const MIN_PART_BYTES: usize = 128;
/// C-Blosc adds up the bytes of a match's length in 32 bits: this many stay below 2^31.
const MAX_BLOSCLZ_BYTES: usize = 8 << 20;

struct Blosc {
    compressor: &'static CStr,
    level: c_int,
    shuffle: c_int,
    type_size: usize,
    block_size: usize,
}

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
    let mut configuration = Configuration::of(context);
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
        let size = Header::parse(encoded)?.decoded_bytes;
        if size > limit_bytes {
            return Err(CodecError::new(format_args!("{size} bytes where at most {limit_bytes} fit")));
        }
        let mut decoded = scratch::zeroed(size)?;
        self.decode_into(encoded, &mut decoded)?;
        Ok(Cow::Owned(decoded))
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        decode(encoded, out)
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
        compress(self, decoded, out)
    }
}

/// Decodes a buffer that holds exactly `out.len()` bytes.
pub(super) fn decode(encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
    let header = Header::parse(encoded)?;
    header.expect_bytes(out.len())?;
    let encoded = encoded.get(..header.encoded_bytes).unwrap_or_default();
    header.check_blocks(encoded)?;
    if header.decoded_bytes == 0 {
        return Ok(());
    }
    if header.is_copied() {
        out.copy_from_slice(encoded.get(HEADER_BYTES..).unwrap_or_default());
        return Ok(());
    }
    direct::decode(&header, encoded, out).unwrap_or_else(|| decompress(encoded, header.block_bytes, out))
}

/// The header: the first 16 bytes of every buffer.
pub(super) struct Header {
    flags: u8,
    type_size: usize,
    pub(super) decoded_bytes: usize,
    pub(super) block_bytes: usize,
    pub(super) encoded_bytes: usize,
}

/// The compressor of a buffer, as its header numbers it: `BLOSC_*_FORMAT`.
const FORMAT_BLOSCLZ: u8 = 0;
const FORMAT_ZSTD: u8 = 4;

impl Header {
    /// Reads the header; sizes are checked against each other and the buffer.
    fn parse(encoded: &[u8]) -> CodecResult<Header> {
        Header::parse_of(encoded, encoded.len())
    }

    /// As [`Header::parse`], where `encoded` is the beginning of a buffer of `available` bytes.
    pub(super) fn parse_of(encoded: &[u8], available: usize) -> CodecResult<Header> {
        let Some((header, _)) = encoded.split_first_chunk::<HEADER_BYTES>() else {
            return Err(CodecError::new(format_args!("{} bytes, too few for a blosc header", encoded.len())));
        };
        let [version, format_version, flags, type_size, ..] = *header;
        let [_, decoded, block, total] = header.as_chunks::<4>().0 else {
            return Err(CodecError::new("no blosc header"));
        };
        let length = |bytes: &[u8; 4]| usize::try_from(i32::from_le_bytes(*bytes)).ok();
        let (Some(decoded_bytes), Some(block_bytes), Some(encoded_bytes)) =
            (length(decoded), length(block), length(total))
        else {
            return Err(CodecError::new("the blosc header has a length beyond 2^31"));
        };
        let header = Header { flags, type_size: type_size.into(), decoded_bytes, block_bytes, encoded_bytes };
        if version != 2 || format_version != 1 || header.format() > FORMAT_ZSTD || flags & 8 != 0 {
            return Err(CodecError::new(format_args!(
                "blosc version {version}, format {} version {format_version}, flags {flags:#04x} are not known",
                header.format()
            )));
        }
        if encoded_bytes < HEADER_BYTES || encoded_bytes > available {
            return Err(CodecError::new(format_args!(
                "the blosc header declares {encoded_bytes} bytes, but there are {available}"
            )));
        }
        let fits = header.type_size > 0 && block_bytes > 0 && block_bytes <= decoded_bytes;
        match decoded_bytes <= MAX_DECODED_BYTES && (fits || decoded_bytes == 0) {
            true => Ok(header),
            false => Err(CodecError::new(format_args!(
                "the blosc header declares {decoded_bytes} bytes in blocks of {block_bytes}"
            ))),
        }
    }

    pub(super) fn format(&self) -> u8 {
        self.flags >> 5
    }

    /// Bytes per element where bytes are shuffled, 1 where nothing is; `None` where bits are shuffled.
    pub(super) fn shuffled_size(&self) -> Option<usize> {
        match self.flags & 5 {
            0 => Some(1),
            1 => Some(self.type_size),
            _ => None,
        }
    }

    /// Fails unless the buffer decodes to `expected` bytes.
    pub(super) fn expect_bytes(&self, expected: usize) -> CodecResult<()> {
        match self.decoded_bytes == expected {
            true => Ok(()),
            false => Err(CodecError::new(format_args!(
                "the buffer holds {} bytes where {expected} were expected",
                self.decoded_bytes
            ))),
        }
    }

    pub(super) fn is_copied(&self) -> bool {
        self.flags & 2 != 0
    }

    /// Parts that a block of `bytes` is compressed in, as C-Blosc's decoder derives it.
    pub(super) fn parts(&self, bytes: usize, is_last_and_short: bool) -> usize {
        let is_split = self.flags & 0x10 == 0
            && self.type_size <= MAX_PARTS
            && bytes / self.type_size >= MIN_PART_BYTES
            && !is_last_and_short;
        if is_split { self.type_size } else { 1 }
    }

    /// Checks every offset and length of the whole buffer `encoded`.
    fn check_blocks(&self, encoded: &[u8]) -> CodecResult<()> {
        if self.decoded_bytes == 0 {
            return Ok(());
        }
        if self.is_copied() {
            return match self.encoded_bytes == self.decoded_bytes + HEADER_BYTES {
                true => Ok(()),
                false => Err(CodecError::new("a blosc buffer without compression has the wrong length")),
            };
        }
        let blocks = self.decoded_bytes.div_ceil(self.block_bytes);
        let (starts, _) = encoded.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<4>();
        let Some(starts) = starts.get(..blocks) else {
            return Err(CodecError::new(format_args!("a blosc buffer too short for its {blocks} blocks")));
        };
        for (block, start) in starts.iter().enumerate() {
            let left = self.decoded_bytes - block * self.block_bytes;
            let bytes = left.min(self.block_bytes);
            let checked = usize::try_from(i32::from_le_bytes(*start)).ok();
            let checked = checked
                .filter(|&start| start >= HEADER_BYTES + 4 * blocks)
                .and_then(|start| self.check_block(encoded.get(start..)?, bytes, bytes < self.block_bytes));
            if checked.is_none() {
                return Err(CodecError::new(format_args!("block {block} of the blosc buffer is damaged")));
            }
        }
        Ok(())
    }

    /// Checks the parts of one block, which begins at the start of `encoded` and decodes to `bytes`.
    fn check_block(&self, encoded: &[u8], bytes: usize, is_last_and_short: bool) -> Option<()> {
        let parts = self.parts(bytes, is_last_and_short);
        // Otherwise C-Blosc would leave the end of the block undefined.
        if !bytes.is_multiple_of(parts) {
            return None;
        }
        let part_bytes = bytes / parts;
        // A part that cannot be compressed is copied; only snappy may make it longer, by this at most.
        let longest = part_bytes + part_bytes / 6 + 32;
        let mut rest = encoded;
        for _ in 0..parts {
            let (length, tail) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(i32::from_le_bytes(*length)).ok()?;
            let is_too_long_for_c =
                self.format() == FORMAT_BLOSCLZ && length != part_bytes && length > MAX_BLOSCLZ_BYTES;
            if length > longest || is_too_long_for_c {
                return None;
            }
            rest = tail.get(length..)?;
        }
        Some(())
    }
}

/// C-Blosc chooses its shuffle routines at first use, without a lock; done here once, before any thread
/// needs them.
fn initialize() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let source = [0u8; 256];
        let mut target = [0u8; 256 + HEADER_BYTES];
        // SAFETY: the pointers and lengths are those of `source` and `target`, which do not overlap; the name is
        // NUL-terminated.
        unsafe {
            blosc::blosc_compress_ctx(
                1,
                1,
                2,
                source.len(),
                source.as_ptr().cast(),
                target.as_mut_ptr().cast(),
                target.len(),
                c"blosclz".as_ptr(),
                0,
                1,
            );
        }
    });
}

/// Decompresses a whole buffer that [`Header::check_blocks`] has checked and that holds `out.len()` bytes.
fn decompress(encoded: &[u8], block_bytes: usize, out: &mut [u8]) -> CodecResult<()> {
    initialize();
    // C-Blosc does not check the allocation of its own buffer of two blocks.
    scratch::probe(2 * block_bytes + 4096)?;
    // SAFETY: C-Blosc writes at most `out.len()` bytes to `out` (that limit is passed, and the checked header says exactly so
    // many). It reads the header's `cbytes` from `encoded`, which is `encoded.len()`; every block start and part
    // length inside was followed by `check_blocks` and stays within. `blosc_decompress_ctx` with one thread keeps its
    // state on the stack, and the shuffle routines were chosen by `initialize`. The slices cannot overlap.
    let length = unsafe {
        blosc::blosc_decompress_ctx(encoded.as_ptr().cast(), out.as_mut_ptr().cast(), out.len(), 1)
    };
    match usize::try_from(length) == Ok(out.len()) {
        true => Ok(()),
        false => Err(CodecError::new("a block of the blosc buffer is damaged")),
    }
}

/// Decompresses one block of LZ4 to exactly `out.len()` bytes.
pub(super) fn decompress_lz4(encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
    let (length, room) = (c_int::try_from(encoded.len()), c_int::try_from(out.len()));
    let (Ok(length), Ok(room)) = (length, room) else { return Err(CodecError::new("more than 2^31 bytes")) };
    // SAFETY: pointers and lengths are those of the two slices, which cannot overlap; the function reads and writes nothing
    // outside of them, whatever the bytes are.
    let decoded = unsafe {
        lz4_sys::LZ4_decompress_safe(encoded.as_ptr().cast(), out.as_mut_ptr().cast(), length, room)
    };
    match decoded == room {
        true => Ok(()),
        false => Err(CodecError::new("LZ4 data that do not decode to its length")),
    }
}

/// Compresses into `encoded`, which is longer than `decoded` by a header; returns the encoded length.
fn compress(codec: &Blosc, decoded: &[u8], encoded: &mut [u8]) -> CodecResult<usize> {
    initialize();
    // SAFETY: pointers and lengths are those of the two slices, which cannot overlap; the name is NUL-terminated;
    // `blosc_compress_ctx` with one thread keeps its state on the stack, and the shuffle routines were
    // chosen by `initialize`.
    let length = unsafe {
        blosc::blosc_compress_ctx(
            codec.level,
            codec.shuffle,
            codec.type_size,
            decoded.len(),
            decoded.as_ptr().cast(),
            encoded.as_mut_ptr().cast(),
            encoded.len(),
            codec.compressor.as_ptr(),
            codec.block_size,
            1,
        )
    };
    match usize::try_from(length) {
        Ok(length) if length >= HEADER_BYTES && length <= encoded.len() => Ok(length),
        _ => Err(CodecError::new(format_args!("C-Blosc returned {length}"))),
    }
}

#[cfg(test)]
mod tests;
