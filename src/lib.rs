//! zarrfs mounts a Zarr hierarchy (v1, v2, v3, and N5 for reading). Every array is one flat binary file and a JSON sidecar.
//!
//! A program that has never heard of Zarr opens the file and sees the elements in order. Each read decodes chunks
//! through a cache. This page is the map of the code, and the rules that hold everywhere in it. The ways through the code
//! are in `docs/design`, one page each, with a picture and an example: reading, writing, read-ahead, the page cache, names,
//! overlays, remote stores, restarts of the daemon, why the codec pipeline is our own; and a glossary.
//!
//! # Map
//!
//! A layer uses only the layers above it in this list. `cargo test --test rules layers` enforces that, and that files and
//! folders do not use each other in circles. Every folder explains itself in its `mod.rs`, and every file at its head.
//!
//! | layer | what lives there |
//! |---|---|
//! | [`error`], `sys`, [`cancellation`], [`nearest`] | the one error and its errno; system calls that the standard library lacks; whether anybody still waits for the result of some work; suggestions for misspelled names |
//! | [`memory`] | long buffers, and the one pool that recycles them |
//! | [`store`] | objects by key: a folder (`store/directory/`), a zip file here or in another store (`store/zip/`), memory, a service (`store/remote/`) with fetched bytes on disk (`store/disk_cache/`), an overlay over another store (`store/overlay/`), references to ranges of other files (`store/references/`), a catalogue of other stores (`store/catalogue/`), a repository that keeps versions (`store/icechunk/`, a cargo feature) |
//! | [`metadata`] | documents of v1, v2, v3 and of N5, all turned into one `ArrayMetadata`; those of new nodes (`metadata/author/`); no I/O |
//! | [`codec`] | one file for each codec and one line in `codec/registry.rs`; `codec/pipeline.rs` chains them |
//! | [`array`](mod@array) | the flat file of one array: from ranges of bytes to chunks and back |
//! | [`hierarchy`] | the groups and arrays of a store, found lazily; making, resizing, renaming and removing them (`hierarchy/author/`) |
//! | [`formats`] | companion files: a node in a form that other programs know, one file for each format; `formats/json/` is the sidecar |
//! | `mount` | the hierarchy as files: semantics without FUSE types (`mount/fs/`), a thin adapter to FUSE (`mount/fuse/`), the life of the process (`mount/daemon/`), the state of a session that outlives it (`mount/journal/`), who has read what (`mount/access_log/`) |
//! | `main.rs`, `cli` | the command line, nothing else |
//!
//! `mount` is a cargo feature: `cargo check --lib --no-default-features` proves that the Zarr half needs no FUSE.
//!
//! # Invariants
//!
//! Reading:
//!
//! - A missing chunk reads as the fill value. A chunk that cannot be read or decoded is an error for every request that
//!   needs it, never fill value, never zeros.
//! - `None` from a store means missing, and only ENOENT means that. A permission, link or I/O error does not.
//! - A shard's index and the inner chunks found through it come from the same version of the object. Versions are compared
//!   and nothing else: only stores know what is in them.
//! - An open file shows nothing that was replaced in the store before the open, not even through a load that was already
//!   running.
//! - Objects are read, never mapped, so a file that is cut short meanwhile is an error and not a signal.
//! - An entry of the disk cache is used for the object, version and range that it names, and never without its checksum.
//! - A broken node costs itself an error, and its neighbours nothing.
//!
//! Writing:
//!
//! - A dirty chunk leaves memory only when exactly its content is in the store (or when the user truncates or removes the
//!   array, or forces the unmount). Every failure to store is reported to every open descriptor.
//! - A write gets its reply when nothing can fail any more and its chunks are dirty and locked, perhaps before its bytes
//!   are copied.
//! - An object gets its name only after its bytes are on the disk. It replaces only the version that its unwritten bytes came from.
//! - A document that makes an array longer is stored before any chunk that it makes room for, except where several arrays
//!   are appended to together: then all documents come last, and are recorded first. There is never a half-made node: its
//!   name comes after its documents, and goes before they do.
//! - A snapshot has all changes of an overlay or none, and each is published once.
//!
//! Safety:
//!
//! - No allocation depends on an unchecked number: documents, objects, decoded sizes, shard indexes and ranks have limits
//!   that are checked first. A decoder never returns more than it was asked for.
//! - Nothing outside the store's folder is opened: every path is resolved beneath one descriptor of the root. References and
//!   virtual chunks open only their own folder or bucket, and what `--allow-references` adds.
//! - If other users may enter the mount, no user gets what the store would refuse. The descriptor that was checked is the one
//!   that is used.
//! - A session thread never waits for the store. Every loop over chunks asks before each step whether its reply is still
//!   waited for.
//! - Idle long memory has one limit for all threads, arrays and codecs together.
//! - No secret is taken from a command line, and none is shown.
//! - No panics: `unwrap`, `expect` and `panic` are denied outside tests. A panic in a library costs one request.
//! - Unsafe code is in `sys` with its parts, in `codec/bytes_to_bytes/blosc/c_blosc.rs`, and in `mount/fuse/passthrough.rs` only. Each
//!   block gives its reason.
//!
//! # What is checked how
//!
//! `tests/` has six binaries, each a folder: `formats` (other implementations and their files), `model` (random programs
//! against plain models), `mount` (the program on a real mount), `faults` (damage, failures, crashes, power cuts), `remote`
//! (object stores, at real servers of each service), `rules` (the sources, the command line and the pages).
//! `array/interleavings/` runs the production code of the cache and of write-back under random schedules of its threads (the
//! feature `shuttle`): its locks, atomics and threads all come from `array/sync.rs`. In `hierarchy/two_programs/` a second program
//! changes an array of a service between any two requests of this one, which has an overlay and a disk cache, and dies at any
//! request. `CONTRIBUTING.md` says how to run them.
//!
//! # What is absent
//!
//! - Writing data writes metadata documents only where an array grows.
//! - There is no journal of writes on the disk: writes that are not stored outlive the daemon only in memory, and only if a keeper or a
//!   service manager holds it (`array/write/unstored_log/`). Without these, or if the machine stops, no promise covers
//!   them before fsync.
//! - There is no thread pool per array and no async runtime above `store`: `array/workers.rs` is all the concurrency of decoding.
//! - There is no FUSE type outside `mount`, and none in `mount/fs`.
//! - There is no second path for order F or for views: each is the stored array, opened with other axes or one more codec. A slice is read from
//!   the array's own chunks.
//! - No codec knows a store key: the layer that knows the key adds it to the error.

pub mod array;
pub mod cancellation;
pub mod codec;
pub mod error;
pub mod formats;
pub mod hierarchy;
pub mod memory;
pub mod metadata;
#[cfg(feature = "mount")]
pub mod mount;
pub mod nearest;
pub mod store;
pub mod sys;

// Files that the unit tests share with the integration tests name the crate.
#[cfg(test)]
extern crate self as zarrfs;

/// The store of tests that count, fail, or come in between.
#[cfg(test)]
#[path = "../tests/support/hooked.rs"]
#[allow(dead_code, missing_docs, clippy::unwrap_used)]
// The integration tests, which share the file, use more of it.
mod test_store;

/// Folders of tests, removed also after a killed process.
#[cfg(test)]
#[path = "../tests/support/folders.rs"]
#[allow(dead_code, missing_docs, clippy::unwrap_used)]
// The integration tests, which share the file, use more of it.
mod test_folders;

/// How much the tests try.
#[cfg(test)]
#[path = "../tests/support/level.rs"]
#[allow(dead_code, clippy::panic)] // The integration tests, which share the file, use more of it.
mod test_level;
