//! numcodecs' filters: codecs that carry a NumPy dtype of their own, in v2's `filters` and as v3's `numcodecs.*`.
//!
//! One kernel serves both versions (`filter`). Use `codec`'s traits, `config`, `kernels`, and of the other kinds only
//! `array_to_bytes` (zfpy is zfp with a header).

pub mod astype;
pub mod categorize;
pub mod delta;
pub mod filter;
pub mod fixedscaleoffset;
pub mod packbits;
pub mod quantize;
pub mod zfpy;
