//! The stored objects of an array: found by listing the store's keys below it rather than by asking for each.
//!
//! Uses `keys.rs` and `strays.rs`, `array/geometry` and `store`. A document may declare more chunks than any store can
//! have; a listing has only what was written. Names that are not keys of the grid are strays.

use std::ops::{ControlFlow, Range};

use crate::array::geometry::axis::{Axis, numbers};
use crate::array::geometry::axis_order::AxisOrder;
use crate::array::source::objects::keys::Keys;
use crate::array::source::objects::strays::Strays;
use crate::error::{Error, Result};
use crate::metadata::{ChunkKeyEncoding, KeyMatch};
use crate::store::{ListEntry, Store, join};

/// Counts of the stored objects of an array.
#[derive(Clone, Debug, Default)]
pub struct StoredObjects {
    /// How many objects are stored.
    pub count: u64,
    /// Objects that belong to no chunk.
    pub strays: Strays,
}

/// Finds the stored objects of an array.
#[derive(Clone, Copy)]
pub struct ObjectListing<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// The keys of the objects.
    pub keys: &'a Keys,
    /// The axes of the grid of objects, in served order.
    pub axes: &'a [Axis],
}

/// A walk through the folders of an array.
struct FolderWalk<'a> {
    store: &'a dyn Store,
    /// The path of the array.
    path: &'a str,
    /// The axes of the grid of objects, in the order of the keys.
    axes: Vec<&'a Axis>,
    /// How the numbers in keys become those of the served axes.
    axis_order: &'a AxisOrder,
    encoding: ChunkKeyEncoding,
    found: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    failed: &'a mut dyn FnMut(&str, &Error),
    /// Takes what is not an object of the grid, if the caller wants that.
    strays: Option<&'a mut Strays>,
}

impl ObjectListing<'_> {
    /// Calls `visit` with the number of each stored object, in no order, until it fails. Fails if a folder cannot be
    /// listed.
    pub fn try_each(&self, mut visit: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let (mut visited, mut unlisted) = (Ok(()), Ok(()));
        let mut found = |object| {
            visited = visit(object);
            if visited.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut failed = |_: &str, error: &Error| unlisted = Err(error.clone());
        self.each(&mut found, &mut failed, None);
        visited.and(unlisted)
    }

    /// Calls `found` with the number of each stored object, in no order, until it breaks, and `failed` with each folder
    /// that cannot be listed. Counts what is neither an object of the array nor its document in `strays`.
    pub fn each(
        &self,
        found: &mut dyn FnMut(u64) -> ControlFlow<()>,
        failed: &mut dyn FnMut(&str, &Error),
        mut strays: Option<&mut Strays>,
    ) {
        let ObjectListing { store, keys, .. } = *self;
        let axes = self.own_axes();
        let encoding = match keys.encoding(store, axes.len()) {
            Ok(encoding) => encoding,
            Err(error) => return failed(keys.path(), &error),
        };
        if let Some(strays) = &mut strays {
            **strays = Strays::in_array(encoding.clone(), axes.len());
        }
        let mut walk = FolderWalk {
            store,
            path: keys.path(),
            axes,
            axis_order: keys.axis_order(),
            encoding,
            found,
            failed,
            strays,
        };
        let _ = walk.folder(keys.path(), "");
    }

    /// Returns the elements that the object at a key stores, as a range on each axis of the array. `None` if no object
    /// of the array has this key.
    pub fn elements_of_key(&self, key: &str) -> Result<Option<Vec<Range<u64>>>> {
        let (keys, axes) = (self.keys, self.own_axes());
        let encoding = keys.encoding(self.store, axes.len())?;
        let below = if keys.path().is_empty() { Some(key) } else { key.strip_prefix(keys.path()) };
        let name = below.unwrap_or_default().trim_start_matches('/');
        let index = match encoding.parse(name, axes.len()) {
            Some(KeyMatch::Chunk(index)) if is_within(&index, &axes) => index,
            _ => return Ok(None),
        };
        Ok(Some(axes.iter().zip(index).map(|(axis, number)| axis.elements(number)).collect()))
    }

    /// Returns the elements of an object, as a range on each axis of the array.
    pub fn elements_of_object(&self, object: u64) -> Vec<Range<u64>> {
        let index = numbers(self.axes, object);
        let ranges = self.axes.iter().zip(index).map(|(axis, number)| axis.elements(number));
        self.keys.axis_order().own(&ranges.collect::<Vec<_>>())
    }

    /// Returns the axes of the grid of objects, in the order of the keys.
    fn own_axes(&self) -> Vec<&Axis> {
        self.keys.axis_order().own(&self.axes.iter().collect::<Vec<_>>())
    }
}

impl FolderWalk<'_> {
    /// Visits the objects in a folder; `below` is its name below the array.
    fn folder(&mut self, folder: &str, below: &str) -> ControlFlow<()> {
        let store = self.store;
        let mut flow = ControlFlow::Continue(());
        let listed: Result<()> = store.each_name(folder, &mut |entry| {
            flow = self.entry(folder, below, entry);
            flow
        });
        if let Err(error) = listed {
            (self.failed)(folder, &error);
        }
        flow
    }

    fn entry(&mut self, folder: &str, below: &str, entry: ListEntry) -> ControlFlow<()> {
        let name = join(below, &entry.name);
        let found = self.encoding.parse(&name, self.axes.len()).filter(|found| {
            let (KeyMatch::Chunk(index) | KeyMatch::Folder(index)) = found;
            is_within(index, &self.axes)
        });
        match (found, entry.is_folder) {
            (Some(KeyMatch::Folder(_)), true) => self.folder(&join(folder, &entry.name), &name),
            // A file is where a folder should be. The store reports that for the first object below it.
            (Some(KeyMatch::Chunk(index) | KeyMatch::Folder(index)), false) => {
                let number = self.number(index);
                (self.found)(number)
            }
            _ => self.stray(folder, entry),
        }
    }

    fn stray(&mut self, folder: &str, entry: ListEntry) -> ControlFlow<()> {
        if let Some(strays) = &mut self.strays {
            let below = folder.strip_prefix(self.path).unwrap_or_default().trim_start_matches('/');
            strays.add(self.store, folder, below, entry);
        }
        ControlFlow::Continue(())
    }

    /// Returns the number of the object. Missing numbers count as 0.
    fn number(&self, mut index: Vec<u64>) -> u64 {
        index.resize(self.axes.len(), 0);
        let (axes, index) = (self.axis_order.served(&self.axes), self.axis_order.served(&index));
        axes.iter().zip(index).fold(0, |before, (axis, number)| before * axis.count() + number)
    }
}

/// Returns whether a grid with these axes has these first numbers of an index.
fn is_within(index: &[u64], axes: &[&Axis]) -> bool {
    index.iter().zip(axes).all(|(&number, axis)| number < axis.count())
}
