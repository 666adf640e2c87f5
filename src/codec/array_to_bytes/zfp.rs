//! `zfp`: numbers of 32 and 64 bits in blocks of 4 to the power of the dimensions, lossy or not.
//!
//! Spec: the registered extension "ZFP codec" (a zfp stream without a header: mode, type and shape are the
//! metadata's). 8- and 16-bit integers are shifted up to int32; unsigned integers of 32 and 64 bits are stored as
//! signed ones, as zarrs does. The coder is the `zfp-rs` crate, bit for bit zfp's. `zfpy.rs` is numcodecs' form.
//! Uses `whole_array`.
//!
//! ```json
//! {"name": "zfp", "configuration": {"mode": "fixed_accuracy", "tolerance": 0.05}}
//! ```

use bytemuck::Pod;
use zfp_rs::{
    ZfpBitStream, ZfpBitStreamOps, ZfpBitStreamRef, ZfpConfig, ZfpDimensionality, ZfpField, ZfpFieldMut,
    ZfpHeaderMask, ZfpScalar, ZfpScalarType, ZfpStreamAlignment,
};

use super::whole_array::{ArrayCompressor, NumericArray, build as build_compressor};
use crate::codec::config::Configuration;
use crate::codec::kernels::element::{Element, WideNumber};
use crate::codec::{Codec, CodecEntry, CodecError, CodecResult, Context, scratch};
use crate::metadata::ByteOrder;
use crate::metadata::data_type::exact_number::IntegerFormat;
use crate::metadata::data_type::numeric::{NumericType, with_numeric_type};

/// The codec's names and constructor.
pub const ENTRY: CodecEntry =
    CodecEntry { v3: &["zfp", "zarrs.zfp", "https://codec.zarrs.dev/array_to_bytes/zfp"], v2: &[], build };

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let mut configuration = Configuration::new(context);
    let array = NumericArray::from_input(context)?;
    let blocks = ZfpArray::new(context, &array)?;
    let Some(dims) = blocks.dims else {
        let rank = array.shape.len();
        return Err(CodecError::unsupported(format_args!(
            "codec \"{}\" with chunks of {rank} dimensions",
            context.name
        )));
    };
    let config = read_config(&mut configuration, &blocks, dims)?;
    configuration.finish()?;
    Ok(build_compressor(context, Zfp { blocks, config }, array.size_bytes))
}

/// Reads the members that `mode` decides.
fn read_config(
    configuration: &mut Configuration<'_>,
    blocks: &ZfpArray,
    dims: [usize; 4],
) -> CodecResult<ZfpConfig> {
    let modes = ["reversible", "fixed_accuracy", "fixed_rate", "fixed_precision", "expert"].map(|m| (m, m));
    let mode = configuration.choice("mode", &modes)?;
    let mut whole = |key: &'static str, range: std::ops::RangeInclusive<i64>| {
        let number = configuration.integer(key, range)?;
        configuration.require(key, number)
    };
    let unsigned = 0..=i64::from(u32::MAX);
    match mode {
        Some("reversible") => Ok(ZfpConfig::reversible()),
        Some("fixed_accuracy") => {
            let tolerance = configuration.number("tolerance")?;
            Ok(ZfpConfig::fixed_accuracy(configuration.require("tolerance", tolerance)?))
        }
        Some("fixed_rate") => {
            let rate = configuration.number("rate")?;
            let rate = configuration.require("rate", rate)?;
            blocks.fixed_rate(rate, dims).map_err(|error| configuration.error("rate", error))
        }
        Some("fixed_precision") => {
            let precision = whole("precision", unsigned)?;
            Ok(ZfpConfig::fixed_precision(u32::try_from(precision).unwrap_or(u32::MAX)))
        }
        Some(_) => {
            let [min_bits, max_bits, max_prec] = [
                whole("minbits", unsigned.clone())?,
                whole("maxbits", unsigned.clone())?,
                whole("maxprec", unsigned)?,
            ]
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            let min_exp = whole("minexp", i64::from(i32::MIN)..=i64::from(i32::MAX))?;
            ZfpConfig::expert(min_bits, max_bits, max_prec, i32::try_from(min_exp).unwrap_or(0))
                .map_err(|error| configuration.error("mode", error))
        }
        None => Err(configuration.error("mode", "is required")),
    }
}

