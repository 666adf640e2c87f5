//! `bitround`: keeps the first `keepbits` bits of each number, rounded to nearest, ties to even. Decoding changes nothing.
//!
//! Spec: zarr-extensions, codecs/bitround; numcodecs `BitRound`. Uses `metadata`.
//!
//! ```json
//! {"name": "bitround", "configuration": {"keepbits": 10}}
//! ```
//!
//! - Floats, and the components of complex numbers, keep `keepbits` bits of the fraction; the arithmetic is
//!   numcodecs', on the element's bits. Only NaNs differ: numcodecs may round them to −0, here
//!   they stay NaNs.
//! - Integers keep `keepbits` bits from the first one that is set (of a negative number: the sign). Where rounding
//!   up would leave the type or reach the sign, the remaining bits are cleared instead.
//! - numcodecs does not encode with more bits than the type has; here that keeps all of them.

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::error::check_length;
use crate::codec::{
    ArrayToArray, BytesToBytes, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, EncodedSize,
    Items, Representation,
};
use crate::metadata::DataType;
use crate::metadata::data_type::exact_number::ScalarFormat;

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry {
    v3: &["bitround", "numcodecs.bitround", "https://codec.zarrs.dev/array_to_bytes/bitround"],
    v2: &["bitround"],
    build,
};

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let keep_bits = configuration.integer("keepbits", 0..=i64::from(u32::MAX))?;
    let keep_bits = configuration.require("keepbits", keep_bits)?;
    let keep_bits = u32::try_from(keep_bits).unwrap_or(u32::MAX);
    configuration.finish()?;
    match context.input {
        CodecInput::Array(input) => match BitRounding::new(&input.data_type, keep_bits) {
            Some(rounding) => {
                Ok(Codec::ArrayToArray(Box::new(ArrayBitRound { encoded: input.clone(), rounding })))
            }
            None => {
                let name = input.data_type.name();
                Err(CodecError::new(format_args!(
                    "codec \"{}\" is for integers, floats and complex numbers, not for {name}",
                    context.name
                )))
            }
        },
        CodecInput::Bytes { items, .. } => {
            let rounding = items.and_then(|items| BitRounding::new(&items.data_type, keep_bits));
            // numcodecs rounds floats only.
            let rounding = rounding.filter(|rounding| matches!(rounding.format, ScalarFormat::Float(_)));
            Ok(Codec::BytesToBytes(Box::new(BytesBitRound { items: items.cloned(), rounding })))
        }
    }
}

/// How the components of elements are rounded.
#[derive(Clone, Copy)]
struct BitRounding {
    /// The format of a component.
    format: ScalarFormat,
    keep_bits: u32,
}

impl BitRounding {
    /// Returns the rounding of elements of a type: floats of at least 16 bits, integers of at least 8 bits, and times.
    fn new(data_type: &DataType, keep_bits: u32) -> Option<BitRounding> {
        let number = match data_type {
            DataType::DateTime64(_) | DataType::TimeDelta64(_) => DataType::Int64.number_format()?,
            _ => data_type.number_format()?,
        };
        let is_rounded = match number.scalar {
            ScalarFormat::Float(format) => format.bits() >= 16,
            ScalarFormat::Integer(format) => format.bits >= 8,
        };
        is_rounded.then_some(BitRounding { format: number.scalar, keep_bits })
    }

    /// Returns whether rounding changes nothing.
    fn keeps_all(self) -> bool {
        match self.format {
            ScalarFormat::Float(format) => self.keep_bits >= format.mantissa_bits,
            ScalarFormat::Integer(format) => self.keep_bits >= format.bits,
        }
    }

    /// Rounds every component in place.
    fn run(self, data: &mut [u8], is_big_endian: bool) {
        match self.format.width() {
            1 => self.each::<1>(data, is_big_endian),
            2 => self.each::<2>(data, is_big_endian),
            4 => self.each::<4>(data, is_big_endian),
            _ => self.each::<8>(data, is_big_endian),
        }
    }

