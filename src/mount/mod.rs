//! The mount: what the kernel sees. `fs.rs` is the semantics without FUSE types; `fuse.rs` is a thin adapter.

pub mod options;
pub mod session;
