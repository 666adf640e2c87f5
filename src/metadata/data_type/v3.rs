//! Data types as v3 names them: `"float32"`, `{"name": "numpy.datetime64", "configuration": {…}}`.
//!
//! Spec: v3 "Data types", and the registered extensions: bfloat16, the float8 family and smaller, complex numbers of them, int2 to uint4,
//! numpy.datetime64, numpy.timedelta64, fixed_length_utf32, struct and the older structured, string, bytes. The names
//! null_terminated_bytes and raw_bytes are zarr-python's. Uses `data_type`, `codec_spec`, `json`.

use serde_json::{Map, Value};

use super::numeric::NUMBER_FORMATS;
use super::{DataType, Field, OPTIONAL, TimeUnit, VariableLength};
use crate::metadata::codec_spec::extension;
use crate::metadata::json;
use crate::metadata::json::parse_error::{ParseError, ParseResult};

/// Reads v3's `data_type`. Types without a fixed size become [`DataType::VariableLength`]. Unknown types are
/// unsupported, even with `must_understand: false`.
pub fn parse(value: &Value) -> ParseResult<DataType> {
    let data_type = any(value)?;
    data_type.check()?;
    Ok(data_type)
}

/// The type of an array's elements.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementType {
    /// The type; of optional elements that of their values.
    pub data_type: DataType,
    /// Whether elements may be null: the proposed type "optional".
    pub is_optional: bool,
}

/// Reads v3's `data_type` of an array. It is [`parse`], and in addition elements that are a value of one size or null.
pub fn parse_element_type(value: &Value) -> ParseResult<ElementType> {
    let whole = extension(value)?;
    if OPTIONAL.contains(&whole.name) {
        let values = value.get("configuration").map(parse);
        if let Some(Ok(data_type)) = values
            && data_type.item_size().is_some()
        {
            return Ok(ElementType { data_type, is_optional: true });
        }
    }
    Ok(ElementType { data_type: parse(value)?, is_optional: false })
}

fn any(value: &Value) -> ParseResult<DataType> {
    let extension = extension(value)?;
    let empty = Map::new();
    let configuration = extension.configuration.unwrap_or(&empty);
    configured(extension.name, configuration).map_err(|error| match error {
        // The message names the type already.
        ParseError::Unsupported(_) => error,
        ParseError::Invalid(_) => error.within("configuration").within(json::shown_text(extension.name)),
    })
}

fn configured(name: &str, configuration: &Map<String, Value>) -> ParseResult<DataType> {
    match name {
        "numpy.datetime64" => Ok(DataType::DateTime64(time_unit(configuration)?)),
        "numpy.timedelta64" => Ok(DataType::TimeDelta64(time_unit(configuration)?)),
        "null_terminated_bytes" => Ok(DataType::NullTerminatedBytes(length_bytes(configuration)?)),
        "raw_bytes" => Ok(DataType::Raw(length_bytes(configuration)?)),
        "fixed_length_utf32" => match length_bytes(configuration)? {
            length if length.is_multiple_of(4) => Ok(DataType::FixedLengthUtf32(length / 4)),
            length => Err(ParseError::invalid(format_args!("length_bytes: {length} is not a multiple of 4"))),
        },
        "struct" | "structured" => {
            json::refuse_unknown(configuration, &["fields"])?;
            let fields = json::required(configuration, "fields")?;
            let items = json::list(fields).map_err(|error| error.within("fields"))?;
            items.iter().map(field).collect::<ParseResult<_>>().map(DataType::Struct)
        }
        // The configuration, which is not read here, has the type that is optional.
        name if OPTIONAL.contains(&name) => {
            Ok(DataType::VariableLength(VariableLength::Other(OPTIONAL[0].to_owned())))
        }
        _ => {
            let data_type = by_name(name).ok_or_else(|| {
                ParseError::unsupported(format_args!("the data type {}", json::shown_text(name)))
            })?;
            json::refuse_unknown(configuration, &[])?;
            Ok(data_type)
        }
    }
}

/// Returns the data type with a v3 name that needs no configuration.
pub fn by_name(name: &str) -> Option<DataType> {
    use DataType::*;
    if let Some(bits) = name.strip_prefix('r') {
        let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: usize = bits.parse().ok().filter(|_| is_number)?;
        return (bits > 0 && bits.is_multiple_of(8)).then_some(Raw(bits / 8));
    }
    Some(match name {
        "complex_float32" => Complex64,
        "complex_float64" => Complex128,
        "string" | "variable_length_utf8" => DataType::VariableLength(self::VariableLength::Utf8),
        // The second name is that of older versions of the zarrs crate.
        "bytes" | "binary" | "variable_length_bytes" => DataType::VariableLength(self::VariableLength::Bytes),
        _ => NUMBER_FORMATS.iter().find(|format| format.name == name)?.data_type.clone(),
    })
}

