//! The stored objects of an array, from listing the store's keys below it rather than asking for each.
//!
//! Uses its neighbours in `array`, and `store`. A document may declare more chunks than any store can have; a listing
//! has only what was written. Names that are not keys of the grid are strays.

use std::ops::{ControlFlow, Range};

use crate::array::geometry::axis_order::AxisOrder;
use crate::array::geometry::grid::{Axis, numbers};
use crate::array::source::strays::Strays;
use crate::array::{Array, Inner};
use crate::error::{Error, Result};
use crate::store::{Entry, Store, join};

/// A walk through the folders of an array.
struct Walk<'a> {
    store: &'a dyn Store,
    /// Of the array.
    path: &'a str,
    /// The axes of the grid of objects, in the order of the keys.
    axes: Vec<&'a Axis>,
    /// How the numbers in keys become those of the served axes.
    axis_order: &'a AxisOrder,
    /// Whether `c` precedes the numbers.
    is_prefixed: bool,
    separator: char,
    found: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    failed: &'a mut dyn FnMut(&str, &Error),
    /// Takes what is not an object of the grid, if that is wanted.
    strays: Option<&'a mut Strays>,
}

/// What is stored of an array.
#[derive(Clone, Debug, Default)]
pub struct StoredObjects {
    /// How many objects are.
    pub count: u64,
    /// Objects that belong to no chunk.
    pub strays: Strays,
}

impl Array {
    /// The elements that the object at a key stores, as a range on each axis of the array; `None` for a key of no object of it.
    pub fn elements_of(&self, key: &str) -> Result<Option<Vec<Range<u64>>>> {
        let inner = &self.inner;
        let keys = inner.source.keys();
        let served: Vec<&Axis> = inner.source.object_axes().iter().collect();
        let axes = keys.axis_order().own(&served);
        let encoding = keys.encoding(inner.store.as_ref(), axes.len())?;
        let below = if keys.path().is_empty() { Some(key) } else { key.strip_prefix(keys.path()) };
        let parts = below.unwrap_or_default().trim_start_matches('/').split(encoding.separator);
        let parts: Vec<String> = parts.map(str::to_owned).collect();
        let index = index(&parts, encoding.prefixed, &axes).filter(|index| index.len() == axes.len());
        Ok(index.map(|index| axes.iter().zip(index).map(|(axis, number)| elements(axis, number)).collect()))
    }

    /// Calls `found` with the elements that each stored object has, as a range on each axis of the array, in no order, until it
    /// breaks. An object that is not listed has fill value everywhere. An error if a folder cannot be listed.
    pub fn each_stored(&self, found: &mut dyn FnMut(Vec<Range<u64>>) -> ControlFlow<()>) -> Result<()> {
        let inner = &self.inner;
        let served = inner.source.object_axes();
        let mut first_error = None;
        let mut found = |object| {
            let numbers = numbers(served, object);
            let ranges: Vec<_> =
                served.iter().zip(numbers).map(|(axis, number)| elements(axis, number)).collect();
            found(inner.source.keys().axis_order().own(&ranges))
        };
        inner.each_stored_object(&mut found, &mut |folder, error| {
            log::debug!("cannot list {folder}: {error}");
            first_error.get_or_insert_with(|| error.clone());
        });
        first_error.map_or(Ok(()), Err)
    }

    /// Counts what is stored. An error if a folder cannot be listed.
    pub fn stored(&self) -> Result<StoredObjects> {
        let mut stored = StoredObjects::default();
        let mut first_error = None;
        let mut found = |_| {
            stored.count += 1;
            ControlFlow::Continue(())
        };
        let mut failed = |_: &str, error: &Error| {
            first_error.get_or_insert_with(|| error.clone());
        };
        self.inner.each_stored_object_and_stray(&mut found, &mut failed, Some(&mut stored.strays));
        first_error.map_or(Ok(stored), Err)
    }

