//! R: readBin, then the axes are reversed, because R's first axis is the fastest.

use super::subject::{SnippetElement, SnippetSubject, list};

/// ```text
/// x<-readBin("temp","numeric",n=777600,size=4,endian="little");x<-aperm(array(x,c(360,180,12)))
/// ```
/// R's integers have 32 bits: wider ones become doubles, exact up to 2^53. Text comes as strings, structs as
/// their bytes along a last axis of their own.
pub fn snippet(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    let file = quote(subject.file);
    let endian = if subject.is_big() { "big" } else { "little" };
    let count = subject.count();
    let read = |what: &str, n: u64, further: &str| {
        format!("x<-readBin({file},\"{what}\",n={n}{further},endian=\"{endian}\")")
    };
    let integers =
        |per_element: u64, further: &str| read("integer", count.saturating_mul(per_element), further);
    let reading = match element {
        SnippetElement::Bool => format!("{};x<-as.logical(x)", integers(1, ",size=1")),
        SnippetElement::Int(1) => integers(1, ",size=1"),
        SnippetElement::Int(2) => integers(1, ",size=2"),
        SnippetElement::Int(4) => integers(1, ",size=4"),
        SnippetElement::UInt(1) => integers(1, ",size=1,signed=FALSE"),
        SnippetElement::UInt(2) => integers(1, ",size=2,signed=FALSE"),
        SnippetElement::UInt(4) => {
            let halves = integers(2, ",size=2,signed=FALSE");
            format!("{halves};x<-colSums(matrix(x,2)*65536^({}))", powers(subject, 1))
        }
        SnippetElement::UInt(_) => {
            let quarters = integers(4, ",size=2,signed=FALSE");
            format!("{quarters};x<-colSums(matrix(x,4)*65536^({}))", powers(subject, 3))
        }
        SnippetElement::Int(_) => {
            let top = if subject.is_big() { 1 } else { 4 };
            format!(
                "{};x<-matrix(x,4);x[{top},]<-x[{top},]-65536L*(x[{top},]>32767L);x<-colSums(x*65536^({}))",
                integers(4, ",size=2,signed=FALSE"),
                powers(subject, 3)
            )
        }
        SnippetElement::Float(2) | SnippetElement::BFloat16 => {
            format!("# R has no 16-bit floats; their bits:\n{}", integers(1, ",size=2,signed=FALSE"))
        }
        SnippetElement::SmallFloat(_) => {
            format!("# R has no 8-bit floats; their bits:\n{}", integers(1, ",size=1,signed=FALSE"))
        }
        SnippetElement::Float(bytes) => read("numeric", count, &format!(",size={bytes}")),
        SnippetElement::Complex(bytes) => format!(
            "{};x<-matrix(x,2);x<-complex(real=x[1,],imaginary=x[2,])",
            read("numeric", count.saturating_mul(2), &format!(",size={bytes}"))
        ),
        SnippetElement::Text(bytes) => format!(
            "x<-readBin({file},\"raw\",n={});x<-apply(matrix(x,{bytes}),2,function(b)rawToChar(b[b!=0]))",
            count.saturating_mul(bytes as u64)
        ),
        SnippetElement::Utf32(points) => format!(
            "{};x<-apply(matrix(x,{points}),2,function(u)intToUtf8(u[u!=0]))",
            integers(points as u64, ",size=4")
        ),
        SnippetElement::Bytes(bytes) => return Some(raw(subject, &file, bytes as u64)),
    };
    let axes = list(&subject.fastest_first(), ",");
    Some(match (subject.rank(), subject.is_fortran()) {
        (0, _) => reading,
        (1, _) => format!("{reading};x<-array(x,{axes})"),
        (_, true) => format!("{reading};x<-array(x,c({axes}))"),
        (_, false) => format!("{reading};x<-aperm(array(x,c({axes})))"),
    })
}

/// Returns the powers of 65536 that the 16-bit parts of a number stand for, in the order of the file.
fn powers(subject: &SnippetSubject<'_>, most: u32) -> String {
    if subject.is_big() { format!("{most}:0") } else { format!("0:{most}") }
}

fn raw(subject: &SnippetSubject<'_>, file: &str, bytes: u64) -> String {
    let mut axes = subject.fastest_first();
    axes.insert(0, bytes);
    let count = subject.count().saturating_mul(bytes);
    let array = format!("array(readBin({file},\"raw\",n={count}),c({}))", list(&axes, ","));
    if subject.is_fortran() {
        let last = (2..=axes.len() as u64).chain([1]).collect::<Vec<_>>();
        format!("x<-aperm({array},c({}))", list(&last, ","))
    } else {
        format!("x<-aperm({array})")
    }
}

/// Quotes a text for R.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
