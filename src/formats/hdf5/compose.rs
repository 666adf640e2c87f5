//! The file of a hierarchy: groups, variables, dimensions and links, and the elements that it does not share with the arrays' own files.
//!
//! Spec: netCDF "The NetCDF-4 File Format"; HDF5 File Format Specification 3.0. Uses its neighbours and `nc`, which lays out the file.
//!
//! An array that names a dimension shares it with the arrays of its group and, as in netCDF, with those of the groups above. Arrays that name
//! none have none in the file, where netCDF makes dimensions of its own; neither have arrays of AnnData and NWB, whose programs would take
//! the dimensions for data.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::contents::{ArrayContent, ContentSource, array_content};
use super::dialect::Dialect;
use super::elements::{ElementCollector, StoredElements};
use super::walk::{Walk, WalkedArray};
use crate::array::{Engine, Layout, Order, Reservation};
use crate::error::{Error, Result};
use crate::formats::nc;
use crate::formats::nc::attributes::{AttributeWriter, FileObject, left_out_attribute};
use crate::formats::nc::contents::{
    CoordinateVariable, Dimensions, GroupNames, SourceArray, Variable, characters,
};
use crate::formats::nc::file::{FileGroup, NcFile, SoftLink};
use crate::formats::nc::names::file_name;
use crate::formats::virtual_file::{Segment, VirtualFile};
use crate::formats::{Companion, Subject, VersionedFile};
use crate::hierarchy::Node;

/// The attribute of a group that names the groups that it leaves out.
const LEFT_OUT_GROUPS: &str = "zarrfs_left_out_groups";
/// The attribute of a group that names the links that it leaves out.
const LEFT_OUT_LINKS: &str = "zarrfs_left_out_links";
/// The most bytes of all attributes of a file.
const MAX_ATTRIBUTE_BYTES: usize = 32 << 20;
/// The longest path of a link.
const MAX_LINK_BYTES: usize = 4096;

/// A file before its elements are read.
pub struct HierarchyFile {
    path: String,
    engine: Arc<Engine>,
    layout: Layout,
    dialect: Dialect,
    /// The attributes of the first group.
    attributes: Map<String, Value>,
    walk: Arc<Walk>,
    /// What the file has of each array; `None` if it leaves the array out.
    contents: Vec<Option<ArrayContent>>,
}

/// An array that the file has.
struct KeptArray<'a> {
    walked: &'a WalkedArray,
    content: &'a ArrayContent,
    source: SourceArray,
    /// Its elements, if the file does not share them with the array's own file.
    stored: Option<StoredElements>,
}

impl KeptArray<'_> {
    fn size_bytes(&self) -> u64 {
        match &self.stored {
            Some(stored) => stored.bytes.len() as u64,
            None => self.walked.metadata.flat_size().unwrap_or(0),
        }
    }
}

impl HierarchyFile {
    /// Goes through everything below the subject, and decides what the file has of it.
    pub fn open(subject: &Subject<'_>) -> Result<HierarchyFile> {
        let Node::Group { metadata, .. } = subject.node else {
            return Err(Error::Stale { key: subject.path.to_owned() });
        };
        let walk = Walk::of_subject(subject)?;
        let dialect = Dialect::for_group(subject.node);
        let contents = walk.arrays.iter().map(|array| array_content(subject, dialect, array));
        Ok(HierarchyFile {
            path: subject.path.to_owned(),
            engine: subject.arrays.engine().clone(),
            layout: subject.layout(),
            dialect,
            attributes: metadata.attributes.clone(),
            contents: contents.collect::<Result<_>>()?,
            walk,
        })
    }

    fn too_large(&self, reason: &str) -> Error {
        Error::TooLarge { key: self.path.clone(), reason: reason.to_owned() }
    }

