//! Decoding blosc blocks of LZ4 and Zstandard without C-Blosc.
//!
//! Spec: C-Blosc's chunk format: a block is one part or, if it is split, one for each byte of an element; each has its length
//! as an i32 before it and is stored uncompressed if that is its decoded length. Two things are faster than in C-Blosc: an
//! uncompressed part is not copied before it is unshuffled, which uses wide registers, and Zstandard's
//! context is kept from block to block. Uses `blosc`, `zstd`, `shuffle`.

use super::c_blosc::decompress_lz4;
use super::header::{BloscHeader, HEADER_BYTES, MAX_PARTS};
use crate::codec::bytes_to_bytes::shuffle;
use crate::codec::bytes_to_bytes::zstd;
use crate::codec::{CodecError, CodecResult, scratch};
use crate::sys::has_wide_registers;

/// Decompresses one part to exactly its bytes.
type Decompress = fn(&[u8], &mut [u8]) -> CodecResult<()>;

const FORMAT_LZ4: u8 = 1;
const FORMAT_ZSTD: u8 = 4;

/// Decodes all blocks of a buffer to the size in its header; `None` where only C-Blosc can.
pub(super) fn decode(header: &BloscHeader, encoded: &[u8], out: &mut [u8]) -> Option<CodecResult<()>> {
    let decompress: Decompress = match header.format() {
        FORMAT_LZ4 => decompress_lz4,
        FORMAT_ZSTD => zstd::decompress,
        _ => return None,
    };
    let size = header.shuffled_size()?;
    if !matches!(size, 1 | 2 | 4 | 8) || (size > 1 && !has_wide_registers()) {
        return None;
    }
    let starts = encoded.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<4>().0;
    for (number, (out, start)) in out.chunks_mut(header.block_bytes).zip(starts).enumerate() {
        let parts = header.parts(out.len(), out.len() < header.block_bytes);
        let decoded = block(encoded, *start).and_then(|stored| match size {
            1 => decode_parts(stored, out, parts, decompress),
            _ => scratch::with(out.len(), |planes| unshuffle(stored, planes, parts, size, decompress, out)),
        });
        if let Err(error) = decoded {
            let reason = format_args!("block {number} of the blosc buffer is damaged: {}", error.reason);
            return Some(Err(CodecError::new(reason)));
        }
    }
    Some(Ok(()))
}

/// Returns the stored bytes from the beginning of a block.
fn block(encoded: &[u8], start: [u8; 4]) -> CodecResult<&[u8]> {
    let start = usize::try_from(i32::from_le_bytes(start)).ok();
    start.and_then(|start| encoded.get(start..)).ok_or_else(|| CodecError::new("it begins outside"))
}

/// Takes the part at the beginning of `stored`.
fn next_part<'a>(stored: &mut &'a [u8]) -> CodecResult<&'a [u8]> {
    let part = stored.split_first_chunk::<4>().and_then(|(length, rest)| {
        let length = usize::try_from(i32::from_le_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        *stored = rest;
        Some(part)
    });
    part.ok_or_else(|| CodecError::new("a part ends outside"))
}

/// Decodes the parts of a block that is not shuffled.
fn decode_parts(mut stored: &[u8], out: &mut [u8], parts: usize, decompress: Decompress) -> CodecResult<()> {
    for out in out.chunks_exact_mut(out.len() / parts) {
        let part = next_part(&mut stored)?;
        if part.len() == out.len() { out.copy_from_slice(part) } else { decompress(part, out)? }
    }
    Ok(())
}

/// Decodes the parts of a block of elements of `size` bytes to `decoded`, where they are compressed, and puts the bytes in order.
fn unshuffle(
    mut stored: &[u8],
    decoded: &mut [u8],
    parts: usize,
    size: usize,
    decompress: Decompress,
    out: &mut [u8],
) -> CodecResult<()> {
    let part_bytes = decoded.len() / parts;
    let mut found = [&[][..]; MAX_PARTS];
    for (decoded, found) in decoded.chunks_exact_mut(part_bytes).zip(&mut found) {
        let part = next_part(&mut stored)?;
        *found = if part.len() == part_bytes {
            part
        } else {
            decompress(part, decoded)?;
            decoded
        };
    }
    if parts == size {
        shuffle::interleave(found.into_iter().take(size), size, out);
        return Ok(());
    }
    let [whole, ..] = found;
    let (planes, rest) = whole.split_at(whole.len() - whole.len() % size);
    let (elements, rest_of_out) = out.split_at_mut(planes.len());
    // A rest shorter than an element is not shuffled.
    rest_of_out.copy_from_slice(rest);
    if !elements.is_empty() {
        shuffle::interleave(planes.chunks_exact(planes.len() / size), size, elements);
    }
    Ok(())
}
