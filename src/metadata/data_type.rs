//! Data types: the element of an array, its size and the parts of it that have a byte order.
//!
//! Spec: v3 "Data types", v2 "Data type encoding". Uses `error` only.
//!
//! The **canonical form** of an element, used everywhere behind the codecs: little-endian, packed, bool as
//! one byte 0 or 1, int2/int4 sign-extended to one byte, complex as real then imaginary, struct fields in order.

use serde_json::{Value, json};

/// The longest element that is taken, in bytes.
pub const MAX_ITEM_BYTES: usize = 16 << 20;
/// The most runs of [`Component`]s that a data type may have.
pub const MAX_COMPONENTS: usize = 1 << 16;

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
    /// Multiple of the unit that one step is (`[10ms]` is 10).
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

/// Elements with no fixed size: they have no flat form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VariableLength {
    /// v3 `string` (`variable_length_utf8`), v2 `|O` behind `vlen-utf8`.
    Utf8,
    /// v3 `variable_length_bytes` (`bytes`), v2 `|O` behind `vlen-bytes`.
    Bytes,
    /// Any other, by its stored name.
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
    Float8E4M3B11Fnuz,
    Float8E4M3Fnuz,
    Float8E5M2,
    Float8E5M2Fnuz,
    Float8E8M0Fnu,
    Float16,
    BFloat16,
    Float32,
    Float64,
    Complex64,
    Complex128,
    /// `r*`, `raw_bytes`, v2 `V`: so many bytes, never swapped.
    Raw(usize),
    /// v2 `S`, v3 `null_terminated_bytes`: so many bytes, NUL-padded.
    NullTerminatedBytes(usize),
    /// v2 `U`, v3 `fixed_length_utf32`: so many code points, 4 bytes each.
    FixedLengthUtf32(usize),
    DateTime64(TimeUnit),
    TimeDelta64(TimeUnit),
    Struct(Vec<Field>),
    /// No fixed size; the array is listed but has no flat form.
    VariableLength(VariableLength),
}

/// Parts of an element that are each swapped as a whole when the byte order differs: `count` of them in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Where the first starts in the element, in bytes.
    pub offset: usize,
    /// The length of each in bytes (1 for what is never swapped).
    pub width: usize,
    /// How many follow each other.
    pub count: usize,
}

impl Field {
    /// Bytes that the field takes in the element, subarray included; `None` as [`DataType::item_size`].
    pub fn size(&self) -> Option<usize> {
        self.count()?.checked_mul(self.data_type.item_size()?)
    }

    /// Values in the field: the product of its shape, 1 for a scalar.
    fn count(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(usize::try_from(n).ok()?))
    }
}

impl DataType {
    /// Bytes of one element; `None` for a type with no fixed size (and where the size passes usize, which no
    /// parsed type does). May be 0 (`|S0`).
    pub fn item_size(&self) -> Option<usize> {
        use DataType::*;
        Some(match self {
            Bool | Int2 | Int4 | Int8 | UInt2 | UInt4 | UInt8 | Float4E2M1Fn | Float6E2M3Fn
            | Float6E3M2Fn | Float8E3M4 | Float8E4M3 | Float8E4M3B11Fnuz | Float8E4M3Fnuz | Float8E5M2
            | Float8E5M2Fnuz | Float8E8M0Fnu => 1,
            Int16 | UInt16 | Float16 | BFloat16 => 2,
            Int32 | UInt32 | Float32 => 4,
            Int64 | UInt64 | Float64 | Complex64 | DateTime64(_) | TimeDelta64(_) => 8,
            Complex128 => 16,
            Raw(bytes) | NullTerminatedBytes(bytes) => *bytes,
            FixedLengthUtf32(points) => points.checked_mul(4)?,
            Struct(fields) => fields.iter().try_fold(0usize, |sum, field| sum.checked_add(field.size()?))?,
            VariableLength(_) => return None,
        })
    }

    /// The parts of the element that are swapped, in order and without gaps, neighbours of one width joined.
    /// `None` for a type with no fixed size or with more than [`MAX_COMPONENTS`] runs.
    pub fn components(&self) -> Option<Vec<Component>> {
        let mut runs = Vec::new();
        self.append_components(0, &mut runs)?;
        Some(runs)
    }

    /// Appends this type's components from `offset` on; the offset behind them.
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
            FixedLengthUtf32(_) | Complex64 => 4,
            Complex128 => 8,
            _ => self.item_size()?,
        };
        push_run(runs, Component { offset, width, count: (end - offset) / width })?;
        Some(end)
    }
}

impl Field {
    fn append_components(&self, offset: usize, runs: &mut Vec<Component>) -> Option<usize> {
        let (count, size) = (self.count()?, self.data_type.item_size()?);
        let end = offset.checked_add(count.checked_mul(size)?)?;
        if count == 0 || size == 0 {
            return Some(end);
        }
        let mut of_one = Vec::new();
        self.data_type.append_components(0, &mut of_one)?;
        if let [only] = of_one.as_slice() {
            let count = only.count.checked_mul(count)?;
            push_run(runs, Component { offset, width: only.width, count })?;
            return Some(end);
        }
        for index in 0..count {
            for part in &of_one {
                push_run(runs, Component { offset: offset + index * size + part.offset, ..*part })?;
            }
        }
        Some(end)
    }
}

/// Appends a run, joined with the one before it where the width is the same; `None` at [`MAX_COMPONENTS`].
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
    /// The type in NumPy's terms, the `descr` of an .npy header: `"<f4"`, or a list for a struct. What NumPy
    /// lacks is void bytes of the same size (`"|V2"`); int2 and int4 are served as `"|i1"`, uint2 and uint4 as `"|u1"`.
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
            Bool => "|b1".to_owned(),
            Int2 | Int4 | Int8 => "|i1".to_owned(),
            UInt2 | UInt4 | UInt8 => "|u1".to_owned(),
            Int16 => format!("{c}i2"),
            Int32 => format!("{c}i4"),
            Int64 => format!("{c}i8"),
            UInt16 => format!("{c}u2"),
            UInt32 => format!("{c}u4"),
            UInt64 => format!("{c}u8"),
            Float16 => format!("{c}f2"),
            Float32 => format!("{c}f4"),
            Float64 => format!("{c}f8"),
            Complex64 => format!("{c}c8"),
            Complex128 => format!("{c}c16"),
            BFloat16 => "|V2".to_owned(),
            Float4E2M1Fn | Float6E2M3Fn | Float6E3M2Fn | Float8E3M4 | Float8E4M3 | Float8E4M3B11Fnuz
            | Float8E4M3Fnuz | Float8E5M2 | Float8E5M2Fnuz | Float8E8M0Fnu => "|V1".to_owned(),
            Raw(bytes) => format!("|V{bytes}"),
            NullTerminatedBytes(bytes) => format!("|S{bytes}"),
            FixedLengthUtf32(points) => format!("{c}U{points}"),
            DateTime64(unit) => time('M', unit),
            TimeDelta64(unit) => time('m', unit),
            VariableLength(_) => "|O".to_owned(),
            Struct(fields) => {
                let field = |field: &Field| {
                    let descr = field.data_type.numpy_descr(byte_order);
                    match field.shape.is_empty() {
                        true => json!([field.name, descr]),
                        false => json!([field.name, descr, field.shape]),
                    }
                };
                return Value::Array(fields.iter().map(field).collect());
            }
        };
        Value::String(text)
    }
}
