//! The names of arrays' own files in the folders of formats with detached headers.
//!
//! A header names the file next to it, and each program reads such names in its own way: `%` begins a pattern of numbers in
//! NRRD, MetaImage and GrADS, a space ends a name, `LIST` and `LOCAL` are keywords, GDAL pairs `a.x` with `a.hdr`. Therefore every character
//! that is not an ASCII letter, a digit, `_` or `-` is written as `+` and the two hexadecimal digits of each of its bytes.
//!
//! Invariant: two arrays of one group never have the same data name.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Words that begin a list of files or mean "in this file".
const WORDS: [&str; 3] = ["LIST", "LOCAL", "SKIPLIST"];

/// Returns the name of the file of an array with this name.
pub fn data_name(name: &str) -> Cow<'_, str> {
    let is_word =
        WORDS.iter().any(|word| name.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word)));
    if !is_word && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::new();
    for (at, character) in name.char_indices() {
        if is_plain(character) && !(at == 0 && is_word) {
            escaped.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a String does not fail.
            let _ = write!(escaped, "+{byte:02X}");
        }
    }
    Cow::Owned(escaped)
}

/// Returns the name of the array with a file of this name; `None` if no array can have it.
pub fn array_name(file: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = file.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'+' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = rest.get(2..)?;
    }
    let name = String::from_utf8(bytes).ok()?;
    // Other spellings of the same bytes are not names.
    (data_name(&name) == file).then_some(name)
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names() {
        for (name, expected) in [
            ("temp_2m-a", "temp_2m-a"),
            ("Größe", "Gr+C3+B6+C3+9Fe"),
            ("100%", "100+25"),
            ("100+25", "100+2B25"),
            ("a b.c", "a+20b+2Ec"),
            ("LIST", "+4CIST"),
            ("localities", "+6Cocalities"),
        ] {
            assert_eq!(data_name(name), expected);
            assert_eq!(array_name(expected).as_deref(), Some(name));
        }
        for name in ["a b", "+61", "+4", "+", "+2e", "+FF", "LIST", "a.b"] {
            assert_eq!(array_name(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name: String) {
            let escaped = data_name(&name).into_owned();
            prop_assert_eq!(array_name(&escaped), Some(name));
            prop_assert!(escaped.chars().all(|c| is_plain(c) || c == '+'));
        }
    }
}
