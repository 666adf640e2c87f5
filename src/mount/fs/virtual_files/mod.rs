//! Files that have no counterpart in the store: sidecars, companion files, metrics and configuration.
//!
//! Uses `hierarchy`, `formats` and `array` through a [`Context`], the parts of a file system that these files
//! are made from.

pub mod companions;
pub mod generated;
pub mod sidecar;
pub mod sidecar_edit;
pub mod snippets;
