//! The elements of an array of one axis, a range of rows at a time.
//!
//! Uses `array` and `hierarchy`. Numbers are read through the chunk cache, as the array's own file is. Strings are read a chunk at a
//! time, and the last chunk is kept. Invariant: all memory is reserved from the cache's limit.

use std::ops::Range;
use std::sync::Arc;

use super::cells::CellFormat;
use super::columns::ColumnArray;
use crate::array::{
    Blocking, ChunkOfStrings, Engine, ReadRequest, Readahead, Reader, Reservation, VariableArray,
};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::formats::Subject;
use crate::formats::virtual_file::current;
use crate::hierarchy::SharedArray;
use crate::metadata::conventions::no_data::NoData;
use crate::metadata::{ArrayMetadata, ByteOrder, fill_value};

/// The step in which memory is reserved.
const RESERVED_STEP_BYTES: u64 = 64 << 10;

/// An array of one axis.
pub struct Elements {
    /// Its document.
    pub metadata: Arc<ArrayMetadata>,
    /// How its elements are written.
    pub text: CellFormat,
    /// The values that mean missing data, as they are served.
    no_data: Vec<Vec<u8>>,
    source: ElementSource,
}

enum ElementSource {
    Shared(Arc<SharedArray>),
    Strings(Box<VariableArray>),
}

/// The elements of an array in a range of rows.
pub struct ElementValues {
    /// The bytes of all elements, one after the other.
    pub bytes: Vec<u8>,
    /// Where each element ends in `bytes`.
    pub ends: ElementOffsets,
    /// The reservation of their memory.
    pub _reservation: Reservation,
}

/// Where elements end.
pub enum ElementOffsets {
    /// All elements have this length.
    FixedLength(usize),
    /// The elements end at these offsets.
    At(Vec<usize>),
}

impl ElementValues {
    /// Returns the element of a row, counted from the first.
    pub fn get(&self, row: usize) -> &[u8] {
        let range = match &self.ends {
            ElementOffsets::FixedLength(length) => row * length..(row + 1) * length,
            ElementOffsets::At(ends) => {
                let start = row.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
                start..ends.get(row).copied().unwrap_or(start)
            }
        };
        self.bytes.get(range).unwrap_or_default()
    }
}

/// The state between two reads of elements that follow each other.
#[derive(Default)]
pub struct ElementReader {
    reader: Reader,
    /// The chunk that was read last, of an array of strings.
    chunk: Option<ChunkOfStrings>,
}

impl ElementReader {
    /// Returns a reader for blocks that follow each other.
    pub fn new() -> ElementReader {
        ElementReader { reader: Reader::new(Readahead::Chunks), chunk: None }
    }
}

impl Elements {
    /// Opens an array, and adds it to `arrays` if it has a file of bytes.
    pub fn open(
        subject: &Subject<'_>,
        part: ColumnArray,
        arrays: &mut Vec<Arc<SharedArray>>,
    ) -> Result<Elements> {
        let ColumnArray { path, metadata, text } = part;
        let source = if text == CellFormat::String {
            let store = subject.arrays.store_for(&path, &subject.audience);
            ElementSource::Strings(Box::new(VariableArray::open(&store, &path, &metadata)?))
        } else {
            let array = subject.surroundings.open_array_to_read(&path)?;
            arrays.push(array.clone());
            ElementSource::Shared(array)
        };
        let no_data = no_data(&metadata, subject.layout().byte_order);
        Ok(Elements { metadata, text, no_data, source })
    }

    /// Returns a number that very likely changes when an element changes. Reads no elements.
    pub fn version(&self) -> Result<u64> {
        match &self.source {
            ElementSource::Shared(array) => current(array)?.content_version(),
            ElementSource::Strings(array) => array.version(),
        }
    }

    /// Reads the elements of a range of rows.
    pub fn read(
        &self,
        engine: &Arc<Engine>,
        rows: Range<u64>,
        reader: &mut ElementReader,
        cancellation: &Cancellation,
    ) -> Result<ElementValues> {
        let mut reservation = Reservation::new(engine);
        let key = self.metadata.document_key.as_str();
        match (&self.source, self.text.item_bytes()) {
            (ElementSource::Shared(array), Some(item_bytes)) => {
                let length = (rows.end - rows.start).saturating_mul(item_bytes as u64);
                reserve(&mut reservation, length, key)?;
                let mut bytes = vec![0; length as usize];
                let start = rows.start.saturating_mul(item_bytes as u64);
                let range = start..start.saturating_add(length);
                let request =
                    ReadRequest { reader: &reader.reader, range, blocking: Blocking::Yes, cancellation };
                if length > 0 && !current(array)?.read_part(&request, &mut bytes)? {
                    return Err(Error::Stale { key: array.path.to_string() });
                }
                Ok(ElementValues {
                    bytes,
                    ends: ElementOffsets::FixedLength(item_bytes),
                    _reservation: reservation,
                })
            }
            (ElementSource::Strings(array), _) => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::new());
                array.read_range(engine, rows, &mut reader.chunk, &mut |element| {
                    bytes.extend_from_slice(element);
                    ends.push(bytes.len());
                    reserve_up_to(&mut reservation, bytes.len() + ends.len() * size_of::<usize>(), key)
                })?;
                Ok(ElementValues { bytes, ends: ElementOffsets::At(ends), _reservation: reservation })
            }
            (ElementSource::Shared(array), None) => Err(Error::Stale { key: array.path.to_string() }),
        }
    }

    /// Appends the text of the element in a row.
    pub fn push(&self, text: &mut Vec<u8>, element: &[u8], order: ByteOrder, row: u64) -> Result<()> {
        if self.no_data.iter().any(|value| value == element) {
            return Ok(());
        }
        self.text.push(text, element, order).map_err(|reason| {
            Error::unsupported(&self.metadata.document_key, format!("element {row}: {reason}"))
        })
    }
}

/// Returns the values that mean missing data, as they are served. NaN is left out, because it has a text of its own.
fn no_data(metadata: &ArrayMetadata, order: ByteOrder) -> Vec<Vec<u8>> {
    let data_type = &metadata.data_type;
    let values = NoData::read(metadata).values.into_iter().filter(|value| !value.is_nan(data_type));
    let served = values.map(|mut value| {
        if order == ByteOrder::Big {
            fill_value::swap(&mut value.bytes, &data_type.components().unwrap_or_default());
        }
        value.bytes
    });
    served.collect()
}

/// Grows the reservation to at least `bytes`, in steps. Fails with `TooLarge`.
pub fn reserve_up_to(reservation: &mut Reservation, bytes: usize, key: &str) -> Result<()> {
    let lacking = (bytes as u64).saturating_sub(reservation.bytes());
    if lacking == 0 || reservation.grow(lacking.max(RESERVED_STEP_BYTES)) {
        Ok(())
    } else {
        reserve(reservation, lacking, key)
    }
}

/// Grows the reservation by `bytes`. Fails with `TooLarge`.
pub fn reserve(reservation: &mut Reservation, bytes: u64, key: &str) -> Result<()> {
    if reservation.grow(bytes) {
        return Ok(());
    }
    let reason = format!(
        "a block of rows is held in memory, within the cache size of {} bytes",
        reservation.limit_bytes()
    );
    Err(Error::TooLarge { key: key.to_owned(), reason })
}
