//! The header of a blosc buffer, and the check of the whole buffer.
//!
//! Spec: C-Blosc's chunk format.

use crate::codec::{CodecError, CodecResult};

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 16;
/// The most bytes that a buffer can hold (`BLOSC_MAX_BUFFERSIZE`).
pub(super) const MAX_DECODED_BYTES: usize = i32::MAX as usize - HEADER_BYTES;
/// Blocks of typesize up to this may be split by byte (`MAX_SPLITS`), if a part has at least
/// [`MIN_PART_BYTES`] (`MIN_BUFFERSIZE`).
pub(super) const MAX_PARTS: usize = 16;
const MIN_PART_BYTES: usize = 128;
/// C-Blosc adds up the bytes of a match's length in 32 bits: this many stay below 2^31.
const MAX_BLOSCLZ_BYTES: usize = 8 << 20;

/// The header: the first 16 bytes of every buffer.
pub(super) struct BloscHeader {
    flags: u8,
    type_size: usize,
    pub(super) decoded_bytes: usize,
    pub(super) block_bytes: usize,
    pub(super) encoded_bytes: usize,
}

/// The compressor of a buffer, as its header numbers it: `BLOSC_*_FORMAT`.
const FORMAT_BLOSCLZ: u8 = 0;
const FORMAT_ZSTD: u8 = 4;

impl BloscHeader {
    /// Reads the header; sizes are checked against each other and the buffer.
    pub(super) fn parse(encoded: &[u8]) -> CodecResult<BloscHeader> {
        BloscHeader::parse_prefix(encoded, encoded.len())
    }

    /// Parses the header as [`BloscHeader::parse`] does, if `encoded` is the beginning of a buffer of `available` bytes.
    pub(super) fn parse_prefix(encoded: &[u8], available: usize) -> CodecResult<BloscHeader> {
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
        let header =
            BloscHeader { flags, type_size: type_size.into(), decoded_bytes, block_bytes, encoded_bytes };
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
        if decoded_bytes <= MAX_DECODED_BYTES && (fits || decoded_bytes == 0) {
            Ok(header)
        } else {
            Err(CodecError::new(format_args!(
                "the blosc header declares {decoded_bytes} bytes in blocks of {block_bytes}"
            )))
        }
    }

    pub(super) fn format(&self) -> u8 {
        self.flags >> 5
    }

    /// Returns the bytes per element if bytes are shuffled, 1 if nothing is; `None` if bits are shuffled.
    pub(super) fn shuffled_size(&self) -> Option<usize> {
        match self.flags & 5 {
            0 => Some(1),
            1 => Some(self.type_size),
            _ => None,
        }
    }

    /// Fails unless the buffer decodes to `expected` bytes.
    pub(super) fn expect_bytes(&self, expected: usize) -> CodecResult<()> {
        if self.decoded_bytes == expected {
            Ok(())
        } else {
            Err(CodecError::new(format_args!(
                "the buffer holds {} bytes where {expected} were expected",
                self.decoded_bytes
            )))
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
    pub(super) fn check_blocks(&self, encoded: &[u8]) -> CodecResult<()> {
        if self.decoded_bytes == 0 {
            return Ok(());
        }
        if self.is_copied() {
            return if self.encoded_bytes == self.decoded_bytes + HEADER_BYTES {
                Ok(())
            } else {
                Err(CodecError::new("a blosc buffer without compression has the wrong length"))
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
