//! Making the document of a stack from stores with the same arrays.
//!
//! Uses `document.rs`, `open.rs`, `tree.rs`, `array` and `store`. Arrays with the axis are put together; others must be equal in all
//! stores, and are those of the first. Invariant: a document that is returned can be opened.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::super::{Node, Tree};
use super::document::{DownsampleMethod, SliceEntry, StackAxis, StackDocument, StackOperation};
use super::open::open_store;
use crate::array::{Array, Engine, Layout, Reservation, VariableArray};
use crate::error::{Error, Result};
use crate::metadata::conventions::packing::Packing;
use crate::metadata::{ArrayMetadata, DataType};
use crate::store::{Store, StoreOptions, is_remote, local_path, without_secrets};

/// How many bytes of two arrays are compared at a time.
const COMPARED_BYTES: u64 = 4 << 20;

/// How stores are put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackLayout {
    /// One store alone.
    Single,
    /// One after the other, along the axis with this name.
    Along(String),
    /// Along a new axis with this name.
    NewAxis(String),
}

/// What a document is made of.
#[derive(Clone, Debug)]
pub struct StackRequest {
    /// Where the document will be.
    pub out: PathBuf,
    /// The locations of the stores.
    pub stores: Vec<String>,
    /// How they are put together.
    pub layout: StackLayout,
    /// Whether packed numbers are unpacked.
    pub unpack: bool,
    /// The type that numbers are cast to.
    pub cast: Option<String>,
    /// Which elements of dimensions are kept: start, stop and step.
    pub slices: Vec<(String, SliceEntry)>,
    /// How many elements along dimensions become one.
    pub downsample: Vec<(String, u64)>,
    /// How they do.
    pub method: DownsampleMethod,
}

/// A document, and what its user should know.
pub struct MadeStack {
    /// Its text.
    pub text: String,
    /// How many arrays it has.
    pub arrays: usize,
    /// Sentences for the user.
    pub notes: Vec<String>,
    /// The folders and URLs outside the document's folder that must be allowed.
    pub outside: Vec<String>,
}

/// One of the stores.
struct InputStore {
    /// Its name in the document.
    text: String,
    tree: Tree,
    arrays: BTreeMap<String, Arc<ArrayMetadata>>,
}

/// Makes a document. Reads the arrays that must be equal.
pub fn stack_document(request: &StackRequest, options: &StoreOptions) -> Result<MadeStack> {
    let mut notes = Vec::new();
    let mut inputs = Vec::new();
    let mut groups = BTreeMap::new();
    let mut outside = Vec::new();
    for location in &request.stores {
        let text = name_in_document(&request.out, location)?;
        if is_remote(&text) {
            outside.push(text.clone());
        } else if let Some((folder, _)) = text.rsplit_once('/').filter(|_| text.starts_with('/')) {
            outside.push(if folder.is_empty() { "/".to_owned() } else { folder.to_owned() });
        }
        let tree = Tree::for_one_look(open_store(location, options)?);
        let mut arrays = BTreeMap::new();
        for visit in tree.walk("", usize::MAX) {
            match visit.node? {
                Node::Array { metadata, .. } => drop(arrays.insert(visit.path, metadata)),
                Node::Group { metadata, .. } if inputs.is_empty() => {
                    groups.insert(visit.path, metadata.attributes.clone());
                }
                Node::Group { .. } => {}
                Node::Broken { error, .. } => return Err(error),
            }
        }
        inputs.push(InputStore { text, tree, arrays });
    }
    let Some((first, others)) = inputs.split_first() else {
        return Err(Error::Usage("no store is named".to_owned()));
    };
    if first.arrays.is_empty() {
        return Err(Error::Usage(format!("{}: has no arrays", first.text)));
    }
    for other in others {
        if let Some(missing) = first.arrays.keys().find(|path| !other.arrays.contains_key(*path)) {
            let (has, lacks) = (&first.text, &other.text);
            return Err(Error::Usage(format!("{lacks} has no array '{missing}', but {has} has")));
        }
        for path in other.arrays.keys().filter(|path| !first.arrays.contains_key(*path)) {
            notes.push(format!(
                "'{path}' of {} is left out, because {} does not have it",
                other.text, first.text
            ));
        }
    }
    request.check_axis(first)?;
    let mut arrays = BTreeMap::new();
    for (path, metadata) in &first.arrays {
        let operation = request.put_together(path, metadata, &inputs)?;
        let operation = request.changed(operation, metadata, path, &mut notes);
        if !matches!(operation, StackOperation::Array { .. }) && metadata.data_type.item_size().is_none() {
            let type_name = metadata.data_type.name();
            notes.push(format!(
                "'{path}' is left out, because elements of type {type_name} cannot be put together"
            ));
            continue;
        }
        arrays.insert(path.clone(), operation);
    }
    let count = arrays.len();
    let text = StackDocument { groups, arrays }.to_text();
    outside.sort();
    outside.dedup();
    if !outside.is_empty() {
        let allowed: Vec<String> =
            outside.iter().map(|place| format!("--allow-references {}", without_secrets(place))).collect();
        notes.push(format!("stores outside the document's folder are read only with {}", allowed.join(" ")));
    }
    Ok(MadeStack { text, arrays: count, notes, outside })
}

