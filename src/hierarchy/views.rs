//! Views: other flat files of the same array.
//!
//! A view is the stored array opened in another layout, with other metadata, or with its axes in another order. So everything
//! that serves arrays serves views. A slice (`slices.rs`) is a part of the stored array's own file. Uses `metadata`, `codec` to unpack numbers, and the layout of `array`; no I/O. docs/views.md has
//! the rules.
//!
//! Invariant: an array has no view that cannot show it exactly.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::Map;

use super::Node;
use super::slices::Slice;
use crate::array::{ByteOrder, Layout, Order};
use crate::codec::{optional, unpack};
use crate::metadata::conventions::packing::{Packed, Packing};
use crate::metadata::{ArrayMetadata, ChunkGrid, DataType, FillValue};

/// Another flat file of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The last index varies fastest.
    COrder,
    /// The first index varies fastest.
    FOrder,
    /// The most significant byte comes first.
    BigEndian,
    /// The least significant byte comes first.
    LittleEndian,
    /// For each optional element whether it has a value: one byte, 1 or 0.
    Mask,
    /// The unpacked numbers.
    Unpacked,
    /// The planes along an axis, one after the other.
    Planes(u8),
    /// One plane: all elements at one index along an axis.
    Plane {
        /// The axis.
        axis: u8,
        /// The index.
        index: u64,
    },
    /// All slices; only their folders have this view.
    Slices,
    /// One slice.
    Slice(Arc<Slice>),
}

impl View {
    /// Returns the layout of its bytes, if arrays are served in the layout `own`.
    pub fn layout(&self, own: Layout) -> Layout {
        match self {
            View::COrder => Layout { order: Order::C, ..own },
            View::FOrder => Layout { order: Order::F, ..own },
            View::BigEndian => Layout { byte_order: ByteOrder::Big, ..own },
            View::LittleEndian => Layout { byte_order: ByteOrder::Little, ..own },
            View::Mask
            | View::Unpacked
            | View::Planes(_)
            | View::Plane { .. }
            | View::Slices
            | View::Slice(_) => own,
        }
    }

    /// Returns the view that the open array with its bytes has; `None` if that is the array itself. (Planes along the slowest axis are
    /// contiguous in the array's own file, and slices are read from it element by element.)
    pub fn of_array(&self, rank: usize, own: Layout) -> Option<View> {
        match *self {
            View::Plane { axis, .. } | View::Planes(axis) => {
                let slowest = if own.order == Order::F { rank.saturating_sub(1) } else { 0 };
                (usize::from(axis) != slowest).then_some(View::Planes(axis))
            }
            View::Slices | View::Slice(_) => None,
            ref view => Some(view.clone()),
        }
    }

    /// Returns the view of the arrays next to the one that the view shows. Those next to a plane are whole.
    pub fn of_neighbours(&self) -> Option<View> {
        match self {
            View::Planes(_) | View::Plane { .. } | View::Slices => None,
            View::Slice(slice) => Some(View::Slice(Arc::new(slice.for_neighbours()))),
            view => Some(view.clone()),
        }
    }

    /// Returns the axis that varies slowest in its bytes, if the layout does not decide that.
    pub(super) fn slowest_axis(&self) -> Option<usize> {
        match *self {
            View::Planes(axis) | View::Plane { axis, .. } => Some(axis.into()),
            _ => None,
        }
    }

