//! The text of a table: an index of blocks of rows, made in one pass, and blocks that are made again when they are read.
//!
//! Uses `array`, `hierarchy`, and its neighbours.
//!
//! Invariants: memory holds one block and one chunk of each column of strings, all reserved from the cache's limit. A block whose
//! length is not that of the index has other elements than the index: its read fails with ESTALE, and the next lookup
//! makes the index again.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;

use super::MAX_FILE_BYTES;
use super::cells::{self, Text};
use super::columns::{Part, Source, Table};
use super::elements::{ElementReader, Elements, Ends, Values, hold, hold_up_to};
use crate::array::{Blocking, Engine, Reservation};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::formats::virtual_file::{Generated, Segment, VirtualFile};
use crate::formats::{Companion, Made, Subject};
use crate::hierarchy::SharedArray;
use crate::metadata::ByteOrder;

/// Rows of a block.
const BLOCK_ROWS: u64 = 1024;

/// A table that can be made.
pub struct TableFile {
    columns: Arc<Columns>,
    /// Of the documents that say what the columns are.
    version: u64,
}

/// The columns of a table, opened.
struct Columns {
    engine: Arc<Engine>,
    /// The path of the group.
    path: String,
    order: ByteOrder,
    rows: u64,
    columns: Vec<Column>,
    /// Arrays that are read through the chunk cache.
    arrays: Vec<Arc<SharedArray>>,
}

struct Column {
    name: String,
    cells: Cells,
}

enum Cells {
    Elements(Elements),
    Categories { codes: Elements, categories: Elements },
    Masked { values: Elements, mask: Elements },
}

/// What is kept from one block to the next.
struct Progress {
    /// For each array of each column: how it is read.
    readers: Vec<ElementReader>,
    block: Option<Block>,
}

/// A block of rows as text.
struct Block {
    number: usize,
    text: Vec<u8>,
    _reservation: Reservation,
}

/// The categories of a column as the text of cells.
struct CategoryTexts {
    texts: Values,
    count: usize,
}

/// The rows of a table as bytes of a file.
struct Rows {
    columns: Arc<Columns>,
    /// For each column, if it has some.
    categories: Vec<Option<CategoryTexts>>,
    /// Where each block begins, and the end of the last.
    offsets: Vec<u64>,
    progress: Mutex<Progress>,
    _reservation: Reservation,
}

impl TableFile {
    /// Opens the arrays of a table.
    pub fn open(subject: &Subject<'_>, table: Table) -> Result<TableFile> {
        let mut version = DefaultHasher::new();
        let (mut columns, mut arrays) = (Vec::new(), Vec::new());
        for column in table.columns {
            column.name.hash(&mut version);
            for part in column.source.parts() {
                part.path.hash(&mut version);
                for (member, value) in part.metadata.document.iter().filter(|(name, _)| *name != "attributes")
                {
                    (member, value.to_string()).hash(&mut version);
                }
            }
            let mut open = |part: Part| Elements::open(subject, part, &mut arrays);
            let cells = match column.source {
                Source::Elements(part) => Cells::Elements(open(part)?),
                Source::Categories { codes, categories } => {
                    let categories = Elements { is_categories: true, ..open(categories)? };
                    Cells::Categories { codes: open(codes)?, categories }
                }
                Source::Masked { values, mask } => Cells::Masked { values: open(values)?, mask: open(mask)? },
            };
            columns.push(Column { name: column.name, cells });
        }
        let columns = Columns {
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
        for elements in self.columns.columns.iter().flat_map(Column::arrays) {
            elements.version()?.hash(&mut version);
        }
        Ok(version.finish())
    }

    fn make(&self) -> Result<Made> {
        let version = self.version()?;
        let columns = &self.columns;
        let categories =
            columns.columns.iter().map(|column| columns.categories(column)).collect::<Result<_>>()?;
        let mut rows = Rows {
            columns: columns.clone(),
            categories,
            offsets: vec![0],
            progress: Mutex::new(Progress::new(columns)),
            _reservation: columns.reserve(columns.rows.div_ceil(BLOCK_ROWS) * size_of::<u64>() as u64)?,
        };
        let header = columns.header()?;
        rows.find_blocks(header.len() as u64)?;
        let file = VirtualFile::new([Segment::Bytes(header), Segment::Generated(Arc::new(rows))]);
        Ok(Made { version, file })
    }
}

impl Column {
    fn arrays(&self) -> impl Iterator<Item = &Elements> {
        let (first, second) = match &self.cells {
            Cells::Elements(elements) => (elements, None),
            Cells::Categories { codes, categories } => (codes, Some(categories)),
            Cells::Masked { values, mask } => (values, Some(mask)),
        };
        [first].into_iter().chain(second)
    }
}

impl Columns {
    fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let mut held = Reservation::new(&self.engine);
        hold(&mut held, bytes, &self.path)?;
        Ok(held)
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

