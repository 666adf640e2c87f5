//! The reader of the header of an .npy file: its type, order and shape.
//!
//! Spec: numpy.lib.format, versions 1.0 to 3.0. The dictionary is a Python literal. Uses `error` only.

use std::io::{self, Read};

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The longest header that is read. NumPy's default is 10,000 bytes.
const MAX_HEADER_BYTES: usize = 1 << 20;
/// The deepest nesting of a type.
const MAX_DEPTH: usize = 16;
const MAGIC: &[u8] = b"\x93NUMPY";

/// The header of an .npy file.
#[derive(Clone, Debug, PartialEq)]
pub struct NpyHeader {
    /// NumPy's description of the type, as JSON.
    pub descr: Value,
    /// Whether the first index varies fastest.
    pub is_fortran_order: bool,
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// The size of the header with the bytes before it.
    pub size_bytes: u64,
}

/// Reads the header, so that `file` is at the first element. Errors name the file `name`.
pub fn read_header(file: &mut dyn Read, name: &str) -> Result<NpyHeader> {
    let refused = |reason: &str| Error::Usage(format!("{name}: not an .npy file that can be read: {reason}"));
    let cannot_read = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => refused("it ends in the header"),
        _ => Error::store(name, "read", error),
    };
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(cannot_read)?;
    if !start.starts_with(MAGIC) {
        return Err(refused("it does not begin like one; with --shape and --dtype, raw elements are read"));
    }
    let mut length = [0; 4];
    let length_bytes = if start[6] == 1 { 2 } else { 4 };
    if !(1..=3).contains(&start[6]) {
        return Err(refused("its version is unknown"));
    }
    file.read_exact(&mut length[..length_bytes]).map_err(cannot_read)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER_BYTES {
        return Err(refused("its header is too long"));
    }
    let mut text = vec![0; length];
    file.read_exact(&mut text).map_err(cannot_read)?;
    let text = match start[6] {
        3 => String::from_utf8(text).map_err(|_| refused("its header is not UTF-8"))?,
        _ => text.into_iter().map(char::from).collect(),
    };
    let size_bytes = (start.len() + length_bytes + length) as u64;
    header(&text, size_bytes).ok_or_else(|| refused("its header is not valid"))
}

fn header(text: &str, size_bytes: u64) -> Option<NpyHeader> {
    let mut literal = Literal { text: text.trim(), depth: 0 };
    let Value::Object(mut members) = literal.value()? else { return None };
    if !literal.text.trim().is_empty() {
        return None;
    }
    let shape = members.get("shape")?.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
    let is_fortran_order = members.get("fortran_order")?.as_bool()?;
    Some(NpyHeader { descr: members.remove("descr")?, is_fortran_order, shape, size_bytes })
}

/// A cursor over a Python literal. Tuples become lists.
struct Literal<'t> {
    text: &'t str,
    depth: usize,
}

impl Literal<'_> {
    fn take(&mut self, token: &str) -> bool {
        self.text = self.text.trim_start();
        let rest = self.text.strip_prefix(token);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    fn value(&mut self) -> Option<Value> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = self.any();
        self.depth -= 1;
        value
    }

    fn any(&mut self) -> Option<Value> {
        for (word, value) in
            [("True", Value::Bool(true)), ("False", Value::Bool(false)), ("None", Value::Null)]
        {
            if self.take(word) {
                return Some(value);
            }
        }
        if self.take("{") {
            let mut members = Map::new();
            while !self.take("}") {
                let Value::String(name) = self.value()? else { return None };
                if !self.take(":") {
                    return None;
                }
                members.insert(name, self.value()?);
                if !self.take(",") && !self.text.trim_start().starts_with('}') {
                    return None;
                }
            }
            return Some(Value::Object(members));
        }
        for (open, close) in [("(", ")"), ("[", "]")] {
            if self.take(open) {
                let mut items = Vec::new();
                while !self.take(close) {
                    items.push(self.value()?);
                    if !self.take(",") && !self.text.trim_start().starts_with(close) {
                        return None;
                    }
                }
                return Some(Value::Array(items));
            }
        }
        for quote in ['\'', '"'] {
            if self.take(&quote.to_string()) {
                return self.string(quote).map(Value::String);
            }
        }
        self.number()
    }

    fn number(&mut self) -> Option<Value> {
        let text = self.text.trim_start();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at_checked(end)?;
        // Python 2 wrote long integers so.
        self.text = rest.strip_prefix('L').unwrap_or(rest);
        digits.parse::<u64>().ok().map(Value::from)
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let mut string = String::new();
        let mut characters = self.text.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                _ if character == quote => {
                    self.text = self.text.get(at + 1..)?;
                    return Some(string);
                }
                '\\' => {
                    let (_, escaped) = characters.next()?;
                    let digits = match escaped {
                        'x' => 2,
                        'u' => 4,
                        'U' => 8,
                        '\'' | '"' | '\\' => {
                            string.push(escaped);
                            continue;
                        }
                        _ => return None,
                    };
                    let code: String = characters.by_ref().take(digits).map(|(_, digit)| digit).collect();
                    string.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
                }
                plain => string.push(plain),
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend([version, 0]);
        let length = text.len() as u32;
        file.extend(&length.to_le_bytes()[..if version == 1 { 2 } else { 4 }]);
        file.extend(text.as_bytes());
        file
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        for (version, text, descr, order, shape) in [
            (
                1,
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n",
                json!("<f4"),
                false,
                vec![3, 4],
            ),
            (1, "{'shape': (5,), 'descr': '|b1', 'fortran_order': True}", json!("|b1"), true, vec![5]),
            (2, "{'descr': '>i8', 'fortran_order': False, 'shape': (), }", json!(">i8"), false, vec![]),
            (
                3,
                "{'descr': [('a\\'é', '<i2'), (\"b\", '<f8', (2, 2))], 'fortran_order': False, 'shape': (7L,), }",
                json!([["a'é", "<i2"], ["b", "<f8", [2, 2]]]),
                false,
                vec![7],
            ),
        ] {
            let file = file(version, text);
            let header = read_header(&mut file.as_slice(), "a.npy").unwrap();
            let size_bytes = file.len() as u64;
            assert_eq!(header, NpyHeader { descr, is_fortran_order: order, shape, size_bytes });
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let deep = format!("{{'descr': {}", "[".repeat(100_000));
        for file in [
            b"".to_vec(),
            b"\x93NUMPY\x01\x00\xff\xff{".to_vec(),
            b"PK\x03\x04 and more".to_vec(),
            file(4, "{}"),
            file(1, "{'descr': '<f4'}"),
            file(1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (-1,)}"),
            file(1, "{'descr': '<f4' 'fortran_order': False, 'shape': ()}"),
            file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x"),
            file(2, &deep),
        ] {
            assert!(matches!(read_header(&mut file.as_slice(), "a.npy"), Err(Error::Usage(_))));
        }
    }
}
