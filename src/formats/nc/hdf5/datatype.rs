//! Datatype messages, which describe the type of elements.
//!
//! Spec: HDF5 File Format Specification 3.0, section IV.A.2.d. Uses `metadata`.
//!
//! A Zarr type has a datatype only if HDF5 gives its bytes the same meaning: minifloats with IEEE 754's infinities and NaN have one, other
//! minifloats and UTF-32 do not. A bool is an unsigned byte, because most programs know no other form. Times are integers, and complex numbers
//! are the compound of `r` and `i` that h5py introduced.

use crate::metadata::data_type::Field;
use crate::metadata::data_type::exact_number::{FloatFormat, ScalarFormat, Specials};
use crate::metadata::data_type::numeric::NumberFormat;
use crate::metadata::{ByteOrder, DataType};

/// The longest datatype message that is made.
const MAX_BYTES: usize = 32 << 10;

/// Classes of datatypes, with the version of the encoding in the upper four bits.
mod class {
    pub const FIXED_POINT: u8 = 0x10;
    pub const FLOATING_POINT: u8 = 0x11;
    pub const STRING: u8 = 0x13;
    pub const OPAQUE: u8 = 0x15;
    pub const COMPOUND: u8 = 0x36;
    pub const REFERENCE: u8 = 0x17;
    pub const ENUMERATION: u8 = 0x38;
    pub const VARIABLE_LENGTH: u8 = 0x19;
    pub const ARRAY: u8 = 0x3a;
}

/// The character set ASCII.
const ASCII: u8 = 0;
/// The character set UTF-8.
const UTF_8: u8 = 1;
/// The padding of a string with a NUL at its end.
const NULL_TERMINATED: u8 = 0;
/// The padding of a string that ends where its NULs begin.
const NULL_PADDED: u8 = 1;

/// One member of a compound.
pub struct CompoundMember<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its offset in the element.
    pub offset: usize,
    /// The type of its value.
    pub datatype: Vec<u8>,
}

/// Returns the datatype of the elements of an array, in the byte order in which they are served; `None` if HDF5 does not have it.
pub fn for_type(data_type: &DataType, order: ByteOrder) -> Option<Vec<u8>> {
    use DataType::*;
    let datatype = match data_type {
        DateTime64(_) | TimeDelta64(_) => fixed_point(8, true, order),
        Raw(bytes) => opaque(u32::try_from(*bytes).ok()?),
        NullTerminatedBytes(bytes) => fixed_string(u32::try_from(*bytes).ok()?, true),
        Struct(fields) => structure(data_type, fields, order)?,
        FixedLengthUtf32(_) | VariableLength(_) => return None,
        _ => number(data_type.number_format()?, order)?,
    };
    (datatype.len() <= MAX_BYTES).then_some(datatype)
}

/// Returns the head of a datatype: class, class bits and size.
fn head(class: u8, class_bits: [u8; 3], size: u32) -> Vec<u8> {
    let mut bytes = vec![class];
    bytes.extend(class_bits);
    bytes.extend(size.to_le_bytes());
    bytes
}

fn order_bit(order: ByteOrder) -> u8 {
    match order {
        ByteOrder::Little => 0,
        ByteOrder::Big => 1,
    }
}

/// Returns the datatype "Fixed-Point Numbers (Integers)".
pub fn fixed_point(size: u8, is_signed: bool, order: ByteOrder) -> Vec<u8> {
    const SIGNED: u8 = 0b1000;
    let sign = if is_signed { SIGNED } else { 0 };
    let mut bytes = head(class::FIXED_POINT, [order_bit(order) | sign, 0, 0], size.into());
    let (bit_offset, bit_precision) = (0u16, u16::from(size) * 8);
    bytes.extend(bit_offset.to_le_bytes());
    bytes.extend(bit_precision.to_le_bytes());
    bytes
}

/// Returns the datatype "Floating-Point Numbers": a sign, an exponent and a mantissa with an implied highest bit, from the highest bit down.
pub fn floating_point(exponent_bits: u8, mantissa_bits: u8, bias: u32, order: ByteOrder) -> Vec<u8> {
    const HIGHEST_BIT_IS_IMPLIED: u8 = 0b10_0000;
    let (sign_location, bits) = (exponent_bits + mantissa_bits, exponent_bits + mantissa_bits + 1);
    let class_bits = [order_bit(order) | HIGHEST_BIT_IS_IMPLIED, sign_location, 0];
    let mut bytes = head(class::FLOATING_POINT, class_bits, u32::from(bits / 8));
    let (bit_offset, bit_precision) = (0u16, u16::from(bits));
    bytes.extend(bit_offset.to_le_bytes());
    bytes.extend(bit_precision.to_le_bytes());
    let (exponent_location, mantissa_location) = (mantissa_bits, 0);
    bytes.extend([exponent_location, exponent_bits, mantissa_location, mantissa_bits]);
    bytes.extend(bias.to_le_bytes());
    bytes
}

