//! Companion files: nodes in formats that some programs read better than flat bytes.
//!
//! Uses every layer below, and nothing of mounts. A format is one file (or folder) with a [`Format`] and one line in
//! `registry.rs`. Its content is a [`VirtualFile`]: bytes that the format makes, and ranges of arrays that are read as their
//! own files are (`virtual_file.rs`).
//! It is served as `__formats__/NAME/PATH.SUFFIX` for the nodes that the format can express. Other nodes have no file, because an
//! approximation would be wrong. The folder of a format with detached headers shows the arrays' own files too (`detached/`).
//!
//! The files of a view ([`View`]) are made like those of an array (`views.rs`). `slices/` reads the index of a slice.
//!
//! `flat_array.rs` describes the bytes of an array for formats of grids and images, `numbers.rs` reads elements as numbers, and `geometry/`
//! finds their positions in space and time. `sources/` reads files of other formats, for `zarrfs import`.

mod csv;
pub mod detached;
mod documents;
mod flat_array;
mod geometry;
mod hdf5;
pub mod json;
mod jsonl;
mod mask;
mod mrc;
mod nc;
mod nifti;
pub mod npy;
pub mod numbers;
mod ome_tiff;
mod registry;
mod safetensors;
pub mod slices;
pub mod sources;
mod spikeglx;
#[cfg(test)]
mod tagged;
mod tiff;
pub mod views;
pub mod virtual_file;

use std::any::Any;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use crate::array::{AxisSelection, Layout};
use crate::error::{Error, Result};
use crate::hierarchy::{Child, Node, OpenArray, OpenArrays, SharedArray, View};
use crate::metadata::ArrayMetadata;
use crate::store::{Audience, Info, join};
use virtual_file::{Segment, VirtualFile};

pub use documents::{documents_info, node_documents_info};
pub use geometry::positions::{self, Positions};
pub use registry::{FORMATS, JSON, find, find_by_any_name, in_folder_of, text_file};

/// The folder of all companion files, below the root of the mount.
pub const FOLDER: &str = "__formats__";

/// A slice that is one range of its array's file is read as that range if it has this many bytes. Then it gets read-ahead, which reads some chunks past its
/// end.
const MIN_RANGE_BYTES: u64 = 16 << 20;

/// The longest list of names that a file leaves out.
const MAX_NAMES_BYTES: usize = 4096;

