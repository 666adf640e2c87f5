//! Byte order: which parts of an element are reversed, and reversing them fast.
//!
//! Spec: v3 "Bytes codec"; complex is swapped per component, UTF-32 per code point, a struct per field. Uses
//! `metadata`, and `sys` for wide registers.

use crate::codec::{CodecError, CodecResult};
use crate::metadata::DataType;
use crate::metadata::data_type::Component;
use crate::sys::wide;

/// The parts of every element that are byte-reversed. The plan is its own inverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapPlan {
    item_size: usize,
    /// Runs of widths above 1, ascending, within one element.
    runs: Vec<Component>,
}

impl SwapPlan {
    /// Creates the plan that swaps nothing.
    pub fn none() -> Self {
        SwapPlan { item_size: 1, runs: Vec::new() }
    }

    /// Creates the plan that swaps everything in the type that has a byte order: from little-endian to big-endian and
    /// back.
    pub fn all(data_type: &DataType) -> CodecResult<Self> {
        let (Some(item_size), Some(mut runs)) = (data_type.item_size(), data_type.components()) else {
            return Err(CodecError::unsupported("a data type without a fixed size, or with too many parts"));
        };
        runs.retain(|run| run.width > 1);
        Ok(SwapPlan { item_size, runs })
    }

    /// Creates the plan that swaps only `parts` of the type.
    pub fn only(data_type: &DataType, parts: &[Component]) -> CodecResult<Self> {
        let all = SwapPlan::all(data_type)?;
        let mut runs: Vec<Component> = parts.iter().copied().filter(|part| part.count > 0).collect();
        runs.sort_by_key(|run| run.offset);
        let mut free_from = 0;
        for part in &runs {
            let end = run_end(part).filter(|_| part.offset >= free_from);
            let is_in_type = |whole: &Component| {
                whole.width == part.width
                    && whole.offset <= part.offset
                    && (part.offset - whole.offset).is_multiple_of(whole.width)
                    && end.is_some_and(|end| run_end(whole).is_some_and(|last| end <= last))
            };
            if !all.runs.iter().any(is_in_type) {
                return Err(CodecError::new(format_args!(
                    "no part of the element is {} times {} bytes at offset {}",
                    part.count, part.width, part.offset
                )));
            }
            free_from = end.unwrap_or(usize::MAX);
        }
        Ok(SwapPlan { item_size: all.item_size, runs })
    }

    /// Returns the plan of everything that `all` swaps and this plan, made by [`SwapPlan::only`] for the same type,
    /// does not.
    pub fn complement(&self, all: &SwapPlan) -> SwapPlan {
        let mut runs = Vec::new();
        for whole in &all.runs {
            let mut at = whole.offset;
            let end = whole.offset + whole.width * whole.count;
            let mut push = |from: usize, to: usize| {
                if from < to {
                    runs.push(Component {
                        offset: from,
                        width: whole.width,
                        count: (to - from) / whole.width,
                    });
                }
            };
            for part in self.runs.iter().filter(|part| (whole.offset..end).contains(&part.offset)) {
                push(at, part.offset);
                at = part.offset + part.width * part.count;
            }
            push(at, end);
        }
        SwapPlan { item_size: all.item_size, runs }
    }

    /// Returns whether it swaps nothing.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the width, if the elements consist of parts of a single width.
    fn uniform_width(&self) -> Option<usize> {
        match self.runs.as_slice() {
            [run] if run.offset == 0 && run.width * run.count == self.item_size => Some(run.width),
            _ => None,
        }
    }

    /// Swaps in place. `data` is a whole number of elements.
    pub fn apply(&self, data: &mut [u8]) {
        if self.is_empty() || self.item_size == 0 {
            return;
        }
        if let Some(width) = self.uniform_width() {
            return wide(|| reverse_each(data, width));
        }
        for item in data.chunks_exact_mut(self.item_size) {
            for run in &self.runs {
                if let Some(part) = item.get_mut(run.offset..run.offset + run.width * run.count) {
                    reverse_each(part, run.width);
                }
            }
        }
    }

