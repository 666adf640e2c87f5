//! The documents of each version of Zarr and of N5, and the copies of them that consolidated metadata has.
//!
//! Uses its neighbours in `metadata`, which have the parts that documents of all versions share.

pub mod consolidated;
pub mod n5;
pub mod v1;
pub mod v2;
pub mod v3;
