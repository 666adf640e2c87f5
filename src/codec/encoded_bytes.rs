//! A chunk as the codecs have encoded it, on its way into an object.
//!
//! Where there are many of them, the bytes lie on pages of their own, huge ones where the system has them: so they are written
//! past the page cache from where they are (`store/output.rs`), and a disk gets few long pieces. Uses `scratch` and `sys`.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::{CodecError, CodecResult, scratch};
use crate::sys::Pages;

/// Fewer bytes go through the page cache, or have others of the same shard around them.
const MIN_PLACED_BYTES: usize = 1 << 20;
/// What is kept for the next chunks, for each core.
const KEPT_BYTES_PER_CORE: usize = 16 << 20;

/// Memory for the next chunks.
static KEPT: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

/// The bytes of one encoded chunk. Dropped when they are stored: their memory is used again.
pub struct EncodedBytes(Memory);

enum Memory {
    /// As much as there are bytes.
    Exact(Vec<u8>),
    /// The first so many.
    Placed(Pages, usize),
}

impl EncodedBytes {
    /// What `encode` writes to a buffer of `bound` bytes; it tells how many they are.
    pub(super) fn of(
        bound: usize,
        encode: impl FnOnce(&mut [u8]) -> CodecResult<usize>,
    ) -> CodecResult<EncodedBytes> {
        if bound < MIN_PLACED_BYTES {
            return scratch::encoded(bound, encode).map(Into::into);
        }
        let no_memory = || CodecError::new(format_args!("no memory for {bound} bytes"));
        let mut pages = kept(bound).or_else(|| Pages::new(bound, 1)?.pop()).ok_or_else(no_memory)?;
        let length = encode(pages.get_mut(..bound).ok_or_else(no_memory)?)?;
        if length > bound {
            return Err(CodecError::new(format_args!("{length} bytes encoded where {bound} are the most")));
        }
        let encoded = EncodedBytes(Memory::Placed(pages, length));
        if length >= MIN_PLACED_BYTES && length >= bound / 2 {
            return Ok(encoded);
        }
        // Most of the memory is empty: whoever encodes next has more of it.
        scratch::copied(&encoded).map(Into::into)
    }
}

/// Memory of at least `length` bytes, and not of far more, that was used before.
fn kept(length: usize) -> Option<Pages> {
    let mut kept = KEPT.lock();
    let fits = |pages: &Pages| (length..=length.saturating_mul(2)).contains(&pages.len());
    let at = kept.iter().position(fits)?;
    Some(kept.swap_remove(at))
}

/// Keeps memory for the next chunks; of too much, what was kept first goes.
fn keep(pages: Pages) {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    let cores = || std::thread::available_parallelism().map_or(2, usize::from);
    let limit = *LIMIT.get_or_init(|| KEPT_BYTES_PER_CORE * cores());
    let mut kept = KEPT.lock();
    kept.push(pages);
    let mut gone = Vec::new();
    while kept.iter().map(|pages| pages.len()).sum::<usize>() > limit {
        gone.push(kept.remove(0));
    }
    drop(kept); // memory is given back outside the lock
    drop(gone);
}

impl Drop for EncodedBytes {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.0, Memory::Exact(Vec::new())) {
            Memory::Exact(bytes) => scratch::put_back(bytes),
            Memory::Placed(pages, _) => keep(pages),
        }
    }
}

impl From<Vec<u8>> for EncodedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        EncodedBytes(Memory::Exact(bytes))
    }
}

impl AsRef<[u8]> for EncodedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for EncodedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Exact(bytes) => bytes,
            Memory::Placed(pages, length) => pages.get(..*length).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for EncodedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} encoded bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE_BYTES: usize = 4096;
    const MIB: usize = 1 << 20;

    fn of(bound: usize, length: usize) -> CodecResult<EncodedBytes> {
        EncodedBytes::of(bound, |out| {
            let rest = out.get_mut(..length).unwrap_or_default();
            rest.iter_mut().zip(0u32..).for_each(|(byte, at)| *byte = (at >> 8) as u8 ^ at as u8);
            Ok(length)
        })
    }

    #[test]
    fn many_begin_on_a_page_and_few_take_no_more_than_they_need() {
        for (bound, length) in [
            (0, 0),
            (1000, 999),
            (3 * MIB, 3 * MIB),
            (4 * MIB + 5, 2 * MIB + 3),
            (9 * MIB, 3),
            (4 * MIB, MIB),
        ] {
            let encoded = of(bound, length).unwrap();
            assert_eq!(encoded.len(), length);
            assert!(encoded.iter().zip(0u32..).all(|(&byte, at)| byte == (at >> 8) as u8 ^ at as u8));
            let is_placed = length >= MIN_PLACED_BYTES && length >= bound / 2;
            assert_eq!(matches!(encoded.0, Memory::Placed(..)), is_placed, "{length} of {bound}");
            assert!(!is_placed || encoded.as_ptr().addr().is_multiple_of(PAGE_BYTES));
        }
        // Memory is used again, but not for far fewer bytes.
        const LENGTH: usize = 13 * MIB + 4321;
        let address = || of(LENGTH, LENGTH).unwrap().as_ptr().addr();
        let first = address();
        drop(of(2 * MIB, 2 * MIB));
        assert_eq!(address(), first);
    }

    #[test]
    fn an_encoder_that_fails_or_tells_too_many_is_an_error() {
        assert!(EncodedBytes::of(2 * MIB, |_| Err(CodecError::new("no"))).is_err());
        assert!(EncodedBytes::of(2 * MIB, |_| Ok(2 * MIB + 1)).is_err());
        assert!(of(usize::MAX, 1).is_err());
    }
}
