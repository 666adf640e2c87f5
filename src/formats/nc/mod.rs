//! `nc`: netCDF-4, which is HDF5: a header, and the bytes of arrays as they are.
//!
//! Spec: netCDF-4 file format (NetCDF User's Guide, appendix B), HDF5 File Format Specification 3.0. Uses `hierarchy`,
//! `metadata` and `array` through the subject.
//!
//! ```text
//! GROUP/temp.nc   temp(time, lat, lon), and time, lat and lon where the group has them
//! GROUP.nc        all arrays of the group, but not those of groups in it
//! ```
//!
//! `contents.rs` decides on variables and dimensions, `attributes.rs` on types of attributes, `scales.rs` ties both together as
//! netCDF does, `file.rs` lays out the file, and `hdf5/` encodes it. An array that HDF5 cannot express has no file, and is left out of
//! its group's.

pub(super) mod attributes;
pub(super) mod contents;
pub(super) mod file;
pub(super) mod hdf5;
pub(super) mod names;
mod scales;

use std::sync::Arc;

use super::documents::{documents_info, intersect_documents};
use super::virtual_file::{Segment, VirtualFile};
use super::{CompanionContent, Format, Subject};
use crate::array::{Layout, Order, Reservation};
use crate::error::{Error, Result};
use crate::hierarchy::{Node, SharedArray};
use crate::metadata::{ArrayMetadata, ByteOrder};
use crate::store::{Info, join};
use attributes::{Attribute, AttributeWriter, left_out_attribute};
use contents::{Dimensions, SourceArray, Variable, characters, element_type, is_companionable};
use file::{FileGroup, NcFile};
use names::file_name;

/// `nc`.
pub const FORMAT: Format = Format {
    name: "nc",
    suffix: ".nc",
    holds: "all types but UTF-32 strings, floats without infinity and elements of variable length",
    expresses,
    left_out: Some(left_out),
    info: Some(info),
    open,
    ..Format::BASE
};

/// The attribute of a group that names the arrays that it leaves out.
pub(super) const LEFT_OUT_ATTRIBUTE: &str = "zarrfs_left_out_arrays";
/// Shorter headers are not counted against the cache's limit.
pub(super) const UNCOUNTED_BYTES: usize = 64 << 10;

fn expresses(node: &Node, _: Layout) -> bool {
    match node {
        Node::Array { metadata, .. } => element_type(metadata, ByteOrder::Little).is_some(),
        Node::Group { .. } => true,
        Node::Broken { .. } => false,
    }
}

/// Returns the attributes of a node that its own file leaves out.
fn left_out(node: &Node, layout: Layout) -> Vec<String> {
    let mut writer = AttributeWriter::default();
    match node {
        Node::Group { metadata, .. } => drop(writer.group_attributes(&metadata.attributes)),
        Node::Array { metadata, .. } => drop(writer.array_attributes(metadata, layout.byte_order)),
        Node::Broken { .. } => {}
    }
    writer.left_out
}

/// The arrays that a file shows.
struct GatheredArrays {
    sources: Vec<SourceArray>,
    arrays: Vec<Arc<SharedArray>>,
    /// The names of arrays that the file leaves out.
    left_out: Vec<String>,
}

fn open(subject: &Subject<'_>) -> Result<CompanionContent> {
    let gathered = gather(subject)?;
    let (file, sizes) = describe(subject, &gathered)?;
    let laid_out = file.lay_out().ok_or_else(|| too_large(subject, "its header is longer than 64 MiB"))?;
    let mut reservation = Reservation::new(subject.arrays.engine());
    if laid_out.header.len() > UNCOUNTED_BYTES && !reservation.grow(laid_out.header.len() as u64) {
        return Err(too_large(subject, "its header does not fit into the cache"));
    }
    let mut end = laid_out.header.len() as u64;
    let mut segments = vec![Segment::Bytes(laid_out.header)];
    for (address, variable) in laid_out.arrays {
        if let (Some(array), Some(&size_bytes)) = (gathered.arrays.get(variable), sizes.get(variable)) {
            segments.push(Segment::Zeros(address.saturating_sub(end)));
            let path = gathered.sources.get(variable).map_or("", |source| &source.path);
            segments.push(subject.segment(path, array.clone(), size_bytes)?);
            end = address.saturating_add(size_bytes);
        }
    }
    Ok(CompanionContent::OfNodes(VirtualFile::new(segments).with_reservation(reservation)))
}

