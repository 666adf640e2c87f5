//! The bytes of an array as the formats of grids and images see them: numbers of one type along axes, the fastest axis first.
//!
//! Uses `metadata` and the layout of `array`; no I/O. In order F the first axis is the fastest, so
//! formats that list axes by speed can express both orders.

use crate::array::{ByteOrder, Layout, Order, Reservation};
use crate::error::{Error, Result};
use crate::formats::geometry::axis::AxisKind;
use crate::formats::virtual_file::{Segment, VirtualFile};
use crate::formats::{CompanionContent, Subject};
use crate::hierarchy::Node;
use crate::metadata::DataType;
use crate::metadata::data_type::numeric::NumericType;

/// Returns the type of the elements if they are numbers. Bools, times and texts are not numbers here.
pub fn number_type(data_type: &DataType) -> Option<NumericType> {
    data_type.numeric_type().filter(|&numeric_type| numeric_type != NumericType::Bool)
}

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlatAxis {
    /// Its index among the array's own axes.
    pub index: usize,
    /// The number of elements along it.
    pub length: u64,
}

/// How the numbers of an array lie in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatArray {
    /// The axes, the fastest first.
    pub axes: Vec<FlatAxis>,
    /// The type of the elements.
    pub number: NumericType,
    /// Whether the most significant byte of a component comes first. `false` for bytes.
    pub is_big_endian: bool,
    /// The size of the file.
    pub size_bytes: u64,
    /// Whether the fastest of two or more axes has the name of an axis of channels or colours.
    pub has_channels: bool,
}

/// The shape of an array as images, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// The number of channels of a pixel; 1 without channels.
    pub samples: u64,
    /// The number of pixels in a row.
    pub width: u64,
    /// The number of rows of an image; 1 if there is only one axis.
    pub height: u64,
    /// The number of images.
    pub count: u64,
    /// The place of the axis of columns among the axes; the axis of rows follows.
    pub columns: usize,
}

impl FlatArray {
    /// Returns the flat array of a node in this layout; `None` for other nodes, and for arrays without axes or elements, which no format
    /// of grids can express.
    pub fn from_node(node: &Node, layout: Layout) -> Option<Self> {
        let Node::Array { metadata, .. } = node else { return None };
        let number = number_type(&metadata.data_type)?;
        let size_bytes = metadata.flat_size().filter(|&size| size > 0)?;
        let axis = |(index, &length): (usize, &u64)| FlatAxis { index, length };
        let mut axes: Vec<_> = metadata.shape.iter().enumerate().map(axis).collect();
        if layout.order == Order::C {
            axes.reverse();
        }
        let is_big_endian = layout.byte_order == ByteOrder::Big && number.size() > 1;
        let name = |index: usize| metadata.dimension_names.as_ref()?.get(index)?.as_deref();
        let fastest = axes.first().and_then(|axis| name(axis.index));
        let has_channels =
            axes.len() > 1 && fastest.is_some_and(|name| AxisKind::from_name(name) == AxisKind::Channel);
        (!axes.is_empty()).then_some(FlatArray { axes, number, is_big_endian, size_bytes, has_channels })
    }

    /// Returns the flat array of a subject that a format can express.
    pub fn from_subject(subject: &Subject<'_>) -> Result<Self> {
        let stale = || Error::Stale { key: subject.path.to_owned() };
        FlatArray::from_node(subject.node, subject.layout()).ok_or_else(stale)
    }

    /// Returns the size of an element in bytes.
    pub fn item_bytes(&self) -> u64 {
        self.number.size() as u64
    }

    /// Returns the lengths of the axes, fastest first.
    pub fn lengths(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
        self.axes.iter().map(|axis| axis.length)
    }

    /// Returns the length of an axis, counted from the fastest; 1 if there is no such axis.
    pub fn length(&self, place: usize) -> u64 {
        self.axes.get(place).map_or(1, |axis| axis.length)
    }

