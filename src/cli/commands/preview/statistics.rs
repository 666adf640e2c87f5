//! Statistics of elements: exact for integers, with compensated sums for floats. Uses `formats::numbers`.

use zarrfs::formats::numbers::{Numbers, time_text};
use zarrfs::formats::positions::number_text;
use zarrfs::metadata::conventions::no_data::NoData;
use zarrfs::metadata::{ArrayMetadata, ByteOrder, DataType};

/// Digits of the mean.
const MEAN_DIGITS: usize = 10;

/// The elements of an array: which are data, and how they are shown.
#[derive(Clone, Debug)]
pub struct ElementKind {
    pub numbers: Numbers,
    data_type: DataType,
    /// The bytes of the fill value.
    fill: Vec<u8>,
    fill_value: f64,
    /// Whether the fill value stands for the absence of data: it is not 0, `false` or undefined.
    is_fill_absence: bool,
    /// The values that stand for missing data.
    no_data: Vec<f64>,
    /// The same, if elements are integers.
    no_data_integers: Vec<i128>,
}

/// The counts and totals of elements.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// The number of elements.
    pub count: u128,
    /// How many are NaN or NaT.
    pub nan: u128,
    /// How many are the fill value.
    pub fill: u128,
    /// How many are data.
    pub data: u128,
    totals: Totals,
}

#[derive(Clone, Copy, Debug, Default)]
enum Totals {
    #[default]
    None,
    Integers {
        low: i128,
        high: i128,
        sum: i128,
    },
    /// `lost` is the rounding error of `sum`.
    Floats {
        low: f64,
        high: f64,
        sum: f64,
        lost: f64,
    },
}

impl ElementKind {
    /// Returns the kind of an array's elements; `None` if they are not numbers.
    pub fn for_array(metadata: &ArrayMetadata) -> Option<Self> {
        let numbers = Numbers::for_type(&metadata.data_type)?;
        let fill = metadata.fill_value.bytes.clone();
        let mut fill_value = f64::NAN;
        numbers.each(&fill, ByteOrder::Little, |value| fill_value = value);
        let is_fill_absence =
            !metadata.fill_value.is_undefined && fill_value != 0.0 && metadata.data_type != DataType::Bool;
        let (mut no_data, mut no_data_integers) = (Vec::new(), Vec::new());
        for value in NoData::read(metadata).values {
            numbers.each(&value.bytes, ByteOrder::Little, |value| no_data.push(value));
            numbers.each_integer(&value.bytes, ByteOrder::Little, |value| no_data_integers.extend(value));
        }
        let data_type = metadata.data_type.clone();
        Some(ElementKind { numbers, data_type, fill, fill_value, is_fill_absence, no_data, no_data_integers })
    }

    /// Returns the value of an element in a picture: NaN if it is missing data.
    pub fn shown(&self, value: f64) -> f64 {
        let is_absent = self.no_data.contains(&value) || (self.is_fill_absence && value == self.fill_value);
        if is_absent { f64::NAN } else { value }
    }

    /// Calls `each` with the value of each element in a picture.
    pub fn values(&self, bytes: &[u8], mut each: impl FnMut(f64)) {
        self.numbers.each(bytes, ByteOrder::Little, |value| each(self.shown(value)));
    }

    /// Returns the value of elements that are not stored.
    pub fn missing_value(&self) -> f64 {
        self.shown(self.fill_value)
    }

    /// Returns the fill value as text.
    pub fn fill_text(&self) -> String {
        self.exact_text(self.fill_value)
    }

    /// Returns which values are left out of minimum, maximum and mean; `None` if only NaN is.
    pub fn left_out(&self) -> Option<String> {
        let fill = (self.is_fill_absence && !self.fill_value.is_nan()).then(|| self.fill_text());
        let mut texts: Vec<String> = fill.into_iter().collect();
        for value in self.no_data.iter().filter(|value| !value.is_nan()) {
            let text = self.exact_text(*value);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        (!texts.is_empty()).then(|| texts.join(" and "))
    }

    /// Returns a value as text, as short as its type allows.
    fn exact_text(&self, value: f64) -> String {
        if let DataType::DateTime64(unit) = &self.data_type {
            let text = value.is_finite().then(|| time_text(value.round() as i64, unit)).flatten();
            return text.unwrap_or_else(|| "NaT".to_owned());
        }
        match self.numbers {
            Numbers::F32 | Numbers::Small(..) | Numbers::SmallComplex(..) => format!("{:?}", value as f32),
            Numbers::F64 | Numbers::Complex(_) => format!("{value:?}"),
            Numbers::Signed(_) | Numbers::Unsigned(_) | Numbers::Time => format!("{value}"),
        }
    }

    /// Returns whether round numbers are also round for people; those of times are not.
    pub fn has_round_values(&self) -> bool {
        !matches!(self.data_type, DataType::DateTime64(_))
    }

    /// Returns a value as text that need not be exact.
    pub fn text(&self, value: f64) -> String {
        match self.data_type {
            DataType::DateTime64(_) => self.exact_text(value),
            _ => number_text(value),
        }
    }
}

impl Statistics {
    /// Adds elements.
    pub fn add(&mut self, kind: &ElementKind, bytes: &[u8]) {
        if kind.numbers.is_integer() { self.add_integers(kind, bytes) } else { self.add_floats(kind, bytes) }
    }

