//! The commands: one file each, a struct of arguments with a `run`. Use the rest of `cli` and the library.

pub mod attrs;
pub mod cat;
pub mod check;
pub mod completions;
pub mod demo;
pub mod ls;
pub mod man;
pub mod mount;
pub mod overlay;
mod sample;
pub mod umount;
