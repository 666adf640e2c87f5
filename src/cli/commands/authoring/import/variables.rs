//! A new group, or array, of the variables of a file.
//!
//! A new store in a folder is a new node of the folder above it, so that it appears in one step, too.

use std::path::Path;
use std::sync::Arc;

use zarrfs::array::{Array, Engine, Layout, Order};
use zarrfs::error::Result;
use zarrfs::formats::sources::{Attribute, SourceFile, SourceVariable};
use zarrfs::hierarchy::author::{self, NewArray, NewTree, Place, names};
use zarrfs::metadata::ZarrFormat;
use zarrfs::metadata::author::{ArraySpec, ElementType, NodeDocument, chunk_shape, group_documents};
use zarrfs::store::overlay::Access;
use zarrfs::store::{Store, is_remote, local_path};

use super::Arguments;
use crate::cli::exit::{Exit, Outcome};
use crate::cli::nodes::new_array::{new_store, place, refused};
use crate::cli::output::{self, progress};

/// A file's own chunk shape is kept if its chunks have a size in this range.
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(32 << 20);
/// A dimension that grows gets chunks for at least this many elements, if the array has no other.
const GROWING_LENGTH: u64 = 1024;

/// A node that is made.
struct PlannedNode {
    /// Its path below the place of all.
    path: String,
    documents: Vec<NodeDocument>,
    /// The number of its variable, if it is an array.
    variable: Option<usize>,
}

/// Where the nodes are made.
struct Target {
    store: Arc<dyn Store>,
    place: Place,
    zarr_format: ZarrFormat,
    /// The groups between the place and the file's root, in a new store.
    prefix: Vec<String>,
}

impl Arguments {
    /// Makes nodes of all groups and variables.
    pub fn import_variables(&self, source: SourceFile) -> Outcome {
        for sentence in &source.left_out {
            output::note(format_args!("zarrfs: not imported: {sentence}"));
        }
        let is_new = self.node.new || self.path.is_none();
        let zarr_format = self.node.given_format().unwrap_or(ZarrFormat::V3);
        if is_new {
            // Variables that cannot become arrays leave no new store behind.
            self.plan(&source, zarr_format, &names(self.path.as_deref().unwrap_or_default()).join("/"))?;
        }
        let target = if is_new { self.new_store(zarr_format)? } else { self.existing_store()? };
        let nodes = self.plan(&source, target.zarr_format, &target.prefix.join("/"))?;
        let engine = self.engine();
        match <[PlannedNode; 1]>::try_from(nodes) {
            Ok([PlannedNode { documents, variable: Some(variable), .. }]) => {
                import_array(&engine, &target, source, (variable, documents))
            }
            Ok(nodes) => import_tree(&engine, &target, source, nodes.into()),
            Err(nodes) => import_tree(&engine, &target, source, nodes),
        }
    }

    /// Returns all nodes, groups before what is in them.
    fn plan(&self, source: &SourceFile, zarr_format: ZarrFormat, prefix: &str) -> Outcome<Vec<PlannedNode>> {
        let attributes = self.node.attributes()?;
        let is_sole = source.variables.len() == 1;
        let mut nodes: Vec<PlannedNode> = Vec::new();
        let mut add_group = |path: String, attributes: &[Attribute]| -> Outcome {
            if nodes.iter().any(|node: &PlannedNode| node.path == path) {
                return Ok(());
            }
            let documents = group_documents(zarr_format, attributes).map_err(refused)?;
            nodes.push(PlannedNode { path, documents, variable: None });
            Ok(())
        };
        for (end, _) in prefix.match_indices('/').chain([(0, "")]).filter(|_| !prefix.is_empty()) {
            add_group(prefix.get(..end).unwrap_or_default().to_owned(), &[])?;
        }
        for group in &source.groups {
            let own = if group.path.is_empty() { attributes.as_slice() } else { &[] };
            add_group(joined(prefix, &group.path), &[group.attributes.as_slice(), own].concat())?;
        }
        for (number, variable) in source.variables.iter().enumerate() {
            let path = joined(prefix, &variable.path);
            for name in path.split('/').filter(|name| !name.is_empty()) {
                author::check_name(name, zarr_format)?;
            }
            let own = if source.groups.is_empty() { attributes.as_slice() } else { &[] };
            let documents = self.documents(variable, zarr_format, own, is_sole)?;
            nodes.push(PlannedNode { path, documents, variable: Some(number) });
        }
        nodes
            .sort_by_key(|node| (node.variable.is_some(), node.path.matches('/').count(), node.path.clone()));
        Ok(nodes)
    }

