//! The default shape of chunks: at most 4 MiB, as near to a cube as the shape allows, and of equal parts.
//! Uses nothing.

/// The limit of a chunk's bytes: long enough for a disk and a network, short enough for caches and single reads.
const MAX_BYTES: u64 = 4 << 20;

/// Returns the shape of chunks. Axes shorter than the side of the cube are not cut, and the other axes use the bytes
/// that this saves. A cut axis has parts as equal as possible. A chunk has more than 1 MiB unless the array is
/// shorter.
pub fn chunk_shape(shape: &[u64], item_bytes: u64) -> Vec<u64> {
    let mut by_length: Vec<(usize, u64)> = shape.iter().copied().enumerate().collect();
    by_length.sort_by_key(|(_, length)| *length);
    let mut chunk = vec![1; shape.len()];
    let mut left = (MAX_BYTES / item_bytes.max(1)).max(1);
    let axes = by_length.len();
    for (done, (axis, length)) in by_length.into_iter().enumerate() {
        let side = root(left, axes - done).max(1);
        let parts = length.div_ceil(side).max(1);
        let part = length.div_ceil(parts).max(1);
        if let Some(slot) = chunk.get_mut(axis) {
            *slot = part;
        }
        left = (left / part).max(1);
    }
    chunk
}

/// Returns the largest number with a power of at most `limit`.
fn root(limit: u64, power: usize) -> u64 {
    let exponent = u32::try_from(power).unwrap_or(u32::MAX);
    let fits = |side: u64| side.checked_pow(exponent).is_some_and(|power| power <= limit);
    let near = (limit as f64).powf(1.0 / power.max(1) as f64) as u64;
    (near.saturating_sub(1)..=near + 1).rev().find(|&side| fits(side)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_near_cubes_of_one_to_four_mebibytes() {
        assert_eq!(chunk_shape(&[12, 180, 360], 4), [12, 180, 360]);
        assert_eq!(chunk_shape(&[1000, 1000, 1000], 4), [100, 100, 100]);
        assert_eq!(chunk_shape(&[1 << 40], 1), [4 << 20]);
        assert!(chunk_shape(&[], 8).is_empty());
        assert_eq!(chunk_shape(&[0, 5], 8), [1, 5]);
        assert_eq!(chunk_shape(&[7], 1 << 30), [1]);
        assert_eq!(root(27, 3), 3);
        assert_eq!(root(26, 3), 2);
        for shape in
            [&[3, 1 << 30][..], &[1025, 1025, 1025], &[70, 70, 70, 70, 70], &[1, 1 << 33, 2], &[5000, 5000]]
        {
            for item in [1, 2, 8, 16] {
                let chunk = chunk_shape(shape, item);
                let bytes: u64 = chunk.iter().product::<u64>() * item;
                assert!(bytes <= MAX_BYTES && bytes > 1 << 20, "{shape:?} × {item}: {chunk:?}");
            }
        }
    }
}
