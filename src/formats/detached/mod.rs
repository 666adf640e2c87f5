//! Formats with detached headers: a short text that names the array's own file, which the format's folder also shows
//! ([`Role::Detached`](super::Role)). Uses what `formats` uses.

pub mod data_names;
pub mod envi;
pub mod grads;
pub mod mhd;
pub mod nrrd;
pub mod vrt;
pub mod xdmf;