    /// Returns a node as the view shows it; `None` if the view cannot show it. Groups stay as they are.
    pub fn node<'a>(&self, node: &'a Node) -> Option<Cow<'a, Node>> {
        let (metadata, info) = match node {
            Node::Group { .. } if self.slowest_axis().is_none() => return Some(Cow::Borrowed(node)),
            Node::Array { metadata, info } => (metadata, info),
            Node::Group { .. } | Node::Broken { .. } => return None,
        };
        let shown = match self {
            &View::Plane { axis, index } => {
                metadata.shape.get(usize::from(axis)).filter(|length| index < **length)?;
                View::Planes(axis).metadata(metadata)?;
                Cow::Owned(Arc::new(plane(metadata, axis.into())?))
            }
            View::Slice(slice) => {
                View::COrder.metadata(metadata)?;
                slice.metadata(metadata)?
            }
            view => view.metadata(metadata)?,
        };
        Some(match shown {
            Cow::Borrowed(_) => Cow::Borrowed(node),
            Cow::Owned(metadata) => Cow::Owned(Node::Array { metadata, info: *info }),
        })
    }

    /// Returns the metadata of the open array with its bytes; `None` if the view cannot show this array.
    pub(super) fn metadata<'a>(
        &self,
        metadata: &'a Arc<ArrayMetadata>,
    ) -> Option<Cow<'a, Arc<ArrayMetadata>>> {
        metadata.flat_size().filter(|_| metadata.data_type.item_size() != Some(0))?;
        match self {
            View::COrder | View::FOrder | View::LittleEndian => {}
            View::BigEndian => drop(metadata.data_type.components()?),
            View::Mask => return Some(Cow::Owned(Arc::new(mask(metadata)?))),
            View::Unpacked => match Packing::read(metadata) {
                Packing::None => {}
                Packing::Packed(packed) => return Some(Cow::Owned(Arc::new(unpacked(metadata, &packed)?))),
                Packing::Malformed => return None,
            },
            View::Planes(axis) | View::Plane { axis, .. } => {
                metadata.shape.get(usize::from(*axis))?;
            }
            View::Slices | View::Slice(_) => return None,
        }
        Some(Cow::Borrowed(metadata))
    }

    /// Returns where its bytes begin in the open array that has them, if the view has `size_bytes` bytes.
    pub fn offset(&self, size_bytes: u64) -> u64 {
        match self {
            // The array's size fits 63 bits.
            View::Plane { index, .. } => index.saturating_mul(size_bytes),
            _ => 0,
        }
    }
}

/// A cache of nodes as views show them. It keeps the last node of each view. All planes along an axis share one node.
#[derive(Default)]
pub(super) struct ShownNodes {
    latest: Mutex<HashMap<View, ShownNode>>,
}

/// A node, and what a view shows of it.
struct ShownNode {
    stored: Weak<Node>,
    shown: Arc<Node>,
}

impl ShownNodes {
    /// Returns a node as a view shows it; `None` if the view cannot show it.
    pub(super) fn get(&self, view: &View, node: &Arc<Node>) -> Option<Arc<Node>> {
        let key = match (view, &**node) {
            (&View::Plane { axis, index }, Node::Array { metadata, .. }) => {
                metadata.shape.get(usize::from(axis)).filter(|length| index < **length)?;
                View::Plane { axis, index: 0 }
            }
            // There may be any number of slices.
            (View::Slice(_), _) => {
                return match view.node(node)? {
                    Cow::Owned(shown) => Some(Arc::new(shown)),
                    Cow::Borrowed(_) => Some(node.clone()),
                };
            }
            _ => view.clone(),
        };
        let is_of_node = |latest: &&ShownNode| std::ptr::eq(latest.stored.as_ptr(), Arc::as_ptr(node));
        if let Some(latest) = self.latest.lock().get(&key).filter(is_of_node) {
            return Some(latest.shown.clone());
        }
        let Cow::Owned(shown) = view.node(node)? else { return Some(node.clone()) };
        let shown = Arc::new(shown);
        self.latest.lock().insert(key, ShownNode { stored: Arc::downgrade(node), shown: shown.clone() });
        Some(shown)
    }
}

/// Returns the metadata of the unpacked array.
pub(super) fn unpacked(metadata: &ArrayMetadata, packed: &Packed) -> Option<ArrayMetadata> {
    let spec = unpack::spec(packed, &metadata.data_type, &metadata.fill_value);
    let fill = unpack::unpacked_element(&spec, packed, &metadata.fill_value.bytes).ok()?;
    let unpacked = ArrayMetadata {
        data_type: packed.unpacked.clone(),
        fill_value: FillValue { bytes: fill, is_undefined: metadata.fill_value.is_undefined },
        codecs: [spec].into_iter().chain(metadata.codecs.iter().cloned()).collect(),
        attributes: packed.unpacked_attributes(&metadata.attributes),
        ..metadata.clone()
    };
    unpacked.flat_size().map(|_| unpacked)
}

/// Returns the metadata of the mask of an array of optional elements. Their attributes are about values, so the mask has none.
fn mask(metadata: &ArrayMetadata) -> Option<ArrayMetadata> {
    let data_type = metadata.document.get("data_type")?.get("configuration")?;
    let codecs = optional::mask_chain(&metadata.codecs, data_type).filter(|_| metadata.is_optional())?;
    let mut document = metadata.document.clone();
    // The elements of the mask are not optional.
    document.shift_remove("data_type");
    let has_value = u8::from(!metadata.fill_value.is_undefined);
    Some(ArrayMetadata {
        data_type: DataType::Bool,
        fill_value: FillValue { bytes: vec![has_value], is_undefined: false },
        codecs,
        attributes: Map::new(),
        document,
        ..metadata.clone()
    })
}

