//! Codecs that turn an array into bytes (v3 core, "Codecs"): every chain has exactly one of them.
//!
//! Use `codec`'s traits, `config` and `kernels`. `sharding`, `n5_default`, `optional` and `vlen_indexed` use the pipeline: what they hold
//! has codec chains of its own. `vlen` and `vlen_indexed` decode elements without a fixed size and are not a [`super::Codec`].

pub mod bytes;
pub mod n5_default;
pub mod optional;
pub mod packbits;
pub mod pcodec;
pub mod sharding;
pub mod vlen;
pub mod vlen_indexed;
pub mod whole_array;
pub mod zfp;
