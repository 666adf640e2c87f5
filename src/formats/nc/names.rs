//! The names of variables, dimensions and attributes in a netCDF file.
//!
//! Uses nothing. HDF5 does not allow `/` in a name, and netCDF does not allow control characters and spaces at the end. These are written as
//! in URLs, with `%` and two hexadecimal digits for each byte. netCDF allows 256 bytes.

use std::collections::HashSet;
use std::fmt::Write as _;

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Returns a name as a netCDF file has it; `None` if it is empty or too long.
pub fn file_name(name: &str) -> Option<String> {
    let trimmed = name.trim_end_matches(' ').len();
    let mut escaped = String::with_capacity(name.len());
    for (at, character) in name.char_indices() {
        // The name `.` would be the group itself.
        if character == '/' || character.is_control() || at >= trimmed || name == "." {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a String does not fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        } else {
            escaped.push(character);
        }
        if escaped.len() > MAX_NAME_BYTES {
            return None;
        }
    }
    (!escaped.is_empty()).then_some(escaped)
}

/// A set of names in which no two are the same.
#[derive(Debug, Default)]
pub struct UniqueNames(HashSet<String>);

impl UniqueNames {
    /// Takes a name. Returns `false` if it is taken already.
    pub fn take(&mut self, name: &str) -> bool {
        self.0.insert(name.to_owned())
    }

    /// Returns whether a name is taken.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Takes a name, or the first of `NAME_2`, `NAME_3`, … that is free.
    pub fn take_similar(&mut self, name: String) -> String {
        let mut similar = name.clone();
        let mut count = 2u64;
        while !self.take(&similar) {
            similar = format!("{name}_{count}");
            count += 1;
        }
        similar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_hdf5_and_netcdf_allow() {
        for (name, escaped) in [
            ("temp", Some("temp")),
            ("a b%c\"é", Some("a b%c\"é")),
            ("a/b\n\0\x7f", Some("a%2Fb%0A%00%7F")),
            ("\u{85}", Some("%C2%85")),
            ("a  ", Some("a%20%20")),
            (".", Some("%2E")),
            ("..", Some("..")),
            ("", None),
        ] {
            assert_eq!(file_name(name).as_deref(), escaped, "{name:?}");
        }
        assert!(file_name(&"a".repeat(255)).is_some());
        assert_eq!(file_name(&"a".repeat(256)), None);
        assert_eq!(file_name(&"\n".repeat(86)), None);
    }

    #[test]
    fn names_are_unique() {
        let mut names = UniqueNames::default();
        assert_eq!(names.take_similar("x".to_owned()), "x");
        assert_eq!(names.take_similar("x".to_owned()), "x_2");
        assert!(!names.take("x_2") && names.take("x_3"));
        assert_eq!(names.take_similar("x".to_owned()), "x_4");
    }
}
