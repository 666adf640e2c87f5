//! The array that is made of an .npy file, while that is being written.
//!
//! Uses `metadata::author` for the documents and `hierarchy::author` for the array.

use std::sync::Arc;

use crate::array::{Engine, Layout, Order};
use crate::error::Error;
use crate::formats::npy;
use crate::hierarchy::author::{NewArray, Place, dimension_names};
use crate::metadata::ZarrFormat;
use crate::metadata::author::{ArraySpec, ElementType, NodeDocument};
use crate::mount::fs::error::{Failure, FsResult};
use crate::store::Store;

/// An .npy file whose elements go to the array that is made of them, while it is being written.
pub struct Import {
    header: Vec<u8>,
    new: NewArray,
    /// How far it was written.
    end: u64,
    total: u64,
}

impl Import {
    /// Begins the array at a place with the start of the file.
    pub fn begin(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        place: &Place,
        start: &[u8],
    ) -> FsResult<Self> {
        let header = NpyHeader::read(store, place, start)?;
        let new = NewArray::begin(engine, store, place, header.documents, header.layout)?;
        let length = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        let (bytes, elements) = start.split_at_checked(length).unwrap_or((start, &[]));
        let total = header.bytes.saturating_add(new.array().size_bytes());
        let mut import = Import { header: bytes.to_vec(), new, end: header.bytes, total };
        import.write(header.bytes, elements)?;
        Ok(import)
    }

    /// Makes the array visible at its place, whose owner and mode the program may have changed since it began.
    pub fn publish(mut self, place: &Place) -> FsResult<()> {
        self.new.give(&place.like)?;
        Ok(self.new.publish()?)
    }

    /// How far the file was written.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How long the file gets.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Reads bytes that were written.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> FsResult<()> {
        let header = self.header.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let of_header = header.len().min(out.len());
        let (first, rest) = out.split_at_mut(of_header);
        first.copy_from_slice(header.get(..of_header).unwrap_or_default());
        if rest.is_empty() {
            return Ok(());
        }
        let from = (offset + of_header as u64).saturating_sub(self.header.len() as u64);
        Ok(self.new.array().read_at(from, rest)?)
    }

    /// Writes the next bytes.
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
            let from = (offset + first.len() as u64).saturating_sub(self.header.len() as u64);
            self.new.array().writer().write_at(from, rest)?;
        }
        self.end = self.end.max(end);
        Ok(())
    }
}

/// An .npy file's header, and the documents and the layout of its array.
pub struct NpyHeader {
    /// Its length.
    pub bytes: u64,
    /// The documents of the array.
    pub documents: Vec<NodeDocument>,
    /// The layout of the elements.
    pub layout: Layout,
}

impl NpyHeader {
    /// The header at the start of a file that becomes an array at a place.
    pub fn read(store: &Arc<dyn Store>, place: &Place, mut start: &[u8]) -> FsResult<Self> {
        let header = npy::read_header(&mut start, "the file")?;
        let element = ElementType::parse(&header.descr.to_string()).map_err(usage)?;
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
        let documents = spec.documents().map_err(usage)?;
        Ok(NpyHeader { bytes: header.size_bytes, documents, layout: Layout { order, byte_order } })
    }
}

/// What a program did wrong.
pub fn usage(error: crate::metadata::json::parse_error::ParseError) -> Failure {
    Failure::Error(Error::Usage(error.to_string()))
}
