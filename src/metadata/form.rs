//! The form of an array: one number for everything that decides how its stored bytes decode and which elements a key holds.
//! That is the data type, the fill value, the chunks and their keys, and the codecs. Uses `store` only for the number's type.
//!
//! Attributes and lengths do not count: the chunks of an array that grows or shrinks stay where they are. Parameters of
//! codecs with self-describing output do not count either, since programs that rewrite a document may spell them out.
//!
//! Overlays store the number, so its definition must not change.

use std::fmt::Write as _;

use serde_json::Value;

use super::{ArrayMetadata, ChunkGrid, ChunkKeyEncoding, ChunkKeyScheme, ZarrFormat, parse_array};
use crate::store::Form;

/// Codecs with output that describes how it decodes.
const SELF_DESCRIBING: [&str; 6] = ["blosc", "bz2", "gzip", "lz4", "zlib", "zstd"];

impl ArrayMetadata {
    /// Returns the form that the stored document describes, even if this is the metadata of a view.
    pub fn form(&self) -> Form {
        let name = match self.zarr_format {
            ZarrFormat::V1 => "meta",
            ZarrFormat::V2 => ".zarray",
            ZarrFormat::V3 => "zarr.json",
            ZarrFormat::N5 => "attributes.json",
        };
        let stored = Value::Object(self.document.clone()).to_string();
        document_form(name, stored.as_bytes()).unwrap_or_else(|| array_form(self))
    }

    /// As [`ArrayMetadata::form`], of metadata that no view has changed. Does not parse the document again.
    pub fn stored_form(&self) -> Form {
        array_form(self)
    }
}

/// Returns the form that a document describes; `None` if it does not describe an array. The key says which version of
/// Zarr it is.
pub fn document_form(key: &str, document: &[u8]) -> Option<Form> {
    parse_array(key, document).ok().flatten().map(|metadata| array_form(&metadata))
}

fn array_form(metadata: &ArrayMetadata) -> Form {
    let mut text = format!("{} ", metadata.shape.len());
    let member = |name| metadata.document.get(name);
    let data_type = member("data_type").or_else(|| member("dtype")).or_else(|| member("dataType"));
    put_sorted(&mut text, data_type.unwrap_or(&Value::Null));
    for byte in &metadata.fill_value.bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    match &metadata.chunk_grid {
        ChunkGrid::Regular(lengths) => {
            let _ = write!(text, " regular {lengths:?}");
        }
        ChunkGrid::Rectilinear(axes) => {
            // An array that grows gets more chunks, so only the first length of each axis counts.
            let first: Vec<u64> =
                axes.iter().filter_map(|axis| axis.first()).map(|(length, _)| *length).collect();
            let _ = write!(text, " rectilinear {first:?}");
        }
    }
    let ChunkKeyEncoding { scheme, separator, suffix, .. } = &metadata.chunk_keys;
    let _ = write!(text, " {} {separator:?}", *scheme == ChunkKeyScheme::Default);
    if let ChunkKeyScheme::Fanout { base } = scheme {
        let _ = write!(text, " fanout {base}");
    }
    if *scheme == ChunkKeyScheme::N5 {
        text.push_str(" n5");
    }
    if !suffix.is_empty() {
        let _ = write!(text, " suffix {suffix:?}");
    }
    for codec in &metadata.codecs {
        let _ = write!(text, " {:?} ", codec.name);
        let name = codec.name.rsplit('.').next().unwrap_or(&codec.name);
        if !SELF_DESCRIBING.contains(&name) {
            put_sorted(&mut text, &Value::Object(codec.configuration.clone()));
        }
    }
    Form::digest(&text)
}

/// Appends JSON with the members of objects sorted by name.
fn put_sorted(text: &mut String, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in members {
                let _ = write!(text, "{name:?}:");
                put_sorted(text, value);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                put_sorted(text, item);
                text.push(',');
            }
            text.push(']');
        }
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn v2(changes: Value) -> Form {
        let mut document = json!({"zarr_format": 2, "shape": [10, 4], "chunks": [2, 2], "dtype": "<i4", "fill_value": 0,
            "order": "C", "compressor": {"id": "zlib", "level": 1}, "filters": null});
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        document_form(".zarray", document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn arrays_that_decode_differently_have_different_forms() {
        let form = v2(json!({}));
        let same = [
            json!({"shape": [99, 4]}),
            json!({"compressor": {"level": 9, "id": "zlib"}}),
            json!({"dimension_separator": "."}),
            json!({"filters": []}),
        ];
        assert!(same.iter().all(|changes| v2(changes.clone()) == form));
        let others = [
            json!({"dtype": ">i4"}),
            json!({"dtype": "<f4"}),
            json!({"chunks": [4, 2]}),
            json!({"shape": [10], "chunks": [2]}),
            json!({"order": "F"}),
            json!({"fill_value": 1}),
            json!({"dimension_separator": "/"}),
            json!({"compressor": null}),
            json!({"filters": [{"id": "delta", "dtype": "<i4"}]}),
        ];
        for changes in others {
            assert_ne!(v2(changes.clone()), form, "{changes}");
        }
        let group = json!({"zarr_format": 3, "node_type": "group"}).to_string();
        assert_eq!(document_form("a/zarr.json", group.as_bytes()), None);
        // Overlays store it.
        assert_eq!(form.to_string(), "28c0975f116c3217");
    }
}
