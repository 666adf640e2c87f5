//! `vlen-utf8` and `vlen-bytes`: elements of any length, each after its length. Uses `metadata`.
//!
//! Spec: zarr-extensions, codecs/vlen-utf8 and codecs/vlen-bytes; numcodecs `VLenUTF8`, `VLenBytes`.
//!
//! ```json
//! {"name": "vlen-utf8"}
//! ```
//!
//! A chunk is the number of elements, followed by the length and the bytes of each. All numbers have 32 bits and are
//! little-endian. Such elements have no flat form, so these codecs are not in the registry: the functions here are for
//! the elements as text. Elements come in the order they are stored: C order in v3, in v2 that of `order`.

use crate::codec::{CodecError, CodecResult};
use crate::metadata::CodecFamily;

/// Bytes of the count, and of a length.
const NUMBER_BYTES: usize = 4;

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlen {
    /// Strings, which must be UTF-8.
    Utf8,
    /// Any bytes.
    Bytes,
}

impl Vlen {
    /// Returns the codec with a name of v3's `codecs` or an id of v2's `filters`. The zarrs crate has a name in addition that is for
    /// elements of any type; they are of the type `elements`.
    pub fn find(family: CodecFamily, name: &str, elements: Vlen) -> Option<Vlen> {
        let name = match family {
            CodecFamily::V3 => {
                let name = name.strip_prefix("https://codec.zarrs.dev/array_to_bytes/").unwrap_or(name);
                name.strip_prefix("numcodecs.").unwrap_or(name)
            }
            _ => name,
        };
        match (family, name) {
            (_, "vlen-utf8") | (CodecFamily::V3, "vlen_utf8") => Some(Vlen::Utf8),
            (_, "vlen-bytes") | (CodecFamily::V3, "vlen_bytes") => Some(Vlen::Bytes),
            (CodecFamily::V3, "zarrs.vlen_v2" | "vlen_v2") => Some(elements),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Vlen::Utf8 => "vlen-utf8",
            Vlen::Bytes => "vlen-bytes",
        }
    }

    fn error(self, reason: impl std::fmt::Display) -> CodecError {
        CodecError::new(format_args!("codec \"{}\": {reason}", self.name()))
    }

    /// Returns the elements of a chunk that has `elements` of them, as parts of `encoded`. Bytes after the last
    /// element are an error. Allocates 16 bytes for each element, and each has at least 4 in `encoded`.
    pub fn decode(self, encoded: &[u8], elements: usize) -> CodecResult<Vec<&[u8]>> {
        let truncated = || self.error(format_args!("the chunk ends within its {elements} elements"));
        let (count, mut rest) = take_number(encoded).ok_or_else(|| self.error("the chunk has no header"))?;
        if count != elements {
            return Err(self.error(format_args!("{count} elements, where {elements} were expected")));
        }
        // Each element has a length field, so the count allocates no more than the chunk really holds.
        if rest.len() / NUMBER_BYTES < count {
            return Err(truncated());
        }
        let mut found = Vec::with_capacity(count);
        for index in 0..count {
            let (length, after) = take_number(rest).ok_or_else(truncated)?;
            let (element, after) = after.split_at_checked(length).ok_or_else(truncated)?;
            if self == Vlen::Utf8
                && let Err(error) = std::str::from_utf8(element)
            {
                return Err(self.error(format_args!("element {index} is not UTF-8: {error}")));
            }
            found.push(element);
            rest = after;
        }
        match rest.len() {
            0 => Ok(found),
            left => Err(self.error(format_args!("{left} bytes after the last element"))),
        }
    }

    /// Fails if an element is not of this type.
    pub fn check(self, elements: &[&[u8]]) -> CodecResult<()> {
        let is_wrong = |element: &&[u8]| self == Vlen::Utf8 && std::str::from_utf8(element).is_err();
        match elements.iter().position(is_wrong) {
            Some(index) => Err(self.error(format_args!("element {index} is not UTF-8"))),
            None => Ok(()),
        }
    }

    /// Encodes the elements of a chunk.
    pub fn encode<T: AsRef<[u8]>>(self, elements: &[T]) -> CodecResult<Vec<u8>> {
        let number = |number: usize| {
            let fits = u32::try_from(number).ok().filter(|&number| i32::try_from(number).is_ok());
            fits.map(u32::to_le_bytes)
                .ok_or_else(|| self.error(format_args!("{number} is more than 2^31 - 1")))
        };
        let bytes: usize = elements.iter().map(|element| NUMBER_BYTES + element.as_ref().len()).sum();
        let mut encoded = Vec::with_capacity(NUMBER_BYTES + bytes);
        encoded.extend_from_slice(&number(elements.len())?);
        for (index, element) in elements.iter().enumerate() {
            let element = element.as_ref();
            if self == Vlen::Utf8 && std::str::from_utf8(element).is_err() {
                return Err(self.error(format_args!("element {index} is not UTF-8")));
            }
            encoded.extend_from_slice(&number(element.len())?);
            encoded.extend_from_slice(element);
        }
        Ok(encoded)
    }
}

