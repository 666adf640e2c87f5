//! The file system: names, attributes and operations, without FUSE types, so that it is tested without a
//! mount.
//!
//! Uses `hierarchy` (through [`NodeCache`], and its table of open arrays), `array`, `formats`, and the tables of this
//! folder. `lookup.rs` resolves
//! names, `names` makes, removes and renames them, `open.rs`, `read.rs` and `write` serve files, `readdir.rs` lists folders, `virtual_files` makes
//! sidecars and companion files, `commit.rs` makes snapshots, `page_cache` tracks what the kernel caches. Uses neither `fuse` nor
//! `daemon`.
//!
//! Invariants: a real node wins over a generated name; an operation with [`Blocking::No`] never touches the
//! store; the inode of a replaced array replies ESTALE for ever.

pub mod arrays;
pub mod commit;
pub mod error;
pub mod handle;
pub mod inode;
pub mod lookup;
pub mod names;
pub mod node_cache;
pub mod open;
pub mod open_files;
pub mod page_cache;
pub mod permissions;
pub mod read;
pub mod readdir;
pub mod request;
pub mod virtual_files;
pub mod write;
pub mod xattr;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::array::{Engine, EngineOptions};
use crate::hierarchy::{OpenArrays, Tree};
use crate::memory::limit_idle_bytes;
use crate::mount::fs::commit::Commits;
use crate::mount::fs::error::{Blocking, Failure, FailureLog, FsResult};
use crate::mount::fs::handle::{HandleTable, OpenFile};
use crate::mount::fs::inode::{Inode, InodeTable, Kind, ROOT};
use crate::mount::fs::names::Names;
use crate::mount::fs::names::leftovers::Leftovers;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::permissions::Permissions;
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::metrics::Metrics;
use crate::mount::options::Options;
use crate::mount::slow_requests::SlowRequests;
use crate::store::{StatFs, Store};

/// The folder of this mount's own files, at the root.
pub const INTERNALS: &str = "__zarrfs__";
/// In [`INTERNALS`]: the metrics.
pub const STATS: &str = "stats";
/// In [`INTERNALS`]: the configuration of the mount.
pub const CONFIG: &str = "config.json";
/// In [`INTERNALS`]: the keys of objects that are not stored yet.
pub const UNSAVED: &str = "unsaved";
/// In [`INTERNALS`]: the last failures.
pub const LAST_ERROR: &str = "last_error";
/// In [`INTERNALS`]: the slowest requests of the last minute.
pub const SLOW: &str = "slow";
/// In [`INTERNALS`]: takes the message of a commit, and has the outcome of the last one.
pub const COMMIT: &str = "commit";
/// The longest file name on Linux, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// Attributes of a file, as in stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub inode: u64,
    /// A folder; otherwise a regular file.
    pub is_folder: bool,
    /// Size of the file.
    pub size_bytes: u64,
    /// Permission bits, 0o777 at most.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change, used for all times.
    pub mtime: SystemTime,
}

/// Attributes, and how long the kernel may cache them and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The attributes.
    pub attributes: Attributes,
    /// How long they may be cached.
    pub valid_for: Duration,
    /// How long the name may stand for this inode in the kernel.
    pub entry_valid_for: Duration,
}

/// What `config.json` shows of the process that serves the mount.
#[derive(Clone, Debug, Default)]
pub struct DaemonInfo {
    /// Start time of the process in clock ticks since boot.
    pub start_ticks: Option<u64>,
    /// The file with its exit status.
    pub exit_status_path: Option<String>,
}

/// A mounted hierarchy.
pub struct FileSystem {
    options: Arc<Options>,
    nodes: NodeCache,
    engine: Arc<Engine>,
    arrays: Arc<OpenArrays>,
    inodes: InodeTable,
    handles: HandleTable,
    drafts: Drafts,
    names: Names,
    permissions: Permissions,
    metrics: Metrics,
    failures: FailureLog,
    slow: SlowRequests,
    companions: Companions,
    commits: Commits,
    leftovers: Leftovers,
    /// The name of the root's file, if the root is an array.
    root_name: String,
    daemon: DaemonInfo,
    /// The kernel invalidates cached pages when a direct write replaces them.
    allows_direct_writes: AtomicBool,
    /// The kernel may read objects itself (FUSE passthrough).
    uses_passthrough: AtomicBool,
    /// The daemon is about to exit: all requests fail.
    has_ended: AtomicBool,
    started: SystemTime,
    started_at: Instant,
    /// When a store of versions last followed its branch.
    followed_at: Mutex<Option<Instant>>,
}

