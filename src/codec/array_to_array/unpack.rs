//! `unpack`: the numbers that packed elements stand for, in front of the codecs of the stored array. No document names it: it
//! makes the view `unpacked`, which is only read.
//!
//! Spec: CF conventions, 8.1 "Packed Data"; `metadata/conventions/packing.rs` reads the attributes. Decoding gives
//! `element × scale_factor + add_offset` in float64, each operation rounded separately, and NaN for missing elements. Without
//! both factors it gives the element itself, in a float type that has all of them. Uses `metadata` and `kernels`.

use serde_json::{Map, Value, json};

use crate::codec::config::Configuration;
use crate::codec::kernels::dtype::computed_type;
use crate::codec::kernels::element::{Element, WideNumber};
use crate::codec::{
    ArrayToArray, Codec, CodecEntry, CodecError, CodecInput, CodecResult, Context, Representation,
};
use crate::metadata::conventions::packing::Packed;
use crate::metadata::data_type::numeric::{NumericType, with_numeric_type};
use crate::metadata::{ByteOrder, CodecFamily, CodecSpec, DataType, FillValue, parse_data_type_v3};

/// Its name.
const NAME: &str = "unpack";

/// The codec in the registry.
pub const ENTRY: CodecEntry = CodecEntry { v3: &[NAME], v2: &[], build };

/// From packed elements to numbers.
type UnpackKernel = Box<dyn Fn(&[u8], &mut [u8]) + Send + Sync>;

/// The codec for one representation.
struct Unpack {
    encoded: Representation,
    kernel: UnpackKernel,
}

/// Returns the codec of an array with stored elements of this type and this fill value.
pub fn spec(packed: &Packed, stored: &DataType, fill_value: &FillValue) -> CodecSpec {
    let bits = |factor: Option<f64>| factor.map(f64::to_bits);
    let configuration = json!({
        "stored": stored.name(),
        "read_as": packed.read_as.name(),
        "fill_value": fill_value.bytes,
        "is_undefined": fill_value.is_undefined,
        "scale_factor_bits": bits(packed.scale_factor),
        "add_offset_bits": bits(packed.add_offset),
        "missing": packed.missing,
    });
    CodecSpec {
        family: CodecFamily::View,
        name: NAME.to_owned(),
        configuration: configuration.as_object().cloned().unwrap_or_default(),
        must_understand: true,
        place: "packing attributes".to_owned(),
    }
}

/// Returns the bytes of the number that a stored element stands for. Fails if the codec cannot be built.
pub fn unpacked_element(spec: &CodecSpec, packed: &Packed, element: &[u8]) -> CodecResult<Vec<u8>> {
    let one = Representation {
        shape: vec![1],
        data_type: packed.unpacked.clone(),
        fill_value: FillValue::zeros(&packed.unpacked),
    };
    let unpack = Unpack::new(&spec.configuration, &one)?;
    let mut number = vec![0; one.item_size()?];
    unpack.decode(element, &mut number)?;
    Ok(number)
}

fn build(context: &Context<'_>) -> CodecResult<Codec> {
    let CodecInput::Array(input) = context.input else {
        return Err(Configuration::new(context).error("stored", "needs an array"));
    };
    Ok(Codec::ArrayToArray(Box::new(Unpack::new(context.configuration, input)?)))
}

impl Unpack {
    fn new(configuration: &Map<String, Value>, decoded: &Representation) -> CodecResult<Self> {
        let wrong = || CodecError::new("its configuration is not one of a view");
        let member = |name: &str| configuration.get(name).ok_or_else(wrong);
        let data_type = |name| parse_data_type_v3(member(name)?).map_err(CodecError::new);
        let factor = |name| Ok(member(name)?.as_u64().map(f64::from_bits));
        let (stored, read_as) = (data_type("stored")?, data_type("read_as")?);
        let missing = member("missing")?.as_array().ok_or_else(wrong)?;
        let missing: Vec<Vec<u8>> = missing.iter().map(bytes).collect::<Option<_>>().ok_or_else(wrong)?;
        let fill_value = FillValue {
            bytes: bytes(member("fill_value")?).ok_or_else(wrong)?,
            is_undefined: member("is_undefined")?.as_bool().ok_or_else(wrong)?,
        };
        let from = type_in_memory(&read_as).ok_or_else(wrong)?;
        let to = type_in_memory(&decoded.data_type).ok_or_else(wrong)?;
        let (scale, offset) = (factor("scale_factor_bits")?, factor("add_offset_bits")?);
        let encoded = Representation { shape: decoded.shape.clone(), data_type: stored, fill_value };
        if encoded.item_size()? != from.size() || encoded.fill_value.bytes.len() != from.size() {
            return Err(wrong());
        }
        let kernel = match (scale, offset) {
            // These change no number, -0 included.
            (Some(_), _) | (_, Some(_)) => with_numeric_type!(from, T => {
                let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(-0.0));
                scaled::<T>(elements(&missing), scale, offset)
            }),
            (None, None) if from == to => {
                with_numeric_type!(from, T => masked_in_place::<T>(elements(&missing)))
            }
            (None, None) if to == NumericType::F32 => {
                with_numeric_type!(from, T => masked::<T, f32>(elements(&missing), f32::NAN))
            }
            (None, None) if to == NumericType::F64 => {
                with_numeric_type!(from, T => masked::<T, f64>(elements(&missing), f64::NAN))
            }
            _ => return Err(wrong()),
        };
        Ok(Unpack { encoded, kernel })
    }
}

