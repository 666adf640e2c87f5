//! Index arithmetic of a flat file and its chunks. No I/O, and no state.
//!
//! [`grid`] says which chunks a range touches, [`strips`] which part of them is read and cached by itself, [`strided_copy`] how their
//! bytes lie in the range, [`byte_ranges`] which bytes of a chunk were written. Uses nothing else of `array`.

pub mod byte_ranges;
pub mod grid;
#[cfg(test)]
#[allow(clippy::expect_used)]
mod grid_tests;
pub mod strided_copy;
pub mod strips;
