//! `zarrfs overlay diff DIR`: elements and members of documents, old and new.
//!
//! Only the changed objects are decoded, on both sides, in parts of at most [`PART_BYTES`].

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use zarrfs::array::{Array, AxisSelection, Engine, Layout};
use zarrfs::cancellation::Cancellation;
use zarrfs::error::{Error, Result, grouped};
use zarrfs::hierarchy::commit::nodes::{self, NodeChanges};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::{ArrayMetadata, DataType, FillValue, MAX_DOCUMENT_BYTES};
use zarrfs::store::Store;
use zarrfs::store::overlay::{Access, Change, OverlayStore};

use super::arguments::OverlayArguments;
use crate::cli::exit::Outcome;
use crate::cli::nodes::describe::data_type;
use crate::cli::nodes::open;
use crate::cli::options::CacheArguments;
use crate::cli::output::terminal;
use crate::cli::output::{self, Reader};

/// How many bytes of elements are compared at one time, unless a row has more.
const PART_BYTES: u64 = 16 << 20;

/// Show the changed elements, with their indices, old and new values
///
/// Documents are compared member by member. The exit code is 0 whether or not anything differs.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    overlay: OverlayArguments,

    /// Only these arrays and groups
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,

    /// Maximum number of elements to show of each node; all are counted
    #[arg(long, value_name = "N", default_value = "20")]
    limit: u64,

    /// Print a JSON list with one object per node
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    cache: CacheArguments,
}

/// The differences of one node.
#[derive(Default)]
struct Difference {
    /// The index, the old and the new value of the first changed elements.
    shown: Vec<(Vec<u64>, Value, Value)>,
    elements: u64,
    objects: u64,
    /// The key, the member, the old and the new value of each changed member of a document.
    documents: Vec<(String, String, Value, Value)>,
    /// What the node was, if it is removed.
    old: Option<String>,
    /// What it is, if it is new.
    new: Option<String>,
    /// Why its elements were not compared.
    reason: Option<String>,
}

impl Arguments {
    /// Shows the differences.
    pub fn run(self) -> Outcome {
        let store = self.overlay.open(Access::Read)?;
        let engine = Engine::new(self.cache.cache_limit_bytes(), self.overlay.base.tuning().threads());
        let (tree, below) = (Tree::for_one_look(store.clone()), Tree::for_one_look(store.base().clone()));
        let wanted: Vec<String> = self.nodes.iter().map(|name| open::path(name)).collect();
        let mut objects = Vec::new();
        for (path, node) in nodes::by_node(&store, &tree)? {
            if !wanted.is_empty() && !wanted.contains(&path) {
                continue;
            }
            let mut difference = Difference { objects: node.objects.len() as u64, ..Difference::default() };
            difference.old = node.removal.as_ref().map(|_| node_text(&below, &path));
            difference.new = node.is_new().then(|| node_text(&tree, &path));
            for change in &node.documents {
                difference.compare_documents(&store, change)?;
            }
            if let Err(error) = difference.compare_elements(&engine, &store, &below, &path, &node, self.limit)
            {
                difference.reason = Some(error.to_string());
            }
            if self.json {
                objects.push(difference.to_json(&path));
            } else if output::text(&difference.to_text(&path, node.noun()))? == Reader::HasGone {
                return Ok(());
            }
        }
        if self.json {
            output::json(&format!("{:#}\n", Value::Array(objects)))?;
        }
        Ok(())
    }
}

/// An array as it is in the store and in the overlay.
struct Sides {
    old: Arc<Array>,
    new: Arc<Array>,
    data_type: DataType,
}

