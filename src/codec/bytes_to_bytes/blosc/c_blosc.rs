//! Safe functions over C-Blosc and C-LZ4. Their input has been checked (`header.rs`).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::sync::Once;

use super::header::HEADER_BYTES;
use crate::codec::{CodecError, CodecResult, scratch};

/// How a chunk is encoded.
pub(super) struct Blosc {
    pub compressor: &'static CStr,
    pub level: c_int,
    pub shuffle: c_int,
    pub type_size: usize,
    pub block_size: usize,
}

/// Chooses C-Blosc's shuffle routines before any thread needs them. C-Blosc itself chooses at first use, without a
/// lock.
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

/// Decompresses a whole buffer that [`super::header::Header::check_blocks`] has checked and that holds `out.len()` bytes.
pub(super) fn decompress(encoded: &[u8], block_bytes: usize, out: &mut [u8]) -> CodecResult<()> {
    initialize();
    // C-Blosc does not check the allocation of its own buffer of two blocks.
    scratch::probe(2 * block_bytes + 4096)?;
    // SAFETY: C-Blosc writes at most `out.len()` bytes to `out` (that limit is passed, and the checked header says exactly this
    // many). It reads the header's `cbytes` from `encoded`, which is `encoded.len()`; every block start and part
    // length inside was followed by `check_blocks` and stays within. `blosc_decompress_ctx` with one thread keeps its
    // state on the stack, and the shuffle routines were chosen by `initialize`. The slices cannot overlap.
    let length = unsafe {
        blosc::blosc_decompress_ctx(encoded.as_ptr().cast(), out.as_mut_ptr().cast(), out.len(), 1)
    };
    if usize::try_from(length) == Ok(out.len()) {
        Ok(())
    } else {
        Err(CodecError::new("a block of the blosc buffer is damaged"))
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
    if decoded == room { Ok(()) } else { Err(CodecError::new("LZ4 data that do not decode to its length")) }
}

/// Compresses into `encoded`, which is longer than `decoded` by a header; returns the encoded length.
pub(super) fn compress(codec: &Blosc, decoded: &[u8], encoded: &mut [u8]) -> CodecResult<usize> {
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
