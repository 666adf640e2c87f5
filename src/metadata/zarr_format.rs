//! The versions of the Zarr specification, and N5. Uses `error`.

use crate::error::Error;

/// Returns the error of a change of a node of N5.
pub fn read_only_n5(path: &str) -> Error {
    let path = if path.is_empty() { "/" } else { path };
    Error::ReadOnly(format!(
        "{path}: N5 is read-only; a mount with --overlay DIR keeps changed elements in a folder of yours"
    ))
}

/// The specification that a document follows: a version of Zarr, or N5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZarrFormat {
    /// `meta` and `attrs`.
    V1,
    /// `.zarray`, `.zgroup`, `.zattrs`.
    V2,
    /// `zarr.json`.
    V3,
    /// `attributes.json` of N5. It is only read.
    N5,
}

impl ZarrFormat {
    /// Returns the number that documents have in `zarr_format`; `None` for N5.
    pub fn number(self) -> Option<u8> {
        match self {
            ZarrFormat::V1 => Some(1),
            ZarrFormat::V2 => Some(2),
            ZarrFormat::V3 => Some(3),
            ZarrFormat::N5 => None,
        }
    }

    /// Returns the name that people read.
    pub fn name(self) -> &'static str {
        match self {
            ZarrFormat::V1 => "Zarr v1",
            ZarrFormat::V2 => "Zarr v2",
            ZarrFormat::V3 => "Zarr v3",
            ZarrFormat::N5 => "N5",
        }
    }
}
