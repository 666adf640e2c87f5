//! The versions of the Zarr specification. Uses nothing.

/// The version of the Zarr specification that a document follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZarrFormat {
    /// `meta` and `attrs`.
    V1,
    /// `.zarray`, `.zgroup`, `.zattrs`.
    V2,
    /// `zarr.json`.
    V3,
}

impl ZarrFormat {
    /// Returns the number that documents have in `zarr_format`.
    pub fn number(self) -> u8 {
        match self {
            ZarrFormat::V1 => 1,
            ZarrFormat::V2 => 2,
            ZarrFormat::V3 => 3,
        }
    }
}