/// Splits `bytes` after the number at its beginning.
fn take_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strings_follow_their_lengths() {
        let encoded = b"\x03\0\0\0\x02\0\0\0\xc3\xa9\0\0\0\0\x03\0\0\0abc";
        assert_eq!(Vlen::Utf8.encode(&["é", "", "abc"]).unwrap(), encoded);
        assert_eq!(Vlen::Utf8.decode(encoded, 3).unwrap(), [&b"\xc3\xa9"[..], b"", b"abc"]);
        assert_eq!(Vlen::Bytes.decode(&[0; 4], 0).unwrap(), [b""; 0]);
        assert_eq!(Vlen::Bytes.encode(&[b""; 0]).unwrap(), [0; 4]);
    }

    #[test]
    fn truncated_elements_are_errors() {
        let encoded = Vlen::Bytes.encode(&[&b"one"[..], b"\xff"]).unwrap();
        fn decode(encoded: &[u8], elements: usize) -> Result<Vec<&[u8]>, String> {
            Vlen::Bytes.decode(encoded, elements).map_err(|error| error.to_string())
        }
        assert_eq!(decode(&encoded, 2).unwrap(), [&b"one"[..], b"\xff"]);
        for length in 0..encoded.len() {
            assert!(decode(&encoded[..length], 2).is_err());
        }
        let error = decode(&encoded, 3).unwrap_err();
        assert_eq!(error, "codec \"vlen-bytes\": 2 elements, where 3 were expected");
        let error = decode(&[encoded.clone(), vec![0]].concat(), 2).unwrap_err();
        assert_eq!(error, "codec \"vlen-bytes\": 1 bytes after the last element");
        // A count or a length that promises more than there is allocates nothing.
        assert!(decode(&[0xff; 4], u32::MAX as usize).unwrap_err().contains("ends within"));
        assert!(decode(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0], 1).unwrap_err().contains("ends within"));
        let error = Vlen::Utf8.decode(&encoded, 2).unwrap_err().to_string();
        assert!(error.starts_with("codec \"vlen-utf8\": element 1 is not UTF-8"), "{error}");
        assert!(Vlen::Utf8.encode(&[b"\xff"]).is_err());
    }

    #[test]
    fn names() {
        let find = |family, name| Vlen::find(family, name, Vlen::Bytes);
        assert_eq!(find(CodecFamily::V2, "vlen-utf8"), Some(Vlen::Utf8));
        assert_eq!(find(CodecFamily::V3, "numcodecs.vlen-bytes"), Some(Vlen::Bytes));
        assert_eq!(
            find(CodecFamily::V3, "https://codec.zarrs.dev/array_to_bytes/vlen_utf8"),
            Some(Vlen::Utf8)
        );
        assert_eq!(find(CodecFamily::V3, "zarrs.vlen_v2"), Some(Vlen::Bytes));
        for name in ["numcodecs.vlen-bytes", "vlen-array", "zarrs.vlen_v2", "vlen_utf8"] {
            assert_eq!(find(CodecFamily::V2, name), None);
        }
        assert_eq!(find(CodecFamily::V3, "zarrs.vlen"), None);
    }

    proptest! {
        #[test]
        fn any_elements_come_back(elements: Vec<Vec<u8>>, strings: Vec<String>) {
            let encoded = Vlen::Bytes.encode(&elements).unwrap();
            prop_assert_eq!(Vlen::Bytes.decode(&encoded, elements.len()).unwrap(), elements);
            let encoded = Vlen::Utf8.encode(&strings).unwrap();
            let bytes: Vec<&[u8]> = strings.iter().map(String::as_bytes).collect();
            prop_assert_eq!(Vlen::Utf8.decode(&encoded, strings.len()).unwrap(), bytes);
        }

        #[test]
        fn any_bytes_are_taken_whole_or_not_at_all(encoded: Vec<u8>, elements in 0..4usize) {
            if let Ok(found) = Vlen::Bytes.decode(&encoded, elements) {
                prop_assert_eq!(Vlen::Bytes.encode(&found).unwrap(), encoded);
            }
        }
    }
}