/// Reads a list of bytes.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_array()?.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect()
}

/// Returns the type of elements as they lie in memory.
fn type_in_memory(data_type: &DataType) -> Option<NumericType> {
    data_type.numeric_type().or_else(|| computed_type(data_type))
}

fn elements<T: Element>(bytes: &[Vec<u8>]) -> Vec<T> {
    bytes.iter().map(|bytes| T::read(bytes, ByteOrder::Little)).collect()
}

/// Computes `element × scale + offset`.
fn scaled<T: Element + Send + Sync>(missing: Vec<T>, scale: f64, offset: f64) -> UnpackKernel {
    Box::new(move |input, out| {
        for (element, number) in input.chunks_exact(T::SIZE).zip(out.chunks_exact_mut(f64::SIZE)) {
            let element = T::read(element, ByteOrder::Little);
            let value = if missing.contains(&element) {
                f64::NAN
            } else {
                f64::narrow(element.widen()) * scale + offset
            };
            value.write(number, ByteOrder::Little);
        }
    })
}

/// Converts the element to another float.
fn masked<T: Element + Send + Sync, F: Element + Send + Sync>(missing: Vec<T>, nan: F) -> UnpackKernel {
    Box::new(move |input, out| {
        for (element, number) in input.chunks_exact(T::SIZE).zip(out.chunks_exact_mut(F::SIZE)) {
            let element = T::read(element, ByteOrder::Little);
            let value = if missing.contains(&element) { nan } else { F::narrow(element.widen()) };
            value.write(number, ByteOrder::Little);
        }
    })
}

/// Copies the element with all its bits.
fn masked_in_place<T: Element + Send + Sync>(missing: Vec<T>) -> UnpackKernel {
    let nan = T::narrow(WideNumber::Float(f64::NAN));
    Box::new(move |input, out| {
        out.copy_from_slice(input);
        if missing.is_empty() {
            return;
        }
        for element in out.chunks_exact_mut(T::SIZE) {
            if missing.contains(&T::read(element, ByteOrder::Little)) {
                nan.write(element, ByteOrder::Little);
            }
        }
    })
}

impl ArrayToArray for Unpack {
    // A view is not written.
    fn is_lossless(&self) -> bool {
        false
    }

    fn encoded(&self) -> &Representation {
        &self.encoded
    }

    fn decode(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let from = self.encoded.item_size()?;
        let count = input.len() / from.max(1);
        if !input.len().is_multiple_of(from.max(1)) || (count > 0 && !out.len().is_multiple_of(count)) {
            return Err(CodecError::new(format_args!("{} bytes do not become {}", input.len(), out.len())));
        }
        (self.kernel)(input, out);
        Ok(())
    }

    fn encode(&self, _: &[u8], _: &mut [u8]) -> CodecResult<()> {
        Err(CodecError::unsupported("packing: a view is read-only"))
    }

    fn is_elementwise(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn unpacked(packed: &Packed, stored: &DataType, element: &[u8]) -> Vec<u8> {
        let spec = spec(packed, stored, &FillValue::zeros(stored));
        unpacked_element(&spec, packed, element).unwrap()
    }

    #[test]
    fn scaled_and_masked() {
        let packed = Packed {
            read_as: DataType::UInt8,
            unpacked: DataType::Float64,
            scale_factor: Some(0.1),
            add_offset: Some(-5.0),
            missing: vec![vec![255]],
        };
        let number =
            |byte: u8| f64::from_le_bytes(unpacked(&packed, &DataType::Int8, &[byte]).try_into().unwrap());
        assert_eq!(number(3), 3.0 * 0.1 - 5.0);
        assert_eq!(number(254), 254.0 * 0.1 - 5.0, "read as unsigned");
        assert!(number(255).is_nan());
    }

    #[test]
    fn masked_alone() {
        let packed = Packed {
            read_as: DataType::Int16,
            unpacked: DataType::Float32,
            scale_factor: None,
            add_offset: None,
            missing: vec![vec![0, 128]],
        };
        let number = |value: i16| {
            unpacked(&packed, &DataType::Int16, &value.to_le_bytes()).try_into().map(f32::from_le_bytes)
        };
        assert_eq!(number(-7).unwrap(), -7.0);
        assert!(number(i16::MIN).unwrap().is_nan());
        let floats =
            Packed { read_as: DataType::Float32, missing: vec![1.5f32.to_le_bytes().to_vec()], ..packed };
        let signalling = 0x7f80_0001u32.to_le_bytes();
        assert_eq!(unpacked(&floats, &DataType::Float32, &signalling), signalling, "bits are kept");
        assert_eq!(unpacked(&floats, &DataType::Float32, &1.5f32.to_le_bytes()), f32::NAN.to_le_bytes());
    }

    #[test]
    fn minus_zero_stays() {
        let packed = Packed {
            read_as: DataType::Float64,
            unpacked: DataType::Float64,
            scale_factor: Some(2.0),
            add_offset: None,
            missing: Vec::new(),
        };
        assert_eq!(unpacked(&packed, &DataType::Float64, &(-0.0f64).to_le_bytes()), (-0.0f64).to_le_bytes());
    }
}
