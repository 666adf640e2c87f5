//! Parts of a file's variables: the elements that a slice selects.
//!
//! Uses `boxes.rs`, `source_file.rs`, and the slices of `hierarchy`. A box of a slice is read as boxes of the variable: along an axis whose
//! step leaves out whole chunks of the file, or long ranges of it, each selected index is read by itself. Elsewhere the elements between the
//! selected ones are read and left out, at most [`SPAN_BYTES`] of them at a time, or one chunk of the file.

use super::boxes::{Destination, ElementBox};
use super::source_file::{Elements, SourceFile};
use super::variable::{Attribute, SourceVariable, refused};
use crate::error::Result;
use crate::hierarchy::slices::AxisPart;

/// The most bytes that are read at a time to get the selected ones between them, unless one chunk of the file is longer.
const SPAN_BYTES: u64 = 64 << 20;
/// In a file without chunks, selected elements that lie this near to each other are read together.
const NEAR_BYTES: u64 = 4096;

/// The part of a variable.
#[derive(Clone, Debug)]
pub struct VariableSlice {
    /// The number of the variable.
    pub variable: usize,
    /// The selected elements of each axis. All of them are in the variable.
    pub axes: Vec<AxisPart>,
    /// The attributes that hold for the part.
    pub attributes: Vec<Attribute>,
}

impl SourceFile {
    /// Replaces variables by parts of them. Other variables stay whole.
    pub fn with_slices(mut self, slices: Vec<VariableSlice>) -> SourceFile {
        let mut sliced: Vec<Option<SlicedVariable>> = Vec::new();
        sliced.resize_with(self.variables.len(), || None);
        for VariableSlice { variable: number, axes, attributes } in slices {
            let (Some(variable), Some(slot)) = (self.variables.get_mut(number), sliced.get_mut(number))
            else {
                continue;
            };
            let whole = variable.clone();
            *variable = SourceVariable { attributes, ..part_of(&whole, &axes) };
            *slot = Some(SlicedVariable { whole, axes });
        }
        self.elements = Box::new(SlicedElements { name: self.name.clone(), sliced, elements: self.elements });
        self
    }
}

/// Returns the variable that a part is.
fn part_of(whole: &SourceVariable, axes: &[AxisPart]) -> SourceVariable {
    let kept = || axes.iter().enumerate().filter(|(_, part)| !part.is_dropped);
    let chunk = |(axis, part): (usize, &AxisPart)| {
        let length = whole.chunks.as_ref()?.get(axis)?;
        let step = part.selection.step.unsigned_abs().max(1);
        Some(length.div_ceil(step).clamp(1, part.selection.count.max(1)))
    };
    SourceVariable {
        dimensions: kept().filter_map(|(axis, _)| whole.dimensions.get(axis).cloned()).collect(),
        is_unlimited: kept().filter_map(|(axis, _)| whole.is_unlimited.get(axis).copied()).collect(),
        shape: kept().map(|(_, part)| part.selection.count).collect(),
        chunks: whole.chunks.as_ref().and_then(|_| kept().map(chunk).collect()),
        ..whole.clone()
    }
}

/// A variable, and the part of it that is read.
struct SlicedVariable {
    whole: SourceVariable,
    axes: Vec<AxisPart>,
}

/// The elements of variables, of which some are sliced.
struct SlicedElements {
    /// The name that errors have.
    name: String,
    sliced: Vec<Option<SlicedVariable>>,
    elements: Box<dyn Elements>,
}

impl Elements for SlicedElements {
    fn read(&mut self, variable: usize, part: &ElementBox) -> Result<Vec<u8>> {
        let SlicedElements { name, sliced, elements } = self;
        let Some(Some(slice)) = sliced.get(variable) else { return elements.read(variable, part) };
        let item_bytes = slice.whole.item_bytes();
        let bytes = part.bytes(item_bytes);
        let mut out = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let wanted = slice.with_dropped_axes(part);
        let mut left = if bytes == 0 { Vec::new() } else { vec![wanted.clone()] };
        while let Some(places) = left.pop() {
            if let Some(axis) = slice.axis_to_split(&places) {
                // The first half is read first, because chunks follow each other in the file.
                let [first, second] = halves(&places, axis);
                left.extend([second, first]);
                continue;
            }
            let span = slice.span(&places);
            span.check_size(item_bytes, &slice.whole.path, name)?;
            let read = elements.read(variable, &span)?;
            if read.len() as u64 != span.bytes(item_bytes) {
                let reason = format!(
                    "'/{}': {} bytes were read instead of {}",
                    slice.whole.path,
                    read.len(),
                    span.bytes(item_bytes)
                );
                return Err(refused(name, reason));
            }
            let selected = slice.selected(&places, &span, read);
            let place = Destination::for_items(item_bytes, &wanted.count, &vec![0; wanted.start.len()]);
            place.each_run(&places.relative_to(&wanted.start), &mut |offset, run| {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let target = out.get_mut(start..start.saturating_add(run.len()));
                if let (Some(target), Some(run)) = (target, selected.get(run)) {
                    target.copy_from_slice(run);
                }
                Ok(())
            })?;
        }
        Ok(out)
    }
}

