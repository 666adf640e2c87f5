//! One virtual array: its parts, and the document that describes it.
//!
//! Uses `parts.rs`, `targets.rs` and `metadata`. Invariant: the document has been read back, so that what the store serves can be opened.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::document::StackOperation;
use super::parts::{PartBuilder, PartSource, StackPart, chunk_shape, document};
use super::targets::{StackTargets, TargetState};
use crate::error::{Error, Result};
use crate::metadata::{ArrayMetadata, KeyMatch, parse_array};
use crate::store::{Info, ListEntry, ObjectVersion, info_narrowed, join};

/// The most bytes of a chunk, which views in other orders keep as a whole.
const CHUNK_BYTES: u64 = 8 << 20;
/// The most chunks that are listed: a document may declare more than any program can count.
const MAX_LISTED_CHUNKS: u64 = 1 << 20;

/// A virtual array, with the metadata that its targets had at one time.
pub struct VirtualArray {
    part: StackPart,
    targets: Vec<Arc<TargetState>>,
    document: Vec<u8>,
    metadata: ArrayMetadata,
    chunk: Vec<u64>,
    info: Info,
}

/// The layers of a concatenation along an axis with a name.
pub struct LayersAlong {
    /// The name of the axis.
    pub axis: String,
    /// The layers.
    pub layers: Vec<LayerLength>,
}

/// The length of a layer along the axis of its concatenation.
pub struct LayerLength {
    /// Its first target.
    pub target: Arc<TargetState>,
    /// Its elements along the axis.
    pub elements: u64,
}

/// A chunk of a virtual array.
pub struct ChunkPlace {
    /// Its place in the flat file.
    pub range: Range<u64>,
    /// Its size, which is more if the array ends in it.
    pub size_bytes: u64,
    /// Its elements along each axis, as the first one and the end.
    pub elements: Vec<(u64, u64)>,
}

impl VirtualArray {
    /// Builds the array at a path from the present metadata of its targets. `own` is the info of the stack's document, for its readers.
    pub fn build(path: &str, operation: &StackOperation, targets: &StackTargets, own: &Info) -> Result<Self> {
        let key = join(path, "zarr.json");
        let find = |store: &str, path: &str| targets.state(store, path, &key);
        let described = PartBuilder { key: &key, find: &find }.build(operation)?;
        let mut states: Vec<Arc<TargetState>> = Vec::new();
        described.part.each_target_anywhere(&mut |state| states.push(state.clone()));
        let chunk = chunk_shape(&described.part.shape, described.part.item_bytes, CHUNK_BYTES);
        let text = document(&described.metadata, &chunk, &key)?;
        let metadata = parse_array(&key, &text)?;
        let metadata = metadata.ok_or_else(|| Error::metadata(&key, "the virtual array has no metadata"))?;
        let newest = states.iter().filter_map(|state| state.info.modified).max();
        let versions: Vec<ObjectVersion> = states.iter().map(|state| state.info.version).collect();
        let info = Info {
            size_bytes: text.len() as u64,
            modified: own.modified.max(newest),
            version: ObjectVersion::hashed((own.version, versions, &text)),
            posix: own.posix,
        };
        let info = info_narrowed(info, states.iter().map(|state| state.info.posix));
        Ok(VirtualArray { part: described.part, targets: states, document: text, metadata, chunk, info })
    }

    /// Returns its parts.
    pub fn part(&self) -> &StackPart {
        &self.part
    }

    /// Returns its targets, one for each time that it leads to one.
    pub fn targets(&self) -> &[Arc<TargetState>] {
        &self.targets
    }

    /// Returns its document.
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// Returns the info of its document.
    pub fn info(&self) -> Info {
        self.info
    }

    /// Returns one element of the fill value.
    pub fn fill_value(&self) -> &[u8] {
        &self.metadata.fill_value.bytes
    }

    /// Whether all targets still have the same metadata.
    pub fn is_current(&self, targets: &StackTargets, key: &str) -> bool {
        let is_same = |state: &Arc<TargetState>| {
            let now = targets.state(&state.store_text, &state.path, key);
            now.is_ok_and(|now| Arc::ptr_eq(&now, state))
        };
        self.targets.iter().all(is_same)
    }

