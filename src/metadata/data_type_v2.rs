//! Data types as v1 and v2 name them: NumPy's `"<f4"`, and `[["x", "<f4"], ["y", ">i2", [2, 2]]]` for structs.
//!
//! Spec: v2 "Data type encoding", v1 likewise; NumPy, "The array interface protocol". Uses `data_type`, `json`,
//! `fault`, and `data_type_v3` for the names that NumPy lacks (tensorstore writes `"bfloat16"`).

use serde_json::Value;

use super::data_type::{ByteOrder, Component, DataType, Field, TimeUnit, repeat_components};
use super::data_type_v3;
use super::fault::{Fault, Parsed};
use super::json;

/// A data type and how a v1 or v2 array stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The type.
    pub data_type: DataType,
    /// The components that are stored big-endian.
    pub big_endian: Vec<Component>,
}

/// What a v2 `dtype` names.
#[derive(Clone, Debug, PartialEq)]
pub enum Dtype {
    /// Elements of a fixed size.
    Fixed(Stored),
    /// `|O`: what is stored depends on the filters.
    Object,
}

/// Reads v1's and v2's `dtype`.
pub fn parse(value: &Value) -> Parsed<Dtype> {
    if value.as_str().is_some_and(|text| text.trim_start_matches(['|', '<', '>', '=']) == "O") {
        return Ok(Dtype::Object);
    }
    let stored = any(value)?;
    stored.data_type.check()?;
    Ok(Dtype::Fixed(stored))
}

impl Stored {
    /// The byte order that all components have which have one; `None` where they differ.
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

fn any(value: &Value) -> Parsed<Stored> {
    match value {
        Value::String(text) => simple(text),
        Value::Array(fields) => structure(fields),
        _ => Err(Fault::invalid(format_args!(
            "must be a string or a list of fields, not {}",
            json::shown(value)
        ))),
    }
}

fn simple(text: &str) -> Parsed<Stored> {
    let unknown = || Fault::unsupported(format_args!("the dtype {}", json::shown_text(text)));
    let (order, code) = match text.strip_prefix(['<', '>', '|', '=']) {
        Some(code) => (text.chars().next(), code),
        None => (None, text),
    };
    let Some(kind) = code.chars().next().filter(char::is_ascii) else { return Err(unknown()) };
    let rest = code.get(1..).unwrap_or_default();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (size, unit) = rest.split_at(digits);
    let numeric = |types: &[(&str, DataType)]| {
        types
            .iter()
            .find(|(bytes, _)| unit.is_empty() && *bytes == size)
            .map(|(_, data_type)| data_type.clone())
    };
    let length = || size.parse::<usize>().ok().filter(|_| unit.is_empty());
    use DataType::*;
    let data_type = match kind {
        'b' => numeric(&[("1", Bool)]),
        'i' => numeric(&[("1", Int8), ("2", Int16), ("4", Int32), ("8", Int64)]),
        'u' => numeric(&[("1", UInt8), ("2", UInt16), ("4", UInt32), ("8", UInt64)]),
        'f' => numeric(&[("2", Float16), ("4", Float32), ("8", Float64)]),
        'c' => numeric(&[("8", Complex64), ("16", Complex128)]),
        'm' | 'M' if size == "8" => {
            let unit = time_unit(unit).map_err(|fault| fault.within(json::shown_text(text)))?;
            Some(if kind == 'M' { DateTime64(unit) } else { TimeDelta64(unit) })
        }
        'S' | 'a' => length().map(NullTerminatedBytes),
        'U' => length().map(FixedLengthUtf32),
        'V' => length().map(Raw),
        _ => None,
    };
    let extended = || data_type_v3::by_name(text).filter(|_| order.is_none());
    let data_type =
        data_type.or_else(extended).filter(|found| found.item_size().is_some()).ok_or_else(unknown)?;
    // No order, `|` and `=` are what NumPy writes for bytes and what careless writers leave for the rest: the order
    // of the machine that wrote, which today is little-endian.
    let is_big = order == Some('>');
    let swapped =
        data_type.components().unwrap_or_default().into_iter().filter(|run| is_big && run.width > 1);
    Ok(Stored { big_endian: swapped.collect(), data_type })
}

/// `[10ns]`, or nothing for the generic unit.
fn time_unit(text: &str) -> Parsed<TimeUnit> {
    if text.is_empty() {
        return TimeUnit::new("generic", 1);
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inner = inner.ok_or_else(|| Fault::invalid("the unit must stand in brackets"))?;
    let unit = inner.trim_start_matches(|c: char| c.is_ascii_digit());
    let scale = inner.strip_suffix(unit).unwrap_or_default();
    let scale = if scale.is_empty() { Some(1) } else { scale.parse().ok() };
    TimeUnit::new(unit, scale.ok_or_else(|| Fault::invalid("the multiple of the unit is too large"))?)
}

fn structure(items: &[Value]) -> Parsed<Stored> {
    let mut fields = Vec::new();
    let mut big_endian = Vec::new();
    let mut offset = 0usize;
    let too_large = || Fault::invalid("the struct is too large");
    for item in items {
        let (field, of_one) = field(item)?;
        let count = field.count().ok_or_else(too_large)?;
        let size = field.data_type.item_size().ok_or_else(too_large)?;
        repeat_components(&mut big_endian, &of_one, offset, count, size).ok_or_else(too_large)?;
        offset = field.size().and_then(|size| offset.checked_add(size)).ok_or_else(too_large)?;
        fields.push(field);
    }
    Ok(Stored { data_type: DataType::Struct(fields), big_endian })
}

/// A field, and the big-endian components of one of its values.
fn field(value: &Value) -> Parsed<(Field, Vec<Component>)> {
    let (name, dtype, shape) = match json::list(value)? {
        [name, dtype] => (name, dtype, None),
        [name, dtype, shape] => (name, dtype, Some(shape)),
        _ => return Err(Fault::invalid("a field must be [name, dtype] or [name, dtype, shape]")),
    };
    // NumPy gives a field with a title as [title, name].
    let name = match name.as_array().map(Vec::as_slice) {
        Some([_title, name]) => name,
        _ => name,
    };
    let name = json::name(name).map_err(|fault| fault.within("a field's name"))?;
    let in_field = |fault: Fault| fault.within(json::shown_text(name));
    let shape = match shape {
        None => Vec::new(),
        Some(length @ Value::Number(_)) => vec![json::unsigned(length).map_err(in_field)?],
        Some(shape) => json::unsigned_list(shape).map_err(in_field)?,
    };
    let stored = any(dtype).map_err(in_field)?;
    Ok((Field { name: name.to_owned(), data_type: stored.data_type, shape }, stored.big_endian))
}
