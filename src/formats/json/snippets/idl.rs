//! IDL: read_binary. The first index is the fastest, so the axes stay as the file has them: x[lon,lat,time].

use super::subject::{SnippetElement, SnippetSubject, list};

/// The most dimensions that an IDL array has.
const MAX_RANK: usize = 8;

/// ```text
/// x=read_binary('temp',data_type=4,data_dims=[360,180,12],endian='little')
/// ```
pub fn snippet(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    let (code, parts, further) = match element {
        SnippetElement::Bool => (1, 1, ""),
        // IDL's byte has no sign.
        SnippetElement::Int(1) => (1, 1, " & x=fix(x)-256*(x gt 127)"),
        SnippetElement::Int(2) => (2, 1, ""),
        SnippetElement::Int(4) => (3, 1, ""),
        SnippetElement::Int(_) => (14, 1, ""),
        SnippetElement::UInt(1) => (1, 1, ""),
        SnippetElement::UInt(2) => (12, 1, ""),
        SnippetElement::UInt(4) => (13, 1, ""),
        SnippetElement::UInt(_) => (15, 1, ""),
        SnippetElement::Float(4) => (4, 1, ""),
        SnippetElement::Float(8) => (5, 1, ""),
        SnippetElement::Float(_) | SnippetElement::BFloat16 => {
            (12, 1, " ; the bits: IDL has no 16-bit floats")
        }
        SnippetElement::SmallFloat(_) => (1, 1, " ; the bits: IDL has no 8-bit floats"),
        SnippetElement::Complex(4) => (6, 1, ""),
        SnippetElement::Complex(_) => (9, 1, ""),
        SnippetElement::Text(bytes) => (1, bytes, " & x=string(x)"),
        SnippetElement::Utf32(points) => (13, points, " ; code points"),
        SnippetElement::Bytes(bytes) => (1, bytes, " ; the bytes of each element"),
    };
    let mut axes = subject.fastest_first();
    if parts > 1 {
        axes.insert(0, parts as u64);
    }
    if subject.is_empty() {
        return Some("; the array is empty, and IDL has no empty arrays".to_owned());
    }
    if axes.len() > MAX_RANK {
        return Some(format!("; IDL has no arrays of more than {MAX_RANK} dimensions"));
    }
    if axes.is_empty() {
        axes.push(1);
    }
    let endian = if subject.is_big() { "big" } else { "little" };
    Some(format!(
        "x=read_binary({},data_type={code},data_dims=[{}],endian='{endian}'){further}",
        quote(subject.file),
        list(&axes, ",")
    ))
}

/// Quotes a text for IDL. There are no escapes, so control characters are written by number.
fn quote(text: &str) -> String {
    let mut parts = Vec::new();
    let mut part = String::new();
    for character in text.chars() {
        match character {
            '\'' => part.push_str("''"),
            control if control.is_control() => {
                parts.push(format!("'{part}'"));
                parts.push(format!("string({}b)", u32::from(control)));
                part.clear();
            }
            other => part.push(other),
        }
    }
    parts.push(format!("'{part}'"));
    parts.retain(|part| part != "''");
    parts.join("+")
}
