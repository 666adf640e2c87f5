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
//! A buffer says itself how it was made; the configuration matters only to encoding. C-Blosc does the work, behind
//! a check of the whole structure of the buffer, since it was not written against hostile input.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::sync::Once;

use serde_json::Value;

use super::configuration::Configuration;
use super::{BytesToBytes, Codec, CodecError, CodecResult, Context, EncodedSize, Entry, scratch};

/// `blosc` and its numcodecs spelling.
pub const ENTRY: Entry = Entry { v3: &["blosc", "numcodecs.blosc"], v2: &["blosc"], build };

/// Bytes of the header.
const HEADER_BYTES: usize = 16;
/// The most bytes that a buffer can hold (`BLOSC_MAX_BUFFERSIZE`).
const MAX_DECODED_BYTES: usize = i32::MAX as usize - HEADER_BYTES;
/// Blocks of typesize up to this may be split by byte (`MAX_SPLITS`), if a part has at least
/// [`MIN_PART_BYTES`] (`MIN_BUFFERSIZE`).
const MAX_PARTS: usize = 16;
const MIN_PART_BYTES: usize = 128;
/// C-Blosc adds up the bytes of a match's length in 32 bits: so much of them stays below 2^31.
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
        let header = Header::parse(encoded)?;
        if header.decoded_bytes != out.len() {
            return Err(CodecError::new(format_args!(
                "the buffer holds {} bytes where {} were expected",
                header.decoded_bytes,
                out.len()
            )));
        }
        let encoded = encoded.get(..header.encoded_bytes).unwrap_or_default();
        header.check_blocks(encoded)?;
        match header.decoded_bytes {
            0 => Ok(()),
            _ => decompress(encoded, header.block_bytes, out),
        }
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        if decoded.len() > MAX_DECODED_BYTES {
            return Err(CodecError::new(format_args!(
                "{} bytes, where one buffer holds at most {MAX_DECODED_BYTES}",
                decoded.len()
            )));
        }
        let mut encoded = scratch::zeroed(decoded.len() + HEADER_BYTES)?;
        let length = compress(self, decoded, &mut encoded)?;
        encoded.truncate(length);
        encoded.shrink_to_fit();
        Ok(encoded)
    }
}

/// What the 16 bytes before every buffer say.
struct Header {
    flags: u8,
    type_size: usize,
    decoded_bytes: usize,
    block_bytes: usize,
    encoded_bytes: usize,
}

/// The compressor of a buffer, as its header numbers it: `BLOSC_*_FORMAT`.
const FORMAT_BLOSCLZ: u8 = 0;
const FORMAT_ZSTD: u8 = 4;

impl Header {
    /// Reads the header; sizes are checked against each other and the buffer.
    fn parse(encoded: &[u8]) -> CodecResult<Header> {
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
        if encoded_bytes < HEADER_BYTES || encoded_bytes > encoded.len() {
            return Err(CodecError::new(format_args!(
                "the blosc header speaks of {encoded_bytes} bytes, and there are {}",
                encoded.len()
            )));
        }
        let fits = header.type_size > 0 && block_bytes > 0 && block_bytes <= decoded_bytes;
        match decoded_bytes <= MAX_DECODED_BYTES && (fits || decoded_bytes == 0) {
            true => Ok(header),
            false => Err(CodecError::new(format_args!(
                "the blosc header speaks of {decoded_bytes} bytes in blocks of {block_bytes}"
            ))),
        }
    }

    fn format(&self) -> u8 {
        self.flags >> 5
    }

    fn is_copied(&self) -> bool {
        self.flags & 2 != 0
    }

    /// Parts that a block of `bytes` is compressed in, as C-Blosc's decoder derives it.
    fn parts(&self, bytes: usize, is_last_and_short: bool) -> usize {
        let is_split = self.flags & 0x10 == 0
            && self.type_size <= MAX_PARTS
            && bytes / self.type_size >= MIN_PART_BYTES
            && !is_last_and_short;
        if is_split { self.type_size } else { 1 }
    }

    /// Follows every offset and length of the buffer, of which `encoded` is all.
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

