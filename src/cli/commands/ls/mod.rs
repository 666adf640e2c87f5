//! `zarrfs ls STORE [PATH|STORE…]`: lists hierarchies as trees or as JSON.

mod glob;
mod table;

use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value};
use zarrfs::array::{Engine, Layout};
use zarrfs::error::Result;
use zarrfs::formats::{json, positions};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::store::overlay::Access;

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::describe::Description;
use crate::cli::nodes::open;
use crate::cli::nodes::subject::with_subject;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::output::terminal;
use crate::cli::output::{self, Reader};
use glob::Glob;
use table::Style;

/// The narrowest table.
const LEAST_WIDTH: u64 = 20;
/// The widest table.
const MAX_WIDTH: u64 = 10_000;

/// What help and the man page show.
const EXAMPLES: &str = "\
Examples:
  # The tree, with types, chunks, codecs and sizes
  zarrfs ls sample.zarr
  # The arrays of one group, by their names
  zarrfs ls --arrays sample.zarr 'climate/t*'
  # The paths of all arrays, for a script
  zarrfs ls --json sample.zarr | jq -r '.[] | select(.kind == \"array\").path'
  # A public bucket
  zarrfs ls --no-sign-request --region eu-west-1 s3://bucket/climate.zarr";

/// List the contents of stores
///
/// On a terminal, only the columns that fit are shown, and long names are shortened in their middle. ONE PASS is the memory
/// for decoded chunks that one read from end to end needs; with a smaller --cache-size, chunks are decoded more than once.
/// Exit code 1 if the contents of a group cannot be listed: its row says why.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// A path or a glob in the store before it ('temp*' for names, 'climate/*' for paths, ** for any depth), or another store
    #[arg(value_name = "PATH")]
    more: Vec<String>,

    /// Number of levels to list below the starting point
    #[arg(long, value_name = "N")]
    depth: Option<usize>,

    /// List arrays only, with their paths
    #[arg(long)]
    arrays: bool,

    /// Show every column in full, with the format, the dimension names and the fill value
    #[arg(short, long)]
    long: bool,

    /// Width of the table in columns [default: that of the terminal; unlimited if there is none]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(LEAST_WIDTH..=MAX_WIDTH))]
    width: Option<u64>,

    /// Print a JSON list with one object per node, with everything that its sidecar has
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: LogArguments,
}

/// A store, and what is listed of it.
struct Listing {
    tree: Tree,
    selections: Vec<Selection>,
}

enum Selection {
    /// A node and everything below it.
    Path(String),
    /// The nodes that match, the groups above them, and everything below them.
    Glob(String),
}