    fn each<const N: usize>(self, data: &mut [u8], is_big_endian: bool) {
        let (components, _) = data.as_chunks_mut::<N>();
        for bytes in components {
            if is_big_endian {
                bytes.reverse();
            }
            let code = bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
            let rounded = match self.format {
                ScalarFormat::Float(format) => self.float(code, N as u32 * 8, format.mantissa_bits),
                ScalarFormat::Integer(format) => self.integer(code, N as u32 * 8, format.is_signed),
            };
            *bytes = rounded.to_le_bytes().first_chunk::<N>().copied().unwrap_or([0; N]);
            if is_big_endian {
                bytes.reverse();
            }
        }
    }

    /// Rounds a float of `bits` bits.
    #[inline]
    fn float(self, code: u64, bits: u32, fraction_bits: u32) -> u64 {
        let drop_bits = fraction_bits.saturating_sub(self.keep_bits);
        if drop_bits == 0 {
            return code;
        }
        let all = u64::MAX >> (64 - bits);
        let infinity = (all >> 1) >> fraction_bits << fraction_bits;
        let half = (1u64 << (drop_bits - 1)) - 1;
        let rounded = code.wrapping_add((code >> drop_bits & 1) + half) >> drop_bits << drop_bits & all;
        let is_nan = |code: u64| code & (all >> 1) > infinity;
        if is_nan(code) && !is_nan(rounded) {
            return code & !(all >> 1) | infinity | 1 << (fraction_bits - 1);
        }
        rounded
    }

    /// Rounds an integer of `bits` bits.
    #[inline]
    fn integer(self, code: u64, bits: u32, is_signed: bool) -> u64 {
        let drop_bits = (64 - code.leading_zeros()).saturating_sub(self.keep_bits);
        if drop_bits == 0 {
            return code;
        }
        let code = u128::from(code);
        let (all, sign) = ((1 << bits) - 1, 1 << (bits - 1));
        let half = (1 << (drop_bits - 1)) - 1;
        let rounded = (code + (code >> drop_bits & 1) + half) >> drop_bits << drop_bits;
        let is_negative = is_signed && code & sign != 0;
        let greatest = if is_signed { sign - 1 } else { all };
        // A negative number may become 0, which carries out of the type and is right.
        if is_negative || rounded <= greatest {
            (rounded & all) as u64
        } else {
            (code >> drop_bits << drop_bits) as u64
        }
    }
}

/// In v3: between arrays.
struct ArrayBitRound {
    encoded: Representation,
    rounding: BitRounding,
}

fn copy(input: &[u8], out: &mut [u8]) -> CodecResult<()> {
    check_length(input.len(), out.len())?;
    out.copy_from_slice(input);
    Ok(())
}

impl ArrayToArray for ArrayBitRound {
    fn is_lossless(&self) -> bool {
        self.rounding.keeps_all()
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        copy(input, out)
    }

    fn encode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        copy(input, out)?;
        self.rounding.run(out, false);
        Ok(())
    }

    fn is_elementwise(&self) -> bool {
        true
    }
}

/// As a v2 filter: between bytes that are elements, in their stored byte order.
struct BytesBitRound {
    items: Option<Items>,
    /// `None` if the bytes are not floats: decoding then does nothing, and encoding is an error.
    rounding: Option<BitRounding>,
}

impl BytesToBytes for BytesBitRound {
    fn is_lossless(&self) -> bool {
        self.rounding.is_none_or(BitRounding::keeps_all)
    }

    fn encoded_size(&self, decoded: EncodedSize) -> EncodedSize {
        decoded
    }

    fn borrows(&self) -> bool {
        true
    }

