//! Data types: the element of an array, its size and the parts of it that have a byte order.
//!
//! Spec: v3 "Data types", v2 "Data type encoding". Uses `json`.
//!
//! The **canonical form** of an element, used everywhere after the codecs: little-endian, packed, bool as
//! one byte 0 or 1, int2/int4 sign-extended to one byte, complex as real then imaginary, struct fields in order.

pub mod exact_number;
mod minifloat;
pub mod numeric;
pub mod v2;
pub mod v3;

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};

use super::MAX_RANK;
use super::json;
use super::json::parse_error::{ParseError, ParseResult};

/// The longest element that is accepted, in bytes.
pub const MAX_ITEM_BYTES: usize = 16 << 20;
/// The most runs of [`Component`]s that a data type may have.
pub const MAX_COMPONENTS: usize = 1 << 16;

/// The names of the proposed type of elements that may be null. The zarrs crate writes the second one.
pub const OPTIONAL: [&str; 2] = ["optional", "zarrs.optional"];

/// NumPy's codes of time units.
pub const TIME_UNITS: [&str; 14] =
    ["generic", "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"];

/// Byte order of stored or served elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// Units of datetime64 and timedelta64, NumPy's codes: `generic Y M W D h m s ms us ns ps fs as`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimeUnit {
    /// NumPy's code.
    pub unit: String,
    /// The number of units in one step (`[10ms]` is 10).
    pub scale_factor: u32,
}

/// One field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name; empty for padding.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// Shape of a subarray field; empty for a scalar.
    pub shape: Vec<u64>,
}

/// Elements without a fixed size, which have no flat form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VariableLength {
    /// v3 `string` (`variable_length_utf8`), v2 `|O` with `vlen-utf8`.
    Utf8,
    /// v3 `variable_length_bytes` (`bytes`), v2 `|O` with `vlen-bytes`.
    Bytes,
    /// Any other type, by its stored name.
    Other(String),
}

/// The type of an element. Floats below 8 bits and int2/int4 take one byte each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the variants are the specification's own names
pub enum DataType {
    Bool,
    Int2,
    Int4,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt2,
    UInt4,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float4E2M1Fn,
    Float6E2M3Fn,
    Float6E3M2Fn,
    Float8E3M4,
    Float8E4M3,
    Float8E4M3Fn,
    Float8E4M3B11Fnuz,
    Float8E4M3Fnuz,
    Float8E5M2,
    Float8E5M2Fnuz,
    Float8E8M0Fnu,
    Float16,
    BFloat16,
    Float32,
    Float64,
    ComplexFloat4E2M1Fn,
    ComplexFloat6E2M3Fn,
    ComplexFloat6E3M2Fn,
    ComplexFloat8E3M4,
    ComplexFloat8E4M3,
    ComplexFloat8E4M3B11Fnuz,
    ComplexFloat8E4M3Fnuz,
    ComplexFloat8E5M2,
    ComplexFloat8E5M2Fnuz,
    ComplexFloat8E8M0Fnu,
    ComplexFloat16,
    ComplexBFloat16,
    Complex64,
    Complex128,
    /// `r*`, `raw_bytes`, v2 `V`: this many bytes, never swapped.
    Raw(usize),
    /// v2 `S`, v3 `null_terminated_bytes`: this many bytes, NUL-padded.
    NullTerminatedBytes(usize),
    /// v2 `U`, v3 `fixed_length_utf32`: this many code points, 4 bytes each.
    FixedLengthUtf32(usize),
    DateTime64(TimeUnit),
    TimeDelta64(TimeUnit),
    Struct(Vec<Field>),
    /// No fixed size: the array is listed, but has no flat form.
    VariableLength(VariableLength),
}

/// A run of `count` parts of an element. Each part is swapped as a whole when the byte order differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// The offset of the first part in the element, in bytes.
    pub offset: usize,
    /// The length of each part in bytes (1 if it is never swapped).
    pub width: usize,
    /// The number of parts.
    pub count: usize,
}

impl Field {
    /// Returns the bytes that the field takes in the element, subarray included; `None` as for
    /// [`DataType::item_size`].
    pub fn size(&self) -> Option<usize> {
        self.count()?.checked_mul(self.data_type.item_size()?)
    }

    /// Returns the number of values in the field: the product of its shape, 1 for a scalar.
    pub(super) fn count(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(usize::try_from(n).ok()?))
    }
}

