//! The mount: the hierarchy as files that the kernel can show.
//!
//! `fs` has the semantics, without FUSE types, and is tested without a mount; `fuse` translates between it and fuser; `daemon` is
//! the life of the process. `fs` uses neither of the others, and `fuse` does not use `daemon` (`tests/rules/layers` checks this).
//! The mount uses every layer below, and only `cli` uses the mount.
//! `access_log` says who has read what, and uses none of them.
//! `journal` has the state of a session that outlives its daemon, and uses neither `fs` nor `fuse`.

pub mod access_log;
pub mod daemon;
pub mod fs;
pub mod fuse;
pub mod journal;
pub mod log_fields;
pub mod log_file;
pub mod metrics;
pub mod options;
pub mod slow_requests;
