//! The layout of the file, and the bytes before the arrays.
//!
//! Spec: HDF5 File Format Specification 3.0. Uses its neighbours.
//!
//! The superblock comes first, then the header of the root group, the headers of all datasets and of the other groups, and the global heap.
//! Strings that are elements of arrays follow, then the bytes of the arrays, first those of less than a page. The length of a structure does
//! not depend on the addresses in it, so all structures are made twice: first for their lengths, and then with the addresses.

use super::attributes::{Attribute, AttributeData, FileObject};
use super::contents::{Dimension, Variable};
use super::hdf5::global_heap::{GlobalHeap, HeapSlot};
use super::hdf5::messages::{self, Allocation, Dataspace, HeaderMessage, LinkTarget};
use super::hdf5::object_header::object_header;
use super::hdf5::{SUPERBLOCK_BYTES, UNDEFINED_ADDRESS, datatype, superblock};
use super::scales::{Scales, scale_objects};
use crate::metadata::ByteOrder;

/// The longest header.
const MAX_HEADER_BYTES: u64 = 64 << 20;
/// Every structure, and every short array, begins at a multiple of this.
const ALIGNMENT: u64 = 8;
/// An array of at least this many bytes begins at a multiple of this.
const PAGE_BYTES: u64 = 4096;
/// The size of an element of a scale without a coordinate variable, in bytes.
const SCALE_ELEMENT_BYTES: u64 = 4;

/// The content of a file.
pub struct NcFile {
    /// The groups. The first is the root, and every other one comes after its parent.
    pub groups: Vec<FileGroup>,
    /// The dimensions.
    pub dimensions: Vec<Dimension>,
    /// The variables.
    pub variables: Vec<Variable>,
    /// The values that attributes refer to.
    pub heap: GlobalHeap,
    /// The size of the collections with the strings that are elements, in bytes. They follow the header.
    pub string_bytes: u64,
}

/// A group.
pub struct FileGroup {
    /// Its name in the file.
    pub name: String,
    /// The group that has it, by index; `None` for the root.
    pub parent: Option<usize>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Its soft links.
    pub soft_links: Vec<SoftLink>,
}

/// A link to a path in the file.
pub struct SoftLink {
    /// Its name in the group.
    pub name: String,
    /// The path.
    pub target: String,
}

impl FileGroup {
    /// Makes the root group.
    pub fn root(attributes: Vec<Attribute>) -> Self {
        FileGroup { name: String::new(), parent: None, attributes, soft_links: Vec::new() }
    }
}

/// The bytes before the arrays, and the places of the arrays.
pub struct LaidOut {
    /// The header.
    pub header: Vec<u8>,
    /// The address of the collections with the strings that are elements.
    pub strings: u64,
    /// The addresses of objects.
    pub objects: ObjectAddresses,
    /// The address and the variable of each array that has bytes, sorted by address.
    pub arrays: Vec<(u64, usize)>,
}

/// The addresses of the headers of objects.
#[derive(Default)]
pub struct ObjectAddresses {
    groups: Vec<u64>,
    /// Those of the variables, then those of scales without a variable.
    datasets: Vec<u64>,
}

impl ObjectAddresses {
    /// Returns the address of an object.
    pub fn of(&self, object: FileObject) -> u64 {
        match object {
            FileObject::Variable(variable) => at(&self.datasets, variable),
            FileObject::Group(group) => at(&self.groups, group),
        }
    }
}

#[derive(Default)]
struct FileAddresses {
    objects: ObjectAddresses,
    collections: Vec<u64>,
    strings: u64,
    /// The bytes of the variables.
    arrays: Vec<u64>,
    end: u64,
}

fn at(addresses: &[u64], index: usize) -> u64 {
    addresses.get(index).copied().unwrap_or(UNDEFINED_ADDRESS)
}

/// The members of each group, by index.
#[derive(Default)]
struct GroupMembers {
    dimensions: Vec<usize>,
    variables: Vec<usize>,
    groups: Vec<usize>,
}

