//! Thrift's compact protocol, in which Parquet writes its headers. Uses nothing.
//!
//! Invariant: no number in the text decides an allocation; each element takes at least one byte of the text.

/// The deepest nesting of structures.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Field>),
    Structure(Structure),
}

/// Values by field number.
#[derive(Clone, Debug, Default)]
pub(super) struct Structure(Vec<(i16, Field)>);

impl Field {
    pub(super) fn structure(&self) -> Option<&Structure> {
        if let Field::Structure(structure) = self { Some(structure) } else { None }
    }
}

impl Structure {
    fn get(&self, id: i16) -> Option<&Field> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, field)| field)
    }

    pub(super) fn number(&self, id: i16) -> Option<i64> {
        if let Some(Field::Number(number)) = self.get(id) { Some(*number) } else { None }
    }

    pub(super) fn bytes(&self, id: i16) -> Option<&[u8]> {
        if let Some(Field::Bytes(bytes)) = self.get(id) { Some(bytes) } else { None }
    }

    pub(super) fn list(&self, id: i16) -> Option<&[Field]> {
        if let Some(Field::List(list)) = self.get(id) { Some(list) } else { None }
    }

    pub(super) fn structure(&self, id: i16) -> Option<&Structure> {
        self.get(id)?.structure()
    }
}

/// Parses the structure at the beginning of a text, and returns it with its length.
pub(super) fn parse(text: &[u8]) -> Result<(Structure, usize), String> {
    let mut reader = Reader { left: text };
    let structure = reader.structure(0).ok_or("has a header that cannot be read")?;
    Ok((structure, text.len() - reader.left.len()))
}

/// Reads a LEB128 number, and returns it with the bytes after it.
pub(super) fn varint(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (at, byte) in text.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some((number, text.get(at + 1..)?));
        }
    }
    None
}

struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(count)?;
        self.left = left;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn unsigned(&mut self) -> Option<u64> {
        let (number, left) = varint(self.left)?;
        self.left = left;
        Some(number)
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.unsigned()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn structure(&mut self, depth: usize) -> Option<Structure> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut fields = Vec::new();
        let mut id = 0i16;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == 0 {
                return Some(Structure(fields));
            }
            id = match head >> 4 {
                0 => i16::try_from(self.signed()?).ok()?,
                delta => id.checked_add(i16::from(delta))?,
            };
            let value = match kind {
                1 => Field::Number(1),
                2 => Field::Number(0),
                kind => self.value(kind, depth)?,
            };
            fields.push((id, value));
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Option<Field> {
        Some(match kind {
            1..=3 => Field::Number(i64::from(self.byte()?)),
            4..=6 => Field::Number(self.signed()?),
            7 => {
                self.take(8)?;
                Field::Number(0)
            }
            8 => {
                let length = usize::try_from(self.unsigned()?).ok()?;
                Field::Bytes(self.take(length)?.to_vec())
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.unsigned()?,
                    count => u64::from(count),
                };
                let mut list = Vec::new();
                for _ in 0..count {
                    list.push(match head & 0x0f {
                        0 => return None,
                        kind => self.value(kind, depth + 1)?,
                    });
                }
                Field::List(list)
            }
            12 => Field::Structure(self.structure(depth + 1)?),
            _ => return None,
        })
    }
}