    /// Returns the documents of an array.
    fn documents(
        &self,
        variable: &SourceVariable,
        zarr_format: ZarrFormat,
        own: &[Attribute],
        is_sole: bool,
    ) -> Outcome<Vec<NodeDocument>> {
        let storage = &self.storage;
        if !is_sole && (storage.chunks.is_some() || storage.shards.is_some()) {
            let sentence = "--chunks and --shards are for one array: import one variable with FILE:/NAME";
            return Err(Exit::Usage(sentence.to_owned()));
        }
        if storage.dims.is_some() || storage.fill_value.is_some() {
            let sentence = "the file has its own dimension names and values of missing elements";
            return Err(Exit::Usage(format!("--dims and --fill-value do not apply: {sentence}")));
        }
        let mut spec = array_spec(variable, zarr_format, own)?;
        if let Some(chunks) = &storage.chunks {
            spec.chunks = Some(chunks.0.clone());
        }
        spec.shards = storage.shards.as_ref().map(|shards| shards.0.clone());
        spec.codecs = storage.codecs.as_deref();
        spec.documents().map_err(|error| refused(error.within(&variable.path)))
    }

    fn existing_store(&self) -> Outcome<Target> {
        let destination = self.node.destination(&self.store, self.path.as_deref().unwrap_or_default())?;
        let zarr_format = destination.zarr_format;
        Ok(Target { store: destination.store, place: destination.place, zarr_format, prefix: Vec::new() })
    }

    /// Finds the place of a new store.
    fn new_store(&self, zarr_format: ZarrFormat) -> Outcome<Target> {
        let options = self.node.access.options(&self.store, Access::Write)?;
        let prefix: Vec<String> =
            names(self.path.as_deref().unwrap_or_default()).into_iter().map(str::to_owned).collect();
        if !is_remote(&self.store) {
            let folder = local_path(&self.store)?;
            let name = folder.file_name().and_then(|name| name.to_str());
            let above =
                folder.parent().map(|above| if above == Path::new("") { Path::new(".") } else { above });
            if let (Some(name), Some(above)) = (name, above.and_then(Path::to_str)) {
                let exists = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
                if exists || folder.is_file() {
                    let sentence = "nothing is replaced: name a new store, or a PATH in this one";
                    return Err(Exit::Failed(format!("{} exists and is not empty; {sentence}", self.store)));
                }
                let store = zarrfs::store::open_with(above, &options)?;
                let place = Place::new_store(&store, name)?;
                let place = zarrfs::sys::umask()
                    .map_or_else(|| place.clone(), |umask| place.clone().under_umask(umask));
                return Ok(Target { store, place, zarr_format, prefix });
            }
        }
        let store = new_store(&self.store, &options)?;
        let place = place(&store, "")?;
        Ok(Target { store, place, zarr_format, prefix })
    }
}

/// Returns the array that a variable becomes, with `own` attributes added.
pub fn array_spec<'a>(
    variable: &'a SourceVariable,
    zarr_format: ZarrFormat,
    own: &[Attribute],
) -> Outcome<ArraySpec<'a>> {
    let mut attributes = [variable.attributes.as_slice(), own].concat();
    let fill_value = variable.missing.as_ref().and_then(|missing| missing.fill_value.as_deref());
    let fill_value = match zarr_format {
        // xarray takes v2's fill value for the attribute.
        ZarrFormat::V2 => Some(fill_value.unwrap_or("null")),
        _ => fill_value,
    };
    if let (Some(missing), ZarrFormat::V3) = (&variable.missing, zarr_format) {
        attributes.push(("_FillValue".to_owned(), missing.attribute.clone()));
    }
    Ok(ArraySpec {
        zarr_format,
        shape: variable.shape.clone(),
        element: ElementType::from_data_type(variable.element.data_type.clone()).map_err(refused)?,
        chunks: Some(chunks(variable)),
        shards: None,
        codecs: None,
        fill_value,
        dimension_names: Some(variable.dimensions.iter().cloned().map(Some).collect()),
        attributes,
    })
}

