//! zarrfs mounts a Zarr hierarchy (v1, v2, v3). Every array is one flat binary file and a JSON sidecar.
//!
//! A program that has never heard of Zarr opens the file and sees the elements in order. Each read decodes chunks
//! through a cache. This page is the map of the code, and the rules that hold everywhere in it.
//!
//! # Map
//!
//! A layer uses only the layers above it in this list. `tests/rules/layers` enforces that, and that files and folders
//! do not use each other in circles.
//!
//! | layer | what lives there |
//! |---|---|
//! | [`error`], `sys`, [`cancellation`], [`nearest`] | the one error and its errno; system calls that the standard library lacks; whether the result of some work is still wanted; suggestions for misspelled names |
//! | [`memory`] | long buffers, and the one pool that recycles them |
//! | [`store`] | objects by key: a folder, a zip file, memory, an overlay over one of them (`store/overlay/`), references to ranges of other files (`store/references/`), repositories that keep versions (`store/icechunk/`, a cargo feature); fetched bytes on disk (`store/disk_cache/`). A store may be remote: then callers ask in batches, and there are no owners, modes and folders |
//! | [`metadata`] | documents of v1, v2 and v3, all turned into one `ArrayMetadata`; `metadata/author/` writes those of new nodes; no I/O |
//! | [`codec`] | one codec: one file in the folder of its kind, and one line in `codec/registry.rs`; `codec/kernels/` below them, `codec/pipeline.rs` chains them |
//! | [`array`](mod@array) | the flat file of one array: from ranges of bytes to chunks and back |
//! | [`hierarchy`] | the groups and arrays of a store, found lazily, and what views make of them; `hierarchy/author/` makes, resizes, renames and removes nodes |
//! | [`formats`] | companion files: a node in a form that some programs know better, one file per format; `formats/json/` is the sidecar, `formats/geometry/` finds where elements lie |
//! | `mount` | the hierarchy as files: semantics without FUSE types (`fs/`), a thin adapter to FUSE (`fuse/`), the life of the process (`daemon/`) |
//! | `main.rs`, `cli/` | the command line, nothing else |
//!
//! `mount` is a cargo feature: `cargo check --lib --no-default-features` proves that the Zarr half needs no FUSE.
//!
//! The rooms of `array`, each of which uses only those before it: `geometry/` (index arithmetic), `cache/` (decoded
//! chunks in memory), `source/` (where chunks are stored), `write/` (from write(2) to the store), `read/` (from read(2)
//! to chunks), `readahead/` (ahead of sequential readers), `variable/` (strings and bytes). `array/mod.rs` defines
//! **chunk**: the smallest part that decodes on its own.
//!
//! # The life of a read
//!
//! 1. `mount/fuse/mod.rs` receives the kernel's request on a session thread. A session thread replies if the data is in
//!    the cache. It never blocks on the store: any other request moves, with its reply, to the executor
//!    (`mount/fuse/executor`).
//! 2. The handle (`mount/fs/open_files.rs`) is an array, a sidecar being written, or a virtual file
//!    (`formats/virtual_file.rs`) of bytes and ranges of arrays. All files that show an array's bytes
//!    share one open array (`hierarchy/open_arrays.rs`). In a remote store the nodes of a listed folder are known for
//!    `revalidate` seconds, with the groups above them (`hierarchy/remote.rs`).
//! 3. [`array::Array::read`] (`array/request.rs`) plans the request: it walks `array/geometry/grid.rs` once for the
//!    parts of chunks that the range touches, the **strips** of `array/geometry/strips.rs`, and keeps them in a
//!    `array/geometry/copy_plan.rs`. If the read would block, the executor continues with the same plan. A strip is a
//!    whole chunk, unless the cache cannot hold a row of chunks, or a codec (blosc, `codec/partial.rs`) decodes some
//!    rows at their own cost. The range is cut into boxes, and each box into one copy per strip
//!    (`array/geometry/strided_copy.rs`): nested loops over byte runs that are contiguous both in the file and in the
//!    chunk.
//! 4. `array/read/mod.rs` asks `array/cache/mod.rs` for all strips of the plan at once. A strip that is missing is
//!    loaded by one reader (`array/read/strips.rs`), and the others wait for that load. For a sequential reader
//!    `array/readahead/mod.rs` decodes what comes next, but nothing that another such reader has received already
//!    (`array/readahead/consumed.rs`). The memory of chunks that the reader has passed is used again. If a sequential
//!    reader comes back to a chunk for its next rows, DEFLATE resumes where it stopped
//!    (`array/source/resumable_decoders.rs`).
//! 5. The source locates the chunk (`array/source/locate.rs`): it is a whole object, or a range of one by the shard's index,
//!    which is read once and kept while the object's version is the same. `array/source/load.rs` reads those bytes.
//! 6. `codec/pipeline.rs` decodes into a recycled buffer (`memory`), in served order and byte order.
//! 7. The bytes are copied into the reply, short runs of a row of chunks together. A chunk that is missing in the store
//!    becomes fill value. For a sequential reader that bypasses the page cache and sends one request at a time, the next
//!    replies are prepared while the kernel takes this one (`array/readahead/replies.rs`).
//!
//! A remote store's reads have three stages. The source *locates* all chunks that a read touches, and has the store *fetch*
//! their bytes at once (`array/source/ahead.rs`, [`store::Store::will_need`]); threads *decode* them as they come. For a
//! sequential reader `array/readahead/transfers.rs` claims what comes next while the reader waits for what it asked for, as
//! much as the link needs and the store's memory allows. `store/remote/ahead.rs` has the transfers: a claim that is dropped
//! cancels its own. What is fetched is never older than the array's last comparison with the store: since then one request for
//! an object has told its version, and later ones name it. `store/remote/origin.rs` looks into the disk cache first, and uses
//! what is there only after the service has said that the version is current, or for a request that names the version. Bytes
//! on the disk stay there until the thread that decodes them reads them.
//!
//! Uncompressed chunks skip the cache: `array/read/uncompressed.rs` reads ranges of the object, which stays open
//! (`array/source/open_objects.rs`), into the reply. A session thread does so if the system has the bytes in memory.
//!
//! open(2) compares the objects that readers have seen, or are loading (`array/source/versions.rs`), with the store. Changed
//! objects leave the caches, the kernel's included, one open of a file after the other
//! (`mount/fs/page_cache/page_drops.rs`). A remote store compares many at a time. An object that write-back itself replaced counts as unchanged. open(2) also
//! chooses the cache mode (`mount/fs/page_cache/cache_mode.rs`). Usually the kernel reads through its page cache. Reads and
//! writes bypass it if the file is open for writing only, or beside such a writer. As root and on a read-only mount, the
//! kernel reads the object itself (`mount/fuse/passthrough.rs`) if an array is exactly one uncompressed object; such reads
//! skip all of the above and appear in no metric.
//!
//! SEEK_HOLE and SEEK_DATA go through `mount/fs/read.rs` to `array/read/holes.rs`, which looks for missing rows of chunks.
//!
//! Order F is no second path: the served array has its axes reversed, and a transpose before its codec chain, so all
//! code after [`array::Array::open`] knows order C only.
//!
//! Views (`hierarchy/views.rs`) are no second path either: each is the stored array opened once more, in another layout, with its axes in
//! another order (a plane is then a range of its file), or with a codec before its chain that unpacks elements. Their own files are
//! virtual files, like companions. They read the store, so open(2) first stores what was written to the array (`mount/fs/arrays.rs`).
//!
//! A store of versions ([`store::versions`]) shows one snapshot: nothing changes below its readers until open(2) has it follow its branch
//! (`mount/fs/open.rs`), if the mount does that. Versions of chunks are their places in the repository, so that caches stay valid from one
//! snapshot to the next.
//!
//! # The life of a write
//!
//! 1. `mount/fuse/write.rs` handles the request on the session thread if that does not block, else on the executor.
//!    `mount/fs/write` cuts it at the end of the file. Of a memory map's page it stores only the bytes that were not
//!    written directly since the page was read (`mount/fs/page_cache/direct_writes.rs`).
//! 2. [`array::Array::write_at`] copies the bytes into **dirty chunks** (`array/write/dirty.rs`). Each one has the set of its
//!    written byte ranges, because a write may split elements. A chunk that is written in full is never read from the
//!    store. A chunk that is written in part is completed when a reader needs it, or when it is stored. Readers of a dirty
//!    chunk read it from there. A session thread begins a write, which locks all its chunks
//!    ([`array::PendingWrite`]), replies, and then copies: a reader of these bytes waits for the locks. Full chunks are stored beside their writer (`array/write/streaming.rs`), which gets no
//!    further ahead than two slabs.
//! 3. close, fsync, the dirty limit, a timer and the end of the mount store dirty chunks (`array/write/write_back.rs`). First
//!    it checks that the metadata document still describes the array, and that the folders of the array and of the store
//!    are those that were opened. Chunks are encoded in parallel (`array/write/encode.rs`) into the memory from which they
//!    are written (`codec/encoded_bytes.rs`). All dirty chunks of one object make one new object;
//!    `array/source/rewrite.rs` copies the inner chunks that did not change, without decoding them. An uncompressed
//!    chunk is not copied: a writer that comes meanwhile gets its own copy.
//! 4. `store/directory/writer.rs` writes a temporary file (`store/directory/output.rs`, past the page cache if long),
//!    fdatasyncs it and gives it the name, in place of the version that was found and of no other (`store/directory/exchange.rs`). fsync(2) then syncs the folders. `store/remote/writer.rs` sends one request instead, which
//!    names the version that it replaces. Where another program was first, `array/write/store_object.rs` merges.
//!    `store/overlay/writer.rs` notes the change in the overlay's list (`store/overlay/changes.rs`) before its folder's object
//!    gets its name; [`store::overlay::OverlayStore::commit`] writes it into the store below, for all changes in the order of
//!    [`hierarchy::commit::into_base`]. A chunk has the form of its array in that list (`store/form.rs`, `metadata/form.rs`). Over a store of versions `hierarchy/commit`
//!    sends all changes as one snapshot, while `mount/fs/commit.rs` and then the overlay keep writers out. One line in that list removes a node
//!    with all its chunks (`store/overlay/nodes.rs`).
//! 5. With `create`, a write past the end of the file first makes the array longer (`mount/fs/write/growth.rs`): what is stored after its
//!    end becomes fill value (`array/write/lengthen.rs`), its document is replaced on condition (`hierarchy/author/resize.rs`), and the dirty
//!    chunks move to an array of the new length. Until its last row is written, the file is as long as what is written
//!    (`mount/fs/write/written_end.rs`).
//! 6. A chunk becomes clean if no write reached it meanwhile. The array's epoch advances, so content that readers loaded
//!    before is compared with the store before it is used again. If a codec of the array is lossy (`is_lossless` of each
//!    codec), the chunk leaves the cache, and the kernel drops its pages before fsync and close return.
//!
//! An import of a file (`cli/commands/import.rs`) has no dirty chunks: `array/write/whole_objects.rs` reads the ranges of the file that whole
//! chunks need, encodes them and stores each object, on several threads.
//!
//! Nodes are made where no reader sees them: in a folder store in a folder with a hidden name (`store/directory/folders.rs`), which
//! gets its own name in one step when its documents, and the chunks of an import, are stored. `hierarchy/author/copies.rs` keeps
//! consolidated metadata in step; where it cannot, the node goes away again.
//!
//! A sidecar of a writable mount takes writes, too. `mount/fs/virtual_files/sidecar_edit.rs` collects and checks them.
//! `hierarchy/attributes.rs` changes the documents as text (`metadata/json/edit.rs`), so unchanged members keep their bytes.
//!
//! Nodes are made, removed and renamed through the mount by `mount/fs/names`, with the same functions of `hierarchy/author/` as the
//! commands. It has one table of names that the store does not have: **scratch files**, which become nodes, or change them, when they are
//! closed or renamed. An array that is removed or renamed ends (`array/write/end.rs`): its handles are stale, and nothing of it is stored any more.
//!
//! # Watching
//!
//! Counters and histograms are relaxed atomics (`store/traffic.rs`, `mount/metrics.rs`): a request that is not slow takes no lock for
//! them. `__zarrfs__/stats` shows them, `cli/commands/watch` reads it. `mount/daemon/pressure.rs` has the cache give back memory when the
//! system is short of it.
//!
//! # Invariants
//!
//! Reading:
//!
//! - A missing chunk reads as the fill value. A chunk that cannot be read or decoded is an error for every request that
//!   needs it, never fill value, never zeros.
//! - `None` from a store means missing, and only ENOENT means that. A permission, link or I/O error does not.
//! - An entry of the disk cache is used for the object, version and range that it names, and never without its checksum.
//!   Without the service it is used only if nothing newer was seen or written (`store/disk_cache/knowledge.rs`).
//! - Versions of objects are compared and nothing else: only stores know what is in them.
//! - A shard's index and the inner chunks found through it come from the same version of the object.
//! - An open file shows nothing that was replaced in the store before the open, not even through a load that was already
//!   running.
//! - Objects are read, never mapped, so a file that is cut short meanwhile is an error and not a signal.
//! - A broken node costs itself an error, and its neighbours nothing.
//!
//! Writing:
//!
//! - A dirty chunk leaves memory only when exactly its content is in the store (or by the user's truncation or removal of the
//!   array, or `--force`).
//! - A write gets its reply when nothing can fail any more and its chunks are dirty and locked, perhaps before its bytes
//!   are copied.
//! - Pages are dropped only for a reason. A write to pages that were read while a drop was running drops its range once more
//!   before its reply.
//! - Where no lock excludes other writers, an object replaces only the version that its unwritten bytes came from.
//! - A document that makes an array longer is stored before any chunk that it makes room for.
//! - There is no half-made node: its name comes after its documents, and goes before they do.
//! - A snapshot has all changes of an overlay or none, and each is published once: while that is not known, nothing is written.
//! - An object gets its name only after its bytes are on the disk. Every failure to store is reported to every open
//!   descriptor.
//!
//! Safety:
//!
//! - No allocation depends on an unchecked number: documents, objects, decoded sizes, shard indexes and ranks have limits
//!   that are checked first. A decoder never returns more than it was asked for.
//! - Nothing outside the store's folder is opened: every path is resolved beneath one descriptor of the root. References open
//!   files below their own folder, or in their own bucket, and what `--allow-references` adds (`store/references/targets.rs`);
//!   virtual chunks of repositories do, too, but none in a folder.
//! - If other users may enter the mount, no user gets what the store would refuse. An array's readers share only what all
//!   of them may read (`store/readers.rs`), a link gives what its owner has (`store/directory/links.rs`), and the
//!   descriptor that was checked is the one that is used.
//! - Idle long memory has one limit for all threads, arrays and codecs together. A dirty chunk counts the memory that it
//!   takes.
//! - A request that has its reply at its deadline ends: every loop over chunks asks before each step whether the reply is
//!   still waited for (`cancellation.rs`). A session thread makes no more than a few thousand steps.
//! - No secret is taken from a command line, and none is shown: `store/remote_options/` refuses them, and
//!   `store/remote/replies/refusal.rs` words what services say.
//! - No panics: `unwrap`, `expect` and `panic` are denied outside tests. A panic in a library costs one request.
//! - Unsafe code is in `sys` (with its parts memory, process, processor and terminal) and in
//!   `codec/bytes_to_bytes/blosc/mod.rs` only. Each block gives its reason.
//!
//! # What is checked how
//!
//! `tests/` has six binaries, each a folder: `formats` (other implementations and their files), `model` (random programs
//! against plain models), `mount` (the program on a real mount), `faults` (damage, failures, crashes), `remote` (object
//! stores, at real servers of each service), `rules` (the sources and the command line). `cargo test --test mount page_cache::` runs one file of one.
//!
//! - Any sequence of reads, writes, truncations, failures and remounts: `tests/model/fs_model.rs`, against a byte vector
//!   for each file.
//! - Any interleaving of writers, readers, flushers, the timer and the store: `array/interleavings`. The locks, atomics and
//!   threads of `array` come from `array/sync.rs`. With the feature `shuttle` they are that library's, and this layer's own
//!   code runs over a store in memory under random schedules. Checked: one load at a time; no write is lost or seen to go
//!   back; synced writes are durable; a chunk is clean only if nothing changed meanwhile. Weak memory orders are not
//!   modelled.
//! - The kernel's half, with its page cache and memory maps: `tests/mount/exercisers.rs` on a real mount.
//! - Crashes and power cuts: `tests/faults/crash.rs` and `tests/faults/power_loss.rs`.
//!
//! # What is absent
//!
//! - Writing data writes metadata documents only where an array grows.
//! - No journal of writes (an overlay's list names objects, and has none of their bytes): if the daemon dies, writes that were not yet stored are lost. No promise covers them before fsync.
//! - No thread pool per array, no async runtime: `array/workers.rs` is all the concurrency of decoding.
//! - No FUSE type outside `mount`, and none in `mount/fs`.
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

/// How much the tests try.
#[cfg(test)]
#[path = "../tests/support/level.rs"]
#[allow(dead_code, clippy::panic)] // The integration tests, which share the file, use more of it.
mod test_level;
