//! What the kernel's page cache may hold of an array's file: which handles use it, when pages are dropped,
//! and which of its pages are outdated.

pub mod cache_mode;
pub mod direct_writes;
pub mod page_drops;
