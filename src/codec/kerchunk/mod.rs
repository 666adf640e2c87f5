//! Codecs that kerchunk names in references to HDF5, FITS and GRIB files. They are only read, as in kerchunk.
//!
//! `read_only` has what they share. Use `codec`'s traits, `config` and `metadata`.

pub mod fill_hdf_strings;
pub mod grib;
pub mod read_only;
pub mod record_member;
