//! A slice of an array whose elements lie in order in a file: which ranges of the file are the bytes of the slice's own flat file.
//!
//! Uses the selections of `array`, and `error`.

use crate::array::AxisSelection;
use crate::error::Result;

/// Selected elements that lie this near to each other are read together.
const NEAR_BYTES: u64 = 4096;
/// The most bytes that are read at a time to get the selected elements between them.
const SPAN_BYTES: u64 = 1 << 20;

/// A slice of the elements of a file.
pub struct FlatSlice {
    /// The bytes of all elements of the file.
    pub whole_bytes: u64,
    /// The bytes of a unit: the elements of all axes after the last one that is not selected as a whole.
    unit_bytes: u64,
    /// The axes before the units, from the slowest to the fastest.
    axes: Vec<Axis>,
}

struct Axis {
    selection: AxisSelection,
    /// Bytes from one index to the next.
    stride: u64,
}

/// Reads the bytes at an offset of a file. Fails if they are not all there.
pub type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> Result<()> + 'a;

impl FlatSlice {
    /// Returns a slice of a file with elements of `item_bytes`. The axes are in the order of the file, the slowest first. `None` if
    /// the file is too long.
    pub fn new(item_bytes: u64, shape: &[u64], selection: &[AxisSelection]) -> Option<Self> {
        let (mut unit_bytes, mut stride, mut axes) = (item_bytes, item_bytes, Vec::new());
        for (&length, &selection) in shape.iter().zip(selection).rev() {
            let is_whole = selection == AxisSelection { start: 0, step: 1, count: length };
            if is_whole && axes.is_empty() {
                unit_bytes = unit_bytes.checked_mul(length)?;
            } else {
                axes.push(Axis { selection, stride });
            }
            stride = stride.checked_mul(length)?;
        }
        axes.reverse();
        Some(FlatSlice { whole_bytes: stride, unit_bytes, axes })
    }

    /// Fills `out` with the bytes of the slice from an offset.
    pub fn read(&self, offset: u64, out: &mut [u8], read_at: &ReadAt<'_>) -> Result<()> {
        let (mut at, mut left) = (offset, out);
        while !left.is_empty() && self.unit_bytes > 0 {
            let read = self.read_some(at, left, read_at)?;
            at += read as u64;
            left = left.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }

    /// Fills the beginning of `out`, which is not empty. Returns how many bytes it filled.
    fn read_some(&self, offset: u64, out: &mut [u8], read_at: &ReadAt<'_>) -> Result<usize> {
        let (mut unit, inside) = (offset / self.unit_bytes, offset % self.unit_bytes);
        let (mut source, mut fastest) = (0, None::<(&Axis, u64)>);
        for axis in self.axes.iter().rev() {
            let count = axis.selection.count.max(1);
            let place = unit % count;
            unit /= count;
            source += axis.selection.element(place) * axis.stride;
            fastest = fastest.or(Some((axis, count - place)));
        }
        let wanted = out.len() as u64;
        // The stride of the fastest of the axes is a unit.
        let (step, units) = fastest.map_or((1, 1), |(axis, units)| (axis.selection.step, units));
        if step == 1 {
            let run = take(out, (units * self.unit_bytes - inside).min(wanted));
            read_at(source + inside, run)?;
            return Ok(run.len());
        }
        let distance = step.unsigned_abs().saturating_mul(self.unit_bytes);
        let units = units.min(wanted / self.unit_bytes).min(SPAN_BYTES / distance.max(1));
        if inside > 0 || units < 2 || distance - self.unit_bytes.min(distance) > NEAR_BYTES {
            let run = take(out, (self.unit_bytes - inside).min(wanted));
            read_at(source + inside, run)?;
            return Ok(run.len());
        }
        let reach = (units - 1) * distance;
        let mut span = vec![0; usize::try_from(reach + self.unit_bytes).unwrap_or(usize::MAX)];
        read_at(if step < 0 { source - reach } else { source }, &mut span)?;
        let run = take(out, units * self.unit_bytes);
        let unit_bytes = usize::try_from(self.unit_bytes).unwrap_or(usize::MAX);
        for (number, target) in (0..units).zip(run.chunks_exact_mut(unit_bytes)) {
            let start = if step < 0 { reach - number * distance } else { number * distance };
            let start = usize::try_from(start).unwrap_or(usize::MAX);
            target.copy_from_slice(span.get(start..start.saturating_add(unit_bytes)).unwrap_or_default());
        }
        Ok(run.len())
    }
}

/// Returns the first bytes.
fn take(bytes: &mut [u8], length: u64) -> &mut [u8] {
    let end = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get_mut(..end).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_the_same_bytes_from_any_offset() {
        let shape = [5, 4, 6];
        let file: Vec<u8> = (0..240).collect();
        let read_at = |offset: u64, out: &mut [u8]| {
            out.copy_from_slice(&file[offset as usize..offset as usize + out.len()]);
            Ok(())
        };
        let select = |start, step, count| AxisSelection { start, step, count };
        let whole = |axis: usize| select(0, 1, shape[axis]);
        for selection in [
            [whole(0), whole(1), whole(2)],
            [select(1, 2, 2), whole(1), whole(2)],
            [select(4, -2, 3), select(1, 1, 2), whole(2)],
            [select(3, 1, 1), select(3, -1, 4), select(5, -2, 3)],
            [whole(0), select(0, 1, 1), select(1, 3, 2)],
            [select(0, 1, 0), whole(1), whole(2)],
        ] {
            let mut expected = Vec::new();
            for x in (0..selection[0].count).map(|place| selection[0].element(place)) {
                for y in (0..selection[1].count).map(|place| selection[1].element(place)) {
                    for z in (0..selection[2].count).map(|place| selection[2].element(place)) {
                        let start = 2 * ((x * 4 + y) * 6 + z) as usize;
                        expected.extend_from_slice(&file[start..start + 2]);
                    }
                }
            }
            let slice = FlatSlice::new(2, &shape, &selection).unwrap();
            assert_eq!(slice.whole_bytes, 240);
            for start in 0..expected.len() {
                for end in start..=expected.len() {
                    let mut out = vec![0; end - start];
                    slice.read(start as u64, &mut out, &read_at).unwrap();
                    assert_eq!(out, expected[start..end], "{selection:?} {start}..{end}");
                }
            }
        }
        assert!(FlatSlice::new(8, &[u64::MAX, 2], &[whole(0), whole(1)]).is_none());
    }
}