impl StackRequest {
    fn check_axis(&self, first: &InputStore) -> Result<()> {
        let has = |metadata: &ArrayMetadata, wanted: &str| axis_of(metadata, wanted).is_some();
        let names = || {
            let names = first.arrays.values().filter_map(|metadata| metadata.dimension_names.clone());
            let mut names: Vec<String> = names.flatten().flatten().collect();
            names.sort();
            names.dedup();
            names.join(", ")
        };
        let wanted = match &self.layout {
            StackLayout::Along(wanted) => Some(wanted),
            _ => None,
        };
        let dimensions =
            self.slices.iter().map(|(name, _)| name).chain(self.downsample.iter().map(|(name, _)| name));
        for wanted in wanted.into_iter().chain(dimensions) {
            if !first.arrays.values().any(|metadata| has(metadata, wanted)) {
                let (store, known) = (&first.text, names());
                return Err(Error::Usage(format!(
                    "no array of {store} has a dimension '{wanted}'; there are: {known}"
                )));
            }
        }
        Ok(())
    }

    /// Returns the operation that puts the array at a path of all stores together.
    fn put_together(
        &self,
        path: &str,
        metadata: &ArrayMetadata,
        inputs: &[InputStore],
    ) -> Result<StackOperation> {
        let array =
            |input: &InputStore| StackOperation::Array { store: input.text.clone(), path: path.to_owned() };
        let Some((first, others)) = inputs.split_first() else {
            return Err(Error::Usage("no store is named".to_owned()));
        };
        let joined = match &self.layout {
            StackLayout::Single => false,
            StackLayout::Along(name) => axis_of(metadata, name).is_some(),
            StackLayout::NewAxis(_) => !is_coordinate(path, metadata),
        };
        if !joined {
            for other in others {
                if let Some(of_other) = other.arrays.get(path) {
                    self.check_equal(path, (first, metadata), (other, of_other))?;
                }
            }
            return Ok(array(first));
        }
        // Numbers that are packed otherwise in each store have one meaning when they are unpacked.
        let packing = Packing::read(metadata);
        let is_other =
            |input: &InputStore| input.arrays.get(path).is_some_and(|of| Packing::read(of) != packing);
        let unpacked = self.unpack || others.iter().any(is_other);
        let layer = |input: &InputStore| {
            let layer = array(input);
            if unpacked { StackOperation::Unpack { base: Box::new(layer) } } else { layer }
        };
        let layers = inputs.iter().map(layer).collect();
        Ok(match &self.layout {
            StackLayout::NewAxis(name) => StackOperation::Stack { layers, axis: 0, name: Some(name.clone()) },
            StackLayout::Along(name) => {
                let number = name.parse().ok().filter(|_| axis_by_name(metadata, name).is_none());
                let axis = number.map_or_else(|| StackAxis::Name(name.clone()), StackAxis::Number);
                StackOperation::Concat { layers, axis }
            }
            StackLayout::Single => array(first),
        })
    }

    /// Applies what holds for all arrays to one.
    fn changed(
        &self,
        mut operation: StackOperation,
        metadata: &ArrayMetadata,
        path: &str,
        notes: &mut Vec<String>,
    ) -> StackOperation {
        let is_packed = matches!(Packing::read(metadata), Packing::Packed(_));
        if self.unpack && is_packed && matches!(operation, StackOperation::Array { .. }) {
            operation = StackOperation::Unpack { base: Box::new(operation) };
        }
        let is_stacked = matches!(operation, StackOperation::Stack { .. });
        let mut axes: Vec<Option<&str>> = metadata.dimension_names.as_ref().map_or_else(
            || vec![None; metadata.shape.len()],
            |names| names.iter().map(Option::as_deref).collect(),
        );
        if is_stacked {
            axes.insert(0, None);
        }
        let entry = |axis: &Option<&str>| {
            let found = self.slices.iter().find(|(name, _)| Some(name.as_str()) == *axis);
            found.map_or(SliceEntry::All, |(_, entry)| *entry)
        };
        let index: Vec<SliceEntry> = axes.iter().map(entry).collect();
        if index.iter().any(|entry| *entry != SliceEntry::All) {
            operation = StackOperation::Slice { base: Box::new(operation), index };
        }
        let factor = |axis: &Option<&str>| {
            let found = self.downsample.iter().find(|(name, _)| Some(name.as_str()) == *axis);
            found.map_or(1, |(_, factor)| *factor)
        };
        let factors: Vec<u64> = axes.iter().map(factor).collect();
        if factors.iter().any(|factor| *factor > 1) {
            let numeric = metadata.data_type.numeric_type();
            let has_mean = self.unpack && is_packed
                || numeric.is_some_and(|numeric| {
                    (numeric.is_integer() || numeric.is_float()) && numeric.data_type() == metadata.data_type
                });
            let method = if has_mean { self.method } else { DownsampleMethod::Stride };
            if method != self.method && metadata.data_type.item_size().is_some() {
                let type_name = metadata.data_type.name();
                notes.push(format!(
                    "'{path}' has the first of several elements, because {type_name} has no mean"
                ));
            }
            operation = StackOperation::Downsample { base: Box::new(operation), factors, method };
        }
        if let Some(data_type) = &self.cast
            && !is_coordinate(path, metadata)
            && metadata.data_type.numeric_type().is_some()
        {
            operation = StackOperation::Cast { base: Box::new(operation), data_type: data_type.clone() };
        }
        operation
    }

