//! `numcodecs.lzma`: xz, .lzma and raw LZMA, with any chain of filters. v2 id: `lzma`.
//!
//! Format: numcodecs `LZMA`, with the members of Python's `lzma` module, numbers included: `format` 0 detect
//! (decoding only), 1 xz, 2 .lzma, 3 raw; `check` -1 default, 0 none, 1 CRC-32, 4 CRC-64, 10 SHA-256; `preset` 0 to 9,
//! or-ed with 2^31 for "extreme"; `filters` a chain of 1 to 4. Uses `bounded_stream`.
//!
//! ```json
//! {"name": "numcodecs.lzma", "configuration": {"format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 6}]}}
//! ```
//!
//! Invariant: a decoder takes at most [`MEMORY_LIMIT_BYTES`]; of a large dictionary only the part that has been
//! decoded into is ever touched.

mod filters;

use std::borrow::Cow;

use liblzma::stream::{Action, Check, Status, Stream};

use super::bounded_stream::{StreamDecoder, StreamStep, decode_exact, decode_limited};
use crate::codec::config::Configuration;
use crate::codec::{BytesToBytes, Codec, CodecEntry, CodecError, CodecResult, Context, EncodedSize};
use filters::{FilterChain, MEMORY_LIMIT_BYTES, read_filters};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry =
    CodecEntry { v3: &["numcodecs.lzma", "lzma", OF_IMAGECODECS], v2: &["lzma", OF_IMAGECODECS], build };

/// The name of xz in references to TIFF files. Its configuration has `level` and `check`.
const OF_IMAGECODECS: &str = "imagecodecs_lzma";

/// "Extreme", a flag of presets.
const EXTREME: i64 = 1 << 31;

/// Python's `FORMAT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LzmaFormat {
    Auto,
    Xz,
    Alone,
    Raw,
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    if context.name == OF_IMAGECODECS {
        configuration.value("check");
        let level = configuration.integer("level", 0..=9)?;
        configuration.finish()?;
        let preset = level.and_then(|level| u32::try_from(level).ok());
        let lzma = Lzma { format: LzmaFormat::Xz, check: Check::Crc64, preset, filters: None };
        return Ok(Codec::BytesToBytes(Box::new(lzma)));
    }
    let format = match configuration.integer("format", 0..=3)? {
        Some(0) => LzmaFormat::Auto,
        Some(2) => LzmaFormat::Alone,
        Some(3) => LzmaFormat::Raw,
        _ => LzmaFormat::Xz,
    };
    let check = match configuration.integer("check", -1..=10)? {
        None | Some(-1 | 4) => Check::Crc64,
        Some(0) => Check::None,
        Some(1) => Check::Crc32,
        Some(10) => Check::Sha256,
        Some(_) => return Err(configuration.error("check", "must be one of -1, 0, 1, 4, 10")),
    };
    let preset = match configuration.integer("preset", 0..=(EXTREME | 9))? {
        Some(preset) if preset & !EXTREME > 9 => {
            return Err(configuration.error("preset", "must be a level from 0 to 9, or one plus 2^31"));
        }
        preset => preset.and_then(|preset| u32::try_from(preset).ok()),
    };
    let filters = read_filters(&mut configuration)?;
    configuration.finish()?;
    if format == LzmaFormat::Raw && filters.is_none() {
        return Err(configuration_error(context, "filters", "is required when \"format\" is 3"));
    }
    Ok(Codec::BytesToBytes(Box::new(Lzma { format, check, preset, filters })))
}

fn configuration_error(context: &Context<'_>, key: &str, reason: &str) -> CodecError {
    Configuration::new(context).error(key, reason)
}

struct Lzma {
    format: LzmaFormat,
    check: Check,
    /// Encoder only.
    preset: Option<u32>,
    /// Needed to decode raw data; the other formats carry their own.
    filters: Option<FilterChain>,
}

impl Lzma {
    fn decoder(&self) -> CodecResult<Decoder> {
        let stream = match (self.format, &self.filters) {
            (LzmaFormat::Raw, Some(filters)) => Stream::new_raw_decoder(&filters.build(u32::MAX)?),
            (LzmaFormat::Raw, None) => return Err(CodecError::new("a raw stream needs filters")),
            (LzmaFormat::Auto, _) => Stream::new_auto_decoder(MEMORY_LIMIT_BYTES, 0),
            (LzmaFormat::Xz, _) => Stream::new_stream_decoder(MEMORY_LIMIT_BYTES, 0),
            (LzmaFormat::Alone, _) => Stream::new_lzma_decoder(MEMORY_LIMIT_BYTES),
        };
        Ok(Decoder(stream.map_err(failed)?))
    }

