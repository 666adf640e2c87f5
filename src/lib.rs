//! zarrfs mounts a Zarr hierarchy (v1, v2, v3) so that every array is one flat binary file and a JSON sidecar.
//!
//! A program that has never heard of Zarr opens the file and sees the elements in order; each read becomes chunk
//! and shard decodes through a cache. This page is the map of the code and the rules that hold everywhere in it.
//!
//! # Map
//!
//! Each layer may use only those above it in this list; `tests/layers.rs` fails on anything else.
//!
//! | layer | what lives there |
//! |---|---|
//! | [`error`] | the one error, and its errno; `sys` holds the calls that the standard library lacks |
//! | [`store`] | objects by key: a folder, a zip file, memory |
//! | [`metadata`] | documents of v1, v2 and v3, all turned into one `ArrayMetadata`; no I/O |
//! | [`codec`] | one codec, one file, one line in `registry.rs`; `pipeline.rs` chains them |
//! | [`array`] | grid arithmetic, the chunk cache, chunk sources, reading a flat range |
//! | [`hierarchy`] | which groups and arrays a store holds, found lazily |
//! | `mount` | what the kernel sees: semantics (`fs.rs`), and thin adapters to FUSE and mount(2) |
//! | `main.rs`, `cli/` | the command line, nothing else |
//!
//! `mount` is a cargo feature: `cargo check --lib --no-default-features` proves that the Zarr half needs no FUSE.
//!
//! # The way of a read
//!
//! 1. `mount/fuse.rs` gets the kernel's request on a session thread. Session threads answer what is in the cache and
//!    never block on the store; everything else moves, with its reply, to a pool.
//! 2. `mount/fs.rs` knows what the handle is: an array, a sidecar, a generated file.
//! 3. [`array::Array::read_at`] asks `array/grid.rs` which **units** (inner chunks of shards, else chunks) the range
//!    touches. The range is cut into boxes and each box into one piece per unit: nested loops over byte runs that are
//!    contiguous both in the file and in the unit.
//! 4. `array/cache.rs` has the unit, or one reader loads it and the others wait for that one load.
//! 5. A chunk source loads it: `array/plain.rs` gets the whole object; `array/sharded.rs` enters the shard through its
//!    index (read once, kept while the object's version is the same) and reads one range.
//! 6. `codec/pipeline.rs` decodes into a recycled buffer, which holds the unit in served order and byte order.
//! 7. The pieces are copied into the reply; units that are missing in the store become fill value.
//!
//! Chunks stored raw (bytes only) skip the cache: ranges of the object are read and put in place.
//!
//! Order F is no second path: the served array has its axes reversed and a transpose before its codec chain, so
//! that everything behind [`array::Array::open`] knows C order only.
//!
//! # Invariants
//!
//! - A chunk that is missing reads as the fill value. A chunk that cannot be read or decoded is an error for the whole
//!   request that needs it, never fill value, never zeros.
//! - `None` from a store means missing, and nothing but ENOENT means that. No permission, link or I/O error does.
//! - Nothing is allocated by a number that was not checked: documents, objects, decoded sizes, shard indexes and ranks
//!   all have limits that are compared first. A decoder never gives more than it was told to.
//! - Nothing outside the store's folder is opened: every path is resolved beneath one descriptor of the root.
//! - Objects are read, never mapped, so that a file cut short under us is an error and not a signal.
//! - A broken node costs itself an error and its neighbours nothing.
//! - An index of a shard and the inner chunks found through it come from the same version of the object.
//! - No panics: `unwrap`, `expect` and `panic` are denied outside tests; a panic in a library costs one request.
//! - `unsafe` is in `sys.rs` and `codec/blosc.rs` only, each block with its reason.
//!
//! # What is absent
//!
//! - No writing through the mount in this version: there is no path from a FUSE request to a store's put.
//! - No own thread pool per array, no async runtime: `array/workers.rs` is all the concurrency that decoding has.
//! - No FUSE type outside `mount/fuse.rs` and `mount/session.rs`.
//! - No codec knows a store key: errors get their key from the layer that knows it.

pub mod array;
pub mod codec;
pub mod error;
pub mod hierarchy;
pub mod metadata;
#[cfg(feature = "mount")]
pub mod mount;
pub mod nearest;
pub mod store;
pub mod sys;