impl NcFile {
    /// Lays out the file. Returns `None` if its header would be too long.
    pub fn lay_out(mut self) -> Option<LaidOut> {
        let scales = Scales::new(&self.dimensions, &self.variables, &mut self.heap);
        let members = self.members();
        let mut lengths = Vec::new();
        let unknown = FileAddresses::default();
        self.structures(&scales, &members, &unknown, |bytes| lengths.push(bytes.len() as u64))?;
        let addresses = self.addresses(&lengths)?;
        let mut header = superblock(addresses.objects.of(FileObject::Group(0)), addresses.end);
        self.structures(&scales, &members, &addresses, |bytes| {
            header.extend(bytes);
            header.resize(header.len().next_multiple_of(ALIGNMENT as usize), 0);
        })?;
        let places = addresses.arrays.iter().enumerate();
        let mut arrays: Vec<_> = places
            .filter(|(_, address)| **address != UNDEFINED_ADDRESS)
            .map(|(variable, address)| (*address, variable))
            .collect();
        arrays.sort_unstable();
        Some(LaidOut { header, strings: addresses.strings, objects: addresses.objects, arrays })
    }

    /// Returns the members of each group.
    fn members(&self) -> Vec<GroupMembers> {
        let mut members: Vec<GroupMembers> = self.groups.iter().map(|_| GroupMembers::default()).collect();
        for (index, dimension) in self.dimensions.iter().enumerate() {
            if let Some(members) = members.get_mut(dimension.group) {
                members.dimensions.push(index);
            }
        }
        for (index, variable) in self.variables.iter().enumerate() {
            if let Some(members) = members.get_mut(variable.group) {
                members.variables.push(index);
            }
        }
        for (index, group) in self.groups.iter().enumerate() {
            if let Some(members) = group.parent.and_then(|parent| members.get_mut(parent)) {
                members.groups.push(index);
            }
        }
        members
    }

    /// Calls `take` with each structure before the arrays: the root group, the datasets, the other groups, the collections.
    fn structures(
        &self,
        scales: &Scales,
        members: &[GroupMembers],
        addresses: &FileAddresses,
        mut take: impl FnMut(Vec<u8>),
    ) -> Option<()> {
        let mut size_bytes = 0;
        let mut take = |bytes: Vec<u8>| {
            size_bytes += bytes.len() as u64;
            take(bytes);
            (size_bytes <= MAX_HEADER_BYTES).then_some(())
        };
        let scales_of_dimensions = scale_objects(&self.dimensions, self.variables.len());
        let mut groups = self
            .groups
            .iter()
            .zip(members)
            .map(|(group, members)| self.group(group, members, &scales_of_dimensions, addresses));
        take(groups.next()??)?;
        for (index, variable) in self.variables.iter().enumerate() {
            let own = scales.of_variables.get(index).map_or(&[][..], Vec::as_slice);
            let scale = variable.coordinate_of.and_then(|dimension| scales.of_dimensions.get(dimension));
            let scale = scale.map_or(&[][..], Vec::as_slice);
            let attributes: Vec<_> = variable.attributes.iter().chain(scale).chain(own).collect();
            take(self.dataset(variable, at(&addresses.arrays, index), &attributes, addresses)?)?;
        }
        for (dimension, attributes) in self.dimensions.iter().zip(&scales.of_dimensions) {
            if dimension.variable.is_none() {
                take(scale(dimension, attributes, addresses)?)?;
            }
        }
        for group in groups {
            take(group?)?;
        }
        let address_of = |object: usize| at(&addresses.objects.datasets, object);
        self.heap.collections(address_of).try_for_each(take)
    }

