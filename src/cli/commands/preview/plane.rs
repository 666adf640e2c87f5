//! The elements that a picture shows: a plane of two axes, or a line of one axis, thinned to the number of pixels.
//!
//! Uses `sampling`. If even the thinned plane touches too many chunks, either few of them are stored, and those are painted onto the fill
//! value, or the picture gets fewer pixels.

use indicatif::ProgressBar;
use parking_lot::Mutex;
use zarrfs::array::{Array, AxisSelection};
use zarrfs::error::Error;

use super::sampling::{Limits, Plan, Region, ascending, intersection, stored_regions, touched};
use super::statistics::ElementKind;

/// Sides that differ by more than this factor are not drawn to one scale.
const MAX_ASPECT: u64 = 4;

/// An axis of the picture.
#[derive(Clone, Copy, Debug)]
pub struct ShownAxis {
    /// Its index among the axes of the array.
    pub index: usize,
    /// Its elements, in ascending order.
    selection: AxisSelection,
    /// The distance of two pixels, in selected elements.
    stride: u64,
    /// Whether the selection goes backwards.
    is_reversed: bool,
}

/// The values of the pixels.
#[derive(Clone, Debug)]
pub struct Plane {
    /// The axis from top to bottom; `None` for a line.
    pub rows: Option<ShownAxis>,
    /// The axis from left to right; `None` for one element.
    pub columns: Option<ShownAxis>,
    pub width: usize,
    pub height: usize,
    /// The values row by row; NaN for missing data.
    pub values: Vec<f64>,
    /// The first element of each axis that is not shown.
    pub first: Vec<u64>,
    /// Whether nothing of the plane is stored.
    pub is_missing: bool,
}

impl Plane {
    /// Puts the last row first.
    pub fn turn_over(&mut self) {
        if let Some(rows) = &mut self.rows {
            rows.is_reversed = !rows.is_reversed;
            self.values = self.values.chunks(self.width.max(1)).rev().flatten().copied().collect();
        }
    }

    /// Returns the minimum and the maximum of the finite values.
    pub fn range(&self) -> Option<(f64, f64)> {
        let finite = self.values.iter().copied().filter(|value| value.is_finite());
        let range = finite
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        (range.0 <= range.1).then_some(range)
    }
}

impl ShownAxis {
    fn new(index: usize, axis: &AxisSelection) -> Self {
        let is_reversed = axis.step < 0;
        let selection = ascending(&[*axis]).first().copied().unwrap_or(*axis);
        ShownAxis { index, selection, stride: 1, is_reversed }
    }

    /// Returns whether the elements are shown in ascending order.
    pub fn is_ascending(&self) -> bool {
        !self.is_reversed
    }

    fn step(&self) -> u64 {
        self.selection.step.unsigned_abs().max(1)
    }

    /// Returns the distance of two pixels, in selected elements.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    fn pixels(&self) -> u64 {
        self.selection.count.div_ceil(self.stride.max(1))
    }

    /// Returns the element of a pixel.
    pub fn element(&self, pixel: usize) -> u64 {
        let pixel = (pixel as u64).min(self.pixels().saturating_sub(1));
        let pixel = if self.is_reversed { self.pixels().saturating_sub(1) - pixel } else { pixel };
        self.selection.start + pixel * self.stride * self.step()
    }

    /// Returns the pixel of an element, before any reversal.
    fn pixel(&self, element: u64) -> u64 {
        element.saturating_sub(self.selection.start) / self.step() / self.stride.max(1)
    }

    /// Returns the elements of a part of the selection that are read: one for each pixel, or the first one if the part has no pixel.
    fn thinned(&self, part: &AxisSelection) -> AxisSelection {
        let (step, stride) = (self.step(), self.stride.max(1));
        let low = part.start.saturating_sub(self.selection.start) / step;
        let high = low + part.count;
        let first = low.next_multiple_of(stride);
        if first >= high {
            return AxisSelection { count: 1, ..*part };
        }
        let step = i64::try_from(step.saturating_mul(stride)).unwrap_or(i64::MAX);
        AxisSelection {
            start: self.selection.start + first * self.step(),
            step,
            count: (high - 1 - first) / stride + 1,
        }
    }
}

