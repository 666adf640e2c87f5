//! The mount: what the kernel sees.
//!
//! `fs.rs` (with `files.rs`, `folders.rs`, `generated.rs`) is the semantics without FUSE types, over the tables in `inode.rs`, `handle.rs`
//! and `nodes.rs`; `fuse.rs` translates; `pool.rs` holds the threads that wait for the store; `session.rs` is the daemon's life. Uses
//! every layer below; only `main` may use it.

pub mod daemon;
pub mod fs;
pub mod fuse;
pub mod metrics;
pub mod options;
