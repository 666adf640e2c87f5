//! The names of slices: `__views__/slice/PATH[INDEX]`, and the same below the folder of each format.
//!
//! This file uses `formats::slices` to read an index. Names are resolved when they are looked up, and never listed. An index with
//! names may need the coordinates in the store, and the kernel looks the same name up many times, so the result is kept for a
//! moment.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::formats::detached::data_names;
use crate::formats::slices::{self, Refusal};
use crate::formats::views::FLAT;
use crate::formats::{CompanionPlace, Format, JSON, Role, in_folder_of};
use crate::hierarchy::slices::Slice;
use crate::hierarchy::{Node, View};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::node_cache::NodeCache;
use crate::mount::fs::virtual_files::subjects::{Freshness, Subjects};

/// The longest file name on Linux. The kernel looks up longer ones in FUSE.
const MAX_NAME_BYTES: usize = 255;
/// How many names are kept.
const MAX_RECENT: usize = 256;

/// A file that a name may stand for.
pub struct SliceFile {
    /// Its format.
    pub format: &'static Format,
    /// Its place.
    pub place: CompanionPlace,
    /// The name of the node with the index.
    pub name: String,
}

/// A slice with a name.
pub struct NamedSlice {
    /// The path of the node.
    pub path: String,
    /// The slice.
    pub view: View,
}

/// The slices of a mount, by name.
pub struct SliceNames {
    nodes: Arc<NodeCache>,
    subjects: Arc<Subjects>,
    /// The name of the root's file, if the root is an array.
    root_name: Arc<str>,
    recent: Mutex<HashMap<(String, String), RecentSlice>>,
}

/// What an index of a node resolved to.
struct RecentSlice {
    node: Weak<Node>,
    read_at: Instant,
    slice: Arc<Slice>,
}

impl SliceNames {
    /// Creates the names of the slices of these nodes.
    pub fn new(nodes: Arc<NodeCache>, subjects: Arc<Subjects>, root_name: Arc<str>) -> Self {
        SliceNames { nodes, subjects, root_name, recent: Mutex::default() }
    }

    /// Returns the slice that a name in a group's folder stands for, such as `temperature[0:10]`.
    pub fn find(&self, group: &str, name: &str, blocking: Blocking) -> FsResult<Option<NamedSlice>> {
        let is_name =
            |(name, index): &(&str, &str)| !name.is_empty() && name.len() + index.len() + 2 <= MAX_NAME_BYTES;
        let Some((node_name, index)) = slices::split(name).filter(is_name) else {
            return Ok(None);
        };
        let path = match self.nodes.path_in(group, node_name, &self.root_name, blocking)? {
            Some(path) => path,
            None if group.is_empty() && *node_name == *self.root_name => String::new(),
            None => return Ok(None),
        };
        let cached = self.nodes.get(&path, blocking)?;
        let node = match &cached.node {
            Some(node) => node.clone(),
            // The root group has its files in its own folder, under the name of the store.
            None if group.is_empty() && *node_name == *self.root_name => {
                let Some(root) = self.nodes.get("", blocking)?.node.clone() else { return Ok(None) };
                return Ok(self.slice("", &root, index, blocking)?.map(|slice| named("", slice)));
            }
            None => return Ok(None),
        };
        Ok(self.slice(&path, &node, index, blocking)?.map(|slice| named(&path, slice)))
    }

    fn slice(
        &self,
        path: &str,
        node: &Arc<Node>,
        index: &str,
        blocking: Blocking,
    ) -> FsResult<Option<Arc<Slice>>> {
        if matches!(**node, Node::Broken { .. }) {
            return Ok(None);
        }
        let has_names = slices::has_names(index);
        let key = (path.to_owned(), index.to_owned());
        if has_names && let Some(known) = self.recent.lock().get(&key) {
            let is_of_node = std::ptr::eq(known.node.as_ptr(), Arc::as_ptr(node));
            if is_of_node && known.read_at.elapsed() < self.nodes.revalidate(path) {
                return Ok(Some(known.slice.clone()));
            }
        }
        if has_names && blocking == Blocking::No {
            return Err(Failure::WouldBlock);
        }
        let subject = self.subjects.for_node(path, CompanionPlace::FormatFolder, node, Freshness::Now);
        let slice = match slices::resolve(&subject, index) {
            Ok(slice) => Arc::new(slice),
            Err(Refusal::Failed(error)) => return Err(error.into()),
            Err(Refusal::Syntax(sentence) | Refusal::Outside(sentence)) => {
                log::debug!("/{path}[{index}]: {sentence}");
                return Ok(None);
            }
        };
        if has_names {
            let recent =
                RecentSlice { node: Arc::downgrade(node), read_at: Instant::now(), slice: slice.clone() };
            let mut kept = self.recent.lock();
            if kept.len() >= MAX_RECENT {
                kept.clear();
            }
            kept.insert(key, recent);
        }
        Ok(Some(slice))
    }
}

fn named(path: &str, slice: Arc<Slice>) -> NamedSlice {
    NamedSlice { path: path.to_owned(), view: View::Slice(slice) }
}

/// Returns the files that a name in a folder of slices may stand for. A format of detached headers has the data file next to each header.
pub fn files(format: &'static Format, name: &str) -> Vec<SliceFile> {
    let file = |format: &'static Format, place: CompanionPlace, name: &str| SliceFile {
        format,
        place,
        name: name.to_owned(),
    };
    if format == FLAT {
        let place = CompanionPlace::NextToNode;
        let sidecar = name.strip_suffix(JSON.suffix).map(|name| file(JSON, place, name));
        return [file(FLAT, place, name)].into_iter().chain(sidecar).collect();
    }
    let mut files = Vec::new();
    for format in in_folder_of(format) {
        let Some(stem) = name.strip_suffix(format.suffix) else { continue };
        let escaped = (format.role == Role::Detached).then(|| data_names::array_name(stem)).flatten();
        let names = escaped.as_deref().into_iter().chain([stem]);
        files.extend(names.map(|name| file(format, CompanionPlace::FormatFolder, name)));
    }
    if format.role == Role::Detached {
        let names = data_names::array_name(name);
        files.extend(names.map(|name| file(FLAT, CompanionPlace::NextToNode, &name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_by_name() {
        let found = |format: &'static Format, name: &str| {
            let files = files(format, name).into_iter();
            files.map(|file| (file.format.name, file.name)).collect::<Vec<_>>()
        };
        let own = |format: &'static str, name: &str| (format, name.to_owned());
        assert_eq!(found(FLAT, "a[0]"), [own("flat", "a[0]")]);
        assert_eq!(found(FLAT, "a[0].json"), [own("flat", "a[0].json"), own("json", "a[0]")]);
        let Some(nrrd) = crate::formats::find("nrrd") else { unreachable!() };
        assert_eq!(found(nrrd, "a+5B0+5D"), [own("flat", "a[0]")]);
        assert_eq!(found(nrrd, "a+5B0+5D.nhdr")[0], own("nrrd", "a[0]"));
        assert_eq!(found(nrrd, "a[0]"), []);
        let Some(spikeglx) = crate::formats::find("spikeglx") else { unreachable!() };
        assert_eq!(found(spikeglx, "a[0].nidq.meta"), [own("spikeglx-meta", "a[0]")]);
    }
}
