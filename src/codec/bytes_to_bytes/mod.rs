//! Codecs that turn bytes into bytes (v3 core, "Codecs"): compressors, checksums, byte shuffles.
//!
//! Use `codec`'s traits, `config` and `kernels`, and nothing of the other kinds.

pub mod base64;
pub mod blosc;
pub mod bounded_stream;
pub mod bz2;
pub mod checksum;
pub mod conditional;
pub mod deflate;
pub mod gzip;
pub mod lz4;
pub mod lzma;
pub mod n5_lz4;
pub mod shuffle;
pub mod zlib;
pub mod zstd;
