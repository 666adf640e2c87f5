//! How a session outlives its daemon: another process holds its descriptors, and another daemon continues it.
//!
//! `call.rs` says what a daemon is asked to do. For a background mount, `keeper.rs` is the process that holds the session and starts
//! the next daemon; for a unit, systemd does both (`service.rs`). `holder.rs` passes descriptors to the keeper. `handshake.rs`
//! continues a session without a new FUSE_INIT from the kernel. `mark.rs` marks a mount that another daemon will serve.
//! `mount/journal/` has what is recorded, and `fs/recovery/` reads it. Uses `service_manager/` and `procfs.rs`.

pub mod call;
pub mod handshake;
pub mod holder;
pub mod keeper;
pub mod mark;
pub mod service;
