//! Targets that are in other stacks, replaced by what those documents say.
//!
//! Uses `document.rs` and `store`. Invariants: what is left leads to arrays of Zarr alone; a document that leads back to itself is
//! refused; the number of operations is limited whatever the documents say.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::document::{MAX_NESTING, MAX_OPERATIONS, MAX_STACK_BYTES, StackDocument, StackOperation};
use crate::error::{Error, Result};
use crate::store::{Info, LinkedStores, is_remote, without_secrets};

/// How deep documents may lead to documents.
const MAX_DOCUMENTS_DEEP: usize = 8;
/// The most documents that are read for one.
const MAX_DOCUMENTS: usize = 1024;

/// The arrays of a document that lead to arrays of Zarr.
pub struct ExpandedStack {
    /// The arrays, by path.
    pub arrays: BTreeMap<String, StackOperation>,
    /// The infos of the other documents that were read.
    pub documents: Vec<Info>,
}

/// An operation, or why it is refused.
type Expanded<T> = std::result::Result<T, String>;

/// The place of a document: the store, and the path there.
type DocumentPlace = (usize, String);

/// Another document.
#[derive(Clone)]
struct OtherStack {
    place: DocumentPlace,
    document: Arc<StackDocument>,
}

struct Expansion<'a> {
    stores: &'a LinkedStores,
    /// The documents that were read, by their text; `None` for a text that does not name a stack.
    read: HashMap<String, Option<OtherStack>>,
    infos: Vec<Info>,
    operations_left: usize,
}

/// Where an operation stands.
#[derive(Clone, Copy)]
struct Standing<'a> {
    /// What precedes relative names in its document.
    folder: &'a str,
    /// The documents from the first one to its own.
    chain: &'a [DocumentPlace],
    depth: usize,
}

/// Replaces what leads to other stacks. `location` names the document itself.
pub fn expanded(document: &StackDocument, location: &str, stores: &LinkedStores) -> Result<ExpandedStack> {
    let mut expansion =
        Expansion { stores, read: HashMap::new(), infos: Vec::new(), operations_left: MAX_OPERATIONS };
    let own = if is_remote(location) {
        location.to_owned()
    } else {
        let path = crate::store::local_path(location)?;
        let path =
            std::path::absolute(&path).map_err(|error| Error::Usage(format!("{location}: {error}")))?;
        path.display().to_string()
    };
    let own = stores.find(&own, "")?;
    let chain = [(Arc::as_ptr(&own.store).cast::<()>() as usize, own.path)];
    let standing = Standing { folder: "", chain: &chain, depth: 0 };
    let mut arrays = BTreeMap::new();
    for (path, operation) in &document.arrays {
        let refused = |reason: String| Error::metadata(path.clone(), reason);
        arrays.insert(path.clone(), expansion.operation(operation, standing).map_err(refused)?);
    }
    Ok(ExpandedStack { arrays, documents: expansion.infos })
}

impl Expansion<'_> {
    fn operation(&mut self, operation: &StackOperation, standing: Standing<'_>) -> Expanded<StackOperation> {
        self.operations_left = self
            .operations_left
            .checked_sub(1)
            .ok_or_else(|| format!("it leads to more than {MAX_OPERATIONS} operations"))?;
        let depth = standing.depth + 1;
        if depth > MAX_NESTING * MAX_DOCUMENTS_DEEP {
            return Err(format!("operations are nested more than {} deep", MAX_NESTING * MAX_DOCUMENTS_DEEP));
        }
        let standing = Standing { depth, ..standing };
        let mut base = |base: &StackOperation| self.operation(base, standing).map(Box::new);
        Ok(match operation {
            StackOperation::Array { store, path } => return self.array(store, path, standing),
            StackOperation::Slice { base: of, index } => {
                StackOperation::Slice { base: base(of)?, index: index.clone() }
            }
            StackOperation::Cast { base: of, data_type } => {
                StackOperation::Cast { base: base(of)?, data_type: data_type.clone() }
            }
            StackOperation::Unpack { base: of } => StackOperation::Unpack { base: base(of)? },
            StackOperation::Downsample { base: of, factors, method } => {
                StackOperation::Downsample { base: base(of)?, factors: factors.clone(), method: *method }
            }
            StackOperation::Described { base: of, attributes, dimension_names } => {
                StackOperation::Described {
                    base: base(of)?,
                    attributes: attributes.clone(),
                    dimension_names: dimension_names.clone(),
                }
            }
            StackOperation::Concat { layers, axis } => {
                StackOperation::Concat { layers: self.layers(layers, standing)?, axis: axis.clone() }
            }
            StackOperation::Stack { layers, axis, name } => StackOperation::Stack {
                layers: self.layers(layers, standing)?,
                axis: *axis,
                name: name.clone(),
            },
        })
    }

    fn layers(&mut self, layers: &[StackOperation], standing: Standing<'_>) -> Expanded<Vec<StackOperation>> {
        layers.iter().map(|layer| self.operation(layer, standing)).collect()
    }

    fn array(&mut self, store: &str, path: &str, standing: Standing<'_>) -> Expanded<StackOperation> {
        let text = rebased(standing.folder, store);
        let Some(other) = self.document(&text)? else {
            return Ok(StackOperation::Array { store: text, path: path.to_owned() });
        };
        let shown = without_secrets(&text);
        if standing.chain.contains(&other.place) {
            return Err(format!("{shown} leads back to itself"));
        }
        if standing.chain.len() >= MAX_DOCUMENTS_DEEP {
            return Err(format!("{shown}: stacks lead to stacks more than {MAX_DOCUMENTS_DEEP} deep"));
        }
        let operation = other.document.arrays.get(path);
        let operation = operation.ok_or_else(|| format!("{shown} has no array '{path}'"))?;
        let folder = text.rfind('/').map_or("", |end| text.get(..=end).unwrap_or_default());
        let chain: Vec<DocumentPlace> = standing.chain.iter().cloned().chain([other.place.clone()]).collect();
        self.operation(operation, Standing { folder, chain: &chain, depth: standing.depth })
    }

    /// Returns the stack that a text names; `None` if it names something else.
    fn document(&mut self, text: &str) -> Expanded<Option<OtherStack>> {
        if !text.to_ascii_lowercase().ends_with(".json") {
            return Ok(None);
        }
        if let Some(known) = self.read.get(text) {
            return Ok(known.clone());
        }
        if self.read.len() >= MAX_DOCUMENTS {
            return Err(format!("it leads to more than {MAX_DOCUMENTS} other documents"));
        }
        let found = self.stores.document(text, text, MAX_STACK_BYTES, StackDocument::begins);
        let found = match found.map_err(|error| error.to_string())? {
            None => None,
            Some((content, linked)) => {
                let shown = without_secrets(text);
                let document =
                    StackDocument::parse(&content.bytes).map_err(|reason| format!("{shown}: {reason}"))?;
                self.infos.push(content.info);
                let place = (Arc::as_ptr(&linked.store).cast::<()>() as usize, linked.path);
                Some(OtherStack { place, document: Arc::new(document) })
            }
        };
        self.read.insert(text.to_owned(), found.clone());
        Ok(found)
    }
}

/// Returns a name in a document of another folder as it is in the first document.
fn rebased(folder: &str, text: &str) -> String {
    let is_whole = text.starts_with('/') || text.contains("://") || text.starts_with("file:");
    if is_whole { text.to_owned() } else { format!("{folder}{text}") }
}
