//! Object stores through the program: real servers of each service, and one that misbehaves.
//!
//! **To add a file of tests**: a `mod` line here. May use `support`. A server that cannot be started fails its test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod authoring;
mod catalogue;
mod denied;
mod disk_cache;
mod disk_cache_truth;
mod faults;
mod growth;
mod imports;
mod logins;
mod memory;
mod mounts;
mod n5;
mod names;
mod odd_keys;
mod overlay;
mod puts;
mod redirects;
mod references;
mod refusals;
mod replaced;
#[cfg(feature = "icechunk")]
mod repositories;
mod restarts;
mod scene;
mod secrets;
mod stacks;
mod web;
mod writing;
mod zips;
