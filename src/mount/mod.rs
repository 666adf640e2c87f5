//! The mount: the hierarchy as files that the kernel can show.
//!
//! `fs` has the semantics, without FUSE types, and is tested without a mount; `fuse` translates between it and fuser; `daemon` is
//! the life of the process. `fs` uses neither of the others, and `fuse` does not use `daemon` (`tests/rules/layers` checks this).
//! The mount uses every layer below, and only `cli` uses the mount.
//! `journal` has the state of a session that outlives its daemon, and uses neither `fs` nor `fuse`.

pub mod daemon;
pub mod fs;
pub mod fuse;
pub mod journal;
pub mod metrics;
pub mod options;
pub mod slow_requests;
