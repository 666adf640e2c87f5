//! The text of a table: an index of blocks of rows, made in one pass, and blocks that are made again when they are read.
//!
//! Uses `array`, `hierarchy`, and its neighbours.
//!
//! Invariants: memory has one block and one chunk of each column of strings, all reserved from the cache's limit. If a block has another
//! length than in the index, its elements have changed: the read fails with ESTALE, and the next lookup makes the index again.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;

use super::cells::{self, CellFormat};
use super::columns::{ColumnArray, NullableArray, Table};
use super::elements::{ElementOffsets, ElementReader, ElementValues, Elements, reserve, reserve_up_to};
use crate::array::{Blocking, Engine, Reservation};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::formats::virtual_file::{Generated, Segment, VirtualFile};
use crate::formats::{Companion, Subject, VersionedFile};
use crate::hierarchy::SharedArray;
use crate::metadata::ByteOrder;
use crate::metadata::conventions::no_data::NoData;

/// The longest file.
pub(super) const MAX_FILE_BYTES: u64 = 8 << 30;

/// Rows of a block.
const BLOCK_ROWS: u64 = 1024;

/// The file of a table, before its text is made.
pub struct TableFile {
    columns: Arc<OpenColumns>,
    /// The version of the documents that define the columns.
    version: u64,
}

/// The open columns of a table.
struct OpenColumns {
    engine: Arc<Engine>,
    /// The path of the group.
    path: String,
    order: ByteOrder,
    rows: u64,
    columns: Vec<OpenColumn>,
    /// Arrays that are read through the chunk cache.
    arrays: Vec<Arc<SharedArray>>,
}

struct OpenColumn {
    name: String,
    values: NullableElements,
    categories: Option<NullableElements>,
}

/// Elements, which are missing where the mask is true.
struct NullableElements {
    values: Elements,
    mask: Option<Elements>,
}

/// The state between two blocks.
struct ReadProgress {
    /// The reader of each array of each column.
    readers: Vec<ElementReader>,
    block: Option<TableBlock>,
}

/// A block of rows as text.
struct TableBlock {
    number: usize,
    text: Vec<u8>,
    _reservation: Reservation,
}

/// The texts of the categories of a column.
struct CategoryTexts {
    texts: ElementValues,
    count: usize,
}

/// The rows of a table as bytes of a file.
struct TableRows {
    columns: Arc<OpenColumns>,
    /// The categories of each column, if it has any.
    categories: Vec<Option<CategoryTexts>>,
    /// The offset of each block, and the end of the last one.
    offsets: Vec<u64>,
    progress: Mutex<ReadProgress>,
    _reservation: Reservation,
}

impl TableFile {
    /// Opens the arrays of a table.
    pub fn open(subject: &Subject<'_>, table: Table) -> Result<TableFile> {
        let mut version = DefaultHasher::new();
        let (mut columns, mut arrays) = (Vec::new(), Vec::new());
        for column in table.columns {
            column.name.hash(&mut version);
            for part in column.parts() {
                part.path.hash(&mut version);
                for (member, value) in part.metadata.document.iter().filter(|(name, _)| *name != "attributes")
                {
                    (member, value.to_string()).hash(&mut version);
                }
                for value in NoData::read(&part.metadata).values {
                    value.bytes.hash(&mut version);
                }
            }
            let mut open = |part: ColumnArray| Elements::open(subject, part, &mut arrays);
            let mut open_both = |nullable: NullableArray| -> Result<NullableElements> {
                let values = open(nullable.values)?;
                Ok(NullableElements { values, mask: nullable.mask.map(&mut open).transpose()? })
            };
            columns.push(OpenColumn {
                values: open_both(column.values)?,
                categories: column.categories.map(open_both).transpose()?,
                name: column.name,
            });
        }
        let columns = OpenColumns {
            engine: subject.arrays.engine().clone(),
            path: subject.path.to_owned(),
            order: subject.arrays.layout().byte_order,
            rows: table.rows,
            columns,
            arrays,
        };
        Ok(TableFile { columns: Arc::new(columns), version: version.finish() })
    }
}

impl Companion for TableFile {
    fn version(&self) -> Result<u64> {
        let mut version = DefaultHasher::new();
        self.version.hash(&mut version);
        for elements in self.columns.columns.iter().flat_map(OpenColumn::all_arrays) {
            elements.version()?.hash(&mut version);
        }
        Ok(version.finish())
    }

