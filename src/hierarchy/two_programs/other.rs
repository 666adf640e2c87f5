//! The second program. It appends as zarr-python does, writes its own elements, creates the array anew with another data type, and deletes
//! it. It takes no lock and sends no condition, but each of its acts is one request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::metadata::author::with_shape;
use crate::store::scripted::{Objects, Program};

/// Elements of a chunk.
pub const CHUNK: u64 = 4;
/// The longest array, except after the last growth.
pub const MAX_LENGTH: u64 = 28;
/// The length of an array that the second program creates anew.
pub const NEW_LENGTH: u64 = 3 * CHUNK - 1;
pub const FILL: i32 = -1;
/// The elements that earlier, longer arrays have left after the end.
pub const JUNK: i32 = 0x5555;
/// `<i4`, `>i4`, `<f4`.
pub const KINDS: usize = 3;
pub const DOCUMENT: &str = "a/zarr.json";

/// The bytes of an element in the store.
pub type Word = [u8; 4];

/// What the store may have at an element.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What was acknowledged last; `None` is the fill value, in the data type of the array.
    pub is: Option<Word>,
    /// What was written since then, and not acknowledged.
    pub maybe: Vec<Word>,
    /// When the second program wrote it last.
    pub at: u64,
}

/// An act of the second program.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Makes the array this many elements longer. Their chunks are written later.
    Append(u64),
    /// As `Append`, with elements that have the fill value.
    AppendFill(u64),
    /// Writes one chunk of the elements that it has appended.
    WriteOn,
    /// Overwrites its elements of a chunk, which are those with odd numbers.
    Overwrite(u64),
    /// Replaces the document by one with another attribute.
    Attribute,
    /// Replaces the array by a new one of this data type.
    Recreate(usize),
    /// Deletes the array.
    Delete,
}

/// The second program, and what both programs know to be stored.
#[derive(Debug, Default)]
pub struct Other {
    /// What the store may have, by element.
    pub known: BTreeMap<u64, Known>,
    /// The elements that it has appended and not written yet.
    pub unwritten: BTreeMap<u64, Word>,
    number: i32,
    /// How many acts it has done.
    pub clock: u64,
    /// How often the array was deleted or created anew.
    pub remade: u64,
    attribute: i32,
}

/// Returns the key of a chunk.
pub fn key(chunk: u64) -> String {
    format!("a/c/{chunk}")
}

/// Returns a number as it is stored.
pub fn word(kind: usize, number: i32) -> Word {
    match kind {
        0 => number.to_le_bytes(),
        1 => number.to_be_bytes(),
        _ => (number as f32).to_le_bytes(),
    }
}

/// Returns an element of a chunk, which may be missing.
pub fn word_of(chunk: Option<&[u8]>, element: u64, kind: usize) -> Word {
    let at = (element % CHUNK) as usize * 4;
    chunk.map_or(word(kind, FILL), |chunk| chunk[at..at + 4].try_into().unwrap())
}

/// Returns the data type and the length in a document.
pub fn described(document: &[u8]) -> (usize, u64) {
    let document: Value = serde_json::from_slice(document).unwrap();
    let is_big = document["codecs"][0]["configuration"]["endian"] == "big";
    let kind = if document["data_type"] == "float32" { 2 } else { usize::from(is_big) };
    (kind, document["shape"][0].as_u64().unwrap())
}

/// Returns the data type and the length of the array, if there is one.
pub fn array(objects: &Objects) -> Option<(usize, u64)> {
    objects.get(DOCUMENT).map(described)
}

impl Known {
    /// Returns whether the element may have this value in an array of this data type.
    pub fn allows(&self, kind: usize, now: Word) -> bool {
        now == self.is.unwrap_or(word(kind, FILL)) || self.maybe.contains(&now)
    }
}

impl Other {
    /// Returns a number that was not written yet.
    pub fn number(&mut self) -> i32 {
        self.number += 1;
        self.number
    }

    fn is_in_hand(&self, element: u64) -> bool {
        self.unwritten.contains_key(&element)
    }

