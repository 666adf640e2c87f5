//! Fortran: stream access. The first index is the fastest, so the axes stay as the file has them: x(lon,lat,time).

use super::subject::{SnippetElement, SnippetSubject, list};

/// The most dimensions that a Fortran array has (Fortran 2008).
const MAX_RANK: usize = 15;
/// Lines of free form may have 132 characters; names are cut well below.
const NAME_PART_CHARACTERS: usize = 60;

/// ```text
/// use iso_fortran_env
/// real(real32),allocatable::x(:,:,:)
/// allocate(x(360,180,12))
/// open(10,file='temp',access='stream',form='unformatted',convert='little_endian',status='old',action='read')
/// read(10) x
/// close(10)
/// ```
/// The `use` line opens the program unit. `convert=` is understood by every compiler in use.
pub fn snippet(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    // Fortran ignores spaces at the end of a file's name.
    if subject.file.ends_with(' ') {
        return None;
    }
    let (declared, parts, remark) = match element {
        SnippetElement::Bool => ("integer(int8)", 1, "0 or 1"),
        SnippetElement::Int(bytes) => (integer(bytes), 1, ""),
        SnippetElement::UInt(bytes) => (integer(bytes), 1, "unsigned, which Fortran does not have"),
        SnippetElement::Float(4) => ("real(real32)", 1, ""),
        SnippetElement::Float(8) => ("real(real64)", 1, ""),
        SnippetElement::Float(_) => ("integer(int16)", 1, "the bits of 16-bit floats"),
        SnippetElement::BFloat16 => ("integer(int16)", 1, "the upper halves of 32-bit floats"),
        SnippetElement::SmallFloat(_) => ("integer(int8)", 1, "the bits of 8-bit floats"),
        SnippetElement::Complex(4) => ("complex(real32)", 1, ""),
        SnippetElement::Complex(_) => ("complex(real64)", 1, ""),
        SnippetElement::Text(bytes) | SnippetElement::Bytes(bytes) => {
            ("character", bytes, "the bytes of each element first")
        }
        SnippetElement::Utf32(points) => ("integer(int32)", points, "the code points of each element first"),
    };
    let mut axes = subject.fastest_first();
    if parts > 1 {
        axes.insert(0, parts as u64);
    }
    if axes.len() > MAX_RANK {
        return Some(format!("! Fortran has no arrays of more than {MAX_RANK} dimensions"));
    }
    let remark = if remark.is_empty() { String::new() } else { format!(" ! {remark}") };
    let declaration = if axes.is_empty() {
        format!("{declared}::x{remark}")
    } else {
        let colons = vec![":"; axes.len()].join(",");
        format!("{declared},allocatable::x({colons}){remark}\nallocate(x({}))", list(&axes, ","))
    };
    let order = if subject.is_big() { "big_endian" } else { "little_endian" };
    Some(format!(
        "use iso_fortran_env\n{declaration}\nopen(10,file={},&\n access='stream',form='unformatted',convert='{order}',status='old',action='read')\nread(10) x\nclose(10)",
        quote(subject.file)
    ))
}

fn integer(bytes: usize) -> &'static str {
    match bytes {
        1 => "integer(int8)",
        2 => "integer(int16)",
        4 => "integer(int32)",
        _ => "integer(int64)",
    }
}

/// Quotes a text for Fortran, in parts that fit into lines. There are no escapes, so control characters are written by number.
fn quote(text: &str) -> String {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut length = 0;
    let end = |part: &mut String, parts: &mut Vec<String>| {
        if !part.is_empty() {
            parts.push(format!("'{}'", std::mem::take(part)));
        }
    };
    for character in text.chars() {
        match character {
            '\'' => part.push_str("''"),
            control if control.is_control() => {
                end(&mut part, &mut parts);
                parts.push(format!("char({})", u32::from(control)));
            }
            other => part.push(other),
        }
        length += 1;
        if length % NAME_PART_CHARACTERS == 0 {
            end(&mut part, &mut parts);
        }
    }
    end(&mut part, &mut parts);
    parts.join("//&\n ")
}
