//! The sidecar of a node: its content and its attributes.
//!
//! Uses `sidecar.rs` for the document, and the array itself to say how it is served.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::array::Array;
use crate::error::Error;
use crate::formats::{self, Subject};
use crate::hierarchy::Node;
use crate::metadata::ArrayMetadata;
use crate::mount::fs::error::{Failure, FsResult};
use crate::mount::fs::node_cache::{CachedNode, GeneratedFile};
use crate::mount::fs::permissions::intersect_documents;
use crate::mount::fs::virtual_files::Context;
use crate::mount::fs::virtual_files::sidecar::{self, Availability, SidecarLocation};
use crate::mount::fs::{JSON, parent};
use crate::store::{Info, join};

/// The attributes of a node's sidecar.
pub(in crate::mount::fs) fn attributes(
    ctx: &Context<'_>,
    path: &str,
    cached: &CachedNode,
    is_mirrored: bool,
) -> FsResult<GeneratedFile> {
    let size_bytes = text(ctx, path, cached, is_mirrored)?.len() as u64;
    Ok(GeneratedFile { info: info(ctx, path, cached)?, size_bytes })
}

pub(super) fn text(
    ctx: &Context<'_>,
    path: &str,
    cached: &CachedNode,
    is_mirrored: bool,
) -> FsResult<String> {
    Ok(sidecar::text(&members(ctx, path, cached, is_mirrored)?))
}

/// The sidecar of a node.
pub(super) fn members(
    ctx: &Context<'_>,
    path: &str,
    cached: &CachedNode,
    is_mirrored: bool,
) -> FsResult<Map<String, Value>> {
    Ok(match &cached.node {
        Some(Node::Group { metadata, .. }) => {
            sidecar::describe_group(path, &ctx.nodes.store().describe(), metadata)
        }
        Some(node) => array_sidecar(ctx, path, node, is_mirrored),
        None => return Err(Failure::Errno(libc::ENOENT)),
    })
}

fn array_sidecar(ctx: &Context<'_>, path: &str, node: &Node, is_mirrored: bool) -> Map<String, Value> {
    let name = if path.is_empty() { ctx.root_name } else { path.rsplit('/').next().unwrap_or(path) };
    let data_file = if is_mirrored { data_file_from_mirror(path, name) } else { name.to_owned() };
    let place = SidecarLocation { path, name, data_file: &data_file };
    match node {
        Node::Array { metadata, .. } => {
            let array = array_to_describe(ctx, path, metadata);
            let text = formats::text_form(metadata);
            let text_path = text.map(|format| format.file(if path.is_empty() { name } else { path }));
            // If the text form cannot be made either, its reason is the more useful one.
            let open_array = |path: &str| ctx.shared_array(path).map_err(|failure| failure.into_error(path));
            let (store, open_array) = (ctx.nodes.store(), &open_array);
            let subject = Subject { engine: ctx.engine, store, path, metadata, open_array };
            let text_error = text.and_then(|format| (format.open)(&subject).err());
            let availability = match (&array, &text_error) {
                (Ok(array), _) => Availability::Readable { slab_bytes: array.slab_bytes() },
                (Err(_), Some(error)) => Availability::Unreadable { error, text_form: None },
                (Err(error), None) => Availability::Unreadable { error, text_form: text_path.as_deref() },
            };
            sidecar::describe(place, metadata, ctx.options.layout, availability)
        }
        Node::Broken { error, size_bytes, document, .. } => {
            sidecar::describe_broken(place, *size_bytes, document.as_ref(), error)
        }
        Node::Group { .. } => Map::new(),
    }
}

/// The array that handles read, or one built for the sidecar only.
fn array_to_describe(
    ctx: &Context<'_>,
    path: &str,
    metadata: &Arc<ArrayMetadata>,
) -> Result<Arc<Array>, Error> {
    match ctx.arrays.current(path) {
        Some(open) if Arc::ptr_eq(&open.metadata, metadata) => open.array.clone(),
        _ => ctx.arrays.build(path, metadata, &Arc::default()),
    }
}

/// The relative path from `__formats__/json/GROUP/` to the array's own file.
fn data_file_from_mirror(path: &str, name: &str) -> String {
    let group = parent(path);
    let depth = group.split('/').filter(|segment| !segment.is_empty()).count();
    let up = "../".repeat(depth + ["__formats__", JSON].len());
    format!("{up}{}", join(group, name))
}

/// Owner, mode and time of a sidecar, from its documents. In v2 the attributes have a document of their
/// own, and the sidecar shows both.
fn info(ctx: &Context<'_>, path: &str, cached: &CachedNode) -> FsResult<Info> {
    let store = ctx.nodes.store();
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
    let of_attributes = match (store.head(&attributes), &cached.node) {
        // The sidecar says why the node cannot be read, and shows no attributes of it.
        (Err(_), Some(Node::Broken { .. })) => None,
        (of_attributes, _) => of_attributes?,
    };
    Ok(of_attributes.map_or(info, |of_attributes| intersect_documents(&info, &of_attributes)))
}
