//! How often the file system waits for a remote store. Round trips are counted, no time is asserted. With
//! `ZARRFS_LATENCY_MS` each one takes so long, and the time of an open is printed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::cancellation::Cancellation;
use crate::error::{Error, Result};
use crate::store::{
    GetReply, GetRequest, Info, ListEntry, Object, ObjectContent, Remote, StatFs, Store, Writer,
};

/// How many requests a remote store handles at a time.
const AT_A_TIME: usize = 64;
const LATENCY: &str = "ZARRFS_LATENCY_MS";

/// A store in memory that counts round trips, and may make each of them slow.
#[derive(Default)]
struct SlowStore {
    objects: MemoryStore,
    latency: Duration,
    round_trips: AtomicUsize,
    requests: AtomicUsize,
    /// Where a key ends with this, the store fails.
    failing: parking_lot::Mutex<Option<&'static str>>,
}

impl SlowStore {
    fn wait_for(&self, requests: usize) {
        let round_trips = requests.div_ceil(AT_A_TIME);
        self.round_trips.fetch_add(round_trips, Ordering::Relaxed);
        self.requests.fetch_add(requests, Ordering::Relaxed);
        if !self.latency.is_zero() {
            std::thread::sleep(self.latency * round_trips as u32);
        }
    }

    /// How many there were since the last call.
    fn take(&self) -> usize {
        self.round_trips.swap(0, Ordering::Relaxed)
    }
}

impl Store for SlowStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.wait_for(1);
        self.objects.open(key)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.wait_for(1);
        self.objects.content(key, limit_bytes)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.wait_for(1);
        self.objects.head(key)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        self.objects.writer()
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        self.wait_for(1);
        self.objects.list(folder)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.objects.statfs()
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }
}

impl Remote for SlowStore {
    fn get_many(&self, requests: &[GetRequest]) -> Vec<Result<GetReply>> {
        self.wait_for(requests.len());
        let store: &dyn Store = &self.objects;
        let failing = *self.failing.lock();
        let reply = |(request, reply): (&GetRequest, Result<GetReply>)| match failing {
            Some(end) if request.key.ends_with(end) => Err(Error::store(
                request.key.as_str(),
                "read",
                std::io::Error::from(std::io::ErrorKind::TimedOut),
            )),
            _ => reply,
        };
        requests.iter().zip(store.get_many(requests)).map(reply).collect()
    }

    fn head_many(&self, keys: &[&str]) -> Vec<Result<Option<Info>>> {
        self.wait_for(keys.len());
        let store: &dyn Store = &self.objects;
        store.head_many(keys)
    }
}

/// A file system over a remote store with these objects.
fn remote(objects: &[(String, Vec<u8>)]) -> (Arc<SlowStore>, FileSystem) {
    remote_with(objects, |_| {})
}

fn remote_with(
    objects: &[(String, Vec<u8>)],
    set: impl FnOnce(&mut Options),
) -> (Arc<SlowStore>, FileSystem) {
    let latency = std::env::var(LATENCY).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let store = Arc::new(SlowStore { latency: Duration::from_millis(latency), ..SlowStore::default() });
    for (key, bytes) in objects {
        store.objects.put(key, bytes.as_slice()).unwrap();
    }
    let mut options = Options::new("/data/sample.zarr", "/mnt");
    options.revalidate_seconds = 60.0;
    set(&mut options);
    let fs = FileSystem::new(Arc::new(options), store.clone());
    (store, fs)
}

fn object(key: &str, bytes: impl AsRef<[u8]>) -> (String, Vec<u8>) {
    (key.to_owned(), bytes.as_ref().to_vec())
}

fn find(fs: &FileSystem, path: &str) -> Attributes {
    let step = |inode: u64, name| fs.lookup(inode, name, Blocking::Yes).unwrap().attributes;
    let root = fs.attributes(ROOT, Blocking::Yes).unwrap().attributes;
    path.split('/').fold(root, |above, name| step(above.inode, name))
}

