//! Which shape of chunks would have read less: an estimate from the boxes that were read.
//!
//! A box that lies anywhere touches, along an axis, `1 + (length - 1) / chunk` chunks on average, and each of them is decoded as a whole.
//! That leaves the cache out of account, so the estimate is compared with what was decoded, and small gains are not mentioned. The shape is
//! found by doubling, from one element on, the length of the axis with which a chunk touches the fewest boxes. Of the shapes on this way that are
//! not much smaller than the present chunks, and not larger, the one with the lowest estimate is suggested. Uses nothing.

/// The fewest and the most bytes of a suggested chunk, if the present chunks have fewer or more.
const FEWEST_BYTES: u64 = 64 << 10;
const MOST_BYTES: u64 = 4 << 20;
/// A suggested chunk has at least this part of the bytes of a present one.
const SMALLEST_PART: u64 = 8;
/// A suggestion decodes at most this part of what was decoded.
const WORTHWHILE: f64 = 0.75;
/// Nothing is suggested where less than this was decoded for each byte that was read.
const WASTEFUL: f64 = 1.5;

/// How the array is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayForm {
    /// Its shape.
    pub shape: Vec<u64>,
    /// The shape of its chunks.
    pub chunk_shape: Vec<u64>,
    /// The bytes of an element.
    pub item_bytes: u64,
}

/// A shape of chunks that would have read less.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The shape.
    pub chunk_shape: Vec<u64>,
    /// About how many bytes would have been decoded.
    pub decoded_bytes: f64,
}

/// The boxes that were read: their shapes, and how many there were.
pub type Boxes<'a> = &'a [(Vec<u64>, u64)];

/// Returns about how many bytes are decoded for these boxes with chunks of this shape.
fn estimate(form: &ArrayForm, boxes: Boxes<'_>, chunk_shape: &[u64]) -> f64 {
    let along = |length: u64, chunk: u64, extent: u64| {
        let (length, chunk, all) = (length as f64, chunk as f64, extent.div_ceil(chunk.max(1)) as f64);
        let touched = if length >= extent as f64 { all } else { (1.0 + (length - 1.0) / chunk).min(all) };
        touched * chunk
    };
    let of_box = |(shape, count): &(Vec<u64>, u64)| {
        let axes = shape.iter().zip(chunk_shape).zip(&form.shape);
        axes.map(|((&length, &chunk), &extent)| along(length, chunk, extent)).product::<f64>() * *count as f64
    };
    boxes.iter().map(of_box).sum::<f64>() * form.item_bytes as f64
}

