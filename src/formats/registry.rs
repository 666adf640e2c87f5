//! The table of formats: one line for each.

use std::sync::Arc;

#[cfg(test)]
use super::tagged;
use super::{
    FOLDER, Format, csv, detached, hdf5, json, jsonl, mask, mrc, nc, nifti, npy, ome_tiff, safetensors,
    spikeglx, tiff,
};
use crate::array::VariableArray;
use crate::metadata::ArrayMetadata;
use crate::store::Store;

/// Every format, in alphabetical order.
pub const FORMATS: &[&Format] = &[
    &csv::FORMAT,
    &detached::envi::FORMAT,
    &detached::grads::FORMAT,
    &hdf5::FORMAT,
    JSON,
    &jsonl::FORMAT,
    &mask::FORMAT,
    &detached::mhd::FORMAT,
    &mrc::FORMAT,
    &nc::FORMAT,
    &nifti::FORMAT,
    &npy::FORMAT,
    &detached::nrrd::FORMAT,
    &ome_tiff::FORMAT,
    &safetensors::FORMAT,
    &spikeglx::FORMAT,
    &spikeglx::META,
    #[cfg(test)]
    &tagged::FORMAT,
    &tiff::FORMAT,
    &detached::vrt::FORMAT,
    &detached::xdmf::FORMAT,
];

/// The format of sidecars, which every node has next to it.
pub const JSON: &Format = &json::FORMAT;

/// Returns the format with this name.
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name)
}

/// Returns the formats with files in the folder of a format: itself first.
pub fn in_folder_of(format: &'static Format) -> impl Iterator<Item = &'static Format> {
    let others = FORMATS.iter().copied().filter(move |other| other.folder == Some(format.name));
    [format].into_iter().chain(others)
}

/// Returns the format with this name or this suffix, with or without its dot.
pub fn find_by_any_name(word: &str) -> Option<&'static Format> {
    let is_suffix = |format: &&Format| format.suffix.trim_start_matches('.') == word.trim_start_matches('.');
    find(word).or_else(|| FORMATS.iter().copied().find(is_suffix))
}

/// Returns the file with the elements of an array as text, as a path from the root of a mount, if the array has no flat file but a
/// text form.
pub fn text_file(store: &Arc<dyn Store>, path: &str, metadata: &Arc<ArrayMetadata>) -> Option<String> {
    VariableArray::open(store, path, metadata).ok()?;
    // The name of a root depends on the mount.
    Some(if path.is_empty() { format!("{FOLDER}/{}/", jsonl::FORMAT.name) } else { jsonl::FORMAT.file(path) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(FORMATS.iter().map(|format| format.name).is_sorted_by(|a, b| a < b));
        assert!(FORMATS.iter().all(|format| find(format.name) == Some(format)));
    }
}