/// Returns a float that is as IEEE 754 would have it, and fills its bytes.
fn ieee_float(float: FloatFormat, order: ByteOrder) -> Option<Vec<u8>> {
    if float.specials != Specials::Ieee || !float.bits().is_multiple_of(8) {
        return None;
    }
    let (exponent_bits, mantissa_bits) = (float.exponent_bits as u8, float.mantissa_bits as u8);
    Some(floating_point(exponent_bits, mantissa_bits, u32::try_from(float.bias).ok()?, order))
}

/// Returns the datatype of a numeric type.
fn number(format: &NumberFormat, order: ByteOrder) -> Option<Vec<u8>> {
    let size = format.scalar.width() as u8;
    match format.scalar {
        ScalarFormat::Integer(integer) => Some(fixed_point(size, integer.is_signed, order)),
        // The complex types that readers of HDF5 know.
        ScalarFormat::Float(float) if format.components == 2 => {
            complex(ieee_float(float, order).filter(|_| size >= 4)?, size)
        }
        ScalarFormat::Float(float) => ieee_float(float, order),
    }
}

/// Returns the datatype "Strings" with a fixed number of bytes.
pub fn fixed_string(size: u32, is_ascii: bool) -> Vec<u8> {
    let character_set = if is_ascii { ASCII } else { UTF_8 };
    head(class::STRING, [NULL_PADDED | character_set << 4, 0, 0], size)
}

/// Returns the datatype "Strings" in ASCII with a NUL at the end, which is counted in `size`.
pub fn terminated_string(size: u32) -> Vec<u8> {
    head(class::STRING, [NULL_TERMINATED | ASCII << 4, 0, 0], size)
}

/// Returns the datatype "Opaque", without a tag.
fn opaque(size: u32) -> Vec<u8> {
    head(class::OPAQUE, [0; 3], size)
}

/// Returns the datatype "Reference" to an object: the address of its header.
pub fn object_reference() -> Vec<u8> {
    const OBJECT: u8 = 0;
    head(class::REFERENCE, [OBJECT, 0, 0], 8)
}

/// The size of a reference to an element of variable length: its length and its place in the global heap.
pub const VARIABLE_LENGTH_BYTES: u32 = 16;

/// Returns the datatype "Variable-Length": a sequence of references.
pub fn sequence_of_references() -> Vec<u8> {
    sequence_of(&object_reference())
}

/// Returns the datatype "Variable-Length": a sequence of bytes.
pub fn sequence_of_bytes() -> Vec<u8> {
    sequence_of(&fixed_point(1, false, ByteOrder::Little))
}

fn sequence_of(datatype: &[u8]) -> Vec<u8> {
    const SEQUENCE: u8 = 0;
    let mut bytes = head(class::VARIABLE_LENGTH, [SEQUENCE, 0, 0], VARIABLE_LENGTH_BYTES);
    bytes.extend(datatype);
    bytes
}

/// Returns the datatype "Enumeration" of h5py's truth values: `FALSE` and `TRUE` in a signed byte.
pub fn truth_value() -> Vec<u8> {
    const MEMBERS: [(&str, u8); 2] = [("FALSE", 0), ("TRUE", 1)];
    let mut bytes = head(class::ENUMERATION, [MEMBERS.len() as u8, 0, 0], 1);
    bytes.extend(fixed_point(1, true, ByteOrder::Little));
    for (name, _) in MEMBERS {
        bytes.extend(name.as_bytes());
        bytes.push(0);
    }
    bytes.extend(MEMBERS.map(|(_, value)| value));
    bytes
}

/// Returns the datatype "Variable-Length": a string in UTF-8.
pub fn variable_string() -> Vec<u8> {
    const STRING: u8 = 1;
    let mut bytes =
        head(class::VARIABLE_LENGTH, [STRING | NULL_TERMINATED << 4, UTF_8, 0], VARIABLE_LENGTH_BYTES);
    bytes.extend(fixed_point(1, false, ByteOrder::Little));
    bytes
}