fn halves(places: &ElementBox, axis: usize) -> [ElementBox; 2] {
    let (mut first, mut second) = (places.clone(), places.clone());
    if let (Some(before), Some(start), Some(after)) =
        (first.count.get_mut(axis), second.start.get_mut(axis), second.count.get_mut(axis))
    {
        let half = *before / 2;
        *start += half;
        *after -= half;
        *before = half;
    }
    [first, second]
}

impl SlicedVariable {
    /// Returns a box of the part with all axes of the variable. Its indices are places in the selections.
    fn with_dropped_axes(&self, part: &ElementBox) -> ElementBox {
        let mut kept = part.start.iter().zip(&part.count);
        let mut places = ElementBox { start: Vec::new(), count: Vec::new() };
        for axis in &self.axes {
            let next = if axis.is_dropped { Some((&0, &1)) } else { kept.next() };
            let (start, count) = next.map_or((0, 0), |(&start, &count)| (start, count));
            places.start.push(start);
            places.count.push(count);
        }
        places
    }

    /// Returns the smallest box of the variable with all selected elements of a box of places.
    fn span(&self, places: &ElementBox) -> ElementBox {
        let ends = places.start.iter().zip(&places.count).zip(&self.axes);
        let ends = ends.map(|((&start, &count), axis)| {
            let first = axis.selection.element(start);
            let last = axis.selection.element(start + count.saturating_sub(1));
            (first.min(last), first.abs_diff(last) + 1)
        });
        let (start, count) = ends.unzip();
        ElementBox { start, count }
    }

    /// Returns the axis along which a box of places is read in two halves; `None` if it is read at once.
    fn axis_to_split(&self, places: &ElementBox) -> Option<usize> {
        let item_bytes = self.whole.item_bytes();
        let mut inner_bytes = self.whole.size_bytes();
        let mut has_gap = |axis: usize| {
            let length = self.whole.shape.get(axis).copied().unwrap_or(1);
            inner_bytes /= length.max(1);
            let step = self.axes.get(axis).map_or(1, |part| part.selection.step.unsigned_abs());
            match &self.whole.chunks {
                Some(chunks) => step > chunks.get(axis).copied().unwrap_or(1),
                None => (step.saturating_sub(1)).saturating_mul(inner_bytes) > NEAR_BYTES,
            }
        };
        let has_several = |axis: &usize| places.count.get(*axis).is_some_and(|&count| count > 1);
        let gaps: Vec<usize> = (0..self.axes.len()).filter(|&axis| has_gap(axis)).collect();
        if let Some(axis) = gaps.into_iter().find(has_several) {
            return Some(axis);
        }
        let bytes =
            |lengths: &[u64]| lengths.iter().fold(item_bytes, |bytes, &length| bytes.saturating_mul(length));
        let chunk_bytes = self.whole.chunks.as_deref().map_or(0, bytes);
        let span_bytes = bytes(&self.span(places).count);
        let has_step = span_bytes > bytes(&places.count);
        let is_long = has_step && span_bytes > SPAN_BYTES.max(chunk_bytes);
        (0..self.axes.len()).find(has_several).filter(|_| is_long)
    }

    /// Returns the selected elements out of those of a span.
    fn selected(&self, places: &ElementBox, span: &ElementBox, read: Vec<u8>) -> Vec<u8> {
        let is_backward_or_stepped =
            |(part, &count): (&AxisPart, &u64)| part.selection.step != 1 && count > 1;
        // All axes after the last one with a step are one run of elements.
        let Some(last) = self.axes.iter().zip(&places.count).rposition(is_backward_or_stepped) else {
            return read;
        };
        let mut strides = vec![0; span.count.len()];
        let mut stride = usize::try_from(self.whole.item_bytes()).unwrap_or(usize::MAX);
        for (place, &count) in strides.iter_mut().zip(&span.count).rev() {
            *place = stride;
            stride = stride.saturating_mul(usize::try_from(count).unwrap_or(usize::MAX));
        }
        strides.truncate(last + 1);
        let mut selected = Vec::new();
        Walk { slice: self, places, span, strides: &strides, read: &read }.push(0, 0, &mut selected);
        selected
    }
}

/// The way through a span, from one run of selected elements to the next.
struct Walk<'a> {
    slice: &'a SlicedVariable,
    places: &'a ElementBox,
    span: &'a ElementBox,
    /// Bytes from one index of the span to the next, for each axis up to that of the runs. The last one is the length of a run.
    strides: &'a [usize],
    read: &'a [u8],
}

