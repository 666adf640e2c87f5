//! Chunk grids: how a document cuts an array into chunks. The array layer has the arithmetic on them.
//!
//! Spec: v3 "Regular chunk grid", the registered extension "rectilinear"
//! (`{"kind": "inline", "chunk_shapes": [4, [1, 2, [3, 5]]]}`), `zarrs.regular_bounded` of the zarrs crate, v2 "chunks". Uses `json`, `codec_spec`.

use serde_json::{Map, Value};

use super::codec_spec::extension;
use super::json;
use super::json::parse_error::{ParseError, ParseResult};
use super::{ChunkGrid, MAX_CHUNK_BYTES};

impl ChunkGrid {
    /// Returns the number of chunks along each axis that hold elements of an array of this `shape`, which has the
    /// grid's rank. Chunks of a rectilinear grid that lie wholly beyond the array are not counted.
    pub fn chunk_counts(&self, shape: &[u64]) -> Vec<u64> {
        match self {
            ChunkGrid::Regular(chunk) => {
                shape.iter().zip(chunk).map(|(&n, &length)| n.div_ceil(length.max(1))).collect()
            }
            ChunkGrid::Rectilinear(axes) => {
                shape.iter().zip(axes).map(|(&n, runs)| chunks_before(runs, n)).collect()
            }
        }
    }

    /// Returns the length of the longest chunk along each axis.
    pub fn longest_chunk(&self) -> Vec<u64> {
        match self {
            ChunkGrid::Regular(chunk) => chunk.clone(),
            ChunkGrid::Rectilinear(axes) => {
                axes.iter().map(|runs| runs.iter().map(|&(length, _)| length).max().unwrap_or(0)).collect()
            }
        }
    }

    /// Checks the grid against an array: the rank, that the chunks reach the array's end, that a chunk has a
    /// length wherever the array has one, and that a chunk's bytes stay below [`MAX_CHUNK_BYTES`].
    pub fn check(&self, shape: &[u64], item_size: Option<usize>) -> ParseResult<()> {
        let longest = self.longest_chunk();
        if longest.len() != shape.len() {
            let (grid, array) = (longest.len(), shape.len());
            return Err(ParseError::invalid(format_args!(
                "the grid has {grid} dimensions, the shape {array}"
            )));
        }
        for (axis, (&n, &length)) in shape.iter().zip(&longest).enumerate() {
            if n > 0 && length == 0 {
                return Err(ParseError::invalid(format_args!(
                    "chunks of length 0 in dimension {axis} of length {n}"
                )));
            }
        }
        if let ChunkGrid::Rectilinear(axes) = self {
            for (axis, (&n, runs)) in shape.iter().zip(axes).enumerate() {
                let reach = reach(runs).map_err(|error| error.within(axis))?;
                if reach < n {
                    return Err(ParseError::invalid(format_args!(
                        "the chunks of dimension {axis} end at {reach}, before the array's end at {n}"
                    )));
                }
            }
        }
        let bytes = item_size.and_then(|item| {
            let item = u64::try_from(item).ok()?;
            longest.iter().try_fold(item, |product, &length| product.checked_mul(length))
        });
        let fits = item_size.is_none() || bytes.is_some_and(|bytes| bytes <= MAX_CHUNK_BYTES);
        if !fits && !longest.contains(&0) {
            return Err(ParseError::invalid(format_args!(
                "a chunk has more than the limit of {MAX_CHUNK_BYTES} bytes"
            )));
        }
        Ok(())
    }
}

/// Returns the number of chunks that start before `end`.
fn chunks_before(runs: &[(u64, u64)], end: u64) -> u64 {
    let (mut start, mut chunks) = (0u64, 0u64);
    for &(length, count) in runs {
        let needed = (end - start).div_ceil(length.max(1));
        if needed <= count {
            return chunks.saturating_add(needed);
        }
        chunks = chunks.saturating_add(count);
        start = start.saturating_add(length.saturating_mul(count)).min(end);
    }
    chunks
}

