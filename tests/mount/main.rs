//! The built program, mounted: what it shows, how it begins and ends, what programs and users get from it, what writing does.
//!
//! **To add a file of tests**: a `mod` line here. May use `support`; its tests run at the same time as those of the other files
//! (see `support/own_process.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod access_log;
mod attributes;
mod catalogue;
mod contents;
mod exercisers;
mod given_device;
mod growth;
mod keepers;
mod kept_synced;
mod lengths;
mod life;
mod modes;
mod mount_8;
mod mount_options;
mod names;
mod overlay;
mod overlay_forms;
mod overlay_users;
mod page_cache;
mod programs;
mod python_module;
mod references;
mod replaced;
mod restarts;
mod restarts_at_calls;
#[cfg(feature = "remote")]
mod restarts_in_hand;
mod restarts_in_need;
mod restarts_of_writers;
mod scale;
mod semantics;
mod silent;
mod stacks;
mod systemd;
mod tour;
mod truncation;
mod unmounting;
mod upgrades;
mod users;
mod watching;
mod write_counts;
mod writers;
