//! `zarrfs overlay discard DIR [PATH…]`.

use std::collections::BTreeMap;

use clap::Args;
use zarrfs::hierarchy::commit::nodes::{self, NodeChanges};
use zarrfs::hierarchy::{Tree, author};
use zarrfs::store::Store;
use zarrfs::store::overlay::{Access, Change, OverlayStore};

use super::arguments::OverlayArguments;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::open;
use crate::cli::output;

/// Discard the changes
///
/// With a PATH, discards only the changes of that array, or of that group and everything in it. A node that was made in the overlay
/// goes, a removed one comes back, and a changed one is again as in the store. On a terminal the command asks first. The store does not
/// change.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    overlay: OverlayArguments,

    /// Only these arrays, and these groups with everything in them
    #[arg(value_name = "PATH")]
    paths: Vec<String>,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Arguments {
    /// Discards the changes.
    pub fn run(self) -> Outcome {
        let store = self.overlay.open(Access::Write)?;
        let paths: Vec<String> = self.paths.iter().map(|path| open::path(path)).collect();
        let mut nodes = nodes::by_node(&store, &Tree::for_one_look(store.clone()))?;
        if !paths.is_empty() {
            check_paths(&store, &nodes, &paths)?;
            nodes.retain(|node, _| paths.iter().any(|path| is_within(node, path)));
        }
        let changes_of_node = |node: &NodeChanges| node.all().count() + usize::from(node.removal.is_some());
        let number = nodes.values().map(changes_of_node).sum::<usize>() as u64;
        let what = format!("{} of {}", output::count(number, "change"), store.describe());
        if number == 0 {
            output::note("nothing is changed");
            return Ok(());
        }
        let question = format!("Discard {what} in {}?", store.folder().path().display());
        if !self.yes && !output::is_confirmed(&question, "discard changes")? {
            return Err(Exit::Failed("nothing was discarded".to_owned()));
        }
        let is_inner = |path: &&String| paths.iter().any(|other| other != *path && is_within(path, other));
        // This comes first, so that a command that is killed can be repeated.
        for path in paths.iter().filter(|path| !is_inner(path)) {
            author::forget_copies(&store, path)?;
        }
        // The nodes in a group go before the group.
        let changes: Vec<Change> = nodes.values().rev().flat_map(in_order).cloned().collect();
        store.folder().forget(&changes)?;
        for (path, node) in &nodes {
            store.folder().forget_documents(path)?;
            if let Some(removal) = &node.removal {
                store.folder().forget_removal(removal)?;
            }
        }
        output::note(format_args!("{what} discarded"));
        Ok(())
    }
}

/// Returns whether a node is at a path or below it.
fn is_within(node: &str, path: &str) -> bool {
    path.is_empty() || node.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Refuses paths without changes, because they may be misspelled.
fn check_paths(store: &OverlayStore, nodes: &BTreeMap<String, NodeChanges>, paths: &[String]) -> Outcome<()> {
    let is_unknown = |path: &&String| !nodes.keys().any(|node| is_within(node, path));
    let Some(path) = paths.iter().find(is_unknown) else { return Ok(()) };
    let shown = open::shown(path);
    let removed = nodes.iter().find(|(above, node)| node.removal.is_some() && is_within(path, above));
    Err(Exit::Failed(match removed {
        Some((above, _)) => format!("'{shown}' was removed with '{above}': discard that"),
        None => format!("{} has no changes of '{shown}'", store.folder().path().display()),
    }))
}

/// Returns the changes of a node in the order in which they are forgotten. The documents of a new node come first, so that it ceases to be a
/// node before its chunks go.
fn in_order(node: &NodeChanges) -> Vec<&Change> {
    if node.is_new() {
        node.documents.iter().rev().chain(&node.objects).collect()
    } else {
        node.all().collect()
    }
}
