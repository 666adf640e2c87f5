//! The rules of the sources, and the command line as its help and the pages describe it, and the pages' links.
//!
//! **To add a file of tests**: a `mod` line here. May use `support`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod cli;
mod crates;
mod injected;
mod layers;
mod pages;
