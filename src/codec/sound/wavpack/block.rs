//! A block of WavPack: its header, and the sub-blocks with what its one or two channels need.

use super::bits::Bits;
use super::decorrelation::{MAX_DISTANCE, Pass, Term};
use super::logarithm::{exponential, signed_exponential, weight};
use super::residuals::Medians;
use crate::codec::{CodecError, CodecResult};

/// Bytes of a header.
const HEADER_BYTES: usize = 32;
/// Bytes of a header that its length does not count.
const UNCOUNTED_BYTES: usize = 8;
/// The versions of the format that have been written.
const VERSIONS: std::ops::RangeInclusive<u16> = 0x402..=0x410;
/// The most passes.
const MAX_PASSES: usize = 16;

/// Bits of the flags.
const MONO: u32 = 1 << 2;
const HYBRID: u32 = 1 << 3;
const JOINT_STEREO: u32 = 1 << 4;
const FLOATS: u32 = 1 << 7;
const EXTENDED_INTEGERS: u32 = 1 << 8;
const FIRST_OF_CHANNELS: u32 = 1 << 11;
const LAST_OF_CHANNELS: u32 = 1 << 12;
const HAS_CHECKSUM: u32 = 1 << 28;
const FALSE_STEREO: u32 = 1 << 30;
const ONE_BIT_SOUND: u32 = 1 << 31;

/// Bits of the number of a sub-block: its kind, whether its last byte is padding, and whether its length has three bytes.
const KIND: u8 = 0x3f;
const IS_PADDED: u8 = 0x40;
const IS_LONG: u8 = 0x80;
/// Kinds that a decoder may ignore.
const IS_OPTIONAL: u8 = 0x20;

/// The header of a block.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    flags: u32,
    /// The number of the first sample.
    pub index: u64,
    /// Samples of each channel. 0: the block has no sound.
    pub samples: u32,
    /// The checksum of the samples.
    pub checksum: u32,
}

impl Header {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the bytes of a sample.
    pub fn sample_bytes(&self) -> usize {
        // From 1 to 4.
        (self.flags & 3) as usize + 1
    }

    /// Returns the channels that the block stands for.
    pub fn channels(&self) -> usize {
        if self.has(MONO) { 1 } else { 2 }
    }

    /// Returns the channels that are stored; both are the same in "false stereo".
    pub fn stored_channels(&self) -> usize {
        if self.has(MONO | FALSE_STEREO) { 1 } else { 2 }
    }

    /// Returns whether the second channel is stored as a difference.
    pub fn is_joint(&self) -> bool {
        self.has(JOINT_STEREO)
    }

    /// Returns whether samples are floats.
    pub fn has_floats(&self) -> bool {
        self.has(FLOATS)
    }

    /// Returns whether integers may have more than 24 bits, or bits that are all the same.
    pub fn has_extended_integers(&self) -> bool {
        self.has(EXTENDED_INTEGERS)
    }

    /// Returns whether the block has the first channels.
    pub fn is_first(&self) -> bool {
        self.has(FIRST_OF_CHANNELS)
    }

    /// Returns whether the block has the last channels.
    pub fn is_last(&self) -> bool {
        self.has(LAST_OF_CHANNELS)
    }

    /// Returns how many zeros follow the bits of a sample.
    pub fn shift(&self) -> u32 {
        self.flags >> 13 & 31
    }
}

/// A block.
#[derive(Debug)]
pub struct Block<'a> {
    /// Its header.
    pub header: Header,
    /// Its sub-blocks.
    content: &'a [u8],
}

/// What a block's sub-blocks have.
#[derive(Debug, Default)]
pub struct Contents<'a> {
    /// The passes, in the order in which they are stored. The last one runs first.
    pub passes: Vec<Pass>,
    /// The medians of the two channels.
    pub medians: [Medians; 2],
    /// The residuals. Without them, they are 0.
    pub residuals: Option<Bits<'a>>,
    /// Bits that the samples have in addition.
    pub extension: Option<Extension<'a>>,
    /// How integers are extended.
    pub integers: Option<[u8; 4]>,
    /// How integers become floats.
    pub floats: Option<[u8; 4]>,
}

/// Bits of samples that residuals do not have.
#[derive(Clone, Debug)]
pub struct Extension<'a> {
    /// The checksum of the complete samples.
    pub checksum: u32,
    /// The bits.
    pub bits: Bits<'a>,
    /// Whether limits of the bits of a sample precede the bits.
    pub has_limits: bool,
}

