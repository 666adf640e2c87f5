//! Locks, condition variables, atomics and threads of this layer. Uses nothing of the crate.
//!
//! They are those of parking_lot and the standard library. With the feature `shuttle` they are shuttle's, under the
//! same names: after each operation on one of them, the tests in `interleavings` choose the thread that runs next.

use std::io;

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(feature = "shuttle")]
pub use scheduled::{Condvar, Mutex, MutexGuard, OnceLock};
#[cfg(feature = "shuttle")]
pub use shuttle::{sync::atomic, thread};
#[cfg(not(feature = "shuttle"))]
pub use std::{
    sync::{OnceLock, atomic},
    thread,
};

/// Starts a thread with a name.
pub fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(run)
}

/// Runs the same work on up to `count` threads, this thread included, and waits for all of them. If threads cannot be
/// started, fewer do the work.
pub fn on_threads(count: usize, name: &str, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..count {
            #[cfg(not(feature = "shuttle"))]
            let _ = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, &work);
            #[cfg(feature = "shuttle")]
            drop((name, scope.spawn(&work)));
        }
        #[cfg(not(feature = "shuttle"))]
        work();
        // shuttle wakes the owner of a scope when its threads end, whatever the owner waits for. So the owner does no
        // work itself.
        #[cfg(feature = "shuttle")]
        drop(scope.spawn(&work));
    });
}

/// shuttle's locks with parking_lot's signatures.
#[cfg(feature = "shuttle")]
mod scheduled {
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;

    use shuttle::sync::{Condvar as Inner, Mutex as InnerMutex, MutexGuard as InnerGuard};

    #[derive(Debug, Default)]
    pub struct Mutex<T>(InnerMutex<T>);

    /// Empty only while its thread waits on a condition variable.
    pub struct MutexGuard<'a, T>(Option<InnerGuard<'a, T>>);

    #[derive(Debug, Default)]
    pub struct Condvar(Inner);

    /// A thread that comes while another makes the value makes one, too; the first value stays.
    #[derive(Debug, Default)]
    pub struct OnceLock<T>(std::sync::OnceLock<T>);

    impl<T> OnceLock<T> {
        pub fn new() -> Self {
            OnceLock(std::sync::OnceLock::new())
        }

        pub fn get(&self) -> Option<&T> {
            self.0.get()
        }

        pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            match self.0.get() {
                Some(made) => made,
                None => {
                    let made = make();
                    self.0.get_or_init(|| made)
                }
            }
        }
    }

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(InnerMutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }

        /// Does not wait.
        pub fn try_lock_until(&self, _deadline: std::time::Instant) -> Option<MutexGuard<'_, T>> {
            self.try_lock()
        }

        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T> From<T> for Mutex<T> {
        fn from(value: T) -> Self {
            Mutex::new(value)
        }
    }

    #[allow(clippy::expect_used)]
    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("the guard is empty only during a wait")
        }
    }

    #[allow(clippy::expect_used)]
    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("the guard is empty only during a wait")
        }
    }

    impl Condvar {
        pub fn new() -> Self {
            Condvar(Inner::new())
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if let Some(inner) = guard.0.take() {
                guard.0 = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
            }
        }

        /// Never times out.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: std::time::Duration) {
            self.wait(guard);
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