    fn make(&self) -> Result<VersionedFile> {
        let version = self.version()?;
        let columns = &self.columns;
        let categories =
            columns.columns.iter().map(|column| columns.categories(column)).collect::<Result<_>>()?;
        let mut rows = TableRows {
            columns: columns.clone(),
            categories,
            offsets: vec![0],
            progress: Mutex::new(ReadProgress::new(columns)),
            _reservation: columns.reservation(columns.rows.div_ceil(BLOCK_ROWS) * size_of::<u64>() as u64)?,
        };
        let header = columns.header()?;
        rows.find_blocks(header.len() as u64)?;
        let file = VirtualFile::new([Segment::Bytes(header), Segment::Generated(Arc::new(rows))]);
        Ok(VersionedFile { version, file })
    }
}

impl NullableElements {
    fn arrays(&self) -> impl Iterator<Item = &Elements> {
        [&self.values].into_iter().chain(&self.mask)
    }
}

impl OpenColumn {
    fn all_arrays(&self) -> impl Iterator<Item = &Elements> {
        self.values.arrays().chain(self.categories.iter().flat_map(NullableElements::arrays))
    }
}

/// Returns the element in a row, unless it is missing.
fn element_at<'a>(
    place: usize,
    elements: Option<&'a ElementValues>,
    mask: Option<&ElementValues>,
) -> Option<&'a [u8]> {
    let is_missing = mask.is_some_and(|mask| mask.get(place) != [0]);
    elements.filter(|_| !is_missing).map(|elements| elements.get(place))
}

impl OpenColumns {
    fn reservation(&self, bytes: u64) -> Result<Reservation> {
        let mut reservation = Reservation::new(&self.engine);
        reserve(&mut reservation, bytes, &self.path)?;
        Ok(reservation)
    }

    fn header(&self) -> Result<Vec<u8>> {
        let mut header = Vec::new();
        for column in &self.columns {
            if !header.is_empty() {
                header.push(b',');
            }
            let pushed = cells::push_string(&mut header, &column.name);
            pushed.map_err(|reason| {
                Error::unsupported(&self.path, format!("the name of a column: {reason}"))
            })?;
        }
        header.push(b'\n');
        Ok(header)
    }

    /// Reads the categories of a column, if it has any.
    fn categories(&self, column: &OpenColumn) -> Result<Option<CategoryTexts>> {
        let Some(NullableElements { values: categories, mask }) = &column.categories else { return Ok(None) };
        let count = categories.metadata.shape.first().copied().unwrap_or(0);
        let never = Cancellation::never();
        let read = |elements: &Elements| {
            elements.read(&self.engine, 0..count, &mut ElementReader::default(), &never)
        };
        let elements = read(categories)?;
        let mask = mask.as_ref().map(read).transpose()?;
        let mut reservation = Reservation::new(&self.engine);
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for row in 0..count {
            if let Some(element) = element_at(row as usize, Some(&elements), mask.as_ref()) {
                categories.push(&mut bytes, element, self.order, row)?;
            }
            ends.push(bytes.len());
            let used = bytes.len() + ends.len() * size_of::<usize>();
            reserve_up_to(&mut reservation, used, &categories.metadata.document_key)?;
        }
        let texts = ElementValues { bytes, ends: ElementOffsets::At(ends), _reservation: reservation };
        Ok(Some(CategoryTexts { texts, count: count as usize }))
    }

    /// Returns the text of the category with a code.
    fn category<'a>(
        &self,
        column: &OpenColumn,
        categories: &'a CategoryTexts,
        code: &[u8],
        row: u64,
    ) -> Result<&'a [u8]> {
        let codes = &column.values.values;
        let code = match codes.text {
            CellFormat::Signed(_) => match usize::try_from(cells::signed(code, self.order)) {
                Ok(code) => code,
                Err(_) => return Ok(&[]),
            },
            _ => usize::try_from(cells::unsigned(code, self.order)).unwrap_or(usize::MAX),
        };
        if code < categories.count {
            return Ok(categories.texts.get(code));
        }
        let reason = format!("element {row}: code {code} of {} categories", categories.count);
        Err(Error::corrupt(&codes.metadata.document_key, reason))
    }
}

impl ReadProgress {
    fn new(columns: &OpenColumns) -> ReadProgress {
        let arrays = columns.columns.iter().flat_map(|column| column.values.arrays());
        let readers = arrays.map(|_| ElementReader::new()).collect();
        ReadProgress { readers, block: None }
    }
}

