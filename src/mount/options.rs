//! The options of a mount. The command line fills them in.

use std::path::PathBuf;
use std::time::Duration;

use crate::array::{KeptBytes, Layout};
use crate::formats::Format;
use crate::store::RemoteOptions;

/// The option `allow-other`.
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
    /// Returns the value as the command line spells it.
    pub fn word(self) -> &'static str {
        match self {
            AllowOther::Auto => "auto",
            AllowOther::On => "on",
            AllowOther::Off => "off",
        }
    }
}

/// The owners and permissions that the mount shows instead of the store's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The owner of every file.
    pub uid: Option<u32>,
    /// The group of every file.
    pub gid: Option<u32>,
    /// Permission bits that no file has.
    pub umask: Option<u32>,
}

impl Ownership {
    /// Returns whether users get permissions that the store grants to others.
    pub fn gives_away(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }
}

/// All options of `zarrfs mount`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store as the user wrote it: mount(8) shows it, and a root that is an array is named after it.
    pub source: String,
    /// The path of a store in the local file system (a folder, a zip file); `None` otherwise.
    pub store_path: Option<PathBuf>,
    /// The folder of the overlay that takes what is written, if there is one.
    pub overlay: Option<PathBuf>,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Whether a missing mount point is made.
    pub make_mountpoint: bool,
    /// The owners and permissions to show.
    pub ownership: Ownership,
    /// Whether the mount takes writes.
    pub writable: bool,
    /// Whether programs may make groups and arrays, and make arrays longer.
    pub create: bool,
    /// Whether programs may remove and rename groups and arrays.
    pub delete: bool,
    /// The most bytes of all scratch files together.
    pub scratch_limit_bytes: u64,
    /// Whether truncation to 0 makes every byte zero; otherwise it sets the written end.
    pub truncate_zeroes: bool,
    /// Whether chmod(2) and chown(2) that can change nothing succeed instead of failing with EPERM.
    pub ignores_chmod: bool,
    /// The number of dirty bytes above which writers wait.
    pub dirty_limit_bytes: u64,
    /// A timer stores chunks that were not written for this long; `None` for no timer.
    pub writeback_delay: Option<Duration>,
    /// The users that may enter.
    pub allow_other: AllowOther,
    /// The size limit of the chunk cache.
    pub cache_limit_bytes: u64,
    /// The number of decoding threads.
    pub threads: usize,
    /// Whether chunks are decoded ahead of sequential readers.
    pub prefetch: bool,
    /// The order and the byte order of the served bytes.
    pub layout: Layout,
    /// The seconds (fractions allowed) after which metadata is compared with the store. They are also the lifetime of entries and
    /// attributes in the kernel.
    pub revalidate_seconds: f64,
    /// The same for remote members of a catalogue, if it is another time.
    pub revalidate_remote_members: Option<Duration>,
    /// Whether a store that keeps versions shows the newest snapshot of its branch after that time, from the next open(2) on.
    pub follows_branch: bool,
    /// The formats whose files are listed next to the arrays' own.
    pub formats: Vec<&'static Format>,
    /// Whether reads and writes bypass the page cache.
    pub direct_io: bool,
    /// Further mount options for mount(2): nosuid, nodev, noexec, noatime, …
    pub kernel_words: Vec<String>,
    /// Options that mount(8) keeps for other programs (`_netdev`).
    pub utab_words: Vec<String>,
    /// The log file. The command line opens it; it is here so that a log file inside the store is refused.
    pub log_file: Option<PathBuf>,
    /// The access log.
    pub access_log: Option<PathBuf>,
    /// The group that may read the metrics, without the names of arrays.
    pub stats_group: Option<u32>,
    /// The places that references may refer to in addition to their own folder or bucket.
    pub allowed_references: Vec<String>,
    /// How the service of a remote store is reached; `None` for another store.
    pub remote: Option<RemoteOptions>,
    /// The time after which a request without a reply of the store fails with EIO.
    pub request_deadline: Duration,
    /// Whether the mount has a keeper, which starts the daemon again if it dies. Only a mount in the background can have one.
    pub has_keeper: bool,
    /// What of the written bytes outlives a daemon that dies.
    pub kept_bytes: KeptBytes,
    /// The grace period after SIGTERM, and the time after which write-back without progress gives up.
    pub stop_deadline: Duration,
}

/// Returns how many threads take requests from the kernel: one for each core, at least 2, so that one receives a request while another
/// replies, and at most 8, since they reply from memory only.
pub fn session_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8)
}

impl Options {
    /// Returns the defaults for a mount of `source` at `mountpoint`.
    pub fn new(source: impl Into<String>, mountpoint: impl Into<PathBuf>) -> Self {
        Options {
            source: source.into(),
            store_path: None,
            overlay: None,
            mountpoint: mountpoint.into(),
            make_mountpoint: false,
            ownership: Ownership::default(),
            writable: false,
            create: false,
            delete: false,
            scratch_limit_bytes: 1 << 30,
            truncate_zeroes: false,
            ignores_chmod: false,
            dirty_limit_bytes: 1 << 28,
            writeback_delay: Some(Duration::from_secs(5)),
            allow_other: AllowOther::Auto,
            cache_limit_bytes: 1 << 30,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            prefetch: true,
            layout: Layout::default(),
            revalidate_seconds: 1.0,
            revalidate_remote_members: None,
            follows_branch: false,
            formats: Vec::new(),
            direct_io: false,
            kernel_words: Vec::new(),
            utab_words: Vec::new(),
            log_file: None,
            access_log: None,
            stats_group: None,
            allowed_references: Vec::new(),
            remote: None,
            request_deadline: Duration::from_secs(120),
            has_keeper: false,
            kept_bytes: KeptBytes::All,
            stop_deadline: Duration::from_secs(30),
        }
    }

    /// Returns whether programs may make, remove or rename nodes.
    pub fn changes_nodes(&self) -> bool {
        self.create || self.delete
    }

    /// Returns `revalidate_seconds` as a duration: zero for negative values and NaN, at most one day.
    pub fn revalidate(&self) -> Duration {
        const DAY_SECONDS: f64 = 86_400.0;
        if self.revalidate_seconds > 0.0 {
            Duration::from_secs_f64(self.revalidate_seconds.min(DAY_SECONDS))
        } else {
            Duration::ZERO
        }
    }
}
