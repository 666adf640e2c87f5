//! Julia: read!, then the axes are reversed, because Julia's first axis is the fastest.

use super::subject::{SnippetElement, SnippetSubject, list, reversal};

/// ```text
/// x=open(f->read!(f,Array{Float32}(undef,360,180,12)),"temp");x=permutedims(ltoh.(x),(3,2,1))
/// ```
/// Text and structs come as their bytes, along a last axis of their own.
pub fn snippet(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    let swap = if subject.is_big() { "ntoh" } else { "ltoh" };
    let swapped = || format!("x={swap}.(x)");
    let (name, parts, convert) = match element {
        SnippetElement::Bool => ("Bool", 1, String::new()),
        SnippetElement::Int(1) => ("Int8", 1, String::new()),
        SnippetElement::Int(2) => ("Int16", 1, swapped()),
        SnippetElement::Int(4) => ("Int32", 1, swapped()),
        SnippetElement::Int(_) => ("Int64", 1, swapped()),
        SnippetElement::UInt(1) | SnippetElement::SmallFloat(_) => ("UInt8", 1, String::new()),
        SnippetElement::UInt(2) => ("UInt16", 1, swapped()),
        SnippetElement::UInt(4) => ("UInt32", 1, swapped()),
        SnippetElement::UInt(_) => ("UInt64", 1, swapped()),
        SnippetElement::Float(2) => ("Float16", 1, swapped()),
        SnippetElement::Float(4) => ("Float32", 1, swapped()),
        SnippetElement::Float(_) => ("Float64", 1, swapped()),
        SnippetElement::BFloat16 => {
            ("UInt16", 1, format!("x=reinterpret.(Float32,UInt32.({swap}.(x)).<<16)"))
        }
        SnippetElement::Complex(bytes) => {
            let name = if bytes == 4 { "ComplexF32" } else { "ComplexF64" };
            (name, 1, format!("x=complex.({swap}.(real.(x)),{swap}.(imag.(x)))"))
        }
        SnippetElement::Text(bytes) | SnippetElement::Bytes(bytes) => ("UInt8", bytes, String::new()),
        SnippetElement::Utf32(points) => ("UInt32", points, swapped()),
    };
    let mut axes = subject.fastest_first();
    let has_part_axis = parts > 1;
    if has_part_axis {
        axes.insert(0, parts as u64);
    }
    let declared = if axes.is_empty() { "undef".to_owned() } else { format!("undef,{}", list(&axes, ",")) };
    let mut snippet = format!("x=open(f->read!(f,Array{{{name}}}({declared})),{})", quote(subject.file));
    if !convert.is_empty() {
        snippet.push(';');
        snippet.push_str(&convert);
    }
    let permutation: Option<Vec<u64>> = match (subject.is_fortran(), has_part_axis) {
        _ if axes.len() < 2 => None,
        (true, false) => None,
        (false, _) => Some(reversal(axes.len())),
        (true, true) => Some((2..=axes.len() as u64).chain([1]).collect()),
    };
    if let Some(permutation) = permutation {
        snippet.push_str(&format!(";x=permutedims(x,({}))", list(&permutation, ",")));
    }
    Some(snippet)
}

/// Quotes a text for Julia.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' | '$' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