    /// Returns an encoder for `length` bytes. A larger dictionary would only cost memory.
    fn encoder(&self, length: usize) -> CodecResult<Stream> {
        let max_dict = u32::try_from(length).unwrap_or(u32::MAX);
        let preset = self.preset.unwrap_or(liblzma::stream::PRESET_DEFAULT);
        let chain = match (&self.filters, self.preset) {
            (Some(_), Some(_)) => {
                return Err(CodecError::new("\"preset\" and \"filters\" exclude each other"));
            }
            (Some(chain), None) => chain.clone(),
            (None, _) => FilterChain::from_preset(preset, self.format != LzmaFormat::Alone),
        };
        let stream = match self.format {
            LzmaFormat::Auto => return Err(CodecError::new("\"format\" 0 is for decoding only")),
            LzmaFormat::Xz => Stream::new_stream_encoder(&chain.build(max_dict)?, self.check),
            LzmaFormat::Alone => Stream::new_lzma_encoder(&chain.lzma1_options(max_dict)?),
            LzmaFormat::Raw => Stream::new_raw_encoder(&chain.build(max_dict)?),
        };
        stream.map_err(failed)
    }
}

/// Converts liblzma's error.
fn failed(error: liblzma::stream::Error) -> CodecError {
    CodecError::new(format_args!("{error}"))
}

struct Decoder(Stream);

impl StreamDecoder for Decoder {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> CodecResult<StreamStep> {
        let (read, written) = (self.0.total_in(), self.0.total_out());
        let status = self.0.process(input, output, Action::Run).map_err(failed)?;
        Ok(StreamStep {
            consumed: usize::try_from(self.0.total_in() - read).unwrap_or(usize::MAX),
            produced: usize::try_from(self.0.total_out() - written).unwrap_or(usize::MAX),
            is_end: matches!(status, Status::StreamEnd),
        })
    }
}

impl BytesToBytes for Lzma {
    fn is_lossless(&self) -> bool {
        true
    }

    fn has_checksum(&self) -> bool {
        self.format == LzmaFormat::Xz && !matches!(self.check, Check::None)
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        decode_limited(|| self.decoder(), encoded, limit_bytes).map(Cow::Owned)
    }

