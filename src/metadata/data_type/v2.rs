//! Data types as v1 and v2 name them: NumPy's `"<f4"`, and `[["x", "<f4"], ["y", ">i2", [2, 2]]]` for structs.
//!
//! Spec: v2 "Data type encoding", v1 "Data type encoding"; NumPy, "The array interface protocol". Uses `data_type`, `json`,
//! and `v3` for the names that NumPy does not have (tensorstore writes `"bfloat16"`).

use serde_json::Value;

use super::numeric::NumericType;
use super::v3;
use super::{ByteOrder, Component, DataType, Field, TimeUnit, repeat_components};
use crate::metadata::json;
use crate::metadata::json::parse_error::{ParseError, ParseResult};

/// A data type and how a v1 or v2 array stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDataType {
    /// The type.
    pub data_type: DataType,
    /// The components that are stored big-endian.
    pub big_endian: Vec<Component>,
}

/// The type that a v2 `dtype` names.
#[derive(Clone, Debug, PartialEq)]
pub enum Dtype {
    /// Elements of a fixed size.
    Fixed(StoredDataType),
    /// `|O`: the filters decide what is stored.
    Object,
}

/// Reads v1's and v2's `dtype`.
pub fn parse(value: &Value) -> ParseResult<Dtype> {
    if value.as_str().is_some_and(|text| text.trim_start_matches(['|', '<', '>', '=']) == "O") {
        return Ok(Dtype::Object);
    }
    let stored = any(value)?;
    stored.data_type.check()?;
    Ok(Dtype::Fixed(stored))
}

impl StoredDataType {
    /// Returns the byte order of all components that have one; `None` if they differ.
    pub fn byte_order(&self) -> Option<ByteOrder> {
        if self.big_endian.is_empty() {
            return Some(ByteOrder::Little);
        }
        let bytes =
            |runs: &mut dyn Iterator<Item = &Component>| runs.map(|run| run.width * run.count).sum::<usize>();
        let all = self.data_type.components().unwrap_or_default();
        let wide = bytes(&mut all.iter().filter(|run| run.width > 1));
        (bytes(&mut self.big_endian.iter()) == wide).then_some(ByteOrder::Big)
    }
}

fn any(value: &Value) -> ParseResult<StoredDataType> {
    match value {
        Value::String(text) => simple(text),
        Value::Array(fields) => structure(fields),
        _ => Err(ParseError::invalid(format_args!(
            "must be a string or a list of fields, not {}",
            json::shown(value)
        ))),
    }
}

fn simple(text: &str) -> ParseResult<StoredDataType> {
    let unknown = || ParseError::unsupported(format_args!("the dtype {}", json::shown_text(text)));
    let (order, code) = match text.strip_prefix(['<', '>', '|', '=']) {
        Some(code) => (text.chars().next(), code),
        None => (None, text),
    };
    let Some(kind) = code.chars().next().filter(char::is_ascii) else { return Err(unknown()) };
    let rest = code.get(1..).unwrap_or_default();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (size, unit) = rest.split_at(digits);
    let length = || size.parse::<usize>().ok().filter(|_| unit.is_empty());
    use DataType::*;
    let data_type = match kind {
        'm' | 'M' if size == "8" => {
            let unit = time_unit(unit).map_err(|error| error.within(json::shown_text(text)))?;
            Some(if kind == 'M' { DateTime64(unit) } else { TimeDelta64(unit) })
        }
        'S' | 'a' => length().map(NullTerminatedBytes),
        'U' => length().map(FixedLengthUtf32),
        'V' => length().map(Raw),
        _ => NumericType::ALL.into_iter().find(|it| it.numpy_code() == code).map(NumericType::data_type),
    };
    let extended = || v3::by_name(text).filter(|_| order.is_none());
    let data_type =
        data_type.or_else(extended).filter(|found| found.item_size().is_some()).ok_or_else(unknown)?;
    // NumPy writes no order, `|` or `=` for bytes. Careless writers also do so for other types and mean the order of
    // their machine, which today is little-endian.
    let is_big = order == Some('>');
    let swapped =
        data_type.components().unwrap_or_default().into_iter().filter(|run| is_big && run.width > 1);
    Ok(StoredDataType { big_endian: swapped.collect(), data_type })
}

