//! The built program, mounted: what it shows, how it begins and ends, what programs and users get from it, what writing does.
//!
//! **To add a file of tests**: a `mod` line here. May use `support`; its tests run beside those of the other files
//! (see `support/own_process.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod attributes;
mod contents;
mod exercisers;
mod life;
mod mount_8;
mod overlay;
mod page_cache;
mod programs;
mod references;
mod replaced;
mod scale;
mod semantics;
mod systemd;
mod truncation;
mod unmounting;
mod users;
mod write_counts;
mod writers;
