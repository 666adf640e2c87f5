//! A mounted hierarchy of arrays of all kinds, driven through the file system layer (no FUSE), beside a plain byte vector for
//! each file that says what must be read. Used by fs_model.rs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod arrays;
pub mod failing;
pub mod files;
