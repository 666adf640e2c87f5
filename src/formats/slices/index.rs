//! NumPy's basic indexing without newaxis (`3, :, 10:20`), and dimensions by name (`time=2001`).
//!
//! Uses the selections of `array`; no I/O. A name, and a text after it, may have characters as in URLs (`%2C` for a comma).

use super::refusal::Refusal;
use crate::array::AxisSelection;
use crate::hierarchy::slices::AxisPart;

/// An index.
#[derive(Debug)]
pub struct Index<'a> {
    /// What it says about the axes, in order from the first.
    parts: Vec<Part>,
    /// What it says about dimensions by name.
    pub names: Vec<Name<'a>>,
}

/// What an index says about a dimension by name.
#[derive(Debug)]
pub struct Name<'a> {
    /// The name.
    pub name: String,
    /// The text after the equals sign.
    pub text: &'a str,
}

/// One part of an index.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// An element.
    Integer(i128),
    /// Python's `slice`.
    Range {
        /// The first element.
        start: Option<i128>,
        /// The end, which is not included.
        stop: Option<i128>,
        /// The distance.
        step: Option<i128>,
    },
    /// All axes that are not covered by another part.
    Ellipsis,
}

impl<'a> Index<'a> {
    /// Reads the text between the brackets.
    pub fn parse(text: &'a str) -> Result<Self, Refusal> {
        let text = text.trim();
        let text = text.strip_suffix(',').filter(|text| !text.trim().is_empty()).unwrap_or(text);
        let mut index = Index { parts: Vec::new(), names: Vec::new() };
        for part in text.split(',') {
            match part.split_once('=') {
                Some((name, text)) => {
                    index.names.push(Name { name: decoded(name.trim()), text: text.trim() });
                }
                None if index.names.is_empty() => index.parts.push(Part::parse(part)?),
                None => {
                    let sentence = format!("'{}' comes after a name: positions come first", part.trim());
                    return Err(Refusal::Syntax(sentence));
                }
            }
        }
        Ok(index)
    }

    /// Returns whether it says anything about axes by their places.
    pub fn has_positions(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns what it says about each axis of an array of this shape; `None` for an axis that it does not mention. `text` is the index
    /// as it was given.
    pub fn positions(&self, text: &str, shape: &[u64]) -> Result<Vec<Option<AxisPart>>, Refusal> {
        let ellipses = self.parts.iter().filter(|part| matches!(part, Part::Ellipsis)).count();
        if ellipses > 1 {
            return Err(Refusal::Syntax(format!("[{text}]: an index has at most one '...'")));
        }
        let given = self.parts.len() - ellipses;
        let Some(missing) = shape.len().checked_sub(given) else {
            let axes = match shape.len() {
                0 => "no axes".to_owned(),
                1 => "1 axis".to_owned(),
                rank => format!("{rank} axes"),
            };
            return Err(Refusal::Outside(format!("[{text}]: {given} indices for an array with {axes}")));
        };
        let mut all: Vec<Option<Part>> = Vec::with_capacity(shape.len());
        for part in &self.parts {
            match part {
                Part::Ellipsis => all.extend(std::iter::repeat_n(None, missing)),
                part => all.push(Some(*part)),
            }
        }
        all.resize(shape.len(), None);
        let parts = all.into_iter().zip(shape).enumerate();
        let select = |(axis, (part, &length)): (usize, (Option<Part>, &u64))| {
            part.map(|part| part.select(&axis.to_string(), length)).transpose()
        };
        parts.map(select).collect()
    }
}

impl Part {
    /// Reads one part.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.trim();
        if text == "..." {
            return Ok(Part::Ellipsis);
        }
        let numbers: Vec<&str> = text.split(':').map(str::trim).collect();
        let optional =
            |number: &&str| if number.is_empty() { Ok(None) } else { integer(number, text).map(Some) };
        match numbers.as_slice() {
            [number] => integer(number, text).map(Part::Integer),
            [start, stop] => Ok(Part::Range { start: optional(start)?, stop: optional(stop)?, step: None }),
            [start, stop, step] => {
                Ok(Part::Range { start: optional(start)?, stop: optional(stop)?, step: optional(step)? })
            }
            _ => Err(not_an_index(text)),
        }
    }