fn length_bytes(configuration: &Map<String, Value>) -> ParseResult<usize> {
    json::refuse_unknown(configuration, &["length_bytes"])?;
    let length = json::unsigned(json::required(configuration, "length_bytes")?);
    let length = length.map_err(|error| error.within("length_bytes"))?;
    usize::try_from(length).map_err(|_| ParseError::invalid("length_bytes: too large"))
}

fn time_unit(configuration: &Map<String, Value>) -> ParseResult<TimeUnit> {
    json::refuse_unknown(configuration, &["unit", "scale_factor"])?;
    let unit = json::text(json::required(configuration, "unit")?).map_err(|error| error.within("unit"))?;
    let scale_factor = json::required(configuration, "scale_factor")?;
    let scale_factor = json::unsigned(scale_factor).map_err(|error| error.within("scale_factor"))?;
    TimeUnit::new(unit, scale_factor)
}

/// Reads a field: `{"name", "data_type"}`, or the older pair.
fn field(value: &Value) -> ParseResult<Field> {
    let (name, data_type) = match value.as_array().map(Vec::as_slice) {
        Some([name, data_type]) => (name, data_type),
        Some(_) => return Err(ParseError::invalid("fields: a field must be an object or a pair")),
        None => {
            let members = json::object(value).map_err(|error| error.within("fields"))?;
            json::refuse_unknown(members, &["name", "data_type"])?;
            (json::required(members, "name")?, json::required(members, "data_type")?)
        }
    };
    let name = json::name(name).map_err(|error| error.within("fields: name"))?;
    if name.is_empty() {
        return Err(ParseError::invalid("fields: a name is empty"));
    }
    let data_type = any(data_type).map_err(|error| error.within(json::shown_text(name)))?;
    Ok(Field { name: name.to_owned(), data_type, shape: Vec::new() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::metadata::ByteOrder;
    use serde_json::json;

    const NAMES: [(&str, usize); 42] = [
        ("bool", 1),
        ("int2", 1),
        ("int4", 1),
        ("int8", 1),
        ("int16", 2),
        ("int32", 4),
        ("int64", 8),
        ("uint2", 1),
        ("uint4", 1),
        ("uint8", 1),
        ("uint16", 2),
        ("uint32", 4),
        ("uint64", 8),
        ("float4_e2m1fn", 1),
        ("float6_e2m3fn", 1),
        ("float6_e3m2fn", 1),
        ("float8_e3m4", 1),
        ("float8_e4m3", 1),
        ("float8_e4m3fn", 1),
        ("float8_e4m3b11fnuz", 1),
        ("float8_e4m3fnuz", 1),
        ("float8_e5m2", 1),
        ("float8_e5m2fnuz", 1),
        ("float8_e8m0fnu", 1),
        ("float16", 2),
        ("bfloat16", 2),
        ("float32", 4),
        ("float64", 8),
        ("complex_float4_e2m1fn", 2),
        ("complex_float6_e2m3fn", 2),
        ("complex_float6_e3m2fn", 2),
        ("complex_float8_e3m4", 2),
        ("complex_float8_e4m3", 2),
        ("complex_float8_e4m3b11fnuz", 2),
        ("complex_float8_e4m3fnuz", 2),
        ("complex_float8_e5m2", 2),
        ("complex_float8_e5m2fnuz", 2),
        ("complex_float8_e8m0fnu", 2),
        ("complex_float16", 4),
        ("complex_bfloat16", 4),
        ("complex64", 8),
        ("complex128", 16),
    ];

    #[test]
    fn names_and_sizes() {
        for (name, size) in NAMES.into_iter().chain([("r8", 1), ("r24", 3)]) {
            for value in [json!(name), json!({"name": name}), json!({"name": name, "configuration": {}})] {
                let data_type = parse(&value).unwrap();
                assert_eq!((data_type.name().as_ref(), data_type.item_size()), (name, Some(size)));
            }
        }
        assert_eq!(parse(&json!("complex_float32")).unwrap(), DataType::Complex64);
        assert_eq!(parse(&json!("complex_float64")).unwrap(), DataType::Complex128);
    }

    #[test]
    fn numpy_names() {
        for (name, descr) in [
            ("bfloat16", "|V2"),
            ("complex_bfloat16", "|V4"),
            ("complex_float8_e5m2", "|V2"),
            ("float8_e5m2", "|V1"),
            ("int4", "|i1"),
            ("uint2", "|u1"),
            ("r24", "|V3"),
        ] {
            assert_eq!(parse(&json!(name)).unwrap().numpy_descr(ByteOrder::Big), json!(descr));
        }
        for (name, descr) in [("complex128", ">c16"), ("bool", "|b1"), ("float16", ">f2")] {
            assert_eq!(parse(&json!(name)).unwrap().numpy_descr(ByteOrder::Big), json!(descr));
        }
    }

    #[test]
    fn configured_types() {
        let configured =
            |name: &str, configuration: Value| parse(&json!({"name": name, "configuration": configuration}));
        let data_type = configured("numpy.datetime64", json!({"unit": "μs", "scale_factor": 10})).unwrap();
        assert_eq!(data_type.numpy_descr(ByteOrder::Little), json!("<M8[10us]"));
        let data_type =
            configured("numpy.timedelta64", json!({"unit": "generic", "scale_factor": 1})).unwrap();
        assert_eq!(data_type.numpy_descr(ByteOrder::Little), json!("<m8"));
        assert_eq!(
            configured("fixed_length_utf32", json!({"length_bytes": 12})),
            Ok(DataType::FixedLengthUtf32(3))
        );
        assert_eq!(
            configured("null_terminated_bytes", json!({"length_bytes": 5})),
            Ok(DataType::NullTerminatedBytes(5))
        );
        assert_eq!(configured("raw_bytes", json!({"length_bytes": 4})), Ok(DataType::Raw(4)));
        for (name, configuration) in [
            ("fixed_length_utf32", json!({"length_bytes": 13})),
            ("fixed_length_utf32", json!({})),
            ("raw_bytes", json!({"length_bytes": -4})),
            ("raw_bytes", json!({"length_bytes": 0})),
            ("raw_bytes", json!({"length_bytes": u64::MAX})),
            ("raw_bytes", json!({"length_bits": 32})),
            ("numpy.datetime64", json!({"unit": "ns"})),
            ("numpy.datetime64", json!({"unit": "fortnight", "scale_factor": 1})),
            ("numpy.datetime64", json!({"unit": "ns", "scale_factor": 1u64 << 31})),
            ("float32", json!({"endian": "big"})),
        ] {
            assert!(configured(name, configuration.clone()).is_err(), "{name} {configuration}");
        }
    }

    #[test]
    fn structs_old_and_new() {
        let new = json!({"name": "struct", "configuration": {"fields": [
            {"name": "x", "data_type": "float32"},
            {"name": "p", "data_type": {"name": "struct", "configuration": {"fields": [{"name": "t", "data_type": "int8"}]}}}]}});
        let old = json!({"name": "structured", "configuration": {"fields": [
            ["x", "float32"], ["p", {"name": "structured", "configuration": {"fields": [["t", "int8"]]}}]]}});
        let data_type = parse(&new).unwrap();
        assert_eq!(parse(&old).unwrap(), data_type);
        assert_eq!(data_type.numpy_descr(ByteOrder::Big), json!([["x", ">f4"], ["p", [["t", "|i1"]]]]));
        for (fields, reason) in [
            (json!([]), "a struct without fields"),
            (json!([["x", "int8"], ["x", "int8"]]), "two fields are named \"x\""),
            (json!([["", "int8"]]), "\"struct\": configuration: fields: a name is empty"),
            (json!([["x", "string"]]), "\"x\": a field of variable length has no flat form"),
            (json!([["x", "int7"]]), "\"x\": the data type \"int7\""),
            (json!([["x"]]), "\"struct\": configuration: fields: a field must be an object or a pair"),
        ] {
            let value = json!({"name": "struct", "configuration": {"fields": fields}});
            assert_eq!(parse(&value).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn types_without_a_fixed_size_parse() {
        for (value, name) in [
            (json!("string"), "string"),
            (json!("variable_length_utf8"), "string"),
            (json!("bytes"), "variable_length_bytes"),
            (json!("binary"), "variable_length_bytes"),
            (json!("variable_length_bytes"), "variable_length_bytes"),
            (
                json!({"name": "optional", "configuration": {"name": "uint8", "configuration": {}}}),
                "optional",
            ),
        ] {
            let data_type = parse(&value).unwrap();
            assert_eq!((data_type.name().as_ref(), data_type.item_size()), (name, None));
            assert_eq!(data_type.components(), None);
        }
    }

    #[test]
    fn unknown_types_are_unsupported_whatever_they_say() {
        for value in [
            json!("float128"),
            json!("r12"),
            json!("r"),
            json!("r0"),
            json!("r+8"),
            json!({"name": "zeta", "must_understand": false}),
        ] {
            assert!(matches!(parse(&value).unwrap_err(), ParseError::Unsupported(_)), "{value}");
        }
        for value in [json!(null), json!(["int8"]), json!({"configuration": {}})] {
            assert!(matches!(parse(&value).unwrap_err(), ParseError::Invalid(_)), "{value}");
        }
    }
}
