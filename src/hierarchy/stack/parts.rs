//! From the operations of a stack to the parts that reads go through: types and shapes are checked here.
//!
//! Uses `document.rs`, `targets.rs`, `converter.rs`, `slices.rs`, `views.rs` and `metadata`; reads no elements. Invariants: the parts
//! of a concatenation differ in the length of its axis alone; every index that a read makes lies in its part.

use std::sync::Arc;

use serde_json::Value;

use super::super::slices::{AxisPart, Slice};
use super::super::views::unpacked;
use super::converter::ElementConverter;
use super::document::{DownsampleMethod, SliceEntry, StackAxis, StackOperation};
use super::targets::TargetState;
use crate::array::AxisSelection;
use crate::error::{Error, Result};
use crate::metadata::author::ElementType;
use crate::metadata::conventions::no_data::{FILL_ATTRIBUTE, NoData};
use crate::metadata::conventions::packing::Packing;
use crate::metadata::data_type::numeric::NumericType;
use crate::metadata::json::parse_error::ParseError;
use crate::metadata::{ArrayMetadata, FillValue, MAX_RANK};

/// Attributes that say what elements mean. Arrays that are put together agree in them.
const MEANING_ATTRIBUTES: [&str; 3] = ["units", "calendar", "_Unsigned"];

/// Elements, and where they come from.
pub struct StackPart {
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// The bytes of an element.
    pub item_bytes: usize,
    /// Where they come from.
    pub source: PartSource,
}

/// Where the elements of a part come from.
pub enum PartSource {
    /// An array.
    Target(Arc<TargetState>),
    /// Selected elements of another part.
    Slice {
        /// The other part.
        base: Box<StackPart>,
        /// The selected elements of each of its axes.
        axes: Vec<AxisPart>,
    },
    /// Parts one after the other.
    Concat {
        /// The parts.
        layers: Vec<StackPart>,
        /// Where each ends along the axis.
        ends: Vec<u64>,
        /// The axis.
        axis: usize,
    },
    /// Parts along an axis that they do not have.
    Stack {
        /// The parts.
        layers: Vec<StackPart>,
        /// The axis.
        axis: usize,
    },
    /// Other elements in the same places.
    Convert {
        /// What they are made from.
        base: Box<StackPart>,
        /// How.
        converter: Box<ElementConverter>,
    },
    /// The mean of several elements of another part.
    Mean {
        /// The other part.
        base: Box<StackPart>,
        /// How many along each axis.
        factors: Vec<u64>,
        /// The type.
        numeric: NumericType,
    },
}

/// A part, and what a document says about its elements.
pub struct DescribedPart {
    /// The part.
    pub part: StackPart,
    /// The metadata. It has no codecs.
    pub metadata: Arc<ArrayMetadata>,
    /// What messages call it.
    name: String,
}

/// Finds the target in a store at a path.
type FindTarget<'a> = dyn Fn(&str, &str) -> Result<Arc<TargetState>> + 'a;

/// Builds the parts of one virtual array.
pub struct PartBuilder<'a> {
    /// The key of the array's document.
    pub key: &'a str,
    /// Finds targets.
    pub find: &'a FindTarget<'a>,
}