/// Returns the metadata of each plane along an axis. Planes have no codecs of their own.
fn plane(metadata: &ArrayMetadata, axis: usize) -> Option<ArrayMetadata> {
    fn without<T: Clone>(list: &[T], axis: usize) -> Vec<T> {
        list.iter().enumerate().filter(|(index, _)| *index != axis).map(|(_, item)| item.clone()).collect()
    }
    let chunk_grid = match &metadata.chunk_grid {
        ChunkGrid::Regular(shape) => ChunkGrid::Regular(without(shape, axis)),
        ChunkGrid::Rectilinear(axes) => ChunkGrid::Rectilinear(without(axes, axis)),
    };
    let plane = ArrayMetadata {
        shape: without(&metadata.shape, axis),
        chunk_grid,
        codecs: Vec::new(),
        dimension_names: metadata.dimension_names.as_ref().map(|names| without(names, axis)),
        ..metadata.clone()
    };
    plane.flat_size().map(|_| plane)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::array::{Array, Engine, FileLayout};
    use crate::store::{Info, MemoryStore, ObjectVersion, Store};
    use serde_json::{Value, json};

    const OWN: Layout = Layout { order: Order::C, byte_order: ByteOrder::Little };
    const F: Layout = Layout { order: Order::F, byte_order: ByteOrder::Little };

    fn node(data_type: &str, attributes: Value) -> Node {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [2, 3, 2], "data_type": data_type,
            "fill_value": 1, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2, 2]}},
            "chunk_key_encoding": {"name": "default"}, "attributes": attributes, "dimension_names": ["a", "b", "c"],
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]});
        let parsed = crate::metadata::parse_v3("a/zarr.json", document.to_string().as_bytes()).unwrap();
        let crate::metadata::Document::Array(metadata) = parsed else { unreachable!() };
        let version = ObjectVersion::numbered(0);
        let info = Info { size_bytes: 0, modified: None, version, posix: None };
        Node::Array { metadata: metadata.into(), info }
    }

    fn metadata(node: &Node) -> &Arc<ArrayMetadata> {
        let Node::Array { metadata, .. } = node else { unreachable!() };
        metadata
    }

    #[test]
    fn planes_lose_their_axis() {
        let node = node("int16", json!({}));
        let shown = View::Plane { axis: 1, index: 2 }.node(&node).unwrap();
        assert_eq!(metadata(&shown).shape, [2, 2]);
        assert_eq!(metadata(&shown).dimension_names, Some(vec![Some("a".into()), Some("c".into())]));
        assert!(View::Plane { axis: 1, index: 3 }.node(&node).is_none());
        assert!(View::Plane { axis: 3, index: 0 }.node(&node).is_none());
        assert_eq!(View::Plane { axis: 1, index: 2 }.offset(8), 16);
    }

    #[test]
    fn the_last_node_of_a_view_is_kept() {
        let (nodes, node) = (ShownNodes::default(), Arc::new(node("int16", json!({}))));
        let plane = |index| nodes.get(&View::Plane { axis: 1, index }, &node);
        let first = plane(0).unwrap();
        assert!(Arc::ptr_eq(&first, &plane(2).unwrap()) && plane(3).is_none());
        assert!(Arc::ptr_eq(&node, &nodes.get(&View::FOrder, &node).unwrap()));
        let other = Arc::new((*node).clone());
        let of_other = nodes.get(&View::Plane { axis: 1, index: 0 }, &other).unwrap();
        assert!(!Arc::ptr_eq(&first, &of_other));
    }

    #[test]
    fn the_slowest_axis_is_that_of_the_array_itself() {
        let of = |axis, layout| View::Plane { axis, index: 0 }.of_array(3, layout);
        assert_eq!(of(0, OWN), None);
        assert_eq!(of(2, F), None);
        assert_eq!(of(2, OWN), Some(View::Planes(2)));
        assert_eq!(of(0, F), Some(View::Planes(0)));
        assert_eq!(View::COrder.of_array(3, OWN), Some(View::COrder));
    }

    #[test]
    fn packed_numbers() {
        let stored = node("int16", json!({"scale_factor": 0.5, "add_offset": 10, "units": "K"}));
        let shown = View::Unpacked.node(&stored).unwrap();
        let unpacked = metadata(&shown);
        assert_eq!(unpacked.fill_value.bytes, 10.5f64.to_le_bytes());
        assert_eq!(Value::Object(unpacked.attributes.clone()), json!({"units": "K"}));
        assert_eq!(unpacked.flat_size(), Some(96));
        assert!(View::Unpacked.node(&node("int16", json!({"scale_factor": "x"}))).is_none());
        assert!(matches!(View::Unpacked.node(&node("int16", json!({}))), Some(Cow::Borrowed(_))));
    }

    #[test]
    fn values_and_masks_of_optional_elements() {
        let document = |fill: Value, codecs: Value| {
            json!({"zarr_format": 3, "node_type": "array", "shape": [2, 3], "fill_value": fill, "codecs": codecs,
                "data_type": {"name": "optional", "configuration": {"name": "int16", "configuration": {}}},
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 3]}},
                "chunk_key_encoding": {"name": "default"}, "attributes": {"units": "K"}})
        };
        let codec = json!({"name": "zarrs.optional", "configuration": {"mask_codecs": ["bytes"],
            "data_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}});
        let parsed =
            |document: Value| crate::metadata::parse_v3("a/zarr.json", document.to_string().as_bytes());
        let memory = MemoryStore::new();
        let chunk = [&3u64.to_le_bytes()[..], &4u64.to_le_bytes(), &[1, 0, 1], &[0, 7, 0, 8]].concat();
        memory.put("a/c/0/0", chunk).unwrap();
        let store: Arc<dyn Store> = Arc::new(memory);
        let engine = Engine::new(1 << 20, 1);
        let read = |metadata: Arc<ArrayMetadata>| {
            let array = Array::open(&engine, &store, "a", metadata, OWN).unwrap();
            let mut bytes = vec![9; array.size_bytes() as usize];
            array.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let version = ObjectVersion::numbered(0);
        let info = Info { size_bytes: 0, modified: None, version, posix: None };
        for (fill, value, has_value) in [(json!(null), 0, 0), (json!([5]), 5, 1)] {
            let Ok(crate::metadata::Document::Array(array)) = parsed(document(fill, json!([codec]))) else {
                unreachable!()
            };
            assert_eq!(array.proposals(), ["data type \"optional\""]);
            let node = Node::Array { metadata: array.into(), info };
            assert_eq!(read(metadata(&node).clone()), [7, 0, value, 0, 8, 0, value, 0, value, 0, value, 0]);
            let mask = View::Mask.node(&node).unwrap();
            assert_eq!(read(metadata(&mask).clone()), [1, 0, 1, has_value, has_value, has_value]);
            assert!(metadata(&mask).attributes.is_empty() && View::Mask.node(&mask).is_none());
        }
        for (fill, codecs) in
            [(json!(5), json!([codec])), (json!([]), json!([codec])), (json!(null), json!(["bytes"]))]
        {
            assert!(parsed(document(fill.clone(), codecs)).is_err(), "{fill}");
        }
        let mut plain = document(json!(5), json!([codec]));
        plain["data_type"] = json!("int16");
        assert!(parsed(plain).is_err());
        assert!(View::Mask.node(&self::node("int16", json!({}))).is_none());
    }

    #[test]
    fn bytes_of_planes_and_numbers() {
        let memory = MemoryStore::new();
        let chunk = |from: i16| (from..from + 8).flat_map(i16::to_le_bytes).collect::<Vec<u8>>();
        memory.put("a/c/0/0/0", chunk(0)).unwrap();
        let store: Arc<dyn Store> = Arc::new(memory);
        let stored = node("int16", json!({"scale_factor": 2, "missing_value": 3}));
        let engine = Engine::new(1 << 20, 1);
        let read = |array: Arc<Array>| {
            let mut bytes = vec![0; array.size_bytes() as usize];
            array.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let by_planes = FileLayout { layout: OWN, slowest: Some(1) };
        let planes = Array::open(&engine, &store, "a", metadata(&stored).clone(), by_planes).unwrap();
        let elements: Vec<i16> =
            read(planes).chunks_exact(2).map(|two| i16::from_le_bytes(two.try_into().unwrap())).collect();
        assert_eq!(elements, [0, 1, 4, 5, 2, 3, 6, 7, 1, 1, 1, 1]);
        let shown = View::Unpacked.node(&stored).unwrap();
        let array = Array::open(&engine, &store, "a", metadata(&shown).clone(), F).unwrap();
        let numbers: Vec<f64> =
            read(array).chunks_exact(8).map(|eight| f64::from_le_bytes(eight.try_into().unwrap())).collect();
        assert_eq!(numbers[..5], [0.0, 8.0, 4.0, 12.0, 2.0]);
        assert!(numbers[8].is_nan(), "{numbers:?}");
    }
}
