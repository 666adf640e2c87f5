//! The kernel's page cache.

pub mod cache_mode;
pub mod direct_writes;
pub mod page_drops;