/// One format.
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// The format whose folder has its files; `None` if they are in a folder of its own name.
    pub folder: Option<&'static str>,
    /// The suffix after the array's name.
    pub suffix: &'static str,
    /// What it can hold: the reason, for users, why other arrays have no file. Empty if it has files of groups only.
    pub holds: &'static str,
    /// Whether users may expect a file of an array. If it has none, the sidecar then says what the format can hold. A format of one field
    /// names only arrays of that field: the sidecars of all others would list it for nothing.
    pub is_expected: fn(&Node) -> bool,
    /// More names of the files of some nodes.
    pub aliases: &'static [Alias],
    /// Whether the file of a group is listed below `__formats__/`. Every file is found by its name.
    pub is_listed: fn(&Node) -> bool,
    /// The reason why its files are never listed next to the arrays' own, if there is one.
    pub not_listed: Option<&'static str>,
    /// The name of a group's file in the group's folder; `None` if the file is next to the folder, as `GROUP.SUFFIX`, or if the format
    /// expresses no groups.
    pub group_file: Option<&'static str>,
    /// Its purpose.
    pub role: Role,
    /// Whether it can express a node, if arrays are served in this layout.
    pub expresses: fn(&Node, Layout) -> bool,
    /// Whether a node has a file, if that depends on other nodes too. May read documents.
    pub check: Option<fn(&Subject<'_>) -> Result<bool>>,
    /// The reason why an array has no file, if that depends on the array's coordinates. May read them.
    pub refuses: Option<fn(&Subject<'_>) -> Option<String>>,
    /// The attributes of a node that its file cannot hold.
    pub left_out: Option<fn(&Node, Layout) -> Vec<String>>,
    /// The parts of a node that its file is without, with the reasons, if that depends on other nodes. May read their documents.
    pub left_out_parts: Option<fn(&Subject<'_>) -> Vec<String>>,
    /// Owner, mode and time of a file, if they are not those of the node's own file. May call stat on the store.
    pub info: Option<fn(&Subject<'_>) -> Result<Info>>,
    /// Makes the file of a node. Reads no chunks.
    pub open: fn(&Subject<'_>) -> Result<CompanionContent>,
}

/// Another name of a file: another suffix.
pub struct Alias {
    /// The suffix.
    pub suffix: &'static str,
    /// Whether the file of a node has it.
    pub is_for: fn(&Node) -> bool,
}

/// The purpose of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It describes nodes. Every node has a file, which follows from its documents. Programs edit the attributes in it.
    Sidecar,
    /// It has the elements of arrays without a flat file as text.
    Text,
    /// It has the elements in a form that some programs read better than flat bytes.
    Data,
    /// As `Data`, but its files have no array bytes: they name the array's own file, which its folder also shows.
    Detached,
}

/// The place of a companion file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompanionPlace {
    /// Next to the node's own file.
    NextToNode,
    /// Below `__formats__/NAME/`, where no real node can displace it.
    FormatFolder,
}

/// What a companion file is made from.
pub struct Subject<'a> {
    /// The open arrays of the store.
    pub arrays: &'a OpenArrays,
    /// The users who must be able to read every chunk in the file.
    pub audience: Arc<Audience>,
    /// The node's path (`""` is the root).
    pub path: &'a str,
    /// The name of the root's file.
    pub root_name: &'a str,
    /// The node, as the view shows it.
    pub node: &'a Node,
    /// The view that the file shows, and the node as it is stored; `None` for the array itself.
    pub view: Option<(View, &'a Node)>,
    /// The own file of the view, as a path from the root of the mount.
    pub view_file: Option<String>,
    /// The place of the file.
    pub place: CompanionPlace,
    /// Other nodes and arrays.
    pub surroundings: Box<dyn Surroundings + 'a>,
    /// Every format.
    pub formats: &'static [&'static Format],
    /// The formats with files that are also listed next to the arrays' own.
    pub listed: &'a [&'static Format],
    /// What a format has found below the node, once it has gone through it.
    pub walk: OnceCell<Arc<dyn Any + Send + Sync>>,
}

/// The nodes and arrays of a [`Subject`]'s store, as far as the readers of its file may see them.
pub trait Surroundings {
    /// Returns the open array at a path, which is shared with the array's own file. For a view, the array has the bytes of the view.
    fn open_array(&self, path: &str) -> Result<Arc<SharedArray>>;
    /// Returns the open array at a path for elements that are read at once. Every reader of its document must be able to read its
    /// chunks.
    fn open_array_to_read(&self, path: &str) -> Result<Arc<SharedArray>> {
        self.open_array(path)
    }
    /// Returns the open array with the bytes of a view of the array at a path.
    fn open_view(&self, _view: View, path: &str) -> Result<Arc<SharedArray>> {
        Err(Error::Stale { key: path.to_owned() })
    }
    /// Returns the node at a path, if all users who may read the subject's node may read that node's documents. If the view shows more than
    /// one array, the node is as the view shows it.
    fn node(&self, path: &str) -> Result<Option<Arc<Node>>>;
    /// Returns the node at a path as [`Surroundings::node`] does, but with all its elements if the view shows a part of each array.
    fn whole_node(&self, path: &str) -> Result<Option<Arc<Node>>> {
        self.node(path)
    }
    /// Returns the nodes in a group.
    fn children(&self, path: &str) -> Result<Vec<Child>>;
    /// Returns whether there is a node at a path, even one that the readers may not read.
    fn is_node(&self, path: &str) -> Result<bool> {
        Ok(self.node(path)?.is_some())
    }
    /// Returns when the node was read or compared with the store that is the oldest of those returned until now. `None` if all are current.
    fn oldest_checked_at(&self) -> Option<Instant> {
        None
    }
}

/// A companion file, before it is read.
pub enum CompanionContent {
    /// It follows from the node's documents, apart from the ranges of arrays in it.
    Ready(VirtualFile),
    /// As `Ready`, but it also depends on the documents of other nodes.
    OfNodes(VirtualFile),
    /// It is made from elements.
    Elements(Box<dyn Companion>),
}

