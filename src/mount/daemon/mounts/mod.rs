//! The mounts of this machine, as other processes see them: which there are (`mounted.rs`), a look at one that cannot hang (`look.rs`), and
//! the entry that umount(8) needs (`utab.rs`).
//!
//! Uses `detach.rs`, `procfs.rs` and `restart/`.

pub mod look;
pub mod mounted;
pub mod utab;
