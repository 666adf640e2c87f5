//! The files of arrays: opening, reading, and writing in place. The metadata fixes the size of a file (`truncation.rs`), unless the
//! mount may make arrays longer (`growth.rs`).
//!
//! `open.rs` opens a file, and `file.rs` is the open file. `io.rs` writes and stores bytes with or without a handle.
//!
//! Invariants: a failed write changes nothing that was durable; data that could not be stored stays dirty, and every handle gets
//! the error at its next fsync or close, no matter which operation caused the failed attempt; fsync reports a failure once.

pub mod file;
pub mod growth;
pub mod io;
pub mod open;
pub mod truncation;
pub mod writer;
pub mod written_end;
