//! Codecs that turn an array into an array (v3 core, "Codecs"): they permute, reshape, round or convert elements.
//!
//! Use `codec`'s traits, `config` and `kernels`, and nothing of the other kinds.

pub mod bitround;
pub mod cast_value;
pub mod reshape;
pub mod scale_offset;
pub mod squeeze;
pub mod transpose;
pub mod unpack;
