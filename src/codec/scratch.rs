//! Buffers between the codecs of a chain, and for what they encode: short ones kept by each thread, long ones by all together.
//!
//! A fresh buffer costs a page fault per 4 KiB, several times what a fast decoder costs, so what one chunk used
//! the next one uses again. More threads store than encode at a time, so that long buffers of their own would be many. Uses nothing.

use std::cell::RefCell;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::{CodecError, CodecResult};

/// Where a buffer may begin that the system copies a file to: on a cache line. A large block of malloc begins 16 bytes behind
/// a page's start, and copying to such an address from the start of a page takes five times as long on processors that
/// copy with `rep movsb` and slow down where the target is less than 32 bytes ahead of the source modulo a page (1.9
/// against 10 GB/s, AMD EPYC).
const LINE_BYTES: usize = 64;

/// Short buffers that a thread keeps: what a chain has in hand at once, before and behind an array → array codec.
const KEPT_BUFFERS: usize = 2;
/// The longest buffer that is kept.
const KEPT_BYTES: usize = 8 << 20;
/// Lengths of kept buffers are multiples of this, and of no more than [`KEPT_BYTES`].
const GRAIN_BYTES: usize = 1 << 18;
/// Shorter ones are kept by their thread, and those that are given away by the allocator.
const MIN_SHARED_BYTES: usize = 1 << 16;
/// What all threads together keep for each core.
const SHARED_BYTES_PER_CORE: usize = 32 << 20;

thread_local! {
    /// The short buffers of one thread.
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Long buffers that no thread has; any length up to their capacity.
static SHARED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn shared_limit_bytes() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| SHARED_BYTES_PER_CORE * std::thread::available_parallelism().map_or(2, usize::from))
}

/// Lets whoever comes next have a long buffer.
fn share(buffer: Vec<u8>) {
    if !(MIN_SHARED_BYTES..=KEPT_BYTES).contains(&buffer.capacity()) {
        return;
    }
    let mut shared = SHARED.lock();
    let held: usize = shared.iter().map(Vec::capacity).sum();
    if held + buffer.capacity() <= shared_limit_bytes() {
        shared.push(buffer);
    }
}

/// The shortest shared buffer that has room for `len` bytes; its length is any.
fn shared(len: usize) -> Option<Vec<u8>> {
    if len < MIN_SHARED_BYTES {
        return None;
    }
    let mut shared = SHARED.lock();
    let found = shared.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
    let (at, _) = found.min_by_key(|(_, buffer)| buffer.capacity())?;
    Some(shared.swap_remove(at))
}

/// A buffer of `len` bytes of undefined content that is to be given away. Whoever is done with it may [`put_back`] it.
fn owned(len: usize) -> CodecResult<Vec<u8>> {
    let mut buffer = shared(len).map_or_else(|| fresh(len), Ok)?;
    buffer.resize(len, 0);
    Ok(buffer)
}

/// What `encode` writes to a buffer of `bound` bytes; it tells how many they are.
pub fn encoded(bound: usize, encode: impl FnOnce(&mut [u8]) -> CodecResult<usize>) -> CodecResult<Vec<u8>> {
    with(bound, |buffer| {
        let length = encode(buffer)?;
        copied(buffer.get(..length).unwrap_or_default())
    })
}

/// A copy that is to be given away.
pub fn copied(bytes: &[u8]) -> CodecResult<Vec<u8>> {
    let mut copy = owned(bytes.len())?;
    copy.copy_from_slice(bytes);
    Ok(copy)
}

/// Runs `work` with a buffer of `len` bytes of undefined content, which begins on a cache line.
pub fn with<T>(len: usize, work: impl FnOnce(&mut [u8]) -> CodecResult<T>) -> CodecResult<T> {
    let mut buffer = take(len.saturating_add(LINE_BYTES))?;
    let result = match on_line(&mut buffer, len) {
        Some(slice) => work(slice),
        None => Err(CodecError::new("scratch buffer too short")),
    };
    put_back(buffer);
    result
}

