//! `packbits`: the elements' bits one after another, least significant first, without gaps.
//!
//! Spec: zarr-extensions, codecs/packbits. Not numcodecs' codec of that name, which packs bools from the most
//! significant bit on. Uses `metadata`.
//!
//! ```json
//! {"name": "packbits", "configuration": {"padding_encoding": "first_byte", "first_bit": 0, "last_bit": 3}}
//! ```
//!
//! `padding_encoding` is `none`, `first_byte` or `last_byte`; the schema in the same folder says `start_byte` and
//! `end_byte`, which are aliases here. The type's bits from `first_bit` to `last_bit` are kept. Decoding
//! sets the others to 0, except that a signed integer is extended with copies of its last bit.

use crate::codec::config::Configuration;
use crate::codec::{
    ArrayToBytes, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, EncodedSize,
};
use crate::metadata::DataType;
use crate::metadata::data_type::exact_number::ScalarFormat;

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &["packbits"], v2: &[], build };

/// The place of the number of padding bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PaddingEncoding {
    None,
    FirstByte,
    LastByte,
}

const PADDING_ENCODINGS: [(&str, PaddingEncoding); 5] = [
    ("none", PaddingEncoding::None),
    ("first_byte", PaddingEncoding::FirstByte),
    ("last_byte", PaddingEncoding::LastByte),
    ("start_byte", PaddingEncoding::FirstByte),
    ("end_byte", PaddingEncoding::LastByte),
];

/// A component of an element as this codec sees it.
#[derive(Clone, Copy)]
struct PackedComponent {
    /// Its significant bits, which are the lowest ones of its bytes.
    bits: u32,
    /// Bytes in memory.
    width: usize,
    /// Components of an element.
    count: usize,
    is_signed: bool,
}

impl PackedComponent {
    fn new(data_type: &DataType) -> Option<PackedComponent> {
        let format = match data_type {
            DataType::DateTime64(_) | DataType::TimeDelta64(_) => DataType::Int64.number_format()?,
            _ => data_type.number_format()?,
        };
        let (bits, is_signed) = match format.scalar {
            ScalarFormat::Integer(integer) => (integer.bits, integer.is_signed),
            ScalarFormat::Float(float) => (float.bits(), false),
        };
        Some(PackedComponent { bits, width: format.scalar.width(), count: format.components, is_signed })
    }
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let CodecInput::Array(input) = context.input else {
        return Err(CodecError::new("codec \"packbits\" needs an array as input, but got bytes"));
    };
    let Some(component) = PackedComponent::new(&input.data_type) else {
        let name = input.data_type.name();
        return Err(CodecError::new(format_args!("codec \"packbits\" is not for {name}")));
    };
    let mut configuration = Configuration::new(context);
    let padding = configuration.choice("padding_encoding", &PADDING_ENCODINGS)?;
    let top = i64::from(component.bits) - 1;
    let first_bit = configuration.integer("first_bit", 0..=top)?.unwrap_or(0);
    let last_bit = configuration.integer("last_bit", 0..=top)?.unwrap_or(top);
    if last_bit < first_bit {
        return Err(configuration.error("last_bit", format_args!("must be at least {first_bit}")));
    }
    configuration.finish()?;
    let too_long = || CodecError::new("codec \"packbits\": the chunk has too many elements");
    let components = input
        .shape
        .iter()
        .try_fold(component.count as u64, |product, &length| product.checked_mul(length))
        .ok_or_else(too_long)?;
    // Both fit u32: they are between 0 and 63.
    let (first_bit, last_bit) = (first_bit as u32, last_bit as u32);
    let kept_bits = last_bit - first_bit + 1;
    let total_bits = components.checked_mul(u64::from(kept_bits)).ok_or_else(too_long)?;
    let components = usize::try_from(components).map_err(|_| too_long())?;
    let packed_bytes = usize::try_from(total_bits.div_ceil(8)).map_err(|_| too_long())?;
    Ok(Codec::ArrayToBytes(Box::new(PackBits {
        component,
        components,
        first_bit,
        kept_bits,
        padding: padding.unwrap_or(PaddingEncoding::None),
        packed_bytes,
        padding_bits: (total_bits.next_multiple_of(8) - total_bits) as u8,
    })))
}