impl PartBuilder<'_> {
    fn refused(&self, reason: impl Into<String>) -> Error {
        Error::metadata(self.key, reason)
    }

    /// Builds the parts of an operation.
    pub fn build(&self, operation: &StackOperation) -> Result<DescribedPart> {
        match operation {
            StackOperation::Array { store, path } => self.target((self.find)(store, path)?),
            StackOperation::Slice { base, index } => self.slice(self.build(base)?, index),
            StackOperation::Concat { layers, axis } => self.concat(self.layers(layers)?, axis),
            StackOperation::Stack { layers, axis, name } => {
                self.stack(self.layers(layers)?, *axis, name.as_deref())
            }
            StackOperation::Cast { base, data_type } => self.cast(self.build(base)?, data_type),
            StackOperation::Unpack { base } => self.unpack(self.build(base)?),
            StackOperation::Downsample { base, factors, method } => {
                self.downsample(self.build(base)?, factors, *method)
            }
            StackOperation::Described { base, attributes, dimension_names } => {
                let base = self.build(base)?;
                let mut metadata = ArrayMetadata::clone(&base.metadata);
                if let Some(attributes) = attributes {
                    metadata.attributes = attributes.clone();
                }
                if let Some(names) = dimension_names {
                    if names.len() != metadata.shape.len() {
                        let (names, rank) = (names.len(), metadata.shape.len());
                        return Err(self.refused(format!("{names} dimension_names for {rank} axes")));
                    }
                    metadata.dimension_names = Some(names.clone());
                }
                Ok(DescribedPart { metadata: Arc::new(metadata), ..base })
            }
        }
    }

    fn layers(&self, layers: &[StackOperation]) -> Result<Vec<DescribedPart>> {
        layers.iter().map(|layer| self.build(layer)).collect()
    }

    fn target(&self, state: Arc<TargetState>) -> Result<DescribedPart> {
        let (metadata, name) = (state.metadata.clone(), state.name());
        let size = metadata.data_type.item_size().filter(|size| *size > 0 && !metadata.is_optional());
        let Some(item_bytes) = size else {
            let type_name = metadata.data_type.name();
            return Err(Error::unsupported(
                self.key,
                format!("{name} is {type_name}, and only elements of a fixed size can be put together"),
            ));
        };
        let light = ArrayMetadata { codecs: Vec::new(), ..ArrayMetadata::clone(&metadata) };
        let part = StackPart { shape: metadata.shape.clone(), item_bytes, source: PartSource::Target(state) };
        Ok(DescribedPart { part, metadata: Arc::new(light), name })
    }

    fn slice(&self, base: DescribedPart, index: &[SliceEntry]) -> Result<DescribedPart> {
        let DescribedPart { part, metadata, name } = base;
        let shape = &part.shape;
        if index.len() != shape.len() {
            let (entries, rank) = (index.len(), shape.len());
            return Err(
                self.refused(format!("slice: {entries} entries of index for the {rank} axes of {name}"))
            );
        }
        let mut axes = Vec::new();
        for (axis, (entry, &length)) in index.iter().zip(shape).enumerate() {
            let axis_part = match *entry {
                SliceEntry::All => AxisPart::whole(length),
                SliceEntry::Single(at) => AxisPart::single(at),
                SliceEntry::Range { start, stop, step } => {
                    let (stop, step) = (stop.min(length), i64::try_from(step).unwrap_or(i64::MAX));
                    let count = stop.saturating_sub(start).div_ceil(step.unsigned_abs());
                    let start = if count == 0 { 0 } else { start };
                    AxisPart { selection: AxisSelection { start, step, count }, is_dropped: false }
                }
            };
            if !axis_part.selection.is_inside(length) {
                return Err(self.refused(format!(
                    "slice: the index lies outside axis {axis} of {name}, which has {length} elements"
                )));
            }
            axes.push(axis_part);
        }
        self.selected(DescribedPart { part, metadata, name }, axes)
    }

    fn selected(&self, base: DescribedPart, axes: Vec<AxisPart>) -> Result<DescribedPart> {
        let DescribedPart { part, metadata, name } = base;
        let slice = Slice { index: String::new(), axes: Some(axes.clone()), dimensions: Vec::new() };
        let sliced =
            slice.metadata(&metadata).ok_or_else(|| self.refused(format!("slice: not inside {name}")))?;
        let sliced = sliced.into_owned();
        let item_bytes = part.item_bytes;
        let source = PartSource::Slice { base: Box::new(part), axes };
        let part = StackPart { shape: sliced.shape.clone(), item_bytes, source };
        Ok(DescribedPart { part, metadata: sliced, name })
    }

    /// Fails unless two arrays agree in everything but the length of an axis.
    fn check_agreement(
        &self,
        first: &DescribedPart,
        other: &DescribedPart,
        along: Option<usize>,
    ) -> Result<()> {
        let (one, two) = (&first.metadata, &other.metadata);
        let (of_one, of_two) = (&first.name, &other.name);
        if one.data_type != two.data_type {
            let (type_of_two, type_of_one) = (two.data_type.name(), one.data_type.name());
            return Err(self.refused(format!("{of_two} is {type_of_two}, but {of_one} is {type_of_one}")));
        }
        let is_same = |(axis, (a, b)): (usize, (&u64, &u64))| Some(axis) == along || a == b;
        if one.shape.len() != two.shape.len() || !one.shape.iter().zip(&two.shape).enumerate().all(is_same) {
            let but = along.map_or(String::new(), |axis| {
                format!("; they may differ along {} only", axis_name(one, axis))
            });
            return Err(self.refused(format!(
                "{of_two} has the shape {:?}, but {of_one} has {:?}{but}",
                two.shape, one.shape
            )));
        }
        for name in MEANING_ATTRIBUTES {
            let shown = |metadata: &ArrayMetadata| match metadata.attributes.get(name) {
                Some(value) => format!("{name} {value}"),
                None => format!("no {name}"),
            };
            if one.attributes.get(name) != two.attributes.get(name) {
                let reason = format!("{of_two} has {}, but {of_one} has {}", shown(two), shown(one));
                return Err(self.refused(reason));
            }
        }
        if missing_values(one) != missing_values(two) {
            return Err(self.refused(format!(
                "{of_two} has other values for missing data than {of_one} (_FillValue, missing_value, nodata)"
            )));
        }
        if Packing::read(one) != Packing::read(two) {
            return Err(self.refused(format!(
                "{of_two} is packed otherwise than {of_one} (scale_factor, add_offset, _FillValue); unpack both"
            )));
        }
        Ok(())
    }

    fn concat(&self, layers: Vec<DescribedPart>, axis: &StackAxis) -> Result<DescribedPart> {
        let first = layers.first().ok_or_else(|| self.refused("concat has no layers"))?;
        let axis = self.axis_of(axis, first)?;
        let (mut end, mut ends) = (0_u64, Vec::new());
        for layer in &layers {
            self.check_agreement(first, layer, Some(axis))?;
            let length = layer.part.shape.get(axis).copied().unwrap_or_default();
            end = end
                .checked_add(length)
                .ok_or_else(|| self.refused("concat: the axis is longer than 2^64"))?;
            ends.push(end);
        }
        let mut metadata = ArrayMetadata::clone(&first.metadata);
        if let Some(length) = metadata.shape.get_mut(axis) {
            *length = end;
        }
        let (name, item_bytes) = (first.name.clone(), first.part.item_bytes);
        let shape = self.checked(&metadata)?;
        let layers = layers.into_iter().map(|layer| layer.part).collect();
        let part = StackPart { shape, item_bytes, source: PartSource::Concat { layers, ends, axis } };
        Ok(DescribedPart {
            part,
            metadata: Arc::new(metadata),
            name: format!("the concatenation of {name} and others"),
        })
    }

    fn stack(
        &self,
        layers: Vec<DescribedPart>,
        axis: usize,
        axis_name: Option<&str>,
    ) -> Result<DescribedPart> {
        let first = layers.first().ok_or_else(|| self.refused("stack has no layers"))?;
        for layer in &layers {
            self.check_agreement(first, layer, None)?;
        }
        let mut metadata = ArrayMetadata::clone(&first.metadata);
        let rank = metadata.shape.len();
        if axis > rank || rank >= MAX_RANK {
            let name = &first.name;
            return Err(
                self.refused(format!("stack: axis {axis} cannot be added to the {rank} axes of {name}"))
            );
        }
        metadata.shape.insert(axis, layers.len() as u64);
        if axis_name.is_some() || metadata.dimension_names.is_some() {
            let mut names = metadata.dimension_names.take().unwrap_or_else(|| vec![None; rank]);
            names.insert(axis, axis_name.map(str::to_owned));
            metadata.dimension_names = Some(names);
        }
        let (name, item_bytes) = (first.name.clone(), first.part.item_bytes);
        let shape = self.checked(&metadata)?;
        let layers = layers.into_iter().map(|layer| layer.part).collect();
        let part = StackPart { shape, item_bytes, source: PartSource::Stack { layers, axis } };
        Ok(DescribedPart {
            part,
            metadata: Arc::new(metadata),
            name: format!("the stack of {name} and others"),
        })
    }

    fn cast(&self, base: DescribedPart, data_type: &str) -> Result<DescribedPart> {
        let cannot = |reason: String| self.refused(format!("cast of {}: {reason}", base.name));
        let (converter, data_type) =
            ElementConverter::cast(&base.metadata.data_type, data_type).map_err(cannot)?;
        let mut metadata = ArrayMetadata::clone(&base.metadata);
        let mut fill = vec![0; converter.item_bytes()];
        // A fill value that the type does not have is not needed: every chunk of a virtual array is there.
        metadata.fill_value = match converter.convert(&metadata.fill_value.bytes, &mut fill) {
            Ok(()) => FillValue { bytes: fill, is_undefined: metadata.fill_value.is_undefined },
            Err(_) => FillValue::zeros(&data_type),
        };
        metadata.data_type = data_type;
        self.converted(base, converter, metadata)
    }

    fn unpack(&self, base: DescribedPart) -> Result<DescribedPart> {
        let name = &base.name;
        let packed = match Packing::read(&base.metadata) {
            Packing::None => return Ok(base),
            Packing::Packed(packed) => packed,
            Packing::Malformed => {
                return Err(
                    self.refused(format!("unpack: the packing attributes of {name} contradict each other"))
                );
            }
        };
        let cannot = || self.refused(format!("unpack: {name} cannot be unpacked"));
        let mut metadata = unpacked(&base.metadata, &packed).ok_or_else(cannot)?;
        let spec = metadata.codecs.drain(..).next().ok_or_else(cannot)?;
        let converter = ElementConverter::new(spec, &base.metadata.data_type, &metadata.data_type)
            .map_err(|reason| self.refused(format!("unpack of {name}: {reason}")))?;
        self.converted(base, converter, metadata)
    }

    fn converted(
        &self,
        base: DescribedPart,
        converter: ElementConverter,
        metadata: ArrayMetadata,
    ) -> Result<DescribedPart> {
        let shape = self.checked(&metadata)?;
        let item_bytes = converter.item_bytes();
        let source = PartSource::Convert { base: Box::new(base.part), converter: Box::new(converter) };
        let part = StackPart { shape, item_bytes, source };
        Ok(DescribedPart { part, metadata: Arc::new(metadata), name: base.name })
    }

    fn downsample(
        &self,
        base: DescribedPart,
        factors: &[u64],
        method: DownsampleMethod,
    ) -> Result<DescribedPart> {
        let name = base.name.clone();
        let rank = base.part.shape.len();
        if factors.len() != rank {
            let count = factors.len();
            return Err(self.refused(format!("downsample: {count} factors for the {rank} axes of {name}")));
        }
        let shape: Vec<u64> =
            base.part.shape.iter().zip(factors).map(|(length, factor)| length.div_ceil(*factor)).collect();
        if method == DownsampleMethod::Stride {
            let axis = |(&factor, &count): (&u64, &u64)| {
                let step = i64::try_from(factor).unwrap_or(i64::MAX);
                AxisPart { selection: AxisSelection { start: 0, step, count }, is_dropped: false }
            };
            let axes = factors.iter().zip(&shape).map(axis).collect();
            return self.selected(base, axes);
        }
        let numeric = base.metadata.data_type.numeric_type().filter(|numeric| {
            (numeric.is_integer() || numeric.is_float()) && numeric.data_type() == base.metadata.data_type
        });
        let Some(numeric) = numeric else {
            let type_name = base.metadata.data_type.name();
            return Err(self.refused(format!("downsample: {name} is {type_name}, which has no mean here")));
        };
        if factors.iter().try_fold(1_u64, |product, factor| product.checked_mul(*factor)).is_none() {
            return Err(self.refused("downsample: the factors are too large".to_owned()));
        }
        let mut metadata = ArrayMetadata::clone(&base.metadata);
        metadata.shape.clone_from(&shape);
        let item_bytes = base.part.item_bytes;
        let source = PartSource::Mean { base: Box::new(base.part), factors: factors.to_vec(), numeric };
        Ok(DescribedPart {
            part: StackPart { shape, item_bytes, source },
            metadata: Arc::new(metadata),
            name: format!("the means of {name}"),
        })
    }

    fn axis_of(&self, axis: &StackAxis, first: &DescribedPart) -> Result<usize> {
        let (metadata, name) = (&first.metadata, &first.name);
        match axis {
            StackAxis::Number(number) if *number < metadata.shape.len() => Ok(*number),
            StackAxis::Number(number) => Err(self.refused(format!("concat: {name} has no axis {number}"))),
            StackAxis::Name(wanted) => {
                let names = metadata.dimension_names.as_deref().unwrap_or_default();
                let found = names.iter().position(|name| name.as_ref() == Some(wanted));
                found.ok_or_else(|| self.refused(format!("concat: {name} has no axis named {wanted}")))
            }
        }
    }

    /// Returns the shape, if an array can have it.
    fn checked(&self, metadata: &ArrayMetadata) -> Result<Vec<u64>> {
        let fits = metadata.flat_size().is_some() && metadata.shape.iter().all(|n| i64::try_from(*n).is_ok());
        let too_large = || self.refused(format!("the shape {:?} has more than 2^63-1 bytes", metadata.shape));
        fits.then(|| metadata.shape.clone()).ok_or_else(too_large)
    }
}