impl FileSystem {
    /// A file system over an open store. Reads nothing yet.
    pub fn new(options: Arc<Options>, store: Arc<dyn Store>) -> Self {
        let engine = Engine::with_options(EngineOptions {
            // What a remote store transfers ahead of its readers is a part of the cache's memory.
            cache_limit_bytes: options.cache_limit_bytes.saturating_sub(store.transfer_limit_bytes()),
            threads: options.threads,
            dirty_limit_bytes: options.dirty_limit_bytes,
            writeback_delay: options.writeback_delay,
            page_cache_keeps: !options.direct_io,
        });
        limit_idle_bytes(options.cache_limit_bytes);
        let arrays = Arc::new(OpenArrays::new(&engine, &store, options.layout));
        FileSystem {
            nodes: NodeCache::new(Tree::new(store), options.revalidate()),
            engine,
            inodes: InodeTable::new(arrays.clone()),
            arrays,
            handles: HandleTable::default(),
            drafts: Drafts::default(),
            names: Names::new(options.scratch_limit_bytes),
            permissions: Permissions::new(options.store_path.as_deref(), options.writable, options.ownership),
            metrics: Metrics::default(),
            failures: FailureLog::default(),
            slow: SlowRequests::default(),
            companions: Companions::default(),
            commits: Commits::default(),
            leftovers: Leftovers::default(),
            root_name: root_name(&options),
            daemon: DaemonInfo::default(),
            allows_direct_writes: AtomicBool::new(false),
            uses_passthrough: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            started: SystemTime::now(),
            started_at: Instant::now(),
            followed_at: Mutex::default(),
            options,
        }
    }

    /// Adds what `config.json` shows of the daemon.
    pub fn with_daemon(mut self, daemon: DaemonInfo) -> Self {
        self.daemon = daemon;
        self
    }

    /// The options of the mount.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Lets files that are open for writing only bypass the page cache. Needs a kernel that keeps the page
    /// cache in line with direct writes.
    pub fn allow_direct_writes(&self) {
        self.allows_direct_writes.store(true, Ordering::Relaxed);
    }

    fn allows_direct_writes(&self) -> bool {
        self.allows_direct_writes.load(Ordering::Relaxed)
    }

    /// Sets whether the kernel may read objects itself (FUSE passthrough).
    pub fn set_passthrough(&self, are_backed: bool) {
        self.uses_passthrough.store(are_backed, Ordering::Relaxed);
    }

    fn uses_passthrough(&self) -> bool {
        self.uses_passthrough.load(Ordering::Relaxed)
    }

    /// The open file with this handle.
    pub fn file(&self, handle: u64) -> FsResult<Arc<dyn OpenFile>> {
        self.handles.get(handle).ok_or(Failure::Errno(libc::EBADF))
    }

    /// The number of open files and folders.
    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    /// How long the kernel may remember that a name does not exist.
    pub fn negative_valid_for(&self) -> Duration {
        if self.options.changes_nodes() { Duration::ZERO } else { self.options.revalidate() }
    }

    /// Gives memory back because the system is short of it: half of the clean chunks in the cache, and idle memory. Returns how
    /// many bytes.
    pub fn relieve_memory(&self) -> u64 {
        let bytes = self.engine.relieve();
        self.metrics.note_pressure(bytes);
        bytes
    }

    /// Forgets all cached nodes (SIGHUP).
    pub fn expire(&self) {
        self.nodes.expire();
    }

    /// The attributes of an inode.
    pub fn attributes(&self, inode: u64, blocking: Blocking) -> FsResult<Stat> {
        let inode = self.inode(inode)?;
        let mut found = self.stat_entity(&inode.entity, blocking)?;
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        // Handles of a file that has changed since they were opened still read what it was.
        if matches!(inode.entity.kind, Kind::Companion(..)) && found.attributes.inode != inode.number {
            let snapshot = inode.snapshot.lock().upgrade().ok_or(Failure::Errno(libc::ESTALE))?;
            (found.attributes.inode, found.attributes.size_bytes) = (inode.number, snapshot.size_bytes());
        }
        Ok(found)
    }

    /// Checks that the root can be read; called once before the mount is reported ready.
    pub fn check_root(&self) -> FsResult<()> {
        self.attributes(ROOT, Blocking::Yes).map(drop)
    }

    /// Free space of the store's file system.
    pub fn statfs(&self) -> FsResult<StatFs> {
        Ok(self.nodes.store().statfs()?)
    }

    /// The inode with this number; fails if it is stale.
    fn inode(&self, number: u64) -> FsResult<Arc<Inode>> {
        let inode = self.inodes.get(number).ok_or(Failure::Errno(libc::ENOENT))?;
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        Ok(inode)
    }
}

/// The name of a root that is an array: the name of the store without `.zip` and `.zarr`.
fn root_name(options: &Options) -> String {
    let of_path = options.store_path.as_deref().and_then(|path| path.file_name()).and_then(|n| n.to_str());
    let of_source = options.source.trim_end_matches('/').rsplit('/').next();
    crate::formats::root_name(of_path.or(of_source).unwrap_or_default())
}

/// The parent of a path; the parent of the root is the root.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