/// Returns the axes of a selection that are shown: the last two that are longer than one element. If `is_channels`, the last axis has
/// colours and is left out.
fn shown_axes(selection: &[AxisSelection], is_channels: bool) -> (Option<ShownAxis>, Option<ShownAxis>) {
    let axes = selection.len() - usize::from(is_channels && selection.len() > 2);
    let long = selection.iter().enumerate().take(axes).filter(|(_, axis)| axis.count > 1);
    let mut last = long.rev().map(|(index, axis)| ShownAxis::new(index, axis));
    let columns = last.next();
    (last.next(), columns)
}

/// How a picture is read.
pub struct Reading<'a> {
    pub array: &'a Array,
    pub kind: &'a ElementKind,
    pub limits: Limits,
    pub threads: usize,
    /// The most pixels along columns and rows.
    pub most: (usize, usize),
    pub is_channels: bool,
}

impl Reading<'_> {
    /// Reads the plane that a selection shows.
    pub fn plane(&self, selection: &[AxisSelection], bar: &ProgressBar) -> Result<Plane, Error> {
        let (mut rows, mut columns) = shown_axes(selection, self.is_channels);
        let is_shown = |index: usize| [rows, columns].iter().flatten().any(|axis| axis.index == index);
        let all = ascending(selection);
        let first = |(index, (own, axis)): (usize, (&AxisSelection, &AxisSelection))| {
            // Of an axis that is not shown, the first selected element.
            let unshown = AxisSelection { start: own.start, step: 1, count: axis.count.min(1) };
            if is_shown(index) { *axis } else { unshown }
        };
        let whole: Region = selection.iter().zip(&all).enumerate().map(first).collect();
        let chunk_shape = self.array.chunk_shape();
        let mut most = (self.most.0 as u64, self.most.1 as u64);
        let mut regions: Option<Option<Vec<Region>>> = None;
        let (parts, is_sparse) = loop {
            thin(&mut rows, &mut columns, most);
            let thinned = |part: &Region| self.thinned(part, rows, columns);
            let dense = thinned(&whole);
            if self.fits(touched(&dense, &chunk_shape), &chunk_shape) {
                break (vec![dense], false);
            }
            let stored =
                regions.get_or_insert_with(|| stored_regions(self.array, &whole, self.limits.objects));
            if let Some(stored) = stored {
                let parts: Vec<Region> = stored.iter().map(thinned).collect();
                let chunks = parts.iter().map(|part| touched(part, &chunk_shape)).sum();
                if self.fits(chunks, &chunk_shape) {
                    break (parts, true);
                }
            }
            most = (most.0.div_ceil(2), most.1.div_ceil(2));
        };
        let pixels = |axis: Option<ShownAxis>| axis.map_or(1, |axis| axis.pixels() as usize);
        let (width, height) = (pixels(columns), pixels(rows));
        let background = if is_sparse { self.kind.missing_value() } else { f64::NAN };
        let is_missing = is_sparse && parts.is_empty();
        let values = Mutex::new(vec![background; width.saturating_mul(height)]);
        let plan = Plan::of_parts(self.array, &whole, parts, Limits::NONE);
        bar.inc_length(plan.read);
        plan.read(self.array, self.threads, bar, &|piece, first, bytes| {
            self.paint(piece, first, bytes, (rows, columns, width), &mut values.lock());
        })?;
        let mut values = values.into_inner();
        if rows.is_some_and(|rows| rows.is_reversed) {
            values = values.chunks(width.max(1)).rev().flatten().copied().collect();
        }
        if columns.is_some_and(|columns| columns.is_reversed) {
            values.chunks_mut(width.max(1)).for_each(<[f64]>::reverse);
        }
        let first = whole.iter().map(|axis| axis.start).collect();
        Ok(Plane { rows, columns, width, height, values, first, is_missing })
    }

    fn fits(&self, chunks: u128, chunk_shape: &[u64]) -> bool {
        let item = self.kind.numbers.size() as u64;
        let bytes = chunk_shape.iter().fold(item, |bytes, &length| bytes.saturating_mul(length)).max(1);
        chunks <= u128::from(self.limits.chunks.min((self.limits.bytes / bytes).max(1)))
    }

    fn thinned(&self, part: &Region, rows: Option<ShownAxis>, columns: Option<ShownAxis>) -> Region {
        let axis = |(index, axis): (usize, &AxisSelection)| {
            let shown = [rows, columns].into_iter().flatten().find(|shown| shown.index == index);
            shown.map_or(*axis, |shown| shown.thinned(axis))
        };
        part.iter().enumerate().map(axis).collect()
    }

    /// Puts elements of a piece, beginning with element number `first`, into their pixels.
    fn paint(
        &self,
        piece: &Region,
        first: u64,
        bytes: &[u8],
        (rows, columns, width): (Option<ShownAxis>, Option<ShownAxis>, usize),
        values: &mut [f64],
    ) {
        let along = |axis: Option<ShownAxis>, number: u64| {
            let (axis, selected) = (axis?, piece.get(axis?.index)?);
            Some(axis.pixel(selected.start + number * selected.step.unsigned_abs()))
        };
        let per_row = columns.and_then(|axis| piece.get(axis.index)).map_or(1, |axis| axis.count).max(1);
        let mut number = first;
        self.kind.values(bytes, |value| {
            let row = along(rows, number / per_row).unwrap_or(0) as usize;
            let column = along(columns, number % per_row).unwrap_or(0) as usize;
            if let Some(pixel) = values.get_mut(row * width + column) {
                *pixel = value;
            }
            number += 1;
        });
    }
}

