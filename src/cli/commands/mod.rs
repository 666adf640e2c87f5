//! The commands, one file each: a struct of arguments with a `run`. They use the rest of `cli` and the library.

pub mod attrs;
pub mod cache;
pub mod cat;
pub mod check;
pub mod commit;
pub mod complete;
pub mod completions;
pub mod consolidate;
pub mod create;
pub mod demo;
pub mod import;
pub mod info;
pub mod log;
pub mod ls;
pub mod man;
pub mod mkgroup;
pub mod mount;
pub mod mv;
pub mod overlay;
pub mod preview;
pub mod resize;
pub mod restart;
pub mod rm;
pub mod umount;
pub mod watch;
