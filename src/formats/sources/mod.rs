//! Files of other formats whose variables `zarrfs import` brings in: netCDF, HDF5 and TIFF.
//!
//! Uses `array`, `metadata`, `error`, and the slices of `hierarchy`. A [`SourceFile`] has the groups and variables of a file as they become
//! nodes: names, shapes, types and attributes, which are those that xarray writes for the same file. Elements are read in boxes, so that
//! memory does not grow with a variable. Variables may be parts of those in the file (`sliced.rs`), and so may the elements of a flat
//! file (`flat_slice.rs`).
//!
//! The readers are crates in pure Rust. `netcdf-reader` and `hdf5-reader` (one project, since 2026 with fuzzing and with references of
//! netCDF-C and h5py as tests) bound their allocations by the file, read hyperslabs, and need no other build tools. `hdf5-metno` binds the C
//! library, which the packages would have to bring; `netcdf3` lacks CDF-5. Other HDF5 crates were compared by their documentation only. zarrfs
//! reads the dimensions of HDF5 itself (`hdf5/`), because the crate refuses files without dimension scales. It reads the elements of classic
//! files itself (`classic.rs`): they lie in the file as the array has them.
//!
//! Invariants: a name, shape or type that cannot be brought in exactly is an error that names the variable, never left out. Only the
//! named file is opened: external links and external data are refused.

mod attributes;
mod boxes;
mod classic;
mod flat_slice;
mod hdf5;
mod open;
mod sliced;
mod source_file;
#[cfg(test)]
mod tests;
mod tiff;
mod variable;

pub use boxes::ElementBox;
pub use flat_slice::FlatSlice;
pub use open::{is_known, open};
pub use sliced::VariableSlice;
pub use source_file::SourceFile;
pub use variable::{Attribute, MissingValue, SourceGroup, SourceVariable};
