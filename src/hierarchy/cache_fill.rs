//! Filling the disk cache with everything that a store has, and proving that it is there.
//!
//! Uses `tree.rs`, `array` and `store`. Objects are fetched as they are, and nothing is decoded. At the end, everything is read once more
//! without the service, because the cache may be too small, and because other processes may remove what was kept.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use parking_lot::Mutex;

use crate::array::{Array, Engine, Layout};
use crate::error::{Error, Result, grouped};
use crate::hierarchy::{Node, Tree};
use crate::metadata::ArrayMetadata;
use crate::store::{Store, Wanted, join};

/// Longer objects are fetched in pieces.
const PIECE_BYTES: u64 = 4 << 20;
/// The most objects that are requested of an array that the service does not list.
const MAX_DECLARED: u64 = 1 << 20;
/// Keys that are listed and wait to be fetched.
const KEYS_AHEAD: usize = 4096;
/// Files of the cache are counted in blocks of this size. Each file begins with a block of its own.
const BLOCK_BYTES: u64 = 4096;
/// How often an object is fetched if other processes find another version of it meanwhile.
const MAX_ATTEMPTS: u32 = 5;

/// What is fetched.
#[derive(Clone, Copy, Debug)]
pub struct FillScope<'a> {
    /// Nodes, with all that is below them and the metadata above. Without paths, everything.
    pub paths: &'a [String],
    /// The most objects at one time, each with two pieces in memory.
    pub jobs: u64,
}

/// What a fill reports. Its threads call it.
pub trait FillProgress: Sync {
    /// A folder or an array begins.
    fn enter(&self, path: &str);
    /// An object with this many bytes is done.
    fn record(&self, bytes: u64);
    /// Something is not in the cache, or cannot be listed.
    fn report(&self, error: Error);
}

/// How a fill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillOutcome {
    /// Everything is in the cache.
    Complete,
    /// This many objects and folders could not be fetched.
    Failed(u64),
    /// The cache has no more room.
    Full,
    /// The store keeps nothing in a disk cache.
    NotRemote,
    /// Some of what was fetched is no longer in the cache.
    Lacking,
}

/// What a fill has done.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    /// How it ended.
    pub outcome: FillOutcome,
    /// The objects that were fetched, or that the cache had already.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The room that they take in the cache, at least.
    pub room_bytes: u64,
}

/// Fetches everything into the disk cache of a store that must keep what it fetches. Then `offline` opens the same cache without the service,
/// and everything is read from it.
pub fn fill(
    store: &Arc<dyn Store>,
    scope: FillScope<'_>,
    progress: &dyn FillProgress,
    offline: impl FnOnce() -> Result<Arc<dyn Store>>,
) -> Filled {
    // A web server that does not list is asked for all chunks that the documents declare.
    let is_listed =
        !matches!(store.each_name("", &mut |_| ControlFlow::Break(())), Err(Error::Unlisted { .. }));
    let fetch = FillPass::new(store.as_ref(), progress, PassKind::Fetch, is_listed);
    fetch.run(&Tree::for_one_look(Arc::clone(store)), scope);
    let outcome = fetch.outcome().unwrap_or_else(|| {
        let is_there = match offline() {
            Ok(offline) => {
                let check = FillPass::new(offline.as_ref(), progress, PassKind::Check, is_listed);
                check.run(&Tree::for_one_look(Arc::clone(&offline)), scope);
                check.failed.into_inner() == 0
            }
            Err(error) => {
                progress.report(error);
                false
            }
        };
        if is_there { FillOutcome::Complete } else { FillOutcome::Lacking }
    });
    let FillPass { objects, bytes, room_bytes, .. } = fetch;
    let (objects, bytes, room_bytes) = (objects.into_inner(), bytes.into_inner(), room_bytes.into_inner());
    Filled { outcome, objects, bytes, room_bytes }
}

/// What a pass over the store does with each object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PassKind {
    /// Fetches it, and keeps it in the cache.
    Fetch,
    /// Reads it from the cache. The first missing object ends the pass.
    Check,
}

/// A pass over the store, and what it has counted so far.
struct FillPass<'a> {
    store: &'a dyn Store,
    progress: &'a dyn FillProgress,
    kind: PassKind,
    /// Whether the store says what is in a folder.
    is_listed: bool,
    objects: AtomicU64,
    bytes: AtomicU64,
    room_bytes: AtomicU64,
    failed: AtomicU64,
    /// Whether the pass has ended early.
    is_ended: AtomicBool,
}

impl<'a> FillPass<'a> {
    fn new(store: &'a dyn Store, progress: &'a dyn FillProgress, kind: PassKind, is_listed: bool) -> Self {
        let zero = || AtomicU64::new(0);
        let (objects, bytes, room_bytes, failed) = (zero(), zero(), zero(), zero());
        let is_ended = AtomicBool::new(false);
        FillPass { store, progress, kind, is_listed, objects, bytes, room_bytes, failed, is_ended }
    }