impl TimeUnit {
    /// Creates a unit from NumPy's code (`μs` is `us`) and a scale factor from 1 to 2^31-1.
    pub fn new(unit: &str, scale_factor: u64) -> ParseResult<Self> {
        let unit = if unit == "μs" { "us" } else { unit };
        if !TIME_UNITS.contains(&unit) {
            return Err(ParseError::unsupported(format_args!("the time unit {}", json::shown_text(unit))));
        }
        // NumPy reads 0 as 1.
        let scale_factor = u32::try_from(scale_factor.max(1)).ok().filter(|&scale| scale <= i32::MAX as u32);
        let scale_factor =
            scale_factor.ok_or_else(|| ParseError::invalid("the scale factor passes 2^31-1"))?;
        Ok(TimeUnit { unit: unit.to_owned(), scale_factor })
    }
}

impl DataType {
    /// Checks what a document may decide: elements of 1 to [`MAX_ITEM_BYTES`] bytes and at most [`MAX_COMPONENTS`]
    /// components, unique field names, and fixed sizes inside structs.
    pub(super) fn check(&self) -> ParseResult<()> {
        if matches!(self, DataType::VariableLength(_)) {
            return Ok(());
        }
        self.check_fields()?;
        match self.item_size() {
            Some(0) => Err(ParseError::unsupported("elements of 0 bytes have no flat form")),
            Some(size) if size <= MAX_ITEM_BYTES => match self.components() {
                Some(_) => Ok(()),
                None => Err(ParseError::unsupported(format_args!(
                    "elements of more than {MAX_COMPONENTS} parts of their own byte order"
                ))),
            },
            _ => Err(ParseError::unsupported(format_args!("elements of more than {MAX_ITEM_BYTES} bytes"))),
        }
    }

    fn check_fields(&self) -> ParseResult<()> {
        let DataType::Struct(fields) = self else { return Ok(()) };
        if fields.is_empty() {
            return Err(ParseError::invalid("a struct without fields"));
        }
        let mut names = HashSet::new();
        for field in fields {
            let shown = || json::shown_text(&field.name);
            if !field.name.is_empty() && !names.insert(field.name.as_str()) {
                return Err(ParseError::invalid(format_args!("two fields are named {}", shown())));
            }
            if field.shape.len() > MAX_RANK {
                return Err(
                    ParseError::invalid(format_args!("more than {MAX_RANK} dimensions")).within(shown())
                );
            }
            if matches!(field.data_type, DataType::VariableLength(_)) {
                let reason = "a field of variable length has no flat form";
                return Err(ParseError::unsupported(reason).within(shown()));
            }
            field.data_type.check_fields().map_err(|error| error.within(shown()))?;
        }
        Ok(())
    }

    /// Returns the bytes of one element; `None` for a type without a fixed size (and if the size overflows usize,
    /// which no parsed type does). May be 0 (`|S0`).
    pub fn item_size(&self) -> Option<usize> {
        use DataType::*;
        Some(match self {
            DateTime64(_) | TimeDelta64(_) => 8,
            Raw(bytes) | NullTerminatedBytes(bytes) => *bytes,
            FixedLengthUtf32(points) => points.checked_mul(4)?,
            Struct(fields) => fields.iter().try_fold(0usize, |sum, field| sum.checked_add(field.size()?))?,
            VariableLength(_) => return None,
            _ => self.number_format()?.size(),
        })
    }

    /// Returns the parts of the element that are swapped, in order and without gaps. Neighbours of one width are
    /// joined. `None` for a type without a fixed size or with more than [`MAX_COMPONENTS`] runs.
    pub fn components(&self) -> Option<Vec<Component>> {
        let mut runs = Vec::new();
        self.append_components(0, &mut runs)?;
        Some(runs)
    }

    /// Appends this type's components, the first at `offset`; returns the offset after them.
    fn append_components(&self, offset: usize, runs: &mut Vec<Component>) -> Option<usize> {
        use DataType::*;
        let end = offset.checked_add(self.item_size()?)?;
        let width = match self {
            Struct(fields) => {
                let mut at = offset;
                for field in fields {
                    at = field.append_components(at, runs)?;
                }
                return Some(at);
            }
            Raw(_) | NullTerminatedBytes(_) => 1,
            FixedLengthUtf32(_) => 4,
            DateTime64(_) | TimeDelta64(_) => 8,
            _ => self.number_format()?.scalar.width(),
        };
        push_run(runs, Component { offset, width, count: (end - offset) / width })?;
        Some(end)
    }
}

