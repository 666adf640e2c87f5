//! What the file has of each array: its own bytes, or elements in another form.
//!
//! Uses `hierarchy`, `metadata` and `array` through the subject, and `nc`. Reads no elements.

use std::sync::Arc;

use super::dialect::Dialect;
use super::elements::{ElementPart, ElementSource, PartForm, VariableForm};
use super::walk::WalkedArray;
use crate::array::{Order, VariableArray};
use crate::error::{Error, Result};
use crate::formats::Subject;
use crate::formats::nc::contents::{element_type, is_companionable};
use crate::formats::nc::hdf5::datatype::{self, CompoundMember};
use crate::hierarchy::SharedArray;
use crate::metadata::data_type::Field;
use crate::metadata::{DataType, VariableLength};

/// What the file has of an array.
pub struct ArrayContent {
    /// The type of its elements.
    pub datatype: Vec<u8>,
    /// Where its elements come from.
    pub elements: ContentSource,
}

/// Where elements come from.
pub enum ContentSource {
    /// The bytes of the array's own file.
    Own(Arc<SharedArray>),
    /// Elements that are read when the file is made.
    Read(ElementSource),
}

/// Returns what the file has of an array; `None` if HDF5 cannot express it.
pub fn array_content(
    subject: &Subject<'_>,
    dialect: Dialect,
    walked: &WalkedArray,
) -> Result<Option<ArrayContent>> {
    let metadata = &walked.metadata;
    match &metadata.data_type {
        DataType::VariableLength(kind) => variable_content(subject, dialect, walked, kind),
        DataType::FixedLengthUtf32(_) => {
            let is_of_references = dialect.is_of_references(&metadata.attributes);
            let form = if is_of_references { PartForm::Reference } else { PartForm::Text };
            let size = metadata.data_type.item_size().unwrap_or(0);
            let parts = vec![ElementPart { source: 0..size, form }];
            fixed_content(subject, walked, ConvertedType { datatype: part_type(form), parts })
        }
        DataType::Struct(fields) if fields.iter().any(|field| is_text(&field.data_type)) => {
            match converted_struct(subject, dialect, walked, fields) {
                Some(converted) => fixed_content(subject, walked, converted),
                None => Ok(None),
            }
        }
        _ => own_content(subject, dialect, walked),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedLengthUtf32(_))
}

fn part_type(form: PartForm) -> Vec<u8> {
    match form {
        PartForm::Reference => datatype::object_reference(),
        PartForm::Text | PartForm::Same => datatype::variable_string(),
    }
}

/// Returns what a failure to open an array means: `None` if zarrfs cannot read the array at all.
fn readable<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error @ (Error::Store { .. } | Error::TimedOut { .. } | Error::Cancelled { .. })) => Err(error),
        Err(_) => Ok(None),
    }
}

fn variable_content(
    subject: &Subject<'_>,
    dialect: Dialect,
    walked: &WalkedArray,
    kind: &VariableLength,
) -> Result<Option<ArrayContent>> {
    let metadata = &walked.metadata;
    let (form, datatype) = match kind {
        VariableLength::Utf8 if dialect.is_of_references(&metadata.attributes) => {
            (VariableForm::References, datatype::object_reference())
        }
        VariableLength::Utf8 => (VariableForm::Text, datatype::variable_string()),
        VariableLength::Bytes => (VariableForm::Bytes, datatype::sequence_of_bytes()),
        VariableLength::Other(_) => return Ok(None),
    };
    // These elements are read in C order.
    if subject.layout().order == Order::F && metadata.shape.len() > 1 {
        return Ok(None);
    }
    let store = subject.arrays.store_for(&walked.path, &subject.audience);
    let array = readable(VariableArray::open(&store, &walked.path, metadata))?;
    Ok(array.map(|array| {
        let elements = ContentSource::Read(ElementSource::Variable(Box::new(array), form));
        ArrayContent { datatype, elements }
    }))
}

/// A type whose elements are converted.
struct ConvertedType {
    datatype: Vec<u8>,
    parts: Vec<ElementPart>,
}

/// Returns the type of structs with strings. Padding goes.
fn converted_struct(
    subject: &Subject<'_>,
    dialect: Dialect,
    walked: &WalkedArray,
    fields: &[Field],
) -> Option<ConvertedType> {
    let order = subject.layout().byte_order;
    let (mut source, mut end) = (0, 0);
    let (mut members, mut parts) = (Vec::new(), Vec::new());
    for field in fields {
        let size = field.size()?;
        let range = source..source + size;
        source = range.end;
        if field.name.is_empty() {
            continue;
        }
        if field.name.contains('\0') || size == 0 {
            return None;
        }
        let (form, datatype) = match (is_text(&field.data_type), field.shape.is_empty()) {
            (true, true) => {
                let is_reference = dialect.is_reference_field(&walked.metadata.attributes, &field.name);
                let form = if is_reference { PartForm::Reference } else { PartForm::Text };
                (form, part_type(form))
            }
            (true, false) => return None,
            (false, _) => {
                let datatype = match &field.data_type {
                    DataType::Bool if dialect != Dialect::Netcdf => datatype::truth_value(),
                    data_type => datatype::for_type(data_type, order)?,
                };
                (PartForm::Same, datatype::array_of(datatype, &field.shape, size)?)
            }
        };
        let part = ElementPart { source: range, form };
        members.push(CompoundMember { name: &field.name, offset: end, datatype });
        end += part.file_bytes();
        parts.push(part);
    }
    let datatype = datatype::compound(u32::try_from(end).ok()?, &members)?;
    Some(ConvertedType { datatype, parts })
}

fn fixed_content(
    subject: &Subject<'_>,
    walked: &WalkedArray,
    converted: ConvertedType,
) -> Result<Option<ArrayContent>> {
    let metadata = &walked.metadata;
    let (Some(item_bytes @ 1..), Some(size_bytes)) = (metadata.data_type.item_size(), metadata.flat_size())
    else {
        return Ok(None);
    };
    let array = readable(subject.surroundings.open_array_to_read(&walked.path))?;
    Ok(array.map(|array| {
        let ConvertedType { datatype, parts } = converted;
        let order = subject.layout().byte_order;
        let source = ElementSource::Fixed { array, item_bytes, size_bytes, order, parts };
        ArrayContent { datatype, elements: ContentSource::Read(source) }
    }))
}

fn own_content(
    subject: &Subject<'_>,
    dialect: Dialect,
    walked: &WalkedArray,
) -> Result<Option<ArrayContent>> {
    let (metadata, order) = (&walked.metadata, subject.layout().byte_order);
    let datatype = match (dialect, &metadata.data_type) {
        (Dialect::Netcdf, _) => element_type(metadata, order).filter(|_| is_companionable(metadata)),
        (_, DataType::Bool) => Some(datatype::truth_value()),
        (_, data_type) => datatype::for_type(data_type, order),
    };
    let (Some(datatype), Some(_)) = (datatype, metadata.flat_size()) else { return Ok(None) };
    let array = readable(subject.surroundings.open_array(&walked.path))?;
    Ok(array.map(|array| ArrayContent { datatype, elements: ContentSource::Own(array) }))
}
