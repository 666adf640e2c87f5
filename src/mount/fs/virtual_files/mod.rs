//! Files whose content is made here: sidecars, companion files, statistics and configuration.

pub mod companions;
pub mod generated;
pub mod sidecar;
pub mod sidecar_edit;
pub mod snippets;
