//! The description of a request, and the log of requests: counters, times and failures.

pub mod gate;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::mount::fs::error::{Failure, FailureLog, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::metrics::{Metrics, RequestKind};
use crate::mount::slow_requests::SlowRequests;
use crate::store::member_name;

/// A request, as the log describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The inode.
    pub inode: u64,
    /// The lane that it runs in, one request after the other. It is the inode, except for reads and lookups.
    pub lane: u64,
    /// A number of the member of a catalogue that has the inode; 0 if there is no catalogue. See [`RequestLog::in_member`].
    pub member: u64,
    /// The operation: "read", "open", ….
    pub operation: &'static str,
    /// The offset and the number of bytes, for reads and writes.
    pub range: Option<(u64, u64)>,
}

impl Request {
    /// Returns a request without a range.
    pub fn new(inode: u64, operation: &'static str) -> Self {
        Request { inode, lane: inode, member: 0, operation, range: None }
    }

    /// Returns a request for `bytes` bytes at `offset`.
    pub fn ranged(inode: u64, operation: &'static str, offset: u64, bytes: u64) -> Self {
        Request { range: Some((offset, bytes)), ..Request::new(inode, operation) }
    }

    /// Returns a read of a file. Reads have a lane of their own, so that other requests of the file do not wait for them.
    pub fn read(inode: u64, offset: u64, bytes: u64) -> Self {
        // No inode number is that large.
        Request { lane: inode | 1 << 62, ..Request::ranged(inode, "read", offset, bytes) }
    }

    /// Returns a request for a name in a folder. Lookups of different names do not wait for each other.
    pub fn for_name(folder: u64, operation: &'static str, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (folder, name).hash(&mut hasher);
        // No inode number, and no lane of reads, is that large.
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

/// The counters of requests, the slowest of them, and why some failed.
pub struct RequestLog {
    inodes: Arc<InodeTable>,
    /// A request without a reply after this long has failed.
    deadline: Duration,
    metrics: Metrics,
    failures: FailureLog,
    slow: SlowRequests,
}

impl RequestLog {
    /// Creates the log of a mount with these inodes.
    pub fn new(inodes: Arc<InodeTable>, deadline: Duration) -> Self {
        let (metrics, failures, slow) = (Metrics::default(), FailureLog::default(), SlowRequests::default());
        RequestLog { inodes, deadline, metrics, failures, slow }
    }

    /// Returns the counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the last failures, as text.
    pub fn last_failures(&self) -> String {
        self.failures.text()
    }

    /// Returns the slowest requests of the last minute, as text.
    pub fn slow_requests(&self) -> String {
        self.slow.text()
    }

    /// Returns a request with the number of the member of a catalogue that has its inode. The catalogue itself has a number, too.
    #[must_use]
    pub fn in_member(&self, request: Request) -> Request {
        let Some(inode) = self.inodes.get(request.inode) else { return request };
        let mut hasher = DefaultHasher::new();
        member_name(&inode.entity.path).hash(&mut hasher);
        Request { member: hasher.finish() | 1, ..request }
    }

    /// Counts a read of an array that succeeded.
    pub fn record_read(&self, inode: &Inode, bytes: u64) {
        inode.state().counters.reads.fetch_add(1, Ordering::Relaxed);
        inode.state().counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.metrics.record_read(bytes);
    }

    /// Returns whether an inode is one of the files in which the mount reports about itself.
    pub fn is_report(&self, inode: u64) -> bool {
        self.inodes.get(inode).is_some_and(|inode| inode.entity.kind.is_report())
    }

    /// Counts a request that came at `started` and gets its reply now.
    pub fn record_time(&self, kind: RequestKind, request: Request, started: Instant) {
        let now = Instant::now();
        let took = now.saturating_duration_since(started);
        self.metrics.record_time(kind, took);
        if self.slow.admits(took, now)
            && let Some(inode) = self.inodes.get(request.inode)
        {
            self.slow.record(&request.to_string(), &inode.entity.shown_path(), took, now);
        }
    }

    /// Counts and logs a failed request.
    pub fn record_failure(&self, inode: &Inode, request: &str, failure: &Failure) {
        let Failure::Error(error) = failure else { return };
        if matches!(error, Error::Cancelled { .. }) {
            return; // The watchdog, which sent the reply, has logged it.
        }
        inode.state().counters.errors.fetch_add(1, Ordering::Relaxed);
        self.metrics.record_error(error);
        self.failures.record(request, &inode.entity.shown_path(), error);
    }

    /// Counts and logs a read that failed.
    pub fn record_failed_read<T>(
        &self,
        inode: &Inode,
        offset: u64,
        size: u32,
        read: FsResult<T>,
    ) -> FsResult<T> {
        read.inspect_err(|failure| {
            if matches!(failure, Failure::Error(_)) {
                self.record_failure(inode, &format!("read of {size} bytes at {offset}"), failure);
            }
        })
    }

    /// Counts and logs a request that fails with this error, and returns the failure.
    pub fn fail(&self, inode: &Inode, request: &str, error: Error) -> Failure {
        let failure = Failure::from(error);
        self.record_failure(inode, request, &failure);
        failure
    }

    /// Counts and logs a failed request whose operation does not count its failures itself, and returns the errno.
    pub fn record_failed_request(&self, request: Request, failure: &Failure) -> i32 {
        if let Some(inode) = self.inodes.get(request.inode) {
            self.record_failure(&inode, &request.to_string(), failure);
        }
        failure.errno()
    }

    /// Counts and logs a request that the store did not complete in time.
    pub fn record_overdue(&self, request: Request) {
        let Some(inode) = self.inodes.get(request.inode) else { return };
        let kind = match request.operation {
            "read" => Some(RequestKind::Read),
            "write" => Some(RequestKind::Write),
            "open" => Some(RequestKind::Open),
            "close" | "fsync" | "release" => Some(RequestKind::Sync),
            _ => None,
        };
        if let Some(kind) = kind {
            // The request came at least that long ago.
            let now = Instant::now();
            self.record_time(kind, request, now.checked_sub(self.deadline).unwrap_or(now));
        }
        let key = inode.entity.path.to_string();
        self.record_failure(&inode, &request.to_string(), &Failure::Error(Error::TimedOut { key }));
    }

    /// Counts and logs the reason for which a change of names is refused, and fails with this errno.
    pub fn refuse_name<T>(
        &self,
        request: &str,
        path: &str,
        errno: i32,
        reason: impl Into<String>,
    ) -> FsResult<T> {
        let error = Error::Usage(reason.into());
        self.failures.record_as(request, path, errno, &error);
        self.metrics.record_error(&error);
        Err(Failure::Errno(errno))
    }

    /// Counts and logs a failed change of names, and returns the failure.
    pub fn record_failed_name(&self, request: &str, path: &str, failure: Failure) -> Failure {
        if let Failure::Error(error) = &failure {
            self.failures.record(request, path, error);
            self.metrics.record_error(error);
        }
        failure
    }
}
