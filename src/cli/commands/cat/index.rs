//! NumPy's basic indexing: `3, :, 10:20`, without newaxis. Uses `array` for its types, and no store.

use zarrfs::array::AxisSelection;

use crate::cli::exit::{Exit, Outcome};

/// The slice that an index gives of an array.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice {
    /// The elements of each axis of the array.
    pub axes: Vec<AxisSelection>,
    /// The lengths of the axes that remain: an integer removes its axis.
    pub shape: Vec<u64>,
}

impl Slice {
    /// Selects all elements of an array.
    pub fn whole(shape: &[u64]) -> Self {
        let axes = shape.iter().map(|&count| AxisSelection { start: 0, step: 1, count });
        Slice { axes: axes.collect(), shape: shape.to_vec() }
    }
}

/// One part of an index.
#[derive(Clone, Copy)]
enum Part {
    Integer(i128),
    Slice { start: Option<i128>, stop: Option<i128>, step: Option<i128> },
    Ellipsis,
}

/// Splits a path with an index into the path and the text between the brackets; `None` without an index.
pub fn split(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix(']')?.rsplit_once('[')
}

/// Reads the text between the brackets as a slice of an array of this shape.
pub fn parse(text: &str, shape: &[u64]) -> Outcome<Slice> {
    let text = text.trim();
    let text = text.strip_suffix(',').filter(|text| !text.trim().is_empty()).unwrap_or(text);
    let parts = text.split(',').map(part).collect::<Outcome<Vec<Part>>>()?;
    let ellipses = parts.iter().filter(|part| matches!(part, Part::Ellipsis)).count();
    if ellipses > 1 {
        return Err(Exit::Usage(format!("[{text}]: an index has at most one '...'")));
    }
    let given = parts.len() - ellipses;
    let Some(missing) = shape.len().checked_sub(given) else {
        let axes = match shape.len() {
            0 => "no axes".to_owned(),
            1 => "1 axis".to_owned(),
            rank => format!("{rank} axes"),
        };
        return Err(Exit::Failed(format!("[{text}]: {given} indices for an array with {axes}")));
    };
    let whole = Part::Slice { start: None, stop: None, step: None };
    let mut all: Vec<Part> = Vec::with_capacity(shape.len());
    for part in parts {
        match part {
            Part::Ellipsis => all.extend(std::iter::repeat_n(whole, missing)),
            part => all.push(part),
        }
    }
    all.resize(shape.len(), whole);
    let mut slice = Slice { axes: Vec::new(), shape: Vec::new() };
    for (axis, (part, &length)) in all.into_iter().zip(shape).enumerate() {
        match part {
            Part::Integer(index) => slice.axes.push(one_element(index, axis, length)?),
            Part::Slice { start, stop, step } => {
                let selected = elements_of_slice((start, stop, step), axis, length)?;
                slice.shape.push(selected.count);
                slice.axes.push(selected);
            }
            Part::Ellipsis => {}
        }
    }
    Ok(slice)
}

fn part(text: &str) -> Outcome<Part> {
    let text = text.trim();
    if text == "..." {
        return Ok(Part::Ellipsis);
    }
    let numbers: Vec<&str> = text.split(':').map(str::trim).collect();
    let optional = |number: &&str| if number.is_empty() { Ok(None) } else { integer(number, text).map(Some) };
    match numbers.as_slice() {
        [number] => integer(number, text).map(Part::Integer),
        [start, stop] => Ok(Part::Slice { start: optional(start)?, stop: optional(stop)?, step: None }),
        [start, stop, step] => {
            Ok(Part::Slice { start: optional(start)?, stop: optional(stop)?, step: optional(step)? })
        }
        _ => Err(not_an_index(text)),
    }
}

fn integer(number: &str, part: &str) -> Outcome<i128> {
    number.parse().map_err(|_| not_an_index(part))
}

fn not_an_index(part: &str) -> Exit {
    Exit::Usage(format!("'{part}' is not an index: write integers, slices as START:STOP:STEP, or '...'"))
}

fn one_element(index: i128, axis: usize, length: u64) -> Outcome<AxisSelection> {
    let from_start = if index < 0 { index + i128::from(length) } else { index };
    let start = u64::try_from(from_start).ok().filter(|&start| start < length);
    let start = start.ok_or_else(|| {
        Exit::Failed(format!("index {index} is out of bounds for axis {axis} with size {length}"))
    })?;
    Ok(AxisSelection { start, step: 1, count: 1 })
}

