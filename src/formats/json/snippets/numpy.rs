//! NumPy: a memory map; an empty array cannot be mapped and is read instead.

use serde_json::Value;

use super::subject::{SnippetElement, SnippetSubject, list};

/// ```text
/// np.memmap('temp',dtype='<f4',mode='r',shape=(12,180,360))
/// ```
pub fn snippet(subject: &SnippetSubject<'_>, element: SnippetElement) -> Option<String> {
    let file = quote(subject.file);
    let dtype = match element {
        SnippetElement::BFloat16 if subject.is_big() => "'>u2'".to_owned(),
        SnippetElement::BFloat16 => "'<u2'".to_owned(),
        SnippetElement::SmallFloat(_) => "'u1'".to_owned(),
        _ => literal(subject.descr),
    };
    let shape = match subject.shape {
        [only] => format!("({only},)"),
        shape => format!("({})", list(shape, ",")),
    };
    let order = if subject.is_fortran() { ",order='F'" } else { "" };
    let array = if subject.is_empty() {
        format!("np.fromfile({file},dtype={dtype}).reshape({shape}{order})")
    } else {
        format!("np.memmap({file},dtype={dtype},mode='r',shape={shape}{order})")
    };
    Some(match element {
        // The upper half of a float32.
        SnippetElement::BFloat16 => format!("({array}.astype('u4')<<16).view('f4')"),
        SnippetElement::SmallFloat(name) => format!("{array}.view(ml_dtypes.{name})  # import ml_dtypes"),
        _ => array,
    })
}

/// Returns a descr as a Python literal, with fields as tuples.
fn literal(descr: &Value) -> String {
    match descr {
        Value::String(text) => quote(text),
        Value::Array(fields) => {
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("[{}]", fields.join(","))
        }
        other => other.to_string(),
    }
}

fn field(field: &Value) -> String {
    let Value::Array(parts) = field else { return literal(field) };
    let parts: Vec<String> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| match part {
            Value::Array(lengths) if index == 2 => {
                format!("({},)", lengths.iter().map(Value::to_string).collect::<Vec<_>>().join(","))
            }
            part => literal(part),
        })
        .collect();
    format!("({})", parts.join(","))
}

/// Quotes a text for Python.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("'");
    for character in text.chars() {
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}
