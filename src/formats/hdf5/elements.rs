//! Elements that the file has in another form than the array: strings, references to objects, and structs that have some.
//!
//! Spec: HDF5 File Format Specification 3.0, section IV.B ("Disk Format: Level 2B - Data Object Data Storage"). Uses `array`,
//! `metadata` and `nc`.
//!
//! A string takes 16 bytes among the elements: its length, the address of its collection in the heap, and its number there. A reference
//! takes 8: the address of an object. Addresses are known only after the whole file is laid out, so elements are stored with offsets in the
//! heap and with numbers of targets, which [`StoredElements::set_addresses`] replaces. Invariant: all memory is reserved from the
//! cache's limit before it is taken.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::array::{Blocking, ReadRequest, Readahead, Reader, Reservation, VariableArray};
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::formats::nc::hdf5::datatype::VARIABLE_LENGTH_BYTES;
use crate::formats::nc::hdf5::global_heap::{PackedHeap, PackedSlot};
use crate::formats::virtual_file::current;
use crate::hierarchy::SharedArray;
use crate::metadata::{ArrayMetadata, ByteOrder};

/// The step in which memory is reserved.
const RESERVED_STEP_BYTES: u64 = 1 << 20;
/// How many bytes of an array are read at once.
const BLOCK_BYTES: u64 = 1 << 20;
/// The size of a reference.
const REFERENCE_BYTES: usize = 8;
/// The size of a character of a UTF-32 string.
const CHARACTER_BYTES: usize = 4;

/// Where elements come from.
pub enum ElementSource {
    /// Strings or bytes of any length.
    Variable(Box<VariableArray>, VariableForm),
    /// Elements of a fixed size, which are converted part by part.
    Fixed {
        /// The array.
        array: Arc<SharedArray>,
        /// The size of an element as it is served, in bytes.
        item_bytes: usize,
        /// The size of all elements, in bytes.
        size_bytes: u64,
        /// The byte order of characters.
        order: ByteOrder,
        /// The parts of an element, in the order of the file.
        parts: Vec<ElementPart>,
    },
}

/// What elements of any length are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableForm {
    /// Strings.
    Text,
    /// Sequences of bytes.
    Bytes,
    /// References to the objects at the paths that the strings are.
    References,
}

/// A part of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementPart {
    /// Its bytes in the element as it is served.
    pub source: Range<usize>,
    /// What it is in the file.
    pub form: PartForm,
}

/// What a part of an element is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartForm {
    /// The same bytes.
    Same,
    /// A string, from UTF-32.
    Text,
    /// A reference to the object at the path that the string is.
    Reference,
}

impl ElementPart {
    /// Returns its size in the file.
    pub fn file_bytes(&self) -> usize {
        match self.form {
            PartForm::Same => self.source.len(),
            PartForm::Text => VARIABLE_LENGTH_BYTES as usize,
            PartForm::Reference => REFERENCE_BYTES,
        }
    }
}

/// Elements in the form of the file, apart from addresses.
pub struct StoredElements {
    /// Their bytes.
    pub bytes: Vec<u8>,
    item_bytes: usize,
    addresses: Vec<AddressPart>,
    /// The paths of objects, which references name by their places here, counted from 1. 0 refers to nothing.
    targets: Vec<String>,
}

/// An address in each element.
#[derive(Clone, Copy)]
struct AddressPart {
    offset: usize,
    is_reference: bool,
}

impl StoredElements {
    /// Returns the paths of the objects that they refer to.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Puts addresses in place of offsets in the heap and of targets, given the address of the heap and of an object by its path.
    pub fn set_addresses(&mut self, heap_address: u64, address_of: impl Fn(&str) -> u64) {
        let targets: Vec<u64> = self.targets.iter().map(|path| address_of(path)).collect();
        for element in self.bytes.chunks_exact_mut(self.item_bytes.max(1)) {
            for &AddressPart { offset, is_reference } in &self.addresses {
                let start = if is_reference { offset } else { offset + 4 };
                let is_nothing = !is_reference
                    && element.get(offset + 12..offset + 16).is_none_or(|number| number == [0; 4]);
                let Some(field) = element.get_mut(start..start + 8).filter(|_| !is_nothing) else { continue };
                let Ok(bytes) = <[u8; 8]>::try_from(&*field) else { continue };
                let number = u64::from_le_bytes(bytes);
                let address = match (is_reference, number.checked_sub(1)) {
                    (true, Some(target)) => targets.get(target as usize).copied().unwrap_or(0),
                    (true, None) => 0,
                    (false, _) => heap_address.saturating_add(number),
                };
                field.copy_from_slice(&address.to_le_bytes());
            }
        }
    }
}