/// Returns the elements that Python's `slice.indices` gives.
fn elements_of_slice(
    (start, stop, step): (Option<i128>, Option<i128>, Option<i128>),
    axis: usize,
    length: u64,
) -> Outcome<AxisSelection> {
    let (step, size) = (step.unwrap_or(1), i128::from(length));
    if step == 0 {
        return Err(Exit::Failed(format!("the slice of axis {axis} with size {length} has a step of zero")));
    }
    let (lowest, highest) = if step < 0 { (-1, size - 1) } else { (0, size) };
    let clip =
        |index: i128| (if index < 0 { index.saturating_add(size) } else { index }).clamp(lowest, highest);
    let (first, last) = if step < 0 { (highest, lowest) } else { (lowest, highest) };
    let (start, stop) = (start.map_or(first, clip), stop.map_or(last, clip));
    let distance = if step < 0 { start - stop } else { stop - start };
    if distance <= 0 {
        return Ok(AxisSelection { start: 0, step: 1, count: 0 });
    }
    let count = (distance - 1) / step.saturating_abs() + 1;
    // With one element, the step is not used and may be of any size.
    let step = if count > 1 { step } else { 1 };
    let narrow = |number: i128| u64::try_from(number).unwrap_or(0);
    Ok(AxisSelection { start: narrow(start), step: i64::try_from(step).unwrap_or(1), count: narrow(count) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn counts(text: &str, shape: &[u64]) -> Vec<(u64, i64, u64)> {
        let slice = parse(text, shape).unwrap();
        slice.axes.iter().map(|axis| (axis.start, axis.step, axis.count)).collect()
    }

    fn refusal(text: &str, shape: &[u64]) -> String {
        match parse(text, shape) {
            Err(Exit::Usage(sentence) | Exit::Failed(sentence)) => sentence,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn indices_are_read_as_numpy_reads_them() {
        assert_eq!(counts("3,:,10:20", &[4, 2, 15]), [(3, 1, 1), (0, 1, 2), (10, 1, 5)]);
        assert_eq!(counts("-1, ..., ::-2", &[4, 2, 5]), [(3, 1, 1), (0, 1, 2), (4, -2, 3)]);
        assert_eq!(counts("...", &[]), []);
        assert_eq!(counts("1,", &[2, 3]), [(1, 1, 1), (0, 1, 3)]);
        assert_eq!(counts("5:2", &[9]), [(0, 1, 0)]);
        assert_eq!(counts("::99999999999999999999999999", &[9]), [(0, 1, 1)]);
        assert_eq!(counts("-99999999999999999999999999:-1:3", &[9]), [(0, 3, 3)]);
        assert_eq!(parse("0,:", &[2, 3]).unwrap().shape, [3]);
    }

    #[test]
    fn each_bad_index_is_one_sentence() {
        for (text, shape, sentence) in [
            ("12", &[12][..], "index 12 is out of bounds for axis 0 with size 12"),
            (":, -4", &[12, 3], "index -4 is out of bounds for axis 1 with size 3"),
            ("::0", &[12], "the slice of axis 0 with size 12 has a step of zero"),
            ("1,2", &[12], "[1,2]: 2 indices for an array with 1 axis"),
            ("...,...", &[12], "[...,...]: an index has at most one '...'"),
            ("x", &[12], "'x' is not an index: write integers, slices as START:STOP:STEP, or '...'"),
            ("", &[12], "'' is not an index: write integers, slices as START:STOP:STEP, or '...'"),
            (
                "1:2:3:4",
                &[12],
                "'1:2:3:4' is not an index: write integers, slices as START:STOP:STEP, or '...'",
            ),
        ] {
            assert_eq!(refusal(text, shape), sentence);
        }
    }

    #[test]
    fn an_index_is_at_the_end() {
        assert_eq!(split("a/b[1]"), Some(("a/b", "1")));
        assert_eq!(split("a[1][2]"), Some(("a[1]", "2")));
        assert_eq!(split("a[1"), None);
        assert_eq!(split("a"), None);
    }
}