/// Returns the shape of the chunks of a new array.
fn chunks(variable: &SourceVariable) -> Vec<u64> {
    let bytes = |chunks: &[u64]| {
        chunks.iter().fold(variable.item_bytes(), |bytes, &length| bytes.saturating_mul(length))
    };
    if let Some(chunks) = variable.chunks.as_ref().filter(|chunks| CHUNK_BYTES.contains(&bytes(chunks))) {
        return chunks.clone();
    }
    let mut shape = variable.shape.clone();
    for (length, &is_unlimited) in shape.iter_mut().zip(&variable.is_unlimited) {
        if is_unlimited {
            *length = (*length).max(if variable.shape.len() == 1 { GROWING_LENGTH } else { 1 });
        }
    }
    chunk_shape(&shape, variable.item_bytes())
}

fn import_array(
    engine: &Arc<Engine>,
    target: &Target,
    mut source: SourceFile,
    (variable, documents): (usize, Vec<NodeDocument>),
) -> Outcome {
    let layout = layout(source.variables.get(variable));
    let new = NewArray::begin(engine, &target.store, &target.place, documents, layout)?;
    let copied = copy(&mut source, &[(variable, Arc::clone(new.array()))]);
    copied.map_err(|error| Exit::Failed(new.shown(&error)))?;
    Ok(new.publish()?)
}

fn import_tree(
    engine: &Arc<Engine>,
    target: &Target,
    mut source: SourceFile,
    nodes: Vec<PlannedNode>,
) -> Outcome {
    let mut nodes = nodes.into_iter();
    let Some(root) = nodes.next() else { return Ok(()) };
    let mut tree = NewTree::begin(&target.store, &target.place, root.documents)?;
    let bar = progress::bytes(source.size_bytes(), true);
    for node in nodes {
        let made = add(engine, &mut tree, &mut source, node, &bar);
        made.map_err(|error| Exit::Failed(tree.shown(&error)))?;
    }
    bar.finish_and_clear();
    Ok(tree.publish()?)
}

fn add(
    engine: &Arc<Engine>,
    tree: &mut NewTree,
    source: &mut SourceFile,
    node: PlannedNode,
    bar: &indicatif::ProgressBar,
) -> Result<()> {
    let PlannedNode { path, documents, variable } = node;
    let Some(variable) = variable else { return tree.add_group(&path, documents) };
    bar.set_message(path.clone());
    let array = tree.add_array(engine, &path, documents, layout(source.variables.get(variable)))?;
    let origin = vec![0; array.metadata().shape.len()];
    source.copy(variable, &array, &origin, &|bytes| bar.inc(bytes))?;
    tree.finish_array()
}

/// Copies variables to arrays of the same shape.
fn copy(source: &mut SourceFile, arrays: &[(usize, Arc<Array>)]) -> Result<()> {
    let bar = progress::bytes(source.size_bytes(), true);
    for (variable, array) in arrays {
        let origin = vec![0; array.metadata().shape.len()];
        source.copy(*variable, array, &origin, &|bytes| bar.inc(bytes))?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Returns the layout in which a variable's elements are read.
pub fn layout(variable: Option<&SourceVariable>) -> Layout {
    let byte_order = variable.map(|variable| variable.byte_order);
    Layout { order: Order::C, byte_order: byte_order.unwrap_or(Layout::default().byte_order) }
}

fn joined(prefix: &str, path: &str) -> String {
    match (prefix, path) {
        ("", path) => path.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, path) => format!("{prefix}/{path}"),
    }
}
