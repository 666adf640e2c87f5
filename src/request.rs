//! Whether the request that a thread works for still waits for its reply. Uses `error`.
//!
//! At its deadline a request is answered with an error, and what its thread still does is of no use to anybody. The store is asked once
//! more at most: every loop whose length is a number of chunks calls [`check`] before each of them. A thread that works
//! for no request, such as one that stores, is never told to stop.

use std::cell::RefCell;

use crate::error::{Error, Result};

/// Tells whether a request waits.
type Waits = Box<dyn Fn() -> bool>;

thread_local! {
    static PRESENT: RefCell<Option<Waits>> = const { RefCell::new(None) };
}

/// Ends the work for a request, also where it panics.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        PRESENT.take();
    }
}

/// Does `work` for a request, or for a reader who asks for it next; `is_waiting` tells whether it is still wanted.
pub fn work_for(is_waiting: impl Fn() -> bool + 'static, work: impl FnOnce()) {
    PRESENT.set(Some(Box::new(is_waiting)));
    let _ending = Ending;
    work();
}

/// Whether this thread's request waits for its reply. Always, where it works for none.
pub fn is_waiting() -> bool {
    PRESENT.with_borrow(|present| present.as_ref().is_none_or(|is_waiting| is_waiting()))
}

/// Fails where this thread's request was answered meanwhile; `key` is what it asks the store for.
pub fn check(key: &str) -> Result<()> {
    if is_waiting() { Ok(()) } else { Err(Error::TimedOut { key: key.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn work_ends_when_its_request_was_answered() {
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
