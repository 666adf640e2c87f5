//! Import of .npy files: the elements of a long file go to the new array while the file is being written.
//!
//! This file uses `metadata::author` for the documents and `hierarchy::author` for the array. Invariant: what a program has not
//! written before the end of the file is zero, whatever the array is filled with.

use std::sync::Arc;

use crate::array::{Engine, Layout, Order};
use crate::error::Error;
use crate::formats::npy;
use crate::hierarchy::author::{AnnouncePut, NewArray, Place, dimension_names};
use crate::metadata::ZarrFormat;
use crate::metadata::author::{ArraySpec, ElementType, NodeDocument};
use crate::mount::fs::error::{Failure, FsResult};
use crate::store::Store;

/// The bytes that are zeroed at a time.
const PART_BYTES: usize = 1 << 20;

/// An .npy file that is being written, and the array that gets its elements.
pub struct NpyImport {
    /// The path at which the array becomes visible.
    path: String,
    is_in_place: bool,
    header: Vec<u8>,
    new: NewArray,
    /// How far the file was written.
    end: u64,
    /// The length of the complete file.
    total: u64,
}

impl NpyImport {
    /// Begins an array at a place with the start of the file. `announce` gets the marks of its documents, if they are put at its path.
    pub fn begin(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        place: &Place,
        start: &[u8],
        announce: AnnouncePut<'_>,
    ) -> FsResult<Self> {
        let header = NpyHeader::read(store, place, start)?;
        let (documents, layout) = (header.documents, header.layout);
        let new = NewArray::begin_announced(engine, store, place, documents, layout, Some(announce))?;
        let length = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        let (bytes, elements) = start.split_at_checked(length).unwrap_or((start, &[]));
        let total = header.bytes.saturating_add(new.array().size_bytes());
        let document_key = &new.array().metadata().document_key;
        let mut import = NpyImport {
            path: place.path.clone(),
            is_in_place: document_key.rsplit_once('/').is_some_and(|(path, _)| path == place.path),
            header: bytes.to_vec(),
            new,
            end: header.bytes,
            total,
        };
        import.write(header.bytes, elements)?;
        Ok(import)
    }

    /// Makes the array visible. A place has the owner and the mode, which a program may have changed since the import began.
    pub fn publish(mut self, place: Option<&Place>) -> FsResult<()> {
        if let Some(place) = place {
            self.new.give(&place.like)?;
        }
        Ok(self.new.publish()?)
    }

    /// Returns the path at which the array becomes visible.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether the documents of the array are at its path already, as in a store without folders.
    pub fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    /// Returns how far the file was written.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the length of the complete file.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Reads bytes that were written.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> FsResult<()> {
        let header = self.header.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let header_bytes = header.len().min(out.len());
        let (first, rest) = out.split_at_mut(header_bytes);
        first.copy_from_slice(header.get(..header_bytes).unwrap_or_default());
        if rest.is_empty() {
            return Ok(());
        }
        let from = (offset + header_bytes as u64).saturating_sub(self.header.len() as u64);
        Ok(self.new.array().read_at(from, rest)?)
    }

    /// Writes bytes, and zeros before them if there is a gap.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> FsResult<()> {
        let end = offset + data.len() as u64;
        if end > self.total {
            let (is, may_be) = (end, self.total);
            let reason = format!("{is} bytes, and the shape in its header makes {may_be}");
            return Err(Failure::Error(Error::TooLarge { key: "the .npy file".to_owned(), reason }));
        }
        let header = self.header.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let (first, rest) = data.split_at(header.len().min(data.len()));
        if header.get(..first.len()) != Some(first) {
            let sentence = "the header of a long .npy file cannot change once elements are written: write it complete at once";
            return Err(Failure::Error(Error::Usage(sentence.to_owned())));
        }
        if !rest.is_empty() {
            self.extend(offset)?;
            self.write_elements(offset + first.len() as u64, rest)?;
        }
        self.end = self.end.max(end);
        Ok(())
    }

    /// Makes the file at least this long. The new bytes are zero.
    pub fn extend(&mut self, end: u64) -> FsResult<()> {
        if !self.new.array().fills_with_zeros() {
            let zeros = vec![0; PART_BYTES];
            while self.end < end {
                let length = usize::try_from(end - self.end).unwrap_or(PART_BYTES).min(PART_BYTES);
                self.write_elements(self.end, zeros.get(..length).unwrap_or(&zeros))?;
                self.end += length as u64;
            }
        }
        self.end = self.end.max(end);
        Ok(())
    }

    /// Writes elements, which begin at this offset of the file.
    fn write_elements(&self, offset: u64, data: &[u8]) -> FsResult<()> {
        let from = offset.saturating_sub(self.header.len() as u64);
        Ok(self.new.array().writer().write_at(from, data)?)
    }
}

/// The documents and the layout of an array, as the header of an .npy file describes them.
pub struct NpyHeader {
    /// The length of the header.
    pub bytes: u64,
    /// The documents of the array.
    pub documents: Vec<NodeDocument>,
    /// The layout of the elements.
    pub layout: Layout,
}

impl NpyHeader {
    /// Reads the header at the start of a file that becomes an array at a place.
    pub fn read(store: &Arc<dyn Store>, place: &Place, mut start: &[u8]) -> FsResult<Self> {
        let header = npy::read_header(&mut start, "the file")?;
        let element = ElementType::parse(&header.descr.to_string()).map_err(usage_failure)?;
        let sentence = "the fields of its type have different byte orders: save it in one";
        let byte_order = element.byte_order().ok_or_else(|| Error::Usage(sentence.to_owned()))?;
        let dimension_names = dimension_names(store, place, &header.shape);
        let spec = ArraySpec {
            zarr_format: place.parent_format.unwrap_or(ZarrFormat::V3),
            shape: header.shape,
            element,
            chunks: None,
            shards: None,
            codecs: None,
            fill_value: None,
            dimension_names: Some(dimension_names),
            attributes: Vec::new(),
        };
        let order = if header.is_fortran_order { Order::F } else { Order::C };
        let documents = spec.documents().map_err(usage_failure)?;
        Ok(NpyHeader { bytes: header.size_bytes, documents, layout: Layout { order, byte_order } })
    }
}

/// Returns the failure of a program that gave a document with this error.
pub fn usage_failure(error: crate::metadata::json::parse_error::ParseError) -> Failure {
    Failure::Error(Error::Usage(error.to_string()))
}
