//! `zarrfs cache fill STORE`: fetches all stored objects into the disk cache.
//!
//! Uses `hierarchy` and `store`. Objects are fetched as they are, and nothing is decoded. At the end, everything is read once more without the
//! service, because the cache may be too small, and because other processes may remove what was kept.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use clap::Args;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use zarrfs::array::{Array, Engine, Layout};
use zarrfs::error::{Error, Result, grouped};
use zarrfs::hierarchy::{Node, Tree};
use zarrfs::metadata::ArrayMetadata;
use zarrfs::store::overlay::Access;
use zarrfs::store::{Store, Traffic, Wanted, join};

use crate::cli::exit::{Exit, Outcome};
use crate::cli::log;
use crate::cli::nodes::open;
use crate::cli::options::size;
use crate::cli::options::{LogArguments, StoreArguments};
use crate::cli::output::{self, progress};

/// The most objects at one time, each with two pieces in memory.
const MAX_JOBS: u64 = 32;
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

/// The arguments of the command.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArguments,

    /// Only these arrays and groups, and the metadata above them
    #[arg(value_name = "PATH")]
    paths: Vec<String>,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Fills the cache.
    pub fn run(self) -> Outcome {
        log::start(&self.log)?;
        let mut options = self.store.access.options(&self.store.store, Access::Read)?;
        match options.remote.disk_cache.as_mut() {
            None => {
                return Err(Exit::Usage("name the folder of the disk cache: --disk-cache DIR".to_owned()));
            }
            Some(cache) if cache.is_offline => {
                return Err(Exit::Usage("with --offline nothing can be fetched: leave it out".to_owned()));
            }
            Some(cache) => cache.must_keep = true,
        }
        let store = open::zarr_store(&self.store.store, &options)?;
        let paths: Vec<String> = self.paths.iter().map(|path| open::path(path)).collect();
        let tree = Tree::for_one_look(Arc::clone(&store));
        for path in &paths {
            if tree.node(path)?.is_none() {
                return Err(open::unknown_node(&tree, path));
            }
        }
        let jobs =
            options.remote.max_connections.map_or(MAX_JOBS, |connections| MAX_JOBS.min(connections as u64));
        // A web server that does not list is asked for all chunks that the documents declare.
        let is_listed =
            !matches!(store.each_name("", &mut |_| ControlFlow::Break(())), Err(Error::Unlisted { .. }));
        let fill = Fill::new(store.as_ref(), progress::fetched(!self.quiet), Pass::Fetch, is_listed);
        fill.run(&tree, &paths, jobs);
        fill.check_fetched()?;

        if let Some(cache) = options.remote.disk_cache.as_mut() {
            (cache.must_keep, cache.is_offline) = (false, true);
        }
        let bar = progress::verified(!self.quiet);
        let is_there = match open::zarr_store(&self.store.store, &options) {
            Ok(offline) => {
                let check = Fill::new(offline.as_ref(), bar, Pass::Check, is_listed);
                check.run(&Tree::for_one_look(Arc::clone(&offline)), &paths, jobs);
                check.failed.into_inner() == 0
            }
            Err(error) => {
                output::note(error);
                false
            }
        };
        fill.finish(is_there, self.quiet)
    }
}

/// What a pass over the store does with each object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Fetches it, and keeps it in the cache.
    Fetch,
    /// Reads it from the cache. The first missing object ends the pass.
    Check,
}

/// A pass over the store, and what it has counted so far.
struct Fill<'a> {
    store: &'a dyn Store,
    bar: ProgressBar,
    objects: AtomicU64,
    bytes: AtomicU64,
    /// The room that the objects take in the cache, at least.
    room_bytes: AtomicU64,
    pass: Pass,
    /// Whether the store says what is in a folder.
    is_listed: bool,
    failed: AtomicU64,
    /// Whether the pass has ended early.
    is_ended: AtomicBool,
}

impl<'a> Fill<'a> {
    fn new(store: &'a dyn Store, bar: ProgressBar, pass: Pass, is_listed: bool) -> Self {
        let zero = || AtomicU64::new(0);
        let (objects, bytes, room_bytes, failed) = (zero(), zero(), zero(), zero());
        let is_ended = AtomicBool::new(false);
        Fill { store, bar, objects, bytes, room_bytes, pass, is_listed, failed, is_ended }
    }