/// Reads elements, and collects their strings.
pub struct ElementCollector {
    heap: PackedHeap,
    /// The place of the empty string.
    empty: Option<PackedSlot>,
    /// The memory of all elements and strings.
    reservation: Reservation,
    used_bytes: usize,
    /// The part of `used_bytes` for the heap.
    heap_bytes: usize,
}

/// Elements in the making.
struct ElementSink<'a> {
    collector: &'a mut ElementCollector,
    elements: Vec<u8>,
    known: HashMap<String, u64>,
    targets: Vec<String>,
    /// Whether the file cannot have an element.
    is_unfit: bool,
    key: &'a str,
}

impl ElementSource {
    /// Returns a number that very likely changes when an element changes. Reads no elements.
    pub fn version(&self) -> Result<u64> {
        match self {
            ElementSource::Variable(array, _) => array.version(),
            ElementSource::Fixed { array, .. } => current(array)?.content_version(),
        }
    }
}

impl ElementCollector {
    /// Begins without elements.
    pub fn new(reservation: Reservation) -> Self {
        ElementCollector {
            heap: PackedHeap::default(),
            empty: None,
            reservation,
            used_bytes: 0,
            heap_bytes: 0,
        }
    }

    /// Returns the collections of the heap, and the reservation of all memory.
    pub fn finish(self) -> (Vec<Vec<u8>>, Reservation) {
        (self.heap.into_collections(), self.reservation)
    }

    /// Reads elements; `None` if HDF5 cannot express one of them: a string with a NUL.
    pub fn read(
        &mut self,
        source: &ElementSource,
        metadata: &ArrayMetadata,
    ) -> Result<Option<StoredElements>> {
        let key = metadata.document_key.as_str();
        let (count, item_bytes, addresses) = match source {
            ElementSource::Variable(array, VariableForm::References) => {
                (array.elements(), REFERENCE_BYTES, vec![AddressPart { offset: 0, is_reference: true }])
            }
            ElementSource::Variable(array, _) => {
                let address = AddressPart { offset: 0, is_reference: false };
                (array.elements(), VARIABLE_LENGTH_BYTES as usize, vec![address])
            }
            ElementSource::Fixed { item_bytes, size_bytes, parts, .. } => {
                let (mut end, mut addresses) = (0, Vec::new());
                for part in parts {
                    if part.form != PartForm::Same {
                        addresses.push(AddressPart {
                            offset: end,
                            is_reference: part.form == PartForm::Reference,
                        });
                    }
                    end += part.file_bytes();
                }
                (size_bytes / 1.max(*item_bytes) as u64, end, addresses)
            }
        };
        // A document may declare far more elements than the store has.
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(item_bytes));
        let capacity = bytes.ok_or_else(|| self.too_large(key))?;
        self.reserve(capacity, key)?;
        let mut sink = ElementSink {
            collector: self,
            elements: Vec::with_capacity(capacity),
            known: HashMap::new(),
            targets: Vec::new(),
            is_unfit: false,
            key,
        };
        let read = match source {
            ElementSource::Variable(array, form) => sink.read_variable(array, *form),
            ElementSource::Fixed { array, item_bytes, size_bytes, order, parts } => {
                sink.read_fixed(array, *item_bytes, *size_bytes, |sink, item| {
                    sink.push_parts(item, parts, *order)
                })
            }
        };
        let ElementSink { elements, targets, is_unfit, .. } = sink;
        if is_unfit {
            return Ok(None);
        }
        read?;
        Ok(Some(StoredElements { bytes: elements, item_bytes, addresses, targets }))
    }

    /// Reserves memory in steps. Fails with `TooLarge`.
    fn reserve(&mut self, bytes: usize, key: &str) -> Result<()> {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        let needed = (self.used_bytes as u64).saturating_sub(self.reservation.bytes());
        if needed == 0
            || self.reservation.grow(needed.max(RESERVED_STEP_BYTES))
            || self.reservation.grow(needed)
        {
            return Ok(());
        }
        Err(self.too_large(key))
    }

    fn too_large(&self, key: &str) -> Error {
        let reason = format!(
            "its strings do not fit into the cache size of {} bytes, which limits the memory of a file",
            self.reservation.limit_bytes()
        );
        Error::TooLarge { key: key.to_owned(), reason }
    }

    /// Puts the bytes of an element of any length into the heap, and returns its record.
    fn store(&mut self, bytes: &[u8], key: &str) -> Result<(u32, PackedSlot)> {
        let length = u32::try_from(bytes.len()).map_err(|_| self.too_large(key))?;
        let heap_bytes = self.heap.length_with(bytes.len());
        if heap_bytes > self.heap_bytes {
            self.reserve(heap_bytes - self.heap_bytes, key)?;
            self.heap_bytes = heap_bytes;
        }
        Ok((length, self.heap.add(bytes)))
    }
}

