//! The file system over a store in memory, without a mount.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod commits;
mod growth;
#[path = "../../../../tests/support/handles.rs"]
#[allow(dead_code)] // The integration tests use more of it.
mod handles;
mod hooked_store;
mod maps;
mod members;
mod names;
mod page_drops;
mod remote;
mod sidecars;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use handles::Handles;
use serde_json::{Value, json};

use crate::array::{Array, Order, ReplyBuffer};
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::mount::fs::FileSystem;
use crate::mount::fs::attributes::Attributes;
use crate::mount::fs::entity::Entity;
use crate::mount::fs::error::{Blocking, Failure};
use crate::mount::fs::inode::ROOT;
use crate::mount::fs::open_file::ReadData;
use crate::mount::options::Options;
use crate::store::MemoryStore;
use crate::test_store::{Hook, Hooked, Operation, Request};

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"title":"t"}}"#;

/// A v3 array of uint16 in chunks of two rows, guarded by crc32c so that damage shows.
fn array(shape: &[u64], fill: u16) -> Value {
    let mut chunk = shape.to_vec();
    if let Some(rows) = chunk.first_mut() {
        *rows = 2;
    }
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint16", "fill_value": fill,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    })
}

/// Its chunk with these elements.
fn chunk(elements: &[u16]) -> Vec<u8> {
    let mut bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn bytes_of(elements: impl IntoIterator<Item = u16>) -> Vec<u8> {
    elements.into_iter().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn memory_pressure_takes_clean_chunks_and_no_byte() {
    let mount = Mount::sample();
    let expected = bytes_of(0..12);
    assert_eq!(mount.read("t").unwrap(), expected);
    let cached = |mount: &Mount| mount.fs.engine.counters().cached_bytes;
    let before = cached(&mount);
    assert!(before > 0 && mount.fs.relieve_memory() > 0 && cached(&mount) <= before / 2);
    mount.fs.relieve_memory();
    assert_eq!(mount.read("t").unwrap(), expected);
    let stats = String::from_utf8(mount.read("__zarrfs__/stats").unwrap()).unwrap();
    assert!(stats.contains("zarrfs_memory_pressure_total 2\n"), "{stats}");
    assert!(!stats.contains("zarrfs_memory_relieved_bytes_total 0\n"), "{stats}");
}

struct Mount {
    store: Arc<MemoryStore>,
    fs: FileSystem,
}

impl Mount {
    /// With a `revalidate` of 0, so that each lookup reads the store.
    fn new() -> Self {
        Self::with(|options| options.revalidate_seconds = 0.0)
    }

    fn with(set: impl FnOnce(&mut Options)) -> Self {
        let store = Arc::new(MemoryStore::new());
        let mut options = Options::new("/data/sample.zarr", "/mnt");
        options.threads = 1;
        set(&mut options);
        let fs = FileSystem::new(Arc::new(options), store.clone());
        Mount { store, fs }
    }

    fn put(&self, key: &str, content: impl AsRef<[u8]>) -> &Self {
        self.store.put(key, content.as_ref()).unwrap();
        self
    }

    /// Array `t` of shape (4, 3) that counts from 0, in a group.
    fn sample() -> Self {
        let mount = Mount::new();
        mount.put_sample();
        mount
    }

    fn put_sample(&self) {
        self.put("zarr.json", GROUP).put("t/zarr.json", array(&[4, 3], 9).to_string());
        self.put("t/c/0/0", chunk(&[0, 1, 2, 3, 4, 5])).put("t/c/1/0", chunk(&[6, 7, 8, 9, 10, 11]));
    }

    fn find(&self, path: &str) -> Result<Attributes, i32> {
        let mut attributes = self.fs.attributes(ROOT, Blocking::Yes).map_err(|f| f.errno())?.attributes;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = self.fs.lookup(attributes.inode, name, Blocking::Yes).map_err(|f| f.errno())?;
            attributes = found.attributes;
        }
        Ok(attributes)
    }

    fn open(&self, path: &str) -> Result<u64, i32> {
        let inode = self.find(path)?.inode;
        self.fs
            .opens()
            .open(inode, libc::O_RDONLY, &Cancellation::never())
            .map(|opened| opened.handle)
            .map_err(|failure| failure.errno())
    }

    fn read_handle(&self, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>, i32> {
        let mut buffer = ReplyBuffer::default();
        let read = self
            .fs
            .read(handle, offset, size, &mut buffer, &Cancellation::never())
            .map_err(|failure| failure.errno())?;
        Ok(read.to_vec())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, i32> {
        let handle = self.open(path)?;
        let content = self.read_handle(handle, 0, 1 << 20);
        self.fs.opens().release(handle);
        content
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.read(path).unwrap()).unwrap()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let handle = self.fs.opens().open_folder(self.find(path).unwrap().inode).unwrap();
        let listing = self.fs.opens().listing(handle, Blocking::Yes).unwrap();
        for entry in listing.entries() {
            if !entry.name.starts_with("..") && entry.name != "." {
                let found = self.find(&format!("{path}/{}", entry.name)).unwrap();
                assert_eq!(found.inode, entry.inode, "d_ino of {} is its st_ino", entry.name);
                assert_eq!(found.is_folder, entry.entity.kind.is_folder());
            }
        }
        let names = listing.entries().iter().map(|entry| entry.name.clone()).skip(2).collect();
        self.fs.opens().release(handle);
        names
    }
}

#[test]
fn names_sizes_and_bytes() {
    let mount = Mount::sample();
    mount.put("g/zarr.json", GROUP).put("g/u/zarr.json", array(&[0, 3], 0).to_string());
    mount.put("g/other.txt", "not shown");
    assert_eq!(mount.names(""), ["__group__.json", "g", "t", "t.json"]);
    assert_eq!(mount.names("g"), ["__group__.json", "u", "u.json"]);
    assert_eq!(mount.find("t").unwrap().size_bytes, 24);
    assert_eq!(mount.find("g/u").unwrap().size_bytes, 0);
    assert_eq!(mount.read("t").unwrap(), bytes_of(0..12));
    assert_eq!(mount.read("g/u").unwrap(), Vec::<u8>::new());
    for path in ["t.json", "__group__.json", "__zarrfs__/config.json", "__formats__/json/g/u.json"] {
        assert_eq!(mount.find(path).unwrap().size_bytes, mount.read(path).unwrap().len() as u64, "{path}");
    }
    assert_eq!(mount.json("__group__.json")["attributes"]["title"], "t");
    assert_eq!(mount.json("__formats__/json/g/u.json")["data_file"], "../../../g/u");
    for path in
        ["none", "t/x", "g/other.txt", "zarr.json", ".json", "g/u.json.json", "__formats__/npz", "a\0b"]
    {
        assert!(mount.find(path).is_err(), "{path:?}");
    }
}

#[test]
fn folders_of_our_own_are_reached_but_not_listed() {
    let mount = Mount::sample();
    assert_eq!(mount.names("__zarrfs__"), ["config.json", "last_error", "slow", "stats", "unsaved"]);
    // The files of some are in the folder of another one.
    let own = crate::formats::FORMATS.iter().filter(|format| format.folder.is_none());
    assert_eq!(mount.names("__formats__"), own.map(|format| format.name).collect::<Vec<_>>());
    assert_eq!(mount.names("__formats__/json"), ["__group__.json", "t.json"]);
    assert_eq!(mount.json("__formats__/json/t.json")["data_file"], "../../t");
    mount.read("t").unwrap();
    let stats = String::from_utf8(mount.read("__zarrfs__/stats").unwrap()).unwrap();
    assert!(stats.contains("zarrfs_read_bytes_total 24\n"), "{stats}");
    assert!(stats.contains("zarrfs_array_reads_total{array=\"/t\"} 1\n"), "{stats}");
    assert_eq!(mount.json("__zarrfs__/config.json")["pid"], std::process::id());
}

#[test]
fn a_real_node_wins_over_a_sidecar_which_stays_reachable() {
    let mount = Mount::sample();
    mount.put("t.json/zarr.json", array(&[2, 3], 5).to_string());
    assert_eq!(mount.names(""), ["__group__.json", "t", "t.json", "t.json.json"]);
    assert_eq!(mount.read("t.json").unwrap(), bytes_of([5; 6]));
    assert_eq!(mount.json("__formats__/json/t.json")["shape"], json!([4, 3]));
    assert_eq!(mount.json("t.json.json")["shape"], json!([2, 3]));
    // In v2 any name may be a node.
    let mount = Mount::new();
    mount.put(".zgroup", r#"{"zarr_format":2}"#).put("__group__.json/.zgroup", r#"{"zarr_format":2}"#);
    mount.put("__zarrfs__/.zgroup", r#"{"zarr_format":2}"#);
    assert_eq!(mount.names(""), ["__group__.json", "__zarrfs__"]);
    assert!(mount.find("__group__.json").unwrap().is_folder);
    assert_eq!(mount.names("__zarrfs__"), ["__group__.json"]);
    assert_eq!(mount.json("__formats__/json/__group__.json")["zarr"]["zarr_format"], 2);
}

#[test]
fn a_root_that_is_an_array_is_named_after_the_store() {
    let mount = Mount::new();
    mount.put("zarr.json", array(&[4, 3], 7).to_string());
    assert_eq!(mount.names(""), ["sample", "sample.json"]);
    assert_eq!(mount.read("sample").unwrap(), bytes_of([7; 12]));
    assert_eq!(mount.json("sample.json")["path"], "/");
    assert_eq!(mount.json("__formats__/json/sample.json")["data_file"], "../../sample");
    for (source, name) in
        [("x.zarr.zip", "x"), ("x.zip", "x"), ("http://h/a/x.zarr/", "x"), (".zarr", "array")]
    {
        let mount = Mount::with(|options| options.source = source.to_owned());
        mount.put("zarr.json", array(&[4, 3], 7).to_string());
        assert_eq!(mount.names(""), [name.to_owned(), format!("{name}.json")], "{source}");
    }
}

#[test]
fn unreadable_arrays_are_listed_with_the_reason() {
    let mount = Mount::sample();
    let mut unknown = array(&[4, 3], 0);
    unknown["codecs"][1]["name"] = json!("squeeze");
    let mut wrong = array(&[4, 3], 0);
    wrong["chunk_grid"]["configuration"]["chunk_shape"] = json!([0, 3]);
    mount.put("unknown/zarr.json", unknown.to_string()).put("wrong/zarr.json", wrong.to_string());
    mount.put("cut/zarr.json", "{\"zarr_format\":3,");
    assert!(mount.names("").starts_with(&["__group__.json".into(), "cut".into(), "cut.json".into()]));
    assert_eq!(mount.open("unknown"), Err(libc::EOPNOTSUPP));
    assert_eq!(mount.open("wrong"), Err(libc::EIO));
    assert_eq!(mount.open("cut"), Err(libc::EIO));
    assert_eq!(mount.find("unknown").unwrap().size_bytes, 24);
    assert_eq!(mount.find("cut").unwrap().size_bytes, 0);
    for (name, word) in [("unknown", "squeeze"), ("wrong", "chunk"), ("cut", "cut/zarr.json")] {
        let sidecar = mount.json(&format!("{name}.json"));
        let error = sidecar["error"].as_str().unwrap();
        assert!(error.contains(word), "{error}");
        assert_eq!(sidecar.get("snippets"), None);
    }
    assert_eq!(mount.read("t").unwrap(), bytes_of(0..12), "its neighbours are untouched");
}

#[test]
fn reads_are_complete_or_fail() {
    let mount = Mount::sample();
    let handle = mount.open("t").unwrap();
    assert_eq!(mount.read_handle(handle, 3, 7).unwrap(), bytes_of(0..12)[3..10]);
    assert_eq!(mount.read_handle(handle, 20, 100).unwrap(), bytes_of([10, 11]));
    assert_eq!(mount.read_handle(handle, 24, 1).unwrap(), Vec::<u8>::new());
    assert_eq!(mount.read_handle(handle, u64::MAX, 1).unwrap(), Vec::<u8>::new());
    mount.store.delete("t/c/1/0");
    assert_eq!(mount.read("t").unwrap(), bytes_of((0..6).chain([9; 6])), "a missing chunk is the fill value");
    let mut damaged = chunk(&[0, 1, 2, 3, 4, 5]);
    damaged[1] ^= 1;
    mount.put("t/c/0/0", damaged);
    let handle = mount.open("t").unwrap();
    assert_eq!(mount.read_handle(handle, 0, 24), Err(libc::EIO), "all of it, though half could be read");
    assert_eq!(mount.read_handle(handle, 12, 12).unwrap(), bytes_of([9; 6]));
    let stats = String::from_utf8(mount.read("__zarrfs__/stats").unwrap()).unwrap();
    assert!(stats.contains("zarrfs_errors_total{kind=\"corrupt\"} 1\n"), "{stats}");
    assert!(stats.contains("zarrfs_array_errors_total{array=\"/t\"} 1\n"), "{stats}");
}

#[test]
fn nothing_is_written() {
    let mount = Mount::sample();
    let inode = mount.find("t").unwrap().inode;
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC] {
        assert_eq!(
            mount.fs.opens().open(inode, flags, &Cancellation::never()).err().unwrap().errno(),
            libc::EROFS
        );
    }
    assert_eq!(
        mount.fs.opens().open(ROOT, libc::O_RDONLY, &Cancellation::never()).err().unwrap().errno(),
        libc::EISDIR
    );
    assert_eq!(mount.fs.opens().open_folder(inode).err().unwrap().errno(), libc::ENOTDIR);
    assert_eq!(mount.find("t").unwrap().mode & 0o333, 0);
}

/// Does not read the document of a node, as long as that is set. Its version is known.
struct Unreadable {
    key: &'static str,
    is_set: AtomicBool,
}

impl Unreadable {
    /// Returns a store in memory that is not unreadable yet, and a file system over it.
    fn over(
        store: MemoryStore,
        key: &'static str,
        revalidate_seconds: f64,
    ) -> (Arc<Hooked<Self>>, FileSystem) {
        let mut options = Options::new("s", "/mnt");
        options.revalidate_seconds = revalidate_seconds;
        let hooked = Hooked::new(Arc::new(store), Unreadable { key, is_set: AtomicBool::new(false) });
        let fs = FileSystem::new(Arc::new(options), hooked.clone());
        (hooked, fs)
    }
}

impl Hook for Unreadable {
    fn before(&self, request: &Request<'_>) -> Result<(), Error> {
        let reads = matches!(request.operation, Operation::Open | Operation::Content);
        if self.is_set.load(Ordering::SeqCst) && reads && request.key() == self.key {
            return Err(Error::store(self.key, "read", std::io::Error::from_raw_os_error(libc::EIO)));
        }
        Ok(())
    }
}

/// The bug: after one failure to read the document of a node in a folder, the node stayed broken until the document changed.
#[test]
fn a_node_that_could_not_be_read_is_read_again() {
    for revalidate_seconds in [0.0, 3600.0] {
        let store = MemoryStore::new();
        store.put("zarr.json", GROUP.as_bytes()).unwrap();
        store.put("t/zarr.json", array(&[4, 3], 9).to_string().as_bytes()).unwrap();
        let (hooked, fs) = Unreadable::over(store, "t/zarr.json", revalidate_seconds);
        hooked.is_set.store(true, Ordering::SeqCst);
        let found = fs.lookup(ROOT, "t", Blocking::Yes).unwrap();
        assert!(found.valid_for.is_zero() && found.entry_valid_for.is_zero());
        let opened = fs.opens().open(found.attributes.inode, libc::O_RDONLY, &Cancellation::never());
        assert_eq!(opened.err().unwrap().errno(), libc::EIO);
        hooked.is_set.store(false, Ordering::SeqCst);
        let found = fs.lookup(ROOT, "t", Blocking::Yes).unwrap();
        assert_eq!(found.attributes.size_bytes, 24, "after {revalidate_seconds} s");
        fs.opens().open(found.attributes.inode, libc::O_RDONLY, &Cancellation::never()).unwrap();
    }
}

#[test]
fn a_group_that_could_not_be_read_is_read_again() {
    for revalidate_seconds in [0.0, 3600.0] {
        let store = MemoryStore::new();
        for (key, document) in [("zarr.json", GROUP), ("g/zarr.json", GROUP)] {
            store.put(key, document.as_bytes()).unwrap();
        }
        store.put("g/t/zarr.json", array(&[4, 3], 9).to_string().as_bytes()).unwrap();
        let (hooked, fs) = Unreadable::over(store, "g/zarr.json", revalidate_seconds);
        hooked.is_set.store(true, Ordering::SeqCst);
        let found = fs.lookup(ROOT, "g", Blocking::Yes).unwrap();
        assert!(!found.attributes.is_folder && found.valid_for.is_zero());
        hooked.is_set.store(false, Ordering::SeqCst);
        let found = fs.lookup(ROOT, "g", Blocking::Yes).unwrap();
        assert!(found.attributes.is_folder, "after {revalidate_seconds} s");
        let array = fs.lookup(found.attributes.inode, "t", Blocking::Yes).unwrap();
        assert_eq!(array.attributes.size_bytes, 24);
    }
}

/// The bug: what is below a group that cannot be read did not exist.
#[test]
fn a_name_below_a_group_that_cannot_be_read_is_an_error() {
    let store = MemoryStore::new();
    for (key, document) in [
        ("zarr.json", GROUP),
        ("g/zarr.json", GROUP),
        ("g/h/zarr.json", GROUP),
        ("g/t/zarr.json", &array(&[4, 3], 9).to_string()),
    ] {
        store.put(key, document.as_bytes()).unwrap();
    }
    let (hooked, fs) = Unreadable::over(store, "g/zarr.json", 0.0);
    let look_up = |parent, name: &str| {
        fs.lookup(parent, name, Blocking::Yes)
            .map(|found| found.attributes.inode)
            .map_err(|error| error.errno())
    };
    let group = look_up(ROOT, "g").unwrap();
    for is_unreadable in [false, true, false] {
        hooked.is_set.store(is_unreadable, Ordering::SeqCst);
        for name in ["t", "h", "t.json", "none"] {
            let found = look_up(group, name).err();
            let expected =
                if is_unreadable { Some(libc::EIO) } else { (name == "none").then_some(libc::ENOENT) };
            assert_eq!(found, expected, "{name}, unreadable: {is_unreadable}");
        }
    }
}

#[test]
fn a_generated_file_is_a_snapshot() {
    let mount = Mount::sample();
    let handle = mount.open("__zarrfs__/stats").unwrap();
    let before = mount.read_handle(handle, 0, 1 << 20).unwrap();
    mount.read("t").unwrap();
    assert_eq!(mount.read_handle(handle, 0, 1 << 20).unwrap(), before);
    assert_eq!(mount.read_handle(handle, 5, 10).unwrap(), before[5..15]);
    assert_eq!(mount.read_handle(handle, 1 << 20, 10).unwrap(), Vec::<u8>::new());
    assert_ne!(mount.read("__zarrfs__/stats").unwrap(), before);
}

#[test]
fn growth_along_the_slowest_axis_is_in_place() {
    let mount = Mount::sample();
    let handle = mount.open("t").unwrap();
    let inode = mount.find("t").unwrap().inode;
    mount.put("t/zarr.json", array(&[6, 3], 9).to_string());
    assert_eq!(
        mount.fs.opens().open(inode, 0, &Cancellation::never()).err().unwrap().errno(),
        libc::ESTALE,
        "the kernel must ask for the size"
    );
    let again = mount.fs.opens().open(inode, 0, &Cancellation::never()).unwrap().handle;
    let grown = mount.find("t").unwrap();
    assert_eq!((grown.inode, grown.size_bytes), (inode, 36));
    for handle in [handle, again] {
        assert_eq!(mount.read_handle(handle, 0, 99).unwrap(), bytes_of((0..12).chain([9; 6])));
    }
    mount.put("t/zarr.json", array(&[4, 3], 9).to_string());
    assert_ne!(mount.find("t").unwrap().inode, inode, "a shorter one is another array");
    assert_eq!(mount.read_handle(handle, 0, 24), Err(libc::ESTALE));
}

#[test]
fn a_flush_follows_an_array_that_keeps_growing() {
    let mount = Mount::sample();
    let handle = mount.open("t").unwrap();
    let inode = mount.fs.inodes.get_or_add(&Entity::array(None, "t".to_owned()));
    let opened = inode.array().unwrap();
    let rounds = Cell::new(0);
    let flushed = mount.fs.opens().array_files.served().run_on_current(&inode, &opened, |array: &Array| {
        rounds.set(rounds.get() + 1);
        if rounds.get() > 5 {
            return Ok(array.size_bytes());
        }
        mount.put("t/zarr.json", self::array(&[4 + 2 * rounds.get(), 3], 9).to_string());
        Err(Error::Stale { key: "t/zarr.json".to_owned() })
    });
    assert_eq!(flushed.unwrap(), 14 * 3 * 2);
    mount.fs.opens().release(handle);
}

#[test]
fn the_slowest_axis_of_order_f_is_the_last() {
    let mount = Mount::with(|options| {
        options.revalidate_seconds = 0.0;
        options.layout.order = Order::F;
    });
    mount.put("zarr.json", GROUP);
    for (shape, is_same) in [([4, 3], true), ([4, 5], true), ([6, 5], false)] {
        let before = mount.find("t").ok().map(|found| found.inode);
        let mut document = array(&shape, 9);
        document["chunk_grid"]["configuration"]["chunk_shape"] = json!([2, 3]);
        mount.put("t/zarr.json", document.to_string());
        let inode = mount.find("t").unwrap().inode;
        assert!(before.is_none_or(|before| (before == inode) == is_same), "{shape:?}");
        mount.open("t").unwrap();
    }
}

#[test]
fn a_replaced_array_is_stale_for_old_handles() {
    let mount = Mount::sample();
    let handle = mount.open("t").unwrap();
    let inode = mount.find("t").unwrap().inode;
    let mut other = array(&[4, 3], 9);
    other["data_type"] = json!("int16");
    mount.put("t/zarr.json", other.to_string());
    assert_eq!(mount.read_handle(handle, 0, 24), Err(libc::ESTALE), "also for a handle that only reads");
    assert_eq!(mount.fs.attributes(inode, Blocking::Yes).unwrap_err().errno(), libc::ESTALE);
    let handle = mount.open("t").unwrap();
    for key in ["t/zarr.json", "t/c/0/0", "t/c/1/0"] {
        mount.store.delete(key);
    }
    assert_eq!(mount.read_handle(handle, 0, 24), Err(libc::ESTALE), "never as fill values");
    assert_eq!(mount.find("t"), Err(libc::ENOENT));
}

#[test]
fn the_page_cache_is_kept_while_nothing_changed() {
    let mount = Mount::with(|options| options.revalidate_seconds = 0.0);
    mount.put_sample();
    let inode = mount.find("t").unwrap().inode;
    let keeps = |is_announced: bool| {
        let opened = mount.fs.opens().open(inode, 0, &Cancellation::never()).unwrap();
        if is_announced {
            mount.fs.opens().release(opened.handle);
        } else {
            mount.fs.opens().cancel_open(opened.handle);
        }
        opened.keeps_cache
    };
    mount.read("t").unwrap();
    assert!(keeps(true));
    mount.put("t/c/0/0", chunk(&[5, 4, 3, 2, 1, 0]));
    assert!(!keeps(false) && !keeps(true), "until the kernel has dropped its pages");
    assert_eq!(mount.read("t").unwrap(), bytes_of([5, 4, 3, 2, 1, 0].into_iter().chain(6..12)));
    assert!(keeps(true));
}

#[test]
fn without_blocking_only_cached_data_is_returned() {
    let mount = Mount::with(|options| options.revalidate_seconds = 60.0);
    mount.put("zarr.json", GROUP).put("t/zarr.json", array(&[4, 3], 9).to_string());
    let would_block = |result: Result<_, Failure>| matches!(result, Err(Failure::WouldBlock));
    assert!(would_block(mount.fs.lookup(ROOT, "t", Blocking::No)));
    let found = mount.fs.lookup(ROOT, "t", Blocking::Yes).unwrap();
    assert!(!found.valid_for.is_zero() && found.valid_for <= mount.fs.negative_valid_for());
    assert_eq!(mount.fs.lookup(ROOT, "t", Blocking::No).unwrap().attributes, found.attributes);
    let handle = mount.open("t").unwrap();
    let mut buffer = ReplyBuffer::default();
    assert!(mount.fs.try_read(handle, 0, 24, &mut buffer).unwrap().is_none());
    assert_eq!(mount.read_handle(handle, 0, 24).unwrap(), bytes_of([9; 12]));
    let cached = mount.fs.try_read(handle, 0, 24, &mut buffer).unwrap();
    assert_eq!(cached.unwrap().to_vec(), bytes_of([9; 12]));
    mount.put("u/zarr.json", array(&[4, 3], 9).to_string());
    mount.fs.expire();
    assert!(would_block(mount.fs.lookup(ROOT, "t", Blocking::No)));
}

#[test]
fn the_time_moves_when_chunks_are_seen_to_change() {
    let mount = Mount::sample();
    mount.read("t").unwrap();
    let before = mount.find("t").unwrap().mtime;
    mount.read("t").unwrap();
    assert_eq!(mount.find("t").unwrap().mtime, before, "newer chunks alone are not a change of the document");
    std::thread::sleep(Duration::from_millis(5));
    mount.put("t/c/0/0", chunk(&[5, 4, 3, 2, 1, 0]));
    assert_eq!(mount.find("t").unwrap().mtime, before, "not seen yet");
    mount.read("t").unwrap();
    let changed = mount.find("t").unwrap().mtime;
    assert!(changed > before);
    mount.store.delete("t/c/1/0");
    mount.read("t").unwrap();
    assert!(mount.find("t").unwrap().mtime > changed, "a chunk that went has no time of its own");
}

/// A format of a header and the array's bytes: `formats/tagged.rs`.
#[test]
fn a_companion_shares_the_open_array() {
    let mount = Mount::sample();
    let path = "__formats__/tagged/t.tagged";
    assert_eq!(mount.names("__formats__/tagged"), ["t.tagged"]);
    assert_eq!(mount.find(path).unwrap().size_bytes, 16 + 24);
    let content = [b"tagged       24\n".to_vec(), bytes_of(0..12)].concat();
    let handle = mount.open(path).unwrap();
    for (from, length) in [(0, 40), (0, 16), (0, 20), (16, 24), (20, 12), (39, 9), (40, 9)] {
        let read = mount.read_handle(handle, from, length).unwrap();
        assert_eq!(read, content[from as usize..40.min(from as usize + length as usize)], "{from} {length}");
    }
    assert_eq!(mount.read("t").unwrap(), bytes_of(0..12));
    let decoded = mount.fs.engine.counters().decoded_chunks;
    assert_eq!(decoded, 2, "each chunk once, for both files");
    // In memory, without a copy.
    let mut buffer = ReplyBuffer::default();
    let cached = mount.fs.try_read(handle, 16, 12, &mut buffer).unwrap();
    assert!(matches!(cached, Some(ReadData::Cached(bytes)) if bytes[..] == bytes_of(0..6)));
    // What is replaced before an open is not shown by it, also through the other file.
    mount.put("t/c/0/0", chunk(&[5, 4, 3, 2, 1, 0]));
    let changed = bytes_of([5, 4, 3, 2, 1, 0].into_iter().chain(6..12));
    assert_eq!(mount.read(path).unwrap()[16..], changed);
    assert_eq!(mount.read("t").unwrap(), changed);
    // Growth keeps the open file, and replacement ends it.
    let handle = mount.open(path).unwrap();
    mount.put("t/zarr.json", array(&[6, 3], 9).to_string());
    assert_eq!(mount.find(path).unwrap().size_bytes, 16 + 36);
    assert_eq!(mount.read_handle(handle, 16, 99).unwrap(), changed);
    assert_eq!(mount.read(path).unwrap()[40..], bytes_of([9; 6]));
    mount.put("t/zarr.json", array(&[4, 3], 9).to_string());
    assert_eq!(mount.find(path).unwrap().size_bytes, 40);
    assert_eq!(mount.read_handle(handle, 16, 24), Err(libc::ESTALE));
    let mut unreadable = array(&[4, 3], 9);
    unreadable["codecs"][1]["name"] = json!("squeeze");
    mount.put("u/zarr.json", unreadable.to_string());
    assert_eq!(mount.find("__formats__/tagged/u.tagged").unwrap().size_bytes, 0);
    assert_eq!(mount.open("__formats__/tagged/u.tagged"), Err(libc::EOPNOTSUPP));
}
