//! The types of datasets, and their elements.
//!
//! Spec: HDF5 File Format Specification, "Datatype Message". Uses its neighbours. Numbers keep their byte order. Texts of any length become
//! texts of the longest one's length, in UTF-32, as in xarray. An enumeration keeps its numbers, and its names become CF's `flag_meanings`.

use half::f16;
use hdf5_reader::datatype_api::{StringSize, VarLenKind};
use hdf5_reader::{
    ByteOrder as Hdf5ByteOrder, Dataset, Datatype, EnumMember, H5Type, SliceInfo, SliceInfoElem,
};

use super::found::unsupported;
use crate::array::ByteOrder;
use crate::error::Result;
use crate::formats::sources::attributes::AttributeValue;
use crate::formats::sources::boxes::{ElementBox, parts};
use crate::formats::sources::source_file::Elements;
use crate::formats::sources::variable::{SourceVariable, guarded, refused};
use crate::metadata::DataType;
use crate::metadata::author::ElementType;

/// The longest text, in characters.
const MAX_CHARACTERS: usize = 1 << 16;
/// Bytes of references to texts that are read at a time.
const TEXT_BOX_BYTES: u64 = 1 << 20;

/// How a dataset's elements become an array's.
pub struct StoredType {
    /// The type in the array.
    pub element: ElementType,
    /// The byte order in which the elements are read.
    pub byte_order: ByteOrder,
    /// Whether an element refers to a text.
    is_text: bool,
    /// The names of an enumeration's numbers.
    members: Vec<(String, i128)>,
}

/// One dataset.
pub struct Hdf5Elements {
    /// The dataset.
    pub dataset: Dataset,
    /// Its type.
    pub stored: StoredType,
    /// Whether the last axis of the dataset is the length of texts.
    pub is_joined: bool,
}

/// The datasets of a file.
pub struct Hdf5File {
    /// The name that errors have.
    pub name: String,
    /// The datasets that are variables.
    pub datasets: Vec<Hdf5Elements>,
}

/// An element of a size that is known when this is compiled.
#[derive(Clone)]
struct Fixed<const BYTES: usize>([u8; BYTES]);

/// An element of another size.
#[derive(Clone)]
struct Sized(Vec<u8>);

impl<const BYTES: usize> H5Type for Fixed<BYTES> {
    fn hdf5_type() -> Datatype {
        Datatype::Opaque { size: u32::try_from(BYTES).unwrap_or(u32::MAX), tag: String::new() }
    }

    fn from_bytes(bytes: &[u8], _: &Datatype) -> hdf5_reader::error::Result<Self> {
        match bytes.first_chunk() {
            Some(bytes) => Ok(Fixed(*bytes)),
            None => Err(hdf5_reader::error::Error::InvalidData("an element is too short".to_owned())),
        }
    }

    fn element_size(_: &Datatype) -> usize {
        BYTES
    }

    fn decode_vec(raw: &[u8], _: &Datatype, count: usize) -> Option<hdf5_reader::error::Result<Vec<Self>>> {
        let (elements, _) = raw.as_chunks::<BYTES>();
        let elements = elements.get(..count)?;
        Some(Ok(elements.iter().map(|bytes| Fixed(*bytes)).collect()))
    }
}

impl H5Type for Sized {
    fn hdf5_type() -> Datatype {
        Datatype::Opaque { size: 1, tag: String::new() }
    }

    fn from_bytes(bytes: &[u8], _: &Datatype) -> hdf5_reader::error::Result<Self> {
        Ok(Sized(bytes.to_vec()))
    }

    fn element_size(datatype: &Datatype) -> usize {
        hdf5_reader::dtype_element_size(datatype).unwrap_or(0)
    }
}

