//! What changes a file: writes, and the sizes that are set and kept.

use crate::support::handles::Handles;
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::fs::attributes::SetAttr;
use zarrfs::mount::fs::page_cache::page_drops::PageDrop;

use super::files::{File, Model, Open, errno};
use super::name;

impl Model {
    /// Returns how many have a file open for writing.
    pub(super) fn writers(&self, file: usize) -> usize {
        let open = self.open.iter().filter(|open| open.file == file && open.writes).count();
        open + self.files[file].kernel.opening_writers()
    }

    /// Returns whether all other writers of a handle's file have been closed last.
    fn others_are_closing(&self, open: &Open) -> bool {
        let others = self.open.iter().filter(|other| other.file == open.file && other.handle != open.handle);
        self.files[open.file].kernel.opening_writers() == 0
            && others.into_iter().all(|other| !other.writes || other.is_closing)
    }

    /// Records that a handle has written.
    pub(super) fn has_written(&mut self, handle: u64) {
        let open = self.open.iter_mut().find(|open| open.handle == handle);
        open.into_iter().for_each(|open| open.is_closing = false);
    }

    /// Returns whether fsync or close of a handle must report that its file is not written to its end.
    pub(super) fn must_report_a_short_file(&self, open: &Open, syncs: bool) -> bool {
        let Some(end) = self.files[open.file].end.filter(|_| open.writes) else { return false };
        let may_be_mapped = open.maps() && end == self.files[open.file].cut_at;
        syncs || (!may_be_mapped && self.others_are_closing(open))
    }

    /// Returns what is zero before a write at `offset` is taken, of a file that was cut short.
    pub(super) fn gap(&self, file: usize, offset: usize) -> Option<std::ops::Range<usize>> {
        self.files[file].end.filter(|&end| end < offset).map(|end| end..offset)
    }

    /// Drops what the kernel has of a gap that became zero in part. The next open would drop it.
    pub(super) fn drop_gap(&mut self, file: usize, offset: usize) {
        if let Some(gap) = self.gap(file, offset) {
            let cached = &mut self.files[file].cached;
            let gap = gap.start.min(cached.len())..gap.end.min(cached.len());
            cached[gap].fill(None);
        }
    }

    pub(super) fn close_gap(&mut self, file: usize, offset: usize, is_page: bool) {
        if let Some(gap) = self.gap(file, offset).filter(|_| !is_page) {
            self.files[file].record(gap.start, &vec![0; gap.len()]);
            self.files[file].end = Some(offset);
        }
    }

    pub(super) fn advance(&mut self, file: usize, from: usize, to: usize) {
        let file = &mut self.files[file];
        if let Some(end) = file.end.filter(|&end| end >= from && to > from) {
            file.end = Some(end.max(to)).filter(|&end| end < file.bytes.len());
        }
    }

    /// Writes as the adapter does: without waiting, or else with waiting.
    pub(super) fn put(
        &mut self,
        file: usize,
        handle: u64,
        offset: usize,
        data: &[u8],
        is_page: bool,
    ) -> Result<u32, i32> {
        let mut page_drop: Option<PageDrop> = None;
        let at = offset as u64;
        let written = match self.fs.try_begin_write(handle, at, data, is_page) {
            Ok(None) => errno(self.fs.write_blocking(handle, at, data, is_page)),
            Ok(Some(begun)) => Ok(begun.finish()),
            Err(failure) => errno(Err(failure)),
        };
        let written = written.map(|accepted| {
            page_drop = accepted.page_drop;
            accepted.length
        });
        if let Some(drop) = page_drop {
            self.drop_pages(file, drop);
        }
        if written.is_ok_and(|length| length > 0) {
            self.has_written(handle);
        }
        written
    }

    /// Sets a smaller size where that destroys nothing.
    fn cut(&mut self, file: usize, size: usize, inode: u64, change: SetAttr) {
        let now = self.files[file].bytes.len();
        let has_writers = self.writers(file) > 0;
        let end = self.files[file].end.unwrap_or(now);
        let shown = self.files[file].shown();
        let mut changed = errno(self.fs.set_attributes(inode, change));
        if matches!(changed, Err(libc::ENOSPC)) && size > end {
            assert!(self.store.fails());
            self.store.set(false, false);
            self.files[file].cached[end..size].fill(None);
            changed = errno(self.fs.set_attributes(inode, change));
        }
        let (found, drop) = match changed {
            Err(libc::EFBIG) => return assert!(size > now),
            Err(libc::EINVAL) => return assert!(!has_writers && size < now),
            other => other.unwrap(),
        };
        assert!(size <= now && (has_writers || size == now));
        let file_ = &mut self.files[file];
        if size > end && end == 0 && size == now && !file_.is_growing {
            file_.zero();
        } else if size > end {
            file_.record(end, &vec![0; size - end]);
        }
        file_.end = Some(size).filter(|&end| end < now);
        if size < end {
            (file_.cut_at, file_.is_growing, file_.was_cut) = (size, false, true);
        }
        file_.size_was(shown);
        assert_eq!(found.attributes.size_bytes, file_.shown() as u64);
        assert!(drop.is_some() || size <= end);
        if let Some(drop) = drop {
            self.drop_pages(file, drop);
        }
    }

