//! The content of generated files: sidecars, metrics, configuration.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::array::{Array, ByteOrder, Order};
use crate::error::Error;
use crate::formats::{self, Subject};
use crate::hierarchy::Node;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::node_cache::{CachedNode, GeneratedFile};
use crate::mount::fs::permissions::intersect_documents;
use crate::mount::fs::virtual_files::sidecar::{self, Availability, SidecarLocation};
use crate::mount::fs::{FileSystem, JSON, parent};
use crate::mount::metrics::Metric;
use crate::store::{Info, join};

impl FileSystem {
    /// The current content of a generated file.
    pub(in crate::mount::fs) fn generate(&self, entity: &Entity) -> FsResult<Vec<u8>> {
        match entity.kind {
            Kind::Stats => Ok(self.metrics_text().into_bytes()),
            Kind::Config => Ok(self.config_text().into_bytes()),
            Kind::Unsaved => Ok(self.unsaved_text().into_bytes()),
            Kind::LastError => Ok(self.failures.text().into_bytes()),
            _ => {
                let cached = self.nodes.current(&entity.path)?;
                let is_mirrored = matches!(entity.kind, Kind::JsonSidecar | Kind::JsonGroupSidecar);
                Ok(self.sidecar_text(&entity.path, &cached, is_mirrored)?.into_bytes())
            }
        }
    }

    /// The attributes of a node's sidecar.
    pub(in crate::mount::fs) fn sidecar_facts(
        &self,
        path: &str,
        cached: &CachedNode,
        is_mirrored: bool,
    ) -> FsResult<GeneratedFile> {
        let size_bytes = self.sidecar_text(path, cached, is_mirrored)?.len() as u64;
        Ok(GeneratedFile { info: self.sidecar_info(path, cached)?, size_bytes })
    }

    /// The metrics as text.
    pub(in crate::mount::fs) fn metrics_text(&self) -> String {
        self.metrics.text(&self.engine_metrics(), &self.inodes.used_arrays())
    }

    fn engine_metrics(&self) -> Vec<Metric> {
        let engine = self.engine.counters();
        let counter = |name, help, value: u64| Metric { name, help, is_gauge: false, value: value as f64 };
        let gauge = |name, help, value: f64| Metric { name, help, is_gauge: true, value };
        let served = self.metrics.read_bytes().max(1) as f64;
        let amplification = engine.decoded_bytes as f64 / served;
        vec![
            counter("zarrfs_cache_hits_total", "Chunks found in the cache.", engine.hits),
            counter("zarrfs_cache_misses_total", "Chunks that were not in the cache.", engine.misses),
            counter("zarrfs_cache_evictions_total", "Chunks dropped to make room.", engine.evictions),
            counter("zarrfs_decoded_chunks_total", "Chunks decoded.", engine.decoded_units),
            counter("zarrfs_decoded_bytes_total", "Bytes of the chunks decoded.", engine.decoded_bytes),
            gauge("zarrfs_decode_amplification", "Bytes decoded for each byte served.", amplification),
            gauge("zarrfs_cache_bytes", "Bytes in the cache.", engine.cached_bytes as f64),
            counter(
                "zarrfs_stored_objects_total",
                "Chunks and shards put or deleted.",
                engine.objects_stored,
            ),
            counter("zarrfs_encoded_chunks_total", "Chunks encoded.", engine.units_encoded),
            counter(
                "zarrfs_read_modify_writes_total",
                "Chunks read because they were written in part.",
                engine.bases_read,
            ),
            gauge("zarrfs_dirty_bytes", "Bytes written and not yet stored.", engine.dirty_bytes as f64),
            gauge(
                "zarrfs_cache_limit_bytes",
                "Limit of the cache in bytes.",
                engine.cache_limit_bytes as f64,
            ),
        ]
    }