    fn add_integers(&mut self, kind: &ElementKind, bytes: &[u8]) {
        let mut fill = None;
        kind.numbers.each_integer(&kind.fill, ByteOrder::Little, |value| fill = value);
        let (mut low, mut high, mut sum) = (i128::MAX, i128::MIN, 0i128);
        let (mut nan, mut fills, mut data) = (0u64, 0u64, 0u64);
        kind.numbers.each_integer(bytes, ByteOrder::Little, |value| {
            let is_fill = value == fill;
            fills += u64::from(is_fill);
            let Some(number) = value else {
                nan += 1;
                return;
            };
            if (is_fill && kind.is_fill_absence) || kind.no_data_integers.contains(&number) {
                return;
            }
            data += 1;
            low = low.min(number);
            high = high.max(number);
            sum += number;
        });
        self.count += (bytes.len() / kind.numbers.size().max(1)) as u128;
        self.take((nan, fills, data), Totals::Integers { low, high, sum });
    }

    fn add_floats(&mut self, kind: &ElementKind, bytes: &[u8]) {
        let (mut low, mut high, mut sum, mut lost) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
        let (mut nan, mut fills, mut data) = (0u64, 0u64, 0u64);
        let fill_is_nan = kind.fill_value.is_nan();
        kind.numbers.each(bytes, ByteOrder::Little, |value| {
            if value.is_nan() {
                nan += 1;
                fills += u64::from(fill_is_nan);
                return;
            }
            fills += u64::from(value == kind.fill_value);
            if kind.shown(value).is_nan() {
                return;
            }
            data += 1;
            low = low.min(value);
            high = high.max(value);
            (sum, lost) = compensated((sum, lost), value);
        });
        self.count += (bytes.len() / kind.numbers.size().max(1)) as u128;
        self.take((nan, fills, data), Totals::Floats { low, high, sum, lost });
    }

    fn take(&mut self, (nan, fill, data): (u64, u64, u64), totals: Totals) {
        self.nan += u128::from(nan);
        self.fill += u128::from(fill);
        self.data += u128::from(data);
        if data > 0 {
            self.totals = self.totals.with(totals);
        }
    }

    /// Adds other statistics.
    pub fn merge(&mut self, other: &Statistics) {
        self.count += other.count;
        self.nan += other.nan;
        self.fill += other.fill;
        self.data += other.data;
        self.totals = self.totals.with(other.totals);
    }

    /// Adds `missing` elements that are not stored. The elements counted so far are a sample of `stored` elements.
    pub fn add_missing(&mut self, kind: &ElementKind, missing: u128, stored: u128) {
        if stored != self.count && self.count > 0 {
            self.scale(stored as f64 / self.count as f64, stored);
        }
        if missing == 0 {
            return;
        }
        self.count += missing;
        self.fill += missing;
        if kind.fill_value.is_nan() {
            self.nan += missing;
            return;
        }
        if kind.missing_value().is_nan() {
            return;
        }
        self.data += missing;
        let mut integer = None;
        kind.numbers.each_integer(&kind.fill, ByteOrder::Little, |value| integer = value);
        let totals = match integer {
            Some(value) => {
                let sum = i128::try_from(missing).unwrap_or(i128::MAX).saturating_mul(value);
                Totals::Integers { low: value, high: value, sum }
            }
            None => {
                let value = kind.fill_value;
                Totals::Floats { low: value, high: value, sum: value * missing as f64, lost: 0.0 }
            }
        };
        self.totals = self.totals.with(totals);
    }

