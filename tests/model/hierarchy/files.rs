//! The hierarchy as it is mounted, and what is known of each of its files.

use std::sync::Arc;
use std::time::Duration;

use crate::support::handles::Handles;
use crate::support::hooked::Hooked;
use serde_json::Value;
use zarrfs::array::Layout;
use zarrfs::cancellation::Cancellation;
use zarrfs::mount::fs::FileSystem;
use zarrfs::mount::fs::attributes::SetAttr;
use zarrfs::mount::fs::error::{Blocking, FsResult};
use zarrfs::mount::fs::inode::ROOT;
use zarrfs::mount::options::Options;
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
    /// Over the folder.
    pub has_overlay: bool,
    /// `--tune truncate=zero`
    pub truncate_zeroes: bool,
    /// `--create`
    pub creates: bool,
}

/// What is known of one array's file.
pub struct File {
    pub case: ArrayCase,
    /// What a program must read.
    pub bytes: Vec<u8>,
    /// Bytes written since everything was last stored. They win over what another program writes there.
    pub(super) dirty: Vec<bool>,
    /// Written by another program since the file was opened last, old or new: the number of that write, or 0.
    pub(super) unsure: Vec<u64>,
    /// How often another program has written.
    pub(super) foreign_writes: u64,
    /// What the kernel holds of the file.
    pub(super) cached: Vec<Option<u8>>,
    pub(super) kernel: Kernel,
    pub(super) is_zeroed: bool,
    /// How far it has been written since it was cut short.
    pub(super) end: Option<usize>,
    /// The place of that write.
    pub(super) cut_at: usize,
    /// It was not cut short, but got longer.
    pub(super) is_growing: bool,
    /// It was cut short since it had no writer.
    pub(super) was_cut: bool,
    pub(super) was_written: bool,
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
    /// Opened with O_APPEND.
    pub appends: bool,
    /// Its last request was a close.
    pub(super) is_closing: bool,
    /// How many failures to store this array fsync has reported to this handle.
    reported: u64,
    /// How many close has reported: another close does not report them again, fsync does.
    reported_by_close: u64,
    /// How often another program had written before the open.
    foreign_writes: u64,
}

pub struct Model {
    pub(super) mounting: Mounting,
    pub(super) store: Arc<Hooked<Failing>>,
    /// The same store, as another program sees it; it never fails.
    pub(super) plain: Arc<dyn Store>,
    _folder: Option<tempfile::TempDir>,
    pub fs: FileSystem,
    pub files: Vec<File>,
    pub open: Vec<Open>,
}

pub(super) fn errno<T>(answer: FsResult<T>) -> Result<T, i32> {
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
    options.writeback_delay = None;
    options.truncate_zeroes = mounting.truncate_zeroes;
    options.create = mounting.creates;
    let fs = FileSystem::new(Arc::new(options), store);
    fs.cache_policy().allow_direct_writes();
    fs
}

impl Open {
    /// Returns whether the handle may have mapped the file and write through the map.
    pub(super) fn maps(&self) -> bool {
        self.flags & libc::O_ACCMODE == libc::O_RDWR
    }
}

