//! The hierarchy as it is mounted, and what is known of each of its files.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use zarrfs::array::Layout;
use zarrfs::mount::failure::{Answer, Reach};
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::inode::ROOT;
use zarrfs::mount::options::Options;
use zarrfs::mount::writing::Change;
use zarrfs::store::Store;

use super::arrays::ArrayCase;
use super::failing::Failing;
use super::kernel::Kernel;
use super::name;

/// How the hierarchy is mounted.
#[derive(Clone, Debug)]
pub struct Mounting {
    pub layout: Layout,
    pub cache_limit_bytes: u64,
    pub dirty_limit_bytes: u64,
    pub threads: usize,
    pub has_folder: bool,
}

/// What is known of one array's file.
pub struct File {
    pub case: ArrayCase,
    /// What a program must read.
    pub bytes: Vec<u8>,
    /// Written since everything was stored last: what another program writes there loses.
    pub(super) dirty: Vec<bool>,
    /// Written by another program since the file was opened last: old or new.
    pub(super) unsure: Vec<bool>,
    /// What the kernel holds of the file.
    pub(super) cached: Vec<Option<u8>>,
    pub(super) kernel: Kernel,
    pub(super) is_zeroed: bool,
    was_written: bool,
    pub(super) documents: Vec<(String, Vec<u8>)>,
}

/// What open(2) gave out.
#[derive(Clone, Copy)]
pub struct Open {
    pub file: usize,
    pub handle: u64,
    flags: i32,
    pub(super) is_direct: bool,
    pub writes: bool,
    /// How often storing this array had failed when this handle heard of it last.
    told: u64,
    /// Those that a close told of: for another close they are told, for fsync they are not.
    told_by_close: u64,
}

pub struct Model {
    pub(super) mounting: Mounting,
    store: Arc<Failing>,
    /// The same store, as another program sees it; it never fails.
    pub(super) plain: Arc<dyn Store>,
    _folder: Option<tempfile::TempDir>,
    pub fs: FileSystem,
    pub files: Vec<File>,
    pub open: Vec<Open>,
}

fn errno<T>(answer: Answer<T>) -> Result<T, i32> {
    answer.map_err(|failure| failure.errno())
}

pub(super) fn mounted(mounting: &Mounting, store: Arc<dyn Store>) -> FileSystem {
    let mut options = Options::new("memory", "/nowhere");
    options.writable = true;
    options.cache_limit_bytes = mounting.cache_limit_bytes;
    options.dirty_limit_bytes = mounting.dirty_limit_bytes;
    options.threads = mounting.threads;
    options.layout = mounting.layout;
    options.revalidate_seconds = 0.0;
    options.settle = None;
    let fs = FileSystem::new(Arc::new(options), store);
    fs.let_writes_pass();
    fs
}

/// Looks for a difference where there is none to be expected.
fn compare(what: &str, found: &[u8], expected: &[u8], unsure: &[bool]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let differs = (0..found.len()).find(|&at| found[at] != expected[at] && !unsure[at]);
    if let Some(at) = differs {
        let around = at.saturating_sub(4)..(at + 12).min(found.len());
        panic!(
            "{what}: byte {at} of {}: {:?} for {:?}",
            found.len(),
            &found[around.clone()],
            &expected[around]
        );
    }
}

impl Model {
    pub fn new(mounting: &Mounting, cases: &[ArrayCase]) -> Model {
        let (folder, plain) = super::place(mounting.has_folder, cases);
        let store = Failing::new(plain.clone());
        let is_big = mounting.layout.byte_order == zarrfs::array::ByteOrder::Big;
        let file = |(number, case): (usize, &ArrayCase)| {
            let size = case.size_bytes();
            let key = |key: &str| format!("{}/{key}", name(number));
            let documents = case.documents().into_iter();
            File {
                bytes: case.fill(is_big).into_iter().cycle().take(size).collect(),
                dirty: vec![false; size],
                unsure: vec![false; size],
                cached: vec![None; size],
                kernel: Kernel::default(),
                is_zeroed: false,
                was_written: false,
                documents: documents
                    .map(|(k, document)| (key(k), document.to_string().into_bytes()))
                    .collect(),
                case: case.clone(),
            }
        };
        let files = cases.iter().enumerate().map(file).collect();
        let fs = mounted(mounting, store.clone());
        Model { mounting: mounting.clone(), store, plain, _folder: folder, fs, files, open: Vec::new() }
    }