/// A program that died between a document and its copy, by which an array of a remote store is read.
#[test]
fn a_copy_that_is_behind_follows_the_document() {
    let root = json!({
        "zarr_format": 3, "node_type": "group",
        "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {"t": array(&[4, 3], 9)}}
    });
    let objects =
        [object("zarr.json", root.to_string()), object("t/zarr.json", array(&[6, 3], 9).to_string())];
    let (store, fs) = remote_with(&objects, |options| options.writable = true);
    assert_eq!(find(&fs, "t").size_bytes, 24);
    let open = || {
        let opened = fs.opens().open(find(&fs, "t").inode, libc::O_RDWR, &Cancellation::never());
        opened.map(|opened| opened.handle).map_err(|failure| failure.errno())
    };
    assert_eq!(open(), Err(libc::ESTALE), "the kernel looks it up again");
    assert_eq!(find(&fs, "t").size_bytes, 36);
    let handle = open().unwrap();
    fs.write(handle, 34, &[1, 2], false).unwrap();
    fs.flush(handle).unwrap();
    fs.opens().release(handle);
    let text = store.objects.get("zarr.json", 1 << 20).unwrap().unwrap();
    let now: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(now["consolidated_metadata"]["metadata"]["t"]["shape"], json!([6, 3]));
}

/// A service that does not give a document has replaced nothing.
#[test]
fn open_files_outlive_a_silence_of_the_service() {
    let objects = [object("zarr.json", GROUP), object("t/zarr.json", array(&[4, 3], 9).to_string())];
    let (store, fs) = remote_with(&objects, |options| options.writable = true);
    let inode = find(&fs, "t").inode;
    let open = || fs.opens().open(inode, libc::O_RDWR, &Cancellation::never()).map(|opened| opened.handle);
    let handle = open().unwrap();
    fs.write(handle, 0, &[1, 2], false).unwrap();
    *store.failing.lock() = Some("zarr.json");
    assert_eq!(open().unwrap_err().errno(), libc::ESTALE, "the kernel looks it up again");
    assert_eq!(open().unwrap_err().errno(), libc::EIO);
    *store.failing.lock() = None;
    fs.write(handle, 2, &[3, 4], false).unwrap();
    fs.flush(handle).unwrap();
    fs.opens().release(handle);
    assert_eq!(open().unwrap_err().errno(), libc::ESTALE, "the kernel looks it up again");
    fs.opens().release(open().unwrap());
}

