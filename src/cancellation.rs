//! Whether the result of some work is still wanted. Uses `error`.
//!
//! At its deadline a request gets an error, and further work for it is useless. Work of many steps takes a
//! [`Cancellation`]. Every loop over a number of chunks calls [`Cancellation::check`] before each step, so a request
//! asks the store at most once more after its deadline.

use std::sync::Arc;

use crate::error::{Error, Result};

/// Reports whether some work is cancelled. The default is never cancelled.
#[derive(Clone, Default)]
pub struct Cancellation(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancellation {
    /// For work that always ends by itself.
    pub fn never() -> Self {
        Cancellation(None)
    }

    /// For work that is useless once `is_cancelled` returns `true`.
    pub fn when(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Cancellation(Some(Arc::new(is_cancelled)))
    }

    /// Whether the result is no longer wanted.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }

    /// Fails with [`Error::Cancelled`] if the result is no longer wanted. `key` is what the caller is about to read.
    pub fn check(&self, key: &str) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled { key: key.to_owned() }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn work_ends_when_it_is_cancelled() {
        assert!(Cancellation::never().check("a").is_ok());
        let has_reply = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_reply);
        let cancellation = Cancellation::when(move || asked.load(Ordering::Relaxed));
        assert!(cancellation.check("a").is_ok());
        has_reply.store(true, Ordering::Relaxed);
        assert!(matches!(cancellation.clone().check("a"), Err(Error::Cancelled { key }) if key == "a"));
    }
}