impl Difference {
    fn compare_documents(&mut self, store: &OverlayStore, change: &Change) -> Result<()> {
        let is_hidden = store.folder().is_hidden(&change.key)?;
        let read = |store: &dyn Store, is_hidden: bool| -> Result<Value> {
            if is_hidden {
                return Ok(Value::Null);
            }
            let bytes = store.get(&change.key, MAX_DOCUMENT_BYTES)?.unwrap_or_default();
            // A document with a bare NaN is not JSON, and is compared as text.
            let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
            Ok(if bytes.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&bytes).unwrap_or_else(|_| text())
            })
        };
        let (old, new) = (read(store.base().as_ref(), is_hidden)?, read(store, false)?);
        compare_members(&change.key, &mut Vec::new(), &old, &new, &mut self.documents);
        Ok(())
    }

    fn compare_elements(
        &mut self,
        engine: &Arc<Engine>,
        store: &Arc<OverlayStore>,
        below: &Tree,
        path: &str,
        node: &NodeChanges,
        limit: u64,
    ) -> Result<()> {
        let is_changed = !node.objects.is_empty() && !node.is_new();
        let Some(metadata) = node.array.as_ref().filter(|_| is_changed) else { return Ok(()) };
        let old = match below.node(path)? {
            Some(Node::Array { metadata, .. }) => metadata,
            _ => return Err(Error::Usage("the store does not have this array".to_owned())),
        };
        if old.data_type != metadata.data_type || old.shape.len() != metadata.shape.len() {
            return Err(Error::Usage("the array in the store has other elements".to_owned()));
        }
        let open = |store: Arc<dyn Store>, metadata: &Arc<ArrayMetadata>| {
            Array::open(engine, &store, path, Arc::clone(metadata), Layout::default())
        };
        let data_type = metadata.data_type.clone();
        let sides =
            Sides { old: open(store.base().clone(), &old)?, new: open(store.clone(), metadata)?, data_type };
        for change in &node.objects {
            let Some(mut ranges) = sides.new.elements_of(&change.key)? else { continue };
            for (range, length) in ranges.iter_mut().zip(&old.shape) {
                range.end = range.end.min(*length);
            }
            if ranges.iter().all(|range| range.start < range.end) {
                sides.compare(&ranges, limit, self)?;
            }
        }
        Ok(())
    }

    fn to_json(&self, path: &str) -> Value {
        let element =
            |(index, old, new): &(Vec<u64>, Value, Value)| json!({"index": index, "old": old, "new": new});
        let member = |(key, member, old, new): &(String, String, Value, Value)| json!({"document": key, "member": member, "old": old, "new": new});
        let mut object = BTreeMap::from([
            ("path", json!(path)),
            ("objects", json!(self.objects)),
            ("elements", json!(self.elements)),
            ("shown", self.shown.iter().map(element).collect()),
            ("documents", self.documents.iter().map(member).collect()),
        ]);
        if let Some(reason) = &self.reason {
            object.insert("not_compared", json!(reason));
        }
        if let Some(old) = &self.old {
            object.insert("removed", json!(old));
        }
        if let Some(new) = &self.new {
            object.insert("new", json!(new));
        }
        json!(object)
    }

    fn to_text(&self, path: &str, noun: &str) -> String {
        let mut lines: Vec<String> = Vec::new();
        if let Some(old) = &self.old {
            lines.push(format!("{}: removed: {old}", open::shown(path)));
        }
        if let Some(new) = &self.new {
            let objects = if self.objects > 0 {
                format!(", {}", output::count(self.objects, noun))
            } else {
                String::new()
            };
            lines.push(format!("{}: new: {new}{objects}", open::shown(path)));
            return lines.into_iter().map(|line| terminal::one_line(&line) + "\n").collect();
        }
        for (key, member, old, new) in &self.documents {
            let (key, member) = (terminal::printable(key), terminal::printable(member));
            lines.push(format!("{key}: {member}: {} -> {}", shown(old), shown(new)));
        }
        for (index, old, new) in &self.shown {
            let index: Vec<String> = index.iter().map(u64::to_string).collect();
            lines.push(format!(
                "{}[{}]: {} -> {}",
                open::shown(path),
                index.join(", "),
                shown(old),
                shown(new)
            ));
        }
        if let Some(reason) = &self.reason {
            lines.push(format!("{}: elements not compared: {reason}", open::shown(path)));
        }
        if self.objects > 0 {
            let hidden = self.elements.saturating_sub(self.shown.len() as u64);
            let more = if hidden > 0 { format!(" ({} not shown)", grouped(hidden)) } else { String::new() };
            let (elements, objects) =
                (output::count(self.elements, "element"), output::count(self.objects, noun));
            lines.push(format!("{}: {elements} changed in {objects}{more}", open::shown(path)));
        }
        lines.into_iter().map(|line| terminal::one_line(&line) + "\n").collect()
    }
}

