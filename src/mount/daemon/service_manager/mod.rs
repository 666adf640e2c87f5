//! What the service manager hears from the daemon: its state (`sd_notify.rs`), and that it still replies (`watchdog.rs`).
//!
//! Uses `fs` and `shutdown.rs`.

pub mod sd_notify;
pub mod watchdog;
