//! Resuming a DEFLATE stream where an earlier part of it ended.
//!
//! Spec: RFC 1951, 1950, 1952. One member only: data with several is decoded as a whole. Uses `deflate`, since the
//! checksum after the data covers all of them: before the first part is returned, the whole chunk is decoded once.

use flate2::{Decompress, FlushDecompress, Status};

use super::Wrapper;
use crate::codec::ResumableDecoder;
use crate::codec::{CodecError, CodecResult, StoredBytes, scratch};

/// Stored bytes that are read, and decoded bytes that are checked, at a time.
const PIECE_BYTES: usize = 64 << 10;
/// The longest window, which is all that a suspended decoder keeps.
const WINDOW_BITS: u8 = 15;

/// A decoder of one member that holds `decoded_bytes`.
pub struct ResumableInflate {
    wrapper: Wrapper,
    decoded_bytes: usize,
    /// Created after the whole chunk passed its check.
    inflate: Option<Decompress>,
}

impl ResumableInflate {
    /// Creates a decoder at the beginning of a chunk.
    pub fn new(wrapper: Wrapper, decoded_bytes: usize) -> Self {
        ResumableInflate { wrapper, decoded_bytes, inflate: None }
    }

    fn begin(&self) -> Decompress {
        match self.wrapper {
            Wrapper::Gzip => Decompress::new_gzip(WINDOW_BITS),
            Wrapper::Zlib => Decompress::new_with_window_bits(true, WINDOW_BITS),
        }
    }

    /// Decodes everything once: the checksum and the length must be right, and a gzip member must be the only one.
    fn check(&self, stored: &dyn StoredBytes) -> CodecResult<()> {
        let mut inflate = self.begin();
        let is_right = scratch::with(PIECE_BYTES, |seen| {
            // An attempt to decode one more byte shows whether the member ends there.
            while inflate.total_out() <= self.decoded_bytes as u64 {
                let left = self.decoded_bytes + 1 - inflate.total_out() as usize;
                let piece = seen.get_mut(..left.min(PIECE_BYTES)).unwrap_or_default();
                if go_on(&mut inflate, stored, piece)? < piece.len() {
                    break;
                }
            }
            let is_all = self.wrapper == Wrapper::Zlib || inflate.total_in() == stored.size_bytes();
            Ok(is_all && inflate.total_out() == self.decoded_bytes as u64)
        })?;
        if is_right { Ok(()) } else { Err(CodecError::new("not one member of the length that was expected")) }
    }
}

/// Decodes the next bytes into `out`; returns how many, fewer only at the valid end of the member.
fn go_on(inflate: &mut Decompress, stored: &dyn StoredBytes, out: &mut [u8]) -> CodecResult<usize> {
    let mut filled = 0;
    scratch::with(PIECE_BYTES, |input| {
        while let Some(unfilled) = out.get_mut(filled..).filter(|unfilled| !unfilled.is_empty()) {
            let (read_before, given_before) = (inflate.total_in(), inflate.total_out());
            let rest = usize::try_from(stored.size_bytes().saturating_sub(read_before));
            let length = rest.unwrap_or(usize::MAX).min(input.len());
            let input = input.get_mut(..length).unwrap_or_default();
            stored.read(read_before, input)?;
            let status =
                inflate.decompress(input, unfilled, FlushDecompress::None).map_err(CodecError::new)?;
            filled += (inflate.total_out() - given_before) as usize;
            if status == Status::StreamEnd {
                break;
            }
            if inflate.total_in() == read_before && inflate.total_out() == given_before {
                return Err(CodecError::new("the data ends too early"));
            }
        }
        Ok(filled)
    })
}

impl ResumableDecoder for ResumableInflate {
    fn position(&self) -> usize {
        self.inflate.as_ref().map_or(0, |inflate| inflate.total_out() as usize)
    }

    fn decode_next(&mut self, stored: &dyn StoredBytes, out: &mut [u8]) -> CodecResult<usize> {
        let mut decoded_bytes = out.len();
        if self.inflate.is_none() {
            self.check(stored)?;
            decoded_bytes += self.decoded_bytes;
        }
        let begun = self.inflate.take().unwrap_or_else(|| self.begin());
        match go_on(self.inflate.insert(begun), stored, out)? {
            filled if filled == out.len() => Ok(decoded_bytes),
            _ => Err(CodecError::new("the data ends too early")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::test_level::pick(64, 256)))]

        #[test]
        fn the_parts_make_the_whole(
            data in prop::collection::vec(0u8..40, 1..200_000),
            is_gzip: bool,
            lengths in prop::collection::vec(1usize..60_000, 1..8),
            damaged in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
        ) {
            let wrapper = if is_gzip { Wrapper::Gzip } else { Wrapper::Zlib };
            let mut stored = wrapper.encode(&data, 5).unwrap();
            if let Some((at, change)) = damaged {
                let at = at.index(stored.len());
                stored[at] ^= change;
            }
            let whole = wrapper.decode_into(&stored, &mut vec![0; data.len()]);
            let mut stream = ResumableInflate::new(wrapper, data.len());
            let mut at = 0;
            for length in lengths {
                let mut out = vec![7; length.min(data.len() - at)];
                let part = stream.decode_next(&stored, &mut out);
                if out.is_empty() || (part.is_err() && damaged.is_some()) {
                    break;
                }
                prop_assert!(whole.is_ok(), "a part of what is damaged as a whole");
                let first = if at == 0 { data.len() } else { 0 };
                prop_assert_eq!(part.unwrap(), out.len() + first);
                prop_assert_eq!(&out[..], &data[at..at + out.len()]);
                at += out.len();
                prop_assert_eq!(stream.position(), at);
            }
        }
    }

    #[test]
    fn several_members_are_not_for_parts() {
        let mut encoded = Wrapper::Gzip.encode(&[1; 1000], 5).unwrap();
        encoded.extend(Wrapper::Gzip.encode(&[2; 1000], 5).unwrap());
        let (stored, mut stream) = (encoded, ResumableInflate::new(Wrapper::Gzip, 2000));
        assert!(stream.decode_next(&stored, &mut [0; 900]).is_err());
    }
}
