//! C: a memory map, as a pointer to the array's own type, so that `x[t][i][j]` works.

use super::subject::{SnippetElement, SnippetSubject};

/// ```text
/// const float (*x)[180][360]=mmap(0,3110400,PROT_READ,MAP_PRIVATE,open("temp",O_RDONLY),0);
/// ```
/// Needs <fcntl.h>, <stdint.h> and <sys/mman.h>. In `order=F` the axes are reversed.
pub fn snippet(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    let (declared, parts, remark) = match element {
        SnippetElement::Bool => ("uint8_t", 1, ""),
        SnippetElement::Int(bytes) => (integer(bytes, true), 1, ""),
        SnippetElement::UInt(bytes) => (integer(bytes, false), 1, ""),
        SnippetElement::Float(4) => ("float", 1, ""),
        SnippetElement::Float(8) => ("double", 1, ""),
        SnippetElement::Float(_) => ("uint16_t", 1, "the bits of IEEE binary16"),
        SnippetElement::BFloat16 => ("uint16_t", 1, "the upper halves of floats"),
        SnippetElement::SmallFloat(_) => ("uint8_t", 1, "the bits of 8-bit floats"),
        SnippetElement::Complex(4) => ("float _Complex", 1, ""),
        SnippetElement::Complex(_) => ("double _Complex", 1, ""),
        SnippetElement::Text(bytes) => ("char", bytes, "NUL only where shorter than the field"),
        SnippetElement::Utf32(points) => ("uint32_t", points, "code points"),
        SnippetElement::Bytes(bytes) => ("unsigned char", bytes, "the bytes of each element"),
    };
    if subject.is_empty() {
        return Some("/* the array is empty */".to_owned());
    }
    let bytes = subject.count().saturating_mul(subject.data_type.item_size()? as u64);
    let mut axes = subject.fastest_first();
    axes.reverse();
    let mut remarks: Vec<String> = Vec::new();
    if !remark.is_empty() {
        remarks.push(remark.to_owned());
    }
    if subject.is_fortran() && subject.rank() > 1 {
        remarks.push("axes reversed".to_owned());
    }
    let width = subject.data_type.components()?.iter().map(|component| component.width).max()?;
    if subject.is_big() && width > 1 {
        remarks.push("big-endian: swap with __builtin_bswap".to_owned());
    }
    let remark = if remarks.is_empty() { String::new() } else { format!(" /* {} */", remarks.join("; ")) };
    let mut inner: String = axes.iter().skip(1).map(|length| format!("[{length}]")).collect();
    if parts > 1 {
        inner.push_str(&format!("[{parts}]"));
    }
    let pointer = if inner.is_empty() { "*x".to_owned() } else { format!("(*x){inner}") };
    let file = quote(subject.file);
    Some(format!(
        "const {declared} {pointer}=mmap(0,{bytes},PROT_READ,MAP_PRIVATE,open({file},O_RDONLY),0);{remark}"
    ))
}

fn integer(bytes: usize, is_signed: bool) -> &'static str {
    match (bytes, is_signed) {
        (1, true) => "int8_t",
        (2, true) => "int16_t",
        (4, true) => "int32_t",
        (_, true) => "int64_t",
        (1, false) => "uint8_t",
        (2, false) => "uint16_t",
        (4, false) => "uint32_t",
        (_, false) => "uint64_t",
    }
}

/// Quotes a text for C. Control characters have three octal digits, so that a digit after them stays apart; `??` would
/// be a trigraph.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' | '?' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                for byte in control.to_string().bytes() {
                    quoted.push_str(&format!("\\{byte:03o}"));
                }
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
