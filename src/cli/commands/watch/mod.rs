//! `zarrfs top`, `stat` and `mounts`: what mounts do and have done, read from their own files.
//!
//! `sample.rs` reads the counters of a mount once, `words.rs` says numbers to people; `frame.rs` draws what `top.rs` shows.

mod frame;
pub mod mounts;
mod sample;
pub mod stat;
pub mod top;
mod words;
