//! MATLAB and Octave: fread, then the axes are reversed, because the first axis is the fastest in both. And MATLAB's memmapfile, which Octave
//! does not have.

use super::subject::{SnippetElement, SnippetSubject, list, reversal};

/// ```text
/// f=fopen('temp','r','ieee-le');x=fread(f,Inf,'single=>single');fclose(f);x=permute(reshape(x,[360 180 12]),[3 2 1]);
/// ```
/// Text and structs come as their bytes, along a last axis of their own.
pub fn snippet(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    // What is read, how many of these make an element, and what is done with them.
    let (class, parts, convert) = match element {
        SnippetElement::Bool => ("uint8", 1, "x=logical(x);".to_owned()),
        SnippetElement::Int(bytes) => (integer(bytes, true), 1, String::new()),
        SnippetElement::UInt(bytes) => (integer(bytes, false), 1, String::new()),
        SnippetElement::Float(4) => ("single", 1, String::new()),
        SnippetElement::Float(8) => ("double", 1, String::new()),
        // MATLAB needs a toolbox for half precision, and Octave does not have it.
        SnippetElement::Float(_) => ("uint16", 1, "x=half.typecast(x);".to_owned()),
        SnippetElement::BFloat16 => ("uint16", 1, "x=typecast(bitshift(uint32(x),16),'single');".to_owned()),
        SnippetElement::SmallFloat(_) => ("uint8", 1, String::new()),
        SnippetElement::Complex(4) => ("single", 1, "x=complex(x(1:2:end),x(2:2:end));".to_owned()),
        SnippetElement::Complex(_) => ("double", 1, "x=complex(x(1:2:end),x(2:2:end));".to_owned()),
        SnippetElement::Text(bytes) => ("uint8", bytes, "x=char(x);".to_owned()),
        SnippetElement::Utf32(points) => ("uint32", points, String::new()),
        SnippetElement::Bytes(bytes) => ("uint8", bytes, String::new()),
    };
    let order = if subject.is_big() { "ieee-be" } else { "ieee-le" };
    let file = quote(subject.file);
    let mut snippet =
        format!("f=fopen({file},'r','{order}');x=fread(f,Inf,'{class}=>{class}');fclose(f);{convert}");
    let mut axes = subject.fastest_first();
    let has_part_axis = parts > 1;
    if has_part_axis {
        axes.insert(0, parts as u64);
    }
    match axes.as_slice() {
        // fread returns a column.
        [] => {}
        [_] if !subject.is_empty() => {}
        [length] => snippet.push_str(&format!("x=reshape(x,[{length} 1]);")),
        axes => {
            let reshaped = format!("reshape(x,[{}])", list(axes, " "));
            snippet.push_str(&match permutation(subject, has_part_axis) {
                Some(permutation) => format!("x=permute({reshaped},[{}]);", list(&permutation, " ")),
                None => format!("x={reshaped};"),
            });
        }
    }
    Some(snippet)
}

/// ```text
/// m=memmapfile('temp','Format',{'single',[360 180 12],'x'}); % m.Data.x has the axes reversed
/// ```
/// `m.Data.x` reads only the elements that an index selects. Its axes are those of the file, the fastest first. MATLAB maps numbers in the
/// machine's own byte order, and no empty file.
pub fn mapped(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    let class = match element {
        SnippetElement::Int(bytes) => integer(bytes, true),
        SnippetElement::UInt(bytes) => integer(bytes, false),
        SnippetElement::Float(4) => "single",
        SnippetElement::Float(8) => "double",
        _ => return None,
    };
    if subject.is_empty() || (subject.is_big() && !class.ends_with("int8")) {
        return None;
    }
    let shape = match subject.fastest_first().as_slice() {
        [] => "1 1".to_owned(),
        [length] => format!("{length} 1"),
        axes => list(axes, " "),
    };
    let note =
        if subject.rank() > 1 && !subject.is_fortran() { " % m.Data.x has the axes reversed" } else { "" };
    let file = quote(subject.file);
    Some(format!("m=memmapfile({file},'Format',{{'{class}',[{shape}],'x'}});{note}"))
}

/// Returns the permutation from the axes that were read to Zarr's, with the parts of an element last; `None` if nothing is permuted.
fn permutation(subject: &SnippetSubject<'_>, has_part_axis: bool) -> Option<Vec<u64>> {
    let rank = subject.rank();
    match (subject.is_fortran(), has_part_axis) {
        (true, false) => None,
        (false, _) => Some(reversal(rank + usize::from(has_part_axis))),
        (true, true) => Some((2..=rank as u64 + 1).chain([1]).collect()),
    }
}

fn integer(bytes: usize, is_signed: bool) -> &'static str {
    match (bytes, is_signed) {
        (1, true) => "int8",
        (2, true) => "int16",
        (4, true) => "int32",
        (_, true) => "int64",
        (1, false) => "uint8",
        (2, false) => "uint16",
        (4, false) => "uint32",
        (_, false) => "uint64",
    }
}

/// Quotes a text for both languages. They disagree about escapes, so control characters are written by number.
fn quote(text: &str) -> String {
    if !text.contains(char::is_control) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut quoted = String::from("['");
    for character in text.chars() {
        match character {
            '\'' => quoted.push_str("''"),
            control if control.is_control() => quoted.push_str(&format!("' char({}) '", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push_str("']");
    quoted
}
