//! A counting semaphore for CPU-bound work, while other threads of the same write-back wait for the disk.
//!
//! Uses `sync.rs` alone. Invariant: a thread with a permit waits for nothing but a processor, so every permit returns.

use crate::array::sync::{Condvar, Mutex};

/// A counting semaphore.
pub struct Semaphore {
    free: Mutex<usize>,
    returned: Condvar,
}

/// One permit. Dropping it returns it.
pub struct Permit<'a>(&'a Semaphore);

impl Semaphore {
    /// Creates a semaphore of `count` permits, at least one.
    pub fn new(count: usize) -> Self {
        Semaphore { free: Mutex::new(count.max(1)), returned: Condvar::new() }
    }

    /// Waits for a permit.
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
    fn permits_limit_concurrency() {
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
