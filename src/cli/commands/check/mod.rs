//! `zarrfs check STORE [ARRAY…]`: decodes every stored object and names each that is damaged.

mod report;

use std::collections::HashSet;
use std::sync::Arc;

use clap::Args;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use zarrfs::array::{Array, Engine, Layout, Strays};
use zarrfs::error::Error;
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::store::Store;

use crate::cli::exit::Outcome;
use crate::cli::log;
use crate::cli::nodes::open;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::output::progress;
use report::{ArrayFindings, Missing, Report, Style};

/// The most chunks at a time.
const MAX_JOBS: u64 = 1024;
/// Memory for the indexes of shards. Each index has at most 32 MiB.
const INDEX_BYTES: u64 = 128 << 20;
/// How many chunks of a remote store are read at a time, unless `--jobs` says otherwise.
const REMOTE_JOBS: usize = 16;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # The whole store
  zarrfs check sample.zarr
  # Two arrays of it, four chunks at a time; a missing chunk is an error
  zarrfs check --jobs 4 --missing=error sample.zarr climate/lat climate/temperature";

/// Decode everything and report each damaged object
///
/// Writes one line per damaged object, with its key and the reason, to standard output. Everything that the store lists is
/// decoded; chunks that are not stored are fill value and are only counted. Objects that belong to no chunk are named on standard
/// error, with what their names tell: chunks named with '/' while the document says '.', for example. Exit code 1 if anything is
/// damaged, if a named array cannot be checked, if the store cannot list a folder, or, with --missing=error, if a chunk is missing.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Check these arrays only, or those in these groups
    #[arg(value_name = "ARRAY")]
    arrays: Vec<String>,

    /// How to treat chunks that are not stored: count them, make them an error, or ignore them
    #[arg(long, value_name = "report|error|ignore", default_value = "report", hide_possible_values = true)]
    missing: Missing,

    /// Number of chunks to read and decode at a time [default: one per core; 16 if the store is remote]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_JOBS))]
    jobs: Option<u64>,

    /// Print one JSON object, with an entry for each array
    #[arg(long)]
    json: bool,

    /// Print damaged objects only
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Checks the arrays.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let store = open::store(&self.store)?;
        // Chunks are not kept; the memory is for the indexes of shards.
        let engine = Engine::new(INDEX_BYTES, 1);
        let mut roots: Vec<String> = self.arrays.iter().map(|name| open::path(name)).collect();
        let tree = Tree::for_one_look(store.clone());
        for root in &roots {
            if let Ok(None) = tree.node(root) {
                return Err(open::unknown_array(&tree, root));
            }
        }
        if roots.is_empty() {
            roots.push(String::new());
        }
        let bar = progress::chunks(!self.quiet);
        if !bar.is_hidden() {
            bar.set_length(stored_chunks(&engine, &tree, &roots));
        }
        let style = Style { is_json: self.json, is_quiet: self.quiet, missing: self.missing };
        let mut report = Report::new(style, bar.clone());
        for visit in roots.iter().flat_map(|root| tree.walk(root, usize::MAX)) {
            let path = &visit.path;
            match visit.node {
                Ok(Node::Group { .. }) => report.strays(path, &Strays::in_group(store.as_ref(), path)),
                Ok(Node::Array { metadata, .. }) => {
                    if let Some(deviation) = metadata.deviation() {
                        report.note(&metadata.document_key, &deviation);
                    }
                    match Array::open(&engine, &store, path, metadata, Layout::default()) {
                        Ok(array) => {
                            let found = self.check(store.as_ref(), path, &array, &bar);
                            match found {
                                Ok(found) => report.add(path, found),
                                Err(unlisted) => report.refused(path, &unlisted),
                            }
                        }
                        Err(error) => report.refused(path, &error),
                    }
                }
                Ok(Node::Broken { error, .. }) | Err(error) => report.refused(path, &error),
            }
        }
        report.finish(!self.arrays.is_empty())
    }

    fn jobs(&self, store: &dyn Store) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.jobs.map(|jobs| jobs as usize).or(self.store.access.base.tuning().threads) {
            Some(jobs) => jobs,
            None if store.is_remote() => cores().max(REMOTE_JOBS),
            None => cores(),
        }
    }

    /// Checks an array. Fails if the store does not list its chunks.
    fn check(
        &self,
        store: &dyn Store,
        path: &str,
        array: &Array,
        bar: &ProgressBar,
    ) -> Result<ArrayFindings, Error> {
        bar.set_message(open::shown(path));
        // A shard is one object, however many of its inner chunks are damaged.
        let named: Mutex<HashSet<String>> = Mutex::default();
        let damaged: Mutex<Vec<(String, String)>> = Mutex::default();
        let unlisted: Mutex<Option<Error>> = Mutex::default();
        let outcome = array.check(self.jobs(store), &|chunks| bar.inc(chunks), &|key, error| {
            if let Error::Unlisted { .. } = error {
                unlisted.lock().get_or_insert_with(|| error.clone());
            } else if named.lock().insert(key.to_owned()) {
                let reason = error.to_string();
                if self.json {
                    damaged.lock().push((key.to_owned(), reason));
                } else {
                    bar.suspend(|| report::say(&report::damage(key, &reason)));
                }
            }
        });
        if let Some(unlisted) = unlisted.into_inner() {
            return Err(unlisted);
        }
        Ok(ArrayFindings {
            outcome,
            chunks: array.chunks(),
            damaged: damaged.into_inner(),
            damaged_objects: named.into_inner().len() as u64,
            has_checksum: array.has_checksum(),
        })
    }
}

/// Counts the chunks of all stored objects, for the progress bar.
fn stored_chunks(engine: &Arc<Engine>, tree: &Tree, roots: &[String]) -> u64 {
    let spinner = progress::counting("chunks");
    let mut chunks = 0u64;
    for visit in roots.iter().flat_map(|root| tree.walk(root, usize::MAX)) {
        spinner.set_message(open::shown(&visit.path));
        if let Ok(Node::Array { metadata, .. }) = visit.node
            && let Ok(array) = Array::open(engine, tree.store(), &visit.path, metadata, Layout::default())
        {
            chunks = chunks.saturating_add(array.stored_chunks());
            spinner.set_position(chunks);
        }
    }
    spinner.finish_and_clear();
    chunks
}