struct Zfp {
    blocks: ZfpArray,
    config: ZfpConfig,
}

impl ArrayCompressor for Zfp {
    // The reversible mode is lossless except for shifted integers of 8 and 16 bits. That is not distinguished here.
    fn is_lossless(&self) -> bool {
        false
    }

    fn limit_bytes(&self) -> u64 {
        self.blocks.limit_bytes(&self.config)
    }

    fn decode(&self, encoded: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let header = self.blocks.dims.map(|dims| ZfpHeader { dims, config: self.config });
        self.blocks.decode(encoded, header, out)
    }

    fn encode(&self, input: &[u8]) -> CodecResult<Vec<u8>> {
        self.blocks.encode(input, &self.config, false)
    }
}

/// An array as zfp sees it.
#[derive(Clone, Debug)]
pub struct ZfpArray {
    /// The type of the array's elements.
    numeric_type: NumericType,
    /// The type that zfp codes.
    scalar: ZfpScalarType,
    /// Lengths, fastest first, 0 for missing dimensions; `None` for more than four dimensions.
    pub dims: Option<[usize; 4]>,
    /// Elements of the array.
    count: usize,
}

/// The parameters that decoding a stream requires.
#[derive(Clone, Copy, Debug)]
pub struct ZfpHeader {
    /// As [`ZfpArray::dims`].
    pub dims: [usize; 4],
    /// The mode.
    pub config: ZfpConfig,
}

/// Converts zfp's error.
fn failed(error: impl std::fmt::Display) -> CodecError {
    CodecError::new(error)
}

impl ZfpArray {
    /// Returns the array, if zfp codes its type of elements.
    pub fn new(context: &Context<'_>, array: &NumericArray) -> CodecResult<ZfpArray> {
        let scalar = match array.numeric_type {
            NumericType::I8 | NumericType::U8 | NumericType::I16 | NumericType::U16 => ZfpScalarType::I32,
            NumericType::I32 | NumericType::U32 => ZfpScalarType::I32,
            NumericType::I64 | NumericType::U64 => ZfpScalarType::I64,
            NumericType::F32 => ZfpScalarType::F32,
            NumericType::F64 => ZfpScalarType::F64,
            NumericType::Bool | NumericType::F16 | NumericType::C64 | NumericType::C128 => {
                let (name, numeric_type) = (context.name, array.numeric_type);
                return Err(CodecError::unsupported(format_args!(
                    "codec \"{name}\" for {numeric_type:?} elements"
                )));
            }
        };
        let count = array.size_bytes / array.numeric_type.size();
        Ok(ZfpArray { numeric_type: array.numeric_type, scalar, dims: dims(&array.shape), count })
    }

    /// Returns the configuration of fixed-rate mode.
    pub fn fixed_rate(&self, rate: f64, dims: [usize; 4]) -> CodecResult<ZfpConfig> {
        let dimensionality = match dims {
            [_, 0, _, _] => ZfpDimensionality::D1,
            [_, _, 0, _] => ZfpDimensionality::D2,
            [_, _, _, 0] => ZfpDimensionality::D3,
            _ => ZfpDimensionality::D4,
        };
        ZfpConfig::fixed_rate(rate, self.scalar, dimensionality, ZfpStreamAlignment::Unaligned)
            .map_err(failed)
    }

    /// Returns an upper bound of the encoded bytes, whatever the mode. ZfpArray at the edges are padded, so that many
    /// short dimensions make the encoding longer than the array.
    pub fn limit_bytes(&self, config: &ZfpConfig) -> u64 {
        let dims = self.dims.unwrap_or([self.count, 0, 0, 0]);
        let size = |config: &ZfpConfig| config.maximum_size(self.scalar, dims).unwrap_or(0) as u64;
        size(config).max(size(&ZfpConfig::reversible()))
    }

    /// Decodes into exactly `out.len()` bytes; what `known` leaves out must be in the stream's own header.
    pub fn decode(&self, encoded: &[u8], header: Option<ZfpHeader>, out: &mut [u8]) -> CodecResult<()> {
        let words = match encoded.len() % 8 {
            0 => ZfpBitStreamRef::from_bytes(encoded),
            _ => None,
        };
        match words {
            Some(mut stream) => self.decode_stream(&mut stream, header, out),
            // A partial word is padded, and unaligned data is moved.
            None => {
                let mut stream = ZfpBitStream::from_bytes(encoded).map_err(failed)?;
                self.decode_stream(&mut stream, header, out)
            }
        }
    }

