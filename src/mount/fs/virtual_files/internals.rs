//! The files below `__zarrfs__/`: metrics, configuration, keys that are not stored yet, the last failures, slow requests.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::array::{ByteOrder, Engine, Order};
use crate::mount::fs::accesses::Accesses;
use crate::mount::fs::commit::Commits;
use crate::mount::fs::entity::EntityKind;
use crate::mount::fs::inode::InodeTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::open_file::HandleTable;
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::virtual_files::members::{members_config, members_metrics};
use crate::mount::metrics::{ArrayCounters, Metric, store_requests};
use crate::mount::options::{Options, session_threads};
use crate::store::{DiskCacheCounts, LatencyCounts, Remote, RemoteOptions, Traffic};

/// The folder of this mount's own files, at the root.
pub const INTERNALS: &str = "__zarrfs__";
/// In [`INTERNALS`]: takes the message of a commit, and has the outcome of the last one.
pub const COMMIT: &str = "commit";
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
/// The files in [`INTERNALS`] that every mount has.
const FILES: [(&str, EntityKind); 5] = [
    (STATS, EntityKind::Stats),
    (CONFIG, EntityKind::Config),
    (UNSAVED, EntityKind::DirtyReport),
    (LAST_ERROR, EntityKind::LastError),
    (SLOW, EntityKind::SlowRequests),
];

/// The part of `config.json` that describes the process that serves the mount.
#[derive(Clone, Debug, Default)]
pub struct DaemonInfo {
    /// Start time of the process in clock ticks since boot.
    pub start_ticks: Option<u64>,
    /// The file with its exit status.
    pub exit_status_path: Option<String>,
    /// Another daemon began the session.
    pub is_continued: bool,
    /// The process that starts another daemon if this one dies; set once it can.
    pub keeper: Arc<OnceLock<KeeperInfo>>,
}

/// The process that starts another daemon if one dies.
#[derive(Clone, Copy, Debug)]
pub struct KeeperInfo {
    /// Its number.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_ticks: Option<u64>,
}

/// The files of a mount in [`INTERNALS`].
pub struct InternalFiles {
    options: Arc<Options>,
    daemon: DaemonInfo,
    nodes: Arc<NodeCache>,
    engine: Arc<Engine>,
    inodes: Arc<InodeTable>,
    handles: Arc<HandleTable>,
    accesses: Arc<Accesses>,
    commits: Arc<Commits>,
    log: Arc<RequestLog>,
    started_at: Instant,
}

/// Returns the options that say how a service is reached. None of them is a secret.
fn remote_config(options: &RemoteOptions) -> serde_json::Value {
    let pairs = options.store_options.iter().map(|(key, value)| format!("{key}={value}"));
    json!({
        "endpoint-url": options.endpoint_url,
        "region": options.region,
        "profile": options.profile,
        "no-sign-request": options.no_sign_request,
        "store-option": pairs.collect::<Vec<_>>(),
        "missing-status": if options.is_forbidden_missing { 403 } else { 404 },
        "max-connections": options.max_connections,
        "disk-cache": options.disk_cache.as_ref().map(|cache| cache.folder.to_string_lossy()),
        "disk-cache-size": options.disk_cache.as_ref().and_then(|cache| cache.limit_bytes),
        "offline": options.disk_cache.as_ref().is_some_and(|cache| cache.is_offline),
    })
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
    Metric { name, help, is_gauge: false, value: value as f64 }
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
    Metric { name, help, is_gauge: true, value }
}

