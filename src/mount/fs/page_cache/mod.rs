//! The kernel's page cache of an array's file: which handles use it, when pages are dropped, and which pages are outdated.

pub mod cache_mode;
pub mod direct_writes;
pub mod page_drops;