    /// The configuration of this mount.
    pub(in crate::mount::fs) fn config_text(&self) -> String {
        let options = &self.options;
        let config = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "process_start_ticks": self.daemon.start_ticks,
            "source": options.source,
            "store": self.nodes.store().describe(),
            "mountpoint": options.mountpoint.to_string_lossy(),
            "writable": options.writable,
            "dirty-limit": options.dirty_limit_bytes,
            "truncate": if options.truncate_zeroes { "zero" } else { "keep" },
            "allow-other": options.allow_other.word(),
            "cache-size": options.cache_limit_bytes,
            "threads": options.threads,
            "prefetch": options.prefetch,
            "byte-order": if options.layout.byte_order == ByteOrder::Big { "big" } else { "little" },
            "order": if options.layout.order == Order::F { "F" } else { "C" },
            "revalidate": options.revalidate_seconds,
            "direct-io": options.direct_io,
            "log-file": options.log_file.as_ref().map(|path| path.to_string_lossy()),
            "outcome": self.daemon.exit_status_path,
            "request-deadline": options.request_deadline.as_secs_f64(),
            "stop-deadline": options.stop_deadline.as_secs_f64(),
        });
        format!("{config:#}\n")
    }

    /// Each object with data that is not stored yet: its key, and in brackets the reason of the last failed
    /// attempt.
    pub fn unsaved_text(&self) -> String {
        let mut text = String::new();
        for array in self.engine.unsaved() {
            let reason = array.last_failure.as_ref().map(|error| format!(" [{error}]")).unwrap_or_default();
            for key in &array.keys {
                let _ = writeln!(text, "{}{reason}", key.escape_debug());
            }
            let more = array.count.saturating_sub(array.keys.len() as u64);
            if more > 0 {
                let _ = writeln!(text, "and {more} more of /{}{reason}", array.path.escape_debug());
            }
        }
        text
    }

    fn sidecar_text(&self, path: &str, cached: &CachedNode, is_mirrored: bool) -> FsResult<String> {
        Ok(sidecar::text(&self.sidecar_members(path, cached, is_mirrored)?))
    }

    /// The sidecar of a node.
    pub(in crate::mount::fs) fn sidecar_members(
        &self,
        path: &str,
        cached: &CachedNode,
        is_mirrored: bool,
    ) -> FsResult<Map<String, Value>> {
        Ok(match &cached.node {
            Some(Node::Group { metadata, .. }) => {
                sidecar::describe_group(path, &self.nodes.store().describe(), metadata)
            }
            Some(node) => self.array_sidecar(path, node, is_mirrored),
            None => return Err(Failure::Errno(libc::ENOENT)),
        })
    }

    fn array_sidecar(&self, path: &str, node: &Node, is_mirrored: bool) -> Map<String, Value> {
        let name = if path.is_empty() { &self.root_name } else { path.rsplit('/').next().unwrap_or(path) };
        let data_file = if is_mirrored { self.data_file_from_mirror(path, name) } else { name.to_owned() };
        let place = SidecarLocation { path, name, data_file: &data_file };
        match node {
            Node::Array { metadata, .. } => {
                let array = self.array_to_describe(path, metadata);
                let text = formats::text_form(metadata);
                let text_path = text.map(|format| format.file(if path.is_empty() { name } else { path }));
                // If the text form cannot be made either, its reason is the more useful one.
                let subject = Subject { engine: &self.engine, store: self.nodes.store(), path, metadata };
                let text_error = text.and_then(|format| (format.open)(&subject).err());
                let availability = match (&array, &text_error) {
                    (Ok(array), _) => Availability::Readable { slab_bytes: array.slab_bytes() },
                    (Err(_), Some(error)) => Availability::Unreadable { error, text_form: None },
                    (Err(error), None) => Availability::Unreadable { error, text_form: text_path.as_deref() },
                };
                sidecar::describe(place, metadata, self.options.layout, availability)
            }
            Node::Broken { error, size_bytes, document, .. } => {
                sidecar::describe_broken(place, *size_bytes, document.as_ref(), error)
            }
            Node::Group { .. } => Map::new(),
        }
    }

    /// The array that handles read, or one built for the sidecar only.
    fn array_to_describe(
        &self,
        path: &str,
        metadata: &Arc<crate::metadata::ArrayMetadata>,
    ) -> Result<Arc<Array>, Error> {
        let open = self.inodes.existing(&Entity::new(Kind::Array, path)).and_then(|inode| inode.open_array());
        match open {
            Some(open) if Arc::ptr_eq(&open.metadata, metadata) => open.array.clone(),
            _ => self.build(path, metadata, &Arc::default()),
        }
    }

    /// The relative path from `__formats__/json/GROUP/` to the array's own file.
    fn data_file_from_mirror(&self, path: &str, name: &str) -> String {
        let group = parent(path);
        let depth = group.split('/').filter(|segment| !segment.is_empty()).count();
        let up = "../".repeat(depth + ["__formats__", JSON].len());
        format!("{up}{}", join(group, name))
    }

    /// Owner, mode and time of a sidecar, from its documents. In v2 the attributes have a document of their
    /// own, and the sidecar shows both.
    fn sidecar_info(&self, path: &str, cached: &CachedNode) -> FsResult<Info> {
        let store = self.nodes.store();
        let (document, info) = match &cached.node {
            Some(Node::Array { metadata, info }) => (metadata.document_key.clone(), *info),
            Some(Node::Broken { info, .. }) => (String::new(), *info),
            Some(Node::Group { metadata, info }) => {
                let of_document = match metadata.zarr_format {
                    Some(_) => store.head(&metadata.document_key)?,
                    None => None,
                };
                (metadata.document_key.clone(), of_document.unwrap_or(*info))
            }
            None => return Err(Failure::Errno(libc::ENOENT)),
        };
        if document.ends_with("zarr.json") {
            return Ok(info);
        }
        let attributes = match document.strip_suffix("meta") {
            Some(folder) if folder.is_empty() || folder.ends_with('/') => join(path, "attrs"),
            _ => join(path, ".zattrs"),
        };
        Ok(match store.head(&attributes)? {
            Some(of_attributes) => intersect_documents(&info, &of_attributes),
            None => info,
        })
    }
}

impl FileSystem {
    /// Logs the metrics (SIGUSR1).
    pub fn log_metrics(&self) {
        for line in self.metrics_text().lines().filter(|line| !line.starts_with('#')) {
            log::info!("{line}");
        }
    }

    /// Checks that the root can be read; called once before the mount is reported ready.
    pub fn check_root(&self) -> FsResult<()> {
        self.attributes(crate::mount::fs::inode::ROOT, Blocking::Yes).map(drop)
    }
}
