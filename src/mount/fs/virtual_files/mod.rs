//! Files that have no counterpart in the store: sidecars, companion files, metrics and configuration.

pub mod companion_names;
pub mod companions;
pub mod generated;
pub mod internals;
pub mod members;
pub mod open;
pub mod sidecar_edit;
pub mod slices;
pub mod subjects;
pub mod views;