/// Returns where the last chunk of an axis ends.
fn reach(runs: &[(u64, u64)]) -> ParseResult<u64> {
    runs.iter()
        .try_fold(0u64, |end, &(length, count)| end.checked_add(length.checked_mul(count)?))
        .filter(|&end| i64::try_from(end).is_ok())
        .ok_or_else(|| ParseError::invalid("the chunks reach past 2^63"))
}

/// Reads v3's `chunk_grid` for an array of `shape`. `must_understand: false` does not help an unknown one.
pub fn parse_v3(value: &Value, shape: &[u64]) -> ParseResult<ChunkGrid> {
    let extension = extension(value)?;
    let empty = Map::new();
    let configuration = extension.configuration.unwrap_or(&empty);
    let in_member = |name: &'static str| move |error: ParseError| error.within(name).within("configuration");
    match extension.name {
        "regular" => {
            json::refuse_unknown(configuration, &["chunk_shape"])
                .map_err(|error| error.within("configuration"))?;
            let value = json::required(configuration, "chunk_shape")
                .map_err(|error| error.within("configuration"))?;
            let mixed = value
                .as_array()
                .is_some_and(|axes| axes.iter().any(Value::is_array) && !axes.iter().all(Value::is_array));
            if mixed {
                // zarr-python 3.2 stored rectilinear grids under this name where one axis was uniform.
                return rectilinear(value, shape).map_err(in_member("chunk_shape"));
            }
            json::unsigned_list(value).map(ChunkGrid::Regular).map_err(in_member("chunk_shape"))
        }
        // zarrs' experimental grid: as "regular", but chunks end where the array does.
        "zarrs.regular_bounded" => {
            json::refuse_unknown(configuration, &["chunk_shape"])
                .map_err(|error| error.within("configuration"))?;
            let value = json::required(configuration, "chunk_shape")
                .map_err(|error| error.within("configuration"))?;
            bounded(value, shape).map_err(in_member("chunk_shape"))
        }
        // The draft that became "rectilinear" (ZEP 3), as older versions of the zarrs crate write it.
        "rectangular" => {
            json::refuse_unknown(configuration, &["chunk_shape"])
                .map_err(|error| error.within("configuration"))?;
            let value = json::required(configuration, "chunk_shape")
                .map_err(|error| error.within("configuration"))?;
            rectilinear(value, shape).map_err(in_member("chunk_shape"))
        }
        "rectilinear" => {
            json::refuse_unknown(configuration, &["kind", "chunk_shapes"])
                .map_err(|error| error.within("configuration"))?;
            let kind =
                json::required(configuration, "kind").map_err(|error| error.within("configuration"))?;
            if json::text(kind).map_err(in_member("kind"))? != "inline" {
                let kind = json::shown(kind);
                return Err(ParseError::unsupported(format_args!(
                    "a rectilinear chunk grid of the kind {kind}"
                )));
            }
            let value = json::required(configuration, "chunk_shapes")
                .map_err(|error| error.within("configuration"))?;
            rectilinear(value, shape).map_err(in_member("chunk_shapes"))
        }
        other => Err(ParseError::unsupported(format_args!("the chunk grid {}", json::shown_text(other)))),
    }
}

/// Reads a regular grid whose last chunk on each axis has the length that is left.
fn bounded(value: &Value, shape: &[u64]) -> ParseResult<ChunkGrid> {
    let axes = json::list(value)?;
    if axes.len() != shape.len() {
        let (grid, array) = (axes.len(), shape.len());
        return Err(ParseError::invalid(format_args!("the grid has {grid} dimensions, the shape {array}")));
    }
    let runs = |(value, &n): (&Value, &u64)| {
        let length = positive(value)?;
        let runs = [(length, n / length), (n % length, 1)];
        Ok(runs.into_iter().filter(|&(length, count)| length > 0 && count > 0).collect())
    };
    axes.iter().zip(shape).map(runs).collect::<ParseResult<_>>().map(ChunkGrid::Rectilinear)
}