/// Returns the metrics of a remote store's requests to its service.
fn traffic_metrics(traffic: Traffic) -> [Metric; 6] {
    [
        counter("zarrfs_store_requests_total", "Requests to the store's service.", traffic.requests),
        counter(
            "zarrfs_store_failed_requests_total",
            "Requests without a reply, or with one that says to try again.",
            traffic.failed_requests,
        ),
        Metric {
            name: "zarrfs_store_reply_seconds_total",
            help: "Seconds from sending requests to the heads of their replies, in all.",
            is_gauge: false,
            value: traffic.replies.seconds(),
        },
        counter(
            "zarrfs_store_received_bytes_total",
            "Bytes of the replies of the store's service.",
            traffic.received_bytes,
        ),
        gauge("zarrfs_store_requests_in_flight", "Requests under way.", traffic.in_flight as f64),
        gauge(
            "zarrfs_store_ahead_bytes",
            "Memory of bytes transferred ahead of their readers.",
            traffic.ahead_bytes as f64,
        ),
    ]
}

/// Returns the metrics of a disk cache.
fn disk_cache_metrics(counts: DiskCacheCounts) -> [Metric; 9] {
    [
        counter("zarrfs_disk_cache_hits_total", "Requests whose bytes were in the disk cache.", counts.hits),
        counter("zarrfs_disk_cache_misses_total", "Requests whose bytes were not.", counts.misses),
        counter("zarrfs_disk_cache_read_bytes_total", "Bytes read from the disk cache.", counts.read_bytes),
        counter("zarrfs_disk_cache_written_bytes_total", "Bytes written to it.", counts.written_bytes),
        counter(
            "zarrfs_disk_cache_skipped_bytes_total",
            "Bytes fetched and not written to it.",
            counts.skipped_bytes,
        ),
        counter("zarrfs_disk_cache_damaged_total", "Entries that were damaged.", counts.damaged),
        counter("zarrfs_disk_cache_evictions_total", "Entries removed to make room.", counts.evicted),
        gauge(
            "zarrfs_disk_cache_bytes",
            "Size of the disk cache, as last counted.",
            counts.size_bytes as f64,
        ),
        gauge(
            "zarrfs_disk_cache_limit_bytes",
            "Limit of the disk cache in bytes.",
            counts.limit_bytes as f64,
        ),
    ]
}

impl InternalFiles {
    /// Creates the files of a mount that starts now.
    pub fn new(parts: &MountParts, daemon: DaemonInfo, commits: Arc<Commits>) -> Self {
        InternalFiles {
            options: parts.options.clone(),
            daemon,
            nodes: parts.nodes.clone(),
            engine: parts.engine.clone(),
            inodes: parts.inodes.clone(),
            handles: parts.handles.clone(),
            accesses: parts.accesses.clone(),
            commits,
            log: parts.log.clone(),
            started_at: Instant::now(),
        }
    }