    fn decode_into(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        decode_exact(|| self.decoder(), encoded, out)
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let mut encoder = self.encoder(decoded.len())?;
        let mut encoded = Vec::with_capacity(decoded.len() / 2 + 64);
        loop {
            let consumed = usize::try_from(encoder.total_in()).unwrap_or(usize::MAX);
            let left = decoded.get(consumed..).unwrap_or_default();
            encoded.reserve(encoded.len().max(4096));
            let status = encoder.process_vec(left, &mut encoded, Action::Finish).map_err(failed)?;
            if matches!(status, Status::StreamEnd) {
                return Ok(encoded);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::CodecInput;
    use crate::metadata::CodecFamily;
    use proptest::prelude::*;

    fn codec(json: &str) -> CodecResult<Box<dyn BytesToBytes>> {
        let configuration = serde_json::from_str(json).unwrap();
        let input = CodecInput::Bytes { size: EncodedSize::Exact(1), item_size: 1, items: None };
        let context = Context { family: CodecFamily::V2, name: "lzma", configuration: &configuration, input };
        match build(&context)? {
            Codec::BytesToBytes(codec) => Ok(codec),
            _ => panic!(),
        }
    }

    /// One configuration of each format and each filter.
    const CONFIGURATIONS: &[&str] = &[
        "{}",
        r#"{"format": 1, "check": -1, "preset": null, "filters": null}"#,
        r#"{"format": 1, "check": 0, "preset": 0}"#,
        r#"{"format": 1, "check": 1, "preset": 2147483649}"#,
        r#"{"format": 1, "check": 10}"#,
        r#"{"format": 2}"#,
        r#"{"format": 2, "filters": [{"id": 4611686018427387905, "preset": 1, "lc": 2, "lp": 1, "pb": 0}]}"#,
        r#"{"format": 3, "filters": [{"id": 33, "preset": 1}]}"#,
        r#"{"format": 3, "filters": [{"id": 4611686018427387905, "dict_size": 5000}]}"#,
        r#"{"format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 33, "mode": 1, "nice_len": 8, "mf": 3, "depth": 4}]}"#,
        r#"{"format": 1, "filters": [{"id": 3, "dist": 256}, {"id": 4}, {"id": 33, "mf": 20}]}"#,
        r#"{"format": 1, "filters": [{"id": 5, "start_offset": 16}, {"id": 6}, {"id": 7}, {"id": 33}]}"#,
        r#"{"format": 3, "filters": [{"id": 8}, {"id": 9}, {"id": 10}, {"id": 33}]}"#,
        r#"{"format": 3, "filters": [{"id": 11}, {"id": 33}]}"#,
    ];

    #[test]
    fn every_format_and_filter() {
        let data: Vec<u8> = (0..20_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        for json in CONFIGURATIONS {
            let codec = codec(json).unwrap();
            let encoded = codec.encode(&data).unwrap();
            assert_eq!(&*codec.decode(&encoded, data.len()).unwrap(), &data, "{json}");
            assert!(codec.decode(&encoded, data.len() - 1).is_err(), "{json}");
            assert!(codec.decode(&encoded[..encoded.len() / 2], data.len()).is_err(), "{json}");
            let twice = [&encoded[..], &encoded].concat();
            let mut out = vec![0; data.len() * 2];
            codec.decode_into(&twice, &mut out).unwrap();
            assert_eq!(out[data.len()..], data, "{json}");
            let empty = codec.encode(&[]).unwrap();
            assert_eq!(codec.decode(&empty, 0).unwrap().len(), 0, "{json}");
        }
        let xz = codec("{}").unwrap().encode(&data).unwrap();
        assert_eq!(&*codec(r#"{"format": 0}"#).unwrap().decode(&xz, data.len()).unwrap(), &data);
    }

    #[test]
    fn bad_configurations() {
        for json in [
            r#"{"format": 4}"#,
            r#"{"format": 3}"#,
            r#"{"check": 2}"#,
            r#"{"preset": 10}"#,
            r#"{"filters": []}"#,
            r#"{"filters": [{"preset": 1}]}"#,
            r#"{"filters": [{"id": 12}]}"#,
            r#"{"filters": [{"id": 3, "dist": 0}]}"#,
            r#"{"filters": [{"id": 3, "dist": 257}]}"#,
            r#"{"filters": [{"id": 33, "dict_size": 4294967295}]}"#,
            r#"{"filters": [{"id": 33, "x": 1}]}"#,
            r#"{"filters": [33]}"#,
        ] {
            assert!(codec(json).is_err(), "{json}");
        }
        let impossible = codec(r#"{"format": 3, "filters": [{"id": 3}, {"id": 3}]}"#).unwrap();
        assert!(impossible.decode(&[0; 10], 10).is_err());
        assert!(impossible.encode(&[0; 10]).is_err());
    }

    /// A .lzma header that requires a dictionary of 4 GiB.
    #[test]
    fn dictionary_beyond_the_limit() {
        let mut header = vec![0x5d, 0xff, 0xff, 0xff, 0xff];
        header.extend([0xff; 8]);
        header.extend([0; 20]);
        let error = codec(r#"{"format": 2}"#).unwrap().decode(&header, 100).unwrap_err();
        assert!(error.reason.contains("memory"), "{error}");
    }

    proptest! {
        #[test]
        fn damage_is_no_panic(
            which in 0..CONFIGURATIONS.len(),
            bytes in prop::collection::vec(0u8..4, 0..300),
            at in any::<prop::sample::Index>(),
            bit in 0..8,
            cut in any::<prop::sample::Index>(),
        ) {
            let codec = codec(CONFIGURATIONS[which]).unwrap();
            let mut encoded = codec.encode(&bytes).unwrap();
            prop_assert_eq!(&*codec.decode(&encoded, bytes.len()).unwrap(), &bytes[..]);
            let at = at.index(encoded.len());
            encoded[at] ^= 1u8 << bit;
            encoded.truncate(cut.index(encoded.len() + 1));
            if let Ok(decoded) = codec.decode(&encoded, bytes.len()) {
                prop_assert!(decoded.len() <= bytes.len());
            }
        }
    }
}
