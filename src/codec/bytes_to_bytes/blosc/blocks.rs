//! Decoding a blosc buffer, or some blocks of it without reading the others.
//!
//! Spec: C-Blosc's chunk format: a header of 16 bytes, the start of each block as an i32, the blocks in any order. The requested
//! blocks become a buffer of their own, which is checked and decoded like any other.

use super::c_blosc::decompress;
use super::direct;
use super::header::{BloscHeader, HEADER_BYTES};
use crate::codec::{CodecError, CodecResult, StoredBytes, scratch};

/// Bytes that are read at first: the header and enough block starts for nearly every chunk.
const HEAD_BYTES: usize = 1024;

/// Decodes a buffer that holds exactly `out.len()` bytes.
pub(super) fn decode(encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
    let header = BloscHeader::parse(encoded)?;
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

/// Returns the decoded bytes of one block.
pub(super) fn block_bytes(stored: &dyn StoredBytes) -> CodecResult<Option<u64>> {
    let mut head = [0; HEADER_BYTES];
    let available = available(stored)?;
    let head = head.get_mut(..available.min(HEADER_BYTES)).unwrap_or_default();
    stored.read(0, head)?;
    let header = BloscHeader::parse_prefix(head, available)?;
    // Uncompressed bytes can be read from any position.
    Ok(Some(if header.is_copied() { 1 } else { header.block_bytes as u64 }))
}

/// Decodes `out.len()` bytes from `start` on of a buffer that holds exactly `decoded_bytes`; returns how many it had to decode.
pub(super) fn decode_part(
    stored: &dyn StoredBytes,
    decoded_bytes: usize,
    start: usize,
    out: &mut [u8],
) -> CodecResult<usize> {
    let outside = || CodecError::new("a part that lies outside of its chunk");
    let end = start.checked_add(out.len()).filter(|&end| end <= decoded_bytes).ok_or_else(outside)?;
    if out.is_empty() {
        return Ok(0);
    }
    let available = available(stored)?;
    let mut head = vec![0; available.min(HEAD_BYTES)];
    stored.read(0, &mut head)?;
    let header = BloscHeader::parse_prefix(&head, available)?;
    header.expect_bytes(decoded_bytes)?;
    if header.is_copied() {
        return if header.encoded_bytes == decoded_bytes + HEADER_BYTES {
            stored.read((HEADER_BYTES + start) as u64, out).map(|()| out.len())
        } else {
            Err(CodecError::new("a blosc buffer without compression has the wrong length"))
        };
    }
    let blocks = decoded_bytes.div_ceil(header.block_bytes);
    let starts_end = HEADER_BYTES + 4 * blocks;
    if starts_end > header.encoded_bytes {
        return Err(CodecError::new(format_args!("a blosc buffer too short for its {blocks} blocks")));
    }
    if starts_end > head.len() {
        // At most as long as the stored buffer.
        head.resize(starts_end, 0);
        stored.read(0, &mut head)?;
    }
    let (starts, _) = head.get(HEADER_BYTES..starts_end).unwrap_or_default().as_chunks::<4>();
    let mut first = start / header.block_bytes;
    let last = (end - 1) / header.block_bytes;
    // A short last block is decoded differently from a whole one; it is recognised by not being the first.
    if first + 1 == blocks && first > 0 && !decoded_bytes.is_multiple_of(header.block_bytes) {
        first -= 1;
    }
    let covered = first * header.block_bytes..decoded_bytes.min((last + 1) * header.block_bytes);
    with_blocks(stored, &header, &head, starts, first..last + 1, |buffer| {
        if covered == (start..end) {
            return decode(buffer, out);
        }
        scratch::with(covered.len(), |decoded| {
            decode(buffer, decoded)?;
            let part = decoded.get(start - covered.start..end - covered.start).ok_or_else(outside)?;
            out.copy_from_slice(part);
            Ok(())
        })
    })?;
    Ok(covered.len())
}

fn available(stored: &dyn StoredBytes) -> CodecResult<usize> {
    usize::try_from(stored.size_bytes()).map_err(CodecError::new)
}

/// Calls `work` with a buffer of the blocks with these numbers.
fn with_blocks(
    stored: &dyn StoredBytes,
    header: &BloscHeader,
    head: &[u8],
    starts: &[[u8; 4]],
    wanted: std::ops::Range<usize>,
    work: impl FnOnce(&[u8]) -> CodecResult<()>,
) -> CodecResult<()> {
    let damaged = || CodecError::new("the starts of a blosc buffer's blocks are damaged");
    let least = HEADER_BYTES + 4 * starts.len();
    let mut sorted = Vec::with_capacity(starts.len() + 1);
    for start in starts {
        let start = usize::try_from(i32::from_le_bytes(*start)).map_err(|_| damaged())?;
        if start < least || start > header.encoded_bytes {
            return Err(damaged());
        }
        sorted.push(start);
    }
    let wanted_starts: Vec<usize> = sorted.get(wanted.clone()).ok_or_else(damaged)?.to_vec();
    sorted.push(header.encoded_bytes);
    sorted.sort_unstable();
    // A block ends where the next one in the buffer begins.
    let block_end = |start: usize| sorted.get(sorted.partition_point(|&other| other <= start)).copied();
    let low = wanted_starts.iter().copied().min().ok_or_else(damaged)?;
    let high =
        wanted_starts.iter().map(|&start| block_end(start).unwrap_or(start)).max().ok_or_else(damaged)?;
    let new_least = HEADER_BYTES + 4 * wanted.len();
    let length = new_least + (high - low);
    let decoded =
        header.decoded_bytes.min(wanted.end * header.block_bytes) - wanted.start * header.block_bytes;
    scratch::with(length, |buffer| {
        let (made, blocks) = buffer.split_at_mut_checked(new_least).ok_or_else(damaged)?;
        stored.read(low as u64, blocks)?;
        let mut fields = head.get(..4).unwrap_or_default().to_vec();
        for field in [decoded, header.block_bytes, length] {
            fields.extend(i32::try_from(field).map_err(CodecError::new)?.to_le_bytes());
        }
        for start in wanted_starts {
            fields.extend(i32::try_from(start - low + new_least).map_err(CodecError::new)?.to_le_bytes());
        }
        made.copy_from_slice(fields.get(..new_least).ok_or_else(damaged)?);
        work(buffer)
    })
}
