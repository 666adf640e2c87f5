//! The life of the process that serves a mount, and the command that ends it: attach and detach, signals,
//! exit; the keeper, and the daemon that continues where another one died.
//!
//! Uses `fs` and `fuse`, and `sys` for the system calls.

pub mod attach;
pub mod committing;
pub mod detach;
pub mod exit_status;
pub mod given_device;
pub mod handshake;
pub mod holder;
pub mod keeper;
pub mod look;
pub mod mark;
pub mod mounted;
pub mod pressure;
pub mod privileges;
pub mod procfs;
pub mod sd_notify;
pub mod service;
pub mod session;
pub mod shutdown;
pub mod syslog;
pub mod utab;
pub mod watchdog;