impl Field {
    fn append_components(&self, offset: usize, runs: &mut Vec<Component>) -> Option<usize> {
        let (count, size) = (self.count()?, self.data_type.item_size()?);
        let end = offset.checked_add(count.checked_mul(size)?)?;
        if count > 0 && size > 0 {
            let mut one_value = Vec::new();
            self.data_type.append_components(0, &mut one_value)?;
            repeat_components(runs, &one_value, offset, count, size)?;
        }
        Some(end)
    }
}

/// Appends the components of `count` values of `size` bytes each, the first at `offset`. `one_value` has the
/// components of one. `None` if there are more than [`MAX_COMPONENTS`] or an offset overflows usize.
pub(super) fn repeat_components(
    runs: &mut Vec<Component>,
    one_value: &[Component],
    offset: usize,
    count: usize,
    size: usize,
) -> Option<()> {
    offset.checked_add(count.checked_mul(size)?)?;
    match one_value {
        [] => Some(()),
        [only] if only.width * only.count == size => {
            push_run(runs, Component { offset, width: only.width, count: only.count.checked_mul(count)? })
        }
        _ => (0..count).try_for_each(|index| {
            one_value.iter().try_for_each(|part| {
                push_run(runs, Component { offset: offset + index * size + part.offset, ..*part })
            })
        }),
    }
}

/// Appends a run. It is joined with the previous one if they have the same width. `None` if there are already
/// [`MAX_COMPONENTS`].
fn push_run(runs: &mut Vec<Component>, run: Component) -> Option<()> {
    if run.count == 0 {
        return Some(());
    }
    if let Some(last) = runs.last_mut()
        && last.width == run.width
        && last.offset + last.count * last.width == run.offset
    {
        last.count += run.count;
        return Some(());
    }
    (runs.len() < MAX_COMPONENTS).then(|| runs.push(run))
}

impl DataType {
    /// Returns the type's v3 name without its configuration: `float32`, `r24`, `numpy.datetime64`, `struct`.
    pub fn name(&self) -> Cow<'_, str> {
        use DataType::*;
        Cow::Borrowed(match self {
            Raw(bytes) => return Cow::Owned(format!("r{}", *bytes as u128 * 8)),
            NullTerminatedBytes(_) => "null_terminated_bytes",
            FixedLengthUtf32(_) => "fixed_length_utf32",
            DateTime64(_) => "numpy.datetime64",
            TimeDelta64(_) => "numpy.timedelta64",
            Struct(_) => "struct",
            VariableLength(self::VariableLength::Utf8) => "string",
            VariableLength(self::VariableLength::Bytes) => "variable_length_bytes",
            VariableLength(self::VariableLength::Other(name)) => name,
            _ => self.number_format().map_or("", |format| format.name),
        })
    }

    /// Returns the type in NumPy's terms, as the `descr` of an .npy header: `"<f4"`, or a list for a struct. A type
    /// that NumPy does not have is void bytes of the same size (`"|V2"`); int2 and int4 are served as `"|i1"`, uint2
    /// and uint4 as `"|u1"`.
    pub fn numpy_descr(&self, byte_order: ByteOrder) -> Value {
        use DataType::*;
        let c = match byte_order {
            ByteOrder::Little => '<',
            ByteOrder::Big => '>',
        };
        let time = |code: char, unit: &TimeUnit| match (unit.unit.as_str(), unit.scale_factor) {
            ("generic", _) => format!("{c}{code}8"),
            (unit, 1) => format!("{c}{code}8[{unit}]"),
            (unit, scale) => format!("{c}{code}8[{scale}{unit}]"),
        };
        let text = match self {
            Raw(bytes) => format!("|V{bytes}"),
            NullTerminatedBytes(bytes) => format!("|S{bytes}"),
            FixedLengthUtf32(points) => format!("{c}U{points}"),
            DateTime64(unit) => time('M', unit),
            TimeDelta64(unit) => time('m', unit),
            VariableLength(_) => "|O".to_owned(),
            Struct(fields) => {
                let field = |field: &Field| {
                    let descr = field.data_type.numpy_descr(byte_order);
                    if field.shape.is_empty() {
                        json!([field.name, descr])
                    } else {
                        json!([field.name, descr, field.shape])
                    }
                };
                return Value::Array(fields.iter().map(field).collect());
            }
            _ => {
                let code = self.number_format().map_or("", |format| format.numpy_code);
                let has_order = self.item_size() > Some(1) && !code.starts_with('V');
                format!("{}{code}", if has_order { c } else { '|' })
            }
        };
        Value::String(text)
    }
}
