//! Memory in huge pages, as a safe type, and the allocator of the program. Part of `sys.rs`; like it, it uses nothing of the crate.
//!
//! Manual pages: mmap(2), madvise(2).

use std::alloc::{GlobalAlloc, Layout as AllocLayout, System};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE_BYTES: usize = 4096;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The length from which on a zeroed buffer counts as one for the requests of FUSE. fuser's have 16 MiB.
const REQUEST_BUFFER_BYTES: usize = 16 << 20;
/// The most bytes of such a buffer that a request takes: a write of 1 MiB, and its header.
const MOST_REQUEST_BYTES: usize = (1 << 20) + (8 << 10);

/// Set by [`touch_request_buffers`].
static TOUCHES: AtomicBool = AtomicBool::new(false);

/// The allocator of the program: the system's, which touches the pages of buffers for requests after [`touch_request_buffers`].
pub struct Allocator;

/// From now on, a buffer for requests has its pages before the kernel copies a request into them. If a thread is killed while the kernel copies into
/// a page that it does not have yet, the kernel ends the request with EIO, so that no other daemon gets it (fuse_dev_do_read in fs/fuse/dev.c).
pub fn touch_request_buffers() {
    TOUCHES.store(true, Ordering::Relaxed);
}

// SAFETY: all memory is the system allocator's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: AllocLayout) -> *mut u8 {
        // SAFETY: the caller keeps the promises of this function, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: AllocLayout) -> *mut u8 {
        // SAFETY: as above.
        let start = unsafe { System.alloc_zeroed(layout) };
        if layout.size() >= REQUEST_BUFFER_BYTES && TOUCHES.load(Ordering::Relaxed) && !start.is_null() {
            for offset in (0..MOST_REQUEST_BYTES).step_by(PAGE_BYTES) {
                // SAFETY: the offset is inside of the buffer, which has no other user yet. It is zero already.
                unsafe { start.add(offset).write_volatile(0) };
            }
        }
        start
    }

    unsafe fn realloc(&self, start: *mut u8, layout: AllocLayout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: AllocLayout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

/// A mapping of zeros, unmapped with its last part.
struct Mapping {
    start: NonNull<libc::c_void>,
    length: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, whole, and every `Pages` of it is gone: each holds an `Arc` of it.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}

/// Bytes that begin on a page, in memory made of huge pages where the system has them: one page fault for 2 MiB instead
/// of 512. Dropping them gives their memory back.
pub struct Pages {
    start: NonNull<u8>,
    length: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: a `Pages` is the only owner of its bytes, which are plain memory.
unsafe impl Send for Pages {}
// SAFETY: through a shared reference they can only be read.
unsafe impl Sync for Pages {}
// SAFETY: a mapping can be unmapped by any thread.
unsafe impl Send for Mapping {}
// SAFETY: nothing can be done with a shared reference to it.
unsafe impl Sync for Mapping {}

impl Pages {
    /// `count` times `length` bytes of zeros, none of them touched yet; `None` where the system refuses.
    pub fn new(length: usize, count: usize) -> Option<Vec<Pages>> {
        // So much longer that a huge page can begin where the first part does.
        Pages::mapped(length, count, HUGE_PAGE_BYTES, libc::MADV_HUGEPAGE)
    }

    /// `length` bytes of zeros in small pages, which take memory one by one as they are touched.
    pub fn small(length: usize) -> Option<Pages> {
        // Without a gap between them, neighbours are one area to the system, which has a limit of areas.
        Pages::mapped(length, 1, PAGE_BYTES, libc::MADV_NOHUGEPAGE)?.pop()
    }

    /// The first part begins at a multiple of `alignment`, for which the mapping is up to that much longer.
    fn mapped(length: usize, count: usize, alignment: usize, advice: libc::c_int) -> Option<Vec<Pages>> {
        let step = length.checked_next_multiple_of(PAGE_BYTES)?.max(PAGE_BYTES);
        let wanted = step.checked_mul(count)?;
        let mapped = wanted.checked_add(alignment - PAGE_BYTES)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mapping = Arc::new(Mapping { start: NonNull::new(start)?, length: mapped });
        let skipped = start.addr().next_multiple_of(alignment) - start.addr();
        // SAFETY: a mapping begins on a page, so `skipped` is at most what it is longer than `wanted`; the advice changes
        // no content, and that it may fail does no harm.
        let first = unsafe {
            let first = start.cast::<u8>().add(skipped);
            libc::madvise(first.cast(), wanted, advice);
            first
        };
        // SAFETY: part `number` ends at `step * (number + 1)`, at most `wanted` after `first`, inside the mapping.
        let part = |number: usize| NonNull::new(unsafe { first.add(number * step) });
        let pages = |start| Pages { start, length, _mapping: Arc::clone(&mapping) };
        (0..count).map(|number| part(number).map(pages)).collect()
    }

    /// What has the system provide their memory before it is touched.
    pub fn untouched(&self) -> Untouched {
        Untouched { start: self.start, length: self.length, _mapping: Arc::clone(&self._mapping) }
    }
}

/// The address of some [`Pages`], which their owner may read, write or drop at the same time.
pub struct Untouched {
    start: NonNull<u8>,
    length: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: it is an address only; nothing is read or written through it.
unsafe impl Send for Untouched {}

impl Untouched {
    /// Has the system provide the memory, which takes as long as touching it. Does nothing on a system without that call.
    pub fn provide(&self) {
        let length = self.length.next_multiple_of(PAGE_BYTES);
        // SAFETY: the range is mapped as long as `_mapping` lives; providing pages changes no content (madvise(2),
        // MADV_POPULATE_WRITE), also while they are in use.
        unsafe { libc::madvise(self.start.as_ptr().cast(), length, libc::MADV_POPULATE_WRITE) };
    }
}

impl std::ops::Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped and initialized (zeros at first) as long as `_mapping` lives, and no other
        // `Pages` has any of them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // Other parts may keep the mapping for long.
        let length = self.length.next_multiple_of(PAGE_BYTES);
        // SAFETY: the bytes up to the next page's end belong to this part alone, and are never read again.
        unsafe { libc::madvise(self.start.as_ptr().cast(), length, libc::MADV_DONTNEED) };
    }
}

/// Makes the C allocator keep memory that codecs allocate and free for each chunk, instead of mapping and unmapping it, which
/// costs a page fault per 4 KiB. Blocks up to `kept_bytes` are kept, and a little more than that in each of `arenas` arenas.
/// By default it has eight arenas for each processor, each of which keeps the most that threads ever took from it at one time.
pub fn keep_freed_memory(kept_bytes: i32, arenas: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes two numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, arenas);
        libc::mallopt(libc::M_MMAP_THRESHOLD, kept_bytes);
        libc::mallopt(libc::M_TRIM_THRESHOLD, kept_bytes.saturating_mul(2));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (kept_bytes, arenas);
}
