//! What a load uses in addition to the source: the store and the record of its versions, memory, and what earlier loads
//! left.
//!
//! Uses `array/cache`, `codec`, `memory`, `store` and `error`.

pub mod decode_meter;
pub mod load_context;
pub mod load_resources;
pub mod open_objects;
pub mod resumable_decoders;
pub mod versions;