fn rectilinear(value: &Value, shape: &[u64]) -> ParseResult<ChunkGrid> {
    let axes = json::list(value)?;
    if axes.len() != shape.len() {
        let (grid, array) = (axes.len(), shape.len());
        return Err(ParseError::invalid(format_args!("the grid has {grid} dimensions, the shape {array}")));
    }
    let axis = |(axis, (value, &n)): (usize, (&Value, &u64))| {
        axis_runs(value, n).map_err(|error| error.within(format_args!("dimension {axis}")))
    };
    axes.iter().zip(shape).enumerate().map(axis).collect::<ParseResult<_>>().map(ChunkGrid::Rectilinear)
}

/// Reads the runs (length, count) of one axis of length `n`. Neighbours of one length are joined.
fn axis_runs(value: &Value, n: u64) -> ParseResult<Vec<(u64, u64)>> {
    let Value::Array(entries) = value else {
        let length = edge(value)?;
        return Ok(if n == 0 { Vec::new() } else { vec![(length, n.div_ceil(length))] });
    };
    if entries.is_empty() {
        return Err(ParseError::invalid("the list of chunk lengths is empty"));
    }
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for entry in entries {
        let (length, count) = match entry.as_array().map(Vec::as_slice) {
            None => (edge(entry)?, 1),
            Some([length, count]) => (edge(length)?, positive(count)?),
            Some(_) => return Err(ParseError::invalid("a run must be [length, count]")),
        };
        match runs.last_mut() {
            Some(last) if last.0 == length => {
                last.1 = last.1.checked_add(count).ok_or_else(|| ParseError::invalid("too many chunks"))?;
            }
            _ => runs.push((length, count)),
        }
    }
    Ok(runs)
}

/// Reads a chunk's length: a positive integer. zarr-python 3.2 also wrote `true` for 1 and `4.0` for 4.
fn edge(value: &Value) -> ParseResult<u64> {
    match value {
        Value::Bool(true) => Ok(1),
        Value::Number(number) if number.as_str().ends_with(".0") => {
            let whole = number.as_str().trim_end_matches('0').trim_end_matches('.');
            let length = whole.parse().ok().filter(|&length| length > 0);
            length.ok_or_else(|| not_positive(value))
        }
        _ => positive(value),
    }
}

fn positive(value: &Value) -> ParseResult<u64> {
    value.as_u64().filter(|&number| number > 0).ok_or_else(|| not_positive(value))
}

