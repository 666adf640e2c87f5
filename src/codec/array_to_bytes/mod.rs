//! Codecs that turn an array into bytes (v3 core, "Codecs"): every chain has exactly one of them.
//!
//! Use `codec`'s traits, `config` and `kernels`. `sharding` alone uses the pipeline: the chunks in a shard have codec chains of
//! their own. `vlen` decodes elements without a fixed size and is not a [`super::Codec`].

pub mod bytes;
pub mod packbits;
pub mod pcodec;
pub mod sharding;
pub mod vlen;
pub mod whole_array;
pub mod zfp;
