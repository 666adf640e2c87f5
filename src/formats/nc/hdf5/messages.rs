//! The messages of object headers, apart from datatypes. Each function makes one.
//!
//! Spec: HDF5 File Format Specification 3.0, sections of IV.A.2. Uses its neighbours.

use super::UNDEFINED_ADDRESS;

/// A message of an object header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMessage {
    /// Its type.
    pub kind: u8,
    /// Whether writers must not change it.
    pub is_constant: bool,
    /// Its index among the attributes; 0 for other messages.
    pub creation_order: u16,
    /// Its body.
    pub body: Vec<u8>,
}

/// The longest body.
pub const MAX_BODY_BYTES: usize = u16::MAX as usize;

/// The shape of a dataset or an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dataspace {
    /// One element.
    Scalar,
    /// Elements along axes, slowest axis first.
    Simple(Vec<u64>),
    /// No element.
    Null,
}

impl Dataspace {
    /// Returns the space of an array.
    pub fn from_shape(shape: &[u64]) -> Self {
        if shape.is_empty() { Dataspace::Scalar } else { Dataspace::Simple(shape.to_vec()) }
    }
}

impl HeaderMessage {
    fn new(kind: u8, body: Vec<u8>) -> Self {
        HeaderMessage { kind, is_constant: false, creation_order: 0, body }
    }

    fn constant(kind: u8, body: Vec<u8>) -> Self {
        HeaderMessage { is_constant: true, ..HeaderMessage::new(kind, body) }
    }
}

/// Returns the body of a dataspace message (section IV.A.2.b, version 2).
fn dataspace_body(dataspace: &Dataspace) -> Vec<u8> {
    const VERSION: u8 = 2;
    let (kind, shape) = match dataspace {
        Dataspace::Scalar => (0, &[][..]),
        Dataspace::Simple(shape) => (1, shape.as_slice()),
        Dataspace::Null => (2, &[][..]),
    };
    let without_maximum = 0;
    let mut body = vec![VERSION, shape.len() as u8, without_maximum, kind];
    for length in shape {
        body.extend(length.to_le_bytes());
    }
    body
}

/// Makes the message "Dataspace" (section IV.A.2.b).
pub fn dataspace(dataspace: &Dataspace) -> HeaderMessage {
    HeaderMessage::new(0x01, dataspace_body(dataspace))
}

/// Makes the message "Link Info" (section IV.A.2.c) of a group with this many links, all in messages of its header.
pub fn link_info(links: u64) -> HeaderMessage {
    const VERSION: u8 = 0;
    const CREATION_ORDER_IS_TRACKED: u8 = 0b1;
    let mut body = vec![VERSION, CREATION_ORDER_IS_TRACKED];
    let (heap, name_index) = (UNDEFINED_ADDRESS, UNDEFINED_ADDRESS);
    for number in [links, heap, name_index] {
        body.extend(number.to_le_bytes());
    }
    HeaderMessage::new(0x02, body)
}

/// Makes the message "Datatype" (section IV.A.2.d).
pub fn datatype(datatype: &[u8]) -> HeaderMessage {
    HeaderMessage::constant(0x03, datatype.to_vec())
}

/// The time at which a dataset gets its space in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// At once: the dataset has its space.
    Early = 1,
    /// Later: all elements are the fill value.
    Late = 2,
}

/// Makes the message "Fill Value" (section IV.A.2.f, version 3) with the bytes of one element. Without them the fill value is the library's
/// own, which netCDF ignores.
pub fn fill_value(allocation: Allocation, fill: Option<&[u8]>) -> HeaderMessage {
    const VERSION: u8 = 3;
    const WRITTEN_IF_SET: u8 = 2 << 2;
    const DEFINED: u8 = 1 << 5;
    let flags = allocation as u8 | WRITTEN_IF_SET;
    let body = match fill {
        None => vec![VERSION, flags],
        Some(fill) => {
            let mut body = vec![VERSION, flags | DEFINED];
            body.extend((fill.len() as u32).to_le_bytes());
            body.extend(fill);
            body
        }
    };
    HeaderMessage::constant(0x05, body)
}

/// Where a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTarget<'a> {
    /// To the object with its header at an address: a hard link.
    Address(u64),
    /// To a path of at most 65,535 bytes in the file: a soft link.
    Path(&'a str),
}

