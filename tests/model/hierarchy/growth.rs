//! Files that get longer because a program writes past their end, or sets a larger size: by whole rows of the array, and their size is
//! that of what is written.

use zarrfs::array::{ByteOrder, Order};

use super::files::{File, Model, Open};

impl File {
    /// Returns the size that programs see.
    pub(super) fn shown(&self) -> usize {
        self.end.filter(|_| self.is_growing).unwrap_or(self.bytes.len())
    }

    /// Drops all pages of a file, as the kernel does when it learns of another size.
    pub(super) fn size_was(&mut self, shown: usize) {
        if self.shown() != shown {
            self.cached.fill(None);
        }
    }
}

impl Model {
    /// Returns whether files have their axes reversed.
    pub fn mounting_is_fortran(&self) -> bool {
        self.mounting.layout.order == Order::F
    }

    /// Returns the size that programs see of a handle's file.
    pub fn shown_size(&self, slot: usize) -> usize {
        self.files[self.open[slot].file].shown()
    }

    /// Returns the size that the array gets so that the file has `end` bytes; `None` if it stays.
    pub(super) fn grown_size(&self, file: usize, end: usize) -> Option<usize> {
        let file = &self.files[file];
        let row_bytes = file.case.row_bytes(self.mounting_is_fortran())?;
        let is_longer = self.mounting.creates && end > file.bytes.len() && row_bytes > 0;
        is_longer.then(|| end.next_multiple_of(row_bytes))
    }

    /// Returns how many of the bytes that a handle writes at an offset are taken.
    pub(super) fn room(&self, open: &Open, offset: usize, length: usize, is_page: bool) -> usize {
        let file = &self.files[open.file];
        // It is not known where an append to a file that was cut short begins.
        let is_cut = open.appends && file.end.is_some() && !file.is_growing;
        match self.grown_size(open.file, offset + length) {
            Some(_) if !is_page && !is_cut => length,
            _ => file.bytes.len().saturating_sub(offset).min(length),
        }
    }

    /// Records that the array has grown for a write.
    pub(super) fn has_grown(&mut self, file: usize, end: usize) {
        let Some(size) = self.grown_size(file, end) else { return };
        let is_big = self.mounting.layout.byte_order == ByteOrder::Big;
        let known = &mut self.files[file];
        let before = known.bytes.len();
        if known.end.is_none() {
            (known.end, known.is_growing, known.cut_at) = (Some(before), true, usize::MAX);
        }
        let fill = known.case.fill(is_big);
        known.bytes.extend(fill.into_iter().cycle().take(size - before));
        known.dirty.resize(size, false);
        known.unsure.resize(size, 0);
        known.cached.resize(size, None);
        let (key, document) = known.documents.first_mut().unwrap();
        *document = self.plain.get(key, 1 << 20).unwrap().unwrap();
    }

    /// Records that a larger size was set: what is new is fill value, or zero if the file was cut short before. Returns whether it was.
    pub(super) fn has_grown_to(&mut self, file: usize, size: usize) -> bool {
        let known = &self.files[file];
        let zeros_from = known.end.or(known.was_cut.then_some(known.bytes.len()));
        self.has_grown(file, size);
        let known = &mut self.files[file];
        if let Some(start) = zeros_from {
            known.record(start, &vec![0; size - start]);
        }
        (known.end, known.is_growing) = (None, false);
        known.cached.fill(None);
        zeros_from.is_some()
    }
}
