//! Buffers between the codecs of a chain, kept per thread.
//!
//! A fresh buffer costs a page fault per 4 KiB, several times what a fast decoder costs, so what one chunk used
//! the next one uses again. Uses nothing.

use std::cell::RefCell;

use super::{CodecError, CodecResult};

/// Buffers that a thread keeps: what a chain has in hand at once, before and behind an array → array codec.
const KEPT_BUFFERS: usize = 2;
/// The longest buffer that is kept.
const KEPT_BYTES: usize = 8 << 20;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with a buffer of `len` bytes of undefined content.
pub fn with<T>(len: usize, work: impl FnOnce(&mut [u8]) -> CodecResult<T>) -> CodecResult<T> {
    let mut buffer = take(len)?;
    let result = match buffer.get_mut(..len) {
        Some(slice) => work(slice),
        None => Err(CodecError::new("scratch buffer too short")),
    };
    put_back(buffer);
    result
}

/// `len` zero bytes, or an error where there is not so much memory.
pub fn zeroed(len: usize) -> CodecResult<Vec<u8>> {
    // `vec!` takes zero pages from the system without touching them but aborts the process where there are
    // none; asking for the same first, which is as cheap, turns that into an error.
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(len).map_err(|_| CodecError::new(format_args!("no memory for {len} bytes")))?;
    drop(probe);
    Ok(vec![0; len])
}

/// The smallest kept buffer that is long enough, or a new one.
fn take(len: usize) -> CodecResult<Vec<u8>> {
    let kept = KEPT.with_borrow_mut(|kept| {
        let found = kept.iter().enumerate().filter(|(_, buffer)| buffer.len() >= len);
        let best = found.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at);
        best.map(|at| kept.swap_remove(at))
    });
    match kept {
        Some(buffer) => Ok(buffer),
        None => zeroed(len),
    }
}

/// Keeps a buffer for the next use; of too many the shortest goes.
fn put_back(buffer: Vec<u8>) {
    if buffer.len() > KEPT_BYTES {
        return;
    }
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
    fn what_no_memory_holds_is_an_error() {
        assert!(zeroed(usize::MAX / 2).is_err());
        assert!(with(usize::MAX, |_| Ok(())).is_err());
    }

    #[test]
    fn long_buffers_are_given_back() {
        with(KEPT_BYTES + 1, |_| Ok(())).unwrap();
        assert!(KEPT.with_borrow(|kept| kept.iter().all(|buffer| buffer.len() <= KEPT_BYTES)));
    }
}
