//! The scalar map of `cast_value`: values that are replaced before the cast.
//!
//! Spec: zarr-extensions, codecs/cast_value, "scalar_map". Uses `metadata`.
//!
//! Values are matched as numbers: any NaN is matched by a NaN key and −0 by 0, as zarr-python does. Of keys that
//! are the same number the first counts ("MUST use the first occurrence").

use crate::metadata::data_type::exact_number::{ExactNumber, ScalarFormat};

/// A longer map is searched by bisection.
const MAX_LINEAR: usize = 8;

/// Codes of one data type to codes of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalarMap {
    /// Key codes in [`canonical`] form and their replacements, sorted if there are more than [`MAX_LINEAR`].
    entries: Vec<(u64, u64)>,
}

/// Returns one code for each number: all NaNs have the same, and both zeros.
#[inline]
fn canonical(format: ScalarFormat, code: u64) -> u64 {
    match format {
        ScalarFormat::Integer(_) => code,
        ScalarFormat::Float(_) => match format.read(code) {
            ExactNumber::Finite { significand: 0, .. } => 0,
            // No number has the code, whatever the float's width.
            ExactNumber::Nan { .. } => u64::MAX,
            _ => code,
        },
    }
}

impl ScalarMap {
    /// Creates the map from `pairs` of codes, with keys in `source`'s format.
    pub fn new(source: ScalarFormat, pairs: impl IntoIterator<Item = (u64, u64)>) -> ScalarMap {
        let mut entries: Vec<(u64, u64)> =
            pairs.into_iter().map(|(key, value)| (canonical(source, key), value)).collect();
        // The sort is stable, so that of equal keys the first one listed stays.
        entries.sort_by_key(|&(key, _)| key);
        entries.dedup_by_key(|&mut (key, _)| key);
        ScalarMap { entries }
    }

    /// Returns the replacement of `code`, a value in `source`'s format.
    #[inline]
    pub fn get(&self, source: ScalarFormat, code: u64) -> Option<u64> {
        if self.entries.is_empty() {
            return None;
        }
        let key = canonical(source, code);
        if self.entries.len() <= MAX_LINEAR {
            return self.entries.iter().find(|entry| entry.0 == key).map(|entry| entry.1);
        }
        let at = self.entries.binary_search_by_key(&key, |entry| entry.0).ok()?;
        self.entries.get(at).map(|entry| entry.1)
    }

    /// Returns the codes that are replaced, each with its replacement, without NaNs. They correct a block without NaNs
    /// that was cast without the map. `None` if that is not faster.
    pub fn patches(&self, source: ScalarFormat) -> Option<Vec<(u64, u64)>> {
        if self.entries.len() > MAX_LINEAR {
            return None;
        }
        let mut patches = Vec::new();
        for &(key, value) in &self.entries {
            match (source, source.read(key)) {
                (ScalarFormat::Float(_), _) if key == u64::MAX => {}
                (ScalarFormat::Float(_), ExactNumber::Finite { significand: 0, .. }) => {
                    patches.push((0, value));
                    patches.push((1 << (source.width() * 8 - 1), value));
                }
                _ => patches.push((key, value)),
            }
        }
        Some(patches)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::DataType;

    fn format(data_type: &DataType) -> ScalarFormat {
        data_type.real_format().unwrap()
    }

    #[test]
    fn the_first_of_equal_keys_counts() {
        let int8 = format(&DataType::Int8);
        let map = ScalarMap::new(int8, [(0xff, 1), (3, 2), (0xff, 9), (3, 9)]);
        assert_eq!(map.get(int8, 0xff), Some(1));
        assert_eq!(map.get(int8, 3), Some(2));
        assert_eq!(map.get(int8, 1), None);
    }

    #[test]
    fn keys_are_numbers() {
        let float32 = format(&DataType::Float32);
        let bits = |value: f32| u64::from(value.to_bits());
        let map = ScalarMap::new(float32, [(bits(f32::NAN), 7), (bits(-0.0), 8), (bits(0.0), 9)]);
        assert_eq!(map.get(float32, 0xff80_0001), Some(7));
        assert_eq!(map.get(float32, bits(0.0)), Some(8));
        assert_eq!(map.get(float32, bits(-0.0)), Some(8));
        assert_eq!(map.get(float32, bits(f32::INFINITY)), None);
        assert_eq!(map.patches(float32), Some(vec![(0, 8), (1 << 31, 8)]));
    }

    #[test]
    fn a_long_map_is_found_by_halves() {
        let uint16 = format(&DataType::UInt16);
        let map = ScalarMap::new(uint16, (0..1000).rev().map(|key| (key * 3, key)));
        for code in 0..3100 {
            let expected = (code % 3 == 0 && code < 3000).then_some(code / 3);
            assert_eq!(map.get(uint16, code), expected);
        }
        assert_eq!(map.patches(uint16), None);
    }

    #[test]
    fn the_greatest_integer_is_a_key_like_any() {
        let uint64 = format(&DataType::UInt64);
        let map = ScalarMap::new(uint64, [(u64::MAX, 5)]);
        assert_eq!(map.get(uint64, u64::MAX), Some(5));
        assert_eq!(map.patches(uint64), Some(vec![(u64::MAX, 5)]));
    }
}