    pub fn write(&mut self, slot: usize, mut offset: usize, data: &[u8], is_page: bool) {
        let open = self.open[slot];
        self.send(open.file);
        if open.appends && !is_page {
            offset = self.files[open.file].shown();
        }
        // The kernel sends of a map's page only what is in the file.
        let there = self.files[open.file].shown().saturating_sub(offset);
        let data = if is_page { &data[..there.min(data.len())] } else { data };
        if is_page && data.is_empty() {
            return;
        }
        self.end_reads(open.file, &(offset..offset + data.len()));
        let room = self.room(&open, offset, data.len(), is_page);
        let mut data = data.to_vec();
        let is_invalid =
            self.files[open.file].case.is_bool() && data.first().is_some_and(|&byte| byte == 0xEE);
        if self.files[open.file].case.is_bool() && !is_invalid {
            data.iter_mut().for_each(|byte| *byte &= 1);
        }
        if is_page {
            self.fs.record_page_read(open.handle, offset as u64, data.len() as u64); // as the kernel did before
        }
        let mut written = self.put(open.file, open.handle, offset, &data, is_page);
        let has_gap =
            open.writes && room > 0 && !is_page && !is_invalid && self.gap(open.file, offset).is_some();
        if written == Err(libc::ENOSPC) && has_gap {
            // A part of the gap may be zero now. The second write makes all of it zero.
            assert!(self.store.fails());
            self.store.set(false, false);
            self.drop_gap(open.file, offset);
            written = self.put(open.file, open.handle, offset, &data, is_page);
        }
        match written {
            _ if !open.writes => assert_eq!(written, Err(libc::EBADF)),
            _ if room == 0 && !data.is_empty() => assert_eq!(written, Err(libc::EFBIG)),
            _ if is_invalid => assert_eq!(written, Err(libc::EINVAL)),
            Err(code) => assert!(self.store.fails() && code == libc::ENOSPC && !is_page, "write: {code}"),
            Ok(length) => {
                assert_eq!(length as usize, room);
                if room > 0 {
                    self.has_grown(open.file, offset + room);
                    self.close_gap(open.file, offset, is_page);
                }
                self.files[open.file].record(offset, &data[..room]);
                self.advance(open.file, offset, offset + room);
                if open.is_direct {
                    // The kernel may have nothing yet of the part by which a file has grown.
                    let cached = &mut self.files[open.file].cached;
                    let end = (offset + room).min(cached.len());
                    cached[offset.min(end)..end].fill(None);
                }
            }
        }
    }

    pub fn truncate(&mut self, file: usize, size: usize) {
        let inode = self.inode(&name(file));
        self.send(file);
        let now = self.files[file].bytes.len();
        let change = SetAttr { size_bytes: Some(size as u64), ..SetAttr::default() };
        let has_writers = self.open.iter().any(|open| open.file == file && open.writes);
        let refused = self.store.refused(&name(file));
        if self.mounting.creates && size > now {
            return self.lengthen(file, size, inode, change);
        }
        if !self.mounting.truncate_zeroes {
            return self.cut(file, size, inode, change);
        }
        let shown = self.files[file].shown();
        match errno(self.fs.set_attributes(inode, change)) {
            Ok((found, drop)) => {
                assert!(size == 0 || size == shown);
                assert_eq!(found.attributes.size_bytes, if size == 0 { now } else { shown } as u64);
                assert_eq!(drop.is_some(), size != shown);
                if let Some(drop) = drop {
                    self.drop_pages(file, drop);
                }
            }
            Err(libc::EINVAL) => return assert!(size != 0 && size != shown),
            Err(code) => {
                assert!(self.store.fails() && !has_writers, "truncate: {code}");
                assert!(self.store.refused(&name(file)) > refused);
            }
        }
        if size != shown {
            self.files[file].zero();
            (self.files[file].end, self.files[file].is_growing) = (None, false);
            self.files[file].size_was(shown);
        }
    }

    /// Sets a size that is larger than the array.
    fn lengthen(&mut self, file: usize, size: usize, inode: u64, change: SetAttr) {
        let mut changed = errno(self.fs.set_attributes(inode, change));
        let expected = match self.grown_size(file, size) {
            None => Err(libc::EFBIG),
            Some(grown) if grown != size => Err(libc::EINVAL),
            Some(_) => Ok(()),
        };
        if matches!(changed, Err(libc::ENOSPC)) && expected.is_ok() {
            assert!(self.store.fails());
            self.store.set(false, false);
            changed = errno(self.fs.set_attributes(inode, change));
        }
        assert_eq!(changed.as_ref().map(|_| ()).map_err(|code| *code), expected);
        if let Ok((found, drop)) = changed {
            assert_eq!(found.attributes.size_bytes, size as u64);
            assert_eq!(self.has_grown_to(file, size), drop.is_some());
            if let Some(drop) = drop {
                self.drop_pages(file, drop);
            }
        }
    }

