//! zarrfs: a Zarr hierarchy as flat files.
pub mod array;
pub mod codec;
pub mod error;
pub mod hierarchy;
pub mod metadata;
#[cfg(feature = "mount")]
pub mod mount;
pub mod nearest;
pub mod store;
pub mod sys;
