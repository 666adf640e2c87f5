//! The objects of an array: their keys, those that are stored, and strays, which lie among them and are not theirs.
//!
//! Uses `array/geometry`, `metadata`, `store` and `error`.

pub mod keys;
pub mod stored_objects;
pub mod strays;
