//! The part of a file that an index names: `climate.nc:/t2m[0:10,:,3]`, `climate.nc[time=2001]`.
//!
//! The index is resolved as that of a store is (`formats/slices/`): in a store in memory that has the documents of the file's arrays, and
//! the elements only of the coordinates that the index names.

use std::sync::Arc;

use zarrfs::array::{Array, Engine, Layout};
use zarrfs::error::{Error, Result};
use zarrfs::formats::slices::{self, MAX_LABELS, Refusal};
use zarrfs::formats::sources::{SourceFile, VariableSlice};
use zarrfs::hierarchy::slices::{AxisPart, Slice};
use zarrfs::hierarchy::{Node, Tree, View};
use zarrfs::metadata::ZarrFormat;
use zarrfs::metadata::author::{ArraySpec, NodeDocument, group_documents};
use zarrfs::store::{MemoryStore, Store, join};

use super::input::coordinates_of;
use super::variables::{array_spec, layout};
use super::{Arguments, is_at_or_below};
use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::new_array::refused;
use crate::cli::nodes::subject::with_subject;

/// Coordinates that are read have at most this many bytes.
const MAX_COORDINATE_BYTES: u64 = 256 << 20;

impl Arguments {
    /// Replaces the variables of a file by the parts that an index of the group or variable `inside` selects.
    pub fn sliced(&self, mut source: SourceFile, inside: &str, index: &str) -> Outcome<SourceFile> {
        if !source.has_node(inside) {
            return Err(Exit::Usage(format!("{} has no group or variable '{inside}'", self.file)));
        }
        let engine = self.engine();
        let outline = Outline::new();
        for group in &source.groups {
            outline.put(&group.path, group_documents(ZarrFormat::V3, &group.attributes).map_err(refused)?)?;
        }
        for variable in &source.variables {
            let documents = array_spec(variable, ZarrFormat::V3, &[])?.documents();
            outline.put(&variable.path, documents.map_err(|error| refused(error.within(&variable.path)))?)?;
        }
        for path in coordinates_of(inside, index) {
            outline.put_coordinates(&engine, &mut source, &path)?;
        }
        let slice = outline.resolve(&engine, inside, index)?;
        let mut parts = Vec::new();
        for (number, variable) in source.variables.iter().enumerate() {
            let Some(node) =
                outline.tree.node(&variable.path)?.filter(|_| is_at_or_below(&variable.path, inside))
            else {
                continue;
            };
            let (shown, Node::Array { metadata, .. }) = (View::Slice(slice.clone()).node(&node), &node)
            else {
                continue;
            };
            let (Some(Node::Array { metadata: shown, .. }), Some(axes)) =
                (shown.as_deref(), slice.parts(metadata))
            else {
                return Err(Exit::Usage(format!("'{}' has no flat bytes, and no slices", variable.path)));
            };
            let attributes = variable.attributes.iter();
            let attributes =
                attributes.filter(|(name, _)| shown.attributes.contains_key(name)).cloned().collect();
            parts.push(VariableSlice { variable: number, axes, attributes });
        }
        Ok(source.with_slices(parts))
    }
}

/// Returns the elements of each axis that an index of a single array selects.
pub fn axes_of_array(engine: &Arc<Engine>, spec: &ArraySpec<'_>, index: &str) -> Outcome<Vec<AxisPart>> {
    let outline = Outline::new();
    outline.put("", spec.documents().map_err(refused)?)?;
    let slice = outline.resolve(engine, "", index)?;
    Ok(slice.axes.clone().unwrap_or_default())
}

/// The nodes of a file without most of their elements.
struct Outline {
    store: Arc<dyn Store>,
    content: Arc<MemoryStore>,
    tree: Tree,
}

impl Outline {
    fn new() -> Self {
        let content = Arc::new(MemoryStore::new());
        let store: Arc<dyn Store> = content.clone();
        let tree = Tree::for_one_look(store.clone());
        Outline { store, content, tree }
    }

    fn put(&self, path: &str, documents: Vec<NodeDocument>) -> Result<()> {
        documents
            .into_iter()
            .try_for_each(|document| self.content.put(&join(path, document.name), document.text.into_bytes()))
    }

    /// Stores the elements of a variable if it is a coordinate.
    fn put_coordinates(&self, engine: &Arc<Engine>, source: &mut SourceFile, path: &str) -> Outcome {
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut variables = source.variables.iter().enumerate();
        let Some((number, variable)) = variables.find(|(_, variable)| variable.path == path) else {
            return Ok(());
        };
        let is_read =
            variable.dimensions == [name] && variable.shape.iter().all(|&length| length <= MAX_LABELS);
        if !is_read {
            return Ok(());
        }
        if variable.size_bytes() > MAX_COORDINATE_BYTES {
            let sentence = format!("more than {MAX_COORDINATE_BYTES} bytes are not read: give positions");
            return Err(Exit::Usage(format!("'{path}' has {} bytes, and {sentence}", variable.size_bytes())));
        }
        let stale = || Error::Stale { key: path.to_owned() };
        let Some(Node::Array { metadata, .. }) = self.tree.node(path)? else { return Err(stale().into()) };
        let array = Array::open(engine, &self.store, path, metadata, layout(Some(variable)))?;
        array.writer().open_for_writing()?;
        source.copy(number, &array, &[0], &|_| {})?;
        array.writer().sync()?;
        array.writer().close_for_writing();
        Ok(())
    }

    fn resolve(&self, engine: &Arc<Engine>, path: &str, index: &str) -> Outcome<Arc<Slice>> {
        let stale = || Error::Stale { key: path.to_owned() };
        let node = self.tree.node(path)?.ok_or_else(stale)?;
        let resolved = with_subject(engine, &self.tree, (path, &node), Layout::default(), |subject| {
            slices::resolve(subject, index)
        });
        match resolved {
            Ok(slice) => Ok(Arc::new(slice)),
            Err(Refusal::Syntax(sentence) | Refusal::Outside(sentence)) => Err(Exit::Usage(sentence)),
            Err(Refusal::Failed(error)) => Err(error.into()),
        }
    }
}