impl StoredType {
    /// Returns the type of a dataset. Reads all texts of a dataset of texts, to find the longest.
    pub fn of(dataset: &Dataset, path: &str, name: &str) -> Result<Self> {
        let plain = |type_name: String, byte_order, members| {
            let element = ElementType::parse(&type_name)
                .map_err(|error| refused(name, format!("'{path}': {error}")))?;
            Ok(StoredType { element, byte_order, is_text: false, members })
        };
        let other = |what: &str| Err(unsupported(name, path, what));
        match dataset.dtype() {
            Datatype::FixedPoint { .. } | Datatype::FloatingPoint { .. } => match number(dataset.dtype()) {
                Some((type_name, byte_order)) => plain(type_name, byte_order, Vec::new()),
                None => other("numbers of a size that Zarr lacks"),
            },
            Datatype::String { size: StringSize::Fixed(bytes), .. } if *bytes > 0 => {
                plain(format!("S{bytes}"), ByteOrder::Little, Vec::new())
            }
            Datatype::String { size: StringSize::Variable, .. }
            | Datatype::VarLen { kind: VarLenKind::String, .. } => {
                let characters = longest(dataset, path, name)?.max(1);
                let mut text = plain(format!("<U{characters}"), ByteOrder::Little, Vec::new())?;
                text.is_text = true;
                Ok(text)
            }
            Datatype::Enum { base, members } => match number(base) {
                Some((type_name, _)) if type_name == "int8" && is_bool(members) => {
                    plain("bool".to_owned(), ByteOrder::Little, Vec::new())
                }
                Some((type_name, byte_order)) => {
                    let members = members
                        .iter()
                        .filter_map(|member| Some((member.name.clone(), integer(&member.value, base)?)));
                    plain(type_name, byte_order, members.collect())
                }
                None => other("an enumeration that is not of integers"),
            },
            Datatype::Compound { size, fields } => match fields.as_slice() {
                [real, imaginary]
                    if real.name == "r"
                        && imaginary.name == "i"
                        && real.datatype == imaginary.datatype
                        && real.byte_offset == 0
                        && u64::from(imaginary.byte_offset) * 2 == u64::from(*size) =>
                {
                    match (number(&real.datatype), size) {
                        (Some((_, byte_order)), 8) => plain("complex64".to_owned(), byte_order, Vec::new()),
                        (Some((_, byte_order)), 16) => plain("complex128".to_owned(), byte_order, Vec::new()),
                        _ => other("a compound type"),
                    }
                }
                _ => other("a compound type"),
            },
            Datatype::Opaque { size, .. } if *size > 0 => {
                plain(format!("V{size}"), ByteOrder::Little, Vec::new())
            }
            Datatype::VarLen { .. } => other("lists of different lengths"),
            Datatype::Array { .. } => other("elements that are arrays"),
            Datatype::Reference { .. } => other("references to other objects"),
            _ => other("a type that Zarr lacks"),
        }
    }

    /// Returns the names of an enumeration as attributes of CF.
    pub fn flags(&self) -> Vec<(String, AttributeValue)> {
        if self.members.is_empty() {
            return Vec::new();
        }
        let names: Vec<String> = self.members.iter().map(|(name, _)| name.replace(' ', "_")).collect();
        let values = self.members.iter().map(|(_, value)| *value).collect();
        vec![
            ("flag_values".to_owned(), AttributeValue::Integers(values)),
            ("flag_meanings".to_owned(), AttributeValue::Text(names.join(" "))),
        ]
    }
}

/// Returns the name and the byte order of a type of numbers; `None` if NumPy has none.
fn number(datatype: &Datatype) -> Option<(String, ByteOrder)> {
    let (kind, size, byte_order) = match datatype {
        Datatype::FixedPoint { size, signed: true, byte_order } => ("int", size, byte_order),
        Datatype::FixedPoint { size, signed: false, byte_order } => ("uint", size, byte_order),
        Datatype::FloatingPoint { size, byte_order } => ("float", size, byte_order),
        _ => return None,
    };
    let is_known = matches!((kind, size), ("float", 2 | 4 | 8) | ("int" | "uint", 1 | 2 | 4 | 8));
    let byte_order = match byte_order {
        Hdf5ByteOrder::BigEndian => ByteOrder::Big,
        _ => ByteOrder::Little,
    };
    is_known.then(|| (format!("{kind}{}", u32::from(*size) * 8), byte_order))
}

/// Returns whether an enumeration is h5py's of booleans.
fn is_bool(members: &[EnumMember]) -> bool {
    let has =
        |name: &str, value: u8| members.iter().any(|member| member.name == name && member.value == [value]);
    members.len() == 2 && has("FALSE", 0) && has("TRUE", 1)
}

fn integer(bytes: &[u8], base: &Datatype) -> Option<i128> {
    Some(match number(base)?.0.as_str() {
        "int8" => i8::from_bytes(bytes, base).ok()?.into(),
        "uint8" => u8::from_bytes(bytes, base).ok()?.into(),
        "int16" => i16::from_bytes(bytes, base).ok()?.into(),
        "uint16" => u16::from_bytes(bytes, base).ok()?.into(),
        "int32" => i32::from_bytes(bytes, base).ok()?.into(),
        "uint32" => u32::from_bytes(bytes, base).ok()?.into(),
        "int64" => i64::from_bytes(bytes, base).ok()?.into(),
        "uint64" => u64::from_bytes(bytes, base).ok()?.into(),
        _ => return None,
    })
}

/// Returns numbers of 16 bits.
pub fn small_floats(bytes: &[u8], byte_order: Hdf5ByteOrder) -> Vec<f64> {
    let (numbers, _) = bytes.as_chunks::<2>();
    let number = |bytes: &[u8; 2]| match byte_order {
        Hdf5ByteOrder::BigEndian => f16::from_be_bytes(*bytes),
        _ => f16::from_le_bytes(*bytes),
    };
    numbers.iter().map(|bytes| number(bytes).to_f64()).collect()
}