/// Sets the strides so that the picture has at most this many columns and rows.
fn thin(rows: &mut Option<ShownAxis>, columns: &mut Option<ShownAxis>, most: (u64, u64)) {
    let stride = |axis: &ShownAxis, most: u64| axis.selection.count.div_ceil(most.max(1)).max(1);
    let (Some(rows), Some(columns)) = (rows.as_mut(), columns.as_mut()) else {
        if let Some(columns) = columns {
            columns.stride = stride(columns, most.0);
        }
        return;
    };
    (columns.stride, rows.stride) = (stride(columns, most.0), stride(rows, most.1));
    let (width, height) = (columns.selection.count, rows.selection.count);
    if width.max(height) / width.min(height).max(1) <= MAX_ASPECT {
        let common = columns.stride.max(rows.stride);
        (columns.stride, rows.stride) = (common, common);
    }
}

/// Returns an index of stored elements, in NumPy's notation.
pub fn stored_example(array: &Array, selection: &[AxisSelection]) -> Option<String> {
    let mut found = None;
    let _ = array.each_stored(&mut |region| {
        found = intersection(&ascending(selection), &region).map(|_| region);
        if found.is_some() { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    });
    let axes: Vec<String> = found?.iter().map(|range| format!("{}:{}", range.start, range.end)).collect();
    Some(format!("[{}]", axes.join(",")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn axis(start: u64, step: i64, count: u64) -> AxisSelection {
        AxisSelection { start, step, count }
    }

    #[test]
    fn the_last_long_axes_are_shown() {
        let (rows, columns) =
            shown_axes(&[axis(0, 1, 5), axis(0, 1, 4), axis(2, 1, 1), axis(0, 1, 3)], false);
        assert_eq!((rows.unwrap().index, columns.unwrap().index), (1, 3));
        let (rows, columns) = shown_axes(&[axis(0, 1, 5), axis(0, 1, 4), axis(0, 1, 3)], true);
        assert_eq!((rows.unwrap().index, columns.unwrap().index), (0, 1));
        let (rows, columns) = shown_axes(&[axis(0, 1, 1), axis(9, -1, 4)], false);
        assert!(rows.is_none() && columns.unwrap().is_reversed);
        assert!(shown_axes(&[], true).1.is_none());
    }

    #[test]
    fn parts_are_thinned_to_pixels() {
        let shown = ShownAxis { stride: 10, ..ShownAxis::new(0, &axis(100, 1, 95)) };
        assert_eq!(shown.pixels(), 10);
        assert_eq!(shown.thinned(&axis(100, 1, 95)), axis(100, 10, 10));
        assert_eq!(shown.thinned(&axis(115, 1, 20)), axis(120, 10, 2));
        assert_eq!(shown.thinned(&axis(113, 1, 2)), axis(113, 1, 1));
        assert_eq!(shown.pixel(113), 1);
        let back = ShownAxis { stride: 2, ..ShownAxis::new(0, &axis(9, -3, 4)) };
        assert_eq!((back.element(0), back.element(1)), (6, 0));
    }
}