impl Walk<'_> {
    /// Adds the selected elements of the axes from `axis` on. Their first index in the span is at an offset.
    fn push(&self, axis: usize, offset: usize, selected: &mut Vec<u8>) {
        let (Some(part), Some(&stride)) = (self.slice.axes.get(axis), self.strides.get(axis)) else {
            let run_bytes = self.strides.last().copied().unwrap_or(0);
            let run = self.read.get(offset..offset.saturating_add(run_bytes));
            return selected.extend_from_slice(run.unwrap_or_default());
        };
        let at = |list: &[u64]| list.get(axis).copied().unwrap_or(0);
        let (first, count, low) = (at(&self.places.start), at(&self.places.count), at(&self.span.start));
        for place in first..first + count {
            let index = usize::try_from(part.selection.element(place) - low).unwrap_or(usize::MAX);
            self.push(axis + 1, offset.saturating_add(index.saturating_mul(stride)), selected);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::array::{AxisSelection, ByteOrder};
    use crate::metadata::author::ElementType;

    const SHAPE: [u64; 3] = [12, 9, 10];

    /// Elements that are the sum of their indices, and the sizes of the boxes that were read.
    struct Sums(Arc<Mutex<Vec<u64>>>);

    impl Elements for Sums {
        fn read(&mut self, _: usize, part: &ElementBox) -> Result<Vec<u8>> {
            self.0.lock().push(part.count.iter().product());
            Ok(each(part).map(|[x, y, z]| (100 * x + 10 * y + z) as u8).collect())
        }
    }

    fn each(part: &ElementBox) -> impl Iterator<Item = [u64; 3]> {
        let axis = |axis: usize| part.start[axis]..part.start[axis] + part.count[axis];
        let (y_axis, z_axis) = (axis(1), axis(2));
        axis(0).flat_map(move |x| {
            let z_axis = z_axis.clone();
            y_axis.clone().flat_map(move |y| z_axis.clone().map(move |z| [x, y, z]))
        })
    }

    /// Reads a slice, compares it, and returns how many elements of the file were read for it.
    fn read(chunks: Option<[u64; 3]>, item_type: &str, axes: [AxisPart; 3]) -> u64 {
        let variable = SourceVariable {
            path: "v".to_owned(),
            dimensions: ["x", "y", "z"].map(str::to_owned).to_vec(),
            is_unlimited: vec![true, false, false],
            shape: SHAPE.to_vec(),
            element: ElementType::parse(item_type).unwrap(),
            byte_order: ByteOrder::Little,
            chunks: chunks.map(|chunks| chunks.to_vec()),
            attributes: Vec::new(),
            missing: None,
        };
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let file = SourceFile {
            name: "file".to_owned(),
            groups: Vec::new(),
            variables: vec![variable],
            left_out: Vec::new(),
            elements: Box::new(Sums(sizes.clone())),
        };
        let slice = VariableSlice { variable: 0, axes: axes.to_vec(), attributes: Vec::new() };
        let mut file = file.with_slices(vec![slice]);
        let counts = ElementBox { start: vec![0; 3], count: axes.map(|part| part.selection.count).to_vec() };
        let element = |places: [u64; 3]| {
            let [x, y, z] = [0, 1, 2].map(|axis: usize| axes[axis].selection.element(places[axis]));
            (100 * x + 10 * y + z) as u8
        };
        let expected: Vec<u8> = each(&counts).map(element).collect();
        let kept: Vec<u64> =
            axes.iter().filter(|part| !part.is_dropped).map(|part| part.selection.count).collect();
        assert_eq!(file.variables[0].shape, kept);
        assert_eq!(file.variables[0].dimensions.len(), kept.len());
        assert_eq!(file.read_all(0).unwrap(), expected, "{axes:?}");
        let sizes = sizes.lock();
        sizes.iter().sum()
    }

    #[test]
    fn only_what_a_slice_needs_is_read() {
        let part = |start, step, count| {
            let selection = AxisSelection { start, step, count };
            AxisPart { selection, is_dropped: false }
        };
        let whole = |axis: usize| AxisPart::whole(SHAPE[axis]);
        assert_eq!(read(None, "uint8", [part(2, 1, 3), AxisPart::single(4), whole(2)]), 30);
        assert_eq!(read(None, "uint8", [whole(0), whole(1), AxisPart::single(7)]), 108);
        // Near elements are read together: here all between the first and the last.
        assert_eq!(read(None, "uint8", [part(11, -5, 3), part(0, 4, 3), part(9, -9, 2)]), 11 * 9 * 10);
        // Chunks that are not needed are not read.
        let chunked = Some([2, 3, 10]);
        assert_eq!(read(chunked, "uint8", [part(11, -5, 3), part(0, 4, 3), part(9, -9, 2)]), 9 * 10);
        assert_eq!(read(chunked, "uint8", [part(1, 2, 5), part(8, -2, 2), whole(2)]), 9 * 3 * 10);
        assert_eq!(read(chunked, "uint8", [part(0, 1, 0), whole(1), whole(2)]), 0);
    }
}
