//! Codecs of sound, which archives of electrophysiology use for recordings. They are only read.
//!
//! Use `codec`'s traits, `config` and `array_to_bytes::whole_array`.

pub mod flac;
pub mod wavpack;
