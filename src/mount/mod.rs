//! The mount: the hierarchy as files that the kernel can show.
//!
//! `fs` holds the semantics without FUSE types and is tested without a mount; `fuse` translates between it
//! and fuser; `daemon` is the life of the process. `fs` uses neither of the others, `fuse` does not use
//! `daemon` (`tests/layers.rs` checks this). Uses every layer below; only `cli` may use it.

pub mod daemon;
pub mod fs;
pub mod fuse;
pub mod metrics;
pub mod options;
pub mod slow_requests;
