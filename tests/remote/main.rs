//! Object stores through the program, at real servers of each service.
//!
//! **To add a file of tests**: a `mod` line here. May use `support`. A server that cannot be started fails its test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod mounts;
mod refusals;
mod secrets;