struct PackBits {
    component: PackedComponent,
    /// Elements in a chunk.
    components: usize,
    first_bit: u32,
    kept_bits: u32,
    padding: PaddingEncoding,
    /// Encoded bytes without the padding byte.
    packed_bytes: usize,
    padding_bits: u8,
}

impl PackBits {
    /// Returns whether packing leaves every byte as it is.
    fn keeps_all(&self) -> bool {
        self.kept_bits as usize == self.component.width * 8
    }

    fn check_length(&self, what: &str, found: usize, expected: usize) -> CodecResult<()> {
        if found == expected {
            Ok(())
        } else {
            Err(CodecError::new(format_args!(
                "codec \"packbits\": {found} bytes {what}, where {expected} were expected"
            )))
        }
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.kept_bits)
    }

    fn pack<const N: usize>(&self, input: &[u8], out: &mut Vec<u8>) {
        let (components, _) = input.as_chunks::<N>();
        let mask = self.mask();
        // At most 7 bits wait for a full byte, and at most 64 are added.
        let (mut waiting, mut waiting_bits) = (0u128, 0);
        for bytes in components {
            let code = bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
            waiting |= u128::from(code >> self.first_bit & mask) << waiting_bits;
            waiting_bits += self.kept_bits;
            while waiting_bits >= 8 {
                out.push(waiting as u8);
                waiting >>= 8;
                waiting_bits -= 8;
            }
        }
        if waiting_bits > 0 {
            out.push(waiting as u8);
        }
    }

    fn unpack<const N: usize>(&self, packed: &[u8], out: &mut [u8]) {
        let (components, _) = out.as_chunks_mut::<N>();
        let mask = self.mask();
        // The bits above those kept, of a signed number.
        let above = 64 - self.kept_bits;
        let mut packed = packed.iter();
        let (mut waiting, mut waiting_bits) = (0u128, 0);
        for out in components {
            while waiting_bits < self.kept_bits {
                let Some(&byte) = packed.next() else { return };
                waiting |= u128::from(byte) << waiting_bits;
                waiting_bits += 8;
            }
            let kept = waiting as u64 & mask;
            waiting >>= self.kept_bits;
            waiting_bits -= self.kept_bits;
            let code = if self.component.is_signed {
                ((kept << above).cast_signed() >> above).cast_unsigned()
            } else {
                kept
            };
            *out = (code << self.first_bit).to_le_bytes().first_chunk::<N>().copied().unwrap_or([0; N]);
        }
    }
}

impl ArrayToBytes for PackBits {
    // Bits that are not packed are lost. So are those that an element of less than a byte does not use.
    fn is_lossless(&self) -> bool {
        self.keeps_all()
    }