fn too_large(subject: &Subject<'_>, reason: &str) -> Error {
    Error::TooLarge { key: subject.path.to_owned(), reason: reason.to_owned() }
}

/// Returns the description of the file, and the size of each variable in bytes.
fn describe(subject: &Subject<'_>, gathered: &GatheredArrays) -> Result<(NcFile, Vec<u64>)> {
    let layout = subject.layout();
    let sources = &gathered.sources;
    let unnamed = || Error::unsupported(subject.path, "a name of more than 255 bytes in netCDF");
    let names: Option<Vec<String>> = sources.iter().map(|source| file_name(&source.name)).collect();
    let names = names.ok_or_else(unnamed)?;
    let mut writer = AttributeWriter::default();
    let attributes = match subject.node {
        Node::Group { metadata, .. } => writer.group_attributes(&metadata.attributes),
        Node::Array { .. } | Node::Broken { .. } => Vec::new(),
    };
    let mut dimensions = Dimensions::new(sources, &names);
    let mut variables = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let axes = source.axes(layout.order == Order::F);
        let name = names.get(index).cloned().unwrap_or_default();
        let mut of_axes: Vec<usize> =
            axes.iter().map(|axis| dimensions.dimension_of_axis(0, &name, *axis)).collect();
        let metadata = &source.metadata;
        let mut shape: Vec<u64> = axes.iter().map(|axis| axis.length).collect();
        if let Some(length) = characters(metadata) {
            of_axes.push(dimensions.dimension_of_characters(0, &name, length));
            shape.push(length);
        }
        let datatype = element_type(metadata, layout.byte_order);
        variables.push(Variable {
            datatype: datatype.ok_or_else(|| Error::Stale { key: source.path.clone() })?,
            shape,
            coordinate_of: of_axes.first().copied().filter(|_| source.is_coordinate()),
            dimensions: of_axes,
            attributes: writer.array_attributes(metadata, layout.byte_order),
            size_bytes: metadata.flat_size().unwrap_or(0),
            group: 0,
            name,
        });
    }
    let left_out: Option<Attribute> = left_out_attribute(LEFT_OUT_ATTRIBUTE, &gathered.left_out);
    let sizes = variables.iter().map(|variable| variable.size_bytes).collect();
    let attributes: Vec<Attribute> = attributes.into_iter().chain(left_out).collect();
    let groups = vec![FileGroup::root(attributes)];
    let dimensions = dimensions.all;
    let file = NcFile { groups, dimensions, variables, heap: writer.heap, string_bytes: 0 };
    Ok((file, sizes))
}

/// Opens the arrays of the file.
fn gather(subject: &Subject<'_>) -> Result<GatheredArrays> {
    match subject.node {
        Node::Group { .. } => all_of_group(subject),
        Node::Array { .. } | Node::Broken { .. } => with_coordinates(subject),
    }
}

/// Opens all arrays of a group.
fn all_of_group(subject: &Subject<'_>) -> Result<GatheredArrays> {
    let layout = subject.layout();
    let is_fit =
        |node: &Node, metadata: &ArrayMetadata| expresses(node, layout) && is_companionable(metadata);
    let mut gathered = GatheredArrays { sources: Vec::new(), arrays: Vec::new(), left_out: Vec::new() };
    for child in subject.surroundings.children(subject.path)?.into_iter().filter(|child| !child.is_group) {
        let path = join(subject.path, &child.name);
        let node = subject.surroundings.node(&path)?;
        let opened = match node.as_deref() {
            Some(node @ Node::Array { metadata, .. })
                if is_fit(node, metadata) && file_name(&child.name).is_some() =>
            {
                opened(subject, &path)?.map(|array| (array, metadata.clone()))
            }
            _ => None,
        };
        match opened {
            Some((array, metadata)) => {
                gathered.arrays.push(array);
                gathered.sources.push(SourceArray { path, name: child.name, metadata });
            }
            None => gathered.left_out.push(child.name),
        }
    }
    Ok(gathered)
}