    /// Returns the product of the lengths of an axis and all slower ones.
    pub fn count_from(&self, place: usize) -> u64 {
        self.lengths().skip(place).fold(1, u64::saturating_mul)
    }

    /// Returns the shape of the array as images of its fastest axes.
    pub fn planes(&self) -> Planes {
        let columns = usize::from(self.has_channels);
        Planes {
            samples: if self.has_channels { self.length(0) } else { 1 },
            width: self.length(columns),
            height: self.length(columns + 1),
            count: self.count_from(columns + 2),
            columns,
        }
    }

    /// Returns a number of a header in the byte order of the array.
    pub fn bytes<const N: usize>(&self, mut little_endian: [u8; N]) -> [u8; N] {
        if self.is_big_endian {
            little_endian.reverse();
        }
        little_endian
    }
}

/// The longest header that is made. A longer one would be as slow to read as the array.
pub const MAX_HEADER_BYTES: u64 = 4 << 20;
/// Shorter headers are not counted against the cache's limit.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// Makes a file of a header and the bytes of the subject's array.
pub fn header_and_array(subject: &Subject<'_>, header: Vec<u8>) -> Result<CompanionContent> {
    let size_bytes = subject.metadata()?.flat_size().unwrap_or(0);
    let array = subject.surroundings.open_array(subject.path)?;
    let reservation = reserve(subject, &header)?;
    let elements = subject.segment(subject.path, array, size_bytes)?;
    let file = VirtualFile::new([Segment::Bytes(header), elements]);
    Ok(CompanionContent::Ready(file.with_reservation(reservation)))
}

/// Makes a file of a header alone, for an array that can be opened.
pub fn detached_header(subject: &Subject<'_>, header: impl Into<Vec<u8>>) -> Result<CompanionContent> {
    subject.surroundings.open_array(subject.path)?;
    let header = header.into();
    let reservation = reserve(subject, &header)?;
    Ok(CompanionContent::Ready(VirtualFile::from_bytes(header).with_reservation(reservation)))
}

/// Reserves the memory of a header from the cache's limit.
pub fn reserve(subject: &Subject<'_>, header: &[u8]) -> Result<Reservation> {
    let mut reservation = Reservation::new(subject.arrays.engine());
    if header.len() > UNCOUNTED_BYTES && !reservation.grow(header.len() as u64) {
        let reason = format!("a header of {} bytes does not fit into the cache", header.len());
        return Err(Error::TooLarge { key: subject.path.to_owned(), reason });
    }
    Ok(reservation)
}

/// Returns the value for missing data as GDAL reads it.
pub fn no_data_text(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}

