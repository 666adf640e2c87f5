//! The life of the process that serves a mount, and the command that ends it: attach and detach, signals, exit. `restart/`
//! continues the session of a daemon that has died, `mounts/` lists the mounts of the machine, and `service_manager/` sends
//! messages to systemd.
//!
//! Uses `fs` and `fuse`, and `sys` for the system calls.

pub mod attach;
pub mod committing;
pub mod detach;
pub mod exit_status;
pub mod given_device;
pub mod mounts;
pub mod pressure;
pub mod privileges;
pub mod procfs;
pub mod readiness;
pub mod restart;
pub mod service_manager;
pub mod session;
pub mod shutdown;
pub mod start;
pub mod syslog;