/// A sub-block.
struct SubBlock<'a> {
    kind: u8,
    data: &'a [u8],
}

fn damaged(what: &str) -> CodecError {
    CodecError::new(format_args!("a block of WavPack has {what}"))
}

/// Takes the first `N` bytes of `rest`.
fn take<const N: usize>(rest: &mut &[u8]) -> CodecResult<[u8; N]> {
    let (first, after) = rest.split_first_chunk().ok_or_else(|| damaged("a part that is too short"))?;
    *rest = after;
    Ok(*first)
}

fn take_number(rest: &mut &[u8]) -> CodecResult<i32> {
    take(rest).map(|bytes| signed_exponential(i16::from_le_bytes(bytes)))
}

/// Takes the first sub-block; returns it and the bytes that its head has.
fn take_sub_block<'a>(rest: &mut &'a [u8]) -> CodecResult<SubBlock<'a>> {
    let [number, words] = take(rest)?;
    let mut words = usize::from(words);
    if number & IS_LONG != 0 {
        let [middle, high] = take(rest)?;
        words |= usize::from(middle) << 8 | usize::from(high) << 16;
    }
    let too_long = || damaged("a part that is longer than itself");
    let (data, after) = rest.split_at_checked(words * 2).ok_or_else(too_long)?;
    *rest = after;
    let data = if number & IS_PADDED != 0 { data.split_last().ok_or_else(too_long)?.1 } else { data };
    Ok(SubBlock { kind: number & KIND, data })
}

/// Returns the sum of the 16-bit words of a block that its checksum has.
fn sum_of_words(bytes: &[u8]) -> u32 {
    let words = bytes.as_chunks().0.iter().map(|word| u32::from(u16::from_le_bytes(*word)));
    words.fold(u32::MAX, |sum, word| sum.wrapping_mul(3).wrapping_add(word))
}

impl<'a> Block<'a> {
    /// Takes the first block of `rest`, and compares its checksum.
    pub fn take(rest: &mut &'a [u8]) -> CodecResult<Block<'a>> {
        let whole = *rest;
        let mut head = whole.get(..HEADER_BYTES).ok_or_else(|| CodecError::new("a block ends too early"))?;
        if &take(&mut head)? != b"wvpk" {
            return Err(CodecError::new("the data is not a block of WavPack"));
        }
        let counted = usize::try_from(u32::from_le_bytes(take(&mut head)?)).unwrap_or(usize::MAX);
        let version = u16::from_le_bytes(take(&mut head)?);
        if !VERSIONS.contains(&version) {
            return Err(CodecError::unsupported(format_args!("version {version:#x} of WavPack")));
        }
        let [index_high, _] = take(&mut head)?;
        let [_total, index_low, samples, flags, checksum]: [u32; 5] =
            std::array::from_fn(|_| take(&mut head).map_or(0, u32::from_le_bytes));
        let index = u64::from(index_high) << 32 | u64::from(index_low);
        let header = Header { flags, index, samples, checksum };
        let end = counted.saturating_add(UNCOUNTED_BYTES);
        let bytes = whole.get(..end).filter(|bytes| bytes.len() >= HEADER_BYTES);
        let bytes = bytes.ok_or_else(|| CodecError::new("a block ends too early"))?;
        *rest = whole.get(end..).unwrap_or_default();
        let block = Block { header, content: bytes.get(HEADER_BYTES..).unwrap_or_default() };
        block.check(bytes)?;
        Ok(block)
    }

    /// Refuses what is not read, and compares the checksum of the block's bytes.
    fn check(&self, bytes: &[u8]) -> CodecResult<()> {
        let header = &self.header;
        if header.has(HYBRID) {
            return Err(CodecError::unsupported("lossy WavPack (hybrid mode)"));
        }
        if header.has(ONE_BIT_SOUND) {
            return Err(CodecError::unsupported("WavPack with samples of one bit (DSD)"));
        }
        if header.has(MONO) && header.has(FALSE_STEREO) {
            return Err(damaged("one channel and two"));
        }
        let mut rest = self.content;
        let mut is_compared = false;
        while !rest.is_empty() {
            let before = bytes.get(..bytes.len() - rest.len()).unwrap_or_default();
            let part = take_sub_block(&mut rest)?;
            if part.kind != 0x2f {
                continue;
            }
            let sum = sum_of_words(before);
            is_compared = match part.data {
                [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]) == sum,
                [a, b] => u32::from(u16::from_le_bytes([*a, *b])) == (sum ^ sum >> 16) & 0xffff,
                _ => false,
            };
            if !is_compared {
                return Err(damaged("another checksum than its bytes"));
            }
        }
        if header.has(HAS_CHECKSUM) && !is_compared {
            return Err(damaged("no checksum, though it says so"));
        }
        Ok(())
    }