    /// Returns the names of the files, and the kind of each.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, EntityKind)> {
        FILES.into_iter().chain(self.commits.are_possible().then_some((COMMIT, EntityKind::Commit)))
    }

    /// Returns the kind of the file with this name.
    pub fn find(&self, name: &str) -> Option<EntityKind> {
        self.names().find(|(other, _)| *other == name).map(|(_, kind)| kind)
    }

    /// Returns the current content of a file.
    pub fn text(&self, kind: EntityKind) -> Option<String> {
        match kind {
            EntityKind::Stats => Some(self.metrics_text()),
            EntityKind::Config => Some(self.config_text(true)),
            EntityKind::DirtyReport => Some(self.unsaved_text()),
            EntityKind::LastError => Some(self.log.last_failures()),
            EntityKind::SlowRequests => Some(self.log.slow_requests()),
            EntityKind::Commit => Some(self.commits.last()),
            _ => None,
        }
    }

    /// Returns the current content of a file for a user. Only root and the user of the daemon get the names of arrays, and learn where the members of a
    /// catalogue are.
    pub fn text_for(&self, kind: EntityKind, user: u32) -> Option<String> {
        let gets_names = user == 0 || user == crate::sys::effective_ids().0;
        match kind {
            EntityKind::Stats if !gets_names => Some(self.metrics_of(&[])),
            EntityKind::Config if !gets_names => Some(self.config_text(false)),
            kind => self.text(kind),
        }
    }

    /// Returns whether users who may open a file get different texts. Such a text must not get into pages, which all users share.
    pub fn depends_on_user(&self, kind: EntityKind) -> bool {
        match kind {
            EntityKind::Stats => self.options.stats_group.is_some(),
            EntityKind::Config => self.nodes.store().catalogue().is_some(),
            _ => false,
        }
    }

    /// Returns the group that may read the metrics.
    pub fn stats_group(&self) -> Option<u32> {
        self.options.stats_group
    }

    /// Returns the metrics as text.
    pub fn metrics_text(&self) -> String {
        let inodes = self.inodes.used_arrays();
        let paths: Vec<_> = inodes.iter().map(|inode| inode.entity.shown_path()).collect();
        let arrays: Vec<_> =
            paths.iter().zip(&inodes).map(|(path, inode)| (&**path, &inode.state().counters)).collect();
        self.metrics_of(&arrays) + &members_metrics(self.nodes.store().as_ref(), &arrays)
    }

    /// Returns the metrics as text, with the names of these arrays.
    fn metrics_of(&self, arrays: &[(&str, &ArrayCounters)]) -> String {
        let (metrics, store_times) = self.engine_metrics();
        self.log.metrics().text(&metrics, arrays) + &store_requests(&store_times)
    }

    fn engine_metrics(&self) -> (Vec<Metric>, LatencyCounts) {
        let engine = self.engine.counters();
        let traffic = self.nodes.store().remote().and_then(Remote::traffic);
        let (stored_bytes, store_times) = match &traffic {
            Some(traffic) => (traffic.received_bytes, traffic.replies),
            None => engine.stored_reads,
        };
        let inodes = self.inodes.used_arrays();
        let sum = |counter: fn(&ArrayCounters) -> &AtomicU64| {
            inodes.iter().map(|inode| counter(&inode.state().counters).load(Ordering::Relaxed)).sum()
        };
        let (lines, lost_lines) = self.accesses.lines();
        let served = self.log.metrics().read_bytes().max(1) as f64;
        let amplification = engine.decoded_bytes as f64 / served;
        let mut metrics = vec![
            gauge(
                "zarrfs_uptime_seconds",
                "Seconds since the daemon was started.",
                self.started_at.elapsed().as_secs_f64(),
            ),
            gauge(
                "zarrfs_session_is_continued",
                "1 if the daemon continues the session of one that has ended, else 0.",
                f64::from(self.daemon.is_continued),
            ),
            counter("zarrfs_writes_total", "Write requests accepted.", sum(|array| &array.writes)),
            counter(
                "zarrfs_written_bytes_total",
                "Bytes written to arrays.",
                sum(|array| &array.bytes_written),
            ),
            counter("zarrfs_store_read_bytes_total", "Bytes read from the store.", stored_bytes),
            gauge(
                "zarrfs_readahead_chunks",
                "Chunks that are decoded ahead of readers, or wait for that.",
                engine.ahead as f64,
            ),
            gauge(
                "zarrfs_open_handles",
                "Open files and folders.",
                self.handles.len_without_reports() as f64,
            ),
            gauge(
                "zarrfs_dirty_limit_bytes",
                "Dirty bytes above which writers wait.",
                self.engine.dirty_limit() as f64,
            ),
            counter("zarrfs_cache_hits_total", "Chunks found in the cache.", engine.hits),
            counter("zarrfs_cache_misses_total", "Chunks that were not in the cache.", engine.misses),
            counter("zarrfs_cache_evictions_total", "Chunks dropped to make room.", engine.evictions),
            counter("zarrfs_decoded_chunks_total", "Chunks decoded.", engine.decoded_chunks),
            counter("zarrfs_decoded_bytes_total", "Bytes of the chunks decoded.", engine.decoded_bytes),
            gauge("zarrfs_decode_amplification", "Bytes decoded for each byte served.", amplification),
            gauge("zarrfs_cache_bytes", "Bytes in the cache.", engine.cached_bytes as f64),
            counter(
                "zarrfs_stored_objects_total",
                "Chunks and shards put or deleted.",
                engine.objects_stored,
            ),
            counter("zarrfs_encoded_chunks_total", "Chunks encoded.", engine.chunks_encoded),
            counter(
                "zarrfs_read_modify_writes_total",
                "Chunks read because they were written in part.",
                engine.bases_read,
            ),
            gauge("zarrfs_dirty_bytes", "Bytes written and not yet stored.", engine.dirty_bytes as f64),
            gauge(
                "zarrfs_dirty_seconds",
                "Seconds since the last write to the dirty chunk that has waited longest; 0 if none is dirty.",
                self.engine.oldest_dirty().map_or(0.0, |age| age.as_secs_f64()),
            ),
            counter(
                "zarrfs_failed_stores_total",
                "Attempts to store written data that failed.",
                engine.failed_stores,
            ),
            counter("zarrfs_access_log_lines_total", "Lines written to the access log.", lines),
            counter(
                "zarrfs_access_log_lost_lines_total",
                "Lines that the access log did not take.",
                lost_lines,
            ),
            gauge(
                "zarrfs_cache_limit_bytes",
                "Limit of the cache in bytes.",
                engine.cache_limit_bytes as f64,
            ),
        ];
        let disk_cache = traffic.and_then(|traffic| traffic.disk_cache);
        metrics.extend(traffic.into_iter().flat_map(traffic_metrics));
        metrics.extend(disk_cache.into_iter().flat_map(disk_cache_metrics));
        (metrics, store_times)
    }

    /// Returns the configuration of this mount; with `names_stores`, it says where the members of a catalogue are.
    fn config_text(&self, names_stores: bool) -> String {
        let config: Map<String, Value> =
            self.daemon_config(names_stores).into_iter().chain(options_config(&self.options)).collect();
        format!("{:#}\n", Value::Object(config))
    }

    /// Returns what the configuration says of the daemon and of its store.
    fn daemon_config(&self, names_stores: bool) -> Vec<(String, Value)> {
        let store = self.nodes.store();
        // The path is absolute, because mounts are listed from other folders.
        let path = self.options.store_path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let shown = path.unwrap_or_else(|| store.describe());
        let versions = store.versions();
        let keeper = self.daemon.keeper.get();
        let members = [
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("pid", json!(std::process::id())),
            ("process_start_ticks", json!(self.daemon.start_ticks)),
            ("keeper", json!(keeper.map(|keeper| keeper.pid))),
            ("keeper_start_ticks", json!(keeper.and_then(|keeper| keeper.start_ticks))),
            ("store", json!(shown)),
            ("branch", json!(versions.and_then(|versions| versions.branch()))),
            ("snapshot", json!(versions.map(|versions| versions.snapshot()))),
            ("outcome", json!(self.daemon.exit_status_path)),
            ("members", members_config(store.as_ref(), names_stores)),
        ];
        members.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Returns the key of each object with data that is not stored yet, with the reason of the last failed attempt in brackets.
    pub fn unsaved_text(&self) -> String {
        let mut text = String::new();
        for array in self.engine.unsaved() {
            let reason = |key: &str| {
                let reason = array.last_failure.as_ref().and_then(|error| error.reason_for(key));
                reason.map(|reason| format!(" [{reason}]")).unwrap_or_default()
            };
            for key in &array.keys {
                let _ = writeln!(text, "{}{}", key.escape_debug(), reason(key));
            }
            let more = array.count.saturating_sub(array.keys.len() as u64);
            if more > 0 {
                let _ = writeln!(text, "and {more} more of /{}", array.path.escape_debug());
            }
        }
        text
    }

    /// Logs the metrics (SIGUSR1).
    pub fn log_metrics(&self) {
        for line in self.metrics_text().lines().filter(|line| !line.starts_with('#')) {
            log::info!("{line}");
        }
    }
}

