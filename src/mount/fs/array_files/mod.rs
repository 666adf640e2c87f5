//! The files of arrays: opening, reading, and writing in place. File sizes are fixed while the metadata stands
//! (`truncation.rs`), unless the mount may make arrays longer (`growth.rs`).
//!
//! `open.rs` opens a file, `file.rs` is the open file: it reads from and writes to its array. `io.rs` has what an array's
//! file needs with or without a handle. Invariants: a failed write changes nothing that was durable; data that could not be
//! stored stays dirty, and every handle gets the error at its next fsync or close, no matter which operation caused the failed
//! attempt; fsync reports a failure once.

pub mod file;
pub mod growth;
pub mod io;
pub mod open;
pub mod truncation;
pub mod writer;
pub mod written_end;
