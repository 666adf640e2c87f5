//! The life of the process that serves a mount.

pub mod attach;
pub mod detach;
pub mod exit_status;
pub mod privileges;
pub mod procfs;
pub mod sd_notify;
pub mod session;
pub mod shutdown;
pub mod syslog;