    /// Calls `each` with the key of each object that the array has if all of it is stored, until it breaks.
    pub fn each_object_key(&self, each: &mut dyn FnMut(String) -> ControlFlow<()>) -> Result<()> {
        let source = &self.inner.source;
        for object in 0..source.objects() {
            let key = source.key(&self.inner.load_context(), &source.first_chunk(object))?;
            if each(key).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// How many objects the array would have if all of it was stored.
    pub fn objects(&self) -> u64 {
        self.inner.source.objects()
    }

    /// The shape of a chunk; of a grid of varying chunks the longest length on each axis.
    pub fn chunk_shape(&self) -> Vec<u64> {
        let inner = &self.inner;
        inner.source.keys().axis_order().own(&inner.grid.largest_chunk_shape())
    }

    /// How many chunks the array has, stored or not.
    pub fn chunks(&self) -> u64 {
        self.inner.grid.chunks()
    }
}

/// The elements of a chunk or shard on an axis.
fn elements(axis: &Axis, number: u64) -> Range<u64> {
    let span = axis.span(number);
    span.start..span.start.saturating_add(span.length).min(axis.extent())
}

impl Inner {
    /// Calls `found` with the number of each stored object, in no order, until it breaks. Calls `failed` with each
    /// folder that cannot be listed.
    pub(in crate::array) fn each_stored_object(
        &self,
        found: &mut dyn FnMut(u64) -> ControlFlow<()>,
        failed: &mut dyn FnMut(&str, &Error),
    ) {
        self.each_stored_object_and_stray(found, failed, None);
    }

    /// As [`Inner::each_stored_object`], and counts what is neither an object of the array nor its document.
    pub(in crate::array) fn each_stored_object_and_stray(
        &self,
        found: &mut dyn FnMut(u64) -> ControlFlow<()>,
        failed: &mut dyn FnMut(&str, &Error),
        mut strays: Option<&mut Strays>,
    ) {
        let keys = self.source.keys();
        let served: Vec<&Axis> = self.source.object_axes().iter().collect();
        let axes = keys.axis_order().own(&served);
        let encoding = match keys.encoding(self.store.as_ref(), axes.len()) {
            Ok(encoding) => encoding,
            Err(error) => return failed(keys.path(), &error),
        };
        if let Some(strays) = &mut strays {
            **strays = Strays::of_array(encoding.clone(), axes.len());
        }
        let mut walk = Walk {
            store: self.store.as_ref(),
            path: keys.path(),
            axes,
            axis_order: keys.axis_order(),
            is_prefixed: encoding.prefixed,
            separator: encoding.separator,
            found,
            failed,
            strays,
        };
        let _ = walk.folder(keys.path(), &[]);
    }
}

impl Walk<'_> {
    /// Visits the objects in a folder; `parts` are the parts of its name below the array.
    fn folder(&mut self, folder: &str, parts: &[String]) -> ControlFlow<()> {
        let store = self.store;
        let mut flow = ControlFlow::Continue(());
        let listed: Result<()> = store.each_name(folder, &mut |entry| {
            flow = self.entry(folder, parts, entry);
            flow
        });
        if let Err(error) = listed {
            (self.failed)(folder, &error);
        }
        flow
    }

    fn entry(&mut self, folder: &str, parts: &[String], entry: Entry) -> ControlFlow<()> {
        let mut parts = parts.to_vec();
        match self.separator {
            '/' => parts.push(entry.name.clone()),
            separator => parts.extend(entry.name.split(separator).map(str::to_owned)),
        }
        let Some(index) = index(&parts, self.is_prefixed, &self.axes) else {
            return self.stray(folder, entry);
        };
        let is_whole = index.len() == self.axes.len();
        match (entry.is_folder, is_whole, self.separator) {
            (true, false, '/') => self.folder(&join(folder, &entry.name), &parts),
            // A file is where a folder should be. The store reports the problem for the first object below it.
            (false, true, _) | (false, false, '/') => {
                let number = self.number(index);
                (self.found)(number)
            }
            _ => self.stray(folder, entry),
        }
    }

    fn stray(&mut self, folder: &str, entry: Entry) -> ControlFlow<()> {
        if let Some(strays) = &mut self.strays {
            let below = folder.strip_prefix(self.path).unwrap_or_default().trim_start_matches('/');
            strays.add(self.store, folder, below, entry);
        }
        ControlFlow::Continue(())
    }

    /// The number of the object. Missing numbers count as 0.
    fn number(&self, mut index: Vec<u64>) -> u64 {
        index.resize(self.axes.len(), 0);
        let of = |n: u64, (axis, number): (&&Axis, u64)| n * axis.count() + number;
        let (axes, index) = (self.axis_order.served(&self.axes), self.axis_order.served(&index));
        axes.iter().zip(index).fold(0, of)
    }
}

/// The numbers of the first axes that these parts of a key give. `None` if no key of the grid begins with them.
fn index(parts: &[String], is_prefixed: bool, axes: &[&Axis]) -> Option<Vec<u64>> {
    let numbers = match (is_prefixed, parts.split_first()) {
        (true, Some((prefix, numbers))) => (prefix == "c").then_some(numbers)?,
        (true, None) => return None,
        (false, _) if axes.is_empty() => (parts == ["0"]).then_some(&[])?,
        (false, _) => parts,
    };
    if numbers.len() > axes.len() {
        return None;
    }
    let number = |(part, axis): (&String, &&Axis)| {
        let number: u64 = part.parse().ok()?;
        // A number has no sign and no leading zero.
        (number < axis.count() && number.to_string() == *part).then_some(number)
    };
    numbers.iter().zip(axes).map(number).collect()
}
