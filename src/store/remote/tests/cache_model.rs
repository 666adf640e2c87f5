//! Random programs against a model: two stores with one disk cache, another program that changes the service, lost replies, kills.
//!
//! An offline read afterwards gives an error, or content as new as what any user of the cache has seen or written of that
//! object. It is never older, and never missing if the object was seen.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions as RemotePutOptions, PutPayload, PutResult, Result as Reply,
};
use parking_lot::Mutex;

use crate::store::remote::RemoteStore;
use crate::store::remote::test_services::{RandomNumbers, lost};
use crate::store::{
    DiskCacheOptions, Info, ObjectPart, ObjectVersion, Precondition, PutOptions, RemoteOptions, Store, Wanted,
};
use crate::test_level;

/// A fault of the next put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PutFault {
    RequestLost,
    ReplyLost,
}

/// A service in memory whose requests and replies may be lost.
#[derive(Debug, Default)]
struct Service {
    objects: InMemory,
    fault: Mutex<Option<PutFault>>,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test")
    }
}

#[async_trait]
impl ObjectStore for Service {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: RemotePutOptions,
    ) -> Reply<PutResult> {
        match self.fault.lock().take() {
            Some(PutFault::RequestLost) => return lost(),
            Some(PutFault::ReplyLost) => {
                self.objects.put_opts(path, payload, options).now_or_never().unwrap()?;
                return lost();
            }
            None => {}
        }
        self.objects.put_opts(path, payload, options).await
    }
    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Reply<Box<dyn MultipartUpload>> {
        lost()
    }
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Reply<GetResult> {
        self.objects.get_opts(path, options).await
    }
    fn delete_stream(&self, paths: BoxStream<'static, Reply<Path>>) -> BoxStream<'static, Reply<Path>> {
        self.objects.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Reply<ObjectMeta>> {
        self.objects.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Reply<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Reply<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

const KEYS: [&str; 5] = ["a/zarr.json", "a/c/0", "a/c/1", "b/0", "zarr.json"];
const FOLDERS: [&str; 4] = ["", "a", "a/c", "b"];
const ROOT: &str = "root";

/// The successive states of a key, and what the cache's users know of them.
#[derive(Default)]
struct Timeline {
    states: Vec<Option<Vec<u8>>>,
    /// The newest state that was seen in a reply to a request for the object, or written.
    seen: usize,
    /// The newest state whose presence or absence a listing showed.
    listed: usize,
}

impl Timeline {
    fn now(&self) -> usize {
        self.states.len() - 1
    }

    /// Whether a reply is right for some time since `first`.
    fn has_since(&self, first: usize, is_answer: impl Fn(&Option<Vec<u8>>) -> bool) -> bool {
        self.states[first..].iter().any(is_answer)
    }
}

struct World {
    service: Arc<Service>,
    folder: tempfile::TempDir,
    stores: [Option<RemoteStore>; 2],
    timelines: Vec<Timeline>,
    numbers: RandomNumbers,
    log: Vec<String>,
}

fn open(service: &Arc<Service>, folder: &FilePath, is_offline: bool) -> RemoteStore {
    let cache = DiskCacheOptions {
        folder: folder.to_owned(),
        limit_bytes: Some(1 << 30),
        is_offline,
        must_keep: false,
    };
    let options = RemoteOptions { disk_cache: Some(cache), ..RemoteOptions::default() };
    RemoteStore::over(Arc::clone(service) as _, ROOT, &options).unwrap()
}

fn read(store: &dyn Store, key: &str, is_ahead: bool) -> crate::error::Result<Option<Vec<u8>>> {
    if !is_ahead {
        return store.get(key, 1 << 20);
    }
    store.forget_transfers("");
    let Some(object) = store.open_for(key, &Wanted::Whole { at_most: 1 << 20 })? else { return Ok(None) };
    let mut bytes = vec![0; object.size_bytes() as usize];
    object.read_exact_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

impl World {
    fn new(seed: u64) -> Self {
        let timelines = KEYS.map(|_| Timeline { states: vec![None], ..Timeline::default() });
        World {
            service: Arc::default(),
            folder: tempfile::tempdir().unwrap(),
            stores: [None, None],
            timelines: timelines.into(),
            numbers: RandomNumbers::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            log: Vec::new(),
        }
    }

    fn path(key: usize) -> Path {
        Path::from(format!("{ROOT}/{}", KEYS[key]))
    }

    /// Records the state at the service, if it is new to the model.
    fn look(&mut self, key: usize) {
        let get = self.service.objects.get(&Self::path(key)).now_or_never().unwrap();
        let now = get.ok().map(|got| got.bytes().now_or_never().unwrap().unwrap().to_vec());
        if self.timelines[key].states.last() != Some(&now) {
            self.timelines[key].states.push(now);
        }
    }

    fn content(&mut self) -> Vec<u8> {
        let number = self.log.len() as u64;
        let length = 8 + self.numbers.below(3) as usize * 4;
        number.to_le_bytes().iter().copied().cycle().take(length).collect()
    }

    fn step(&mut self) {
        let (which, key) = (self.numbers.below(2) as usize, self.numbers.below(KEYS.len() as u64) as usize);
        let kind = self.numbers.below(20);
        let (service, folder) = (Arc::clone(&self.service), self.folder.path().to_owned());
        let store = self.stores[which].take().unwrap_or_else(|| open(&service, &folder, false));
        let name = KEYS[key];
        let mut is_closed = false;
        match kind {
            0..6 => {
                let is_ahead = kind < 3;
                self.log.push(format!("{which} reads {name}, ahead: {is_ahead}"));
                let timeline = &mut self.timelines[key];
                assert_eq!(read(&store, name, is_ahead).unwrap(), timeline.states[timeline.now()]);
                timeline.seen = timeline.now();
            }
            6 => {
                self.log.push(format!("{which} looks at {name}"));
                let timeline = &mut self.timelines[key];
                let size = store.head_object(name).unwrap().map(|info| info.size_bytes as usize);
                assert_eq!(size, timeline.states[timeline.now()].as_ref().map(Vec::len));
                timeline.seen = timeline.now();
            }
            7..10 => self.list(&store, which),
            10..13 => self.put(&store, which, key),
            13 => {
                self.log.push(format!("{which} deletes {name}"));
                store.writer().unwrap().delete(name, Precondition::Any).unwrap();
                self.look(key);
                self.timelines[key].seen = self.timelines[key].now();
            }
            14..17 => {
                self.log.push(format!("another program puts {name}"));
                let bytes = self.content();
                self.service.objects.put(&Self::path(key), bytes.into()).now_or_never().unwrap().unwrap();
                self.look(key);
            }
            17 => {
                self.log.push(format!("another program deletes {name}"));
                let _ = self.service.objects.delete(&Self::path(key)).now_or_never().unwrap();
                self.look(key);
            }
            18 => {
                self.log.push(format!("{which} is killed"));
                store.abandon_cache();
                is_closed = true;
            }
            _ => {
                self.log.push(format!("{which} ends"));
                is_closed = true;
            }
        }
        if !is_closed {
            self.stores[which] = Some(store);
        }
    }

    fn list(&mut self, store: &RemoteStore, which: usize) {
        let folder = FOLDERS[self.numbers.below(FOLDERS.len() as u64) as usize];
        self.log.push(format!("{which} lists '{folder}'"));
        store.list(folder).unwrap();
        for (key, timeline) in KEYS.iter().zip(&mut self.timelines) {
            if key.rsplit_once('/').map_or("", |(parent, _)| parent) == folder {
                timeline.listed = timeline.now();
            }
        }
    }

    fn put(&mut self, store: &RemoteStore, which: usize, key: usize) {
        let fault = [None, None, Some(PutFault::RequestLost), Some(PutFault::ReplyLost)];
        let fault = fault[self.numbers.below(4) as usize];
        self.log.push(format!("{which} puts {}: {fault:?}", KEYS[key]));
        let bytes = self.content();
        *self.service.fault.lock() = fault;
        let like = Info { size_bytes: 0, modified: None, version: ObjectVersion::numbered(0), posix: None };
        let options = PutOptions { precondition: Precondition::Any, ..PutOptions::new("a", &like) };
        let put = store.writer().unwrap().put(KEYS[key], &[ObjectPart::Bytes(&bytes)], &options);
        *self.service.fault.lock() = None;
        self.look(key);
        if put.is_ok() {
            self.timelines[key].seen = self.timelines[key].now();
        }
    }

    /// Checks what is served without the service.
    fn check_offline(&mut self) {
        let store = open(&self.service, self.folder.path(), true);
        for (key, timeline) in KEYS.iter().zip(&self.timelines) {
            for is_ahead in [false, true] {
                let Ok(answer) = read(&store, key, is_ahead) else { continue };
                let since = if answer.is_none() { timeline.seen.max(timeline.listed) } else { timeline.seen };
                let is_right = timeline.has_since(since, |state| *state == answer);
                assert!(is_right, "{key}: {answer:?} is older than what was seen: {:#?}", self.log);
            }
        }
        for folder in FOLDERS {
            let Ok(names) = store.list(folder) else { continue };
            for (key, timeline) in KEYS.iter().zip(&self.timelines) {
                let (parent, name) = key.rsplit_once('/').unwrap_or(("", key));
                if parent != folder {
                    continue;
                }
                let is_there = names.iter().any(|entry| entry.name == name);
                let since = timeline.seen.max(timeline.listed);
                let is_right = timeline.has_since(since, |state| state.is_some() == is_there);
                assert!(is_right, "{folder}: {name} is listed: {is_there}: {:#?}", self.log);
            }
        }
    }
}

/// `ZARRFS_MODEL_CASES=10000 cargo test --lib cache_model::` is a long run.
#[test]
fn offline_reads_are_never_older_than_earlier_ones() {
    let cases = test_level::count("ZARRFS_MODEL_CASES", 100, 1500);
    for seed in 0..cases {
        let mut world = World::new(seed + 1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for step in 0..30 {
                world.step();
                if step % 10 == 9 {
                    world.check_offline();
                }
            }
            world.stores = [None, None];
            world.check_offline();
        }));
        assert!(outcome.is_ok(), "program {seed} of {cases}");
    }
}
