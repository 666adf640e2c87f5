//! Operations that need several rooms: opening and closing files (`opens.rs`), and changes of attributes (`attribute_changes.rs`).
//!
//! Each finds out what kind of file an inode or a handle stands for, and passes the request to the room of that kind.

pub mod attribute_changes;
pub mod opens;