/// The first `len` bytes of a buffer from where a cache line begins.
fn on_line(buffer: &mut [u8], len: usize) -> Option<&mut [u8]> {
    let start = buffer.as_ptr().align_offset(LINE_BYTES);
    buffer.get_mut(start..start.checked_add(len)?)
}

/// A buffer for what is read from objects, used again for the next. Begins on a cache line.
#[derive(Default)]
pub struct Reading(Vec<u8>);

impl Reading {
    /// The first `len` bytes, of undefined content; an error where there is not so much memory.
    pub fn bytes(&mut self, len: usize) -> CodecResult<&mut [u8]> {
        let wanted = len.saturating_add(LINE_BYTES);
        if self.0.len() < wanted {
            // Nothing of the old content is worth its copy.
            self.0 = Vec::new();
            self.0 = fresh(wanted)?;
        }
        on_line(&mut self.0, len).ok_or_else(|| CodecError::new("buffer too short"))
    }

    /// How much memory it takes.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// `len` zero bytes, or an error where there is not so much memory.
pub fn zeroed(len: usize) -> CodecResult<Vec<u8>> {
    // `vec!` takes zero pages from the system without touching them but aborts the process where there are
    // none; asking for the same first, which is as cheap, turns that into an error.
    probe(len)?;
    Ok(vec![0; len])
}

/// Fails where there is not so much memory. Takes none and touches none.
pub fn probe(len: usize) -> CodecResult<()> {
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(len).map_err(|_| CodecError::new(format_args!("no memory for {len} bytes")))
}

/// The smallest buffer that has at least `len` bytes, or a new one.
pub(super) fn take(len: usize) -> CodecResult<Vec<u8>> {
    if let Some(mut buffer) = shared(len) {
        if buffer.len() < len {
            buffer.resize(buffer.capacity(), 0);
        }
        return Ok(buffer);
    }
    let kept = KEPT.with_borrow_mut(|kept| {
        let found = kept.iter().enumerate().filter(|(_, buffer)| buffer.len() >= len);
        let best = found.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at);
        best.map(|at| kept.swap_remove(at))
    });
    kept.map_or_else(|| fresh(len), Ok)
}

/// A new buffer, a little longer than `len` where it will be kept, so that it also serves what comes next.
fn fresh(len: usize) -> CodecResult<Vec<u8>> {
    match len {
        0..MIN_SHARED_BYTES => zeroed(len),
        MIN_SHARED_BYTES..=KEPT_BYTES => zeroed(len.next_multiple_of(GRAIN_BYTES)),
        _ => zeroed(len),
    }
}

/// Keeps a buffer for the next use; of too many short ones the shortest goes.
pub(super) fn put_back(buffer: Vec<u8>) {
    if buffer.capacity() >= MIN_SHARED_BYTES {
        return share(buffer);
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
    fn what_a_thread_leaves_another_uses() {
        const LENGTH: usize = 5_000_003;
        let used = || with(LENGTH, |buffer| Ok(buffer.as_ptr() as usize)).unwrap();
        let first = std::thread::spawn(used).join().unwrap();
        assert_eq!(std::thread::spawn(used).join().unwrap(), first);
        let buffer = owned(LENGTH).unwrap();
        assert_eq!(buffer.len(), LENGTH);
        put_back(buffer);
    }

    #[test]
    fn what_no_memory_holds_is_an_error() {
        assert!(zeroed(usize::MAX / 2).is_err());
        assert!(with(usize::MAX, |_| Ok(())).is_err());
    }

    #[test]
    fn long_buffers_are_given_back() {
        with(KEPT_BYTES + 1, |_| Ok(())).unwrap();
        assert!(SHARED.lock().iter().all(|buffer| buffer.capacity() <= KEPT_BYTES));
    }
}
