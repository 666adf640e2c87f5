//! Index arithmetic of a flat file and its chunks, without I/O and without state.
//!
//! [`axis`] has the chunks along one axis. [`grid`] finds the chunks that a range touches. [`strips`] cuts chunks into
//! the parts that are read and cached by themselves. [`axis_order`] is the order of the axes in the file. [`layout`] is
//! the order of the elements. [`copy_plan`] has all that one request touches. [`selection`] finds the elements of a
//! slice. [`strided_copy`] copies between a chunk and a range. [`byte_ranges`] records which bytes of a chunk were
//! written. [`chunk_boxes`] has the ranges of neighbouring chunks. Uses nothing else of `array`.

pub mod axis;
pub mod axis_order;
pub mod byte_ranges;
pub mod chunk_boxes;
pub mod copy_plan;
pub mod grid;
#[cfg(test)]
#[allow(clippy::expect_used)]
mod grid_tests;
pub mod layout;
pub mod selection;
pub mod strided_copy;
pub mod strips;
