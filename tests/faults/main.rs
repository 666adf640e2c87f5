//! What goes wrong: damaged stores, stores that fail or hang, daemons that die, machines that lose power.
//!
//! **To add a file of tests**: a `mod` line here. May use `support` and `oracle`; its tests run at the same time as those of the other files
//! (see `support/own_process.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../oracle/mod.rs"]
mod oracle;
#[path = "../support/mod.rs"]
mod support;

mod authoring;
mod codec_damage;
mod consolidated;
mod corrupt;
mod crash;
mod failing_store;
mod growth;
mod hanging_store;
mod lengths;
mod many_chunks;
mod mutated;
mod names;
mod overlay;
mod overlay_authoring;
mod power_loss;
mod references;
mod refusals;
mod terminal;