/// Makes the message "Link" (section IV.A.2.g) with a name of at most 65,535 bytes.
pub fn link(name: &str, creation_order: u64, target: LinkTarget<'_>) -> HeaderMessage {
    const VERSION: u8 = 1;
    const LENGTH_HAS_2_BYTES: u8 = 0b1;
    const HAS_CREATION_ORDER: u8 = 0b100;
    const HAS_TYPE: u8 = 0b1000;
    const HAS_CHARACTER_SET: u8 = 0b1_0000;
    const UTF_8: u8 = 1;
    const SOFT: u8 = 1;
    let flags = LENGTH_HAS_2_BYTES | HAS_CREATION_ORDER | HAS_CHARACTER_SET;
    let mut body = match target {
        LinkTarget::Address(_) => vec![VERSION, flags],
        LinkTarget::Path(_) => vec![VERSION, flags | HAS_TYPE, SOFT],
    };
    body.extend(creation_order.to_le_bytes());
    body.push(UTF_8);
    body.extend((name.len() as u16).to_le_bytes());
    body.extend(name.as_bytes());
    match target {
        LinkTarget::Address(address) => body.extend(address.to_le_bytes()),
        LinkTarget::Path(path) => {
            body.extend((path.len() as u16).to_le_bytes());
            body.extend(path.as_bytes());
        }
    }
    HeaderMessage::new(0x06, body)
}

/// Makes the message "Data Layout" (section IV.A.2.i, version 3): all elements one after the other at an address.
pub fn contiguous_layout(address: u64, size_bytes: u64) -> HeaderMessage {
    const VERSION: u8 = 3;
    const CONTIGUOUS: u8 = 1;
    let mut body = vec![VERSION, CONTIGUOUS];
    body.extend(address.to_le_bytes());
    body.extend(size_bytes.to_le_bytes());
    HeaderMessage::new(0x08, body)
}

/// Makes the message "Group Info" (section IV.A.2.k) without optional fields.
pub fn group_info() -> HeaderMessage {
    let (version, flags) = (0, 0);
    HeaderMessage::constant(0x0a, vec![version, flags])
}

/// Makes the message "Attribute" (section IV.A.2.m, version 3); `None` if it would be too long for a message.
pub fn attribute(
    name: &str,
    creation_order: u16,
    datatype: &[u8],
    dataspace: &Dataspace,
    data: &[u8],
) -> Option<HeaderMessage> {
    const VERSION: u8 = 3;
    const UTF_8: u8 = 1;
    let (nothing_is_shared, space) = (0, dataspace_body(dataspace));
    let mut body = vec![VERSION, nothing_is_shared];
    for length in [name.len().checked_add(1)?, datatype.len(), space.len()] {
        body.extend(u16::try_from(length).ok()?.to_le_bytes());
    }
    body.push(UTF_8);
    body.extend(name.as_bytes());
    body.push(0);
    body.extend(datatype);
    body.extend(space);
    body.extend(data);
    (body.len() <= MAX_BODY_BYTES)
        .then_some(HeaderMessage { creation_order, ..HeaderMessage::new(0x0c, body) })
}

/// Makes the message "Attribute Info" (section IV.A.2.v) of an object with this many attributes, all in messages of its header.
pub fn attribute_info(attributes: u16) -> HeaderMessage {
    const VERSION: u8 = 0;
    const CREATION_ORDER_IS_TRACKED: u8 = 0b1;
    let mut body = vec![VERSION, CREATION_ORDER_IS_TRACKED];
    body.extend(attributes.to_le_bytes());
    let (heap, name_index) = (UNDEFINED_ADDRESS, UNDEFINED_ADDRESS);
    for address in [heap, name_index] {
        body.extend(address.to_le_bytes());
    }
    HeaderMessage::new(0x15, body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn spaces() {
        assert_eq!(dataspace(&Dataspace::from_shape(&[])).body, [2, 0, 0, 0]);
        assert_eq!(dataspace(&Dataspace::Null).body, [2, 0, 0, 2]);
        assert_eq!(dataspace(&Dataspace::from_shape(&[3])).body, [2, 1, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn an_attribute_is_bounded() {
        let longest = MAX_BODY_BYTES - (9 + 2 + 1 + 4);
        assert!(attribute("a", 0, &[0], &Dataspace::Scalar, &vec![0; longest]).is_some());
        assert!(attribute("a", 0, &[0], &Dataspace::Scalar, &vec![0; longest + 1]).is_none());
        let body = attribute("ab", 7, &[1], &Dataspace::Scalar, &[5]).unwrap();
        assert_eq!((body.creation_order, body.kind), (7, 12));
        assert_eq!(body.body, [3, 0, 3, 0, 1, 0, 4, 0, 1, b'a', b'b', 0, 1, 2, 0, 0, 0, 5]);
    }

    #[test]
    fn fills() {
        assert_eq!(fill_value(Allocation::Early, None).body, [3, 0x09]);
        assert_eq!(fill_value(Allocation::Late, Some(&[7, 8])).body, [3, 0x2a, 2, 0, 0, 0, 7, 8]);
    }
}