    /// Follows the parts of one block, that begins where `encoded` does and decodes to `bytes`.
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
/// gets there.
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
    // C-Blosc does not look whether its own buffer, of two blocks, was allocated.
    drop(scratch::zeroed(2 * block_bytes + 4096)?);
    // SAFETY: C-Blosc writes at most `out.len()` bytes to `out` (it is told so, and the checked header says exactly so
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

/// Compresses into `encoded`, which is longer by a header than `decoded`; the length that was needed.
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
        _ => Err(CodecError::new(format_args!("C-Blosc answered {length}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn codec(compressor: usize, level: c_int, shuffle: c_int, type_size: usize, block_size: usize) -> Blosc {
        Blosc { compressor: COMPRESSORS[compressor].1, level, shuffle, type_size, block_size }
    }

    /// The next of a sequence of numbers without visible order.
    fn next(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 8) as usize
    }

    fn sample(length: usize, state: &mut u64) -> Vec<u8> {
        (0..length)
            .map(|at| if next(state).is_multiple_of(5) { next(state) as u8 } else { (at / 16) as u8 })
            .collect()
    }

    proptest! {
        #[test]
        fn there_and_back(
            compressor in 0..COMPRESSORS.len(),
            level in 0..10,
            shuffle in 0..3,
            type_size in prop_oneof![1usize..20, Just(255), Just(256), Just(100_000)],
            block_size in prop_oneof![Just(0usize), 1usize..5000],
            length in prop_oneof![0usize..300, 0usize..70_000],
            seed: u64,
        ) {
            let codec = codec(compressor, level, shuffle, type_size, block_size);
            let data = sample(length, &mut (seed | 1));
            let mut encoded = codec.encode(&data).unwrap();
            let mut out = vec![0xa5; length];
            codec.decode_into(&encoded, &mut out).unwrap();
            prop_assert!(out == data);
            prop_assert!(*codec.decode(&encoded, length).unwrap() == data);
            prop_assert!(codec.decode_into(&encoded, &mut vec![0; length + 1]).is_err());
            prop_assert!(length == 0 || codec.decode(&encoded, length - 1).is_err());
            let cut = encoded.pop().unwrap();
            prop_assert!(codec.decode_into(&encoded, &mut out).is_err());
            encoded.extend([cut, 1, 2, 3]);
            codec.decode_into(&encoded, &mut out).unwrap();
            prop_assert!(out == data);
        }
    }

    #[test]
    fn a_bomb_and_a_lying_header_cost_no_memory() {
        let codec = codec(1, 9, 1, 4, 0);
        let mut bomb = codec.encode(&vec![0; 16 << 20]).unwrap();
        assert!(codec.decode_into(&bomb, &mut [0; 1000]).is_err());
        assert!(codec.decode(&bomb, 1000).is_err());
        bomb[4..8].copy_from_slice(&i32::MAX.to_le_bytes());
        assert!(codec.decode(&bomb, usize::MAX).is_err());
        bomb[4..8].copy_from_slice(&(-1i32).to_le_bytes());
        assert!(codec.decode(&bomb, usize::MAX).is_err());
        assert!(codec.encode(&vec![0; MAX_DECODED_BYTES + 1]).is_err());
    }

    /// The length of a match in a blosclz stream overflowed 32 bits in C-Blosc, and memset got a negative one. Such
    /// a stream needs 8 MiB of 255s, and so is known by its length.
    #[test]
    fn a_blosclz_match_that_overflows_is_refused() {
        let block: usize = 9 << 20;
        let mut encoded = vec![2, 1, 0x10, 1];
        for length in [block, block, HEADER_BYTES + 8 + block - 1] {
            encoded.extend((length as i32).to_le_bytes());
        }
        encoded.extend(20i32.to_le_bytes());
        encoded.extend((block as i32 - 1).to_le_bytes());
        encoded.extend([0, 7, 0xe0]);
        encoded.resize(HEADER_BYTES + 8 + block - 1, 255);
        assert!(codec(0, 5, 0, 1, 0).decode_into(&encoded, &mut vec![0; block]).is_err());
    }

    /// Damages some bytes, in the fields where it tells most and elsewhere.
    fn damage(encoded: &mut Vec<u8>, state: &mut u64) {
        for _ in 0..=next(state) % 3 {
            let length = encoded.len();
            let at = if next(state).is_multiple_of(3) {
                next(state) % length.min(60)
            } else {
                next(state) % length
            };
            match next(state) % 7 {
                0 => encoded[at] = next(state) as u8,
                1 => encoded[at] = [0, 255, 127, 128, 1, 31, 32][next(state) % 7],
                2 => {
                    let word = [0, 1, -1, i32::MAX, i32::MIN, 16, length as i32, length as i32 - 4, 0x1000];
                    let word = word[next(state) % word.len()].to_le_bytes();
                    if let Some(field) = encoded.get_mut(at / 4 * 4..at / 4 * 4 + 4) {
                        field.copy_from_slice(&word);
                    }
                }
                3 if at > HEADER_BYTES => {
                    encoded.truncate(at);
                    encoded[12..16].copy_from_slice(&(at as i32).to_le_bytes());
                }
                4 => {
                    let from = next(state) % length;
                    let count = (next(state) % 16).min(length - from).min(length - at);
                    encoded.copy_within(from..from + count, at);
                }
                _ => encoded[at] ^= 1 << (next(state) % 8),
            }
        }
    }

    /// Damaged buffers give an error or any data, and nothing else. More cases with ZARRFS_FUZZ_CASES; run under
    /// valgrind it also shows that nothing outside is touched.
    #[test]
    fn damaged_buffers_do_no_harm() {
        let cases = std::env::var("ZARRFS_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
        let mut state = 88_172_645_463_325_252;
        let (mut good, mut total) = (0, 0);
        while total < cases {
            let type_size = [1, 2, 3, 4, 8, 16, 17][next(&mut state) % 7];
            let block_size = [0, 128, 256, 1000, 4096][next(&mut state) % 5];
            let (compressor, shuffle) = (next(&mut state) % 6, (next(&mut state) % 3) as c_int);
            let codec =
                codec(compressor, 1 + (next(&mut state) % 9) as c_int, shuffle, type_size, block_size);
            let length = 1 + next(&mut state) % 5000;
            let data = sample(length, &mut state);
            let encoded = codec.encode(&data).unwrap();
            for _ in 0..50 {
                let mut damaged = encoded.clone();
                damage(&mut damaged, &mut state);
                let damaged = damaged.into_boxed_slice();
                let mut out = vec![0; length].into_boxed_slice();
                good += usize::from(codec.decode_into(&damaged, &mut out).is_ok());
                total += 1;
            }
        }
        assert!(good > 0 && good < total, "{good} of {total}");
    }
}
