//! `zarrfs cache fill STORE`: fetches everything that is stored, so that the disk cache has all of it.
//!
//! Uses `hierarchy` and `store`. Objects are fetched as they are, and nothing is decoded. What the command says at its end has been
//! tried: all is read once more without the service, because the cache may be too small, and others may remove what was kept.

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
/// Of an array that the service does not list, at most this many objects are asked for.
const MAX_DECLARED: u64 = 1 << 20;
/// Keys that are listed and wait to be fetched.
const KEYS_AHEAD: usize = 4096;
/// Files of the cache are counted in blocks of this size, and begin with one.
const BLOCK_BYTES: u64 = 4096;
/// How often an object is fetched again because other processes learn something else about it meanwhile.
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
        // Of a web server that does not list, all chunks are asked for that the documents declare.
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

/// What is done with each object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// It is fetched and kept.
    Fetch,
    /// It is read from the cache. The first that is not there ends the pass.
    Check,
}

/// What was fetched so far.
struct Fill<'a> {
    store: &'a dyn Store,
    bar: ProgressBar,
    objects: AtomicU64,
    bytes: AtomicU64,
    /// What they take in the cache, at least.
    room_bytes: AtomicU64,
    pass: Pass,
    /// Whether the store says what is in a folder.
    is_listed: bool,
    failed: AtomicU64,
    /// Nothing more can be kept, or need be looked at.
    is_ended: AtomicBool,
}

impl<'a> Fill<'a> {
    fn new(store: &'a dyn Store, bar: ProgressBar, pass: Pass, is_listed: bool) -> Self {
        let zero = || AtomicU64::new(0);
        let (objects, bytes, room_bytes, failed) = (zero(), zero(), zero(), zero());
        let is_ended = AtomicBool::new(false);
        Fill { store, bar, objects, bytes, room_bytes, pass, is_listed, failed, is_ended }
    }

    /// Does it with all below these paths and the metadata above them; everything, if there are none.
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
                            self.note(again(|| fetch(self.store, &key)));
                        }
                    }
                });
            }
            match paths {
                [] => self.below(tree, "", &sender),
                paths => {
                    for path in paths {
                        let mut above = path.as_str();
                        while !above.is_empty() {
                            above = above.rsplit_once('/').map_or("", |(above, _)| above);
                            if self.is_listed {
                                self.folder(above, &sender);
                            }
                        }
                        self.below(tree, path, &sender);
                    }
                }
            }
            drop(sender);
        });
        self.bar.finish_and_clear();
    }

    /// Sends the keys of all objects below a path.
    fn below(&self, tree: &Tree, path: &str, keys: &SyncSender<String>) {
        // A mount asks for documents that are missing, and some web servers list none that begin with a dot.
        for visit in tree.walk(path, usize::MAX) {
            match visit.node {
                Err(error) | Ok(Node::Broken { error: error @ Error::Store { .. }, .. }) => {
                    self.note(Err(error));
                }
                Ok(Node::Array { metadata, .. }) if !self.is_listed => {
                    if let Err(error) = self.declared(tree, &visit.path, metadata, keys) {
                        self.note(Err(error));
                    }
                }
                // A document that is there and not understood is kept all the same.
                Ok(_) => {}
            }
        }
        if !self.is_listed {
            return;
        }
        let mut folders = vec![path.to_owned()];
        while let Some(folder) = folders.pop().filter(|_| !self.is_ended.load(Ordering::Relaxed)) {
            self.bar.set_message(open::shown(&folder));
            folders.extend(self.folder(&folder, keys));
        }
    }

    /// Sends the keys of all objects that an array may have.
    fn declared(
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
                "the web server does not say what is stored of it, and {} chunks are too many to ask for each",
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
    fn folder(&self, folder: &str, keys: &SyncSender<String>) -> Vec<String> {
        let mut folders = Vec::new();
        let listed = again(|| {
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
            self.note(Err(error));
        }
        folders
    }

    /// Counts an object, or says why it is not kept.
    fn note(&self, fetched: Result<u64>) {
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

    /// What the store has asked of its service.
    fn traffic(&self) -> Option<Traffic> {
        self.store.remote()?.traffic()
    }

    /// Says what could not be fetched and kept.
    fn check_fetched(&self) -> Outcome {
        if self.is_ended.load(Ordering::Relaxed) {
            let objects = counted(self.objects.load(Ordering::Relaxed));
            return Err(Exit::Failed(format!("the disk cache has no room after {objects}")));
        }
        match self.failed.load(Ordering::Relaxed) {
            0 => {}
            1 => return Err(Exit::Failed("this is not in the disk cache".to_owned())),
            failed => return Err(Exit::Failed(format!("these {failed} are not in the disk cache"))),
        }
        // References open what they refer to when it is read.
        if self.traffic().and_then(|traffic| traffic.disk_cache).is_none() {
            let url = self.store.describe();
            return Err(Exit::Failed(format!("{url}: this store is not remote, so nothing is kept")));
        }
        Ok(())
    }

    /// Says what is in the cache; `is_there` if all of it was found there.
    fn finish(self, is_there: bool, is_quiet: bool) -> Outcome {
        let traffic = self.traffic();
        let (objects, bytes) = (counted(self.objects.into_inner()), self.bytes.into_inner());
        let received_bytes = traffic.as_ref().map_or(0, |traffic| traffic.received_bytes);
        let counts = traffic.and_then(|traffic| traffic.disk_cache).unwrap_or_default();
        if !is_there && counts.evicted > 0 {
            let (room, limit) = (size::show(self.room_bytes.into_inner()), size::show(counts.limit_bytes));
            return Err(Exit::Failed(format!(
                "{objects}, which take {room} there and their listings, do not stay in a disk cache of {limit}: name a \
                 larger --disk-cache-size"
            )));
        }
        if !is_there {
            return Err(Exit::Failed(
                "not all that was fetched is in the disk cache any more: end what else uses it with a smaller \
                 --disk-cache-size, or changes the store, and run this again"
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

fn counted(objects: u64) -> String {
    format!("{} {}", grouped(objects), if objects == 1 { "object" } else { "objects" })
}

fn kind(error: &Error) -> Option<io::ErrorKind> {
    match error {
        Error::Store { source, .. } => Some(source.kind()),
        _ => None,
    }
}

/// Does it again where another process learned something else of the object meanwhile.
fn again<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
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

/// Fetches an object, and returns its size; 0 if it has gone.
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