    fn encoded_size(&self) -> EncodedSize {
        let extra = u64::from(self.padding != PaddingEncoding::None);
        EncodedSize::Exact(self.packed_bytes as u64 + extra)
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        self.check_length("of elements", out.len(), self.components * self.component.width)?;
        let (padding_bits, packed) = match (self.padding, encoded) {
            (PaddingEncoding::FirstByte, [padding_bits, packed @ ..])
            | (PaddingEncoding::LastByte, [packed @ .., padding_bits]) => (*padding_bits, packed),
            _ => (self.padding_bits, encoded),
        };
        self.check_length("of packed bits", packed.len(), self.packed_bytes)?;
        if padding_bits != self.padding_bits {
            return Err(CodecError::new(format_args!(
                "codec \"packbits\": {padding_bits} padding bits, where {} were expected",
                self.padding_bits
            )));
        }
        match self.component.width {
            _ if self.keeps_all() => out.copy_from_slice(packed),
            1 => self.unpack::<1>(packed, out),
            2 => self.unpack::<2>(packed, out),
            4 => self.unpack::<4>(packed, out),
            _ => self.unpack::<8>(packed, out),
        }
        Ok(())
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        self.check_length("of elements", input.len(), self.components * self.component.width)?;
        let mut out = Vec::with_capacity(self.packed_bytes + 1);
        if self.padding == PaddingEncoding::FirstByte {
            out.push(self.padding_bits);
        }
        match self.component.width {
            _ if self.keeps_all() => out.extend_from_slice(input),
            1 => self.pack::<1>(input, &mut out),
            2 => self.pack::<2>(input, &mut out),
            4 => self.pack::<4>(input, &mut out),
            _ => self.pack::<8>(input, &mut out),
        }
        if self.padding == PaddingEncoding::LastByte {
            out.push(self.padding_bits);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{Representation, registry};
    use crate::metadata::{CodecFamily, CodecSpec, FillValue};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn codec(data_type: DataType, elements: u64, configuration: Value) -> CodecResult<Box<dyn ArrayToBytes>> {
        let spec = CodecSpec {
            family: CodecFamily::V3,
            name: "packbits".to_owned(),
            configuration: configuration.as_object().unwrap().clone(),
            must_understand: true,
            place: "codecs[0]".to_owned(),
        };
        let fill_value = FillValue { bytes: vec![0; data_type.item_size().unwrap()], is_undefined: false };
        let input = Representation { shape: vec![elements], data_type, fill_value };
        match registry::build(&spec, CodecInput::Array(&input))? {
            Codec::ArrayToBytes(codec) => Ok(codec),
            _ => panic!("not array to bytes"),
        }
    }

    fn round_trip(data_type: DataType, configuration: Value, elements: &[u8], packed: &[u8]) {
        let count = (elements.len() / data_type.item_size().unwrap()) as u64;
        let codec = codec(data_type, count, configuration).unwrap();
        assert_eq!(codec.encode(elements).unwrap(), packed);
        assert_eq!(codec.encoded_size(), EncodedSize::Exact(packed.len() as u64));
        let mut out = vec![0xaa; elements.len()];
        codec.decode(packed, &mut out).unwrap();
        assert_eq!(out, elements);
    }

    #[test]
    fn bools_from_the_least_significant_bit() {
        let bools = [1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0];
        round_trip(DataType::Bool, json!({}), &bools, &[0x81, 0x03]);
        round_trip(DataType::Bool, json!({"padding_encoding": "none"}), &bools[..8], &[0x81]);
        round_trip(DataType::Bool, json!({"padding_encoding": "first_byte"}), &bools, &[5, 0x81, 0x03]);
        round_trip(DataType::Bool, json!({"padding_encoding": "last_byte"}), &bools, &[0x81, 0x03, 5]);
        round_trip(DataType::Bool, json!({"padding_encoding": "end_byte"}), &bools[..8], &[0x81, 0]);
        round_trip(DataType::Bool, json!({}), &[], &[]);
        round_trip(DataType::Bool, json!({"padding_encoding": "start_byte"}), &[], &[0]);
    }

    #[test]
    fn small_types_share_bytes() {
        round_trip(DataType::UInt2, json!({}), &[3, 0, 1, 2, 1], &[0b1001_0011, 1]);
        round_trip(DataType::Int4, json!({}), &[0xff, 7, 0xf8], &[0x7f, 0x08]);
        round_trip(DataType::Int2, json!({}), &[0xff, 0xfe, 1], &[0b01_1011]);
        round_trip(DataType::Float6E2M3Fn, json!({}), &[0x3f, 0, 0x3f, 1], &[0x3f, 0xf0, 0x07]);
    }

    #[test]
    fn a_range_of_bits() {
        let int16 = |values: &[i16]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        round_trip(DataType::Int16, json!({"last_bit": 3}), &int16(&[-1, 7, -8]), &[0x7f, 0x08]);
        let of = json!({"first_bit": 4, "last_bit": 7});
        round_trip(DataType::Int16, of, &int16(&[-16, 0x70, -128]), &[0x7f, 0x08]);
        round_trip(DataType::UInt8, json!({"first_bit": 7}), &[128, 0, 128], &[5]);
        let wide = [u64::MAX >> 1, 1, 5].map(u64::to_le_bytes).concat();
        let packed = codec(DataType::UInt64, 3, json!({"last_bit": 62})).unwrap().encode(&wide).unwrap();
        assert_eq!(packed.len(), (63 * 3usize).div_ceil(8));
        round_trip(DataType::UInt64, json!({"last_bit": 62}), &wide, &packed);
        // Both components of a complex number, each with its own range.
        let complex = [0x0001_0000u32, 0x0003_0000].map(u32::to_le_bytes).concat();
        round_trip(DataType::Complex64, json!({"first_bit": 16, "last_bit": 17}), &complex, &[0b1101]);
        round_trip(
            DataType::Complex64,
            json!({"padding_encoding": "first_byte"}),
            &complex,
            &[0, 0, 0, 1, 0, 0, 0, 3, 0],
        );
    }

    #[test]
    fn wrong_lengths_and_padding_are_errors() {
        let codec = codec(DataType::Bool, 11, json!({"padding_encoding": "first_byte"})).unwrap();
        let decode = |encoded: &[u8]| codec.decode(encoded, &mut [0; 11]).map_err(|error| error.to_string());
        assert!(decode(&[5, 0x81, 0x03]).is_ok());
        // The content of the padding bits is ignored.
        assert!(decode(&[5, 0x81, 0xfb]).is_ok());
        assert!(decode(&[4, 0x81, 0x03]).unwrap_err().contains("4 padding bits, where 5 were expected"));
        for bad in [&[][..], &[5], &[5, 1], &[5, 1, 2, 3]] {
            assert!(decode(bad).unwrap_err().contains("where 2 were expected"));
        }
        assert!(codec.decode(&[5, 1, 2], &mut [0; 12]).is_err());
        assert!(codec.encode(&[0; 10]).is_err());
    }

    #[test]
    fn bad_configurations_are_refused() {
        let bad = [
            (DataType::UInt8, json!({"first_bit": 3, "last_bit": 2}), "\"last_bit\" must be at least 3"),
            (DataType::UInt8, json!({"last_bit": 8}), "\"last_bit\" must be an integer from 0 to 7"),
            (DataType::UInt8, json!({"padding_encoding": "both"}), "\"padding_encoding\" must be one of"),
            (DataType::UInt8, json!({"bits": 8}), "\"bits\" is a member"),
            (DataType::Raw(2), json!({}), "is not for r16"),
        ];
        for (data_type, configuration, reason) in bad {
            let error = codec(data_type, 4, configuration).err().unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(codec(DataType::UInt64, u64::MAX, json!({})).is_err());
        assert!(codec(DataType::Complex64, u64::MAX, json!({})).is_err());
    }

    proptest! {
        #[test]
        fn bit_by_bit(data in prop::collection::vec(any::<u8>(), 0..70), first: u32, last: u32, choice in 0..4usize) {
            let (data_type, bits) = [
                (DataType::UInt8, 8), (DataType::UInt16, 16), (DataType::UInt32, 32), (DataType::UInt64, 64),
            ][choice].clone();
            let (first, last) = ((first % bits).min(last % bits), (first % bits).max(last % bits));
            let width = bits as usize / 8;
            let data = &data[..data.len() / width * width];
            let codec = codec(data_type, (data.len() / width) as u64, json!({"first_bit": first, "last_bit": last})).unwrap();
            let mut naive: Vec<u8> = Vec::new();
            let mut at = 0;
            let mut masked = vec![0; data.len()];
            for element in 0..data.len() / width {
                for bit in first as usize..=last as usize {
                    let from = element * width * 8 + bit;
                    let set = data[from / 8] >> (from % 8) & 1;
                    masked[from / 8] |= set << (from % 8);
                    if at % 8 == 0 { naive.push(0); }
                    *naive.last_mut().unwrap() |= set << (at % 8);
                    at += 1;
                }
            }
            prop_assert_eq!(&codec.encode(data).unwrap(), &naive);
            let mut out = vec![0x55; data.len()];
            codec.decode(&naive, &mut out).unwrap();
            prop_assert_eq!(out, masked);
        }
    }
}