/// Describes a node in a few words.
fn node_text(tree: &Tree, path: &str) -> String {
    match tree.node(path) {
        Ok(Some(Node::Array { metadata, .. })) => {
            format!("array of {}, shape {:?}", data_type(&metadata.document), metadata.shape)
        }
        Ok(Some(Node::Group { .. })) => "group".to_owned(),
        Ok(Some(Node::Broken { error, .. })) | Err(error) => error.to_string(),
        Ok(None) => "nothing".to_owned(),
    }
}

/// Returns a value on one line.
fn shown(value: &Value) -> String {
    if value.is_null() { "none".to_owned() } else { value.to_string() }
}

/// Adds the members in which two values differ to `found`. Objects are compared member by member.
fn compare_members(
    key: &str,
    path: &mut Vec<String>,
    old: &Value,
    new: &Value,
    found: &mut Vec<(String, String, Value, Value)>,
) {
    if old == new {
        return;
    }
    let (Value::Object(olds), Value::Object(news)) = (old, new) else {
        let member = if path.is_empty() { "all of it".to_owned() } else { path.join(".") };
        found.push((key.to_owned(), member, old.clone(), new.clone()));
        return;
    };
    let mut names: Vec<&String> =
        olds.keys().chain(news.keys().filter(|name| !olds.contains_key(*name))).collect();
    names.dedup();
    for name in names {
        path.push(name.clone());
        let of = |members: &serde_json::Map<String, Value>| members.get(name).cloned().unwrap_or(Value::Null);
        compare_members(key, path, &of(olds), &of(news), found);
        path.pop();
    }
}

impl Sides {
    /// Compares a box of elements.
    fn compare(&self, ranges: &[Range<u64>], limit: u64, found: &mut Difference) -> Result<()> {
        let item_bytes = self.data_type.item_size().unwrap_or(1).max(1) as u64;
        let Some((rows, others)) = ranges.split_first() else {
            return self.compare_part(ranges, limit, found);
        };
        let row_bytes =
            others.iter().fold(item_bytes, |bytes, range| bytes.saturating_mul(range.end - range.start));
        let most = (PART_BYTES / row_bytes.max(1)).max(1);
        let mut first = rows.start;
        while first < rows.end {
            let end = rows.end.min(first.saturating_add(most));
            let part: Vec<Range<u64>> = std::iter::once(first..end).chain(others.iter().cloned()).collect();
            self.compare_part(&part, limit, found)?;
            first = end;
        }
        Ok(())
    }

    fn compare_part(&self, ranges: &[Range<u64>], limit: u64, found: &mut Difference) -> Result<()> {
        let item_bytes = self.data_type.item_size().unwrap_or(1).max(1);
        let (old, new) = (read(&self.old, ranges)?, read(&self.new, ranges)?);
        if old == new {
            return Ok(());
        }
        let items = old.chunks_exact(item_bytes).zip(new.chunks_exact(item_bytes));
        for (number, (old, new)) in items.enumerate().filter(|(_, (old, new))| old != new) {
            found.elements += 1;
            if (found.shown.len() as u64) < limit {
                let value = |bytes: &[u8]| {
                    FillValue { bytes: bytes.to_vec(), is_undefined: false }.to_json(&self.data_type)
                };
                found.shown.push((index(ranges, number as u64), value(old), value(new)));
            }
        }
        Ok(())
    }
}

fn read(array: &Array, ranges: &[Range<u64>]) -> Result<Vec<u8>> {
    let axis =
        |range: &Range<u64>| AxisSelection { start: range.start, step: 1, count: range.end - range.start };
    let mut bytes = Vec::new();
    let selection: Vec<AxisSelection> = ranges.iter().map(axis).collect();
    array.read_slice(&selection, &Cancellation::never(), &mut |part| {
        bytes.extend_from_slice(part);
        Ok::<_, Error>(ControlFlow::Continue(()))
    })?;
    Ok(bytes)
}

/// Returns the index of an element of a box from its number in C order.
fn index(ranges: &[Range<u64>], mut number: u64) -> Vec<u64> {
    let mut index = Vec::new();
    for range in ranges.iter().rev() {
        let length = (range.end - range.start).max(1);
        index.push(range.start + number % length);
        number /= length;
    }
    index.reverse();
    index
}