    /// Whether all elements of `old` are where they were.
    pub fn continues(&self, old: &VirtualArray) -> bool {
        self.metadata.is_stored_as(&old.metadata) && self.part.continues(&old.part, true)
    }

    /// Returns the elements along the axis of a concatenation that each of its targets has, with the name of the axis.
    pub fn lengths_of_layers(&self) -> Option<LayersAlong> {
        let mut part = &self.part;
        while let PartSource::Convert { base, .. } = &part.source {
            part = base;
        }
        let PartSource::Concat { layers, axis, .. } = &part.source else { return None };
        let name = self.metadata.dimension_names.as_ref()?.get(*axis)?.clone()?;
        let length = |layer: &StackPart| {
            let mut state = None;
            layer.each_target_anywhere(&mut |target| state = state.take().or_else(|| Some(target.clone())));
            Some(LayerLength { target: state?, elements: layer.shape.get(*axis).copied()? })
        };
        Some(LayersAlong { axis: name, layers: layers.iter().map(length).collect::<Option<_>>()? })
    }

    /// Calls `each` with the names in the folder `below` the array, until it breaks. `key` is the key of the folder.
    pub fn each_name(
        &self,
        below: &str,
        key: &str,
        each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        let entry = |name: String, is_folder| ListEntry { name, is_folder };
        let counts: Vec<u64> =
            self.part.shape.iter().zip(&self.chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect();
        if below.is_empty() {
            let chunks = (!counts.contains(&0)).then(|| entry("c".to_owned(), !counts.is_empty()));
            let _ = std::iter::once(entry("zarr.json".to_owned(), false)).chain(chunks).try_for_each(each);
            return Ok(());
        }
        let mut names = below.split('/');
        let mut axes = counts.iter();
        let is_number = |(name, count): (&str, &u64)| name.parse::<u64>().is_ok_and(|number| number < *count);
        if names.next() != Some("c")
            || !names.by_ref().all(|name| axes.next().is_some_and(|count| is_number((name, count))))
        {
            return Ok(());
        }
        let Some(&count) = axes.next() else { return Ok(()) };
        let total = counts.iter().try_fold(1_u64, |total, count| total.checked_mul(*count));
        if total.is_none_or(|total| total > MAX_LISTED_CHUNKS) {
            let reason = format!("more than {MAX_LISTED_CHUNKS} chunks, which are made when they are read");
            return Err(Error::Unlisted { key: key.to_owned(), reason });
        }
        let is_folder = axes.next().is_some();
        let _ = (0..count).map(|number| entry(number.to_string(), is_folder)).try_for_each(each);
        Ok(())
    }

    /// Returns the chunk with a name below the array; `None` if the array has no such chunk.
    pub fn chunk(&self, name: &str) -> Option<ChunkPlace> {
        let shape = &self.part.shape;
        let Some(KeyMatch::Chunk(index)) = self.metadata.chunk_keys.parse(name, shape.len()) else {
            return None;
        };
        let mut elements = Vec::with_capacity(shape.len());
        let (mut first, mut chunk_elements, mut inside) = (0_u64, 1_u64, 1_u64);
        for ((&number, &length), &chunk) in index.iter().zip(shape).zip(&self.chunk) {
            let start = number.checked_mul(chunk).filter(|start| *start < length)?;
            let end = start.saturating_add(chunk).min(length);
            elements.push((start, end));
            first = first.checked_mul(length)?.checked_add(start)?;
            chunk_elements = chunk_elements.checked_mul(chunk)?;
            inside = inside.checked_mul(end - start)?;
        }
        let item = self.part.item_bytes as u64;
        let (start, length) = (first.checked_mul(item)?, inside.checked_mul(item)?);
        let size_bytes = chunk_elements.checked_mul(item)?;
        Some(ChunkPlace { range: start..start.checked_add(length)?, size_bytes, elements })
    }
}
