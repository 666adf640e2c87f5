//! `zarrfs demo DIR`: writes a small, rich hierarchy to try things on. `sample` defines its content.
//!
//! Documents are written as files, and elements through the array layer, which encodes them as those of any array.

mod sample;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use zarrfs::array::{Array, Engine, EngineOptions, Layout};
use zarrfs::hierarchy::Tree;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::open;
use crate::cli::output;
use sample::{NodeContent, SampleNode};

/// Memory for the chunks of an array that is written.
const CACHE_BYTES: u64 = 64 << 20;

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
        let nodes = sample::all();
        for node in &nodes {
            for (name, bytes) in files(node) {
                let path = folder.join(node.path).join(name);
                let parent = path.parent().unwrap_or(folder);
                std::fs::create_dir_all(parent).map_err(|error| cannot_write(parent, error))?;
                std::fs::write(&path, bytes).map_err(|error| cannot_write(&path, error))?;
            }
        }
        write_elements(folder, &nodes)?;
        let name = folder.display();
        let hint =
            format!("{name} is written: try 'zarrfs ls {name}' and 'zarrfs mount {name} MOUNTPOINT'\n");
        output::text(&hint).map(|_| ())
    }
}

/// Returns the documents of a node, and chunks that are stored as they are, by the name of their file.
fn files(node: &SampleNode) -> Vec<(&'static str, Vec<u8>)> {
    let documents = node.documents.iter();
    let mut files: Vec<_> =
        documents.map(|(name, document)| (*name, format!("{document:#}\n").into_bytes())).collect();
    if let NodeContent::Chunks(chunks) = &node.content {
        files.extend_from_slice(chunks);
    }
    files
}

/// Writes the elements of all arrays in a folder that has their documents.
fn write_elements(folder: &Path, nodes: &[SampleNode]) -> Outcome {
    let location = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let store = zarrfs::store::open(&location.to_string_lossy(), false)?;
    let tree = Tree::new(store.clone());
    // Each array is stored when it is complete, and not by a timer.
    let options = EngineOptions { writeback_delay: None, ..EngineOptions::new(CACHE_BYTES, 1) };
    let engine = Engine::with_options(options);
    for node in nodes {
        if let NodeContent::Elements(elements) = &node.content {
            let metadata = open::array(&tree, node.path)?;
            let array = Array::open(&engine, &store, node.path, metadata, Layout::default())?;
            array.writer().write_at(0, elements)?;
            array.writer().sync()?;
        }
    }
    Ok(())
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
}