    fn decode_stream(
        &self,
        stream: &mut impl ZfpBitStreamOps,
        header: Option<ZfpHeader>,
        out: &mut [u8],
    ) -> CodecResult<()> {
        let header = match header {
            Some(header) => header,
            None => self.read_header(stream)?,
        };
        let lengths = header.dims.iter().take_while(|&&length| length > 0);
        let count = lengths.fold(1usize, |count, &length| count.saturating_mul(length));
        if count != self.count {
            let expected = self.count;
            return Err(CodecError::new(format_args!("{count} elements where {expected} were expected")));
        }
        match self.scalar {
            ZfpScalarType::I32 => self.decode_scalars::<i32>(stream, header, out),
            ZfpScalarType::I64 => self.decode_scalars::<i64>(stream, header, out),
            ZfpScalarType::F32 => self.decode_scalars::<f32>(stream, header, out),
            ZfpScalarType::F64 => self.decode_scalars::<f64>(stream, header, out),
        }
    }

    fn read_header(&self, stream: &mut impl ZfpBitStreamOps) -> CodecResult<ZfpHeader> {
        let header = stream.read_header(ZfpHeaderMask::FULL).map_err(failed)?;
        let (Some(field), Some(config)) = (header.metadata, header.config) else {
            return Err(CodecError::new("the stream has no header"));
        };
        if field.scalar_type != self.scalar {
            let (found, expected) = (field.scalar_type, self.scalar);
            return Err(CodecError::new(format_args!("{found:?} where {expected:?} was expected")));
        }
        Ok(ZfpHeader { dims: field.dims, config })
    }

    fn decode_scalars<T: ZfpScalar + Pod + Element + Scalar>(
        &self,
        stream: &mut impl ZfpBitStreamOps,
        header: ZfpHeader,
        out: &mut [u8],
    ) -> CodecResult<()> {
        let mut decode = |scalars: &mut [T]| {
            let mut field = ZfpFieldMut::new(scalars, header.dims).map_err(failed)?;
            stream.decompress(&header.config, &mut field).map_err(failed).map(|_| ())
        };
        if T::NUMERIC_TYPE == self.numeric_type
            && cfg!(target_endian = "little")
            && let Ok(scalars) = bytemuck::try_cast_slice_mut(out)
        {
            return decode(scalars);
        }
        let mut bytes = scratch::zeroed(self.count.saturating_mul(T::SIZE).saturating_add(T::SIZE))?;
        let (_, scalars, _) = bytemuck::pod_align_to_mut::<u8, T>(&mut bytes);
        let scalars = scalars.get_mut(..self.count).ok_or_else(|| CodecError::new("no room"))?;
        decode(scalars)?;
        for (scalar, out) in scalars.iter().zip(out.chunks_exact_mut(self.numeric_type.size())) {
            scalar.demote(self.numeric_type, out);
        }
        Ok(())
    }

    /// Encodes the array's bytes.
    pub fn encode(&self, input: &[u8], config: &ZfpConfig, with_header: bool) -> CodecResult<Vec<u8>> {
        match self.scalar {
            ZfpScalarType::I32 => self.encode_scalars::<i32>(input, config, with_header),
            ZfpScalarType::I64 => self.encode_scalars::<i64>(input, config, with_header),
            ZfpScalarType::F32 => self.encode_scalars::<f32>(input, config, with_header),
            ZfpScalarType::F64 => self.encode_scalars::<f64>(input, config, with_header),
        }
    }

    fn encode_scalars<T: ZfpScalar + Pod + Element + Scalar>(
        &self,
        input: &[u8],
        config: &ZfpConfig,
        with_header: bool,
    ) -> CodecResult<Vec<u8>> {
        let dims = self.dims.ok_or_else(|| CodecError::new("zfp takes at most 4 dimensions"))?;
        let elements = input.chunks_exact(self.numeric_type.size());
        let promoted: Option<Vec<T>> = if T::NUMERIC_TYPE == self.numeric_type {
            Some(elements.map(|bytes| T::read(bytes, ByteOrder::Little)).collect())
        } else {
            elements.map(|bytes| T::promote(self.numeric_type, bytes)).collect()
        };
        let scalars =
            promoted.ok_or_else(|| CodecError::new("an integer too large for zfp's signed type"))?;
        let field = ZfpField::new(&scalars, dims).map_err(failed)?;
        let capacity = config.maximum_size(self.scalar, dims);
        let capacity = capacity.ok_or_else(|| CodecError::new("the array is too large for zfp"))?;
        let mut stream = ZfpBitStream::new(capacity).map_err(failed)?;
        if with_header {
            stream.write_header(config, &field.metadata(), ZfpHeaderMask::FULL).map_err(failed)?;
        }
        stream.compress(config, &field).map_err(failed)?;
        Ok(stream.as_bytes().to_vec())
    }
}