    /// Returns the selected elements of an axis of this length. Error messages call it `axis`.
    pub fn select(self, axis: &str, length: u64) -> Result<AxisPart, Refusal> {
        match self {
            Part::Integer(index) => one_element(index, axis, length),
            Part::Range { start, stop, step } => {
                let selection = elements_of_range((start, stop, step), axis, length)?;
                Ok(AxisPart { selection, is_dropped: false })
            }
            Part::Ellipsis => Ok(AxisPart::whole(length)),
        }
    }
}

fn integer(number: &str, part: &str) -> Result<i128, Refusal> {
    number.parse().map_err(|_| not_an_index(part))
}

fn not_an_index(part: &str) -> Refusal {
    Refusal::Syntax(format!("'{part}' is not an index: write integers, slices as START:STOP:STEP, or '...'"))
}

fn one_element(index: i128, axis: &str, length: u64) -> Result<AxisPart, Refusal> {
    let from_start = if index < 0 { index.saturating_add(length.into()) } else { index };
    let start = u64::try_from(from_start).ok().filter(|&start| start < length);
    start.map(AxisPart::single).ok_or_else(|| {
        Refusal::Outside(format!("index {index} is out of bounds for axis {axis} with size {length}"))
    })
}

/// Returns the elements that Python's `slice.indices` gives.
fn elements_of_range(
    (start, stop, step): (Option<i128>, Option<i128>, Option<i128>),
    axis: &str,
    length: u64,
) -> Result<AxisSelection, Refusal> {
    let (step, size) = (step.unwrap_or(1), i128::from(length));
    if step == 0 {
        let sentence = format!("the slice of axis {axis} with size {length} has a step of zero");
        return Err(Refusal::Outside(sentence));
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

/// Replaces `%` and two hexadecimal digits by the byte that they stand for. Text that is not UTF-8 afterwards stays as it is.
pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = after.get(..2).filter(|digits| byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match value.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = after.get(2..).unwrap_or_default();
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str, shape: &[u64]) -> Result<Vec<AxisPart>, Refusal> {
        let parts = Index::parse(text)?.positions(text.trim_end_matches(','), shape)?;
        Ok(parts.iter().zip(shape).map(|(part, length)| part.unwrap_or(AxisPart::whole(*length))).collect())
    }

    fn counts(text: &str, shape: &[u64]) -> Vec<(u64, i64, u64)> {
        let parts = parse(text, shape).unwrap();
        parts
            .iter()
            .map(|AxisPart { selection, .. }| (selection.start, selection.step, selection.count))
            .collect()
    }

    fn refusal(text: &str, shape: &[u64]) -> String {
        match parse(text, shape) {
            Err(Refusal::Syntax(sentence) | Refusal::Outside(sentence)) => sentence,
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
        let dropped: Vec<bool> = parse("0,:", &[2, 3]).unwrap().iter().map(|part| part.is_dropped).collect();
        assert_eq!(dropped, [true, false]);
    }

    #[test]
    fn names_and_texts() {
        let index = Index::parse(" 0, a%3Db = x%2cy , t=~1:2").unwrap();
        let names: Vec<_> = index.names.iter().map(|name| (name.name.as_str(), name.text)).collect();
        assert_eq!(names, [("a=b", "x%2cy"), ("t", "~1:2")]);
        assert!(Index::parse("t=1,0").is_err());
        for (text, plain) in
            [("x%2cy", "x,y"), ("100%", "100%"), ("%zz%41", "%zzA"), ("%ff", "%ff"), ("%C3%A9", "é")]
        {
            assert_eq!(decoded(text), plain);
        }
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

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "[-0-9:.,=~%xé\\[\\] ]{0,40}",
            shape in proptest::collection::vec(proptest::prelude::any::<u64>(), 0..4),
        ) {
            let _ = decoded(&text);
            for part in parse(&text, &shape).unwrap_or_default().iter().zip(&shape) {
                proptest::prop_assert!(part.0.selection.is_inside(*part.1), "{text} {shape:?}");
            }
        }
    }

    #[test]
    fn huge_numbers_are_clipped_or_refused() {
        let most = i128::MAX.to_string();
        let least = i128::MIN.to_string();
        assert_eq!(counts(&format!("{least}:{most}:{most}"), &[9]), [(0, 1, 1)]);
        assert_eq!(counts(&format!("{most}:{least}:{least}"), &[9]), [(8, 1, 1)]);
        assert_eq!(counts("::-9223372036854775808", &[u64::MAX]), [(u64::MAX - 1, i64::MIN, 2)]);
        for index in [most.clone(), least, format!("{most}0")] {
            assert!(parse(&index, &[9]).is_err(), "{index}");
        }
    }
}
