//! Object headers, which describe a group or a dataset by a list of messages.
//!
//! Spec: HDF5 File Format Specification 3.0, section IV.A.1.b ("Version 2 Data Object Header Prefix"). Uses its neighbours.

use super::append_checksum;
use super::messages::HeaderMessage;

const SIGNATURE: [u8; 4] = *b"OHDR";
const VERSION: u8 = 2;
const SIZE_HAS_4_BYTES: u8 = 0b10;
const ATTRIBUTE_ORDER_IS_TRACKED: u8 = 0b100;
/// The flag of a constant message.
const CONSTANT: u8 = 0b1;

/// Returns the header of an object with these messages, all in its first chunk; `None` if it exceeds 4 GiB.
pub fn object_header(messages: &[HeaderMessage]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    for message in messages {
        body.push(message.kind);
        body.extend(u16::try_from(message.body.len()).ok()?.to_le_bytes());
        body.push(if message.is_constant { CONSTANT } else { 0 });
        body.extend(message.creation_order.to_le_bytes());
        body.extend(&message.body);
    }
    let mut header = SIGNATURE.to_vec();
    header.extend([VERSION, SIZE_HAS_4_BYTES | ATTRIBUTE_ORDER_IS_TRACKED]);
    header.extend(u32::try_from(body.len()).ok()?.to_le_bytes());
    header.extend(body);
    append_checksum(&mut header);
    Some(header)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::formats::nc::hdf5::messages::group_info;

    #[test]
    fn messages_follow_the_prefix() {
        let header = object_header(&[group_info()]).unwrap();
        assert_eq!(header.get(..18).unwrap(), b"OHDR\x02\x06\x08\0\0\0\x0a\x02\0\x01\0\0\0\0");
        assert_eq!(header.len(), 22);
    }
}
