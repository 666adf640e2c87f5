//! The encoding of HDF5: the few structures that a file of contiguous arrays needs.
//!
//! Spec: HDF5 File Format Specification, version 3.0; each function names its section. Uses `metadata` for data types, and the
//! hash of `codec` that HDF5 takes for checksums. All numbers are little-endian, all addresses and lengths have 8 bytes.

pub mod datatype;
pub mod global_heap;
pub mod messages;
pub mod object_header;

use crate::codec::lookup3;

/// The undefined address.
pub const UNDEFINED_ADDRESS: u64 = u64::MAX;
/// The size of the superblock, which is at the start of the file.
pub const SUPERBLOCK_BYTES: u64 = 48;

const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
const SUPERBLOCK_VERSION: u8 = 2;
/// The size of an address, and of a length, in bytes.
const WIDTH: u8 = 8;

/// Returns the superblock (section II.A) of a file of `size_bytes` with the root group's header at an address.
pub fn superblock(root_address: u64, size_bytes: u64) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    let consistency_flags = 0;
    bytes.extend([SUPERBLOCK_VERSION, WIDTH, WIDTH, consistency_flags]);
    let (base_address, extension_address) = (0, UNDEFINED_ADDRESS);
    for number in [base_address, extension_address, size_bytes, root_address] {
        bytes.extend(u64::to_le_bytes(number));
    }
    append_checksum(&mut bytes);
    bytes
}

/// Appends the checksum of all bytes before it.
fn append_checksum(bytes: &mut Vec<u8>) {
    let checksum = lookup3(bytes, 0);
    bytes.extend(checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock() {
        let bytes = superblock(48, 4096);
        assert_eq!(bytes.len() as u64, SUPERBLOCK_BYTES);
        assert_eq!(bytes.get(8..12), Some(&[2, 8, 8, 0][..]));
        assert_eq!(bytes.get(28..44), Some(&[0, 16, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0][..]));
    }
}
