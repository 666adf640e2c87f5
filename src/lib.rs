//! zarrfs
pub mod error;
pub mod store;