    fn inode(&self, name: &str) -> u64 {
        self.fs.lookup(ROOT, name, Reach::Store).unwrap().attributes.inode
    }

    /// open(2), as the kernel asks for it: O_TRUNC comes as a change of size right behind it.
    pub fn open(&mut self, file: usize, writes: bool, truncates: bool) {
        // A shell's `>` opens only for writing.
        let flags = match (writes, truncates) {
            (true, true) => libc::O_WRONLY,
            (true, false) => libc::O_RDWR,
            (false, _) => libc::O_RDONLY,
        };
        let inode = self.inode(&name(file));
        let opened = self.fs.open(inode, flags).unwrap();
        assert_eq!(opened.writes, writes);
        assert!(opened.keeps_cache);
        let passes = |open: &Open| open.file == file && open.is_direct && open.flags == libc::O_WRONLY;
        assert!(opened.is_direct || !self.open.iter().any(passes), "cached beside a direct writer");
        // A handle that joins others hears of what fails from now on.
        let told = self.store.refused(&name(file));
        let open = Open {
            file,
            handle: opened.handle,
            flags,
            is_direct: opened.is_direct,
            writes,
            told,
            told_by_close: told,
        };
        match opened.drop {
            Some(drop) => self.wait_to_open(open, drop),
            None => self.is_open(open),
        }
        if writes && truncates {
            self.answer_opens(file);
            self.truncate(file, 0);
        }
    }

    /// The kernel has the answer to an open.
    pub(super) fn is_open(&mut self, open: Open) {
        self.files[open.file].is_opened();
        self.open.push(open);
    }

    pub fn release(&mut self, slot: usize) {
        self.send(self.open[slot].file);
        let open = self.open.swap_remove(slot);
        self.fs.release(open.handle);
        assert_eq!(errno(self.fs.flush(open.handle)), Err(libc::EBADF));
    }

    /// close(2) of a descriptor, or fsync(2).
    pub fn flush(&mut self, slot: usize, syncs: bool) {
        let open = self.open[slot];
        let array = name(open.file);
        self.send(open.file);
        let stored = errno(if syncs { self.fs.sync(open.handle) } else { self.fs.flush(open.handle) });
        let refused = self.store.refused(&array);
        let told = if syncs { open.told } else { open.told.max(open.told_by_close) };
        match stored {
            Ok(()) if open.writes => {
                assert_eq!(refused, told, "a failure was never told");
                let unsynced = self.store.unsynced(&array);
                assert!(!syncs || unsynced.is_empty(), "{unsynced:?} may be lost");
            }
            Ok(()) => {}
            Err(code) => {
                assert!([libc::ENOSPC, libc::EIO].contains(&code));
                assert!(refused > told, "a failure that there was not: {code}");
            }
        }
        match syncs {
            true => self.open[slot].told = refused,
            false => self.open[slot].told_by_close = refused,
        }
        if stored.is_ok() {
            self.files[open.file].is_stored();
        } else if !self.store.fails() {
            // What was told of is an earlier failure, which fsync does not tell of twice; it goes through now.
            if !syncs {
                assert!(errno(self.fs.sync(open.handle)).is_err());
                self.open[slot].told = refused;
            }
            self.fs.flush(open.handle).unwrap();
            self.files[open.file].is_stored();
        }
    }

