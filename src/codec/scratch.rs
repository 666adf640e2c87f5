//! Buffers between the codecs of a chain: short ones kept by each thread, long ones from the pool of `memory`.
//!
//! A fresh buffer costs a page fault per 4 KiB, several times as much as a fast decoder. So the next chunk reuses the
//! buffers of the last one. Uses `memory`.

use std::borrow::Cow;
use std::cell::RefCell;

use super::error::check_limit;
use super::{CodecError, CodecResult};
use crate::memory::{Buffer, MIN_PAGES_BYTES};

/// The alignment of a buffer that the system copies a file to: a cache line. A large block of malloc begins 16 bytes after
/// a page's start, and copying from the start of a page to that address takes five times as long on processors that
/// copy with `rep movsb` and slow down where the target is less than 32 bytes ahead of the source modulo a page (1.9
/// against 10 GB/s, AMD EPYC).
const LINE_BYTES: usize = 64;

/// Short buffers that a thread keeps. A chain uses this many at once, before and after an array → array codec.
const KEPT_BUFFERS: usize = 2;

thread_local! {
    /// The short buffers of one thread.
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the bytes that `encode` writes to a buffer of `bound` bytes. `encode` returns their number.
pub fn encoded(bound: usize, encode: impl FnOnce(&mut [u8]) -> CodecResult<usize>) -> CodecResult<Vec<u8>> {
    with(bound, |buffer| {
        let length = encode(buffer)?;
        copied(buffer.get(..length).unwrap_or_default())
    })
}

/// Returns the `length` bytes that `decode` writes, for a codec that knows their number before it decodes. More than `limit_bytes` are an
/// error before anything is allocated.
pub fn decoded<'a>(
    length: usize,
    limit_bytes: usize,
    decode: impl FnOnce(&mut [u8]) -> CodecResult<()>,
) -> CodecResult<Cow<'a, [u8]>> {
    check_limit(length, limit_bytes)?;
    let mut out = zeroed(length)?;
    decode(&mut out)?;
    Ok(Cow::Owned(out))
}

/// Returns a copy that the caller owns.
pub fn copied(bytes: &[u8]) -> CodecResult<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| no_memory(bytes.len()))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Runs `work` with a buffer of `len` bytes of undefined content, which begins on a cache line.
pub fn with<T>(len: usize, work: impl FnOnce(&mut [u8]) -> CodecResult<T>) -> CodecResult<T> {
    if len >= MIN_PAGES_BYTES {
        return work(&mut transient(len)?);
    }
    let mut buffer = take(len + LINE_BYTES)?;
    let result = match on_line(&mut buffer, len) {
        Some(slice) => work(slice),
        None => Err(CodecError::new("scratch buffer too short")),
    };
    put_back(buffer);
    result
}

/// Returns a long buffer of the pool, or an error if there is not enough memory.
pub fn transient(len: usize) -> CodecResult<Buffer> {
    Buffer::transient(len).ok_or_else(|| no_memory(len))
}

fn no_memory(len: usize) -> CodecError {
    CodecError::new(format_args!("no memory for {len} bytes"))
}

/// Returns the first `len` bytes of a buffer from the beginning of a cache line.
fn on_line(buffer: &mut [u8], len: usize) -> Option<&mut [u8]> {
    let start = buffer.as_ptr().align_offset(LINE_BYTES);
    buffer.get_mut(start..start.checked_add(len)?)
}

/// Returns `len` zero bytes, or an error if there is not enough memory.
pub fn zeroed(len: usize) -> CodecResult<Vec<u8>> {
    // `vec!` takes zero pages from the system without touching them but aborts the process where there are
    // none; asking for the same first, which is as cheap, turns that into an error.
    probe(len)?;
    Ok(vec![0; len])
}

/// Fails where there is not so much memory. Takes none and touches none.
pub fn probe(len: usize) -> CodecResult<()> {
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(len).map_err(|_| no_memory(len))
}

/// Returns the smallest of this thread's buffers that has at least `len` bytes, or a new one.
fn take(len: usize) -> CodecResult<Vec<u8>> {
    let kept = KEPT.with_borrow_mut(|kept| {
        let found = kept.iter().enumerate().filter(|(_, buffer)| buffer.len() >= len);
        let best = found.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at);
        best.map(|at| kept.swap_remove(at))
    });
    kept.map_or_else(|| zeroed(len), Ok)
}

/// Keeps a buffer for the next use; of too many the shortest goes.
fn put_back(buffer: Vec<u8>) {
    KEPT.with_borrow_mut(|kept| {
        kept.push(buffer);
        if kept.len() > KEPT_BUFFERS {
            kept.sort_by_key(Vec::len);
            kept.remove(0);
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn buffers_are_used_again_and_nest() {
        let first = with(1000, |buffer| Ok(buffer.as_ptr() as usize)).unwrap();
        let second = with(900, |outer| {
            assert_eq!(outer.len(), 900);
            with(900, |inner| {
                assert_ne!(inner.as_ptr(), outer.as_ptr());
                Ok(())
            })?;
            Ok(outer.as_ptr() as usize)
        });
        assert_eq!(second, Ok(first));
    }

    #[test]
    fn lengths_beyond_memory_are_errors() {
        assert!(zeroed(usize::MAX / 2).is_err());
        assert!(with(usize::MAX, |_| Ok(())).is_err());
    }
}
