//! An array of an .npy file, or of raw elements.
//!
//! The bytes of the file are those of the flat file that the array would be served as, in the file's own order and byte
//! order. Threads read the parts of a file that whole chunks need. What comes in order only goes the way of any write: full
//! chunks are encoded in parallel with the reader. In a folder store the array gets its name when all of it is stored.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, sync_channel};

use indicatif::ProgressBar;
use zarrfs::array::{Array, AxisSelection, ImportSource, Layout, Order};
use zarrfs::error::{Error, Result};
use zarrfs::formats::npy;
use zarrfs::formats::sources::FlatSlice;
use zarrfs::hierarchy::author::NewArray;
use zarrfs::metadata::ZarrFormat;
use zarrfs::metadata::author::{ArraySpec, ElementType};

use super::Arguments;
use super::input::Input;
use super::slices::axes_of_array;
use crate::cli::commands::authoring::create::check;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::new_array::refused;
use crate::cli::options::OrderChoice;
use crate::cli::output::progress;

/// Bytes that are read from the file at a time.
const BLOCK_BYTES: usize = 4 << 20;
/// Blocks that wait to be written.
const BLOCKS_AHEAD: usize = 4;

/// The elements that are imported, and their type, shape and order.
struct Source {
    name: String,
    file: Input,
    shape: Vec<u64>,
    element: ElementType,
    order: Order,
    /// Which elements of the file they are; `None` for all.
    slice: Option<FlatSlice>,
}

impl Arguments {
    /// Imports the elements.
    pub fn import_elements(&self, file: Input, index: Option<&str>) -> Outcome {
        let path = self
            .path
            .as_deref()
            .ok_or_else(|| Exit::Usage("PATH is missing: the path of the new array in STORE".to_owned()))?;
        let mut source = self.source(file)?;
        let mut storage = self.storage.clone();
        if let Some(index) = index {
            storage.dims = self.slice(&mut source, index)?;
        }
        let byte_order = match source.element.byte_order() {
            Some(byte_order) => byte_order,
            None => {
                let sentence = "its fields have different byte orders; save it with one byte order";
                return Err(Exit::Usage(format!("{}: {sentence}", source.name)));
            }
        };
        if let Some(zarr_format) = self.node.format_in_new_store() {
            // An array that cannot be made leaves no new store behind.
            let attributes = self.node.attributes()?;
            storage.documents((zarr_format, &attributes), &source.shape, &source.element)?;
        }
        let destination = self.node.destination(&self.store, path)?;
        storage.warn_without_names(&destination);
        let documents = storage.documents(destination.node(), &source.shape, &source.element)?;
        check(&destination.store, &destination.place.path, &documents)?;
        let layout = Layout { order: source.order, byte_order };
        let engine = self.engine();
        let new = NewArray::begin(&engine, &destination.store, &destination.place, documents, layout)?;
        // Until the array is published it has a name that the user does not know, which errors must not show.
        write(new.array(), source).map_err(|error| Exit::Failed(new.shown(&error)))?;
        Ok(new.publish()?)
    }

    fn source(&self, mut file: Input) -> Outcome<Source> {
        let name = self.file.clone();
        if let (Some(shape), Some(dtype)) = (&self.shape, &self.dtype) {
            let order = match self.order {
                OrderChoice::C => Order::C,
                OrderChoice::F => Order::F,
            };
            let element = ElementType::parse(dtype).map_err(refused)?;
            return Ok(Source { name, file, shape: shape.0.clone(), element, order, slice: None });
        }
        let header = match &mut file {
            Input::File { file, start, left_bytes } => {
                let header = npy::read_header(file, &name)?;
                (*start, *left_bytes) = (header.size_bytes, left_bytes.saturating_sub(header.size_bytes));
                header
            }
            Input::Stream(stream) => npy::read_header(stream, &name)?,
        };
        let element = ElementType::parse(&header.descr.to_string()).map_err(refused)?;
        let order = if header.is_fortran_order { Order::F } else { Order::C };
        Ok(Source { name, file, shape: header.shape, element, order, slice: None })
    }

