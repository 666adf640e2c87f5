//! The folders of views: `__views__/VIEW/…`, and the same below the folder of each format.
//!
//! This file uses `formats::views` for names. `companions.rs` has the files in these folders: a view's own file has the format
//! [`FLAT`]. A folder of planes makes its names one by one, because an axis may have any number of planes.

use std::sync::Arc;

use crate::formats::views::{self, FLAT, VIEWS, plane_index, plane_name};
use crate::formats::{CompanionPlace, Format, JSON, Role, in_folder_of};
use crate::hierarchy::{Node, OpenArrays, View};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, FsResult};
use crate::mount::fs::node_cache::{CachedNode, NodeCache};
use crate::mount::fs::open_file::FolderEntry;

/// Returns the folder of views, if the folder of a format has one with this name. [`FLAT`] stands for the root.
pub fn folder_in(format: &'static Format, group: &str, name: &str) -> Option<Entity> {
    let has_views = format.role != Role::Text && format.check.is_none();
    let is_folder = group.is_empty() && name == VIEWS && has_views;
    is_folder.then(|| Entity::new(EntityKind::Views(format), ""))
}

/// Returns the folder of the view with this name.
pub fn child_of_views(format: &'static Format, name: &str) -> Option<Entity> {
    views::find(name).map(|view| Entity::with_view(EntityKind::FormatFolder(format), view, ""))
}

/// Returns the folders of views that are listed.
pub fn names_of_views(format: &'static Format) -> Vec<(String, Entity)> {
    let folder = |view| Entity::with_view(EntityKind::FormatFolder(format), view, "");
    views::listed().map(|view| (views::folder(&view).into_owned(), folder(view))).collect()
}

/// The folders of planes of a mount.
pub struct PlaneFolders {
    nodes: Arc<NodeCache>,
    arrays: Arc<OpenArrays>,
    /// The name of the root's file, if the root is an array.
    root_name: Arc<str>,
}

impl PlaneFolders {
    /// Creates the folders of the arrays among these nodes.
    pub fn new(nodes: Arc<NodeCache>, arrays: Arc<OpenArrays>, root_name: Arc<str>) -> Self {
        PlaneFolders { nodes, arrays, root_name }
    }

    /// Returns the folder of the planes of an array; `None` if the node has no planes, or the format cannot express them.
    pub fn folder_for_array(
        &self,
        format: &'static Format,
        axis: u8,
        path: &str,
        cached: &CachedNode,
    ) -> Option<Entity> {
        let node = cached.node.as_ref()?;
        let planes = View::Planes(axis);
        planes.node(node)?;
        let first = View::Plane { axis, index: 0 };
        let layout = first.layout(self.arrays.layout());
        let is_expressed = format == FLAT
            || self.arrays.shown(Some(&first), node).is_some_and(|plane| (format.expresses)(&plane, layout));
        is_expressed.then(|| Entity::with_view(EntityKind::PlanesFolder(format), planes, path))
    }

    /// Returns what a name in a group's folder of planes stands for.
    pub fn child_of_group(
        &self,
        format: &'static Format,
        axis: u8,
        group: &str,
        name: &str,
        blocking: Blocking,
    ) -> FsResult<Option<Entity>> {
        let Some(path) = self.nodes.path_in(group, name, &self.root_name, blocking)? else { return Ok(None) };
        let cached = self.nodes.get(&path, blocking)?;
        Ok(match cached.node.as_deref() {
            Some(Node::Group { .. }) => {
                Some(Entity::with_view(EntityKind::FormatFolder(format), View::Planes(axis), path))
            }
            _ => self.folder_for_array(format, axis, &path, &cached),
        })
    }

    /// Returns the entries of a group's folder of planes: a folder for each array and each group.
    pub fn names_of_group(
        &self,
        format: &'static Format,
        axis: u8,
        group: &str,
    ) -> FsResult<Vec<(String, Entity)>> {
        let mut names: Vec<String> = self.nodes.members(group)?.into_iter().map(|child| child.name).collect();
        if self.nodes.is_root_array(group, Blocking::Yes)? {
            names.push(self.root_name.to_string());
        }
        let mut entries = Vec::new();
        for name in names {
            let entity = self.child_of_group(format, axis, group, &name, Blocking::Yes)?;
            entries.extend(entity.map(|entity| (name, entity)));
        }
        Ok(entries)
    }
}

/// The planes of an array in one format.
pub struct PlaneNames {
    format: &'static Format,
    axis: u8,
    /// The path of the array.
    path: Arc<str>,
    /// The number of planes.
    length: u64,
}

impl PlaneNames {
    /// Returns the planes in a folder, if it is a folder of planes.
    pub fn in_folder(nodes: &NodeCache, folder: &Entity, blocking: Blocking) -> FsResult<Option<Self>> {
        let (EntityKind::PlanesFolder(format), Some(&View::Planes(axis))) =
            (folder.kind, folder.view.as_ref())
        else {
            return Ok(None);
        };
        let cached = nodes.get(&folder.path, blocking)?;
        let Some(Node::Array { metadata, .. }) = cached.node.as_deref() else { return Ok(None) };
        let length = metadata.shape.get(usize::from(axis)).copied();
        Ok(length.map(|length| PlaneNames { format, axis, path: folder.path.clone(), length }))
    }

    fn file(&self, format: &'static Format, place: CompanionPlace, index: u64) -> Entity {
        let plane = View::Plane { axis: self.axis, index };
        Entity::with_view(EntityKind::Companion(format, place), plane, self.path.clone())
    }

    /// Returns the formats of each plane's files. A format of detached headers has the data file next to each header.
    fn files(&self) -> impl Iterator<Item = (&'static Format, CompanionPlace)> + use<> {
        let own = (self.format == FLAT || self.format.role == Role::Detached)
            .then_some((FLAT, CompanionPlace::NextToNode));
        // Other formats in the folder may have files of groups only.
        let in_folder =
            in_folder_of(self.format).filter(|format| *format != FLAT && !format.holds.is_empty());
        own.into_iter().chain(in_folder.map(|format| (format, CompanionPlace::FormatFolder)))
    }

    /// Returns the file with this name. Each plane has a sidecar, which is not listed.
    pub fn find(&self, name: &str) -> Option<Entity> {
        let sidecar = (self.format == FLAT).then_some((JSON, CompanionPlace::NextToNode));
        self.files().chain(sidecar).find_map(|(format, place)| {
            let index = plane_index(name.strip_suffix(format.suffix)?, self.length)?;
            Some(self.file(format, place, index))
        })
    }

    /// Returns the entry with this number among the listed ones.
    pub fn entry(&self, number: u64) -> Option<FolderEntry> {
        let files_per_plane = self.files().count() as u64;
        let index = number.checked_div(files_per_plane).filter(|&index| index < self.length)?;
        let (format, place) = self.files().nth((number % files_per_plane) as usize)?;
        let name = format!("{}{}", plane_name(index, self.length), format.suffix);
        Some(FolderEntry { name, entity: self.file(format, place, index), inode: UNKNOWN_INODE })
    }
}

/// The inode number in readdir(3) of an entry that gets its inode when it is looked up.
const UNKNOWN_INODE: u64 = 0xffff_ffff;