fn not_positive(value: &Value) -> ParseError {
    ParseError::invalid(format_args!("must be a positive integer, not {}", json::shown(value)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn inline(chunk_shapes: Value) -> Value {
        json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": chunk_shapes}})
    }

    fn regular(chunk_shape: Value) -> Value {
        json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}})
    }

    #[test]
    fn a_bounded_grid_ends_with_the_array() {
        let bounded = |chunk_shape: Value, shape: &[u64]| {
            let configuration = json!({"chunk_shape": chunk_shape});
            parse_v3(&json!({"name": "zarrs.regular_bounded", "configuration": configuration}), shape)
        };
        let grid = bounded(json!([4, 4, 4, 4]), &[10, 8, 3, 0]).unwrap();
        let runs = vec![vec![(4, 2), (2, 1)], vec![(4, 2)], vec![(3, 1)], vec![]];
        assert_eq!(grid, ChunkGrid::Rectilinear(runs));
        assert_eq!(grid.check(&[10, 8, 3, 0], Some(2)), Ok(()));
        let rectangular = json!({"name": "rectangular", "configuration": {"chunk_shape": [[5, 5, 15], 10]}});
        let runs = vec![vec![(5, 2), (15, 1)], vec![(10, 2)]];
        assert_eq!(parse_v3(&rectangular, &[25, 20]).unwrap(), ChunkGrid::Rectilinear(runs));
        assert!(bounded(json!([0]), &[4]).is_err() && bounded(json!([1, 1]), &[4]).is_err());
    }

    #[test]
    fn the_example_of_the_rectilinear_specification() {
        let shape = [6, 6, 6, 6, 6];
        let grid =
            parse_v3(&inline(json!([4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [4, 4, 4]])), &shape).unwrap();
        let runs = vec![
            vec![(4, 2)],
            vec![(1, 1), (2, 1), (3, 1)],
            vec![(4, 2)],
            vec![(1, 3), (3, 1)],
            vec![(4, 3)],
        ];
        assert_eq!(grid, ChunkGrid::Rectilinear(runs));
        assert_eq!(grid.chunk_counts(&shape), [2, 3, 2, 4, 2]);
        assert_eq!(grid.longest_chunk(), [4, 3, 4, 3, 4]);
        grid.check(&shape, Some(8)).unwrap();
    }

    #[test]
    fn an_axis_without_elements_has_no_chunks() {
        let grid = parse_v3(&inline(json!([4, [2, 2]])), &[0, 0]).unwrap();
        assert_eq!(grid.chunk_counts(&[0, 0]), [0, 0]);
        grid.check(&[0, 0], Some(8)).unwrap();
        let grid = parse_v3(&regular(json!([0])), &[0]).unwrap();
        assert_eq!(grid.chunk_counts(&[0]), [0]);
        grid.check(&[0], Some(8)).unwrap();
    }

    #[test]
    fn grids_written_by_zarr_python_3_2() {
        let grid = parse_v3(&regular(json!([2, [1, 3]])), &[4, 4]).unwrap();
        assert_eq!(grid, ChunkGrid::Rectilinear(vec![vec![(2, 2)], vec![(1, 1), (3, 1)]]));
        let grid = parse_v3(&inline(json!([[true, 3.0, [10.0, 2]]])), &[4]).unwrap();
        assert_eq!(grid, ChunkGrid::Rectilinear(vec![vec![(1, 1), (3, 1), (10, 2)]]));
    }

    #[test]
    fn bad_grids_are_refused() {
        for (grid, shape, reason) in [
            (json!("hexagonal"), vec![], "the chunk grid \"hexagonal\""),
            (regular(json!([2])), vec![4, 4], "the grid has 1 dimensions, the shape 2"),
            (regular(json!([0])), vec![4], "chunks of length 0 in dimension 0 of length 4"),
            (
                regular(json!([-1])),
                vec![4],
                "configuration: chunk_shape: 0: must be an integer from 0 to 2^64-1, not -1",
            ),
            (
                inline(json!([[2, 1]])),
                vec![4],
                "the chunks of dimension 0 end at 3, before the array's end at 4",
            ),
            (
                inline(json!([[0, 4]])),
                vec![4],
                "configuration: chunk_shapes: dimension 0: must be a positive integer, not 0",
            ),
            (
                inline(json!([[[2, 0]]])),
                vec![4],
                "configuration: chunk_shapes: dimension 0: must be a positive integer, not 0",
            ),
            (
                inline(json!([[]])),
                vec![4],
                "configuration: chunk_shapes: dimension 0: the list of chunk lengths is empty",
            ),
            (inline(json!([[[u64::MAX, 2]]])), vec![4], "0: the chunks reach past 2^63"),
            (regular(json!([1u64 << 40])), vec![4], "a chunk has more than the limit of 1099511627776 bytes"),
            (
                regular(json!([u64::MAX, u64::MAX])),
                vec![4, 4],
                "a chunk has more than the limit of 1099511627776 bytes",
            ),
        ] {
            let result = parse_v3(&grid, &shape).and_then(|grid| grid.check(&shape, Some(8)));
            assert_eq!(result.unwrap_err().to_string(), reason, "{grid}");
        }
    }

    proptest! {
        #[test]
        fn chunk_counts_as_counted_one_by_one(
            runs in proptest::collection::vec((1u64..5, 1u64..4), 1..5),
            n in 0u64..50,
        ) {
            let mut ends = Vec::new();
            for &(length, count) in &runs {
                for _ in 0..count {
                    ends.push(ends.last().copied().unwrap_or(0) + length);
                }
            }
            let naive = ends.iter().filter(|&&end| end < n).count() as u64 + u64::from(n > 0);
            let naive = naive.min(ends.len() as u64);
            prop_assert_eq!(ChunkGrid::Rectilinear(vec![runs]).chunk_counts(&[n]), vec![naive]);
        }
    }
}
