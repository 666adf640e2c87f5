//! Members that the array documents of all versions share: the version, the shape, the limit on the flat size.
//!
//! Spec: v1, v2 and v3, "zarr_format" and "shape". Uses `json`.

use serde_json::{Map, Value};

use super::json;
use super::json::parse_error::{ParseError, ParseResult};
use super::node::flat_size;
use super::{ArrayMetadata, MAX_RANK};

/// Checks `zarr_format`.
pub fn expect_format(members: &Map<String, Value>, version: u64) -> ParseResult<()> {
    let found = json::required(members, "zarr_format")?;
    match found.as_u64() {
        Some(number) if number == version => Ok(()),
        _ => Err(ParseError::invalid(format_args!(
            "zarr_format: must be {version}, not {}",
            json::shown(found)
        ))),
    }
}

/// Reads the lengths of the dimensions, at most [`MAX_RANK`].
pub fn shape(value: &Value) -> ParseResult<Vec<u64>> {
    let shape = json::unsigned_list(value).map_err(|error| error.within("shape"))?;
    match shape.len() {
        rank if rank <= MAX_RANK => Ok(shape),
        rank => Err(ParseError::invalid(format_args!(
            "shape: {rank} dimensions, more than the limit of {MAX_RANK}"
        ))),
    }
}

/// Checks that the flat file's size, and each dimension, fit i64.
pub fn check_size(metadata: &ArrayMetadata) -> ParseResult<()> {
    let item_size = metadata.data_type.item_size().unwrap_or(1);
    let axes_fit = metadata.shape.iter().all(|&n| i64::try_from(n).is_ok());
    if axes_fit && flat_size(&metadata.shape, item_size).is_some() {
        return Ok(());
    }
    Err(ParseError::invalid("shape: the array has more than 2^63-1 bytes"))
}
