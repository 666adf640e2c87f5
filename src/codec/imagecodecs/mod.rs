//! Codecs of TIFF and HDF5 files, as references to such files name them: those of the imagecodecs package for numcodecs
//! (`imagecodecs_*`) and of virtual-tiff.
//!
//! The same names are v2's ids and v3's names. `imagecodecs_deflate`, `_zlib`, `_zstd` and `_bz2` are further names of codecs in
//! `bytes_to_bytes`. virtual-tiff's `ChunkyCodec` is not a codec here: `metadata/codec_spec.rs` rewrites it. Use `codec`'s traits,
//! `config` and `kernels`.

pub mod delta;
pub mod floatpred;
pub mod horizontal_delta;
pub mod jpeg;
pub mod lz4h5;
pub mod lzf;
pub mod lzw;
pub mod packbits;
pub mod png;
pub mod predictor;
pub mod webp;