/// A companion file that is made from the elements of an array.
pub trait Companion: Send + Sync {
    /// Returns a number that very likely changes when the file changes. Calls stat on the store and reads nothing.
    fn version(&self) -> Result<u64>;
    /// Makes the file as it is now.
    fn make(&self) -> Result<VersionedFile>;
}

/// A companion file that was made from elements.
pub struct VersionedFile {
    /// Its [`Companion::version`].
    pub version: u64,
    /// Its content.
    pub file: VirtualFile,
}

/// Returns the name of a root that is an array, from the name of its store: without `.zip`, `.ozx` and `.zarr`.
pub fn root_name(store_name: &str) -> String {
    let name = [".zip", ".ozx"].iter().find_map(|end| store_name.strip_suffix(end)).unwrap_or(store_name);
    let name = name.strip_suffix(".zarr").unwrap_or(name);
    if matches!(name, "" | "." | "..") { "array".to_owned() } else { name.to_owned() }
}

/// Returns a list of names, cut to a length that fits into a header. A cut list ends with `…`.
pub fn shortened<S: AsRef<str>>(names: &[S]) -> Vec<&str> {
    let (mut shown, mut length) = (Vec::new(), 0);
    for name in names.iter().map(AsRef::as_ref) {
        length += name.len() + 3;
        if length > MAX_NAMES_BYTES {
            shown.push("…");
            break;
        }
        shown.push(name);
    }
    shown
}

impl Format {
    /// A format of data without optional parts, which other formats complete.
    const BASE: Format = Format {
        name: "",
        folder: None,
        suffix: "",
        holds: "",
        is_expected: |_| true,
        aliases: &[],
        is_listed: |_| true,
        not_listed: None,
        group_file: None,
        role: Role::Data,
        expresses: |_, _| false,
        check: None,
        refuses: None,
        left_out: None,
        left_out_parts: None,
        info: None,
        open: |subject| Err(Error::Stale { key: subject.path.to_owned() }),
    };

    /// Returns the companion file of an array, given the array's own file, both as paths from the root of the mount.
    pub fn file(&self, array_file: &str) -> String {
        let (folder, name) = array_file.rsplit_once('/').unwrap_or(("", array_file));
        let file = join(folder, &self.file_name(name));
        join(FOLDER, &format!("{}/{file}", self.folder_name()))
    }

    /// Returns the name of its folder below [`FOLDER`].
    pub fn folder_name(&self) -> &'static str {
        self.folder.unwrap_or(self.name)
    }

    /// Returns the name of the file next to an array or a group. Returns `None` if it cannot be listed there: a header names the array's file
    /// as it is, and programs disagree about some characters (`detached/data_names.rs`).
    pub fn listed_name(&self, name: &str) -> Option<String> {
        let is_plain = self.role != Role::Detached || matches!(self.stem(name), Cow::Borrowed(_));
        (is_plain && self.not_listed.is_none()).then(|| self.file_name(name))
    }

    /// Returns the name of the file of a node.
    pub fn file_name(&self, name: &str) -> String {
        format!("{}{}", self.stem(name), self.suffix)
    }

    /// Returns the name of a node's file, without the suffix. `cells.ome` has the file `cells.ome.tif` if the suffix is `.ome.tif`.
    pub fn stem<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.role == Role::Detached {
            return detached::data_names::data_name(name);
        }
        let repeated = self.repeated_end().and_then(|end| name.strip_suffix(end));
        Cow::Borrowed(repeated.filter(|stem| !stem.is_empty()).unwrap_or(name))
    }

    /// Returns the first part of a suffix of two parts, which a node's name may have too.
    pub fn repeated_end(&self) -> Option<&'static str> {
        let (end, _) = self.suffix.rsplit_once('.').filter(|(end, _)| !end.is_empty())?;
        Some(end)
    }
}