#[test]
fn a_lookup_two_levels_deep() {
    let document = array(&[4, 3], 9).to_string();
    let v2 = r#"{"zarr_format":2,"shape":[4],"chunks":[4],"dtype":"<u2","fill_value":9,"order":"C","filters":null,"compressor":null}"#;
    let (v2_group, copies) = (
        r#"{"zarr_format":2}"#,
        format!(r#"{{"metadata":{{"g/.zgroup":{{"zarr_format":2}},"g/t/.zarray":{v2}}}}}"#),
    );
    for objects in [
        vec![object("zarr.json", GROUP), object("g/zarr.json", GROUP), object("g/t/zarr.json", &document)],
        vec![object(".zgroup", v2_group), object("g/.zgroup", v2_group), object("g/t/.zarray", v2)],
        vec![object(".zgroup", v2_group), object(".zmetadata", &copies)],
        vec![object("g/zarr.json", GROUP), object("g/t/zarr.json", &document)],
    ] {
        let (store, fs) = remote(&objects);
        let found = find(&fs, "g/t");
        assert!(!found.is_folder && found.size_bytes > 0);
        assert_eq!((found.mode, found.uid), (0o444, crate::sys::effective_ids().0));
        assert_eq!(find(&fs, "g").mode, 0o555);
        let round_trips = store.take();
        assert!(round_trips <= 4, "{round_trips} for {:?}", objects.first());
        find(&fs, "g/t");
        assert_eq!(store.take(), 0, "all of it is known");
    }
}

#[test]
fn below_a_known_group_one_document_is_asked_for() {
    let document = array(&[4, 3], 9).to_string();
    let (store, fs) = remote(&[
        object("zarr.json", GROUP),
        object("a/zarr.json", &document),
        object("b/zarr.json", &document),
        object(
            "c/.zarray",
            r#"{"zarr_format":2,"shape":[4],"chunks":[4],"dtype":"<u2","fill_value":9,"order":"C","filters":null,"compressor":null}"#,
        ),
    ]);
    find(&fs, "a");
    let asked = |name| {
        store.requests.store(0, Ordering::Relaxed);
        assert!(find(&fs, name).size_bytes > 0);
        store.requests.load(Ordering::Relaxed)
    };
    assert_eq!(asked("b"), 1);
    assert!(asked("c") <= 8, "a node of another version is found, too");
}

#[test]
fn consolidated_metadata_answers_for_all_below() {
    let v3 = array(&[4, 3], 9);
    let members: serde_json::Map<String, Value> = (0..200).map(|n| (format!("t{n}"), v3.clone())).collect();
    let root = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": members}});
    let (store, _) = remote(&[object("zarr.json", root.to_string())]);
    let tree = crate::hierarchy::Tree::new(store.clone());
    assert_eq!(tree.children("").unwrap().len(), 200);
    assert_eq!(store.take(), 1, "the group's documents");
    let before = tree.version("t7").unwrap().unwrap();
    let mut changed = root.clone();
    changed["attributes"] = json!({"a": 1});
    store.objects.put("zarr.json", changed.to_string().into_bytes()).unwrap();
    assert_ne!(tree.version("t7").unwrap().unwrap(), before, "the version of the group's document counts");
    assert_eq!(store.take(), 2, "one for each");
}

#[test]
fn a_listing_of_many_arrays_asks_no_more_for_any_of_them() {
    let count = 1000;
    let array_of = |n: usize, name: &str, document: &str| object(&format!("t{n}/{name}"), document);
    let v3 = array(&[4, 3], 9).to_string();
    let v2 = r#"{"zarr_format":2,"shape":[4],"chunks":[4],"dtype":"<u2","fill_value":9,"order":"C","filters":null,"compressor":null}"#;
    let members: serde_json::Map<String, Value> =
        (0..count).map(|n| (format!("t{n}"), array(&[4, 3], 9))).collect();
    let copies = json!({"zarr_format": 3, "node_type": "group", "attributes": {},
        "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": members}});
    let of_v2 = |n| [array_of(n, ".zarray", v2), array_of(n, ".zattrs", r#"{"units":"K"}"#)];
    // The documents of the root, a listing, and the documents of all members, where the root does not have them.
    for (objects, limit) in [
        (vec![object("zarr.json", copies.to_string())], 1),
        (
            std::iter::once(object("zarr.json", GROUP))
                .chain((0..count).map(|n| array_of(n, "zarr.json", &v3)))
                .collect(),
            2 + count.div_ceil(AT_A_TIME),
        ),
        (
            std::iter::once(object(".zgroup", r#"{"zarr_format":2}"#))
                .chain((0..count).flat_map(of_v2))
                .collect(),
            4 + (4 * count).div_ceil(AT_A_TIME),
        ),
    ] {
        let (store, fs) = remote(&objects);
        for round in 0..2 {
            let root = fs.attributes(ROOT, Blocking::Yes).unwrap().attributes.inode;
            let folder = fs.opens().open_folder(root).unwrap();
            let listing = fs.opens().listing(folder, Blocking::Yes).unwrap();
            let names: Vec<String> =
                listing.entries().iter().skip(2).map(|entry| entry.name.clone()).collect();
            assert_eq!(names.len(), 2 * count + 1, "with sidecars");
            for entry in listing.entries() {
                assert!(fs.entry_attributes(entry, Blocking::Yes).unwrap().attributes.mode > 0);
            }
            for name in &names {
                assert!(fs.lookup(root, name, Blocking::Yes).is_ok(), "{name}");
            }
            fs.opens().release(folder);
            let (round_trips, limit) = (store.take(), if round == 0 { limit } else { 0 });
            assert!(
                round_trips <= limit,
                "{round_trips} for {:?}, round {round}",
                objects.first().map(|o| &o.0)
            );
        }
    }
}

#[test]
fn a_failure_of_the_store_is_not_remembered() {
    let document = array(&[4, 3], 9).to_string();
    let objects =
        [object("zarr.json", GROUP), object("t/zarr.json", &document), object("u/zarr.json", &document)];
    let (store, fs) = remote(&objects);
    let list = || {
        let root = fs.attributes(ROOT, Blocking::Yes).unwrap().attributes.inode;
        let folder = fs.opens().open_folder(root).unwrap();
        let names = fs.opens().listing(folder, Blocking::Yes).unwrap().entries().len();
        fs.opens().release(folder);
        names
    };
    let whole = list();
    fs.expire();
    *store.failing.lock() = Some("t/zarr.json");
    assert_eq!(list(), whole, "what cannot be read is listed");
    assert_eq!(find(&fs, "t").size_bytes, 0);
    assert_eq!(find(&fs, "u").size_bytes, 24);
    *store.failing.lock() = None;
    assert_eq!(find(&fs, "t").size_bytes, 24);
}

#[test]
fn children_are_read_in_batches() {
    let document = array(&[4, 3], 9).to_string();
    let children = (0..128).map(|n| object(&format!("t{n}/zarr.json"), &document));
    let objects: Vec<_> = std::iter::once(object("zarr.json", GROUP)).chain(children).collect();
    let (store, _) = remote(&objects);
    let tree = crate::hierarchy::Tree::new(store.clone());
    assert_eq!(tree.children("").unwrap().len(), 128);
    let round_trips = store.take();
    assert!(round_trips <= 2 + 128_usize.div_ceil(AT_A_TIME), "{round_trips}");
}

#[test]
fn an_open_compares_a_thousand_chunks() {
    let rows = 2000;
    let chunks = (0..1000_u16).map(|n| object(&format!("t/c/{n}/0"), chunk(&[n; 6])));
    let documents = [object("zarr.json", GROUP), object("t/zarr.json", array(&[rows, 3], 9).to_string())];
    let objects: Vec<_> = documents.into_iter().chain(chunks).collect();
    let (store, fs) = remote(&objects);
    let inode = find(&fs, "t").inode;
    let open = || fs.opens().open(inode, libc::O_RDONLY, &Cancellation::never()).unwrap().handle;
    let read = |handle| {
        let mut buffer = ReplyBuffer::default();
        fs.read(handle, 0, (rows * 6) as u32, &mut buffer, &Cancellation::never()).unwrap().to_vec()
    };
    let handle = open();
    let old = read(handle);
    assert_eq!(old, bytes_of((0..1000_u16).flat_map(|n| [n; 6])));
    fs.opens().release(handle);
    let mut has_changed = false;
    let limit = 1000_usize.div_ceil(AT_A_TIME) + 2;
    for changed in [None, Some(7_u16), None] {
        if let Some(n) = changed {
            store.objects.put(&format!("t/c/{n}/0"), chunk(&[1; 6])).unwrap();
        }
        store.take();
        let started = Instant::now();
        let handle = open();
        if std::env::var_os(LATENCY).is_some() {
            println!("an open took {:?}", started.elapsed());
        }
        let round_trips = store.take();
        assert!(round_trips <= limit, "{round_trips}");
        has_changed |= changed.is_some();
        assert_eq!(read(handle) != old, has_changed);
        fs.opens().release(handle);
    }
}
