//! Classic netCDF files: versions 1, 2 (64-bit offsets) and 5 (64-bit data).
//!
//! Spec: NetCDF Classic Format Specification. Uses its neighbours, and the crate `netcdf-reader` for the header. The elements are read from
//! where the header says: big-endian, a variable in one piece, or one piece for each record. The pieces of one record follow each other.
//!
//! A `char` variable is an array of texts: its last dimension becomes their length, unless variables of another type have it too.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use netcdf_reader::classic::data::compute_record_stride;
use netcdf_reader::{NcAttrValue, NcAttribute, NcFile, NcType, NcVariable};

use super::attributes::{AttributeValue, VariableAttributes};
use super::boxes::ElementBox;
use super::source_file::{Elements, SourceFile};
use super::variable::{Attribute, SourceGroup, SourceVariable, guarded, refused};
use crate::array::ByteOrder;
use crate::error::{Error, Result};
use crate::metadata::author::ElementType;

/// Records that lie this near to each other are read together.
const NEAR_BYTES: u64 = 4096;
/// The most bytes that are read at a time to get the pieces of near records.
const SPAN_BYTES: u64 = 4 << 20;

/// Opens a file.
pub fn open(file: File, name: &str) -> Result<SourceFile> {
    let size_bytes = file.metadata().map_err(|error| Error::store(name, "read", error))?.len();
    let storage = file.try_clone().map_err(|error| Error::store(name, "read", error))?;
    let parsed = guarded(name, || {
        let storage = hdf5_reader::FileStorage::from_file(storage).map_err(|error| refused(name, error))?;
        NcFile::from_storage(Arc::new(storage)).map_err(|error| refused(name, error))
    })?;
    let header = parsed.root_group().map_err(|error| refused(name, error))?;
    let record_bytes = compute_record_stride(&header.variables).map_err(|error| refused(name, error))?;
    let other_dimensions: Vec<&str> = header
        .variables
        .iter()
        .filter(|variable| variable.dtype != NcType::Char)
        .flat_map(|variable| variable.dimensions.iter().map(|dimension| dimension.name.as_str()))
        .collect();
    let (mut variables, mut pieces, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for variable in &header.variables {
        let piece = Pieces::new(variable, record_bytes)
            .filter(|piece| piece.end().is_some_and(|end| end <= size_bytes))
            .ok_or_else(|| refused(name, format!("it ends inside '{}'", variable.name)))?;
        let has_own_length =
            variable.dimensions.last().is_some_and(|last| !other_dimensions.contains(&last.name.as_str()));
        variables.push(source_variable(variable, has_own_length, name, &mut left_out)?);
        pieces.push(piece);
    }
    let root = SourceGroup { path: String::new(), attributes: plain(&header.attributes) };
    let elements =
        Box::new(ClassicElements { name: name.to_owned(), file, variables: variables.clone(), pieces });
    Ok(SourceFile { name: name.to_owned(), groups: vec![root], variables, left_out, elements })
}

fn source_variable(
    variable: &NcVariable,
    has_own_length: bool,
    name: &str,
    left_out: &mut Vec<String>,
) -> Result<SourceVariable> {
    let mut shape = variable.shape();
    let mut dimensions: Vec<String> =
        variable.dimensions.iter().map(|dimension| dimension.name.clone()).collect();
    let mut is_unlimited: Vec<bool> =
        variable.dimensions.iter().map(|dimension| dimension.is_unlimited).collect();
    let type_name = match variable.dtype {
        NcType::Byte => "int8".to_owned(),
        NcType::Short => ">i2".to_owned(),
        NcType::Int => ">i4".to_owned(),
        NcType::Int64 => ">i8".to_owned(),
        NcType::UByte => "uint8".to_owned(),
        NcType::UShort => ">u2".to_owned(),
        NcType::UInt => ">u4".to_owned(),
        NcType::UInt64 => ">u8".to_owned(),
        NcType::Float => ">f4".to_owned(),
        NcType::Double => ">f8".to_owned(),
        NcType::Char => match shape.last() {
            Some(&length) if has_own_length && length > 0 && is_unlimited.last() == Some(&false) => {
                shape.pop();
                dimensions.pop();
                is_unlimited.pop();
                format!("S{length}")
            }
            _ => "S1".to_owned(),
        },
        _ => {
            return Err(refused(
                name,
                format!("'{}' has a type that is not of classic netCDF", variable.name),
            ));
        }
    };
    let element = ElementType::parse(&type_name)
        .map_err(|error| refused(name, format!("'{}': {error}", variable.name)))?;
    let values = variable.attributes.iter().filter_map(value).collect();
    let VariableAttributes { attributes, missing, left_out: reason } =
        VariableAttributes::new(values, &element, &variable.name);
    left_out.extend(reason);
    Ok(SourceVariable {
        path: variable.name.clone(),
        dimensions,
        is_unlimited,
        shape,
        element,
        byte_order: ByteOrder::Big,
        chunks: None,
        attributes,
        missing,
    })
}

fn plain(attributes: &[NcAttribute]) -> Vec<Attribute> {
    attributes.iter().filter_map(value).map(|(name, value)| (name, value.json())).collect()
}

/// Returns the name and the value of an attribute; `None` for types that classic files do not have.
fn value(attribute: &NcAttribute) -> Option<(String, AttributeValue)> {
    let integers = |numbers: Vec<i128>| AttributeValue::Integers(numbers);
    let value = match &attribute.value {
        NcAttrValue::Chars(text) => AttributeValue::Text(text.clone()),
        NcAttrValue::Strings(texts) => AttributeValue::Texts(texts.clone()),
        NcAttrValue::Bytes(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::Shorts(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::Ints(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::Int64s(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::UBytes(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::UShorts(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::UInts(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::UInt64s(numbers) => integers(numbers.iter().map(|&number| number.into()).collect()),
        NcAttrValue::Floats(numbers) => {
            AttributeValue::Floats(numbers.iter().map(|&number| number.into()).collect())
        }
        NcAttrValue::Doubles(numbers) => AttributeValue::Floats(numbers.clone()),
        NcAttrValue::UserDefined { .. } => return None,
    };
    Some((attribute.name.clone(), value))
}

/// Where the pieces of a variable lie.
struct Pieces {
    is_record: bool,
    start: u64,
    /// How many pieces there are: one for each record, or one.
    count: u64,
    /// Bytes of a piece.
    bytes: u64,
    /// Bytes from one piece to the next.
    stride: u64,
}

impl Pieces {
    /// Finds the pieces; `None` if the numbers are too large.
    fn new(variable: &NcVariable, record_bytes: u64) -> Option<Self> {
        let item_bytes = variable.dtype.size().ok()? as u64;
        let lengths = variable.dimensions.iter().map(|dimension| dimension.size);
        let mut inner = lengths.skip(usize::from(variable.is_record_var));
        let bytes = inner.try_fold(item_bytes, u64::checked_mul)?;
        let count = match variable.dimensions.first() {
            Some(records) if variable.is_record_var => records.size,
            _ => 1,
        };
        Some(Pieces {
            is_record: variable.is_record_var,
            start: variable.data_offset,
            count,
            bytes,
            stride: record_bytes,
        })
    }

    /// Returns the offset after the last element; `None` if it is too large.
    fn end(&self) -> Option<u64> {
        if self.count == 0 || self.bytes == 0 {
            return Some(0);
        }
        let last = (self.count - 1).checked_mul(self.stride)?.checked_add(self.start)?;
        last.checked_add(self.bytes)
    }

    /// Returns whether pieces are read together.
    fn is_near(&self) -> bool {
        self.stride <= NEAR_BYTES || self.stride / 2 <= self.bytes
    }
}

struct ClassicElements {
    name: String,
    file: File,
    variables: Vec<SourceVariable>,
    pieces: Vec<Pieces>,
}

impl Elements for ClassicElements {
    fn read(&mut self, variable: usize, part: &ElementBox) -> Result<Vec<u8>> {
        let (Some(source), Some(pieces)) = (self.variables.get(variable), self.pieces.get(variable)) else {
            return Ok(Vec::new());
        };
        let mut bytes = Vec::new();
        if !pieces.is_record {
            self.read_piece(source, part, pieces.start, &mut bytes)?;
            return Ok(bytes);
        }
        let inner =
            SourceVariable { shape: source.shape.iter().skip(1).copied().collect(), ..source.clone() };
        let inner_part = ElementBox {
            start: part.start.iter().skip(1).copied().collect(),
            count: part.count.iter().skip(1).copied().collect(),
        };
        let (first, count) =
            (part.start.first().copied().unwrap_or(0), part.count.first().copied().unwrap_or(0));
        if pieces.is_near() && inner_part.count == inner.shape {
            self.read_near(pieces, first..first + count, &mut bytes)?;
            return Ok(bytes);
        }
        for record in first..first + count {
            self.read_piece(&inner, &inner_part, pieces.start + record * pieces.stride, &mut bytes)?;
        }
        Ok(bytes)
    }
}

impl ClassicElements {
    /// Reads a box of a piece that begins at an offset of the file.
    fn read_piece(
        &self,
        source: &SourceVariable,
        part: &ElementBox,
        offset: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let place = super::boxes::Destination::new(source, &source.shape, &vec![0; source.shape.len()]);
        let length = part.count.iter().fold(source.item_bytes(), |bytes, &count| bytes.saturating_mul(count));
        let start = bytes.len();
        bytes.resize(start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)), 0);
        let Some(out) = bytes.get_mut(start..) else { return Ok(()) };
        place.each_run(part, &mut |inside, run| {
            let Some(out) = out.get_mut(run) else { return Ok(()) };
            self.read_at(out, offset + inside)
        })
    }

    /// Reads whole pieces of records, with what lies between them.
    fn read_near(&self, pieces: &Pieces, records: std::ops::Range<u64>, bytes: &mut Vec<u8>) -> Result<()> {
        let step = (SPAN_BYTES / pieces.stride.max(1)).max(1);
        let mut span = Vec::new();
        for first in records.clone().step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let count = step.min(records.end - first);
            let length = (count - 1) * pieces.stride + pieces.bytes;
            span.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
            self.read_at(&mut span, pieces.start + first * pieces.stride)?;
            for record in 0..count {
                let start = usize::try_from(record * pieces.stride).unwrap_or(usize::MAX);
                let end = start.saturating_add(usize::try_from(pieces.bytes).unwrap_or(usize::MAX));
                bytes.extend_from_slice(span.get(start..end).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| Error::store(&self.name, "read", error))
    }
}
