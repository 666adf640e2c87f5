//! Fill values: one element's bytes, from the JSON forms of v2 and v3.
//!
//! Spec: v3 "Permitted fill values", v2 "Fill value encoding". Uses `error` and `data_type` only.

/// What a missing chunk holds: the bytes of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillValue {
    /// One element in canonical form (little-endian, packed).
    pub bytes: Vec<u8>,
    /// v2 `null` (or v1 none): undefined. Read as zeros; a chunk is never deleted for being all fill.
    pub is_undefined: bool,
}
