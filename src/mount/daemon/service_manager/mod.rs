//! Messages to the service manager: the state of the daemon (`sd_notify.rs`), and that it still replies (`watchdog.rs`).
//!
//! Uses `fs` and `shutdown.rs`.

pub mod sd_notify;
pub mod watchdog;
