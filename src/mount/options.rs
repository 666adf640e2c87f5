//! What a mount is asked to be: one struct, filled by the command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::array::Layout;

/// `allow-other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowOther {
    /// On when the daemon is root, or fuse.conf has user_allow_other.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl AllowOther {
    /// The word as the command line spells it.
    pub fn word(self) -> &'static str {
        match self {
            AllowOther::Auto => "auto",
            AllowOther::On => "on",
            AllowOther::Off => "off",
        }
    }
}

/// All options of `zarrfs mount`.
#[derive(Clone, Debug)]
pub struct Options {
    /// As the user wrote it: shown by mount(8), and what a root that is an array is named after.
    pub source: String,
    /// Where the store is, for a store in the local filesystem (a folder, a zip file); `None` otherwise.
    pub store_path: Option<PathBuf>,
    /// Where to.
    pub mountpoint: PathBuf,
    /// Whether writing is allowed.
    pub writable: bool,
    /// Truncating to 0 makes every byte zero; otherwise it sets the written end.
    pub truncate_zeroes: bool,
    /// Bytes that may be dirty before a writer has to wait.
    pub dirty_limit_bytes: u64,
    /// The timer stores what was not written for so long; `None`: there is no timer.
    pub settle: Option<Duration>,
    /// Who may enter.
    pub allow_other: AllowOther,
    /// Limit of the chunk cache.
    pub cache_limit_bytes: u64,
    /// Decoding threads.
    pub threads: usize,
    /// Decode ahead of sequential readers.
    pub prefetch: bool,
    /// How arrays are served.
    pub layout: Layout,
    /// Seconds (fractions allowed) after which metadata is looked at again; TTL of entries and attributes.
    pub revalidate_seconds: f64,
    /// Bypass the page cache.
    pub direct_io: bool,
    /// Further words for mount(2): nosuid, nodev, noexec, noatime, …
    pub kernel_words: Vec<String>,
    /// The log file, opened by the command line; here so that one inside the store is refused.
    pub log_file: Option<PathBuf>,
    /// A request that the store has not answered by then fails with EIO.
    pub request_deadline: Duration,
    /// How long SIGTERM waits for those who still have files open.
    pub stop_deadline: Duration,
}

impl Options {
    /// A mount of `source` at `mountpoint`, everything else as by default.
    pub fn new(source: impl Into<String>, mountpoint: impl Into<PathBuf>) -> Self {
        Options {
            source: source.into(),
            store_path: None,
            mountpoint: mountpoint.into(),
            writable: false,
            truncate_zeroes: false,
            dirty_limit_bytes: 1 << 28,
            settle: Some(Duration::from_secs(5)),
            allow_other: AllowOther::Auto,
            cache_limit_bytes: 1 << 30,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            prefetch: true,
            layout: Layout::default(),
            revalidate_seconds: 1.0,
            direct_io: false,
            kernel_words: Vec::new(),
            log_file: None,
            request_deadline: Duration::from_secs(120),
            stop_deadline: Duration::from_secs(30),
        }
    }

    /// `revalidate_seconds` as a duration; nonsense (negative, NaN) is zero, at most one day.
    pub fn revalidate(&self) -> Duration {
        const DAY_SECONDS: f64 = 86_400.0;
        if self.revalidate_seconds > 0.0 {
            Duration::from_secs_f64(self.revalidate_seconds.min(DAY_SECONDS))
        } else {
            Duration::ZERO
        }
    }
}