fn axis_name(metadata: &ArrayMetadata, axis: usize) -> String {
    let names = metadata.dimension_names.as_deref().unwrap_or_default();
    names.get(axis).cloned().flatten().unwrap_or_else(|| format!("axis {axis}"))
}

impl StackPart {
    /// Whether the elements are where they were in `old`, which may have been shorter along the first axis.
    pub fn continues(&self, old: &StackPart, may_grow: bool) -> bool {
        let all = |new: &[StackPart], old: &[StackPart], may_grow: &dyn Fn(usize) -> bool| {
            let each =
                |(place, (new, old)): (usize, (&StackPart, &StackPart))| new.continues(old, may_grow(place));
            new.len() == old.len() && new.iter().zip(old).enumerate().all(each)
        };
        if self.item_bytes != old.item_bytes {
            return false;
        }
        match (&self.source, &old.source) {
            (PartSource::Target(new), PartSource::Target(old)) => new.continues(old, may_grow),
            (PartSource::Slice { base, axes }, PartSource::Slice { base: old, axes: old_axes }) => {
                axes == old_axes && base.continues(old, true)
            }
            (
                PartSource::Concat { layers, axis, .. },
                PartSource::Concat { layers: old, axis: old_axis, .. },
            ) => {
                let last = layers.len().saturating_sub(1);
                let grows = |place: usize| may_grow && (*axis != 0 || place == last);
                axis == old_axis && all(layers, old, &grows)
            }
            (PartSource::Stack { layers, axis }, PartSource::Stack { layers: old, axis: old_axis }) => {
                axis == old_axis && all(layers, old, &|_| may_grow && *axis != 0)
            }
            (PartSource::Convert { base, .. }, PartSource::Convert { base: old, .. }) => {
                base.continues(old, may_grow)
            }
            (
                PartSource::Mean { base, factors, .. },
                PartSource::Mean { base: old, factors: old_factors, .. },
            ) => factors == old_factors && base.continues(old, false),
            _ => false,
        }
    }