    /// Returns the places of structures of these lengths, and of the arrays after them.
    fn addresses(&self, lengths: &[u64]) -> Option<FileAddresses> {
        let mut end = SUPERBLOCK_BYTES;
        let mut places = Vec::new();
        for length in lengths {
            places.push(end);
            end = end.checked_add(*length)?.checked_next_multiple_of(ALIGNMENT)?;
        }
        let without_variable = self.dimensions.iter().filter(|dimension| dimension.variable.is_none());
        let datasets = self.variables.len() + without_variable.count();
        let mut places = places.into_iter();
        let mut groups: Vec<u64> = places.by_ref().take(1).collect();
        let datasets: Vec<u64> = places.by_ref().take(datasets).collect();
        groups.extend(places.by_ref().take(self.groups.len().saturating_sub(1)));
        let collections: Vec<u64> = places.collect();
        let strings = end;
        end = end.checked_add(self.string_bytes)?.checked_next_multiple_of(ALIGNMENT)?;
        let mut arrays = vec![UNDEFINED_ADDRESS; self.variables.len()];
        for is_long in [false, true] {
            let alignment = if is_long { PAGE_BYTES } else { ALIGNMENT };
            for (variable, array) in self.variables.iter().zip(&mut arrays) {
                if variable.size_bytes > 0 && (variable.size_bytes >= PAGE_BYTES) == is_long {
                    *array = end.checked_next_multiple_of(alignment)?;
                    end = array.checked_add(variable.size_bytes)?;
                }
            }
        }
        // The library's offsets are signed.
        i64::try_from(end).ok()?;
        let objects = ObjectAddresses { groups, datasets };
        Some(FileAddresses { objects, collections, strings, arrays, end })
    }

