//! A row of chunks of an array with elements of no fixed size, decoded in memory.
//!
//! Uses `array/geometry`, `array/reservation.rs` and `error`. `codec_chain.rs` fills it.

use std::ops::Range;

use crate::array::geometry::axis::Axis;
use crate::array::reservation::Reservation;
use crate::error::{Error, Result};

/// A row of chunks: the elements of the array in a part of its first axis.
pub struct ElementRow {
    /// Its first element.
    origin: Vec<u64>,
    /// Elements per axis.
    shape: Vec<u64>,
    /// Elements from one index to the next along each axis.
    strides: Vec<u64>,
    /// For each element in C order, its offset in `bytes`, or [`MISSING`].
    places: Vec<u64>,
    /// Elements in any order, each after its length in bytes (u32, native).
    bytes: Vec<u8>,
}

/// The offset of an element that is not stored.
const MISSING: u64 = u64::MAX;

/// The order of a chunk's elements in its stored bytes.
pub struct ChunkLayout {
    /// Elements of the chunk along each axis of the array.
    pub lengths: Vec<u64>,
    /// Stored elements from one index to the next along each axis of the array.
    pub strides: Vec<u64>,
    /// Number of elements in the chunk.
    pub count: usize,
}

/// Reserves bytes. Fails if the elements at `key` together are too large.
pub fn reserve(held: &mut Reservation, bytes: u64, key: &str) -> Result<()> {
    if held.grow(bytes) {
        return Ok(());
    }
    let reason = format!(
        "elements of variable length are held in memory and take more than the cache size of {} bytes",
        held.limit_bytes()
    );
    Err(Error::TooLarge { key: key.to_owned(), reason })
}

/// Advances to the next index in C order over `counts`. After the last one returns `false` and starts again.
pub fn next_index(index: &mut [u64], counts: &[u64]) -> bool {
    for (position, &count) in index.iter_mut().zip(counts).rev() {
        *position += 1;
        if *position < count {
            return true;
        }
        *position = 0;
    }
    false
}

impl ElementRow {
    /// Creates a row in which all elements are missing.
    pub fn new(axes: &[Axis], row: u64, held: &mut Reservation, document_key: &str) -> Result<ElementRow> {
        let mut shape: Vec<u64> = axes.iter().map(Axis::extent).collect();
        let mut origin = vec![0; shape.len()];
        if let (Some(axis), Some(length), Some(start)) = (axes.first(), shape.first_mut(), origin.first_mut())
        {
            let span = axis.span(row);
            *start = span.start;
            *length = span.length.min(axis.extent() - span.start);
        }
        let mut strides = vec![0; shape.len()];
        let mut count: u64 = 1;
        for (stride, &length) in strides.iter_mut().zip(&shape).rev() {
            *stride = count;
            count = count.saturating_mul(length);
        }
        let elements = if shape.contains(&0) { 0 } else { count };
        reserve(held, elements.saturating_mul(size_of::<u64>() as u64), document_key)?;
        // The reservation succeeded, so the memory exists.
        let places = vec![MISSING; elements as usize];
        Ok(ElementRow { origin, shape, strides, places, bytes: Vec::new() })
    }

    /// Returns how many elements the row has.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Returns how many elements the row has on each axis from `start` on.
    fn left<'a>(&'a self, start: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        let ends = self.origin.iter().zip(&self.shape).map(|(origin, length)| origin + length);
        ends.zip(start).map(|(end, &start)| end.saturating_sub(start))
    }

    /// Returns whether the row has the element at `start`, which is not before the row.
    pub fn holds(&self, start: &[u64]) -> bool {
        self.left(start).all(|left| left > 0)
    }

    /// Adds the elements of a chunk that begins at `start`. Skips elements outside the row.
    pub fn put(
        &mut self,
        start: &[u64],
        chunk: &ChunkLayout,
        elements: &[&[u8]],
        held: &mut Reservation,
        key: &str,
    ) -> Result<()> {
        let mut counts: Vec<u64> =
            self.left(start).zip(&chunk.lengths).map(|(left, &length)| left.min(length)).collect();
        if counts.contains(&0) {
            return Ok(());
        }
        let first: u64 =
            dot(start.iter().zip(&self.origin).map(|(start, origin)| start - origin), &self.strides);
        // The last axis is the innermost loop.
        let run = counts.pop().unwrap_or(1);
        let place_step = self.strides.last().copied().unwrap_or(1);
        let element_step = chunk.strides.last().copied().unwrap_or(1);
        let mut index = vec![0; counts.len()];
        let before = self.bytes.len();
        let at_most = elements.iter().map(|element| size_of::<u32>() + element.len()).sum::<usize>();
        reserve(held, at_most as u64, key)?;
        loop {
            let place = first + dot(index.iter().copied(), &self.strides);
            let element = dot(index.iter().copied(), &chunk.strides);
            for number in 0..run {
                let (place, element) = (place + number * place_step, element + number * element_step);
                let (Some(place), Some(element)) =
                    (self.places.get_mut(place as usize), elements.get(element as usize))
                else {
                    return Err(Error::corrupt(key, "an element lies outside its chunk"));
                };
                let length = u32::try_from(element.len())
                    .map_err(|_| Error::corrupt(key, "an element has more than 4 GiB"))?;
                *place = self.bytes.len() as u64;
                self.bytes.extend_from_slice(&length.to_ne_bytes());
                self.bytes.extend_from_slice(element);
            }
            if !next_index(&mut index, &counts) {
                held.shrink((at_most - (self.bytes.len() - before)) as u64);
                return Ok(());
            }
        }
    }

    /// Calls `visit` with each element in C order.
    pub fn visit(&self, fill: &[u8], visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.visit_places(0..self.places.len(), fill, visit)
    }

    /// Calls `visit` with each element of a range of the elements in C order.
    pub fn visit_places(
        &self,
        places: Range<usize>,
        fill: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for &place in self.places.get(places).unwrap_or_default() {
            let stored = || {
                let (length, rest) = self.bytes.get(place as usize..)?.split_first_chunk()?;
                rest.get(..u32::from_ne_bytes(*length) as usize)
            };
            match if place == MISSING { Some(fill) } else { stored() } {
                Some(element) => visit(element)?,
                None => return Err(Error::corrupt("", "an element lies outside the bytes that were read")),
            }
        }
        Ok(())
    }
}

/// Returns the sum of the products.
fn dot(index: impl Iterator<Item = u64>, strides: &[u64]) -> u64 {
    index.zip(strides).map(|(position, stride)| position * stride).sum()
}
