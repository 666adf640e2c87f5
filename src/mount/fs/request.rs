//! The description of a request, for the log, the counters and the executor.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use crate::error::Error;
use crate::mount::fs::FileSystem;
use crate::mount::fs::error::Failure;
use crate::mount::fs::inode::Inode;
use crate::mount::metrics::RequestKind;
use std::sync::atomic::Ordering;

/// A request, as the log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The inode.
    pub inode: u64,
    /// The lane that it runs in: the inode, except for lookups.
    pub lane: u64,
    /// The operation: "read", "open", ….
    pub operation: &'static str,
    /// Offset and number of bytes, for reads and writes.
    pub range: Option<(u64, u64)>,
}

impl Request {
    /// A request without a range.
    pub fn new(inode: u64, operation: &'static str) -> Self {
        Request { inode, lane: inode, operation, range: None }
    }

    /// A request for `bytes` bytes at `offset`.
    pub fn ranged(inode: u64, operation: &'static str, offset: u64, bytes: u64) -> Self {
        Request { range: Some((offset, bytes)), ..Request::new(inode, operation) }
    }

    /// A read of a file: however long reads take, other requests of the file do not wait for a thread.
    pub fn read(inode: u64, offset: u64, bytes: u64) -> Self {
        // Inode numbers count from 1: half of the lower half is free, too.
        Request { lane: inode | 1 << 62, ..Request::ranged(inode, "read", offset, bytes) }
    }

    /// A request for a name in a folder: lookups of different names do not wait for each other.
    pub fn of_name(folder: u64, operation: &'static str, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (folder, name).hash(&mut hasher);
        // Inode numbers count from 1: the upper half is free.
        Request { lane: hasher.finish() | 1 << 63, ..Request::new(folder, operation) }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.operation)?;
        match self.range {
            Some((offset, bytes)) => write!(f, " of {bytes} bytes at {offset}"),
            None => Ok(()),
        }
    }
}

impl FileSystem {
    /// Counts a request that came at `started` and has its reply now.
    pub fn note_time(&self, kind: RequestKind, request: Request, started: Instant) {
        let now = Instant::now();
        let took = now.saturating_duration_since(started);
        self.metrics.note_time(kind, took);
        if self.slow.admits(took, now)
            && let Some(inode) = self.inodes.get(request.inode)
        {
            self.slow.note(&request.to_string(), &inode.entity.shown_path(), took, now);
        }
    }

    /// Counts and logs a failed request.
    pub(super) fn note_failure(&self, inode: &Inode, request: &str, failure: &Failure) {
        let Failure::Error(error) = failure else { return };
        if matches!(error, Error::Cancelled { .. }) {
            return; // The watchdog, which replied, has logged it.
        }
        inode.counters.errors.fetch_add(1, Ordering::Relaxed);
        self.metrics.note_error(error);
        self.failures.note(request, &inode.entity.shown_path(), error);
    }

    /// Counts and logs a failed request and returns the errno. For operations that do not count their own
    /// failures.
    pub fn note_request(&self, request: Request, failure: &Failure) -> i32 {
        if let Some(inode) = self.inodes.get(request.inode) {
            self.note_failure(&inode, &request.to_string(), failure);
        }
        failure.errno()
    }

    /// Counts and logs a request that the store did not complete in time.
    pub fn note_overdue(&self, request: Request) {
        let Some(inode) = self.inodes.get(request.inode) else { return };
        let kind = match request.operation {
            "read" => Some(RequestKind::Read),
            "write" => Some(RequestKind::Write),
            "open" => Some(RequestKind::Open),
            "close" | "fsync" | "release" => Some(RequestKind::Sync),
            _ => None,
        };
        if let Some(kind) = kind {
            // It came at least that long ago.
            let now = Instant::now();
            self.note_time(kind, request, now.checked_sub(self.options.request_deadline).unwrap_or(now));
        }
        let key = inode.entity.path.to_string();
        self.note_failure(&inode, &request.to_string(), &Failure::Error(Error::TimedOut { key }));
    }
}
