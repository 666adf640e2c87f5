//! Gives all arrays of a group other lengths along a dimension, together.
//!
//! Uses `array`, `store`, `metadata` and its neighbours. New elements are stored first, after the ends of the arrays, where no reader looks.
//! Then come the documents. There is one for each array, so before the first is replaced, an object in the group records all of them as they
//! were and as they become ([`RECORD`]). It is deleted when all are replaced.
//!
//! Invariants: after a crash before the record, all arrays have their old lengths. After a crash with a record, [`end_interrupted`] replaces the
//! documents by the old ones, or finishes if all are new already. Every command of this program that makes or changes a node of the group calls
//! it first. Readers see all lengths change in one step: this program's in a folder, because it shows the old ones as long as there is a record
//! (`lengths_record.rs`), and those of consolidated metadata, because that is replaced once.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde_json::{Value, json};

use super::interrupted::{end, end_interrupted, put};
use super::place::writer;
use super::resize::{Resized, Stored};
use crate::array::{Array, Engine, Layout};
use crate::error::{Error, Result};
use crate::hierarchy::attributes::{read, remove_leftovers};
use crate::hierarchy::lengths_record::{MAX_RECORD_BYTES, RECORD};
use crate::hierarchy::{Node, Tree};
use crate::metadata::author::with_shape;
use crate::metadata::{ArrayMetadata, ZarrFormat, parse_array, read_only_n5};
use crate::store::{ObjectPart, Precondition, PutOptions, Store, Writer, join};
use crate::sys;

/// Another length of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthChange {
    /// Longer by this.
    Longer(u64),
    /// Shorter by this.
    Shorter(u64),
    /// This length.
    To(u64),
}

impl LengthChange {
    /// Returns the new length.
    fn of(self, length: u64) -> Option<u64> {
        match self {
            LengthChange::Longer(more) => length.checked_add(more),
            LengthChange::Shorter(less) => length.checked_sub(less),
            LengthChange::To(length) => Some(length),
        }
    }
}

impl Display for LengthChange {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LengthChange::Longer(more) => write!(out, "{more} longer"),
            LengthChange::Shorter(less) => write!(out, "{less} shorter"),
            LengthChange::To(length) => write!(out, "{length} long"),
        }
    }
}

/// An array that gets another length.
pub struct ResizedArray {
    /// Its path.
    pub path: String,
    /// Its metadata so far, with attributes and dimension names.
    pub metadata: Arc<ArrayMetadata>,
    /// The axis.
    pub axis: usize,
    /// The new shape.
    pub shape: Vec<u64>,
    /// What its document alone says so far.
    stored: ArrayMetadata,
    /// The name of its document, and its text before and after.
    name: &'static str,
    old_text: String,
    new_text: String,
    /// The array with the longer of both lengths. It is open for writing, so that no other program writes to it.
    array: Arc<Array>,
}

/// The arrays of a group that are about to get another length.
pub struct NewLengths {
    store: Arc<dyn Store>,
    engine: Arc<Engine>,
    group: String,
    /// The arrays that have the dimension.
    pub arrays: Vec<ResizedArray>,
    /// The old length.
    pub old: u64,
    /// The new length.
    pub new: u64,
    _lock: Box<dyn Send + Sync>,
}

impl NewLengths {
    /// Finds the arrays of a group that have a dimension, and locks them. Fails if they do not have one length.
    pub fn begin(
        engine: &Arc<Engine>,
        store: &Arc<dyn Store>,
        group: &str,
        dimension: &str,
        change: LengthChange,
    ) -> Result<Self> {
        let writer = writer(store.as_ref())?;
        end_interrupted(store.as_ref(), group)?;
        let busy = || Error::busy(group, "another program changes lengths in this group");
        let lock = writer.lock(group)?.ok_or_else(busy)?;
        let record = join(group, RECORD);
        if store.head_object(&record)?.is_some() {
            let sentence = "another user's change of lengths was interrupted: have that user run it again, or delete this object";
            return Err(Error::busy(record, sentence));
        }
        let shown = if group.is_empty() { "the root" } else { group };
        let tree = Tree::for_one_look(store.clone());
        let mut lengths = NewLengths {
            store: store.clone(),
            engine: Arc::clone(engine),
            group: group.to_owned(),
            arrays: Vec::new(),
            old: 0,
            new: 0,
            _lock: lock,
        };
        let mut known = Vec::new();
        for child in tree.children(group)? {
            let path = join(group, &child.name);
            let metadata = match tree.node(&path)? {
                Some(Node::Array { metadata, .. }) => metadata,
                Some(Node::Broken { error, .. }) => return Err(error),
                _ => continue,
            };
            let names = metadata.dimension_names.clone().unwrap_or_default();
            known.extend(names.iter().flatten().cloned());
            let mut axes = names.iter().enumerate().filter(|(_, name)| name.as_deref() == Some(dimension));
            let Some((axis, _)) = axes.next() else { continue };
            if metadata.zarr_format == ZarrFormat::N5 {
                return Err(read_only_n5(&path));
            }
            if axes.next().is_some() {
                return Err(Error::Usage(format!("'{path}' has the dimension '{dimension}' twice")));
            }
            lengths.add(path, metadata, axis, change, writer)?;
        }
        if lengths.arrays.is_empty() {
            let known =
                known.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>();
            let has = if known.is_empty() {
                "none has names".to_owned()
            } else {
                format!("they are {}", known.join(", "))
            };
            return Err(Error::Usage(format!("no array in {shown} has the dimension '{dimension}'; {has}")));
        }
        Ok(lengths)
    }

