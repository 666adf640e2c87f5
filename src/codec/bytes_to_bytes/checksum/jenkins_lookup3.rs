//! `numcodecs.jenkins_lookup3`: Bob Jenkins' lookup3 hash after the bytes, as HDF5 uses it. v2 id: `jenkins_lookup3`.
//!
//! Format: numcodecs `JenkinsLookup3`, which is HDF5's `H5_checksum_lookup3`. `initval` seeds the hash; `prefix`
//! (bytes, as a list of numbers) is hashed before the data and not stored. Uses `checksum`.
//!
//! ```json
//! {"name": "numcodecs.jenkins_lookup3", "configuration": {"initval": 0, "prefix": null}}
//! ```

use super::{Checksum, ChecksumLocation};
use crate::codec::config::Configuration;
use crate::codec::{Codec, CodecEntry, CodecResult, Context};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry =
    CodecEntry { v3: &["numcodecs.jenkins_lookup3", "jenkins_lookup3"], v2: &["jenkins_lookup3"], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let seed = configuration.integer("initval", 0..=i64::from(u32::MAX))?.unwrap_or(0);
    let seed = u32::try_from(seed).map_err(|_| configuration.error("initval", "is out of range"))?;
    let prefix = configuration.lengths("prefix")?.unwrap_or_default();
    let prefix: Result<Vec<u8>, _> = prefix.into_iter().map(u8::try_from).collect();
    let prefix = prefix.map_err(|_| configuration.error("prefix", "must be a list of bytes"))?;
    configuration.finish()?;
    let compute = move |bytes: &[u8]| {
        if prefix.is_empty() { lookup3(bytes, seed) } else { lookup3(&[&prefix, bytes].concat(), seed) }
    };
    let codec = Checksum { name: "jenkins_lookup3", location: ChecksumLocation::End, compute };
    Ok(Codec::BytesToBytes(Box::new(codec)))
}

/// Computes lookup3's `hashlittle`.
pub fn lookup3(bytes: &[u8], seed: u32) -> u32 {
    // The length counts modulo 2^32, as in the original.
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32).wrapping_add(seed);
    let mut state = [start; 3];
    // The last 1 to 12 bytes get another mixing, so they are kept back even when they fill a block.
    let last_len = match bytes.len() {
        0 => return start,
        len => (len - 1) % 12 + 1,
    };
    let (blocks, last) = bytes.split_at(bytes.len() - last_len);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        mix(&mut state);
    }
    add(&mut state, last);
    finish(&mut state);
    state[2]
}

/// Adds up to 12 bytes, as three little-endian words padded with zeros.
fn add(state: &mut [u32; 3], block: &[u8]) {
    for (word, bytes) in state.iter_mut().zip(block.chunks(4)) {
        let mut padded = [0; 4];
        for (to, from) in padded.iter_mut().zip(bytes) {
            *to = *from;
        }
        *word = word.wrapping_add(u32::from_le_bytes(padded));
    }
}

/// Applies lookup3's `mix`: each row is (target, subtrahend, rotation).
fn mix([a, b, c]: &mut [u32; 3]) {
    fn step(x: &mut u32, y: u32, rotation: u32) {
        *x = x.wrapping_sub(y) ^ y.rotate_left(rotation);
    }
    step(a, *c, 4);
    *c = c.wrapping_add(*b);
    step(b, *a, 6);
    *a = a.wrapping_add(*c);
    step(c, *b, 8);
    *b = b.wrapping_add(*a);
    step(a, *c, 16);
    *c = c.wrapping_add(*b);
    step(b, *a, 19);
    *a = a.wrapping_add(*c);
    step(c, *b, 4);
    *b = b.wrapping_add(*a);
}

/// Applies lookup3's `final`.
fn finish([a, b, c]: &mut [u32; 3]) {
    fn step(x: &mut u32, y: u32, rotation: u32) {
        *x = (*x ^ y).wrapping_sub(y.rotate_left(rotation));
    }
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// Values from lookup3's own self-test.
    #[test]
    fn published_values() {
        assert_eq!(lookup3(b"", 0), 0xdead_beef);
        assert_eq!(lookup3(b"", 0xdead_beef), 0xbd5b_7dde);
        assert_eq!(lookup3(b"Four score and seven years ago", 0), 0x1777_0551);
        assert_eq!(lookup3(b"Four score and seven years ago", 1), 0xcd62_8161);
    }
}