    /// Calls `each` with the targets that may have elements in these ranges.
    pub fn each_target(&self, ranges: &[(u64, u64)], each: &mut dyn FnMut(&Arc<TargetState>)) {
        match &self.source {
            PartSource::Target(state) => each(state),
            PartSource::Slice { base, axes } => {
                let mut given = ranges.iter();
                let of_base = axes.iter().map(|axis| {
                    let (first, end) =
                        if axis.is_dropped { (0, 1) } else { given.next().copied().unwrap_or_default() };
                    let step = axis.selection.step.unsigned_abs();
                    let at = |place: u64| axis.selection.start.saturating_add(place.saturating_mul(step));
                    (at(first), at(end.saturating_sub(1)).saturating_add(1))
                });
                base.each_target(&of_base.collect::<Vec<_>>(), each);
            }
            PartSource::Concat { layers, ends, axis } => {
                let Some(&(first, end)) = ranges.get(*axis) else { return };
                let mut start = 0;
                for (layer, &layer_end) in layers.iter().zip(ends) {
                    if start < end && first < layer_end {
                        let mut of_layer = ranges.to_vec();
                        if let Some(range) = of_layer.get_mut(*axis) {
                            *range = (first.max(start) - start, end.min(layer_end) - start);
                        }
                        layer.each_target(&of_layer, each);
                    }
                    start = layer_end;
                }
            }
            PartSource::Stack { layers, axis } => {
                let Some(&(first, end)) = ranges.get(*axis) else { return };
                let mut of_layer = ranges.to_vec();
                of_layer.remove(*axis);
                let skipped = usize::try_from(first).unwrap_or(usize::MAX);
                let count = usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX);
                layers.iter().skip(skipped).take(count).for_each(|layer| layer.each_target(&of_layer, each));
            }
            PartSource::Convert { base, .. } => base.each_target(ranges, each),
            PartSource::Mean { base, factors, .. } => {
                let of_base = ranges.iter().zip(factors).map(|((first, end), factor)| {
                    (first.saturating_mul(*factor), end.saturating_mul(*factor))
                });
                base.each_target(&of_base.collect::<Vec<_>>(), each);
            }
        }
    }

    /// Calls `each` with all targets.
    pub fn each_target_anywhere(&self, each: &mut dyn FnMut(&Arc<TargetState>)) {
        match &self.source {
            PartSource::Target(state) => each(state),
            PartSource::Slice { base, .. }
            | PartSource::Convert { base, .. }
            | PartSource::Mean { base, .. } => {
                base.each_target_anywhere(each);
            }
            PartSource::Concat { layers, .. } | PartSource::Stack { layers, .. } => {
                layers.iter().for_each(|layer| layer.each_target_anywhere(each));
            }
        }
    }
}