    /// Reads the sub-blocks.
    pub fn contents(&self) -> CodecResult<Contents<'a>> {
        let mut contents = Contents::default();
        let channels = self.header.stored_channels();
        let mut rest = self.content;
        while !rest.is_empty() {
            let part = take_sub_block(&mut rest)?;
            let four = || <[u8; 4]>::try_from(part.data).map_err(|_| damaged("a part of a wrong length"));
            match part.kind {
                // Padding, the encoder's name, and the layout of channels, which flags say, too.
                0x0 | 0x1 | 0xd => {}
                0x2 => contents.passes = read_terms(part.data, channels)?,
                0x3 => contents.read_weights(part.data, channels)?,
                0x4 => contents.read_samples(part.data, channels)?,
                0x5 => contents.read_medians(part.data, channels)?,
                0x8 => contents.floats = Some(four()?),
                0x9 => contents.integers = Some(four()?),
                0xa => contents.residuals = Some(Bits::new(part.data)),
                0xc | 0x2c => {
                    let mut data = part.data;
                    let checksum = u32::from_le_bytes(take(&mut data)?);
                    contents.extension =
                        Some(Extension { checksum, bits: Bits::new(data), has_limits: part.kind == 0x2c });
                }
                kind if kind & IS_OPTIONAL != 0 => {}
                kind => {
                    return Err(CodecError::unsupported(format_args!(
                        "WavPack with a part of the kind {kind:#x}"
                    )));
                }
            }
        }
        Ok(contents)
    }
}

fn read_terms(data: &[u8], channels: usize) -> CodecResult<Vec<Pass>> {
    if data.len() > MAX_PASSES {
        return Err(damaged("too many passes"));
    }
    let pass = |byte: &u8| {
        let term = Term::from_number(i32::from(byte & 31) - 5, channels)?;
        let delta = i32::from(byte >> 5);
        Some(Pass { term, delta, weights: [0; 2], samples: [[0; MAX_DISTANCE]; 2] })
    };
    let passes = data.iter().map(pass).collect::<Option<_>>();
    passes.ok_or_else(|| damaged("a pass that does not exist"))
}

impl Contents<'_> {
    fn read_weights(&mut self, data: &[u8], channels: usize) -> CodecResult<()> {
        if data.len() / channels > self.passes.len() {
            return Err(damaged("more weights than passes"));
        }
        for (pass, bytes) in self.passes.iter_mut().zip(data.chunks_exact(channels)) {
            for (own, byte) in pass.weights.iter_mut().zip(bytes) {
                *own = weight(byte.cast_signed());
            }
        }
        Ok(())
    }

    fn read_samples(&mut self, mut data: &[u8], channels: usize) -> CodecResult<()> {
        for pass in &mut self.passes {
            if data.is_empty() {
                break;
            }
            let history = pass.term.history();
            // A line has both samples of a channel next to each other; samples at a distance alternate.
            let is_by_channel = matches!(pass.term, Term::Line | Term::HalfLine);
            for place in 0..history * channels {
                let (channel, at) = if is_by_channel {
                    (place / history, place % history)
                } else {
                    (place % channels, place / channels)
                };
                let number = take_number(&mut data)?;
                if let Some(sample) = pass.samples.get_mut(channel).and_then(|samples| samples.get_mut(at)) {
                    *sample = number;
                }
            }
        }
        if data.is_empty() { Ok(()) } else { Err(damaged("more samples than its passes")) }
    }

    fn read_medians(&mut self, mut data: &[u8], channels: usize) -> CodecResult<()> {
        for medians in self.medians.iter_mut().take(channels) {
            for median in &mut medians.0 {
                *median = exponential(u16::from_le_bytes(take(&mut data)?));
            }
        }
        if data.is_empty() { Ok(()) } else { Err(damaged("too many medians")) }
    }
}
