//! Loops over elements and their arithmetic, which several codecs share. They do not have a codec's traits.
//!
//! Use `metadata`, `sys` and `CodecError`, and nothing else of `codec`.

pub mod block_copy;
pub mod byte_swap;
pub mod dtype;
pub mod element;
pub mod permute;
pub mod sub_byte;