/// Joins values with spaces.
pub fn spaced<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use super::*;
    use crate::array::{Blocking, Engine, Readahead, ReplyBuffer};
    use crate::cancellation::Cancellation;
    use crate::formats::geometry::axis::plain_text;
    use crate::formats::{CompanionPlace, FORMATS, Format, Surroundings};
    use crate::hierarchy::{Child, OpenArrays, SharedArray, Tree};
    pub use crate::metadata::test_documents::v3_array as document;
    use crate::store::{MemoryStore, Store};
    use serde_json::{Value, json};

    /// Layouts in which arrays are served.
    pub const LITTLE: Layout = Layout { order: Order::C, byte_order: ByteOrder::Little };
    pub const BIG_F: Layout = Layout { order: Order::F, byte_order: ByteOrder::Big };

    /// Makes a store with these documents, by path, and a group at the root.
    pub fn store(documents: &[(&str, Value)]) -> Arc<dyn Store> {
        Arc::new(memory(documents))
    }

    /// Makes the same store with its own type.
    pub fn memory(documents: &[(&str, Value)]) -> MemoryStore {
        let memory = MemoryStore::new();
        memory
            .put("zarr.json", json!({"zarr_format": 3, "node_type": "group"}).to_string().into_bytes())
            .unwrap();
        for (path, document) in documents {
            memory.put(&crate::store::join(path, "zarr.json"), document.to_string().into_bytes()).unwrap();
        }
        memory
    }

    /// Calls `use_it` with the array at a path.
    pub fn with_subject<T>(
        store: &Arc<dyn Store>,
        path: &str,
        layout: Layout,
        use_it: impl FnOnce(&Subject<'_>) -> T,
    ) -> T {
        let tree = Tree::new(store.clone());
        let node = tree.node(path).unwrap().unwrap();
        let arrays = OpenArrays::new(&Engine::new(16 << 20, 1), store, layout);
        use_it(&Subject {
            arrays: &arrays,
            audience: Arc::default(),
            path,
            root_name: "root",
            node: &node,
            view: None,
            view_file: None,
            place: CompanionPlace::FormatFolder,
            surroundings: Box::new(Neighbours { arrays: &arrays, tree: &tree }),
            formats: FORMATS,
            listed: &[],
            walk: Default::default(),
        })
    }

    /// The arrays and nodes of a store.
    struct Neighbours<'a> {
        arrays: &'a OpenArrays,
        tree: &'a Tree,
    }

    impl Surroundings for Neighbours<'_> {
        fn open_array(&self, path: &str) -> Result<Arc<SharedArray>> {
            Ok(self.arrays.of(None, &path.into()))
        }

        fn node(&self, path: &str) -> Result<Option<Arc<Node>>> {
            Ok(self.tree.node(path)?.map(Arc::new))
        }

        fn children(&self, path: &str) -> Result<Vec<Child>> {
            self.tree.children(path)
        }

        fn is_node(&self, _: &str) -> Result<bool> {
            Ok(false)
        }
    }

    /// Returns the header of a format for the array at a path, without the array's bytes; `None` if the format cannot express it.
    pub fn header(format: &Format, store: &Arc<dyn Store>, path: &str, layout: Layout) -> Option<Vec<u8>> {
        with_subject(store, path, layout, |subject| {
            if !(format.expresses)(subject.node, layout) {
                return None;
            }
            let CompanionContent::Ready(file) = (format.open)(subject).unwrap() else { panic!() };
            let flat_size = file.arrays().count() as u64 * subject.metadata().unwrap().flat_size().unwrap();
            let length = file.size_bytes() - flat_size;
            let (mut buffer, never) = (ReplyBuffer::default(), Cancellation::never());
            let reader = file.reader(Readahead::Off);
            let read = file.read(&reader, (0, length as u32), &mut buffer, Blocking::No, &never);
            Some(read.unwrap().unwrap().to_vec())
        })
    }

    /// Returns the header for an array that is alone in its store.
    pub fn header_of(format: &Format, document: Value, layout: Layout) -> Option<Vec<u8>> {
        header(format, &store(&[("g/a", document)]), "g/a", layout)
    }

    /// Returns the same as text.
    pub fn text_of(format: &Format, document: Value, layout: Layout) -> Option<String> {
        header_of(format, document, layout).map(|header| String::from_utf8(header).unwrap())
    }

    #[test]
    fn axes_by_speed() {
        let store = store(&[("a", document(&[2, 3], "int16", json!({})))]);
        let node = Tree::new(store).node("a").unwrap().unwrap();
        let lengths = |layout| FlatArray::from_node(&node, layout).unwrap().lengths().collect::<Vec<_>>();
        assert_eq!(lengths(LITTLE), [3, 2]);
        assert_eq!(lengths(BIG_F), [2, 3]);
        assert!(FlatArray::from_node(&node, BIG_F).unwrap().is_big_endian);
    }

    #[test]
    fn texts_that_break_no_header() {
        assert_eq!(plain_text(" air temperature "), Some("air temperature"));
        for text in ["", " ", "a\nb", "\"", "a\0", "{", "}", "\\", "<a>", "\u{7f}", &"x".repeat(129)] {
            assert_eq!(plain_text(text), None, "{text:?}");
        }
    }
}
