//! Random programs and random arrays against plain models, through the file system layer (no FUSE).
//!
//! **To add a file of tests**: a `mod` line here. May use `support`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod hierarchy;
mod racing_store;

mod fs_model;
mod growth_model;
mod names_model;
mod overlay;
mod overlay_model;
mod read_model;
