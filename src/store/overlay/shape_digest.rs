//! A digest of the shape that an array's document has, read from its text. Spec: `shape` of v1, v2 and v3, `dimensions` of N5.
//!
//! A store does not parse metadata, and documents may contain what JSON does not allow (NaN). So the member is found by its place
//! in the outermost object. Uses `version` only.

use crate::store::VersionDigest;

/// The names of the documents that say how an array is stored.
pub const ARRAY_DOCUMENTS: [&str; 4] = ["zarr.json", ".zarray", "meta", "attributes.json"];
/// The longest document that is read.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
const MEMBER: &[u8] = b"\"shape\"";
const N5_MEMBER: &[u8] = b"\"dimensions\"";

/// 64 bits that identify the shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeDigest(u64);

impl ShapeDigest {
    /// Returns the digest of the shape in a document; `None` if it has no shape.
    pub fn of_document(document: &[u8]) -> Option<Self> {
        let shape = member(document, MEMBER).or_else(|| member(document, N5_MEMBER));
        let list = shape?.strip_prefix(b"[")?;
        let list = list.get(..list.iter().position(|byte| *byte == b']')?)?;
        let text: Vec<u8> = list.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        Some(ShapeDigest(VersionDigest::fnv1a(&text).short()))
    }

    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(ShapeDigest)
    }
}

impl std::fmt::Display for ShapeDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Returns the text that follows a name and its colon in the outermost object.
fn member<'d>(document: &'d [u8], name: &[u8]) -> Option<&'d [u8]> {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(byte) = document.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = end_of_string(document, at)?;
                let (text, rest) = (document.get(at..end)?, document.get(end..)?.trim_ascii_start());
                if depth == 1
                    && text == name
                    && let Some(value) = rest.strip_prefix(b":")
                {
                    return Some(value.trim_ascii_start());
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the end of the string whose opening quotation mark is at `start`.
fn end_of_string(document: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match document.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(document: &str) -> Option<ShapeDigest> {
        ShapeDigest::of_document(document.as_bytes())
    }

    #[test]
    fn only_the_shape_counts() {
        let plain = digest(r#"{"shape":[4,10],"zarr_format":3}"#);
        assert!(plain.is_some());
        for same in [
            "{\n \"fill_value\" : NaN, \"shape\" : [\n 4,\n 10 ]}",
            r#"{"attributes": {"shape": [1], "text": "\"shape\": [2] \\"}, "shape": [4, 10]}"#,
            r#"{"chunks": ["shape", {"shape": [3]}], "shape": [4,10]}"#,
        ] {
            assert_eq!(digest(same), plain, "{same}");
        }
        for other in [r#"{"shape":[5,10]}"#, r#"{"shape":[410]}"#, r#"{"shape":[]}"#] {
            assert!(digest(other).is_some() && digest(other) != plain, "{other}");
        }
        for none in
            ["", "{}", r#"{"a": {"shape": [1]}}"#, r#"{"shape": "[1]"}"#, r#"{"shape": [1"#, r#"{"shape"#]
        {
            assert_eq!(digest(none), None, "{none}");
        }
        assert_eq!(plain.and_then(|digest| ShapeDigest::parse(&digest.to_string())), plain);
    }
}