/// Returns what the configuration says of the options.
fn options_config(options: &Options) -> Vec<(String, Value)> {
    let members = [
        ("source", json!(options.source)),
        ("overlay", json!(options.overlay.as_ref().map(|path| path.to_string_lossy()))),
        ("mountpoint", json!(options.mountpoint.to_string_lossy())),
        ("writable", json!(options.writable)),
        ("create", json!(options.create)),
        ("delete", json!(options.delete)),
        ("scratch-limit", json!(options.scratch_limit_bytes)),
        ("mkdir", json!(options.make_mountpoint)),
        ("uid", json!(options.ownership.uid)),
        ("gid", json!(options.ownership.gid)),
        ("umask", json!(options.ownership.umask.map(|bits| format!("{bits:03o}")))),
        ("dirty-limit", json!(options.dirty_limit_bytes)),
        ("truncate", json!(if options.truncate_zeroes { "zero" } else { "keep" })),
        ("chmod", json!(if options.ignores_chmod { "ignore" } else { "refuse" })),
        ("allow-other", json!(options.allow_other.word())),
        ("cache-size", json!(options.cache_limit_bytes)),
        ("threads", json!(options.threads)),
        ("session-threads", json!(session_threads())),
        ("prefetch", json!(options.prefetch)),
        ("byte-order", json!(if options.layout.byte_order == ByteOrder::Big { "big" } else { "little" })),
        ("order", json!(if options.layout.order == Order::F { "F" } else { "C" })),
        ("revalidate", json!(options.revalidate_seconds)),
        ("formats", json!(options.formats.iter().map(|format| format.name).collect::<Vec<_>>())),
        ("keep", json!(options.kept_bytes.word())),
        ("direct-io", json!(options.direct_io)),
        ("allow-references", json!(options.allowed_references)),
        ("remote", json!(options.remote.as_ref().map(remote_config))),
        ("log-file", json!(options.log_file.as_ref().map(|path| path.to_string_lossy()))),
        ("access-log", json!(options.access_log.as_ref().map(|path| path.to_string_lossy()))),
        ("stats-group", json!(options.stats_group)),
        ("request-deadline", json!(options.request_deadline.as_secs_f64())),
        ("stop-deadline", json!(options.stop_deadline.as_secs_f64())),
    ];
    members.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;
    use crate::mount::fs::FileSystem;
    use crate::store::MemoryStore;

    /// Returns every name in a text that begins like a metric.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("zarrfs_")).collect()
    }

    #[test]
    fn the_dashboard_and_the_documentation_name_existing_metrics() {
        let fs = FileSystem::new(Arc::new(Options::new("s", "/mnt")), Arc::new(MemoryStore::new()));
        let text = fs.internal_files().metrics_text();
        let mut metrics = names(&text);
        let traffic = traffic_metrics(Traffic::default());
        metrics.extend(traffic.iter().map(|metric| metric.name));
        for name in crate::mount::fs::virtual_files::members::names() {
            metrics.insert(name);
        }
        let disk_cache = disk_cache_metrics(DiskCacheCounts::default());
        metrics.extend(disk_cache.iter().map(|metric| metric.name));
        let dashboard = include_str!("../../../../docs/grafana.json");
        let shown: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(shown["panels"].as_array().unwrap().len() >= 10);
        let missing: Vec<_> = names(dashboard).difference(&metrics).copied().collect();
        assert!(missing.is_empty(), "docs/grafana.json names {missing:?}");
        let alerts = include_str!("../../../../packaging/monitoring/alerts.yml");
        let missing: Vec<_> = names(alerts).difference(&metrics).copied().collect();
        assert!(missing.is_empty(), "packaging/monitoring/alerts.yml names {missing:?}");
        assert!(names(alerts).len() >= 6, "{alerts}");
        // The page leaves out the parts of histograms.
        let whole: BTreeSet<&str> = metrics
            .into_iter()
            .filter(|name| !["_bucket", "_sum", "_count"].iter().any(|part| name.ends_with(part)))
            .collect();
        assert_eq!(names(include_str!("../../../../docs/monitoring.md")), whole, "docs/monitoring.md");
    }
}
