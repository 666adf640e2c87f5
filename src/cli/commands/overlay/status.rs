//! `zarrfs overlay status DIR`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use zarrfs::hierarchy::Tree;
use zarrfs::hierarchy::commit::Forms;
use zarrfs::hierarchy::commit::nodes::{self, NodeChanges};
use zarrfs::store::Store;
use zarrfs::store::overlay::{Access, Change, ChangeKind, OverlayStore, RemovalState};

use super::arguments::OverlayArguments;
use crate::cli::exit::Outcome;
use crate::cli::nodes::open;
use crate::cli::options::size;
use crate::cli::output::{self, terminal};

/// List the changed nodes, with the number of chunks and bytes of each
///
/// Nodes that have changed in the store since the overlay was written are marked: 'commit' would not overwrite them.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    overlay: OverlayArguments,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Lists the changed nodes.
    pub fn run(self) -> Outcome {
        let store = self.overlay.open(Access::Read)?;
        let changes = nodes::by_node(&store, &Tree::for_one_look(store.clone()))?;
        let below = Tree::for_one_look(store.base().clone());
        let mut conflicts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut forms = Forms::default();
        for (path, node) in &changes {
            let has_same_form = nodes::has_kept_form(&store, store.base().as_ref(), path, &|_| false)?;
            nodes::each_in_base(&store, node.all(), &mut |change: &Change, now| {
                let base = store.base().as_ref();
                let is_document = node.documents.contains(change);
                let is_same = change.is_from(base, now.map(|info| info.version))?
                    && (has_same_form || is_document || change.form.is_some())
                    && forms.fit(&store, base, change)?;
                if !is_same {
                    conflicts.entry(path).or_default().push(&change.key);
                }
                Ok(())
            })?;
            if let Some(removal) = &node.removal
                && store.target().find_removed(removal)? == RemovalState::Changed
            {
                conflicts.entry(path).or_default().push(path);
            }
        }
        let written = if self.json {
            output::json(&as_json(&store, &below, &changes, &conflicts))
        } else {
            output::text(&as_text(&store, &below, &changes, &conflicts))
        };
        written.map(|_| ())
    }
}

/// Returns how a node has changed: `new`, `removed`, `replaced` (removed and made anew) or `changed`.
fn change_name(node: &NodeChanges) -> &'static str {
    match (&node.removal, node.is_new()) {
        (Some(_), true) => "replaced",
        (Some(_), false) => "removed",
        (None, true) => "new",
        (None, false) => "changed",
    }
}

/// Returns the old and the new shape of an array if they differ.
fn shapes(below: &Tree, path: &str, node: &NodeChanges) -> Option<(Vec<u64>, Vec<u64>)> {
    let new = node.array.as_ref().filter(|_| !node.documents.is_empty())?.shape.clone();
    let old = nodes::old_array(below, path, node)?.shape.clone();
    (old != new).then_some((old, new))
}

fn as_json(
    store: &Arc<OverlayStore>,
    below: &Tree,
    changes: &BTreeMap<String, NodeChanges>,
    conflicts: &BTreeMap<&str, Vec<&str>>,
) -> String {
    let node = |(path, node): (&String, &NodeChanges)| {
        let (written, bytes, deleted) = node.sums();
        let documents: Vec<Value> = node.documents.iter().map(|change| json!(change.key)).collect();
        let shapes = shapes(below, path, node).map(|(old, new)| json!({"old": old, "new": new}));
        json!({"path": path, "change": change_name(node), "shape": shapes, "objects": node.noun(), "written": written, "written_bytes": bytes, "deleted": deleted,
            "documents": documents, "changed_in_store": conflicts.get(path.as_str()).cloned().unwrap_or_default()})
    };
    let nodes: Vec<Value> = changes.iter().map(node).collect();
    let status = json!({"store": store.describe(), "overlay": store.folder().path().to_string_lossy(), "nodes": nodes});
    format!("{status:#}\n")
}

fn as_text(
    store: &Arc<OverlayStore>,
    below: &Tree,
    changes: &BTreeMap<String, NodeChanges>,
    conflicts: &BTreeMap<&str, Vec<&str>>,
) -> String {
    let head = format!("{} over {}", store.folder().path().display(), store.describe());
    let mut text = terminal::one_line(&head) + "\n";
    let (mut objects, mut documents, mut bytes) = (0, 0, 0);
    for (path, node) in changes {
        let (written, written_bytes, deleted) = node.sums();
        let mut parts = Vec::new();
        let kind = if node.array.is_some() { "array" } else { "group" };
        match change_name(node) {
            "new" => parts.push(format!("new {kind}")),
            "removed" => parts.push("removed with everything in it".to_owned()),
            "replaced" => parts.push(format!("removed, and a new {kind} in its place")),
            _ => {}
        }
        if let Some((old, new)) = shapes(below, path, node) {
            parts.push(format!("shape {old:?} -> {new:?}"));
        }
        if written > 0 {
            parts.push(format!(
                "{} written ({})",
                output::count(written, node.noun()),
                size::show(written_bytes)
            ));
        }
        if deleted > 0 {
            parts.push(format!("{} deleted", output::count(deleted, node.noun())));
        }
        for change in &node.documents {
            let name = change.key.rsplit('/').next().unwrap_or(&change.key);
            parts.push(match change.kind {
                ChangeKind::Written { .. } => format!("{name} written"),
                ChangeKind::Deleted => format!("{name} deleted"),
            });
        }
        if let Some(keys) = conflicts.get(path.as_str()) {
            parts.push(match keys.as_slice() {
                [key] if key == path => "changed in the store since".to_owned(),
                keys => format!("{} of them changed in the store since", keys.len()),
            });
        }
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}: {}", open::shown(path), parts.join(", "));
        objects += written + deleted;
        documents += node.documents.len() as u64;
        bytes += written_bytes;
    }
    let _ = match changes.len() as u64 {
        0 => writeln!(text, "nothing is changed"),
        nodes => writeln!(
            text,
            "{} changed: {}, {}, {}",
            output::count(nodes, "node"),
            output::count(objects, "object"),
            output::count(documents, "document"),
            size::show(bytes)
        ),
    };
    text
}