    /// Makes the elements a part of themselves. Returns the names of the remaining dimensions.
    fn slice(&self, source: &mut Source, index: &str) -> Outcome<Option<String>> {
        let names = self.storage.dimension_names();
        let spec = ArraySpec {
            zarr_format: ZarrFormat::V3,
            shape: source.shape.clone(),
            element: source.element.clone(),
            chunks: None,
            shards: None,
            codecs: None,
            fill_value: None,
            dimension_names: names.clone(),
            attributes: Vec::new(),
        };
        let axes = axes_of_array(&self.engine(), &spec, index)?;
        let mut lengths = source.shape.clone();
        let mut selection: Vec<AxisSelection> = axes.iter().map(|part| part.selection).collect();
        if source.order == Order::F {
            // In the file the first axis varies fastest.
            lengths.reverse();
            selection.reverse();
        }
        let item_bytes = source.element.data_type.item_size().unwrap_or(1) as u64;
        let slice = FlatSlice::new(item_bytes, &lengths, &selection);
        source.slice =
            Some(slice.ok_or_else(|| Exit::Usage(format!("{}: the array is too long", source.name)))?);
        source.shape = axes.iter().filter(|part| !part.is_dropped).map(|part| part.selection.count).collect();
        let kept = names.iter().flatten().zip(&axes).filter(|(_, part)| !part.is_dropped);
        let kept: Vec<&str> = kept.map(|(name, _)| name.as_deref().unwrap_or_default()).collect();
        Ok(kept.iter().any(|name| !name.is_empty()).then(|| kept.join(",")))
    }
}

/// The elements of a file, and the bar that shows how many were read.
struct FileElements<'a> {
    name: &'a str,
    file: &'a File,
    start: u64,
    slice: Option<&'a FlatSlice>,
    bar: &'a ProgressBar,
}

impl ImportSource for FileElements<'_> {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read_at = |offset: u64, bytes: &mut [u8]| {
            let read = self.file.read_exact_at(bytes, self.start + offset);
            read.map_err(|error| Error::store(self.name, "read", error))
        };
        match self.slice {
            Some(slice) => slice.read(offset, bytes, &read_at),
            None => read_at(offset, bytes),
        }
    }

    fn record_progress(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}

/// Writes and stores all elements.
fn write(array: &Array, source: Source) -> Result<()> {
    let wanted = array.size_bytes();
    let Source { name, file, slice, .. } = source;
    let slice = slice.as_ref();
    let whole = slice.map_or(wanted, |slice| slice.whole_bytes);
    let bar = progress::bytes(wanted, true);
    let written = match file {
        Input::File { left_bytes, .. } if left_bytes != whole => {
            return Err(wrong_size(&name, left_bytes, whole));
        }
        Input::File { file, start, .. } => {
            let elements = FileElements { name: &name, file: &file, start, slice, bar: &bar };
            array.writer().store_all_elements(&elements)
        }
        Input::Stream(stream) => write_stream(array, (name, stream), wanted, &bar),
    };
    let written = written.and_then(|()| array.writer().sync());
    bar.finish_and_clear();
    written
}

fn wrong_size(name: &str, has: u64, wanted: u64) -> Error {
    Error::Usage(format!("{name} has {has} bytes of elements, and the array {wanted}"))
}

/// Writes all elements of a stream, while another thread reads it.
fn write_stream(
    array: &Array,
    (name, mut file): (String, Box<dyn Read + Send>),
    wanted: u64,
    bar: &ProgressBar,
) -> Result<()> {
    let (blocks, received) = sync_channel(BLOCKS_AHEAD);
    let (used, recycled) = sync_channel::<Vec<u8>>(BLOCKS_AHEAD + 2);
    let reader_name = name.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut left = wanted;
            loop {
                // One byte more than wanted shows a file that is too long.
                let mut block = next_buffer(&recycled);
                let length = left.saturating_add(1).min(BLOCK_BYTES as u64);
                block.clear();
                let read = file.by_ref().take(length).read_to_end(&mut block);
                let read = read.map_err(|error| Error::store(&reader_name, "read", error));
                let is_last = !matches!(read, Ok(read) if read > 0);
                left = left.saturating_sub(block.len() as u64);
                if (read.is_err() || !block.is_empty()) && blocks.send(read.map(|_| block)).is_err()
                    || is_last
                {
                    return;
                }
            }
        });
        let mut offset = 0;
        for block in received {
            let block = block?;
            let end = offset + block.len() as u64;
            if end > wanted {
                return Err(wrong_size(&format!("{name} (at least)"), end, wanted));
            }
            array.writer().write_at(offset, &block)?;
            offset = end;
            bar.set_position(offset);
            // A reader that has ended takes no buffer back.
            let _ = used.try_send(block);
        }
        if offset < wanted { Err(wrong_size(&name, offset, wanted)) } else { Ok(()) }
    })
}

fn next_buffer(recycled: &Receiver<Vec<u8>>) -> Vec<u8> {
    recycled.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK_BYTES))
}
