//! Facts about a message of the log, for `--log-format json`: a program that reads the log need not take sentences apart.
//!
//! Uses nothing. The logger formats a message on the thread that logs it, so the facts are that thread's.

use std::cell::RefCell;

use serde_json::Value;

/// A fact: its name, and its value.
pub type Field = (&'static str, Value);

thread_local! {
    static FIELDS: RefCell<Vec<Field>> = const { RefCell::new(Vec::new()) };
}

/// Runs `log`. Its messages have these facts.
pub fn with(fields: Vec<Field>, log: impl FnOnce()) {
    let former = FIELDS.replace(fields);
    log();
    FIELDS.set(former);
}

/// Returns the facts of the message that this thread is logging.
pub fn current() -> Vec<Field> {
    FIELDS.with_borrow(Clone::clone)
}
