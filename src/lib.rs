//! zarrfs mounts a Zarr hierarchy (v1, v2, v3) so that every array is one flat binary file and a JSON sidecar.
//!
//! A program that has never heard of Zarr opens the file and sees the elements in order; each read becomes chunk
//! and shard decodes through a cache. This page is the map of the code and the rules that hold everywhere in it.
//!
//! # Map
//!
//! Each layer may use only those above it in this list; `tests/rules/layers` fails on anything else, and on folders of
//! a layer that use each other in a circle.
//!
//! | layer | what lives there |
//! |---|---|
//! | [`error`] | the one error, and its errno; `sys` holds the calls that the standard library lacks; [`request`]: whether a reply is still waited for |
//! | [`memory`] | the memory of whatever is long, and the one pool that recycles it |
//! | [`store`] | objects by key: a folder, a zip file, memory |
//! | [`metadata`] | documents of v1, v2 and v3, all turned into one `ArrayMetadata`; no I/O |
//! | [`codec`] | one codec, one file in the folder of its kind, one line in `registry.rs`; `kernels/` below them, `pipeline.rs` chains them |
//! | [`array`](mod@array) | grid arithmetic, the chunk cache, chunk sources, reading a flat range |
//! | [`hierarchy`] | which groups and arrays a store holds, found lazily |
//! | [`formats`] | companion files: an array in a form that some programs know better, one file per format |
//! | `mount` | the hierarchy as files: semantics without FUSE types (`fs/`), a thin adapter to FUSE (`fuse/`), the life of the process (`daemon/`) |
//! | `main.rs`, `cli/` | the command line, nothing else |
//!
//! `mount` is a cargo feature: `cargo check --lib --no-default-features` proves that the Zarr half needs no FUSE.
//!
//! # The way of a read
//!
//! 1. `mount/fuse/mod.rs` receives the kernel's request on a session thread. Session threads reply if the data is in the cache
//!    and never block on the store; all other requests move, with their reply, to the executor (`mount/fuse/executor.rs`).
//! 2. `mount/fs/read.rs` knows what the handle is: an array, a sidecar, a companion file, a generated file.
//! 3. [`array::Array::read_at`] asks `array/geometry/grid.rs` which parts of the **units** (inner chunks of shards, else chunks) the range
//!    touches: the **bands** of `array/geometry/strips.rs`. A band is the unit itself, unless the cache cannot hold a row of units, or a codec
//!    (blosc, `codec/partial.rs`) decodes some rows at the cost of those. The range is cut into boxes and each box into one piece
//!    per band: nested loops over byte runs that are contiguous both in the file and in the unit.
//! 4. `array/cache/mod.rs` has the band, or one reader loads it and the others wait for that one load. Of a reader that goes from
//!    one end to the other, `array/readahead.rs` loads what comes next, but nothing that another such reader was given already
//!    (`array/readahead/consumed.rs`), and leaves what lies behind to be used again; where such a reader comes back to a unit for its next rows, DEFLATE goes on where it was (`array/source/resumable_decoders.rs`).
//! 5. A chunk source loads it: `array/source/unsharded.rs` gets the whole object; `array/source/sharded.rs` enters the shard through its
//!    index (read once, kept while the object's version is the same) and reads one range.
//! 6. `codec/pipeline.rs` decodes into a recycled buffer (`memory`), which holds the unit in served order and byte order.
//! 7. The pieces are copied into the reply, short runs of a row of units together; units that are missing in the store become fill
//!    value.
//!    Of a sequential reader past the page cache, whose requests come one after the other, the next replies are put together while
//!    the kernel takes this one (`array/readahead/replies.rs`).
//!
//! Chunks stored raw (bytes only) skip the cache: `array/read/uncompressed.rs` reads ranges of the object, which stays open
//! (`array/source/open_objects.rs`), and puts them in place; a session thread does so where the system has the bytes in memory.
//!
//! open(2) compares the objects that were read, or are being read (`array/source/versions.rs`), with the store: changed objects leave the
//! caches, the kernel's included, one open of a file after the other (`mount/fs/page_cache/page_drops.rs`). Objects that write-back
//! itself replaced are unchanged. open(2) also chooses the cache mode (`mount/fs/page_cache/cache_mode.rs`): the kernel reads through its
//! page cache; reads and writes bypass it, where the file is open for writing only, or beside such a writer; or, as root and on
//! read-only mounts, the kernel reads the object itself (`mount/fuse/passthrough.rs`), where an array is exactly one raw object. Such
//! reads skip all of this and appear in no metric.
//!
//! SEEK_HOLE and SEEK_DATA go through `mount/fs/seek.rs` to `array/read/holes.rs`, which looks for missing rows of chunks.
//!
//! Order F is no second path: the served array has its axes reversed and a transpose before its codec chain, so
//! that everything behind [`array::Array::open`] knows C order only.
//!
//! # The way of a write
//!
//! 1. `mount/fuse/write.rs` takes the request on the session thread if that does not block, else on the executor;
//!    `mount/fs/write` cuts it at the end of the file. Of a memory map's page it stores only bytes that were not written directly
//!    since the page was read (`mount/fs/page_cache/direct_writes.rs`).
//! 2. [`array::Array::write_at`] copies the pieces into **dirty units** (`array/write/dirty.rs`), each with the set of byte intervals that
//!    were written (a write may split elements). A unit that is written in full is never read from the store; one written in part is
//!    completed when somebody reads it or when it is stored. Readers of a dirty unit read it from there.
//!    A session thread locks all of a write's units, answers, and copies then: whoever looks for the bytes meanwhile waits for those locks.
//!    A stream of full units is stored beside its writer (`array/write/streaming.rs`), who gets no further ahead than two slabs.
//! 3. close, fsync, the dirty limit, a timer, and the end of the mount store dirty units (`array/write/write_back.rs`): the
//!    metadata document is compared first, and the array's folder and the store's are those that were opened; units are encoded in parallel (`array/write/encode.rs`) to where they are written from
//!    (`codec/encoded_bytes.rs`); all dirty units of one object make one new object (`array/source/shard_rewrite.rs` copies the inner chunks that
//!    did not change, undecoded). What is stored raw is not copied: who writes to it meanwhile gets a copy.
//! 4. `store/directory/writer.rs` writes a temporary file (`store/directory/output.rs`, past the page cache if long), fdatasyncs it, renames
//!    it; fsync(2) then syncs the folders.
//! 5. A unit is clean if it was not written meanwhile; the array's epoch moves on, so that whatever a reader
//!    loaded before is compared with the store before it is used again. Where a codec of the array loses something (each says so
//!    itself, `is_lossless`), the unit leaves the cache, and the kernel drops its pages before fsync and close return.
//!
//! A sidecar of a writable mount takes writes too: `mount/fs/virtual_files/sidecar_edit.rs` collects and checks them, and
//! `hierarchy/attributes.rs` changes the documents, as text (`metadata/json/edit.rs`), so that what is unchanged keeps its bytes.
//!
//! # Invariants
//!
//! - A chunk that is missing reads as the fill value. A chunk that cannot be read or decoded is an error for the whole
//!   request that needs it, never fill value, never zeros.
//! - `None` from a store means missing, and nothing but ENOENT means that. No permission, link or I/O error does.
//! - Nothing is allocated by a number that was not checked: documents, objects, decoded sizes, shard indexes and ranks
//!   all have limits that are compared first. A decoder never gives more than it was told to.
//! - Nothing outside the store's folder is opened: every path is resolved beneath one descriptor of the root.
//! - Where others enter the mount, nobody is given what the store would not give them: what an array's readers share is open to all of
//!   them (`store/readers.rs`), a link gives what its owner has (`store/directory/links.rs`), and what was judged is the descriptor that is used.
//! - Objects are read, never mapped, so that a file cut short under us is an error and not a signal.
//! - A broken node costs itself an error and its neighbours nothing.
//! - Who opens a file is given nothing that was replaced in the store before: loads that have not ended count, too.
//! - An index of a shard and the inner chunks found through it come from the same version of the object.
//! - What is idle of long memory has one limit, for all threads, arrays and codecs together; what a dirty unit counts is the memory
//!   that it takes.
//! - A request that was answered at its deadline ends: what takes as long as there are chunks asks before each whether its reply is
//!   still waited for (`request.rs`), and a session thread does no more than a few thousand steps of it.
//! - No panics: `unwrap`, `expect` and `panic` are denied outside tests; a panic in a library costs one request.
//! - Unsafe code is in `sys` (with its parts, memory, process and processor) and `codec/bytes_to_bytes/blosc/mod.rs` only, each block with its reason.
//!
//! - A dirty unit leaves memory only when exactly what it holds is in the store (or by the user's truncate, or `--force`).
//! - A write is answered when nothing can fail any more and its units are dirty and locked, perhaps before its bytes are copied.
//! - Pages are dropped for a reason, and until the drop is known to have ended, a write whose pages were read meanwhile has its
//!   range dropped once more before it is answered.
//! - An object gets its name only after its bytes are on the disk; every failure to store is told to every open descriptor.
//!
//! # What is checked how
//!
//! `tests/` has five binaries, each a folder: `formats` (against other implementations and their files), `model` (random programs
//! against plain models), `mount` (the program on a real mount), `faults` (damage, failures, crashes), `rules` (the sources and the
//! command line). `cargo test --test mount page_cache::` runs one file of one.
//!
//! - Any sequence of reads, writes, truncations, failures and remounts: `tests/model/fs_model.rs`, against a byte vector for each file.
//! - Any interleaving of writers, readers, flushers, the timer and the store: `array/interleavings`. The locks, atomics and threads
//!   of `array` come from `array/sync.rs`; with the feature `shuttle` they are that library's, and this layer's own code runs over
//!   a store in memory under schedules drawn at random: one load at a time, nothing that was written is lost or seen to go back,
//!   what was synced lasts, a unit is clean only if nothing changed meanwhile. Weak memory orders are not modelled.
//! - The kernel's half, with its page cache and memory maps: `tests/mount/exercisers.rs` on a real mount.
//!
//! # What is absent
//!
//! - Nothing makes or removes nodes: no create, no rename, no resize. Metadata documents are never written by data.
//! - No journal: what was not yet stored when the daemon dies is lost, and nothing was promised about it.
//! - No own thread pool per array, no async runtime: `array/workers.rs` is all the concurrency that decoding has.
//! - No FUSE type outside `mount`, and none in `mount/fs`.
//! - No codec knows a store key: errors get their key from the layer that knows it.

pub mod array;
pub mod codec;
pub mod error;
pub mod formats;
pub mod hierarchy;
pub mod memory;
pub mod metadata;
#[cfg(feature = "mount")]
pub mod mount;
pub mod nearest;
pub mod request;
pub mod store;
pub mod sys;
