//! A part of a store that hangs: a FUSE file system of its own, mounted in the store, which answers nothing while its gate is closed
//! and has no files when it is open. Or one that is slow: it has no files, and takes its time to say so.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, INodeNo, ReplyAttr, ReplyEntry, Request,
};

/// The requests that wait; `None` when the gate is open.
type Waiting = Arc<Mutex<Option<Vec<ReplyEntry>>>>;

struct Hanging {
    waiting: Waiting,
    /// How long a slow folder lets each request wait.
    delay: Option<Duration>,
}

/// Names the folder in the environment of the process that serves it.
const SERVED: &str = "ZARRFS_TEST_HANGING_FOLDER";
const SERVER: &str = "hanging_store::serves_a_hanging_folder";
/// Names how slow the folder is, in milliseconds.
const DELAY: &str = "ZARRFS_TEST_SLOW_FOLDER_MS";
const READY: &str = "the hanging folder is served";
const HANGS: &str = "a request hangs";

const FOLDER: FileAttr = FileAttr {
    ino: INodeNo::ROOT,
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::Directory,
    perm: 0o755,
    nlink: 1,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 512,
    flags: 0,
};

impl Filesystem for Hanging {
    fn lookup(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        if let Some(delay) = self.delay {
            println!("{HANGS}");
            std::thread::sleep(delay);
            return reply.error(Errno::ENOENT);
        }
        match self.waiting.lock().unwrap().as_mut() {
            Some(waiting) => {
                waiting.push(reply);
                println!("{HANGS}");
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(3600), &FOLDER);
    }
}

/// Serves until standard input is closed, in the process that [`HangingFolder::new`] starts.
pub fn serve() {
    let Some(path) = std::env::var_os(SERVED) else { return };
    let waiting: Waiting = Arc::new(Mutex::new(Some(Vec::new())));
    let delay = std::env::var(DELAY).ok().map(|delay| Duration::from_millis(delay.parse().unwrap()));
    let folder = Hanging { waiting: waiting.clone(), delay };
    let _session = fuser::spawn_mount(folder, path, &Config::default()).unwrap();
    println!("{READY}");
    let mut lines = std::io::stdin().lines();
    if lines.next().is_some() {
        for reply in waiting.lock().unwrap().take().into_iter().flatten() {
            reply.error(Errno::ENOENT);
        }
    }
    for _ in lines {}
    // The kernel fails what still waits.
    std::process::exit(0);
}

/// A folder that hangs as long as this lives, or until [`HangingFolder::open`]. Served by a process of its own: one that waits for
/// itself could not even be killed.
pub struct HangingFolder {
    path: PathBuf,
    server: Child,
    waiting: Arc<AtomicUsize>,
}

impl HangingFolder {
    /// Mounts a hanging folder over an empty one. The test [`SERVER`] calls [`serve`].
    pub fn new(path: &Path) -> Self {
        HangingFolder::start(path, None)
    }

    /// Mounts a folder that takes this long to reply that a name does not exist.
    pub fn slow(path: &Path, delay: Duration) -> Self {
        HangingFolder::start(path, Some(delay))
    }

    fn start(path: &Path, delay: Option<Duration>) -> Self {
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", SERVER, "--nocapture"])
            .env(SERVED, path)
            .envs(delay.map(|delay| (DELAY, delay.as_millis().to_string())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let is_ready = lines.by_ref().any(|line| line.unwrap().ends_with(READY));
        assert!(is_ready, "the hanging folder is not served");
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = waiting.clone();
        std::thread::spawn(move || {
            for _ in lines.map_while(Result::ok).filter(|line| line == HANGS) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        HangingFolder { path: path.to_owned(), server, waiting }
    }

    /// Returns how many requests have hung, or were slow.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Answers everything from now on: there is nothing.
    pub fn open(&self) {
        self.server.stdin.as_ref().unwrap().write_all(b"open\n").unwrap();
    }
}

impl Drop for HangingFolder {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
    }
}