    /// The texts of the categories of a column, if it has some.
    fn categories(&self, column: &Column) -> Result<Option<CategoryTexts>> {
        let Cells::Categories { categories, .. } = &column.cells else { return Ok(None) };
        let count = categories.metadata.shape.first().copied().unwrap_or(0);
        let (reader, never) = (&mut ElementReader::default(), Cancellation::never());
        let elements = categories.read(&self.engine, 0..count, reader, &never)?;
        let mut held = Reservation::new(&self.engine);
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for row in 0..count {
            categories.push(&mut bytes, elements.get(row as usize), self.order, row)?;
            ends.push(bytes.len());
            let used = bytes.len() + ends.len() * size_of::<usize>();
            hold_up_to(&mut held, used, &categories.metadata.document_key)?;
        }
        let texts = Values { bytes, ends: Ends::Of(ends), reservation: held };
        Ok(Some(CategoryTexts { texts, count: count as usize }))
    }
}

impl Progress {
    fn new(columns: &Columns) -> Progress {
        let readers = columns.columns.iter().flat_map(Column::arrays).map(|_| ElementReader::new()).collect();
        Progress { readers, block: None }
    }
}

impl Rows {
    /// Goes through all rows.
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
        // The readers are at the end; those of the file begin at its start.
        self.progress = Mutex::new(Progress::new(&self.columns));
        Ok(())
    }

    /// Makes a block of rows.
    fn block(&self, number: u64, progress: &mut Progress, cancellation: &Cancellation) -> Result<Block> {
        let columns = &self.columns;
        let first = number * BLOCK_ROWS;
        let rows = first..columns.rows.min(first + BLOCK_ROWS);
        // Its memory is free before that of the new one is taken.
        progress.block = None;
        let mut values = Vec::new();
        let arrays = columns.columns.iter().flat_map(Column::arrays);
        for (elements, reader) in arrays.zip(&mut progress.readers) {
            // Categories are known already.
            let part = if elements.is_categories { rows.start..rows.start } else { rows.clone() };
            values.push(elements.read(&columns.engine, part, reader, cancellation)?);
        }
        let mut text = Vec::new();
        let mut held = Reservation::new(&columns.engine);
        for row in rows.clone() {
            let mut values = values.iter();
            for (place, (column, categories)) in columns.columns.iter().zip(&self.categories).enumerate() {
                if place > 0 {
                    text.push(b',');
                }
                let (first, second) = (values.next(), column.arrays().nth(1).and_then(|_| values.next()));
                let cell = Cell { row, place: (row - rows.start) as usize, order: columns.order };
                cell.push(&mut text, column, categories.as_ref(), (first, second))?;
            }
            // Programs skip empty lines.
            if text.last().is_none_or(|&last| last == b'\n') {
                text.extend_from_slice(b"\"\"");
            }
            text.push(b'\n');
            hold_up_to(&mut held, text.len(), &columns.path)?;
        }
        Ok(Block { number: number as usize, text, _reservation: held })
    }
}

/// A cell that is written.
struct Cell {
    row: u64,
    /// The place of the row in its block.
    place: usize,
    order: ByteOrder,
}

impl Cell {
    fn push(
        &self,
        text: &mut Vec<u8>,
        column: &Column,
        categories: Option<&CategoryTexts>,
        (first, second): (Option<&Values>, Option<&Values>),
    ) -> Result<()> {
        let element = first.map(|values| values.get(self.place)).unwrap_or_default();
        match (&column.cells, categories) {
            (Cells::Categories { codes, .. }, Some(categories)) => {
                let code = match codes.text {
                    Text::Signed(_) => usize::try_from(cells::signed(element, self.order)).ok(),
                    _ => Some(usize::try_from(cells::unsigned(element, self.order)).unwrap_or(usize::MAX)),
                };
                match code {
                    Some(code) if code >= categories.count => {
                        let reason =
                            format!("element {}: code {code} of {} categories", self.row, categories.count);
                        Err(Error::corrupt(&codes.metadata.document_key, reason))
                    }
                    Some(code) => {
                        text.extend_from_slice(categories.texts.get(code));
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            (Cells::Masked { .. }, _) if second.is_none_or(|mask| mask.get(self.place) != [0]) => Ok(()),
            (
                Cells::Masked { values, .. }
                | Cells::Elements(values)
                | Cells::Categories { codes: values, .. },
                _,
            ) => values.push(text, element, self.order, self.row),
        }
    }
}

impl Generated for Rows {
    fn size_bytes(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    fn arrays(&self) -> &[Arc<SharedArray>] {
        &self.columns.arrays
    }

    fn rest(&self) {
        // Another reader may hold it for long, and needs what is in it.
        if let Some(mut progress) = self.progress.try_lock() {
            *progress = Progress::new(&self.columns);
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
