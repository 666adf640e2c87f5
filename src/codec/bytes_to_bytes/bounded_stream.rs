//! Compressed streams (bz2, lzma) decoded into memory that the caller limits.
//!
//! It accepts what Python's `bz2.decompress` and `lzma.decompress` accept: several streams one after the other, and
//! after the first one anything that does not begin a stream. Uses nothing else.

use crate::codec::{CodecError, CodecResult};

/// One compressed stream being decoded.
pub trait StreamDecoder {
    /// Decodes as much of `input` into `output` as possible.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> CodecResult<StreamStep>;
}

/// The progress of one step.
pub struct StreamStep {
    /// Bytes taken from the input.
    pub consumed: usize,
    /// Bytes written to the output.
    pub produced: usize,
    /// Whether the stream ended here.
    pub is_end: bool,
}

/// Decodes all the streams of `encoded` into exactly `out.len()` bytes.
pub fn decode_exact<D: StreamDecoder>(
    start: impl Fn() -> CodecResult<D>,
    encoded: &[u8],
    out: &mut [u8],
) -> CodecResult<()> {
    let mut streams = Streams::new(start, encoded)?;
    let filled = streams.fill(out)?;
    if filled < out.len() {
        let expected = out.len();
        return Err(CodecError::new(format!("{filled} bytes decoded where {expected} were expected")));
    }
    streams.expect_end(out.len())
}

/// Decodes all the streams of `encoded` to at most `limit_bytes`.
pub fn decode_limited<D: StreamDecoder>(
    start: impl Fn() -> CodecResult<D>,
    encoded: &[u8],
    limit_bytes: usize,
) -> CodecResult<Vec<u8>> {
    let mut streams = Streams::new(start, encoded)?;
    let mut out = Vec::new();
    // It grows with the decoded data, so that memory follows the data and not a declared size.
    let mut room = encoded.len().saturating_mul(4).max(1 << 16);
    loop {
        let filled = out.len();
        out.resize(filled.saturating_add(room).min(limit_bytes), 0);
        let produced = streams.fill(out.get_mut(filled..).unwrap_or_default())?;
        out.truncate(filled + produced);
        if out.len() < filled.saturating_add(room).min(limit_bytes) {
            return Ok(out);
        }
        if out.len() == limit_bytes {
            streams.expect_end(limit_bytes)?;
            return Ok(out);
        }
        room = out.len();
    }
}

/// The streams left in some bytes.
struct Streams<'a, D, S> {
    start: S,
    /// The current stream; `None` between two.
    decoder: Option<D>,
    input: &'a [u8],
    /// Whether a stream has ended.
    is_one_complete: bool,
    /// Whether the current stream has produced any bytes.
    has_output: bool,
}

impl<'a, D: StreamDecoder, S: Fn() -> CodecResult<D>> Streams<'a, D, S> {
    fn new(start: S, input: &'a [u8]) -> CodecResult<Self> {
        let decoder = Some(start()?);
        Ok(Streams { start, decoder, input, is_one_complete: false, has_output: false })
    }

    /// Fills `out`; fewer bytes only at the end of the last stream.
    fn fill(&mut self, out: &mut [u8]) -> CodecResult<usize> {
        let mut filled = 0;
        while filled < out.len() {
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                None if self.input.is_empty() => break,
                None => self.decoder.insert((self.start)()?),
            };
            let step = match decoder.step(self.input, out.get_mut(filled..).unwrap_or_default()) {
                Ok(step) => step,
                Err(_) if self.is_one_complete && !self.has_output => {
                    (self.input, self.decoder) = (&[], None);
                    break;
                }
                Err(error) => return Err(error),
            };
            self.input = self.input.get(step.consumed..).unwrap_or_default();
            filled += step.produced;
            self.has_output |= step.produced > 0;
            if step.is_end {
                (self.decoder, self.is_one_complete, self.has_output) = (None, true, false);
            } else if step.consumed == 0 && step.produced == 0 {
                return Err(CodecError::new("the compressed data ends too early"));
            }
        }
        Ok(filled)
    }

    /// Fails if anything follows the expected `length` bytes.
    fn expect_end(&mut self, length: usize) -> CodecResult<()> {
        match self.fill(&mut [0])? {
            0 => Ok(()),
            _ => Err(CodecError::new(format!("more bytes decoded than the {length} expected"))),
        }
    }
}