/// Opens the array at a path; `None` if zarrfs cannot read it.
pub(super) fn opened(subject: &Subject<'_>, path: &str) -> Result<Option<Arc<SharedArray>>> {
    match subject.surroundings.open_array(path) {
        Ok(array) => Ok(Some(array)),
        Err(error @ (Error::Store { .. } | Error::TimedOut { .. } | Error::Cancelled { .. })) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Opens the subject, and the arrays in its group that are coordinate variables of its dimensions.
fn with_coordinates(subject: &Subject<'_>) -> Result<GatheredArrays> {
    let (group, name) = match subject.path.rsplit_once('/') {
        Some((group, name)) => (Some(group), name),
        None if subject.path.is_empty() => (None, subject.root_name),
        None => (Some(""), subject.path),
    };
    let metadata = subject.metadata()?.clone();
    let array = subject.surroundings.open_array(subject.path)?;
    let main =
        SourceArray { path: subject.path.to_owned(), name: name.to_owned(), metadata: metadata.clone() };
    let mut gathered = GatheredArrays { sources: vec![main], arrays: vec![array], left_out: Vec::new() };
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    for (dimension, &length) in names.iter().zip(&metadata.shape) {
        if let (Some(group), Some(dimension)) = (group, dimension.as_deref())
            && !gathered.sources.iter().any(|source| source.name == *dimension)
            && let Some((coordinate, array)) = coordinate(subject, group, dimension, length)?
        {
            gathered.sources.push(coordinate);
            gathered.arrays.push(array);
        }
    }
    Ok(gathered)
}

/// Opens the coordinate variable of a dimension, if the group has it.
fn coordinate(
    subject: &Subject<'_>,
    group: &str,
    dimension: &str,
    length: u64,
) -> Result<Option<(SourceArray, Arc<SharedArray>)>> {
    if dimension.contains('/') || file_name(dimension).is_none() {
        return Ok(None);
    }
    let path = join(group, dimension);
    let Some(node) = subject.surroundings.node(&path)? else { return Ok(None) };
    let Node::Array { metadata, .. } = &*node else { return Ok(None) };
    let source = SourceArray { path, name: dimension.to_owned(), metadata: metadata.clone() };
    if !source.is_coordinate()
        || metadata.shape != [length]
        || !expresses(&node, subject.layout())
        || !is_companionable(metadata)
    {
        return Ok(None);
    }
    Ok(opened(subject, &source.path)?.map(|array| (source, array)))
}

/// Returns owner, mode and time. The file shows attributes, so the modes of their documents count. A group's file is next to its folder, so
/// only users who may list and search the folder can read it. The time is that of the newest array.
pub(super) fn info(subject: &Subject<'_>) -> Result<Info> {
    let documents = documents_info(subject)?;
    let group = match subject.node {
        Node::Group { info, .. } => info,
        Node::Array { .. } | Node::Broken { .. } => return Ok(documents),
    };
    let mut modified = documents.modified;
    for child in subject.surroundings.children(subject.path)?.into_iter().filter(|child| !child.is_group) {
        let path = join(subject.path, &child.name);
        let open = subject.current_array(&path, 0);
        let changed_at = open.and_then(|open| open.array.as_ref().ok()?.changed_at());
        let node = subject.surroundings.node(&path)?;
        modified = modified.max(node.and_then(|node| node.info().modified)).max(changed_at);
    }
    // Bits for reading, for the classes of users who may list the folder and search it.
    let folder = group.with_mode(|folder| folder.mode & (folder.mode << 2) & 0o444);
    Ok(Info { modified, ..intersect_documents(&documents, &folder) })
}