    /// Goes through all objects. One job needs no thread of its own.
    fn run(&self, tree: &Tree, scope: FillScope<'_>) {
        if scope.jobs <= 1 {
            return self.each_key(tree, scope.paths, &|key| self.visit(&key));
        }
        let (sender, receiver) = sync_channel::<String>(KEYS_AHEAD);
        let receiver = Mutex::new(receiver);
        std::thread::scope(|threads| {
            for _ in 0..scope.jobs {
                threads.spawn(|| {
                    loop {
                        let next = receiver.lock().recv();
                        let Ok(key) = next else { return };
                        self.visit(&key);
                    }
                });
            }
            self.each_key(tree, scope.paths, &|key| drop(sender.send(key)));
            drop(sender);
        });
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    fn flow(&self) -> ControlFlow<()> {
        if self.is_ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn visit(&self, key: &str) {
        if !self.is_ended() {
            self.count(retry(|| fetch(self.store, key)));
        }
    }

    /// Gives `take` the keys of all objects below these paths and of the metadata above them.
    fn each_key(&self, tree: &Tree, paths: &[String], take: &dyn Fn(String)) {
        if paths.is_empty() {
            self.each_below(tree, "", take);
        }
        for path in paths {
            let mut above = path.as_str();
            while !above.is_empty() {
                above = above.rsplit_once('/').map_or("", |(above, _)| above);
                if self.is_listed {
                    self.each_in_folder(above, take);
                }
            }
            self.each_below(tree, path, take);
        }
    }

    /// Gives `take` the keys of all objects below a path.
    fn each_below(&self, tree: &Tree, path: &str, take: &dyn Fn(String)) {
        // The walk also looks up documents: a mount looks up missing ones, and some web servers do not list names that begin with a dot.
        for visit in tree.walk(path, usize::MAX) {
            match visit.node {
                Err(error) | Ok(Node::Broken { error: error @ Error::Store { .. }, .. }) => {
                    self.count(Err(error));
                }
                Ok(Node::Array { metadata, .. }) if !self.is_listed => {
                    if let Err(error) = self.each_declared(tree, &visit.path, metadata, take) {
                        self.count(Err(error));
                    }
                }
                // A document that is not understood is kept all the same.
                Ok(_) => {}
            }
        }
        if !self.is_listed {
            return;
        }
        let mut folders = vec![path.to_owned()];
        while let Some(folder) = folders.pop().filter(|_| !self.is_ended()) {
            self.progress.enter(&folder);
            folders.extend(self.each_in_folder(&folder, take));
        }
    }

    /// Gives `take` the keys of all objects that an array may have.
    fn each_declared(
        &self,
        tree: &Tree,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        take: &dyn Fn(String),
    ) -> Result<()> {
        self.progress.enter(path);
        let engine = Engine::new(0, 1);
        let array = Array::open(&engine, tree.store(), path, metadata, Layout::default())?;
        if array.objects() > MAX_DECLARED {
            let reason = format!(
                "the web server does not list what is stored of it, and {} chunks are too many to look up one by one",
                grouped(array.objects())
            );
            return Err(Error::Unlisted { key: path.to_owned(), reason });
        }
        array.each_object_key(&mut |key| {
            take(key);
            self.flow()
        })
    }

    /// Gives `take` the keys of the objects directly in a folder. Returns the folders in it.
    fn each_in_folder(&self, folder: &str, take: &dyn Fn(String)) -> Vec<String> {
        let mut folders = Vec::new();
        let listed = retry(|| {
            self.store.each_name(folder, &mut |entry| {
                let key = join(folder, &entry.name);
                if entry.is_folder {
                    folders.push(key);
                } else {
                    take(key);
                }
                self.flow()
            })
        });
        if let Err(error) = listed {
            self.count(Err(error));
        }
        folders
    }

    /// Counts an object, or reports why it is not kept.
    fn count(&self, fetched: Result<u64>) {
        let error = match fetched {
            Ok(bytes) => {
                self.objects.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                let room = (bytes.div_ceil(BLOCK_BYTES) + bytes.div_ceil(PIECE_BYTES).max(1)) * BLOCK_BYTES;
                self.room_bytes.fetch_add(room, Ordering::Relaxed);
                return self.progress.record(bytes);
            }
            Err(error) => error,
        };
        let is_end = self.kind == PassKind::Check || cause(&error) == Some(io::ErrorKind::StorageFull);
        if !is_end || !self.is_ended.swap(true, Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.progress.report(error);
        }
    }

    /// Returns how the fill ended, if it did before everything was kept.
    fn outcome(&self) -> Option<FillOutcome> {
        if self.is_ended() {
            return Some(FillOutcome::Full);
        }
        match self.failed.load(Ordering::Relaxed) {
            0 => {}
            failed => return Some(FillOutcome::Failed(failed)),
        }
        // References open their targets when those are read, so only now is it known whether the store is remote.
        let traffic = self.store.remote().and_then(|remote| remote.traffic());
        if traffic.and_then(|traffic| traffic.disk_cache).is_none() {
            Some(FillOutcome::NotRemote)
        } else {
            None
        }
    }
}

fn cause(error: &Error) -> Option<io::ErrorKind> {
    match error {
        Error::Store { source, .. } => Some(source.kind()),
        _ => None,
    }
}

/// Repeats `work` if another process has found another version of the object meanwhile.
fn retry<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempts = 1;
    loop {
        match work() {
            Err(error) if cause(&error) == Some(io::ErrorKind::ResourceBusy) && attempts < MAX_ATTEMPTS => {
                attempts += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Fetches an object, and returns its size, or 0 if it has gone.
fn fetch(store: &dyn Store, key: &str) -> Result<u64> {
    let Some(object) = store.open_for(key, &Wanted::Range(0..PIECE_BYTES))? else { return Ok(0) };
    let size_bytes = object.size_bytes();
    let mut piece = vec![0; size_bytes.min(PIECE_BYTES) as usize];
    let mut offset = 0;
    while offset < size_bytes {
        let length = (size_bytes - offset).min(PIECE_BYTES);
        let Some(out) = piece.get_mut(..length as usize) else { break };
        object.read_exact_at(offset, out)?;
        offset += length;
    }
    Ok(size_bytes)
}
