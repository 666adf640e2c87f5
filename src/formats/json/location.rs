//! The place of an array and its sidecar, which the sidecar begins with.

use serde_json::{Map, Value, json};

/// The name and version of the schema.
pub(super) const SCHEMA: &str = "zarrfs/1";

/// The place of an array in the hierarchy and relative to its sidecar.
#[derive(Clone, Copy, Debug)]
pub(super) struct SidecarLocation<'a> {
    /// The path in the hierarchy, without a leading `/` (`""` is the root).
    pub path: &'a str,
    /// The name of the array's file.
    pub name: &'a str,
    /// The file, relative to the sidecar.
    pub data_file: &'a str,
}

/// Returns the first members of an array's sidecar.
pub(super) fn head(place: SidecarLocation<'_>) -> Map<String, Value> {
    let mut sidecar = Map::new();
    sidecar.insert("schema".into(), json!(SCHEMA));
    sidecar.insert("name".into(), json!(place.name));
    sidecar.insert("path".into(), json!(format!("/{}", place.path)));
    sidecar.insert("data_file".into(), json!(place.data_file));
    sidecar
}