    /// Fails unless an array has the same elements in two stores.
    fn check_equal(
        &self,
        path: &str,
        (first, of_first): (&InputStore, &ArrayMetadata),
        (other, of_other): (&InputStore, &ArrayMetadata),
    ) -> Result<()> {
        let (one, two) = (&first.text, &other.text);
        let differ = |what: &str| {
            Error::Usage(format!(
                "'{path}' has other {what} in {two} than in {one}, and arrays without the axis must be equal in all stores"
            ))
        };
        if of_first.shape != of_other.shape {
            return Err(differ("lengths"));
        }
        if of_first.data_type != of_other.data_type || Packing::read(of_first) != Packing::read(of_other) {
            return Err(differ("types or packing"));
        }
        let (store_one, store_two): (&Arc<dyn Store>, &Arc<dyn Store>) =
            (first.tree.store(), other.tree.store());
        let (of_first, of_other) = (Arc::new(of_first.clone()), Arc::new(of_other.clone()));
        if matches!(of_first.data_type, DataType::VariableLength(_)) {
            let one = hash_of_texts(store_one, path, &of_first)?;
            return if one == hash_of_texts(store_two, path, &of_other)? {
                Ok(())
            } else {
                Err(differ("elements"))
            };
        }
        let engine = Engine::new(COMPARED_BYTES * 4, 2);
        let one = Array::open(&engine, store_one, path, of_first, Layout::default())?;
        let two = Array::open(&engine, store_two, path, of_other, Layout::default())?;
        let mut at = 0;
        while at < one.size_bytes() {
            let length = (one.size_bytes() - at).min(COMPARED_BYTES) as usize;
            let (mut of_one, mut of_two) = (vec![0; length], vec![0; length]);
            one.read_at(at, &mut of_one)?;
            two.read_at(at, &mut of_two)?;
            if of_one != of_two {
                return Err(differ("elements"));
            }
            at += length as u64;
        }
        Ok(())
    }
}

fn hash_of_texts(store: &Arc<dyn Store>, path: &str, metadata: &Arc<ArrayMetadata>) -> Result<u64> {
    let engine = Engine::new(COMPARED_BYTES * 16, 1);
    let mut held = Reservation::new(&engine);
    let mut hasher = DefaultHasher::new();
    VariableArray::open(store, path, metadata)?.read(&mut held, &mut |element| {
        element.hash(&mut hasher);
        Ok(())
    })?;
    Ok(hasher.finish())
}

fn axis_by_name(metadata: &ArrayMetadata, wanted: &str) -> Option<usize> {
    metadata.dimension_names.as_ref()?.iter().position(|name| name.as_deref() == Some(wanted))
}

/// Returns the axis with a name, or with a number.
fn axis_of(metadata: &ArrayMetadata, wanted: &str) -> Option<usize> {
    let by_number = || wanted.parse().ok().filter(|axis| *axis < metadata.shape.len());
    axis_by_name(metadata, wanted).or_else(by_number)
}

/// Whether an array has the coordinates of its only dimension.
fn is_coordinate(path: &str, metadata: &ArrayMetadata) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    metadata.shape.len() == 1 && axis_by_name(metadata, name) == Some(0)
}

/// Returns the location of a store as a document in this file names it: relative if the store is below the document's folder.
fn name_in_document(out: &Path, location: &str) -> Result<String> {
    if is_remote(location) {
        return Ok(location.to_owned());
    }
    let whole = |path: &Path| std::path::absolute(path).map(|path| normal(&path));
    let failed = |error: std::io::Error| Error::Usage(format!("{location}: {error}"));
    let path = whole(&local_path(location)?).map_err(failed)?;
    let folder = whole(out).map_err(failed)?;
    let folder = folder.parent().unwrap_or(Path::new("/"));
    let named = path.strip_prefix(folder).ok().filter(|below| !below.as_os_str().is_empty()).unwrap_or(&path);
    let text =
        named.to_str().ok_or_else(|| Error::Usage(format!("{}: the name is not UTF-8", path.display())))?;
    Ok(text.to_owned())
}

/// Removes `.` and `..` from an absolute path.
fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(result.pop()),
            Component::CurDir => {}
            part => result.push(part),
        }
    }
    result
}