    fn decode<'a>(&self, encoded: &'a [u8], limit_bytes: usize) -> CodecResult<Cow<'a, [u8]>> {
        if encoded.len() > limit_bytes {
            let found = encoded.len();
            return Err(CodecError::new(format_args!(
                "codec \"bitround\": {found} bytes, where at most {limit_bytes} were expected"
            )));
        }
        Ok(Cow::Borrowed(encoded))
    }

    fn encode(&self, decoded: &[u8]) -> CodecResult<Vec<u8>> {
        let Some(rounding) = self.rounding else {
            return Err(CodecError::new("codec \"bitround\" rounds floats, and these bytes are not floats"));
        };
        let mut out = decoded.to_vec();
        rounding.run(&mut out, self.items.as_ref().is_some_and(|items| items.is_big_endian));
        Ok(out)
    }

    fn encoded_items(&self) -> Option<&Items> {
        self.items.as_ref()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::registry;
    use crate::metadata::{CodecFamily, CodecSpec, FillValue};
    use serde_json::json;

    fn spec(family: CodecFamily, name: &str, keep_bits: i64) -> CodecSpec {
        CodecSpec {
            family,
            name: name.to_owned(),
            configuration: json!({ "keepbits": keep_bits }).as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[0]".to_owned(),
        }
    }

    fn array_codec(data_type: DataType, keep_bits: i64) -> CodecResult<Box<dyn ArrayToArray>> {
        let fill_value = FillValue { bytes: vec![0; data_type.item_size().unwrap()], is_undefined: false };
        let input = Representation { shape: vec![1], data_type, fill_value };
        match registry::build(&spec(CodecFamily::V3, "bitround", keep_bits), CodecInput::Array(&input))? {
            Codec::ArrayToArray(codec) => Ok(codec),
            _ => panic!("not array to array"),
        }
    }

    fn round(data_type: DataType, keep_bits: i64, element: &[u8]) -> Vec<u8> {
        let mut out = vec![0; element.len()];
        array_codec(data_type, keep_bits).unwrap().encode(element, &mut out).unwrap();
        out
    }

    fn round_f32(bits: u32, keep_bits: i64) -> u32 {
        u32::from_le_bytes(round(DataType::Float32, keep_bits, &bits.to_le_bytes()).try_into().unwrap())
    }

    #[test]
    fn floats_round_to_nearest_even() {
        assert_eq!(round_f32(1.0f32.to_bits(), 0), 1.0f32.to_bits());
        assert_eq!(round_f32(1.25f32.to_bits(), 1), 1.0f32.to_bits());
        assert_eq!(round_f32(1.75f32.to_bits(), 1), 2.0f32.to_bits());
        assert_eq!(round_f32((-1.3f32).to_bits(), 1), (-1.5f32).to_bits());
        assert_eq!(round_f32(0.1f32.to_bits(), 23), 0.1f32.to_bits());
        assert_eq!(round_f32(0.1f32.to_bits(), 99), 0.1f32.to_bits());
        assert_eq!(round_f32(f32::MAX.to_bits(), 3), f32::INFINITY.to_bits());
        assert_eq!(round_f32(f32::NEG_INFINITY.to_bits(), 0), f32::NEG_INFINITY.to_bits());
    }

    #[test]
    fn the_samples_next_to_the_text_come_out() {
        let bytes =
            [(0, 0), (1, 1), (10, 10), (11, 12), (100, 96), (123, 128), (200, 192), (208, 192), (209, 224)];
        for (value, rounded) in bytes {
            assert_eq!(round(DataType::UInt8, 3, &[value]), [rounded], "{value}");
        }
        let floats = [(0.1f32, 0.1015625f32), (1.2, 1.25), (12.3, 12.0), (123.4, 120.0), (1234.5, 1280.0)];
        for (value, rounded) in floats {
            assert_eq!(round_f32(value.to_bits(), 3), rounded.to_bits(), "{value}");
        }
    }

    #[test]
    fn a_nan_stays_one() {
        for keep_bits in 0..24 {
            for bits in [0x7fc0_0000, 0xffc0_0000, 0x7fff_ffff, 0xffff_ffff, 0x7f80_0001, 0x7fa0_0000] {
                let rounded = round_f32(bits, keep_bits);
                assert!(f32::from_bits(rounded).is_nan(), "{bits:x} with {keep_bits}: {rounded:x}");
                assert_eq!(rounded >> 31, bits >> 31);
            }
        }
    }

    #[test]
    fn complex_numbers_round_in_both_components() {
        let element = [1.3f32.to_le_bytes(), (-1.1f32).to_le_bytes()].concat();
        let rounded = [1.5f32.to_le_bytes(), (-1.0f32).to_le_bytes()].concat();
        assert_eq!(round(DataType::Complex64, 1, &element), rounded);
    }

    #[test]
    fn integers_round_from_their_first_bit() {
        let cases: [(u8, u8); 8] =
            [(0, 0), (1, 1), (7, 7), (9, 8), (11, 12), (0b1010_1010, 0xa0), (255, 0xe0), (0x78, 0x80)];
        for (value, rounded) in cases {
            assert_eq!(round(DataType::UInt8, 3, &[value]), [rounded], "{value}");
        }
        // 0x78 would round up to the sign; -1 is nearest to 0 of all multiples of 32.
        for (value, rounded) in [(0x78u8, 0x70u8), (0xff, 0), (0x80, 0x80), (0x91, 0xa0), (0x90, 0x80)] {
            assert_eq!(round(DataType::Int8, 3, &[value]), [rounded], "{value}");
        }
        assert_eq!(round(DataType::UInt64, 1, &u64::MAX.to_le_bytes()), (1u64 << 63).to_le_bytes());
        assert_eq!(round(DataType::UInt64, 0, &u64::MAX.to_le_bytes()), [0; 8]);
        assert_eq!(round(DataType::UInt64, 64, &u64::MAX.to_le_bytes()), [0xff; 8]);
    }

    #[test]
    fn decoding_changes_nothing() {
        let codec = array_codec(DataType::Float32, 2).unwrap();
        let element = 0.1f32.to_le_bytes();
        let mut out = [0; 4];
        codec.decode(&element, &mut out).unwrap();
        assert_eq!(out, element);
        assert!(codec.decode(&element, &mut [0; 3]).is_err());
    }

    #[test]
    fn as_a_v2_filter_the_byte_order_is_the_stored_one() {
        let item = |data_type| Items { shape: vec![2], data_type, is_big_endian: true };
        let build = |items: Option<&Items>| {
            let input = CodecInput::Bytes { size: EncodedSize::Exact(8), item_size: 4, items };
            match registry::build(&spec(CodecFamily::V2, "bitround", 1), input).unwrap() {
                Codec::BytesToBytes(codec) => codec,
                _ => panic!("not bytes to bytes"),
            }
        };
        let data = [1.3f32.to_be_bytes(), (-1.1f32).to_be_bytes()].concat();
        let rounded = [1.5f32.to_be_bytes(), (-1.0f32).to_be_bytes()].concat();
        let items = item(DataType::Float32);
        let codec = build(Some(&items));
        assert_eq!(codec.encode(&data).unwrap(), rounded);
        assert_eq!(codec.decode(&data, 8).unwrap(), data);
        assert!(codec.decode(&data, 7).is_err());
        assert_eq!(codec.encoded_items(), Some(&items));
        for items in [None, Some(&item(DataType::Int32))] {
            let codec = build(items);
            assert_eq!(codec.decode(&data, 8).unwrap(), data);
            assert!(codec.encode(&data).is_err());
        }
    }

    #[test]
    fn types_without_bits_to_round_are_refused() {
        assert!(array_codec(DataType::Bool, 1).is_err());
        assert!(array_codec(DataType::Raw(4), 1).is_err());
        let error = array_codec(DataType::Float32, -1).err().unwrap().to_string();
        assert!(error.contains("\"keepbits\" must be an integer from 0"), "{error}");
    }
}
