//! The mounts of this machine, as other processes see them: the list of them (`mounted.rs`), a way to look at one without hanging
//! (`look.rs`), and the entry that umount(8) needs (`utab.rs`).
//!
//! Uses `detach.rs`, `procfs.rs` and `restart/`.

pub mod look;
pub mod mounted;
pub mod utab;