    /// Returns the header of a group. Dimensions come first, with their coordinate variables, and groups come last.
    fn group(
        &self,
        group: &FileGroup,
        members: &GroupMembers,
        scales: &[usize],
        addresses: &FileAddresses,
    ) -> Option<Vec<u8>> {
        let dataset = |index: usize| LinkTarget::Address(at(&addresses.objects.datasets, index));
        let mut links: Vec<(&str, LinkTarget<'_>)> = Vec::new();
        for &index in &members.dimensions {
            links.push((&self.dimensions.get(index)?.name, dataset(*scales.get(index)?)));
        }
        for &index in &members.variables {
            let variable = self.variables.get(index)?;
            if variable.coordinate_of.is_none() {
                links.push((&variable.name, dataset(index)));
            }
        }
        for &index in &members.groups {
            let address = addresses.objects.of(FileObject::Group(index));
            links.push((&self.groups.get(index)?.name, LinkTarget::Address(address)));
        }
        let soft = group.soft_links.iter();
        links.extend(soft.map(|link| (link.name.as_str(), LinkTarget::Path(&link.target))));
        let mut all = vec![messages::link_info(links.len() as u64), messages::group_info()];
        for (order, (name, target)) in links.into_iter().enumerate() {
            all.push(messages::link(name, order as u64, target));
        }
        all.extend(attribute_messages(&group.attributes.iter().collect::<Vec<_>>(), addresses)?);
        object_header(&all)
    }

    fn dataset(
        &self,
        variable: &Variable,
        address: u64,
        attributes: &[&Attribute],
        addresses: &FileAddresses,
    ) -> Option<Vec<u8>> {
        let fill = variable.attributes.iter().find_map(|attribute| match &attribute.data {
            AttributeData::Bytes(bytes)
                if attribute.name == "_FillValue" && attribute.datatype == variable.datatype =>
            {
                Some(bytes.as_slice())
            }
            _ => None,
        });
        let mut all = vec![
            messages::dataspace(&Dataspace::from_shape(&variable.shape)),
            messages::datatype(&variable.datatype),
            messages::fill_value(Allocation::Early, fill),
            messages::contiguous_layout(address, variable.size_bytes),
        ];
        all.extend(attribute_messages(attributes, addresses)?);
        object_header(&all)
    }
}

/// Returns the scale of a dimension without a coordinate variable, as netCDF makes it: floats that are not stored.
fn scale(dimension: &Dimension, attributes: &[Attribute], addresses: &FileAddresses) -> Option<Vec<u8>> {
    let mut all = vec![
        messages::dataspace(&Dataspace::Simple(vec![dimension.length])),
        messages::datatype(&datatype::floating_point(8, 23, 127, ByteOrder::Big)),
        messages::fill_value(Allocation::Late, Some(&[0; SCALE_ELEMENT_BYTES as usize])),
        messages::contiguous_layout(UNDEFINED_ADDRESS, dimension.length.saturating_mul(SCALE_ELEMENT_BYTES)),
    ];
    all.extend(attribute_messages(&attributes.iter().collect::<Vec<_>>(), addresses)?);
    object_header(&all)
}

/// Returns the messages for the attributes of one object.
fn attribute_messages(attributes: &[&Attribute], addresses: &FileAddresses) -> Option<Vec<HeaderMessage>> {
    let mut all = vec![messages::attribute_info(u16::try_from(attributes.len()).ok()?)];
    for (order, attribute) in attributes.iter().enumerate() {
        let data = attribute.data.bytes(addresses);
        let Attribute { name, datatype, dataspace, .. } = attribute;
        all.push(messages::attribute(name, order as u16, datatype, dataspace, &data)?);
    }
    Some(all)
}

impl AttributeData {
    fn bytes(&self, addresses: &FileAddresses) -> Vec<u8> {
        match self {
            AttributeData::Bytes(bytes) => bytes.clone(),
            // Section IV.B: the length, the address of the collection, the object's number.
            AttributeData::InHeap(elements) => {
                let element = |(length, slot): &(u32, HeapSlot)| {
                    let address = at(&addresses.collections, slot.collection);
                    [&length.to_le_bytes()[..], &address.to_le_bytes(), &slot.number.to_le_bytes()].concat()
                };
                elements.iter().flat_map(element).collect()
            }
            AttributeData::Referrers(referrers) => {
                let referrer = |&(object, dimension): &(usize, u32)| {
                    let address = at(&addresses.objects.datasets, object);
                    [&address.to_le_bytes()[..], &dimension.to_le_bytes(), &[0; 4]].concat()
                };
                referrers.iter().flat_map(referrer).collect()
            }
            AttributeData::Reference(object) => addresses.objects.of(*object).to_le_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn variable(name: &str, size_bytes: u64) -> Variable {
        Variable {
            name: name.to_owned(),
            datatype: datatype::fixed_point(1, false, ByteOrder::Little),
            shape: vec![size_bytes],
            dimensions: vec![0],
            coordinate_of: None,
            attributes: Vec::new(),
            size_bytes,
            group: 0,
        }
    }

    fn laid_out(sizes: &[u64]) -> Option<LaidOut> {
        let variables = sizes.iter().map(|&size| variable(&format!("v{size}"), size)).collect();
        let dimensions = vec![Dimension { name: "x".to_owned(), length: 9, variable: None, group: 0 }];
        let (groups, heap) = (vec![FileGroup::root(Vec::new())], GlobalHeap::default());
        NcFile { groups, dimensions, variables, heap, string_bytes: 0 }.lay_out()
    }

    #[test]
    fn arrays_follow_the_header_and_long_ones_begin_at_pages() {
        let file = laid_out(&[5000, 0, 3, 1 << 40, 4095]).unwrap();
        let length = file.header.len() as u64;
        let page = (length + 8 + 4095).next_multiple_of(4096);
        let expected = [(length, 2), (length + 8, 4), (page, 0), (page + 8192, 3)];
        assert_eq!(file.arrays, expected);
        let end = file.header.get(28..36).unwrap();
        assert_eq!(end, (page + 8192 + (1 << 40)).to_le_bytes(), "the end of the file");
    }

    #[test]
    fn no_file_is_longer_than_offsets_can_express() {
        assert!(laid_out(&[i64::MAX as u64]).is_none());
        assert!(laid_out(&[u64::MAX, 8]).is_none());
    }
}