    /// Copies `from` to `to`, of the same length, swapped.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        match self.uniform_width() {
            Some(2) => wide(|| copy_reversed::<2>(from, to)),
            Some(4) => wide(|| copy_reversed::<4>(from, to)),
            Some(8) => wide(|| copy_reversed::<8>(from, to)),
            _ => {
                to.copy_from_slice(from);
                self.apply(to);
            }
        }
    }
}

/// Returns the end of a run in the element.
fn run_end(run: &Component) -> Option<usize> {
    run.width.checked_mul(run.count)?.checked_add(run.offset)
}

/// Reverses every `width` bytes.
#[inline(always)]
fn reverse_each(data: &mut [u8], width: usize) {
    match width {
        2 => reverse_arrays::<2>(data),
        4 => reverse_arrays::<4>(data),
        8 => reverse_arrays::<8>(data),
        _ => data.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

/// Reverses as [`reverse_each`] does, with a width that the compiler knows, so that it becomes shuffle instructions.
#[inline(always)]
fn reverse_arrays<const WIDTH: usize>(data: &mut [u8]) {
    let (parts, _) = data.as_chunks_mut::<WIDTH>();
    for part in parts {
        part.reverse();
    }
}

#[inline(always)]
fn copy_reversed<const WIDTH: usize>(from: &[u8], to: &mut [u8]) {
    let (from, _) = from.as_chunks::<WIDTH>();
    let (to, _) = to.as_chunks_mut::<WIDTH>();
    for (from, to) in from.iter().zip(to) {
        let mut part = *from;
        part.reverse();
        *to = part;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::data_type::Field;

    fn field(name: &str, data_type: DataType) -> Field {
        Field { name: name.into(), data_type, shape: vec![] }
    }

    fn part(offset: usize, width: usize, count: usize) -> Component {
        Component { offset, width, count }
    }

    #[test]
    fn every_width_is_reversed() {
        for data_type in [DataType::Int16, DataType::Float32, DataType::Complex64, DataType::Complex128] {
            let plan = SwapPlan::all(&data_type).unwrap();
            let width = plan.runs[0].width;
            let data: Vec<u8> = (0..160).collect();
            let expected: Vec<u8> = data.chunks(width).flat_map(|c| c.iter().rev().copied()).collect();
            let mut copied = vec![0; 160];
            plan.copy(&data, &mut copied);
            assert_eq!(copied, expected);
            let mut in_place = data.clone();
            plan.apply(&mut in_place);
            assert_eq!(in_place, expected);
        }
        assert!(SwapPlan::all(&DataType::Raw(6)).unwrap().is_empty());
    }

    #[test]
    fn a_struct_is_swapped_field_by_field() {
        let data_type = DataType::Struct(vec![
            field("a", DataType::UInt8),
            field("b", DataType::Int16),
            field("c", DataType::Int16),
            field("d", DataType::Float64),
        ]);
        let all = SwapPlan::all(&data_type).unwrap();
        let mut data: Vec<u8> = (0..13).collect();
        all.apply(&mut data);
        assert_eq!(data, [0, 2, 1, 4, 3, 12, 11, 10, 9, 8, 7, 6, 5]);

        let only = SwapPlan::only(&data_type, &[part(3, 2, 1)]).unwrap();
        let rest = only.complement(&all);
        let mut data: Vec<u8> = (0..13).collect();
        only.apply(&mut data);
        assert_eq!(data, [0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 10, 11, 12]);
        rest.apply(&mut data);
        assert_eq!(data, [0, 2, 1, 4, 3, 12, 11, 10, 9, 8, 7, 6, 5]);
    }

    #[test]
    fn parts_that_are_not_in_the_type_are_refused() {
        let pairs = DataType::Complex64;
        for parts in [
            vec![part(2, 4, 1)],
            vec![part(0, 4, 3)],
            vec![part(0, 8, 1)],
            vec![part(0, 4, 2), part(4, 4, 1)],
            vec![part(usize::MAX, 4, 2)],
            vec![part(0, 4, usize::MAX)],
        ] {
            assert!(SwapPlan::only(&pairs, &parts).is_err(), "{parts:?}");
        }
        assert_eq!(
            SwapPlan::only(&pairs, &[]).unwrap().complement(&SwapPlan::all(&pairs).unwrap()).runs.len(),
            1
        );
    }
}
