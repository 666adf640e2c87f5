//! `zarrfs top`, `stat` and `mounts`: show what mounts do and have done, from their own files.
//!
//! `sample.rs` reads the counters of a mount once, `words.rs` formats numbers for people, `accesses.rs` sums an access
//! log up with the advice of `chunk_advice.rs`, and `frame.rs` draws what `top.rs` shows.

mod accesses;
mod chunk_advice;
mod frame;
pub mod mounts;
mod sample;
pub mod stat;
pub mod top;
mod words;
