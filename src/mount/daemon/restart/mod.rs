//! How a session outlives its daemon: somebody holds its descriptors, and another daemon continues it.
//!
//! `keeper.rs` is the process that starts the next daemon of a background mount, `service.rs` the service manager that does it for a unit.
//! `holder.rs` has what a daemon gives to either. `handshake.rs` begins a session that the kernel has begun before, and `mark.rs` says that
//! another daemon will come. `mount/journal/` has what is recorded, and `fs/recovery/` reads it. Uses `service_manager/` and `procfs.rs`.

pub mod handshake;
pub mod holder;
pub mod keeper;
pub mod mark;
pub mod service;
