//! `zarrfs overlay status DIR`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use zarrfs::hierarchy::Tree;
use zarrfs::store::Store;
use zarrfs::store::overlay::{Access, Change, ChangeKind, OverlayStore};

use super::nodes::{self, NodeChanges};
use super::{OverlayArguments, count};
use crate::cli::exit::Outcome;
use crate::cli::{open, output, size};

/// List the nodes that the overlay changes, with how many chunks and bytes of each
///
/// What has changed in the store since the overlay was written is named: it would not be committed.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    overlay: OverlayArguments,

    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Lists them.
    pub fn run(self) -> Outcome {
        let store = self.overlay.open(Access::Read)?;
        let changes = nodes::by_node(&store, &Tree::for_one_look(store.clone()))?;
        let mut conflicts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (path, node) in &changes {
            let has_same_form = nodes::has_same_form(&store, path)?;
            nodes::each_in_base(&store, node.all(), &mut |change: &Change, now| {
                let is_document = node.documents.contains(change);
                if !change.is_of(now.as_ref()) || !(has_same_form || is_document) {
                    conflicts.entry(path).or_default().push(&change.key);
                }
            })?;
        }
        let text = match self.json {
            true => as_json(&store, &changes, &conflicts),
            false => as_text(&store, &changes, &conflicts),
        };
        output::write(text.as_bytes()).map(|_| ())
    }
}

fn as_json(
    store: &Arc<OverlayStore>,
    changes: &BTreeMap<String, NodeChanges>,
    conflicts: &BTreeMap<&str, Vec<&str>>,
) -> String {
    let node = |(path, node): (&String, &NodeChanges)| {
        let (written, bytes, deleted) = node.sums();
        let documents: Vec<Value> = node.documents.iter().map(|change| json!(change.key)).collect();
        json!({"path": path, "objects": node.noun(), "written": written, "written_bytes": bytes, "deleted": deleted,
            "documents": documents, "changed_in_store": conflicts.get(path.as_str()).cloned().unwrap_or_default()})
    };
    let nodes: Vec<Value> = changes.iter().map(node).collect();
    let status =
        json!({"store": store.describe(), "overlay": store.folder().to_string_lossy(), "nodes": nodes});
    format!("{status:#}\n")
}

fn as_text(
    store: &Arc<OverlayStore>,
    changes: &BTreeMap<String, NodeChanges>,
    conflicts: &BTreeMap<&str, Vec<&str>>,
) -> String {
    let mut text = format!("{} over {}\n", store.folder().display(), store.describe());
    let (mut objects, mut documents, mut bytes) = (0, 0, 0);
    for (path, node) in changes {
        let (written, written_bytes, deleted) = node.sums();
        let mut parts = Vec::new();
        if written > 0 {
            parts.push(format!("{} written ({})", count(written, node.noun()), size::show(written_bytes)));
        }
        if deleted > 0 {
            parts.push(format!("{} deleted", count(deleted, node.noun())));
        }
        for change in &node.documents {
            let name = change.key.rsplit('/').next().unwrap_or(&change.key);
            parts.push(match change.kind {
                ChangeKind::Written { .. } => format!("{name} written"),
                ChangeKind::Deleted => format!("{name} deleted"),
            });
        }
        if let Some(keys) = conflicts.get(path.as_str()) {
            parts.push(format!("{} of them changed in the store since", keys.len()));
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
            count(nodes, "node"),
            count(objects, "object"),
            count(documents, "document"),
            size::show(bytes)
        ),
    };
    text
}