impl Arguments {
    /// Lists the stores.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let listings = self.listings()?;
        let engine = Engine::new(0, 1);
        if self.json {
            return self.write_json(&engine, &listings);
        }
        let width =
            self.width.map(|width| width as usize).or_else(|| terminal::size().map(|(width, _)| width));
        let style = Style { width, is_long: self.long, is_flat: self.arrays };
        let mut is_all = true;
        for (index, listing) in listings.iter().enumerate() {
            let store = listing.tree.store();
            for (number, selection) in listing.selections.iter().enumerate() {
                let mut rows = Vec::new();
                self.visit(listing, selection, &mut |path, node| {
                    is_all &= node.is_ok();
                    let mut row = Description::new(&engine, store, path, node);
                    if self.long {
                        name_axes(&engine, &listing.tree, (path, node), &mut row);
                    }
                    rows.push(row);
                    Ok(Reader::Reads)
                })?;
                let text = table::table(&store.describe(), &rows, style);
                let gap = if index + number > 0 { "\n" } else { "" };
                if output::text(&format!("{gap}{text}"))? == Reader::HasGone {
                    return Ok(());
                }
            }
        }
        outcome(is_all)
    }

    /// Returns what the arguments name, in their order.
    fn listings(&self) -> Outcome<Vec<Listing>> {
        let listing = |store| Listing { tree: Tree::for_one_look(store), selections: Vec::new() };
        // A secret in any argument is refused before anything is opened.
        for word in &self.more {
            self.store.access.options(word, Access::Read)?;
        }
        let mut listings = vec![listing(open::store(&self.store)?)];
        for word in &self.more {
            let Some(last) = listings.last_mut() else { break };
            let path = open::path(word);
            let is_location =
                std::path::Path::new(word).exists() || word.contains("://") || word.starts_with("file:");
            if last.tree.node(&path)?.is_some() {
                last.selections.push(Selection::Path(path));
            } else if Glob::is_glob(word) && !is_location {
                last.selections.push(Selection::Glob(word.clone()));
            } else if is_location {
                let access = &self.store.access;
                if access.overlay.is_some() {
                    return Err(Exit::Usage(format!(
                        "--overlay belongs to one store: list '{word}' by itself"
                    )));
                }
                listings.push(listing(open::zarr_store(word, &access.options(word, Access::Read)?)?));
            } else {
                return Err(open::unknown_node(&last.tree, &path));
            }
        }
        for listing in listings.iter_mut().filter(|listing| listing.selections.is_empty()) {
            listing.selections.push(Selection::Path(String::new()));
        }
        Ok(listings)
    }

    /// Calls `each` with every node that is listed, until the reader has gone.
    fn visit(
        &self,
        Listing { tree, .. }: &Listing,
        selection: &Selection,
        each: &mut dyn FnMut(&str, &Result<Node>) -> Outcome<Reader>,
    ) -> Outcome<Reader> {
        let (start, glob) = match selection {
            Selection::Path(path) => (path.as_str(), None),
            Selection::Glob(pattern) => ("", Some(Glob::new(pattern))),
        };
        let is_listed = |node: &Result<Node>| !self.arrays || !matches!(node, Ok(Node::Group { .. }));
        // The groups above the next node that were not listed yet, and the last match.
        let mut above: Vec<(String, Result<Node>)> = Vec::new();
        let mut matched: Option<String> = None;
        for visit in tree.walk(start, self.depth.unwrap_or(usize::MAX)) {
            let is_below = |top: &String| is_below(top, &visit.path);
            if let Some(glob) = &glob
                && !matched.as_ref().is_some_and(is_below)
            {
                above.retain(|(path, _)| is_below(path));
                if visit.path.is_empty() || !glob.matches(&visit.path) {
                    if matches!(visit.node, Ok(Node::Group { .. })) {
                        above.push((visit.path, visit.node));
                    }
                    continue;
                }
                matched = Some(visit.path.clone());
                for (path, node) in above.drain(..).filter(|(_, node)| is_listed(node)) {
                    if each(&path, &node)? == Reader::HasGone {
                        return Ok(Reader::HasGone);
                    }
                }
            }
            if is_listed(&visit.node) && each(&visit.path, &visit.node)? == Reader::HasGone {
                return Ok(Reader::HasGone);
            }
        }
        match (selection, matched) {
            (Selection::Glob(pattern), None) => {
                let store = tree.store().describe();
                Err(Exit::Failed(format!(
                    "nothing in {store} matches '{pattern}': 'zarrfs ls {store}' lists what is there"
                )))
            }
            _ => Ok(Reader::Reads),
        }
    }

    /// Writes one JSON object after the other, so that long lists take no memory.
    fn write_json(&self, engine: &Arc<Engine>, listings: &[Listing]) -> Outcome {
        let (mut is_first, mut is_all) = (true, true);
        for listing in listings {
            let store = listing.tree.store();
            for selection in &listing.selections {
                let reader = self.visit(listing, selection, &mut |path, node| {
                    is_all &= node.is_ok();
                    let row = Description::new(engine, store, path, node);
                    let mut members = row.to_json(sidecar(engine, &listing.tree, path, node));
                    if listings.len() > 1 {
                        members.insert("store".into(), store.describe().into());
                    }
                    let text = format!("{:#}", Value::Object(members)).replace('\n', "\n  ");
                    let separator = if std::mem::take(&mut is_first) { "[\n" } else { ",\n" };
                    output::json(&format!("{separator}  {text}"))
                })?;
                if reader == Reader::HasGone {
                    return Ok(());
                }
            }
        }
        output::bytes(if is_first { b"[]\n" } else { b"\n]\n" })?;
        outcome(is_all)
    }
}

/// Returns the outcome. If a group could not be listed, its row has said why.
fn outcome(is_all: bool) -> Outcome {
    if is_all { Ok(()) } else { Err(Exit::Reported) }
}

/// Returns the members of a node's sidecar, or none if it cannot be made.
fn sidecar(engine: &Arc<Engine>, tree: &Tree, path: &str, node: &Result<Node>) -> Map<String, Value> {
    let Ok(node) = node else { return Map::new() };
    with_subject(engine, tree, (path, node), Layout::default(), json::members).unwrap_or_default()
}

/// Gives an array the names of its axes that only a group above has, as in OME-Zarr before 0.5.
fn name_axes(engine: &Arc<Engine>, tree: &Tree, (path, node): (&str, &Result<Node>), row: &mut Description) {
    let (Ok(node), Some(array)) = (node, &mut row.array) else { return };
    if array.dimension_names.is_some() {
        return;
    }
    let axes = with_subject(engine, tree, (path, node), Layout::default(), positions::for_subject);
    let names: Vec<Option<String>> = axes.into_iter().map(|axis| axis.name).collect();
    array.dimension_names = names.iter().any(Option::is_some).then_some(names);
}

/// Returns whether a path is a node or below it.
fn is_below(top: &str, path: &str) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
