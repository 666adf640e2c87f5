//! Where a new node may be: its name, the group that it is in, and what is there already.
//!
//! Spec: v3 core "Node names". Uses `store`, `metadata` and `tree`.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::hierarchy::lineage::parent;
use crate::hierarchy::{DOCUMENT_NAMES, Node, Tree};
use crate::metadata::ZarrFormat;
use crate::store::{Info, SET_GROUP, Store, Writer, is_temporary_name};

/// The longest name that a filesystem takes, in bytes.
const NAME_MAX_BYTES: usize = 255;

/// The writing half of a store.
pub(super) fn writer(store: &dyn Store) -> Result<&dyn Writer> {
    let read_only = || {
        let sentence = "folders, S3, Google Cloud Storage and Azure Blob Storage can be written, and every store with --overlay";
        Error::ReadOnly(format!("{} is not writable: {sentence}", store.describe()))
    };
    store.writer().ok_or_else(read_only)
}

/// A path without a node, in a group.
#[derive(Clone, Debug)]
pub struct Place {
    /// The path.
    pub path: String,
    /// The version of the group; `None` if it has no document.
    pub parent_format: Option<ZarrFormat>,
    /// New documents get owner and mode from it.
    pub like: Info,
}

/// The names of a path that a user wrote: a `/` before or after it counts nothing.
pub fn names(path: &str) -> Vec<&str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() { Vec::new() } else { path.split('/').collect() }
}

/// Refuses a name that no node of this version may have.
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
    /// As a command makes a node there: without the permissions for group and others that the caller's umask takes away. A node's
    /// owner can always read and write it.
    #[must_use]
    pub fn under_umask(self, umask: u32) -> Self {
        let like = self.like.with_mode(|posix| posix.mode & !(umask & 0o077));
        Place { like, ..self }
    }

    /// A path for a new node. Its parent must be a group, and nothing may be there.
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
        Ok(Place { path: path.to_owned(), parent_format, like: like_of(store, group, parent_format)? })
    }
}

fn exists(path: &str, store: &str) -> Error {
    let path = if path.is_empty() { "/" } else { path };
    Error::Usage(format!("'{path}' exists in {store}: nothing is replaced"))
}

/// The error where something took the name meanwhile.
pub(super) fn taken(error: Error, path: &str) -> Error {
    match error {
        Error::Changed { .. } => {
            let path = if path.is_empty() { "/" } else { path };
            Error::Usage(format!("'{path}' exists: nothing is replaced"))
        }
        other => other,
    }
}

/// The document of a group, whose owner and mode new documents get; the folder itself where there is none.
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