/// Fails if bytes differ where they are known.
fn compare(what: &str, found: &[u8], expected: &[u8], unsure: &[u64]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let differs = (0..found.len()).find(|&at| found[at] != expected[at] && unsure[at] == 0);
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
        let (folder, plain) = super::place(mounting.has_folder, mounting.has_overlay, cases);
        let store = Failing::new(plain.clone());
        let is_big = mounting.layout.byte_order == zarrfs::array::ByteOrder::Big;
        let file = |(number, case): (usize, &ArrayCase)| {
            let size = case.size_bytes();
            let key = |key: &str| format!("{}/{key}", name(number));
            let documents = case.documents().into_iter();
            File {
                bytes: case.fill(is_big).into_iter().cycle().take(size).collect(),
                dirty: vec![false; size],
                unsure: vec![0; size],
                foreign_writes: 0,
                cached: vec![None; size],
                kernel: Kernel::default(),
                is_zeroed: false,
                end: None,
                cut_at: 0,
                is_growing: false,
                was_cut: false,
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

    pub(super) fn inode(&self, name: &str) -> u64 {
        self.fs.lookup(ROOT, name, Blocking::Yes).unwrap().attributes.inode
    }

    /// Opens a file as the kernel asks for it: O_TRUNC comes as a change of size right afterwards.
    pub fn open(&mut self, file: usize, writes: bool, truncates: bool) {
        self.open_to(file, writes, truncates, false);
    }

    /// Opens a file as [`Model::open`] does, perhaps with O_APPEND.
    pub fn open_to(&mut self, file: usize, writes: bool, truncates: bool, appends: bool) {
        // A shell's `>` opens only for writing.
        let flags = match (writes, truncates) {
            (true, true) => libc::O_WRONLY,
            (true, false) => libc::O_RDWR,
            (false, _) => libc::O_RDONLY,
        };
        let inode = self.inode(&name(file));
        let append = if appends { libc::O_APPEND } else { 0 };
        let opened = self.fs.opens().open(inode, flags | append, &Cancellation::never()).unwrap();
        assert_eq!(opened.writes, writes);
        let passes = |open: &Open| open.file == file && open.is_direct && open.flags == libc::O_WRONLY;
        assert!(opened.is_direct || !self.open.iter().any(passes), "cached next to a direct writer");
        // A handle that joins others gets the failures from now on.
        let reported = self.store.refused(&name(file));
        let open = Open {
            file,
            handle: opened.handle,
            flags,
            is_direct: opened.is_direct,
            writes,
            appends,
            is_closing: false,
            reported,
            reported_by_close: reported,
            foreign_writes: self.files[file].foreign_writes,
        };
        if opened.keeps_cache {
            self.is_open(open)
        } else {
            self.wait_to_open(open)
        }
        if writes && truncates {
            self.answer_opens(file);
            self.truncate(file, 0);
        }
    }

    /// Records that the kernel has the answer to an open.
    pub(super) fn is_open(&mut self, open: Open) {
        self.files[open.file].is_opened(open.foreign_writes);
        self.open.push(open);
    }

    pub fn release(&mut self, slot: usize) {
        self.send(self.open[slot].file);
        let open = self.open.swap_remove(slot);
        self.fs.opens().release(open.handle);
        if self.writers(open.file) == 0 {
            let file = &mut self.files[open.file];
            let shown = file.shown();
            (file.end, file.was_cut) = (None, false);
            file.size_was(shown);
        }
        assert_eq!(errno(self.fs.flush(open.handle)), Err(libc::EBADF));
    }

    /// Closes or syncs a descriptor.
    pub fn flush(&mut self, slot: usize, syncs: bool) {
        let open = self.open[slot];
        let array = name(open.file);
        self.send(open.file);
        let is_short = self.must_report_a_short_file(&open, syncs);
        self.open[slot].is_closing = !syncs;
        let stored = errno(if syncs { self.fs.sync(open.handle) } else { self.fs.flush(open.handle) });
        let stored = match stored {
            Err(libc::EINVAL) if is_short => Ok(()),
            Ok(()) => {
                assert!(!is_short, "the short file is not reported");
                Ok(())
            }
            other => other,
        };
        let refused = self.store.refused(&array);
        let reported = if syncs { open.reported } else { open.reported.max(open.reported_by_close) };
        match stored {
            Ok(()) if open.writes => {
                assert_eq!(refused, reported, "a failure was never reported");
                let unsynced = self.store.unsynced(&array);
                assert!(!syncs || unsynced.is_empty(), "{unsynced:?} may be lost");
            }
            Ok(()) => {}
            Err(code) => {
                assert!([libc::ENOSPC, libc::EIO].contains(&code), "{code}");
                assert!(refused > reported, "a failure that did not happen: {code}");
            }
        }
        if syncs {
            self.open[slot].reported = refused
        } else {
            self.open[slot].reported_by_close = refused
        }
        if stored.is_ok() {
            self.files[open.file].is_stored();
        } else if !self.store.fails() {
            // An earlier failure was reported, which fsync does not report twice; storing succeeds now.
            if !syncs {
                assert!(errno(self.fs.sync(open.handle)).is_err());
                self.open[slot].reported = refused;
            }
            let again = errno(self.fs.flush(open.handle));
            self.open[slot].is_closing = true;
            assert!(
                again.is_ok() || (again == Err(libc::EINVAL) && self.must_report_a_short_file(&open, false))
            );
            self.files[open.file].is_stored();
        }
    }

    pub fn read(&mut self, slot: usize, offset: usize, length: usize) {
        let open = self.open[slot];
        let file = &self.files[open.file];
        let end = (offset + length).min(file.shown());
        let range = offset.min(end)..end;
        let (expected, unsure) = (&file.bytes[range.clone()], &file.unsure[range.clone()]);
        let _unanswered = if open.is_direct {
            None
        } else {
            self.fs.record_page_read(open.handle, range.start as u64, range.len() as u64)
        };
        let mut buffer = Default::default();
        if let Some(found) = self.fs.try_read(open.handle, offset as u64, length as u32, &mut buffer).unwrap()
        {
            compare("from memory", &found, expected, unsure);
        }
        let found = self
            .fs
            .read(open.handle, offset as u64, length as u32, &mut buffer, &Cancellation::never())
            .unwrap();
        compare("read", &found, expected, unsure);
        let found = found.to_vec();
        if !open.is_direct {
            self.end_reads(open.file, &range);
            let lacking = self.files[open.file].cached[range].iter_mut().zip(found);
            lacking.for_each(|(cached, byte)| *cached = cached.or(Some(byte)));
        }
    }

    /// Checks that the sidecar says how long the file is, and edits its attributes in place if asked for.
    pub fn sidecar(&mut self, file: usize, number: Option<u64>) {
        let sidecar = format!("{}.json", name(file));
        let inode = self.inode(&sidecar);
        let flags = if number.is_some() { libc::O_RDWR } else { libc::O_RDONLY };
        let handle = self.fs.opens().open(inode, flags, &Cancellation::never()).unwrap().handle;
        let mut buffer = Default::default();
        let text = self.fs.read(handle, 0, 1 << 20, &mut buffer, &Cancellation::never()).unwrap();
        let mut content: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(content["nbytes"], self.files[file].bytes.len());
        assert_eq!(content.get("error"), None);
        if let Some(number) = number {
            content["attributes"]["number"] = number.into();
            let cut = SetAttr { size_bytes: Some(0), by_handle: true, ..SetAttr::default() };
            self.fs.set_attributes(inode, cut).unwrap();
            self.fs.write(handle, 0, content.to_string().as_bytes(), false).unwrap();
            self.store.set_editing(true);
            let judged = errno(self.fs.flush(handle));
            self.store.set_editing(false);
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
        self.fs.opens().release(handle);
    }

    /// Reads all of a file through a handle of its own.
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

    /// Stores what is due, as the timer does.
    pub fn store_due(&mut self, writeback_delay: Duration) {
        self.fs.engine().store_settled(writeback_delay);
    }

    /// Checks that everything is stored, as another program reads it.
    pub fn verify(&mut self) {
        self.store.set(false, false);
        (0..self.files.len()).for_each(|file| self.settle_kernel(file));
        assert!(self.fs.store_all(std::time::Duration::from_secs(60)).is_empty());
        let stats = self.fs.lookup(ROOT, "__zarrfs__", Blocking::Yes).unwrap().attributes.inode;
        let stats = self.fs.lookup(stats, "stats", Blocking::Yes).unwrap().attributes.inode;
        let handle = self.fs.opens().open(stats, libc::O_RDONLY, &Cancellation::never()).unwrap().handle;
        let mut buffer = Default::default();
        let text = self.fs.read(handle, 0, 1 << 20, &mut buffer, &Cancellation::never()).unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("\nzarrfs_dirty_bytes 0\n"), "{text}");
        self.fs.opens().release(handle);
        let other = mounted(&self.mounting, self.plain.clone());
        self.files.iter_mut().for_each(File::is_stored);
        for (number, file) in self.files.iter().enumerate() {
            let found = other.lookup(ROOT, &name(number), Blocking::Yes).unwrap().attributes;
            assert_eq!(found.size_bytes, file.bytes.len() as u64);
            let handle =
                other.opens().open(found.inode, libc::O_RDONLY, &Cancellation::never()).unwrap().handle;
            let read =
                other.read(handle, 0, found.size_bytes as u32, &mut buffer, &Cancellation::never()).unwrap();
            compare("stored", &read, &file.bytes, &vec![0; file.bytes.len()]);
            other.opens().release(handle);
            for (key, document) in &file.documents {
                let now = self.plain.get(key, 1 << 20).unwrap();
                assert!(now.as_ref() == Some(document), "{key} was changed");
            }
            self.check_objects(number);
        }
    }

    /// Checks that an array's folder has only its documents and chunks, and no chunk of fill value alone.
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

    /// Ends the mount, and begins another.
    pub fn remount(&mut self) {
        (0..self.files.len()).for_each(|file| self.settle_kernel(file));
        while !self.open.is_empty() {
            self.release(0);
        }
        self.verify();
        self.fs = mounted(&self.mounting, self.store.clone());
        for file in &mut self.files {
            file.cached.fill(None);
            file.is_opened(file.foreign_writes);
        }
    }
}

impl File {
    /// Takes the news of an open: it shows what was written before, also where the kernel answers by itself.
    /// What another program writes between the open and its reply may be old or new afterwards.
    fn is_opened(&mut self, foreign_writes: u64) {
        for unsure in self.unsure.iter_mut().filter(|number| **number <= foreign_writes) {
            *unsure = 0;
        }
        for (at, (cached, byte)) in self.cached.iter().zip(&self.bytes).enumerate() {
            assert!(
                self.kernel.is_filled(at) || cached.is_none_or(|cached| cached == *byte),
                "the kernel was let keep byte {at}: {cached:?} for {byte}"
            );
        }
    }

    pub(super) fn record(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let range = offset..offset + data.len();
        self.bytes[range.clone()].copy_from_slice(data);
        for (cached, byte) in self.cached[range.clone()].iter_mut().zip(data) {
            *cached = cached.map(|_| *byte);
        }
        self.dirty[range.clone()].fill(true);
        self.unsure[range].fill(0);
        self.was_written = true;
    }

    pub(super) fn is_stored(&mut self) {
        self.dirty.fill(false);
        self.is_zeroed = false;
    }
}