/// Returns the lengths, fastest first. A single element has one dimension.
fn dims(shape: &[u64]) -> Option<[usize; 4]> {
    let mut dims = [0; 4];
    for (to, from) in dims.iter_mut().zip(shape.iter().rev()) {
        *to = usize::try_from(*from).ok()?;
    }
    match shape.len() {
        0 => Some([1, 0, 0, 0]),
        1..=4 => Some(dims),
        _ => None,
    }
}

/// A type that zfp codes. Elements of other types are converted to and from it: those of 8 and 16 bits by zfp's own promotion.
trait Scalar: Sized {
    /// Returns the scalar for an element; `None` if it does not fit.
    fn promote(numeric_type: NumericType, bytes: &[u8]) -> Option<Self>;
    /// Writes the element that is nearest to the scalar.
    fn demote(self, numeric_type: NumericType, bytes: &mut [u8]);
}

/// Reads an integer of any type.
fn read_integer(numeric_type: NumericType, bytes: &[u8]) -> i128 {
    let number = with_numeric_type!(numeric_type, T => T::read(bytes, ByteOrder::Little).widen());
    match number {
        WideNumber::Int(number) => number.into(),
        WideNumber::UInt(number) => number.into(),
        WideNumber::Float(_) | WideNumber::Complex(..) => 0,
    }
}

macro_rules! integer_scalar {
    ($($T:ident)*) => {$(
        impl Scalar for $T {
            fn promote(numeric_type: NumericType, bytes: &[u8]) -> Option<Self> {
                let (bias, shift) = promotion(numeric_type);
                $T::try_from((read_integer(numeric_type, bytes) - bias) << shift).ok()
            }
            fn demote(self, numeric_type: NumericType, bytes: &mut [u8]) {
                let (bias, shift) = promotion(numeric_type);
                let (low, high) = numeric_type.data_type().integer_format().map_or((0, 0), IntegerFormat::range);
                // Unsigned integers are stored as signed ones of this type.
                let high = high.min($T::MAX.into());
                let number = ((i128::from(self) >> shift) + bias).clamp(low, high);
                with_numeric_type!(numeric_type, T => {
                    T::narrow(WideNumber::Int(number as i64)).write(bytes, ByteOrder::Little)
                });
            }
        }
    )*};
}
integer_scalar! { i32 i64 }

/// Returns the bias that is subtracted from an integer, and the bits by which the difference is then shifted up.
fn promotion(numeric_type: NumericType) -> (i128, u32) {
    match numeric_type {
        NumericType::I8 => (0, 23),
        NumericType::U8 => (0x80, 23),
        NumericType::I16 => (0, 15),
        NumericType::U16 => (0x8000, 15),
        _ => (0, 0),
    }
}