    pub fn read(&mut self, slot: usize, offset: usize, length: usize) {
        let open = self.open[slot];
        let file = &self.files[open.file];
        let end = (offset + length).min(file.bytes.len());
        let range = offset.min(end)..end;
        let (expected, unsure) = (&file.bytes[range.clone()], &file.unsure[range.clone()]);
        let _unanswered = match open.is_direct {
            true => None,
            false => self.fs.note_page_read(open.handle, range.start as u64, range.len() as u32),
        };
        let mut buffer = Default::default();
        if let Some(found) =
            self.fs.read_cached(open.handle, offset as u64, length as u32, &mut buffer).unwrap()
        {
            compare("from memory", &found, expected, unsure);
        }
        let found = self.fs.read(open.handle, offset as u64, length as u32, &mut buffer).unwrap();
        compare("read", &found, expected, unsure);
        let found = found.to_vec();
        if !open.is_direct {
            self.end_reads(open.file, &range);
            let lacking = self.files[open.file].cached[range].iter_mut().zip(found);
            lacking.for_each(|(cached, byte)| *cached = cached.or(Some(byte)));
        }
    }

    pub fn write(&mut self, slot: usize, offset: usize, data: &[u8], is_page: bool) {
        let open = self.open[slot];
        self.send(open.file);
        self.end_reads(open.file, &(offset..offset + data.len()));
        let size = self.files[open.file].bytes.len();
        let room = size.saturating_sub(offset).min(data.len());
        let mut data = data.to_vec();
        let is_invalid =
            self.files[open.file].case.is_bool() && data.first().is_some_and(|&byte| byte == 0xEE);
        if self.files[open.file].case.is_bool() && !is_invalid {
            data.iter_mut().for_each(|byte| *byte &= 1);
        }
        if is_page {
            self.fs.note_page_read(open.handle, offset as u64, data.len() as u32); // as the kernel did before
        }
        // As the adapter does: at once, or else with patience.
        let written = match self.fs.write_now(open.handle, offset as u64, &data, is_page, |_| ()) {
            Ok(None) => errno(self.fs.write(open.handle, offset as u64, &data, is_page)),
            Ok(Some(length)) => Ok(length),
            Err(failure) => errno(Err(failure)),
        };
        match written {
            _ if !open.writes => assert_eq!(written, Err(libc::EBADF)),
            _ if room == 0 && !data.is_empty() => assert_eq!(written, Err(libc::EFBIG)),
            _ if is_invalid => assert_eq!(written, Err(libc::EINVAL)),
            Err(code) => assert!(self.store.fails() && code == libc::ENOSPC && !is_page, "write: {code}"),
            Ok(length) => {
                assert_eq!(length as usize, room);
                self.files[open.file].note(offset, &data[..room]);
                if open.is_direct {
                    // Of what a file has grown by, the kernel may have nothing yet.
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
        let change = Change { size_bytes: Some(size as u64), ..Change::default() };
        let has_writers = self.open.iter().any(|open| open.file == file && open.writes);
        let refused = self.store.refused(&name(file));
        match errno(self.fs.change(inode, change)) {
            Ok((found, drop)) => {
                assert!(size == 0 || size == now);
                assert_eq!(found.attributes.size_bytes, now as u64);
                assert_eq!(drop.is_some(), size != now);
                if let Some(drop) = drop {
                    self.drop_pages(file, drop);
                }
            }
            Err(libc::EINVAL) => return assert!(size != 0 && size != now),
            Err(code) => {
                assert!(self.store.fails() && !has_writers, "truncate: {code}");
                assert!(self.store.refused(&name(file)) > refused);
            }
        }
        if size != now {
            self.files[file].zero();
        }
    }

    pub fn allocate(&mut self, slot: usize, offset: usize, length: usize, mode: i32) {
        let open = self.open[slot];
        self.settle_kernel(open.file);
        let file = &mut self.files[open.file];
        let (size, end) = (file.bytes.len(), offset + length);
        let keeps = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let zeroes = mode & (libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_PUNCH_HOLE) != 0;
        let allocated = errno(self.fs.allocate(open.handle, offset as u64, length as u64, mode));
        match allocated {
            _ if !open.writes => assert_eq!(allocated, Err(libc::EBADF)),
            _ if !zeroes && mode != 0 => assert_eq!(allocated, Err(libc::EOPNOTSUPP)),
            _ if !keeps && end > size => assert_eq!(allocated, Err(libc::EFBIG)),
            Err(code) => assert!(self.store.fails() && code == libc::ENOSPC, "fallocate: {code}"),
            Ok(()) if zeroes && offset < size => {
                let zeros = vec![0; end.min(size) - offset];
                file.note(offset, &zeros);
            }
            Ok(()) => {}
        }
    }

    /// copy_file_range(2); the kernel refuses ranges of one file that overlap.
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
        if from.file == to.file && from_offset.abs_diff(to_offset) < length {
            return;
        }
        if target.case.is_bool() && !source.case.is_bool() {
            return;
        }
        let there = source.bytes.len().saturating_sub(from_offset).min(length);
        let range = from_offset.min(source.bytes.len())..from_offset.min(source.bytes.len()) + there;
        if source.unsure[range.clone()].contains(&true) {
            return;
        }
        let data = source.bytes[range].to_vec();
        let room = target.bytes.len().saturating_sub(to_offset).min(there);
        let (offset, to_start) = (from_offset as u64, to_offset as u64);
        let copied = errno(self.fs.copy(from.handle, offset, to.handle, to_start, length as u64));
        match copied {
            _ if !to.writes => assert_eq!(copied, Err(libc::EBADF)),
            _ if there > 0 && room == 0 => assert_eq!(copied, Err(libc::EFBIG)),
            Err(code) => assert!(self.store.fails() && code == libc::ENOSPC, "copy_file_range: {code}"),
            Ok(length) => {
                assert_eq!(length as usize, room);
                self.files[to.file].note(to_offset, &data[..room]);
            }
        }
    }

    /// The sidecar says how long the file is; its attributes are edited in place, if asked for.
    pub fn sidecar(&mut self, file: usize, number: Option<u64>) {
        let sidecar = format!("{}.json", name(file));
        let inode = self.inode(&sidecar);
        let flags = if number.is_some() { libc::O_RDWR } else { libc::O_RDONLY };
        let handle = self.fs.open(inode, flags).unwrap().handle;
        let mut buffer = Default::default();
        let text = self.fs.read(handle, 0, 1 << 20, &mut buffer).unwrap();
        let mut content: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(content["nbytes"], self.files[file].bytes.len());
        assert_eq!(content.get("error"), None);
        if let Some(number) = number {
            content["attributes"]["number"] = number.into();
            let cut = Change { size_bytes: Some(0), by_handle: true, ..Change::default() };
            self.fs.change(inode, cut).unwrap();
            self.fs.write(handle, 0, content.to_string().as_bytes(), false).unwrap();
            let judged = errno(self.fs.flush(handle));
            assert!(judged.is_ok() || self.store.fails(), "{judged:?}");
            for (key, document) in &mut self.files[file].documents {
                *document = self.plain.get(key, 1 << 20).unwrap().unwrap();
            }
            if judged.is_ok() {
                let mut documents = self.files[file].documents.iter();
                let says = format!("\"number\":{number}");
                assert!(documents.any(|(_, text)| String::from_utf8_lossy(text).contains(&says)), "{says}");
            }
        }
        self.fs.release(handle);
    }

    /// All of a file, through a handle of its own.
    pub fn read_all(&mut self, file: usize) {
        self.open(file, false, false);
        self.answer_opens(file);
        let slot = self.open.len() - 1;
        self.read(slot, 0, self.files[file].bytes.len() + 1);
        self.release(slot);
    }

    pub(super) fn fails(&self) -> bool {
        self.store.fails()
    }

    pub fn fail(&mut self, is_full: bool, is_unsyncable: bool) {
        self.store.set(is_full, is_unsyncable);
    }

    /// What the timer does.
    pub fn settle(&mut self, settle: Duration) {
        self.fs.store_settled(settle);
    }

    /// Everything is stored, and another program reads it.
    pub fn verify(&mut self) {
        self.store.set(false, false);
        (0..self.files.len()).for_each(|file| self.settle_kernel(file));
        assert!(self.fs.store_all(std::time::Duration::from_secs(60)).is_empty());
        let stats = self.fs.lookup(ROOT, "__zarrfs__", Reach::Store).unwrap().attributes.inode;
        let stats = self.fs.lookup(stats, "stats", Reach::Store).unwrap().attributes.inode;
        let handle = self.fs.open(stats, libc::O_RDONLY).unwrap().handle;
        let mut buffer = Default::default();
        let text = self.fs.read(handle, 0, 1 << 20, &mut buffer).unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("\nzarrfs_dirty_bytes 0\n"), "{text}");
        self.fs.release(handle);
        let other = mounted(&self.mounting, self.plain.clone());
        self.files.iter_mut().for_each(File::is_stored);
        for (number, file) in self.files.iter().enumerate() {
            let found = other.lookup(ROOT, &name(number), Reach::Store).unwrap().attributes;
            assert_eq!(found.size_bytes, file.bytes.len() as u64);
            let handle = other.open(found.inode, libc::O_RDONLY).unwrap().handle;
            let read = other.read(handle, 0, found.size_bytes as u32, &mut buffer).unwrap();
            compare("stored", &read, &file.bytes, &vec![false; file.bytes.len()]);
            other.release(handle);
            for (key, document) in &file.documents {
                let now = self.plain.get(key, 1 << 20).unwrap();
                assert!(now.as_ref() == Some(document), "{key} was changed");
            }
            self.check_objects(number);
        }
    }

    /// Nothing is in an array's folder but its documents and chunks; none, where all is fill value.
    fn check_objects(&self, number: usize) {
        let file = &self.files[number];
        let is_big = self.mounting.layout.byte_order == zarrfs::array::ByteOrder::Big;
        let fill = file.case.fill(is_big);
        let mut objects = Vec::new();
        let mut folders = vec![name(number)];
        while let Some(folder) = folders.pop() {
            for entry in self.plain.list(&folder).unwrap() {
                let key = format!("{folder}/{}", entry.name);
                if entry.is_folder {
                    folders.push(key);
                } else if !file.documents.iter().any(|(document, _)| *document == key) {
                    objects.push(key);
                }
            }
        }
        let is_chunk = |key: &String| {
            key.split(['/', '.']).skip(1).all(|part| part == "c" || part.parse::<u64>().is_ok())
        };
        assert!(objects.iter().all(is_chunk), "{objects:?}");
        let is_fill = file.bytes.chunks(fill.len()).all(|element| element == fill);
        if is_fill && file.case.drops_fill() {
            assert!(objects.is_empty(), "all fill value, and stored nevertheless: {objects:?}");
        } else if file.was_written {
            assert!(!objects.is_empty());
        }
    }

    /// The mount ends, and another begins.
    pub fn remount(&mut self) {
        (0..self.files.len()).for_each(|file| self.settle_kernel(file));
        while !self.open.is_empty() {
            self.release(0);
        }
        self.verify();
        self.fs = mounted(&self.mounting, self.store.clone());
        for file in &mut self.files {
            file.cached.fill(None);
            file.is_opened();
        }
    }
}

impl File {
    /// Whoever opens the file sees what was written before, also where the kernel answers by itself.
    fn is_opened(&mut self) {
        self.unsure.fill(false);
        for (at, (cached, byte)) in self.cached.iter().zip(&self.bytes).enumerate() {
            assert!(
                self.kernel.is_filled(at) || cached.is_none_or(|cached| cached == *byte),
                "the kernel was let keep byte {at}: {cached:?} for {byte}"
            );
        }
    }

    pub(super) fn note(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let range = offset..offset + data.len();
        self.bytes[range.clone()].copy_from_slice(data);
        for (cached, byte) in self.cached[range.clone()].iter_mut().zip(data) {
            *cached = cached.map(|_| *byte);
        }
        self.dirty[range.clone()].fill(true);
        self.unsure[range].fill(false);
        self.was_written = true;
    }

    fn zero(&mut self) {
        let zeros = vec![0; self.bytes.len()];
        self.note(0, &zeros);
        self.is_zeroed = true;
    }

    fn is_stored(&mut self) {
        self.dirty.fill(false);
        self.is_zeroed = false;
    }
}
