//! `zarrfs demo DIR`: writes a small, rich hierarchy to try things on. `sample` defines its content.
//!
//! Chunks go through the codecs of the library, as any chunk does; the files are written here, in a new folder.

mod sample;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use zarrfs::codec::pipeline::Pipeline;
use zarrfs::codec::{CodecError, Representation};
use zarrfs::error::Error;
use zarrfs::metadata::{self, ArrayMetadata, Document};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::output;
use sample::{NodeContent, SampleNode};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # A store to try things on
  zarrfs demo sample.zarr
  zarrfs ls sample.zarr";

/// Write a small sample hierarchy to a new folder
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// A folder that does not exist yet or is empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Arguments {
    /// Writes the hierarchy.
    pub fn run(self) -> Outcome {
        let folder = &self.folder;
        let cannot_write =
            |path: &Path, error: io::Error| Exit::Failed(format!("cannot write {}: {error}", path.display()));
        std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, error))?;
        let mut names = std::fs::read_dir(folder).map_err(|error| cannot_write(folder, error))?;
        if names.next().is_some() {
            return Err(Exit::Failed(format!(
                "{} is not empty: name a folder that does not exist yet",
                folder.display()
            )));
        }
        for sample in sample::all() {
            for (key, bytes) in objects(&sample)? {
                let path = folder.join(key);
                let parent = path.parent().unwrap_or(folder);
                std::fs::create_dir_all(parent).map_err(|error| cannot_write(parent, error))?;
                std::fs::write(&path, bytes).map_err(|error| cannot_write(&path, error))?;
            }
        }
        let name = folder.display();
        let hint =
            format!("{name} is written: try 'zarrfs ls {name}' and 'zarrfs mount {name} MOUNTPOINT'\n");
        output::text(&hint).map(|_| ())
    }
}

/// Returns the stored objects of a node, by key.
fn objects(sample: &SampleNode) -> Outcome<Vec<(String, Vec<u8>)>> {
    let below = |name: &str| match sample.path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    };
    let mut objects: Vec<(String, Vec<u8>)> = sample
        .documents
        .iter()
        .map(|(name, document)| (below(name), format!("{document:#}\n").into_bytes()))
        .collect();
    match &sample.content {
        NodeContent::Group => {}
        NodeContent::Chunks(chunks) => {
            objects.extend(chunks.iter().map(|(key, bytes)| (below(key), bytes.clone())));
        }
        NodeContent::Elements(elements) => {
            let Some((key, document)) = objects.first() else { return Ok(objects) };
            let metadata = if key.ends_with(".zarray") {
                metadata::parse_v2_array(key, document, None)?
            } else {
                match metadata::parse_v3(key, document)? {
                    Document::Array(metadata) => metadata,
                    Document::Group(_) => return Err(Error::metadata(key, "is a group").into()),
                }
            };
            let chunks = chunks(&metadata, elements)?;
            objects.extend(chunks.into_iter().map(|(key, bytes)| (below(&key), bytes)));
        }
    }
    Ok(objects)
}

/// Cuts the flat elements into chunks and encodes them, except chunks that are all fill value.
fn chunks(metadata: &ArrayMetadata, elements: &[u8]) -> Outcome<Vec<(String, Vec<u8>)>> {
    let failed =
        |error: CodecError| Exit::from(Error::unsupported(&metadata.document_key, error.to_string()));
    let chunk_shape = metadata.chunk_grid.longest_chunk();
    let decoded = Representation {
        shape: chunk_shape.clone(),
        data_type: metadata.data_type.clone(),
        fill_value: metadata.fill_value.clone(),
    };
    let pipeline = Pipeline::build(&metadata.codecs, &decoded).map_err(failed)?;
    let counts = metadata.chunk_grid.chunk_counts(&metadata.shape);
    let mut chunks = Vec::new();
    for number in 0..counts.iter().product::<u64>() {
        let index = unravel(number, &counts);
        let chunk = cut(metadata, elements, &chunk_shape, &index);
        if chunk
            .chunks(metadata.fill_value.bytes.len().max(1))
            .any(|element| element != metadata.fill_value.bytes)
        {
            chunks.push((metadata.chunk_keys.key(&index), pipeline.encode(&chunk).map_err(failed)?.to_vec()));
        }
    }
    Ok(chunks)
}

/// Returns the elements of a chunk in C order, with the fill value beyond the array's edge.
fn cut(metadata: &ArrayMetadata, elements: &[u8], chunk_shape: &[u64], index: &[u64]) -> Vec<u8> {
    let fill_value = &metadata.fill_value.bytes;
    // A row is what lies along the last axis; without axes, the one element.
    let (row_length, outer_lengths) = chunk_shape.split_last().unwrap_or((&1, &[]));
    let mut chunk = Vec::new();
    for number in 0..outer_lengths.iter().product::<u64>() {
        let mut flat = 0;
        let mut is_inside = true;
        let within = unravel(number, outer_lengths).into_iter().chain([0]);
        for (((within, index), chunk_length), length) in
            within.zip(index).zip(chunk_shape).zip(&metadata.shape)
        {
            let position = index * chunk_length + within;
            is_inside &= position < *length;
            flat = flat * length + position;
        }
        let column = index.last().map_or(0, |last| last * row_length);
        let row_length_inside = metadata.shape.last().map_or(1, |length| (length - column).min(*row_length));
        let bytes = |count: u64| count as usize * fill_value.len();
        let row = elements.get(bytes(flat)..bytes(flat + row_length_inside)).filter(|_| is_inside);
        let row = row.unwrap_or_default();
        chunk.extend_from_slice(row);
        chunk.extend(fill_value.iter().cycle().take(bytes(*row_length) - row.len()));
    }
    chunk
}

/// Returns the indices of element `number` (C order) of a block.
fn unravel(number: u64, shape: &[u64]) -> Vec<u64> {
    let mut rest = number;
    let mut index: Vec<u64> = shape
        .iter()
        .rev()
        .map(|length| {
            let position = rest % length.max(&1);
            rest /= length.max(&1);
            position
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis.txt"), "mine").unwrap();
        let outcome = Arguments { folder: folder.path().to_owned() }.run();
        assert!(matches!(outcome, Err(Exit::Failed(reason)) if reason.contains("is not empty")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn indices_count_like_an_odometer() {
        assert_eq!(unravel(0, &[2, 3]), [0, 0]);
        assert_eq!(unravel(5, &[2, 3]), [1, 2]);
        assert!(unravel(0, &[]).is_empty());
    }
}