impl ElementSink<'_> {
    fn read_variable(&mut self, array: &VariableArray, form: VariableForm) -> Result<()> {
        let mut held = Reservation::new(self.collector.reservation.engine());
        array.read(&mut held, &mut |element| match form {
            VariableForm::Bytes if element.is_empty() => {
                self.elements.extend([0; VARIABLE_LENGTH_BYTES as usize]);
                Ok(())
            }
            VariableForm::Bytes => {
                let record = self.collector.store(element, self.key)?;
                self.push_record(record);
                Ok(())
            }
            VariableForm::Text | VariableForm::References => match std::str::from_utf8(element) {
                Ok(text) if form == VariableForm::Text => self.push_text(text),
                Ok(path) => self.push_reference(path),
                Err(error) => Err(Error::corrupt(self.key, format!("an element is not UTF-8: {error}"))),
            },
        })?;
        Ok(())
    }

    /// Reads elements of a fixed size, and calls `push` with each.
    fn read_fixed(
        &mut self,
        array: &SharedArray,
        item_bytes: usize,
        size_bytes: u64,
        push: impl Fn(&mut Self, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let item_bytes = 1.max(item_bytes);
        let block_bytes = BLOCK_BYTES.max(item_bytes as u64) / item_bytes as u64 * item_bytes as u64;
        let (reader, cancellation) = (Reader::new(Readahead::Chunks), Cancellation::never());
        self.collector.reserve(block_bytes.min(size_bytes) as usize, self.key)?;
        let mut block = Vec::new();
        let mut start = 0;
        while start < size_bytes {
            let end = size_bytes.min(start + block_bytes);
            block.resize((end - start) as usize, 0);
            let request = ReadRequest {
                reader: &reader,
                range: start..end,
                blocking: Blocking::Yes,
                cancellation: &cancellation,
            };
            if !current(array)?.read_part(&request, &mut block)? {
                return Err(Error::Stale { key: array.path.to_string() });
            }
            for item in block.chunks_exact(item_bytes) {
                push(self, item)?;
            }
            start = end;
        }
        Ok(())
    }

    fn push_parts(&mut self, item: &[u8], parts: &[ElementPart], order: ByteOrder) -> Result<()> {
        for part in parts {
            let bytes = item.get(part.source.clone()).unwrap_or_default();
            if part.form == PartForm::Same {
                self.elements.extend(bytes);
                continue;
            }
            let text = utf32_text(bytes, order)
                .ok_or_else(|| Error::corrupt(self.key, "an element is not UTF-32"))?;
            match part.form {
                PartForm::Reference => self.push_reference(&text)?,
                PartForm::Text | PartForm::Same => self.push_text(&text)?,
            }
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<()> {
        if text.contains('\0') {
            self.is_unfit = true;
            return Err(Error::unsupported(self.key, "a string with a NUL in HDF5"));
        }
        let record = match (text.is_empty(), self.collector.empty) {
            (true, Some(slot)) => (1, slot),
            // netCDF does not make a string from an element without bytes.
            (true, None) => {
                let record = self.collector.store(b"\0", self.key)?;
                self.collector.empty = Some(record.1);
                record
            }
            (false, _) => self.collector.store(text.as_bytes(), self.key)?,
        };
        self.push_record(record);
        Ok(())
    }

    fn push_record(&mut self, (length, slot): (u32, PackedSlot)) {
        self.elements.extend(length.to_le_bytes());
        self.elements.extend(slot.collection.to_le_bytes());
        self.elements.extend(slot.number.to_le_bytes());
    }

    fn push_reference(&mut self, path: &str) -> Result<()> {
        let number = match self.known.get(path) {
            _ if path.is_empty() => 0,
            Some(&number) => number,
            None => {
                self.collector.reserve(path.len() * 2 + 128, self.key)?;
                self.targets.push(path.to_owned());
                let number = self.targets.len() as u64;
                self.known.insert(path.to_owned(), number);
                number
            }
        };
        self.elements.extend(number.to_le_bytes());
        Ok(())
    }
}

/// Returns a UTF-32 string, which ends where its NULs begin.
fn utf32_text(bytes: &[u8], order: ByteOrder) -> Option<String> {
    let characters = bytes.chunks_exact(CHARACTER_BYTES).map(|unit| {
        let unit = <[u8; CHARACTER_BYTES]>::try_from(unit).ok()?;
        let code = match order {
            ByteOrder::Little => u32::from_le_bytes(unit),
            ByteOrder::Big => u32::from_be_bytes(unit),
        };
        char::from_u32(code)
    });
    let text: Option<String> = characters.collect();
    text.map(|text| text.trim_end_matches('\0').to_owned())
}
