//! The commands that make, change and remove the nodes of a store. They use `hierarchy::author` and the rest of `cli`.

pub mod attrs;
pub mod consolidate;
pub mod create;
pub mod import;
pub mod mkgroup;
pub mod mv;
pub mod resize;
pub mod rm;