    pub fn allocate(&mut self, slot: usize, offset: usize, length: usize, mode: i32) {
        let open = self.open[slot];
        self.settle_kernel(open.file);
        let file = &mut self.files[open.file];
        let (size, end) = (file.bytes.len(), offset + length);
        let keeps = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let zeroes = mode & (libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_PUNCH_HOLE) != 0;
        let mut allocated = errno(self.fs.allocate(
            open.handle,
            (offset as u64, length as u64),
            mode,
            &Cancellation::never(),
        ));
        let is_repeated = matches!(allocated, Err(libc::ENOSPC)) && file.end.is_some();
        if is_repeated {
            // A part of it may be zero now. The second try makes all of it zero.
            assert!(self.store.fails());
            self.store.set(false, false);
            file.cached.fill(None);
            allocated = errno(self.fs.allocate(
                open.handle,
                (offset as u64, length as u64),
                mode,
                &Cancellation::never(),
            ));
        }
        match allocated {
            Err(code) if !open.writes => assert_eq!(code, libc::EBADF),
            Err(code) if !zeroes && mode != 0 => assert_eq!(code, libc::EOPNOTSUPP),
            Err(code) if !keeps && end > size => assert_eq!(code, libc::EFBIG),
            Err(code) => assert!(self.store.fails() && code == libc::ENOSPC, "fallocate: {code}"),
            Ok(drop) => {
                let extends = !keeps && file.end.is_some_and(|written| written < end);
                if extends {
                    let written = file.end.unwrap_or(0);
                    if written == 0 && end == size && !file.is_growing {
                        file.zero();
                    } else {
                        file.record(written, &vec![0; end - written]);
                    }
                    file.end = Some(end).filter(|&end| end < size);
                }
                // The first try may have moved the end before it failed.
                assert!(drop.is_some() == extends || is_repeated && extends);
                let until = if keeps { end.min(file.end.unwrap_or(size)) } else { end };
                if zeroes && offset < until.min(size) {
                    file.record(offset, &vec![0; until.min(size) - offset]);
                    self.has_written(open.handle);
                }
                if let Some(drop) = drop {
                    self.drop_pages(open.file, drop);
                }
            }
        }
    }

    /// Copies by copy_file_range(2); the kernel refuses ranges of one file that overlap.
    pub fn copy(
        &mut self,
        (from, from_offset): (usize, usize),
        (to, to_offset): (usize, usize),
        length: usize,
    ) {
        let (from, to) = (self.open[from], self.open[to]);
        self.settle_kernel(from.file);
        self.settle_kernel(to.file);
        let (source, target) = (&self.files[from.file], &self.files[to.file]);
        // The kernel does not copy to files with O_APPEND, nor between ranges that overlap.
        if to.appends || from.file == to.file && from_offset.abs_diff(to_offset) < length {
            return;
        }
        if target.case.is_bool() && !source.case.is_bool() {
            return;
        }
        let there = source.shown().saturating_sub(from_offset).min(length);
        let range = from_offset.min(source.shown())..from_offset.min(source.shown()) + there;
        if source.unsure[range.clone()].iter().any(|&number| number > 0) {
            return;
        }
        // A copy that fails after it has zeroed a part of the gap would read those zeros when it is repeated.
        if from.file == to.file && self.gap(to.file, to_offset).is_some_and(|gap| gap.start < range.end) {
            return;
        }
        let data = source.bytes[range].to_vec();
        let room = self.room(&to, to_offset, there, false);
        let (offset, to_start) = (from_offset as u64, to_offset as u64);
        let never = Cancellation::never();
        let copy =
            |fs: &FileSystem| errno(fs.copy(from.handle, offset, to.handle, to_start, length as u64, &never));
        let mut copied = copy(&self.fs);
        if matches!(copied, Err(libc::ENOSPC)) && self.gap(to.file, to_offset).is_some() {
            assert!(self.store.fails());
            self.store.set(false, false);
            self.drop_gap(to.file, to_offset);
            copied = copy(&self.fs);
        }
        match copied {
            Err(code) if !to.writes => assert_eq!(code, libc::EBADF),
            Err(code) if there > 0 && room == 0 => assert_eq!(code, libc::EFBIG),
            Err(code) => assert!(self.store.fails() && code == libc::ENOSPC, "copy_file_range: {code}"),
            Ok(copied) => {
                assert_eq!(copied.length as usize, room);
                if room > 0 {
                    self.has_grown(to.file, to_offset + room);
                    self.close_gap(to.file, to_offset, false);
                }
                self.files[to.file].record(to_offset, &data[..room]);
                if room > 0 {
                    self.has_written(to.handle);
                }
                self.advance(to.file, to_offset, to_offset + room);
                if let Some(drop) = copied.page_drop {
                    self.drop_pages(to.file, drop);
                }
            }
        }
    }
}

impl File {
    pub(super) fn zero(&mut self) {
        let zeros = vec![0; self.bytes.len()];
        self.record(0, &zeros);
        self.is_zeroed = true;
    }
}