/// Returns the datatype "Compound": members at their offsets in an element of `size` bytes.
pub fn compound(size: u32, members: &[CompoundMember<'_>]) -> Option<Vec<u8>> {
    let [low, high] = u16::try_from(members.len()).ok()?.to_le_bytes();
    let mut bytes = head(class::COMPOUND, [low, high, 0], size);
    // Offsets take as few bytes as the size needs.
    let offset_bytes = (u32::BITS - size.leading_zeros()).div_ceil(8).max(1) as usize;
    for member in members {
        bytes.extend(member.name.as_bytes());
        bytes.push(0);
        bytes.extend(member.offset.to_le_bytes().iter().take(offset_bytes));
        bytes.extend(&member.datatype);
        if bytes.len() > MAX_BYTES {
            return None;
        }
    }
    Some(bytes)
}

fn complex(part: Vec<u8>, part_bytes: u8) -> Option<Vec<u8>> {
    let real = CompoundMember { name: "r", offset: 0, datatype: part.clone() };
    let imaginary = CompoundMember { name: "i", offset: part_bytes.into(), datatype: part };
    compound(2 * u32::from(part_bytes), &[real, imaginary])
}

/// Returns the datatype of a struct. Bytes without a member are padding.
fn structure(data_type: &DataType, fields: &[Field], order: ByteOrder) -> Option<Vec<u8>> {
    let (mut offset, mut members) = (0, Vec::new());
    for field in fields {
        let size = field.size()?;
        if !field.name.is_empty() {
            if field.name.contains('\0') || size == 0 {
                return None;
            }
            let datatype = array_of(for_type(&field.data_type, order)?, &field.shape, size)?;
            members.push(CompoundMember { name: &field.name, offset, datatype });
        }
        offset += size;
    }
    let size = u32::try_from(data_type.item_size()?).ok()?;
    if members.is_empty() { None } else { compound(size, &members) }
}

/// Returns the datatype "Array": elements of a shape inside an element.
pub fn array_of(datatype: Vec<u8>, shape: &[u64], size: usize) -> Option<Vec<u8>> {
    if shape.is_empty() {
        return Some(datatype);
    }
    let mut bytes = head(class::ARRAY, [0; 3], u32::try_from(size).ok()?);
    bytes.push(u8::try_from(shape.len()).ok()?);
    for &length in shape {
        bytes.extend(u32::try_from(length).ok()?.to_le_bytes());
    }
    bytes.extend(datatype);
    Some(bytes)
}

/// The size of an element of [`referrer`] in bytes.
pub const REFERRER_BYTES: u32 = 16;

/// Returns the datatype of an object and the number of one of its dimensions, laid out as in the memory of HDF5's library.
pub fn referrer() -> Option<Vec<u8>> {
    let dataset = CompoundMember { name: "dataset", offset: 0, datatype: object_reference() };
    let dimension =
        CompoundMember { name: "dimension", offset: 8, datatype: fixed_point(4, false, ByteOrder::Little) };
    compound(REFERRER_BYTES, &[dataset, dimension])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metadata::parse_data_type_v3;
    use serde_json::{Value, json};

    fn datatype(name: Value, order: ByteOrder) -> Option<Vec<u8>> {
        for_type(&parse_data_type_v3(&name).unwrap(), order)
    }

    #[test]
    fn numbers() {
        // As HDF5's library writes H5T_STD_I16BE and H5T_IEEE_F32LE.
        assert_eq!(
            datatype(json!("int16"), ByteOrder::Big).unwrap(),
            [0x10, 0x09, 0, 0, 2, 0, 0, 0, 0, 0, 16, 0]
        );
        let f4 = [0x11, 0x20, 0x1f, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];
        assert_eq!(datatype(json!("float32"), ByteOrder::Little).unwrap(), f4);
        assert_eq!(datatype(json!("bool"), ByteOrder::Little), datatype(json!("uint8"), ByteOrder::Little));
    }

    #[test]
    fn types_that_hdf5_lacks() {
        for name in ["float8_e4m3fn", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "string"] {
            assert_eq!(datatype(json!(name), ByteOrder::Little), None, "{name}");
        }
        for name in ["float8_e4m3", "float8_e3m4", "float8_e5m2", "float16", "bfloat16"] {
            assert!(datatype(json!(name), ByteOrder::Little).is_some(), "{name}");
        }
        let utf32 = json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}});
        assert_eq!(datatype(utf32, ByteOrder::Little), None);
    }

    #[test]
    fn compounds() {
        let fields = json!({"name": "struct", "configuration": {"fields": [
            {"name": "a", "data_type": "uint8"}, {"name": "b", "data_type": "int16"}]}});
        let bytes = datatype(fields, ByteOrder::Little).unwrap();
        assert_eq!(bytes.get(..8).unwrap(), [0x36, 2, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes.get(8..11).unwrap(), [b'a', 0, 0], "the name, and an offset of one byte");
        assert_eq!(bytes.len(), 8 + 2 * (3 + 12));
        let many: Vec<Value> =
            (0..5000).map(|n| json!({"name": n.to_string(), "data_type": "uint8"})).collect();
        let many = json!({"name": "struct", "configuration": {"fields": many}});
        assert_eq!(datatype(many, ByteOrder::Little), None, "longer than a message may be");
    }
}
