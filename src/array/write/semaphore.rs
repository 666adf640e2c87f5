//! A number of permits: so many threads at once do what needs a processor, while others of the same round wait for the disk.
//!
//! Uses `sync.rs` alone. Invariant: who holds a permit waits for nothing but a processor, so that permits always come back.

use crate::array::sync::{Condvar, Mutex};

/// The permits.
pub struct Semaphore {
    free: Mutex<usize>,
    returned: Condvar,
}

/// One permit, given back when it is dropped.
pub struct Permit<'a>(&'a Semaphore);

impl Semaphore {
    /// So many, at least one.
    pub fn new(count: usize) -> Self {
        Semaphore { free: Mutex::new(count.max(1)), returned: Condvar::new() }
    }

    /// Waits for one.
    pub fn take(&self) -> Permit<'_> {
        let mut free = self.free.lock();
        while *free == 0 {
            self.returned.wait(&mut free);
        }
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_at_once_than_there_are() {
        let (permits, now, most) = (Semaphore::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _permit = permits.take();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 2);
    }
}
