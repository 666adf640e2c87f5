//! One direction of `cast_value`: elements of one type to elements of another. Uses `metadata`.
//!
//! Spec: zarr-extensions, codecs/cast_value, "Procedure": the scalar map, then the exact value, then rounding
//! and `out_of_range`, else an error.

use super::kernel::{self, CastKernel};
use super::scalar_map::ScalarMap;
use crate::codec::{CodecError, CodecResult};
use crate::metadata::DataType;
use crate::metadata::data_type::exact_number::{OutOfRange, Rounding, ScalarFormat, Unrepresentable};

/// Elements that are cast at a time by a [`CastKernel`], and again if one of them was special.
const BLOCK_ELEMENTS: usize = 1024;

/// Calls a function of const parameters with the widths of a source's and a target's elements.
macro_rules! by_widths {
    ($from:expr, $to:expr, $call:ident $arguments:tt) => {
        match $from {
            1 => by_widths!(1, to $to, $call $arguments),
            2 => by_widths!(2, to $to, $call $arguments),
            4 => by_widths!(4, to $to, $call $arguments),
            _ => by_widths!(8, to $to, $call $arguments),
        }
    };
    ($from:literal, to $to:expr, $call:ident $arguments:tt) => {
        match $to {
            1 => $call::<$from, 1> $arguments,
            2 => $call::<$from, 2> $arguments,
            4 => $call::<$from, 4> $arguments,
            _ => $call::<$from, 8> $arguments,
        }
    };
}

/// A cast of elements from one type to another.
pub struct Cast {
    source: ScalarFormat,
    target: ScalarFormat,
    source_name: String,
    target_name: String,
    rounding: Rounding,
    out_of_range: OutOfRange,
    map: ScalarMap,
    /// For ordinary elements, with the patches that the scalar map makes after it.
    kernel: Option<(CastKernel, Vec<(u64, u64)>)>,
    /// The result for every code of a one-byte source; `None` is an error.
    table: Option<Box<[Option<u64>; 256]>>,
}

impl Cast {
    /// Creates a cast between integer or float types. `out_of_range` is not checked here: a float target rejects
    /// `Wrap` for each value.
    pub fn new(
        source: &DataType,
        target: &DataType,
        rounding: Rounding,
        out_of_range: OutOfRange,
        map: ScalarMap,
    ) -> CodecResult<Cast> {
        let kernel = kernel::find(source, target, rounding, out_of_range);
        let (source_name, target_name) = (source.name().into_owned(), target.name().into_owned());
        let (source, target) = (real_format(source)?, real_format(target)?);
        let kernel = kernel.zip(map.patches(source));
        let mut cast = Cast {
            source,
            target,
            source_name,
            target_name,
            rounding,
            out_of_range,
            map,
            kernel,
            table: None,
        };
        if source.width() == 1 {
            cast.table = Some(Box::new(std::array::from_fn(|code| cast.one(code as u64).ok())));
        }
        Ok(cast)
    }

    /// Casts one code of the source.
    #[inline]
    pub fn one(&self, code: u64) -> Result<u64, Unrepresentable> {
        match self.map.get(self.source, code) {
            Some(mapped) => Ok(mapped),
            None => {
                let value = self.source.read(code);
                self.target.write(value, self.rounding, self.out_of_range)
            }
        }
    }

    /// Casts whole elements; both slices hold the same number of them.
    pub fn run(&self, input: &[u8], out: &mut [u8]) -> CodecResult<()> {
        let (from, to) = (self.source.width(), self.target.width());
        if input.len() != input.len() / from * from || out.len() != input.len() / from * to {
            return Err(CodecError::new(format_args!(
                "codec \"cast_value\": {} bytes of {} do not cast to {} bytes of {}",
                input.len(),
                self.source_name,
                out.len(),
                self.target_name
            )));
        }
        let blocks = input.chunks(BLOCK_ELEMENTS * from).zip(out.chunks_mut(BLOCK_ELEMENTS * to));
        for (index, (input, out)) in blocks.enumerate() {
            match &self.kernel {
                Some((kernel, patches)) if kernel(input, out) => {
                    for &patch in patches {
                        by_widths!(from, to, patch_all(patch, input, out));
                    }
                }
                _ => {
                    let failed = by_widths!(from, to, cast_all(self, input, out));
                    if let Some((at, code)) = failed {
                        return Err(self.refusal(index * BLOCK_ELEMENTS + at, code));
                    }
                }
            }
        }
        Ok(())
    }

    /// Creates the error for an element, with its value and the reason.
    fn refusal(&self, index: usize, code: u64) -> CodecError {
        let value = self.source.text(code);
        let target = &self.target_name;
        let reason = match self.one(code) {
            Ok(_) => "was not cast".to_owned(),
            Err(Unrepresentable::Nan) => format!("has no counterpart in {target} and none in \"scalar_map\""),
            Err(Unrepresentable::Infinity) => {
                format!("has no counterpart in {target}, which has no infinities, and none in \"scalar_map\"")
            }
            Err(Unrepresentable::OutOfRange) => match self.out_of_range {
                OutOfRange::Wrap => format!("is out of the range of {target}, which does not wrap"),
                _ => format!("is out of the range of {target}, and there is no \"out_of_range\""),
            },
        };
        let source = &self.source_name;
        CodecError::new(format_args!("codec \"cast_value\": element {index}, the {source} {value}, {reason}"))
    }
}

/// Returns the format of an integer or float type, or an error for any other type.
pub fn real_format(data_type: &DataType) -> CodecResult<ScalarFormat> {
    data_type.real_format().ok_or_else(|| {
        let name = data_type.name();
        CodecError::new(format_args!("codec \"cast_value\" is for integers and floats, not for {name}"))
    })
}

/// Returns the code of an element, its bits zero-extended.
#[inline]
pub fn element_code(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte))
}

/// Casts elements one after another; the index and code of the first that cannot be cast.
fn cast_all<const S: usize, const T: usize>(
    cast: &Cast,
    input: &[u8],
    out: &mut [u8],
) -> Option<(usize, u64)> {
    let (input, _) = input.as_chunks::<S>();
    let (out, _) = out.as_chunks_mut::<T>();
    for (index, (bytes, out)) in input.iter().zip(out).enumerate() {
        let code = element_code(bytes);
        let target = match &cast.table {
            Some(table) => table.get(code as usize).copied().flatten(),
            None => cast.one(code).ok(),
        };
        let Some(target) = target else { return Some((index, code)) };
        *out = low_bytes(target);
    }
    None
}

/// Writes the second code of `patch` wherever the input has the first.
fn patch_all<const S: usize, const T: usize>(patch: (u64, u64), input: &[u8], out: &mut [u8]) {
    let (key, value) = (low_bytes::<S>(patch.0), low_bytes::<T>(patch.1));
    let (input, _) = input.as_chunks::<S>();
    let (out, _) = out.as_chunks_mut::<T>();
    for (bytes, out) in input.iter().zip(out) {
        *out = if *bytes == key { value } else { *out };
    }
}

/// Returns the lowest bytes of a code, as an element holds them.
#[inline]
fn low_bytes<const N: usize>(code: u64) -> [u8; N] {
    code.to_le_bytes().first_chunk::<N>().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests;
