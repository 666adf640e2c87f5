//! The place of a new node: its name, and the group that it is in.
//!
//! Spec: v3 core "Node names". Uses `store`, `metadata`, `node.rs` and `tree.rs`.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::hierarchy::lineage::parent;
use crate::hierarchy::node::NAME_MAX_BYTES;
use crate::hierarchy::{DOCUMENT_NAMES, Node, Tree};
use crate::metadata::{ZarrFormat, read_only_n5};
use crate::store::{Info, SET_GROUP, Store, Writer, is_temporary_name};

/// Returns the writing half of a store.
pub(super) fn writer(store: &dyn Store) -> Result<&dyn Writer> {
    let read_only = || {
        let sentence = "folders, S3, Google Cloud Storage and Azure Blob Storage can be written, and every store with --overlay";
        Error::ReadOnly(format!("{} is not writable: {sentence}", store.describe()))
    };
    store.writer().ok_or_else(read_only)
}

/// A path in a group at which there is no node.
#[derive(Clone, Debug)]
pub struct Place {
    /// The path.
    pub path: String,
    /// The format of the group; `None` if it has no document.
    pub parent_format: Option<ZarrFormat>,
    /// The info that new documents get their owner and mode from.
    pub like: Info,
}

/// Fails if the node at a path, or the nearest group with a document above it, is of N5.
pub(super) fn refuse_n5(store: &Arc<dyn Store>, path: &str) -> Result<()> {
    let tree = Tree::for_one_look(store.clone());
    let mut place = Some(path);
    while let Some(at) = place {
        let format = match tree.node(at)? {
            Some(Node::Array { metadata, .. }) => Some(metadata.zarr_format),
            Some(Node::Group { metadata, .. }) => metadata.zarr_format,
            Some(Node::Broken { .. }) => return Ok(()),
            None => None,
        };
        if format == Some(ZarrFormat::N5) {
            return Err(read_only_n5(path));
        }
        place = if format.is_none() { parent(at) } else { None };
    }
    Ok(())
}

/// Returns the names in a path that a user wrote. A `/` before or after the path is ignored.
pub fn names(path: &str) -> Vec<&str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() { Vec::new() } else { path.split('/').collect() }
}

/// Fails if a node of this format cannot have this name.
pub fn check_name(name: &str, zarr_format: ZarrFormat) -> Result<()> {
    let is_dots = name.bytes().all(|byte| byte == b'.');
    let reason = match name {
        "" => "it is empty",
        _ if is_dots => "it has dots only",
        _ if name.contains('\0') => "it has a NUL",
        _ if name.len() > NAME_MAX_BYTES => "it has more than 255 bytes",
        _ if DOCUMENT_NAMES.contains(&name) => "documents have it",
        _ if is_temporary_name(name) => "unfinished files of this program have such names",
        _ if name.starts_with("__") && zarr_format == ZarrFormat::V3 => "Zarr v3 reserves names with '__'",
        _ => return Ok(()),
    };
    Err(Error::Usage(format!("no node can be named '{}': {reason}", name.escape_debug())))
}

impl Place {
    /// Removes the permissions for group and others that are in a command's umask. The owner of a node can always read and write it.
    #[must_use]
    pub fn under_umask(self, umask: u32) -> Self {
        let like = self.like.with_mode(|posix| posix.mode & !(umask & 0o077));
        Place { like, ..self }
    }

    /// Returns the place of a new store in the folder that `store` is. There may be an empty folder.
    pub fn new_store(store: &Arc<dyn Store>, name: &str) -> Result<Place> {
        check_name(name, ZarrFormat::V2)?;
        Ok(Place { path: name.to_owned(), parent_format: None, like: like_of(store, "", None)? })
    }

    /// Finds the place of a new node. Fails if its parent is not a group, or if there is a node.
    pub fn find(store: &Arc<dyn Store>, path: &str) -> Result<Place> {
        let tree = Tree::new(store.clone());
        let shown = store.describe();
        let Some(group) = parent(path) else {
            return match tree.node("")? {
                Some(Node::Group { metadata, .. }) if metadata.zarr_format.is_none() => {
                    let like = like_of(store, "", None)?;
                    Ok(Place { path: String::new(), parent_format: None, like })
                }
                _ => Err(exists("", &shown)),
            };
        };
        let parent_format = match tree.node(group)? {
            Some(Node::Group { metadata, .. }) => metadata.zarr_format,
            Some(Node::Broken { error, .. }) => return Err(error),
            Some(Node::Array { .. }) => {
                let group = if group.is_empty() { "the root" } else { group };
                return Err(Error::Usage(format!("'{group}' is an array: nothing can be below it")));
            }
            None => {
                let sentence = format!("no group '{group}' in {shown}: '--parents' makes it");
                return Err(Error::Usage(sentence));
            }
        };
        if tree.node(path)?.is_some() {
            return Err(exists(path, &shown));
        }
        if parent_format == Some(ZarrFormat::N5) {
            return Err(read_only_n5(path));
        }
        if parent_format.is_none() {
            refuse_n5(store, group)?;
        }
        Ok(Place { path: path.to_owned(), parent_format, like: like_of(store, group, parent_format)? })
    }
}

fn exists(path: &str, store: &str) -> Error {
    let path = if path.is_empty() { "/" } else { path };
    Error::Usage(format!("'{path}' exists in {store}: nothing is replaced"))
}

/// Returns the error of a put or rename, which says so if another node has taken the name meanwhile.
pub(super) fn taken(error: Error, path: &str) -> Error {
    match error {
        Error::Changed { .. } => {
            let path = if path.is_empty() { "/" } else { path };
            Error::Usage(format!("'{path}' exists: nothing is replaced"))
        }
        other => other,
    }
}

/// Returns the info of a group's document, or else of its folder. New documents get their owner and mode from it.
fn like_of(store: &Arc<dyn Store>, group: &str, zarr_format: Option<ZarrFormat>) -> Result<Info> {
    let name = if zarr_format == Some(ZarrFormat::V2) { ".zgroup" } else { "zarr.json" };
    let document = store.head_object(&crate::store::join(group, name))?;
    if let Some(document) = document.filter(|document| document.posix.is_none()) {
        return Ok(document);
    }
    let folder = store.head(group)?;
    let like = document.or(folder.map(|info| info.with_mode(|posix| posix.mode & 0o666)));
    let mut like = like.unwrap_or(Info {
        size_bytes: 0,
        modified: None,
        version: crate::store::ObjectVersion::numbered(0),
        posix: None,
    });
    if let (Some(like), Some(folder)) = (&mut like.posix, folder.and_then(|folder| folder.posix))
        && folder.mode & SET_GROUP != 0
    {
        (like.gid, like.mode) = (folder.gid, like.mode | SET_GROUP);
    }
    Ok(like)
}