/// Returns a shape of chunks that would have decoded much less than `decoded_bytes`, of which `read_bytes` were read.
pub fn advise(form: &ArrayForm, boxes: Boxes<'_>, read_bytes: u64, decoded_bytes: u64) -> Option<Advice> {
    let is_wasteful = decoded_bytes as f64 > WASTEFUL * read_bytes as f64;
    let is_known = |lengths: &[u64]| lengths.len() == form.shape.len() && !lengths.contains(&0);
    if !is_wasteful
        || boxes.is_empty()
        || !is_known(&form.shape)
        || !is_known(&form.chunk_shape)
        || !boxes.iter().all(|(shape, _)| is_known(shape))
    {
        return None;
    }
    let bytes =
        |shape: &[u64]| shape.iter().fold(form.item_bytes.max(1), |all, length| all.saturating_mul(*length));
    let most = bytes(&form.chunk_shape).clamp(FEWEST_BYTES, MOST_BYTES);
    let fewest = (most / SMALLEST_PART).max(FEWEST_BYTES);
    let mut chunk_shape = vec![1; form.shape.len()];
    let mut found: Option<Advice> = None;
    loop {
        let decoded_bytes = estimate(form, boxes, &chunk_shape);
        let is_long_enough = found.as_ref().is_some_and(|found| bytes(&found.chunk_shape) >= fewest);
        if !is_long_enough || found.as_ref().is_some_and(|found| decoded_bytes <= found.decoded_bytes) {
            found = Some(Advice { chunk_shape: chunk_shape.clone(), decoded_bytes });
        }
        let grown = (0..chunk_shape.len()).filter_map(|axis| {
            let extent = *form.shape.get(axis)?;
            let mut grown: Vec<u64> = chunk_shape.clone();
            let length = grown.get_mut(axis)?;
            *length = length.saturating_mul(2).min(extent);
            (grown != chunk_shape && bytes(&grown) <= most).then_some(grown)
        });
        let costs = grown.map(|shape| (estimate(form, boxes, &shape) / bytes(&shape) as f64, shape));
        // Of two axes that cost the same, the last one: its elements are neighbours in memory.
        let Some((_, best)) = costs.reduce(|best, next| if next.0 <= best.0 { next } else { best }) else {
            break;
        };
        chunk_shape = best;
    }
    let is_worthwhile = |found: &Advice| {
        found.chunk_shape != form.chunk_shape && found.decoded_bytes < WORTHWHILE * decoded_bytes as f64
    };
    found.filter(is_worthwhile)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn form() -> ArrayForm {
        ArrayForm { shape: vec![8760, 180, 360], chunk_shape: vec![1, 180, 360], item_bytes: 4 }
    }

    #[test]
    fn series_want_long_chunks() {
        let series = [(vec![8760, 1, 1], 10)];
        let (read, decoded) = (8760 * 4 * 10, 8760 * 180 * 360 * 4);
        let Advice { chunk_shape, decoded_bytes } = advise(&form(), &series, read, decoded).unwrap();
        assert_eq!(chunk_shape[0], 8760, "{chunk_shape:?}");
        assert!(decoded_bytes < decoded as f64 / 100.0, "{decoded_bytes}");
        assert!(chunk_shape.iter().product::<u64>() * 4 <= 180 * 360 * 4);
    }

    #[test]
    fn planes_of_planes_need_no_advice() {
        let planes = [(vec![1, 180, 360], 100)];
        assert_eq!(advise(&form(), &planes, 25_920_000, 25_920_000), None);
        let across = ArrayForm { chunk_shape: vec![730, 18, 36], ..form() };
        let Advice { chunk_shape, .. } = advise(&across, &planes, 25_920_000, 18_921_600_000).unwrap();
        assert_eq!(chunk_shape[1..], [180, 360]);
    }

    #[test]
    fn windows_want_windows() {
        let windows = [(vec![1, 16, 16], 50)];
        let Advice { chunk_shape, decoded_bytes } =
            advise(&form(), &windows, 50 * 1024, 50 * 259_200).unwrap();
        assert!(chunk_shape[1] < 180 && chunk_shape[2] < 360, "{chunk_shape:?}");
        assert!(decoded_bytes < 0.75 * 50.0 * 259_200.0);
    }

    #[test]
    fn lines_that_make_no_sense_give_no_advice() {
        for (shape, chunk_shape, boxes) in [
            (vec![], vec![], vec![]),
            (vec![0], vec![1], vec![(vec![1], 1)]),
            (vec![5, 5], vec![5], vec![(vec![1, 1], 1)]),
            (vec![5, 5], vec![5, 5], vec![(vec![1], 1)]),
            (vec![u64::MAX, u64::MAX], vec![u64::MAX, 1], vec![(vec![u64::MAX, 0], u64::MAX)]),
        ] {
            let form = ArrayForm { shape, chunk_shape, item_bytes: 0 };
            assert_eq!(advise(&form, &boxes, 1, u64::MAX), None);
        }
        let huge =
            ArrayForm { shape: vec![u64::MAX; 8], chunk_shape: vec![u64::MAX; 8], item_bytes: u64::MAX };
        let _ = advise(&huge, &[(vec![u64::MAX; 8], u64::MAX)], 1, u64::MAX);
    }
}
