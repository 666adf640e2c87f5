//! What attributes say about the elements of an array: which stand for missing data (`no_data.rs`), and how numbers are packed
//! (`packing.rs`).
//!
//! Spec: CF conventions. Uses its neighbours in `metadata`.

pub mod no_data;
pub mod packing;
