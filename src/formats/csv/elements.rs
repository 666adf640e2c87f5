//! The elements of an array of one axis, a range of rows at a time.
//!
//! Uses `array` and `hierarchy`. Numbers are read as the array's own file is, through the chunk cache; strings a chunk at a
//! time, of which the last is kept. Invariant: all memory is reserved from the cache's limit.

use std::ops::Range;
use std::sync::Arc;

use super::cells::Text;
use super::columns::Part;
use crate::array::{
    Blocking, ChunkOfStrings, Engine, ReadRequest, Readahead, Reader, Reservation, VariableArray,
};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::formats::Subject;
use crate::formats::virtual_file::current;
use crate::hierarchy::SharedArray;
use crate::metadata::no_data::NoData;
use crate::metadata::{ArrayMetadata, ByteOrder, fill_value};

/// The step in which memory is reserved.
const RESERVED_STEP_BYTES: u64 = 64 << 10;

/// An array of one axis.
pub struct Elements {
    /// Its document.
    pub metadata: Arc<ArrayMetadata>,
    /// How its elements are written.
    pub text: Text,
    /// The elements that stand for missing data, as they are served.
    no_data: Vec<Vec<u8>>,
    from: From,
}

enum From {
    Shared(Arc<SharedArray>),
    Strings(Box<VariableArray>),
}

/// The elements of an array in a range of rows.
pub struct Values {
    /// One after the other.
    pub bytes: Vec<u8>,
    /// The end of each in `bytes`.
    pub ends: Ends,
    /// Their memory.
    pub _reservation: Reservation,
}

/// Where elements end.
pub enum Ends {
    /// All have this length.
    Every(usize),
    /// At these offsets.
    Of(Vec<usize>),
}

impl Values {
    /// The element of a row, counted from the first.
    pub fn get(&self, row: usize) -> &[u8] {
        let range = match &self.ends {
            Ends::Every(length) => row * length..(row + 1) * length,
            Ends::Of(ends) => {
                let start = row.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
                start..ends.get(row).copied().unwrap_or(start)
            }
        };
        self.bytes.get(range).unwrap_or_default()
    }
}

/// How far elements were read, and what is kept for those that follow.
#[derive(Default)]
pub struct ElementReader {
    reader: Reader,
    /// Of an array of strings: the chunk that was read last.
    chunk: Option<ChunkOfStrings>,
}

impl ElementReader {
    /// A reader that goes on from one block to the next.
    pub fn new() -> ElementReader {
        ElementReader { reader: Reader::new(Readahead::Chunks), chunk: None }
    }
}

impl Elements {
    /// Opens an array, and adds it to `arrays` if it has a file of bytes.
    pub fn open(subject: &Subject<'_>, part: Part, arrays: &mut Vec<Arc<SharedArray>>) -> Result<Elements> {
        let Part { path, metadata, text } = part;
        let from = if text == Text::String {
            let store = subject.arrays.store_for(&path, &subject.audience);
            From::Strings(Box::new(VariableArray::open(&store, &path, &metadata)?))
        } else {
            let array = subject.surroundings.open_array_to_read(&path)?;
            arrays.push(array.clone());
            From::Shared(array)
        };
        let no_data = no_data(&metadata, subject.layout().byte_order);
        Ok(Elements { metadata, text, no_data, from })
    }

    /// A number that changes, in all likelihood, when an element does. Reads none.
    pub fn version(&self) -> Result<u64> {
        match &self.from {
            From::Shared(array) => current(array)?.content_version(),
            From::Strings(array) => array.version(),
        }
    }

    /// The elements of a range of rows.
    pub fn read(
        &self,
        engine: &Arc<Engine>,
        rows: Range<u64>,
        reader: &mut ElementReader,
        cancellation: &Cancellation,
    ) -> Result<Values> {
        let mut held = Reservation::new(engine);
        let key = self.metadata.document_key.as_str();
        match (&self.from, self.text.item_bytes()) {
            (From::Shared(array), Some(item_bytes)) => {
                let length = (rows.end - rows.start).saturating_mul(item_bytes as u64);
                hold(&mut held, length, key)?;
                let mut bytes = vec![0; length as usize];
                let start = rows.start.saturating_mul(item_bytes as u64);
                let range = start..start.saturating_add(length);
                let request =
                    ReadRequest { reader: &reader.reader, range, blocking: Blocking::Yes, cancellation };
                if length > 0 && !current(array)?.read_part(&request, &mut bytes)? {
                    return Err(Error::Stale { key: array.path.to_string() });
                }
                Ok(Values { bytes, ends: Ends::Every(item_bytes), _reservation: held })
            }
            (From::Strings(array), _) => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::new());
                array.read_range(engine, rows, &mut reader.chunk, &mut |element| {
                    bytes.extend_from_slice(element);
                    ends.push(bytes.len());
                    hold_up_to(&mut held, bytes.len() + ends.len() * size_of::<usize>(), key)
                })?;
                Ok(Values { bytes, ends: Ends::Of(ends), _reservation: held })
            }
            (From::Shared(array), None) => Err(Error::Stale { key: array.path.to_string() }),
        }
    }

    /// Appends the text of an element, that of a row.
    pub fn push(&self, text: &mut Vec<u8>, element: &[u8], order: ByteOrder, row: u64) -> Result<()> {
        if self.no_data.iter().any(|value| value == element) {
            return Ok(());
        }
        self.text.push(text, element, order).map_err(|reason| {
            Error::unsupported(&self.metadata.document_key, format!("element {row}: {reason}"))
        })
    }
}

/// The elements of an array that stand for missing data, as they are served. NaN has a text of its own.
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

/// Reserves what lacks to so many bytes, in steps. Fails with `TooLarge`.
pub fn hold_up_to(held: &mut Reservation, bytes: usize, key: &str) -> Result<()> {
    let lacking = (bytes as u64).saturating_sub(held.bytes());
    if lacking == 0 || held.grow(lacking.max(RESERVED_STEP_BYTES)) {
        Ok(())
    } else {
        hold(held, lacking, key)
    }
}

/// Reserves so many bytes more. Fails with `TooLarge`.
pub fn hold(held: &mut Reservation, bytes: u64, key: &str) -> Result<()> {
    if held.grow(bytes) {
        return Ok(());
    }
    let reason =
        format!("a block of rows is held in memory, within the cache size of {} bytes", held.limit_bytes());
    Err(Error::TooLarge { key: key.to_owned(), reason })
}
