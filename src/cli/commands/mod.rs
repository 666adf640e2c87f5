//! The commands, one file each: a struct of arguments with a `run`. `authoring/` has those that change a store, `watch/` those that show
//! mounts. They use the rest of `cli` and the library.

pub mod authoring;
pub mod cache;
pub mod cat;
pub mod check;
pub mod commit;
pub mod complete;
pub mod completions;
pub mod demo;
pub mod info;
pub mod log;
pub mod ls;
pub mod man;
pub mod mount;
pub mod overlay;
pub mod preview;
pub mod restart;
pub mod stack;
pub mod umount;
pub mod watch;
