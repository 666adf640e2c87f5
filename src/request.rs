//! Whether the request that a thread serves still waits for its reply. Uses `error`.
//!
//! At its deadline a request gets an error, and further work for it is useless. Every loop over a number of
//! chunks calls [`check`] before each step, so a request asks the store at most once more after its deadline. A thread
//! that serves no request, such as a write-back thread, is never told to stop.

use std::cell::RefCell;

use crate::error::{Error, Result};

/// Tells whether a request still waits.
type Waits = Box<dyn Fn() -> bool>;

thread_local! {
    static PRESENT: RefCell<Option<Waits>> = const { RefCell::new(None) };
}

/// Ends the work for a request, also if it panics.
struct FinishGuard;

impl Drop for FinishGuard {
    fn drop(&mut self) {
        PRESENT.take();
    }
}

/// Does `work` for a request, or ahead of a reader's next request. `is_waiting` tells whether the result is still
/// wanted.
pub fn work_for(is_waiting: impl Fn() -> bool + 'static, work: impl FnOnce()) {
    PRESENT.set(Some(Box::new(is_waiting)));
    let _guard = FinishGuard;
    work();
}

/// Whether this thread's request still waits for its reply. Always `true` for a thread that serves no request.
pub fn is_waiting() -> bool {
    PRESENT.with_borrow(|present| present.as_ref().is_none_or(|is_waiting| is_waiting()))
}

/// Fails if this thread's request already has its reply. `key` is the key that the thread is about to read.
pub fn check(key: &str) -> Result<()> {
    if is_waiting() { Ok(()) } else { Err(Error::TimedOut { key: key.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn work_ends_after_its_reply() {
        assert!(check("a").is_ok(), "this thread works for no request");
        let waits = Rc::new(std::cell::Cell::new(true));
        let asked = Rc::clone(&waits);
        work_for(
            move || asked.get(),
            || {
                assert!(check("a").is_ok());
                waits.set(false);
                assert!(matches!(check("a"), Err(Error::TimedOut { key }) if key == "a"));
            },
        );
        let panics = || work_for(|| false, || std::panic::resume_unwind(Box::new(())));
        assert!(std::panic::catch_unwind(panics).is_err() && is_waiting());
    }
}
