//! Locks, condition variables, atomics and threads of this layer. Uses nothing of the crate.
//!
//! They are those of parking_lot and the standard library. With the feature `shuttle` they are shuttle's, under the
//! same names: after each operation on one of them, the tests in `interleavings` choose the thread that runs next.

use std::io;

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Condvar, Mutex};
#[cfg(feature = "shuttle")]
pub use scheduled::{Condvar, Mutex, OnceLock, OwnedMutexGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::{sync::atomic, thread};
#[cfg(not(feature = "shuttle"))]
pub use std::{
    sync::{OnceLock, atomic},
    thread,
};

/// A lock that keeps its mutex alive.
#[cfg(not(feature = "shuttle"))]
pub type OwnedMutexGuard<T> = parking_lot::ArcMutexGuard<parking_lot::RawMutex, T>;

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
    use std::sync::{Arc, PoisonError};

    use shuttle::sync::{Condvar as Inner, Mutex as InnerMutex, MutexGuard as InnerGuard};

    #[derive(Debug)]
    pub struct Mutex<T> {
        /// Empty while an [`OwnedMutexGuard`] has it.
        value: InnerMutex<Option<T>>,
        returned: Inner,
    }

    /// Empty only while its thread waits on a condition variable.
    pub struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        value: Option<InnerGuard<'a, Option<T>>>,
    }

    /// Empty only while it is dropped.
    pub struct OwnedMutexGuard<T> {
        mutex: Arc<Mutex<T>>,
        value: Option<T>,
    }

    #[derive(Debug, Default)]
    pub struct Condvar(Inner);

    /// If two threads make the value at the same time, the first one that ends stays.
    #[derive(Debug, Default)]
    pub struct OnceLock<T>(std::sync::OnceLock<T>);

    impl<T> OnceLock<T> {
        /// Sets the value; returns it if there is one already.
        pub fn set(&self, value: T) -> Result<(), T> {
            self.0.set(value)
        }

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
            Mutex { value: InnerMutex::new(Some(value)), returned: Inner::new() }
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
            MutexGuard { mutex: self, value: Some(self.with_value(value)) }
        }

        fn with_value<'a>(&'a self, mut value: InnerGuard<'a, Option<T>>) -> InnerGuard<'a, Option<T>> {
            while value.is_none() {
                value = self.returned.wait(value).unwrap_or_else(PoisonError::into_inner);
            }
            value
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let value = self.value.try_lock().ok().filter(|value| value.is_some());
            value.map(|value| MutexGuard { mutex: self, value: Some(value) })
        }

        /// Locks without waiting, whatever the deadline.
        pub fn try_lock_arc_until(
            self: &Arc<Self>,
            _deadline: std::time::Instant,
        ) -> Option<OwnedMutexGuard<T>> {
            let value = self.value.try_lock().ok()?.take()?;
            Some(OwnedMutexGuard { mutex: Arc::clone(self), value: Some(value) })
        }

        #[allow(clippy::expect_used)]
        pub fn into_inner(self) -> T {
            let value = self.value.into_inner().unwrap_or_else(PoisonError::into_inner);
            value.expect("a guard that has the value keeps the mutex alive")
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Mutex::new(T::default())
        }
    }

    impl<T> Drop for OwnedMutexGuard<T> {
        fn drop(&mut self) {
            *self.mutex.value.lock().unwrap_or_else(PoisonError::into_inner) = self.value.take();
            self.mutex.returned.notify_all();
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
            let value = self.value.as_ref().expect("the guard is empty only during a wait");
            value.as_ref().expect("a lock waits for the value")
        }
    }

    #[allow(clippy::expect_used)]
    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            let value = self.value.as_mut().expect("the guard is empty only during a wait");
            value.as_mut().expect("a lock waits for the value")
        }
    }

    #[allow(clippy::expect_used)]
    impl<T> Deref for OwnedMutexGuard<T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.value.as_ref().expect("the guard is empty only while it is dropped")
        }
    }

    #[allow(clippy::expect_used)]
    impl<T> DerefMut for OwnedMutexGuard<T> {
        fn deref_mut(&mut self) -> &mut T {
            self.value.as_mut().expect("the guard is empty only while it is dropped")
        }
    }

    impl Condvar {
        pub fn new() -> Self {
            Condvar(Inner::new())
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if let Some(value) = guard.value.take() {
                let value = self.0.wait(value).unwrap_or_else(PoisonError::into_inner);
                guard.value = Some(guard.mutex.with_value(value));
            }
        }

        /// Waits without a timeout.
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
