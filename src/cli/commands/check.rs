//! `zarrfs check STORE [ARRAY…]`: decodes every stored object and names each that is damaged.

use std::collections::HashSet;

use clap::Args;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::error::Error;
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::ArrayMetadata;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::options::{LogArguments, StoreArguments, ThreadsArguments};
use crate::cli::{log, open, output, progress};

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # The whole store
  zarrfs check sample.zarr
  # Two arrays of it, with four threads
  zarrfs check --threads 4 sample.zarr climate/lat climate/temperature";

/// Decode everything and name each damaged object
///
/// Writes one line per damaged object, its key and the reason, to standard output. Exit code 1 if there is any. What the store lists
/// is decoded; chunks that are declared and not stored are fill value, and only counted.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Check these arrays only
    #[arg(value_name = "ARRAY")]
    arrays: Vec<String>,

    #[command(flatten)]
    threads: ThreadsArguments,

    #[command(flatten)]
    log: LogArguments,
}

/// What was found so far.
struct Findings {
    bar: ProgressBar,
    arrays: u64,
    chunks: u64,
    missing: u128,
    damaged: u64,
    not_checked: u64,
}

impl Arguments {
    /// Checks.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let store = open::store(&self.store)?;
        let engine = Engine::new(0, 1);
        let mut roots: Vec<String> = self.arrays.iter().map(|name| open::path(name)).collect();
        let tree = Tree::for_one_look(store.clone());
        for root in &roots {
            if let Ok(None) = tree.node(root) {
                return Err(open::unknown(&tree, root));
            }
        }
        if roots.is_empty() {
            roots.push(String::new());
        }
        let mut findings = Findings {
            bar: progress::chunks(),
            arrays: 0,
            chunks: 0,
            missing: 0,
            damaged: 0,
            not_checked: 0,
        };
        for visit in roots.iter().flat_map(|root| tree.walk(root, usize::MAX)) {
            let path = &visit.path;
            match visit.node {
                Ok(Node::Group { .. }) => {}
                Ok(Node::Array { metadata, .. }) => {
                    findings.note_deviation(&metadata);
                    match Array::open(&engine, &store, path, metadata, Layout::default()) {
                        Ok(array) => findings.check(path, &array, self.threads.number()),
                        Err(error) => findings.refused(&error),
                    }
                }
                Ok(Node::Broken { error, .. }) | Err(error) => findings.refused(&error),
            }
        }
        findings.report()
    }
}

impl Findings {
    fn check(&mut self, path: &str, array: &Array, threads: usize) {
        let bar = &self.bar;
        bar.reset();
        bar.unset_length();
        bar.set_message(open::shown(path).to_owned());
        // A shard is one object, however many of its inner chunks are damaged.
        let damaged: Mutex<HashSet<String>> = Mutex::default();
        let outcome = array.check(
            threads,
            &|progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.done);
            },
            &|key, error| {
                if damaged.lock().insert(key.to_owned()) {
                    bar.suspend(|| say(key, error));
                }
            },
        );
        self.arrays += 1;
        self.chunks += outcome.sound + outcome.damaged;
        self.missing += u128::from(outcome.missing);
        self.damaged += damaged.into_inner().len() as u64;
    }

    /// What is read though the specification does not allow it is no damage.
    fn note_deviation(&self, metadata: &ArrayMetadata) {
        if let Some(deviation) = metadata.deviation() {
            let key = &metadata.document_key;
            self.bar.suspend(|| output::note(format_args!("zarrfs: note: {key}: {deviation}")));
        }
    }

    /// A node that could not be opened: damage where its document or the store is at fault, and only not checked
    /// where this version does not support it.
    fn refused(&mut self, error: &Error) {
        if let Error::Unsupported { .. } = error {
            self.not_checked += 1;
            self.bar.suspend(|| output::note(format_args!("zarrfs: not checked: {error}")));
        } else {
            self.damaged += 1;
            self.bar.suspend(|| say("", error));
        }
    }

    fn report(self) -> Outcome {
        let Findings { bar, arrays, chunks, missing, damaged, not_checked } = self;
        bar.finish_and_clear();
        let skipped = if not_checked > 0 { format!(", {not_checked} not checked") } else { String::new() };
        let read = format!("{} checked, {} read", count(arrays, "array"), count(chunks, "chunk"));
        output::note(format_args!("{read}, {missing} missing{skipped}, {damaged} damaged"));
        if damaged > 0 { Err(Exit::Reported) } else { Ok(()) }
    }
}

/// One line per damaged object: the key, then the reason.
fn say(key: &str, error: &Error) {
    let text = error.to_string();
    let line = if text.starts_with(key) { format!("{text}\n") } else { format!("{key}: {text}\n") };
    // A reader that has gone does not change what the exit code says.
    let _ = output::write(line.as_bytes());
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