    /// Scales the counts and the sum of a sample to all elements.
    fn scale(&mut self, factor: f64, count: u128) {
        let scaled = |number: u128| (number as f64 * factor).round() as u128;
        (self.nan, self.fill, self.data) = (scaled(self.nan), scaled(self.fill), scaled(self.data));
        self.count = count;
        match &mut self.totals {
            Totals::None => {}
            Totals::Integers { sum, .. } => *sum = (*sum as f64 * factor) as i128,
            Totals::Floats { sum, lost, .. } => (*sum, *lost) = (*sum * factor, *lost * factor),
        }
    }

    /// Returns minimum, maximum and mean as text; `None` without data.
    pub fn texts(&self, kind: &ElementKind) -> Option<[String; 3]> {
        let is_time = matches!(kind.data_type, DataType::DateTime64(_));
        Some(match self.totals {
            Totals::None => return None,
            Totals::Integers { low, high, sum } if is_time => {
                let mean = sum / i128::try_from(self.data).unwrap_or(i128::MAX).max(1);
                [low, high, mean].map(|value| kind.exact_text(value as f64))
            }
            Totals::Integers { low, high, sum } => {
                [low.to_string(), high.to_string(), mean_text(sum as f64 / self.data as f64)]
            }
            Totals::Floats { low, high, sum, lost } => {
                let sum = if sum.is_finite() { sum + lost } else { sum };
                [kind.exact_text(low), kind.exact_text(high), mean_text(sum / self.data as f64)]
            }
        })
    }
}

impl Totals {
    fn with(self, other: Totals) -> Totals {
        match (self, other) {
            (Totals::None, other) | (other, Totals::None) => other,
            (Totals::Integers { low, high, sum }, Totals::Integers { low: l, high: h, sum: s }) => {
                Totals::Integers { low: low.min(l), high: high.max(h), sum: sum.saturating_add(s) }
            }
            (
                Totals::Floats { low, high, sum, lost },
                Totals::Floats { low: l, high: h, sum: s, lost: m },
            ) => {
                let (sum, lost) = compensated((sum, lost + m), s);
                Totals::Floats { low: low.min(l), high: high.max(h), sum, lost }
            }
            // All elements have one type.
            (one, _) => one,
        }
    }
}

/// Adds a number to a sum and its rounding error (Neumaier's algorithm).
fn compensated((sum, lost): (f64, f64), value: f64) -> (f64, f64) {
    let next = sum + value;
    let rest = if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
    (next, lost + rest)
}

fn mean_text(mean: f64) -> String {
    let rounded: f64 = format!("{mean:.0$e}", MEAN_DIGITS - 1).parse().unwrap_or(mean);
    format!("{rounded:?}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use zarrfs::metadata::{Document, parse_v3};

    fn kind(data_type: &str, fill_value: serde_json::Value) -> ElementKind {
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": data_type,
            "fill_value": fill_value, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {"missing_value": 7}});
        match parse_v3("zarr.json", document.to_string().as_bytes()).unwrap() {
            Document::Array(metadata) => ElementKind::for_array(&metadata).unwrap(),
            Document::Group(_) => unreachable!("the document is an array's"),
        }
    }

    #[test]
    fn integers_are_exact() {
        let kind = kind("uint64", json!(0));
        let bytes: Vec<u8> =
            [u64::MAX, u64::MAX - 1, 7, 0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut statistics = Statistics::default();
        statistics.add(&kind, &bytes);
        assert_eq!((statistics.count, statistics.fill, statistics.data), (4, 1, 3));
        let [low, high, _] = statistics.texts(&kind).unwrap();
        assert_eq!((low.as_str(), high), ("0", u64::MAX.to_string()));
    }

    #[test]
    fn missing_data_does_not_count() {
        let kind = kind("float32", json!(-9999.0));
        let bytes: Vec<u8> =
            [1.5f32, -9999.0, f32::NAN, 7.0, 0.1].iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut statistics = Statistics::default();
        statistics.add(&kind, &bytes);
        statistics.add_missing(&kind, 5, 5);
        assert_eq!((statistics.count, statistics.fill, statistics.nan, statistics.data), (10, 6, 1, 2));
        assert_eq!(statistics.texts(&kind).unwrap(), ["0.1", "1.5", "0.8000000007"]);
        assert_eq!(kind.left_out().unwrap(), "-9999.0 and 7.0");
    }

    #[test]
    fn a_sample_stands_for_the_rest() {
        let kind = kind("int16", json!(0));
        let mut statistics = Statistics::default();
        statistics.add(&kind, &[4, 0, 8, 0]);
        statistics.add_missing(&kind, 600, 400);
        assert_eq!((statistics.count, statistics.fill), (1000, 600));
        assert_eq!(statistics.texts(&kind).unwrap(), ["0", "8", "2.4"]);
    }
}
