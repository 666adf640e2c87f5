//! What a load uses besides the source: the store and its record of versions, memory, and what is kept from earlier loads.
//!
//! Uses `array/cache`, `codec`, `memory`, `store` and `error`.

pub mod load_context;
pub mod load_resources;
pub mod open_objects;
pub mod resumable_decoders;
pub mod versions;
