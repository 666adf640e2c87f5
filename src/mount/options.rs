//! What a mount is asked to be: one struct, filled by the command line.

use std::path::PathBuf;

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

/// All options of `zarrfs mount`.
#[derive(Clone, Debug)]
pub struct Options {
    /// As the user wrote it: shown by mount(8).
    pub source: String,
    /// Where to.
    pub mountpoint: PathBuf,
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
}