impl TableRows {
    /// Goes through all rows to find where blocks begin.
    fn find_blocks(&mut self, header_bytes: u64) -> Result<()> {
        let mut end = 0u64;
        let never = Cancellation::never();
        for number in 0..self.columns.rows.div_ceil(BLOCK_ROWS) {
            let block = self.block(number, &mut self.progress.lock(), &never)?;
            end = end.saturating_add(block.text.len() as u64);
            if end.saturating_add(header_bytes) > MAX_FILE_BYTES {
                let reason = format!("a table of more than {MAX_FILE_BYTES} bytes as text");
                return Err(Error::TooLarge { key: self.columns.path.clone(), reason });
            }
            self.offsets.push(end);
        }
        // The next read begins at the start of the file again.
        self.progress = Mutex::new(ReadProgress::new(&self.columns));
        Ok(())
    }

    /// Makes a block of rows.
    fn block(
        &self,
        number: u64,
        progress: &mut ReadProgress,
        cancellation: &Cancellation,
    ) -> Result<TableBlock> {
        let columns = &self.columns;
        let first = number * BLOCK_ROWS;
        let rows = first..columns.rows.min(first + BLOCK_ROWS);
        // The memory of the last block is freed before the new one takes memory.
        progress.block = None;
        let mut values = Vec::new();
        let arrays = columns.columns.iter().flat_map(|column| column.values.arrays());
        for (elements, reader) in arrays.zip(&mut progress.readers) {
            values.push(elements.read(&columns.engine, rows.clone(), reader, cancellation)?);
        }
        let mut text = Vec::new();
        let mut reservation = Reservation::new(&columns.engine);
        for row in rows.clone() {
            let mut values = values.iter();
            for (place, (column, categories)) in columns.columns.iter().zip(&self.categories).enumerate() {
                if place > 0 {
                    text.push(b',');
                }
                let elements = values.next();
                let mask = column.values.mask.as_ref().and_then(|_| values.next());
                let element = element_at((row - rows.start) as usize, elements, mask);
                match (element, categories) {
                    (None, _) => {}
                    (Some(element), None) => {
                        column.values.values.push(&mut text, element, columns.order, row)?;
                    }
                    (Some(code), Some(categories)) => {
                        text.extend_from_slice(columns.category(column, categories, code, row)?);
                    }
                }
            }
            // Programs skip empty lines, so a row without text gets an empty string.
            if text.last().is_none_or(|&last| last == b'\n') {
                text.extend_from_slice(b"\"\"");
            }
            text.push(b'\n');
            reserve_up_to(&mut reservation, text.len(), &columns.path)?;
        }
        Ok(TableBlock { number: number as usize, text, _reservation: reservation })
    }
}

impl Generated for TableRows {
    fn size_bytes(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    fn arrays(&self) -> &[Arc<SharedArray>] {
        &self.columns.arrays
    }

    fn rest(&self) {
        // If another reader has locked it, that reader still needs the state.
        if let Some(mut progress) = self.progress.try_lock() {
            *progress = ReadProgress::new(&self.columns);
        }
    }

    fn read(
        &self,
        offset: u64,
        out: &mut [u8],
        blocking: Blocking,
        cancellation: &Cancellation,
    ) -> Result<bool> {
        let mut progress = match blocking {
            Blocking::Yes => self.progress.lock(),
            Blocking::No => match self.progress.try_lock() {
                Some(progress) => progress,
                None => return Ok(false),
            },
        };
        let (mut offset, mut rest) = (offset, out);
        while !rest.is_empty() {
            let number = self.offsets.partition_point(|&start| start <= offset).saturating_sub(1);
            let (Some(&start), Some(&end)) = (self.offsets.get(number), self.offsets.get(number + 1)) else {
                return Err(Error::InvalidValue(format!("offset {offset} is past the end of the file")));
            };
            if progress.block.as_ref().is_none_or(|block| block.number != number) {
                if blocking == Blocking::No {
                    return Ok(false);
                }
                let block = self.block(number as u64, &mut progress, cancellation)?;
                if block.text.len() as u64 != end - start {
                    return Err(Error::Stale { key: self.columns.path.clone() });
                }
                progress.block = Some(block);
            }
            let text = progress.block.as_ref().map(|block| block.text.as_slice()).unwrap_or_default();
            let from = text.get((offset - start) as usize..).unwrap_or_default();
            let length = from.len().min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            part.copy_from_slice(from.get(..length).unwrap_or_default());
            (offset, rest) = (offset + length as u64, after);
        }
        Ok(true)
    }
}
