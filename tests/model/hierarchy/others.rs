//! What other programs do to the store meanwhile.

use crate::support::handles::Handles;
use serde_json::Value;
use zarrfs::array::{ByteOrder, Order};
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::error::Blocking;
use zarrfs::mount::fs::inode::ROOT;
use zarrfs::store::{ObjectPart, PutOptions};

use super::files::{Model, mounted};
use super::name;

impl Model {
    /// Returns the place right behind the first dirty byte, often in the same chunk.
    pub fn next_to_a_dirty_range(&self, file: usize) -> Option<usize> {
        self.files[file].dirty.windows(2).position(|pair| pair == [true, false]).map(|at| at + 1)
    }

    /// Writes as another program up to the first byte that the mount has written. Both must be there afterwards.
    pub fn foreign(&mut self, file: usize, offset: usize, data: &[u8]) {
        let known = &mut self.files[file];
        // In a folder the other program would be refused while we write. What it writes into a row that we have begun is not ours to zero.
        if self.mounting.has_folder || known.is_zeroed || offset >= known.shown() {
            return;
        }
        let ours = known.dirty[offset..].iter().position(|&is_dirty| is_dirty);
        let range = offset..(offset + data.len().min(ours.unwrap_or(usize::MAX))).min(known.shown());
        let mut data = data[..range.len()].to_vec();
        if known.case.is_bool() {
            data.iter_mut().for_each(|byte| *byte &= 1);
        }
        let other = mounted(&self.mounting, self.plain.clone());
        let inode = other.lookup(ROOT, &name(file), Blocking::Yes).unwrap().attributes.inode;
        let handle = other.opens().open(inode, libc::O_RDWR, &Cancellation::never()).unwrap().handle;
        if !data.is_empty() {
            other.write(handle, range.start as u64, &data, false).unwrap();
        }
        other.sync(handle).unwrap();
        other.opens().release(handle);
        let cached = known.cached.clone();
        known.record(range.start, &data);
        known.cached = cached;
        known.dirty[range.clone()].fill(false);
        known.foreign_writes += 1;
        known.unsure[range].fill(known.foreign_writes);
    }

    /// Makes the array longer as another program. With `flushes`, what is dirty is stored before any look at the document.
    pub fn grow(&mut self, file: usize, rows: usize, flushes: bool) {
        self.settle_kernel(file);
        // Which program looks first decides whether the file is short.
        if self.files[file].end.is_some() {
            return;
        }
        let layout = self.mounting.layout;
        let is_fortran = layout.order == Order::F;
        let known = &mut self.files[file];
        let Some(row_bytes) = known.case.row_bytes(is_fortran).filter(|_| !known.is_zeroed) else { return };
        let (key, document) = known.documents.first_mut().unwrap();
        let mut changed: Value = serde_json::from_slice(document).unwrap();
        let shape = changed["shape"].as_array_mut().unwrap();
        let axis = if is_fortran { shape.last_mut() } else { shape.first_mut() }.unwrap();
        *axis = (axis.as_u64().unwrap() + rows as u64).into();
        *document = changed.to_string().into_bytes();
        let like = self.plain.head(key).unwrap().unwrap();
        let writer = self.plain.writer().unwrap();
        writer.put(key, &[ObjectPart::Bytes(document)], &PutOptions::new(&name(file), &like)).unwrap();
        let size = known.bytes.len() + rows * row_bytes;
        let fill = known.case.fill(layout.byte_order == ByteOrder::Big);
        known.bytes.extend(fill.into_iter().cycle().take(rows * row_bytes));
        known.dirty.resize(size, false);
        known.unsure.resize(size, 0);
        known.cached.resize(size, None);
        let writer = self.open.iter().position(|open| open.file == file && open.writes);
        if let Some(slot) = writer.filter(|_| flushes) {
            self.flush(slot, false);
        }
        let found = self.fs.lookup(ROOT, &name(file), Blocking::Yes).unwrap().attributes;
        assert_eq!(found.size_bytes, size as u64);
    }
}