/// Reads the unit of a time: `[10ns]`, or nothing for the generic unit.
fn time_unit(text: &str) -> ParseResult<TimeUnit> {
    if text.is_empty() {
        return TimeUnit::new("generic", 1);
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inner = inner.ok_or_else(|| ParseError::invalid("the unit must be in brackets"))?;
    let unit = inner.trim_start_matches(|c: char| c.is_ascii_digit());
    let scale = inner.strip_suffix(unit).unwrap_or_default();
    let scale = if scale.is_empty() { Some(1) } else { scale.parse().ok() };
    TimeUnit::new(unit, scale.ok_or_else(|| ParseError::invalid("the multiple of the unit is too large"))?)
}

fn structure(items: &[Value]) -> ParseResult<StoredDataType> {
    let mut fields = Vec::new();
    let mut big_endian = Vec::new();
    let mut offset = 0usize;
    let too_large = || ParseError::invalid("the struct is too large");
    for item in items {
        let (field, one_value) = field(item)?;
        let count = field.count().ok_or_else(too_large)?;
        let size = field.data_type.item_size().ok_or_else(too_large)?;
        repeat_components(&mut big_endian, &one_value, offset, count, size).ok_or_else(too_large)?;
        offset = field.size().and_then(|size| offset.checked_add(size)).ok_or_else(too_large)?;
        fields.push(field);
    }
    Ok(StoredDataType { data_type: DataType::Struct(fields), big_endian })
}

/// Reads a field. Returns with it the big-endian components of one of its values.
fn field(value: &Value) -> ParseResult<(Field, Vec<Component>)> {
    let (name, dtype, shape) = match json::list(value)? {
        [name, dtype] => (name, dtype, None),
        [name, dtype, shape] => (name, dtype, Some(shape)),
        _ => return Err(ParseError::invalid("a field must be [name, dtype] or [name, dtype, shape]")),
    };
    // NumPy gives a field with a title as [title, name].
    let name = match name.as_array().map(Vec::as_slice) {
        Some([_title, name]) => name,
        _ => name,
    };
    let name = json::name(name).map_err(|error| error.within("a field's name"))?;
    let in_field = |error: ParseError| error.within(json::shown_text(name));
    let shape = match shape {
        None => Vec::new(),
        Some(length @ Value::Number(_)) => vec![json::unsigned(length).map_err(in_field)?],
        Some(shape) => json::unsigned_list(shape).map_err(in_field)?,
    };
    let stored = any(dtype).map_err(in_field)?;
    Ok((Field { name: name.to_owned(), data_type: stored.data_type, shape }, stored.big_endian))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::json;

    fn stored(dtype: Value) -> StoredDataType {
        match parse(&dtype).unwrap() {
            Dtype::Fixed(stored) => stored,
            Dtype::Object => panic!("{dtype} is an object"),
        }
    }

    fn unit(unit: &str, scale_factor: u32) -> TimeUnit {
        TimeUnit { unit: unit.to_owned(), scale_factor }
    }

    #[test]
    fn simple_dtypes() {
        use DataType::*;
        for (text, data_type) in [
            ("|b1", Bool),
            ("|i1", Int8),
            (">u1", UInt8),
            ("<i2", Int16),
            ("<u4", UInt32),
            ("<i8", Int64),
            ("<f2", Float16),
            ("<f4", Float32),
            ("f8", Float64),
            ("=f8", Float64),
            ("<c8", Complex64),
            ("<c16", Complex128),
            ("|S12", NullTerminatedBytes(12)),
            ("<U5", FixedLengthUtf32(5)),
            ("|V8", Raw(8)),
            ("<M8[ns]", DateTime64(unit("ns", 1))),
            ("<m8[10s]", TimeDelta64(unit("s", 10))),
            ("<M8[25μs]", DateTime64(unit("us", 25))),
            ("<M8", DateTime64(unit("generic", 1))),
            ("<m8[generic]", TimeDelta64(unit("generic", 1))),
            ("bfloat16", BFloat16),
            ("float8_e4m3fn", Float8E4M3Fn),
            ("int4", Int4),
        ] {
            let stored = stored(json!(text));
            assert_eq!(stored.data_type, data_type, "{text}");
            assert_eq!(stored.byte_order(), Some(ByteOrder::Little), "{text}");
        }
    }

    #[test]
    fn big_endian_dtypes() {
        for (text, width, count) in
            [(">i2", 2, 1), (">f8", 8, 1), (">c16", 8, 2), (">U5", 4, 5), (">M8[D]", 8, 1), (">c8", 4, 2)]
        {
            let stored = stored(json!(text));
            assert_eq!(stored.big_endian, [Component { offset: 0, width, count }], "{text}");
            assert_eq!(stored.byte_order(), Some(ByteOrder::Big), "{text}");
        }
    }

    #[test]
    fn objects_and_unknown_types() {
        for text in ["|O", "O", "<O"] {
            assert_eq!(parse(&json!(text)).unwrap(), Dtype::Object);
        }
        for text in [
            "",
            "<",
            "<f16",
            "<f3",
            "|i3",
            "<c32",
            "|S",
            "|Sx",
            "<U-1",
            "<M8[fortnight]",
            "<f4[ns]",
            "é4",
            "|O8",
            "string",
        ] {
            let error = parse(&json!(text)).unwrap_err();
            assert!(matches!(error, ParseError::Unsupported(_)), "{text}: {error:?}");
        }
        for dtype in [json!(4), json!({}), json!(null), json!("<M8[99999999999ns]"), json!("<M8ns]")] {
            assert!(matches!(parse(&dtype).unwrap_err(), ParseError::Invalid(_)), "{dtype}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        for text in [
            "|S0",
            "<U0",
            "|V0",
            "|V16777217",
            "<U4194305",
            "|S99999999999999999999999",
            "<U18446744073709551615",
        ] {
            assert!(parse(&json!(text)).is_err(), "{text}");
        }
        assert_eq!(stored(json!("<U4194304")).data_type.components().unwrap().len(), 1);
    }

    #[test]
    fn structs_of_mixed_byte_order_with_subarrays_nesting_and_padding() {
        let dtype = json!([
            ["x", "<f4"],
            ["y", ">i2", [2, 2]],
            ["", "|V2"],
            [["a title", "n"], [["a", "|u1"], ["b", ">c8"]], 2],
            ["z", "<U2"],
        ]);
        let stored = stored(dtype);
        assert_eq!(stored.data_type.item_size(), Some(4 + 8 + 2 + 2 * 9 + 8));
        let run = |offset, width, count| Component { offset, width, count };
        assert_eq!(stored.big_endian, [run(4, 2, 4), run(15, 4, 2), run(24, 4, 2)]);
        assert_eq!(stored.byte_order(), None);
        let all = [run(0, 4, 1), run(4, 2, 4), run(12, 1, 3), run(15, 4, 2), run(23, 1, 1), run(24, 4, 4)];
        assert_eq!(stored.data_type.components().unwrap(), all);
    }

    #[test]
    fn structs_one_value_byte_order() {
        assert_eq!(
            stored(json!([["a", ">i2"], ["b", "|S3"], ["c", ">f8"]])).byte_order(),
            Some(ByteOrder::Big)
        );
        assert_eq!(stored(json!([["a", "<i2"], ["b", "|S3"]])).byte_order(), Some(ByteOrder::Little));
    }

    #[test]
    fn broken_structs() {
        for (dtype, reason) in [
            (json!([]), "a struct without fields"),
            (json!([["a"]]), "a field must be [name, dtype] or [name, dtype, shape]"),
            (json!([["a", "<f4"], ["a", "<f8"]]), "two fields are named \"a\""),
            (json!([["a", "|O"]]), "\"a\": the dtype \"|O\""),
            (json!([["a", [["b", "<q9"]]]]), "\"a\": \"b\": the dtype \"<q9\""),
            (json!([["a", "<f4", [-1]]]), "\"a\": 0: must be an integer from 0 to 2^64-1, not -1"),
            (json!([["a", "<f4", [0]]]), "elements of 0 bytes have no flat form"),
            (json!([["a", "|u1", [1u64 << 63, 4]]]), "the struct is too large"),
            (json!([["a", "|u1", [1 << 25]]]), "elements of more than 16777216 bytes"),
            (
                json!([["a", [["b", "<i2"], ["c", "<i4"]], [1 << 20]]]),
                "elements of more than 65536 parts of their own byte order",
            ),
            (json!([["a", [["b", ">i2"], ["c", ">i4"]], [1u64 << 60]]]), "the struct is too large"),
            (json!([[7, "<f4"]]), "a field's name: must be a string, not 7"),
        ] {
            assert_eq!(parse(&dtype).unwrap_err().to_string(), reason, "{dtype}");
        }
    }
}