    /// Returns the path of an object as links and references have it: from the first group, without a `/` at the start.
    fn path_in_file<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(self.path.as_str()).unwrap_or(path).trim_start_matches('/')
    }

    /// Reads the elements that the file does not share, and leaves out the arrays that have an unfit one.
    fn kept_arrays(&self, collector: &mut ElementCollector) -> Result<Vec<KeptArray<'_>>> {
        let mut kept = Vec::new();
        for (walked, content) in self.walk.arrays.iter().zip(&self.contents) {
            let Some(content) = content else { continue };
            let stored = match &content.elements {
                ContentSource::Own(_) => None,
                ContentSource::Read(source) => match collector.read(source, &walked.metadata)? {
                    None => continue,
                    stored => stored,
                },
            };
            let WalkedArray { path, name, metadata, .. } = walked;
            let source = SourceArray { path: path.clone(), name: name.clone(), metadata: metadata.clone() };
            kept.push(KeptArray { walked, content, source, stored });
        }
        Ok(kept)
    }

    /// Returns the objects of the file by their paths, as far as attributes and elements may refer to them.
    fn objects(&self, kept: &[KeptArray<'_>]) -> HashMap<String, FileObject> {
        if self.dialect != Dialect::Nwb {
            return HashMap::new();
        }
        let groups = self.walk.groups.iter().enumerate();
        let groups = groups.map(|(index, group)| (&group.path, FileObject::Group(index)));
        let arrays = kept.iter().enumerate();
        let arrays = arrays.map(|(index, array)| (&array.walked.path, FileObject::Variable(index)));
        groups.chain(arrays).map(|(path, object)| (self.path_in_file(path).to_owned(), object)).collect()
    }

    /// Returns whether all objects that the elements of an array refer to are in the hierarchy.
    fn are_targets_known(&self, stored: &StoredElements) -> bool {
        if stored.targets().is_empty() {
            return true;
        }
        let groups = self.walk.groups.iter().map(|group| &group.path);
        let paths = groups.chain(self.walk.arrays.iter().map(|array| &array.path));
        let known: HashSet<&str> = paths.map(|path| self.path_in_file(path)).collect();
        stored.targets().iter().all(|target| known.contains(target.trim_matches('/')))
    }

    fn variables(&self, kept: &[KeptArray<'_>], writer: &mut AttributeWriter) -> VariablesOfFile {
        let mut dimensions = self.empty_dimensions(kept);
        let mut variables = Vec::new();
        let mut last_group = None;
        for (place, array) in kept.iter().enumerate() {
            if last_group.replace(array.walked.group) != Some(array.walked.group) {
                self.inherit_dimensions(kept.get(place..).unwrap_or_default(), &mut dimensions);
            }
            let (source, group) = (&array.source, array.walked.group);
            let (metadata, name) = (&source.metadata, array.walked.file_name.clone());
            let axes = source.axes(self.layout.order == Order::F);
            let mut shape: Vec<u64> = axes.iter().map(|axis| axis.length).collect();
            let mut of_axes = Vec::new();
            let has_dimensions = self.has_dimensions(source);
            if has_dimensions {
                of_axes.extend(axes.iter().map(|axis| dimensions.dimension_of_axis(group, &name, *axis)));
            }
            if let Some(length) = characters(metadata).filter(|_| self.dialect == Dialect::Netcdf) {
                if has_dimensions {
                    of_axes.push(dimensions.dimension_of_characters(group, &name, length));
                }
                shape.push(length);
            }
            let attributes = match self.dialect {
                Dialect::Netcdf => writer.array_attributes(metadata, self.layout.byte_order),
                Dialect::AnnData | Dialect::Nwb => {
                    writer.plain_attributes(&self.dialect.shown_attributes(&metadata.attributes))
                }
            };
            variables.push(Variable {
                datatype: array.content.datatype.clone(),
                shape,
                coordinate_of: of_axes.first().copied().filter(|_| source.is_coordinate()),
                dimensions: of_axes,
                attributes,
                size_bytes: array.size_bytes(),
                group,
                name,
            });
        }
        VariablesOfFile { dimensions: dimensions.all, variables }
    }

    /// Gives a group the dimensions of the groups above that its arrays have, before it gets its own. `kept` begins with its first array.
    fn inherit_dimensions(&self, kept: &[KeptArray<'_>], dimensions: &mut Dimensions<'_>) {
        let Some(group) = kept.first().map(|array| array.walked.group) else { return };
        let of_group = kept.iter().take_while(|array| array.walked.group == group);
        for array in of_group.filter(|array| self.has_dimensions(&array.source)) {
            for axis in array.source.axes(false) {
                if let Some(name) = axis.name {
                    dimensions.inherit(group, name, axis.length);
                }
            }
        }
    }

    /// Returns whether the axes of an array have dimensions in the file.
    fn has_dimensions(&self, source: &SourceArray) -> bool {
        self.dialect == Dialect::Netcdf && source.axes(false).iter().any(|axis| axis.name.is_some())
    }

    fn empty_dimensions<'a>(&self, kept: &'a [KeptArray<'a>]) -> Dimensions<'a> {
        let mut groups: Vec<GroupNames<'a>> = Vec::new();
        for group in &self.walk.groups {
            groups.push(GroupNames { parent: group.parent, names: Vec::new(), coordinates: HashMap::new() });
            if let Some(parent) = group.parent.and_then(|parent| groups.get_mut(parent)) {
                parent.names.push(group.name.clone());
            }
        }
        for (index, array) in kept.iter().enumerate() {
            let Some(group) = groups.get_mut(array.walked.group) else { continue };
            let (source, name) = (&array.source, array.walked.file_name.clone());
            group.names.push(name.clone());
            if let Some(&length) = source.metadata.shape.first().filter(|_| source.is_coordinate()) {
                let coordinate = CoordinateVariable { index, length, name };
                group.coordinates.insert(&source.name, coordinate);
            }
        }
        let mut dimensions = Dimensions::default();
        for group in groups {
            dimensions.add_group(group);
        }
        dimensions
    }

    fn groups(&self, kept: &[KeptArray<'_>], writer: &mut AttributeWriter) -> Vec<FileGroup> {
        let mut left_out: Vec<Vec<String>> =
            self.walk.groups.iter().map(|group| group.left_out_arrays.clone()).collect();
        let mut of_file = kept.iter().map(|array| &array.walked.path).peekable();
        for array in &self.walk.arrays {
            if of_file.next_if(|path| **path == array.path).is_none()
                && let Some(names) = left_out.get_mut(array.group)
            {
                names.push(array.name.clone());
            }
        }
        let mut groups = Vec::new();
        for (group, left_out_arrays) in self.walk.groups.iter().zip(left_out) {
            let own = match group.node.as_deref() {
                Some(Node::Group { metadata, .. }) => &metadata.attributes,
                _ => &self.attributes,
            };
            let mut attributes = match self.dialect {
                Dialect::Netcdf => writer.group_attributes(own),
                Dialect::AnnData | Dialect::Nwb => {
                    writer.plain_attributes(&self.dialect.shown_attributes(own))
                }
            };
            let (soft_links, left_out_links) = self.soft_links(own, &group.names);
            attributes.extend(left_out_attribute(nc::LEFT_OUT_ATTRIBUTE, &left_out_arrays));
            attributes.extend(left_out_attribute(LEFT_OUT_GROUPS, &group.left_out_groups));
            attributes.extend(left_out_attribute(LEFT_OUT_LINKS, &left_out_links));
            let (name, parent) = (group.name.clone(), group.parent);
            groups.push(FileGroup { name, parent, attributes, soft_links });
        }
        groups
    }

    /// Returns the soft links of a group with these attributes and members, and the names of links that it cannot have.
    fn soft_links(
        &self,
        attributes: &Map<String, Value>,
        members: &nc::names::UniqueNames,
    ) -> (Vec<SoftLink>, Vec<String>) {
        let (mut links, mut left_out) = (Vec::new(), Vec::new());
        let mut taken = HashSet::new();
        for link in self.dialect.links(attributes) {
            let name =
                file_name(&link.name).filter(|name| !members.contains(name) && taken.insert(name.clone()));
            let steps = link.path.as_deref().map(|path| path.split('/').filter(|step| !step.is_empty()));
            let steps = steps.and_then(|steps| steps.map(file_name).collect::<Option<Vec<_>>>());
            let target = steps.map(|steps| format!("/{}", steps.join("/")));
            match (name, target.filter(|target| target.len() <= MAX_LINK_BYTES)) {
                (Some(name), Some(target)) => links.push(SoftLink { name, target }),
                _ => left_out.push(link.name),
            }
        }
        (links, left_out)
    }

    fn make_file(&self) -> Result<VirtualFile> {
        let mut collector = ElementCollector::new(Reservation::new(&self.engine));
        let mut kept = self.kept_arrays(&mut collector)?;
        kept.retain(|array| array.stored.as_ref().is_none_or(|stored| self.are_targets_known(stored)));
        let objects = self.objects(&kept);
        let mut writer =
            AttributeWriter::new(self.dialect.attribute_form(), MAX_ATTRIBUTE_BYTES, objects.clone());
        let groups = self.groups(&kept, &mut writer);
        let VariablesOfFile { dimensions, variables } = self.variables(&kept, &mut writer);
        let (collections, mut reservation) = collector.finish();
        let string_bytes = collections.iter().map(|collection| collection.len() as u64).sum();
        let file = NcFile { groups, dimensions, variables, heap: writer.heap, string_bytes };
        let laid_out = file.lay_out().ok_or_else(|| self.too_large("its header is longer than 64 MiB"))?;
        if laid_out.header.len() > nc::UNCOUNTED_BYTES && !reservation.grow(laid_out.header.len() as u64) {
            return Err(self.too_large("its header does not fit into the cache"));
        }
        let address_of = |path: &str| match objects.get(path.trim_matches('/')) {
            Some(object) => laid_out.objects.of(*object),
            // The file leaves it out.
            None => 0,
        };
        let mut end = laid_out.header.len() as u64;
        let mut segments = vec![Segment::Bytes(laid_out.header)];
        segments.push(Segment::Zeros(laid_out.strings.saturating_sub(end)));
        end = laid_out.strings.saturating_add(string_bytes);
        segments.extend(collections.into_iter().map(Segment::Bytes));
        for (address, variable) in laid_out.arrays {
            let Some(array) = kept.get_mut(variable) else { continue };
            let size_bytes = array.size_bytes();
            segments.push(Segment::Zeros(address.saturating_sub(end)));
            end = address.saturating_add(size_bytes);
            match (array.stored.take(), &array.content.elements) {
                (Some(mut stored), _) => {
                    stored.set_addresses(laid_out.strings, address_of);
                    segments.push(Segment::Bytes(stored.bytes));
                }
                (None, ContentSource::Own(array)) => {
                    segments.push(Segment::Array { array: array.clone(), range: 0..size_bytes });
                }
                (None, ContentSource::Read(_)) => return Err(Error::Stale { key: self.path.clone() }),
            }
        }
        Ok(VirtualFile::new(segments).with_reservation(reservation))
    }
}

/// The variables of a file, and their dimensions.
struct VariablesOfFile {
    dimensions: Vec<nc::contents::Dimension>,
    variables: Vec<Variable>,
}

impl Companion for HierarchyFile {
    fn version(&self) -> Result<u64> {
        let mut version = DefaultHasher::new();
        self.walk.version().hash(&mut version);
        for content in self.contents.iter().flatten() {
            if let ContentSource::Read(source) = &content.elements {
                source.version()?.hash(&mut version);
            }
        }
        Ok(version.finish())
    }

    fn make(&self) -> Result<VersionedFile> {
        // What changes while elements are read makes the next version another one.
        let version = self.version()?;
        Ok(VersionedFile { version, file: self.make_file()? })
    }
}
