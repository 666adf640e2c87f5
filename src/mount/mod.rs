//! The mount: what the kernel sees.
//!
//! `fs.rs` (with `files.rs`, `folders.rs`, `generated.rs`) is the semantics without FUSE types, over the tables in `inode.rs`, `handle.rs`
//! and `nodes.rs`; `fuse.rs` translates; `pool.rs` holds the threads that wait for the store; `session.rs` is the daemon's life. Uses
//! every layer below; only `main` may use it.

pub mod answer_buffer;
pub mod companions;
pub mod ending;
pub mod failure;
pub mod files;
pub mod folders;
pub mod fs;
pub mod fuse;
mod fuse_drops;
pub mod fuse_entry;
pub mod fuse_open;
mod fuse_read;
pub mod fuse_write;
pub mod fuse_xattr;
pub mod generated;
pub mod handle;
pub mod inode;
pub mod mounting;
pub mod nodes;
pub mod notify;
pub mod options;
pub mod outcome;
pub mod overwritten;
pub mod page_cache;
pub mod page_drops;
pub mod passthrough;
pub mod permissions;
pub mod pool;
pub mod privileges;
pub mod process;
pub mod ranges;
mod readers;
pub mod seeking;
pub mod session;
pub mod sidecar;
pub mod sidecar_edit;
pub mod snippets;
pub mod stats;
pub mod storing;
pub mod system_log;
pub mod truncation;
pub mod unmounting;
pub mod writing;
pub mod written_end;
pub mod xattr;

#[cfg(test)]
mod tests;
