//! The access log: one line of JSON for each close of a file, which says who has read what (`--access-log`).
//!
//! `handle.rs` counts what one open file reads, `ranges.rs` keeps the ranges and `boxes.rs` their form, `opener.rs` says who has
//! opened it, and `writer.rs` has the queue and the thread that writes the lines. Uses `array` for the meters of decoded bytes and
//! `mount/log_file.rs`, but nothing else of `mount`.
//!
//! Invariant: no request waits for the log. A line that finds the queue full, or that the file does not take, is lost and counted.

pub mod boxes;
pub mod handle;
pub mod opener;
mod ranges;
pub mod writer;