/// Returns the values that stand for missing data, without NaN: every program treats NaN as missing, whether it is named or not.
fn missing_values(metadata: &ArrayMetadata) -> Vec<Vec<u8>> {
    let values = NoData::read(metadata).values.into_iter();
    values.filter(|value| !value.is_nan(&metadata.data_type)).map(|value| value.bytes).collect()
}

/// Returns metadata as a document of an uncompressed array of Zarr v3, in chunks of this shape.
pub fn document(metadata: &ArrayMetadata, chunk_shape: &[u64], key: &str) -> Result<Vec<u8>> {
    let refused = |error: ParseError| error.into_error(key);
    let element = ElementType::from_data_type(metadata.data_type.clone()).map_err(refused)?;
    let fill_value = if metadata.fill_value.is_undefined {
        FillValue::zeros(&metadata.data_type)
    } else {
        metadata.fill_value.clone()
    };
    let mut attributes = metadata.attributes.clone();
    let no_data = NoData::read(metadata);
    // In v2, the document's own fill value may stand for missing data. In v3, only an attribute does.
    if let Some(value) = no_data.values.iter().find(|value| value.attribute == FILL_ATTRIBUTE)
        && !attributes.contains_key(FILL_ATTRIBUTE)
    {
        attributes.insert(FILL_ATTRIBUTE.to_owned(), value.to_json(&metadata.data_type));
    }
    let mut document = serde_json::json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": metadata.shape,
        "data_type": element.v3().map_err(refused)?,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value.to_json(&metadata.data_type),
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": attributes,
    });
    if let (Some(names), Value::Object(members)) = (&metadata.dimension_names, &mut document) {
        members.insert("dimension_names".to_owned(), serde_json::json!(names));
    }
    Ok(document.to_string().into_bytes())
}

/// Returns the chunk shape of a virtual array: whole rows, of at most `most_bytes`.
pub fn chunk_shape(shape: &[u64], item_bytes: usize, most_bytes: u64) -> Vec<u64> {
    /// Chunks of a short first axis have room for this many elements along it, so that the axis may grow.
    const SHORT: u64 = 1024;
    let mut left = (most_bytes / item_bytes.max(1) as u64).max(1);
    let mut chunk: Vec<u64> = Vec::new();
    for (axis, &length) in shape.iter().enumerate().rev() {
        let room = if axis == 0 { length.max(SHORT).next_power_of_two() } else { length };
        let count = room.clamp(1, left);
        chunk.push(count);
        // Chunks are contiguous: an axis before one that is cut has one element.
        left = if count < length { 1 } else { (left / count).max(1) };
    }
    chunk.reverse();
    chunk
}