impl Subject<'_> {
    /// Returns the metadata of an array.
    pub fn metadata(&self) -> Result<&Arc<ArrayMetadata>> {
        match self.node {
            Node::Array { metadata, .. } => Ok(metadata),
            Node::Group { .. } | Node::Broken { .. } => Err(Error::Stale { key: self.path.to_owned() }),
        }
    }

    /// Returns the layout of the served bytes.
    pub fn layout(&self) -> Layout {
        let own = self.arrays.layout();
        self.view.as_ref().map_or(own, |(view, _)| view.layout(own))
    }

    /// Returns the formats that a program may open instead of the array's flat file, as far as they depend on the node alone.
    pub fn data_formats(&self) -> impl Iterator<Item = &'static Format> {
        let is_data = |format: &Format| matches!(format.role, Role::Data | Role::Detached);
        self.formats.iter().copied().filter(move |format| is_data(format) && format.check.is_none())
    }

    /// Returns the format in which an array without a flat file can be read.
    pub fn text_form(&self) -> Option<&'static Format> {
        let is_text =
            |format: &&Format| format.role == Role::Text && (format.expresses)(self.node, Layout::default());
        self.formats.iter().copied().find(is_text)
    }

    /// Returns the node as it is stored.
    pub fn stored(&self) -> &Node {
        self.view.as_ref().map_or(self.node, |(_, stored)| stored)
    }

    /// Returns the open array that readers use for this view of the array at a path, if there is one.
    pub fn current_array(&self, path: &str, rank: usize) -> Option<Arc<OpenArray>> {
        let view = self.view.as_ref().and_then(|(view, _)| view.of_array(rank, self.arrays.layout()));
        self.arrays.current(view, path)
    }

    /// Returns the bytes of the array at a path, as the view shows it: `size_bytes` of them, in the open array that has them.
    pub fn segment(&self, path: &str, array: Arc<SharedArray>, size_bytes: u64) -> Result<Segment> {
        let slice = match &self.view {
            Some((View::Slice(slice), _)) if path == self.path => slice.clone(),
            Some((View::Slice(slice), _)) => Arc::new(slice.for_neighbours()),
            Some((view, _)) if path == self.path => {
                let start = view.offset(size_bytes);
                return Ok(Segment::Array { array, range: start..start.saturating_add(size_bytes) });
            }
            _ => return Ok(Segment::Array { array, range: 0..size_bytes }),
        };
        // The array may have been replaced since its node was read.
        let stale = || Error::Stale { key: path.to_owned() };
        let open = array.current().ok_or_else(stale)?;
        let parts = slice.parts(&open.metadata).ok_or_else(stale)?;
        let selection: Vec<AxisSelection> = parts.into_iter().map(|part| part.selection).collect();
        let item_bytes = open.metadata.data_type.item_size().unwrap_or(0) as u64;
        if selection.iter().fold(item_bytes, |bytes, axis| bytes.saturating_mul(axis.count)) != size_bytes {
            return Err(stale());
        }
        let range = open.array.clone()?.range_of_slice(&selection)?;
        Ok(match range.filter(|_| size_bytes >= MIN_RANGE_BYTES) {
            Some(range) => Segment::Array { array, range },
            None => Segment::Slice { array, selection: selection.into(), size_bytes },
        })
    }

    /// Returns the name of the own file of the array or the view.
    pub fn name(&self) -> &str {
        let file = self.array_file();
        file.rsplit('/').next().unwrap_or(file)
    }

    /// Returns the own file of the array or the view, as a path from the root of the mount.
    pub fn array_file(&self) -> &str {
        match (&self.view_file, self.path) {
            (Some(file), _) => file,
            (None, "") => self.root_name,
            (None, path) => path,
        }
    }

    /// Returns the file of this node in a format, as a path from the root of the mount: next to the node's own file, if it is listed there
    /// and no node has its name. The folders of views list the views' own files only.
    pub fn companion_file(&self, format: &'static Format) -> Result<String> {
        if self.view.is_none() && self.listed.contains(&format) {
            let (folder, name) = self.array_file().rsplit_once('/').unwrap_or(("", self.array_file()));
            let file = format.listed_name(name).map(|name| join(folder, &name));
            if let Some(file) = file
                && !self.surroundings.is_node(&file)?
            {
                return Ok(file);
            }
        }
        Ok(format.file(self.array_file()))
    }

    /// Returns the array's own file, as a path from the folder of the companion file.
    pub fn array_file_from_here(&self) -> String {
        let file = self.array_file();
        match self.place {
            CompanionPlace::NextToNode => self.name().to_owned(),
            CompanionPlace::FormatFolder => {
                format!("../../{}{file}", "../".repeat(file.matches('/').count()))
            }
        }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl Hash for Format {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
