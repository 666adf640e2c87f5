//! What is stored is read and written as others do it: metadata, codecs and whole stores against zarr-python, tensorstore,
//! numcodecs and their files.
//!
//! **To add a file of tests**: a `mod` line here. May use `support` and `oracle`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../oracle/mod.rs"]
mod oracle;
#[path = "../support/mod.rs"]
mod support;

mod authoring;
mod axes;
mod bits_oracle;
mod cast_oracle;
mod codec_oracle;
mod companions;
mod conformance;
mod consolidated_oracle;
mod corpus;
mod filter_oracle;
mod hierarchies;
mod imports;
mod lossy;
mod media;
mod metadata_corpus;
mod metadata_oracle;
mod n5;
mod netcdf;
mod next_to_arrays;
mod no_data;
mod numcodecs_fixtures;
mod ome_tiff;
mod previews;
mod recorded;
mod recordings;
mod references;
mod registry;
mod sliced_files;
mod slices;
mod stacks;
mod tables;
mod text_forms;
mod views;
mod write_conformance;
mod xarray;