    /// Writes elements into a chunk.
    fn write(&mut self, objects: &mut Objects, kind: usize, chunk: u64, elements: &[(u64, Word)]) {
        let mut bytes = objects.get(&key(chunk)).map_or(word(kind, FILL).repeat(4), <[u8]>::to_vec);
        for (element, word) in elements {
            let at = (element % CHUNK) as usize * 4;
            bytes[at..at + 4].copy_from_slice(word);
            self.unwritten.remove(element);
            self.known.insert(*element, Known { is: Some(*word), maybe: Vec::new(), at: self.clock });
        }
        if bytes == word(kind, FILL).repeat(4) {
            objects.delete(&key(chunk));
        } else {
            objects.put(&key(chunk), bytes);
        }
    }

    /// Creates the array.
    pub fn make(&mut self, objects: &mut Objects, kind: usize, length: u64) {
        self.delete(objects);
        let data_type = if kind == 2 { "float32" } else { "int32" };
        let endian = if kind == 1 { "big" } else { "little" };
        self.attribute = self.number();
        let document = json!({"zarr_format": 3, "node_type": "array", "shape": [length], "data_type": data_type,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": FILL,
            "codecs": [{"name": "bytes", "configuration": {"endian": endian}}], "attributes": {"n": self.attribute}});
        objects.put(DOCUMENT, document.to_string().into_bytes());
        for chunk in 0..length.div_ceil(CHUNK) {
            let elements = chunk * CHUNK..length.min((chunk + 1) * CHUNK);
            let words: Vec<_> = elements
                .map(|element| (element, word(kind, if chunk == 1 { FILL } else { self.number() })))
                .collect();
            self.write(objects, kind, chunk, &words);
        }
    }

    fn delete(&mut self, objects: &mut Objects) {
        objects.delete(DOCUMENT);
        objects.keys("a/").iter().for_each(|key| objects.delete(key));
        self.known.clear();
        self.unwritten.clear();
        self.remade += 1;
    }

    fn append(&mut self, objects: &mut Objects, more: u64, is_fill: bool) {
        let Some((kind, length)) = array(objects).filter(|(_, length)| length + more <= MAX_LENGTH) else {
            return;
        };
        let text = String::from_utf8(objects.get(DOCUMENT).unwrap().to_vec()).unwrap();
        objects.put(DOCUMENT, with_shape(&text, &[length + more]).unwrap().into_bytes());
        for element in length..length + more {
            let number = if is_fill { FILL } else { self.number() };
            self.known.remove(&element);
            self.unwritten.insert(element, word(kind, number));
        }
    }

    fn edit(&mut self, objects: &mut Objects) {
        self.attribute = self.number();
        let mut document: Value = serde_json::from_slice(objects.get(DOCUMENT).unwrap()).unwrap();
        document["attributes"]["n"] = json!(self.attribute);
        objects.put(DOCUMENT, document.to_string().into_bytes());
    }

    /// Returns whether the document has the attribute that it wrote last.
    pub fn has_attribute(&self, objects: &Objects) -> bool {
        let document: Value = serde_json::from_slice(objects.get(DOCUMENT).unwrap()).unwrap();
        document["attributes"]["n"] == json!(self.attribute)
    }
}

impl Program for Other {
    type Act = Act;

    fn act(&mut self, objects: &mut Objects, act: Act) {
        self.clock += 1;
        let Some((kind, length)) = array(objects) else {
            if let Act::Recreate(kind) = act {
                self.make(objects, kind, NEW_LENGTH);
            }
            return;
        };
        match act {
            Act::Append(more) => self.append(objects, more, false),
            Act::AppendFill(more) => self.append(objects, more, true),
            Act::WriteOn => {
                let Some(chunk) = self.unwritten.keys().next().map(|element| element / CHUNK) else { return };
                let elements = chunk * CHUNK..(chunk + 1) * CHUNK;
                let words: Vec<_> = self.unwritten.range(elements).map(|(at, word)| (*at, *word)).collect();
                self.write(objects, kind, chunk, &words);
            }
            Act::Overwrite(chunk) => {
                let chunk = chunk % length.div_ceil(CHUNK).max(1);
                let own = (chunk * CHUNK..length.min((chunk + 1) * CHUNK)).filter(|at| at % 2 == 1);
                let own: Vec<u64> = own.filter(|element| !self.is_in_hand(*element)).collect();
                let words: Vec<_> =
                    own.into_iter().map(|element| (element, word(kind, self.number()))).collect();
                self.write(objects, kind, chunk, &words);
            }
            Act::Attribute => self.edit(objects),
            Act::Recreate(kind) => self.make(objects, kind, NEW_LENGTH),
            Act::Delete => self.delete(objects),
        }
    }
}