    fn add(
        &mut self,
        path: String,
        metadata: Arc<ArrayMetadata>,
        axis: usize,
        change: LengthChange,
        writer: &dyn Writer,
    ) -> Result<()> {
        let store = &self.store.clone();
        remove_leftovers(writer, &path);
        let stored = Stored::read(store, &path)?;
        let old = stored.metadata.shape.get(axis).copied().unwrap_or(0);
        let new = change.of(old).ok_or_else(|| {
            Error::Usage(format!("'{path}' is {old} long along this dimension: it cannot become {change}"))
        })?;
        if let Some(first) = self.arrays.first()
            && self.old != old
        {
            let sentence =
                "arrays that share a dimension must have one length: 'zarrfs resize' one of them first";
            return Err(Error::Usage(format!(
                "'{}' is {} long, and '{path}' {old}; {sentence}",
                first.path, self.old
            )));
        }
        (self.old, self.new) = (old, new);
        let mut shape = stored.metadata.shape.clone();
        if let Some(length) = shape.get_mut(axis) {
            *length = new;
        }
        let key = &stored.metadata.document_key;
        let new_text = with_shape(&stored.text, &shape).map_err(|fault| fault.into_error(key))?;
        // A document that cannot be parsed must not be found after elements are stored.
        parse_array(key, new_text.as_bytes())?;
        let larger = if new > old { shape.clone() } else { stored.metadata.shape.clone() };
        // Only the shape, so that the document still describes it.
        let larger = ArrayMetadata { shape: larger, ..stored.metadata.clone() };
        let array = Array::open(&self.engine, store, &path, Arc::new(larger), Layout::default())?;
        array.writer().open_for_writing()?;
        let (name, old_text, stored) = (stored.name, stored.text, stored.metadata);
        self.arrays.push(ResizedArray {
            path,
            metadata,
            axis,
            shape,
            stored,
            name,
            old_text,
            new_text,
            array,
        });
        Ok(())
    }

    /// Opens an array to write its new elements, in this layout.
    pub fn open_longer(&self, array: &ResizedArray, layout: Layout) -> Result<Arc<Array>> {
        array.array.writer().close_for_writing();
        let longer = ArrayMetadata { shape: array.shape.clone(), ..array.stored.clone() };
        let longer = Array::open(&self.engine, &self.store, &array.path, Arc::new(longer), layout)?;
        longer.writer().open_for_writing()?;
        Ok(longer)
    }

    /// Gives the lock of an array back that [`NewLengths::open_longer`] had, when its elements are stored.
    pub fn close_longer(&self, array: &ResizedArray, longer: &Arc<Array>) -> Result<()> {
        longer.writer().sync()?;
        longer.writer().close_for_writing();
        array.array.writer().open_for_writing()
    }

    /// Makes everything fill value that is stored where the arrays become longer. An append need not do that, because it stores all elements
    /// there.
    pub fn clear(&self) -> Result<()> {
        for array in &self.arrays {
            let stored = Stored::read(&self.store, &array.path)?;
            let larger =
                ArrayMetadata { shape: array.array.metadata().shape.clone(), ..stored.metadata.clone() };
            Resized::default().clear(&self.engine, &stored, &larger)?;
        }
        Ok(())
    }

    /// Replaces the documents. Durable when this returns. If that fails, the old documents are put back.
    pub fn publish(self) -> Result<()> {
        let writer = writer(self.store.as_ref())?;
        let published = self.record(writer).and_then(|()| self.replace_documents(writer));
        if let Err(error) = published {
            if let Err(error) = end(self.store.as_ref(), writer, &self.group) {
                log::warn!("{}: {error}", join(&self.group, RECORD));
            }
            return Err(error);
        }
        if self.new < self.old {
            self.clear()?;
        }
        Ok(())
    }

    /// Records what is about to change.
    fn record(&self, writer: &dyn Writer) -> Result<()> {
        let documents: Vec<Value> = self
            .arrays
            .iter()
            .map(|array| {
                let key = join(&array.path, array.name);
                json!({"key": key, "old": array.old_text, "new": array.new_text})
            })
            .collect();
        let text = json!({"documents": documents}).to_string();
        let key = join(&self.group, RECORD);
        if text.len() as u64 > MAX_RECORD_BYTES {
            let sentence = "the documents of its arrays are too long to be replaced together";
            return Err(Error::Usage(format!("{key}: {sentence}: 'zarrfs resize' them one by one")));
        }
        let like =
            self.arrays.first().map(|array| Stored::read(&self.store, &array.path).map(|stored| stored.info));
        let Some(mut like) = like.transpose()? else { return Ok(()) };
        // The record belongs to this user, because it stands for the right to change all of the documents.
        if let Some(posix) = &mut like.posix {
            posix.uid = sys::effective_ids().0;
        }
        let options =
            PutOptions { precondition: Precondition::Missing, ..PutOptions::new(&self.group, &like) };
        writer.put(&key, &[ObjectPart::Bytes(text.as_bytes())], &options)?;
        writer.sync(&[key], &self.group)
    }

    fn replace_documents(&self, writer: &dyn Writer) -> Result<()> {
        for array in &self.arrays {
            let key = join(&array.path, array.name);
            let changed = || Error::Changed { key: key.clone() };
            // Its time may have changed since it was read, but not its text.
            let (text, info) = read(self.store.as_ref(), &key)?.ok_or_else(changed)?;
            if text != array.old_text {
                return Err(changed());
            }
            put(writer, &array.path, &key, &array.new_text, &info)?;
        }
        for array in &self.arrays {
            writer.sync(&[join(&array.path, array.name)], &array.path)?;
        }
        end(self.store.as_ref(), writer, &self.group)
    }
}

impl Drop for NewLengths {
    fn drop(&mut self) {
        for array in &self.arrays {
            array.array.writer().close_for_writing();
        }
    }
}
