//! Owner, mode and time of files that are made from documents.

use super::Subject;
use crate::error::Result;
use crate::hierarchy::Node;
use crate::store::{Info, Posix, Store, join};

/// Returns owner, mode and time of a file that shows a node's documents. In v2 the attributes have a document of their own, and the
/// sidecar shows both.
pub fn documents_info(subject: &Subject<'_>) -> Result<Info> {
    node_documents_info(subject.arrays.store_at(subject.path).as_ref(), subject.path, subject.node)
}

/// As [`documents_info`], of a node in its store.
pub fn node_documents_info(store: &dyn Store, path: &str, node: &Node) -> Result<Info> {
    let mut info = *node.info();
    if store.is_remote() {
        // Documents in a remote store have no owners and modes.
        return Ok(info);
    }
    let document = match node {
        Node::Array { metadata, .. } => &*metadata.document_key,
        Node::Broken { .. } => "",
        Node::Group { metadata, .. } => {
            if metadata.zarr_format.is_some() {
                info = store.head_object(&metadata.document_key)?.unwrap_or(info);
            }
            &*metadata.document_key
        }
    };
    if document.ends_with("zarr.json") {
        return Ok(info);
    }
    let attributes = match document.strip_suffix("meta") {
        Some(folder) if folder.is_empty() || folder.ends_with('/') => join(path, "attrs"),
        _ => join(path, ".zattrs"),
    };
    let of_attributes = match (store.head_object(&attributes), node) {
        // The sidecar says why the node cannot be read, and does not show its attributes.
        (Err(_), Node::Broken { .. }) => None,
        (of_attributes, _) => of_attributes?,
    };
    Ok(of_attributes.map_or(info, |of_attributes| intersect_documents(&info, &of_attributes)))
}

/// Returns owner, mode and time of a file that is made from two documents. It is owned like the first, and no more readable than either.
/// A user who owns only one of them, or is only in the group of one, counts as "others" for the other document.
pub fn intersect_documents(first: &Info, second: &Info) -> Info {
    let common = |first: &Posix, second: &Posix| {
        let others = second.mode & 0o007;
        let of_owner = if first.uid == second.uid { second.mode & 0o700 } else { others << 6 };
        let of_group = if first.gid == second.gid { second.mode & 0o070 } else { others << 3 };
        first.mode & (of_owner | of_group | others)
    };
    let second_posix = second.posix.unwrap_or_else(Posix::default_for_object);
    let modified = first.modified.max(second.modified);
    Info { modified, ..first.with_mode(|first| common(first, &second_posix)) }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::ObjectVersion;

    fn info(gid: u32, mode: u32) -> Info {
        let posix = Some(Posix { uid: 7, gid, mode, file: None });
        let version = ObjectVersion::numbered(0);
        Info { size_bytes: 0, modified: Some(SystemTime::UNIX_EPOCH), version, posix }
    }

    #[test]
    fn a_sidecar_of_two_documents_shows_no_more_than_either() {
        let both = |a: (u32, u32), b: (u32, u32)| {
            intersect_documents(&info(a.0, a.1), &info(b.0, b.1)).posix.map_or(0, |posix| posix.mode & 0o777)
        };
        assert_eq!(both((1, 0o644), (1, 0o600)), 0o600);
        assert_eq!(both((1, 0o644), (1, 0o640)), 0o640);
        assert_eq!(both((1, 0o644), (2, 0o640)), 0o600, "group 1 reads the second as others do");
        assert_eq!(both((1, 0o644), (2, 0o644)), 0o644);
    }
}