    /// Goes through all objects below these paths and the metadata above them. Without paths, goes through everything.
    fn run(&self, tree: &Tree, paths: &[String], jobs: u64) {
        let (sender, receiver) = sync_channel::<String>(KEYS_AHEAD);
        let receiver = Mutex::new(receiver);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let next = receiver.lock().recv();
                        let Ok(key) = next else { return };
                        if !self.is_ended.load(Ordering::Relaxed) {
                            self.count(retry(|| fetch(self.store, &key)));
                        }
                    }
                });
            }
            if paths.is_empty() {
                self.send_below(tree, "", &sender);
            }
            for path in paths {
                let mut above = path.as_str();
                while !above.is_empty() {
                    above = above.rsplit_once('/').map_or("", |(above, _)| above);
                    if self.is_listed {
                        self.send_folder(above, &sender);
                    }
                }
                self.send_below(tree, path, &sender);
            }
            drop(sender);
        });
        self.bar.finish_and_clear();
    }

    /// Sends the keys of all objects below a path.
    fn send_below(&self, tree: &Tree, path: &str, keys: &SyncSender<String>) {
        // The walk also looks up documents: a mount looks up missing ones, and some web servers do not list names that begin with a dot.
        for visit in tree.walk(path, usize::MAX) {
            match visit.node {
                Err(error) | Ok(Node::Broken { error: error @ Error::Store { .. }, .. }) => {
                    self.count(Err(error));
                }
                Ok(Node::Array { metadata, .. }) if !self.is_listed => {
                    if let Err(error) = self.send_declared(tree, &visit.path, metadata, keys) {
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
        while let Some(folder) = folders.pop().filter(|_| !self.is_ended.load(Ordering::Relaxed)) {
            self.bar.set_message(open::shown(&folder));
            folders.extend(self.send_folder(&folder, keys));
        }
    }

    /// Sends the keys of all objects that an array may have.
    fn send_declared(
        &self,
        tree: &Tree,
        path: &str,
        metadata: Arc<ArrayMetadata>,
        keys: &SyncSender<String>,
    ) -> Result<()> {
        self.bar.set_message(open::shown(path));
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
            let is_over = self.is_ended.load(Ordering::Relaxed) || keys.send(key).is_err();
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// Sends the keys of the objects directly in a folder, and returns the folders in it.
    fn send_folder(&self, folder: &str, keys: &SyncSender<String>) -> Vec<String> {
        let mut folders = Vec::new();
        let listed = retry(|| {
            self.store.each_name(folder, &mut |entry| {
                let key = join(folder, &entry.name);
                if entry.is_folder {
                    folders.push(key);
                    return ControlFlow::Continue(());
                }
                keys.send(key).map_or(ControlFlow::Break(()), ControlFlow::Continue)
            })
        });
        if let Err(error) = listed {
            self.count(Err(error));
        }
        folders
    }

    /// Counts an object, or prints why it is not kept.
    fn count(&self, fetched: Result<u64>) {
        let error = match fetched {
            Ok(bytes) => {
                self.objects.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                let room = (bytes.div_ceil(BLOCK_BYTES) + bytes.div_ceil(PIECE_BYTES).max(1)) * BLOCK_BYTES;
                self.room_bytes.fetch_add(room, Ordering::Relaxed);
                return self.bar.inc(bytes);
            }
            Err(error) => error,
        };
        let is_end = self.pass == Pass::Check || kind(&error) == Some(io::ErrorKind::StorageFull);
        if !is_end || !self.is_ended.swap(true, Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.bar.suspend(|| output::note(error));
        }
    }

    /// Returns what the store has requested from its service.
    fn traffic(&self) -> Option<Traffic> {
        self.store.remote()?.traffic()
    }

    /// Fails if something could not be fetched and kept.
    fn check_fetched(&self) -> Outcome {
        if self.is_ended.load(Ordering::Relaxed) {
            let objects = output::count(self.objects.load(Ordering::Relaxed), "object");
            return Err(Exit::Failed(format!("the disk cache has no room after {objects}")));
        }
        match self.failed.load(Ordering::Relaxed) {
            0 => {}
            1 => return Err(Exit::Failed("this is not in the disk cache".to_owned())),
            failed => return Err(Exit::Failed(format!("these {failed} are not in the disk cache"))),
        }
        // References open their targets when those are read, so only now is it known whether the store is remote.
        if self.traffic().and_then(|traffic| traffic.disk_cache).is_none() {
            let url = self.store.describe();
            return Err(Exit::Failed(format!("{url}: this store is not remote, so nothing is kept")));
        }
        Ok(())
    }

    /// Reports what is in the cache. `is_there` is whether the second pass found all of it there.
    fn finish(self, is_there: bool, is_quiet: bool) -> Outcome {
        let traffic = self.traffic();
        let (objects, bytes) = (output::count(self.objects.into_inner(), "object"), self.bytes.into_inner());
        let received_bytes = traffic.as_ref().map_or(0, |traffic| traffic.received_bytes);
        let counts = traffic.and_then(|traffic| traffic.disk_cache).unwrap_or_default();
        if !is_there && counts.evicted > 0 {
            let (room, limit) = (size::show(self.room_bytes.into_inner()), size::show(counts.limit_bytes));
            return Err(Exit::Failed(format!(
                "{objects} take {room} with their listings, which is more than the disk cache keeps ({limit}): give a larger \
                 --disk-cache-size"
            )));
        }
        if !is_there {
            return Err(Exit::Failed(
                "some of what was fetched is no longer in the disk cache: end other programs that use it with a smaller \
                 --disk-cache-size, or that change the store, and run this again"
                    .to_owned(),
            ));
        }
        if !is_quiet {
            let (bytes, received) = (size::show(bytes), size::show(received_bytes));
            output::note(format_args!("{objects}, {bytes}, are in the disk cache; {received} were received"));
        }
        Ok(())
    }
}

fn kind(error: &Error) -> Option<io::ErrorKind> {
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
            Err(error) if kind(&error) == Some(io::ErrorKind::ResourceBusy) && attempts < MAX_ATTEMPTS => {
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
