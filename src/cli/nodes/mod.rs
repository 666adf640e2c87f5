//! What commands do with the stores and nodes that a user names: opening, describing and declaring them.

pub mod catalogue;
pub mod describe;
pub mod new_array;
pub mod open;
pub mod search;
pub mod slices;
pub mod strays;
pub mod subject;
