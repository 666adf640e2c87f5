//! Formats of detached headers: a short text that names the array's own file, which the format's folder shows as well
//! ([`Role::Detached`](super::Role)). Uses what `formats` uses.

pub mod data_names;
pub mod envi;
pub mod grads;
pub mod mhd;
pub mod nrrd;
pub mod vrt;
pub mod xdmf;
