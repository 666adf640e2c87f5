//! The objects of an array: their keys, those that are stored, and what lies among them and is none of them.
//!
//! Uses `array/geometry`, `metadata`, `store` and `error`.

pub mod keys;
pub mod stored_objects;
pub mod strays;