macro_rules! float_scalar {
    ($($T:ident)*) => {$(
        impl Scalar for $T {
            fn promote(_: NumericType, bytes: &[u8]) -> Option<Self> {
                Some($T::read(bytes, ByteOrder::Little))
            }
            fn demote(self, _: NumericType, bytes: &mut [u8]) {
                self.write(bytes, ByteOrder::Little);
            }
        }
    )*};
}
float_scalar! { f32 f64 }

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::codec::{ArrayToBytes, CodecInput, Representation, registry};
    use crate::metadata::{CodecFamily, FillValue};
    use proptest::prelude::*;

    const NUMERIC_TYPES: [NumericType; 10] = [
        NumericType::I8,
        NumericType::I16,
        NumericType::I32,
        NumericType::I64,
        NumericType::U8,
        NumericType::U16,
        NumericType::U32,
        NumericType::U64,
        NumericType::F32,
        NumericType::F64,
    ];

    fn codec(
        name: &str,
        json: &str,
        numeric_type: NumericType,
        shape: &[u64],
    ) -> CodecResult<Box<dyn ArrayToBytes>> {
        let configuration = serde_json::from_str(json).unwrap();
        let array = Representation {
            shape: shape.to_vec(),
            data_type: numeric_type.data_type(),
            fill_value: FillValue { bytes: vec![0; numeric_type.size()], is_undefined: false },
        };
        let input = CodecInput::Array(&array);
        let context = Context { family: CodecFamily::V3, name, configuration: &configuration, input };
        // "zfpy" is numcodecs' form of the codec.
        match (registry::find(CodecFamily::V3, name).unwrap().build)(&context)? {
            Codec::ArrayToBytes(codec) => Ok(codec),
            _ => panic!(),
        }
    }

    const REVERSIBLE: &str = r#"{"mode": "reversible"}"#;

    #[test]
    fn modes() {
        let data: Vec<u8> = (0..60).flat_map(|i| (i as f32 * 0.3).sin().to_le_bytes()).collect();
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        for (json, error) in [
            (REVERSIBLE, 0.0),
            (r#"{"mode": "fixed_accuracy", "tolerance": 0.01}"#, 0.01),
            (r#"{"mode": "fixed_rate", "rate": 16}"#, 0.01),
            (r#"{"mode": "fixed_precision", "precision": 20}"#, 0.001),
            (r#"{"mode": "expert", "minbits": 1, "maxbits": 16658, "maxprec": 64, "minexp": -10}"#, 0.01),
        ] {
            let codec = codec("zfp", json, NumericType::F32, &[3, 4, 5]).unwrap();
            let encoded = codec.encode(&data).unwrap();
            let mut out = vec![0xa5; 240];
            codec.decode(&encoded, &mut out).unwrap();
            for (one, two) in floats(&out).into_iter().zip(floats(&data)) {
                assert!((one - two).abs() <= error, "{json}: {one} {two}");
            }
            assert!(codec.decode(&encoded[..8], &mut out).is_err(), "{json}");
            assert!(codec.decode(&encoded, &mut [0; 236]).is_err(), "{json}");
        }
        for json in
            ["{}", r#"{"mode": "fixed_rate"}"#, r#"{"mode": "fixed_rate", "rate": -1}"#, r#"{"mode": 4}"#]
        {
            assert!(codec("zfp", json, NumericType::F32, &[3]).is_err(), "{json}");
        }
        assert!(codec("zfp", REVERSIBLE, NumericType::F16, &[3]).is_err());
        assert!(codec("zfp", REVERSIBLE, NumericType::F32, &[1; 5]).is_err());
    }

    #[test]
    fn unsigned_integers_beyond_the_signed_ones() {
        let codec = codec("zfp", REVERSIBLE, NumericType::U32, &[1]).unwrap();
        assert!(codec.encode(&u32::MAX.to_le_bytes()).is_err());
        assert!(codec.encode(&i32::MAX.to_le_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn reversible_round_trip_and_damage(
            numeric_type in 0..NUMERIC_TYPES.len(),
            shape in prop::collection::vec(1u64..6, 0..5),
            bytes in prop::collection::vec(any::<u8>(), 5000),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let numeric_type = NUMERIC_TYPES[numeric_type];
            let length = shape.iter().product::<u64>() as usize * numeric_type.size();
            let mut data = bytes[..length].to_vec();
            if matches!(numeric_type, NumericType::U32 | NumericType::U64) {
                data.chunks_exact_mut(numeric_type.size()).for_each(|item| item[numeric_type.size() - 1] &= 0x7f);
            }
            for (name, json) in [("zfp", REVERSIBLE), ("numcodecs.zfpy", "{}")] {
                let codec = codec(name, json, numeric_type, &shape).unwrap();
                let mut encoded = codec.encode(&data).unwrap();
                prop_assert!(encoded.len() as u64 <= codec.encoded_size().limit_bytes());
                let mut out = vec![0xa5; length];
                codec.decode(&encoded, &mut out).unwrap();
                prop_assert_eq!(&out, &data);
                for (at, byte) in &flips {
                    let at = at.index(encoded.len());
                    encoded[at] = *byte;
                }
                let _ = codec.decode(&encoded, &mut out);
                encoded.truncate(cut.index(encoded.len() + 1));
                let _ = codec.decode(&encoded, &mut out);
            }
        }
    }
}
