//! Extended attributes: the metadata of an array or group, one attribute for each member, for getfattr(1).
//!
//! `user.zarr.shape`, `.dtype`, `.chunks`, `.shards`, `.codecs`, `.fill_value`, `.dimension_names`, `.zarr_format` and `.attributes`
//! are JSON, except for the data type, which is a bare name. `user.zarrfs.error` is the reason for which the last edit of a sidecar
//! was refused, a scratch file is not a node, or an array cannot be served. Attributes that do not apply, or are longer than the
//! kernel accepts, are absent.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::formats::json::{chunk_and_shard_shape, fill_value};
use crate::hierarchy::Node;
use crate::metadata::{ArrayMetadata, ZarrFormat};
use crate::mount::fs::entity::EntityKind;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Inode;
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;

/// The longest value that Linux accepts, in bytes.
const MAX_VALUE_BYTES: usize = 64 << 10;
const NAMESPACE: &str = "user.";
const ERROR: &str = "user.zarrfs.error";

/// Extended attributes: names and values.
type XattrValues = Vec<(&'static str, String)>;

/// The extended attributes of the files of a mount.
pub struct ExtendedAttributes {
    nodes: Arc<NodeCache>,
    names: Arc<NameTable>,
    drafts: Arc<Drafts>,
}

impl ExtendedAttributes {
    /// Creates the extended attributes of these nodes, scratch files and sidecars.
    pub fn new(nodes: Arc<NodeCache>, names: Arc<NameTable>, drafts: Arc<Drafts>) -> Self {
        ExtendedAttributes { nodes, names, drafts }
    }

    /// Returns the value of an extended attribute. Only the namespace `user.` exists; the kernel asks for others when a file is
    /// written.
    pub fn value(&self, inode: &Inode, name: &str, blocking: Blocking) -> FsResult<Vec<u8>> {
        if !name.starts_with(NAMESPACE) {
            return Err(Failure::Errno(libc::EOPNOTSUPP));
        }
        let found = self.all(inode, blocking)?.into_iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.into_bytes()).ok_or(Failure::Errno(libc::ENODATA))
    }

    /// Returns the names of all extended attributes, each terminated by NUL.
    pub fn names(&self, inode: &Inode, blocking: Blocking) -> FsResult<Vec<u8>> {
        let values = self.all(inode, blocking)?;
        Ok(values.iter().flat_map(|(name, _)| name.bytes().chain([0])).collect())
    }

    fn all(&self, inode: &Inode, blocking: Blocking) -> FsResult<XattrValues> {
        let entity = &inode.entity;
        let error = |reason: Option<String>| reason.map(|reason| (ERROR, reason)).into_iter().collect();
        let mut values: XattrValues = match entity.kind {
            EntityKind::Array | EntityKind::Group => {
                match self.nodes.get(&entity.path, blocking)?.node.as_deref() {
                    Some(Node::Array { metadata, .. }) if entity.kind == EntityKind::Array => {
                        array_values(metadata)
                    }
                    Some(Node::Broken { error, .. }) if entity.kind == EntityKind::Array => {
                        vec![(ERROR, error.to_string())]
                    }
                    Some(Node::Group { metadata, .. }) => {
                        node_values(metadata.zarr_format, &metadata.attributes)
                    }
                    _ => Vec::new(),
                }
            }
            EntityKind::Scratch(number) => error(self.names.problem(number)),
            _ if entity.is_sidecar() => error(self.drafts.error(&entity.path)),
            _ => Vec::new(),
        };
        values.retain(|(_, value)| value.len() <= MAX_VALUE_BYTES);
        Ok(values)
    }
}

fn node_values(zarr_format: Option<ZarrFormat>, attributes: &Map<String, Value>) -> XattrValues {
    let Some(format) = zarr_format else { return Vec::new() };
    let attributes = json!(attributes).to_string();
    let number = format.number().map(|number| ("user.zarr.zarr_format", number.to_string()));
    number.into_iter().chain([("user.zarr.attributes", attributes)]).collect()
}

fn array_values(metadata: &ArrayMetadata) -> XattrValues {
    let (chunks, shards) = chunk_and_shard_shape(metadata);
    let spec = |codec: &crate::metadata::CodecSpec| json!({"name": codec.name, "configuration": codec.configuration});
    let codecs = match metadata.document.get("codecs") {
        Some(stored) if metadata.zarr_format == ZarrFormat::V3 => stored.clone(),
        _ => metadata.codecs.iter().map(spec).collect(),
    };
    let mut values = vec![
        ("user.zarr.shape", json!(metadata.shape)),
        ("user.zarr.chunks", chunks),
        ("user.zarr.shards", shards),
        ("user.zarr.codecs", codecs),
        ("user.zarr.fill_value", fill_value(metadata)),
        ("user.zarr.dimension_names", json!(metadata.dimension_names)),
    ];
    // An undefined fill value (v2) is shown as null; other nulls are absent.
    values.retain(|(name, value)| !value.is_null() || *name == "user.zarr.fill_value");
    let mut values: XattrValues = values.into_iter().map(|(name, value)| (name, value.to_string())).collect();
    values.push(("user.zarr.dtype", metadata.data_type.name().into_owned()));
    values.extend(node_values(Some(metadata.zarr_format), &metadata.attributes));
    values
}