/// Makes the last axis of arrays of single characters the length of texts, unless arrays of another type have that dimension too.
pub fn join_characters(
    variables: &mut [SourceVariable],
    datasets: &mut [Hdf5Elements],
    name: &str,
) -> Result<()> {
    let is_character =
        |variable: &SourceVariable| variable.element.data_type == DataType::NullTerminatedBytes(1);
    let others: Vec<String> = variables
        .iter()
        .filter(|variable| !is_character(variable))
        .flat_map(|variable| variable.dimensions.clone())
        .collect();
    for (variable, dataset) in variables.iter_mut().zip(datasets) {
        let (Some(&length), Some(dimension)) = (variable.shape.last(), variable.dimensions.last()) else {
            continue;
        };
        let is_unlimited = variable.is_unlimited.last() == Some(&true);
        if !is_character(variable) || length == 0 || is_unlimited || others.contains(dimension) {
            continue;
        }
        variable.element = ElementType::parse(&format!("S{length}"))
            .map_err(|error| refused(name, format!("'{}': {error}", variable.path)))?;
        variable.shape.pop();
        variable.dimensions.pop();
        variable.is_unlimited.pop();
        if let Some(chunks) = &mut variable.chunks {
            chunks.pop();
        }
        dataset.is_joined = true;
    }
    Ok(())
}

/// Returns the length of the longest text of a dataset in characters.
fn longest(dataset: &Dataset, path: &str, name: &str) -> Result<usize> {
    let references = SourceVariable {
        path: path.to_owned(),
        dimensions: Vec::new(),
        is_unlimited: Vec::new(),
        shape: dataset.shape().to_vec(),
        element: ElementType::parse("V16").map_err(|error| refused(name, error))?,
        byte_order: ByteOrder::Little,
        chunks: dataset.chunks().map(|chunks| chunks.iter().map(|&length| length.into()).collect()),
        attributes: Vec::new(),
        missing: None,
    };
    let mut longest = 0;
    for part in parts(&references, TEXT_BOX_BYTES) {
        for text in texts(dataset, &part, path, name)? {
            longest = longest.max(text.chars().count());
        }
        if longest > MAX_CHARACTERS {
            return Err(unsupported(name, path, &format!("a text of more than {MAX_CHARACTERS} characters")));
        }
    }
    Ok(longest)
}

/// Reads texts of any length.
fn texts(dataset: &Dataset, part: &ElementBox, path: &str, name: &str) -> Result<Vec<String>> {
    let size = dataset.vlen_reference_size();
    let references = read_bytes(dataset, part, size, path, name)?;
    let text = |reference: &[u8]| {
        // A text that was never written has no address.
        if reference.iter().all(|&byte| byte == 0) {
            return Ok(String::new());
        }
        let bytes = dataset
            .resolve_vlen_reference_bytes(reference, 1)
            .map_err(|error| refused(name, format!("'{path}': {error}")))?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        let text = std::str::from_utf8(bytes.get(..end).unwrap_or_default());
        text.map(str::to_owned).map_err(|_| unsupported(name, path, "a text that is not UTF-8"))
    };
    references.chunks_exact(size.max(1)).map(text).collect()
}

/// Reads elements as they are stored.
fn read_bytes(
    dataset: &Dataset,
    part: &ElementBox,
    item_bytes: usize,
    path: &str,
    name: &str,
) -> Result<Vec<u8>> {
    part.check_size(item_bytes as u64, path.trim_start_matches('/'), name)?;
    let slice = |(&start, &count): (&u64, &u64)| SliceInfoElem::Slice { start, end: start + count, step: 1 };
    let selection = SliceInfo { selections: part.start.iter().zip(&part.count).map(slice).collect() };
    macro_rules! fixed {
        ($size:literal) => {
            dataset.read_slice::<Fixed<$size>>(&selection).map(|elements| {
                let mut bytes = Vec::with_capacity(elements.len().saturating_mul(item_bytes));
                elements.iter().for_each(|element| bytes.extend_from_slice(&element.0));
                bytes
            })
        };
    }
    let read = match item_bytes {
        1 => fixed!(1),
        2 => fixed!(2),
        4 => fixed!(4),
        8 => fixed!(8),
        16 => fixed!(16),
        _ => dataset
            .read_slice::<Sized>(&selection)
            .map(|elements| elements.iter().flat_map(|element| element.0.iter().copied()).collect()),
    };
    read.map_err(|error| refused(name, format!("'{path}': {error}")))
}

impl Elements for Hdf5File {
    fn read(&mut self, variable: usize, part: &ElementBox) -> Result<Vec<u8>> {
        let Some(elements) = self.datasets.get(variable) else { return Ok(Vec::new()) };
        let (name, path) = (self.name.as_str(), elements.dataset.name());
        guarded(name, || {
            let item_bytes = elements.stored.element.data_type.item_size().unwrap_or(1);
            if elements.stored.is_text {
                let mut bytes = Vec::new();
                for text in texts(&elements.dataset, part, path, name)? {
                    let start = bytes.len();
                    bytes.extend(text.chars().flat_map(|character| u32::from(character).to_le_bytes()));
                    bytes.resize(start + item_bytes, 0);
                }
                return Ok(bytes);
            }
            if elements.is_joined {
                let length = elements.dataset.shape().last().copied().unwrap_or(1);
                let mut part = part.clone();
                part.start.push(0);
                part.count.push(length);
                return read_bytes(&elements.dataset, &part, 1, path, name);
            }
            read_bytes(&elements.dataset, part, item_bytes, path, name)
        })
    }
}
