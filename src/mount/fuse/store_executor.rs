//! Runs requests that store data (close, fsync, a synchronous write, the last release): each on its own
//! thread, as long as progress is made. A watchdog fails those that hang with EIO.
//!
//! A store that hangs must not block its users for ever: a program that exits waits for its closes and cannot
//! even be killed. The written data stays dirty and is stored later, so EIO is true as far as can be known.
//! As long as any object is stored anywhere, nothing is given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::mount::fs::FileSystem;
use crate::mount::fs::error::FsResult;
use crate::mount::fs::request::Request;
use crate::mount::fuse::executor::{Reply, guard};

/// The interval of the watchdog.
const TICK: Duration = Duration::from_millis(250);

/// A reply that is not sent yet. The thread that takes it sends it.
struct PendingReply<R>(Mutex<Option<R>>);

/// What the watchdog needs of a reply.
trait Expire: Send + Sync {
    fn is_done(&self) -> bool;
    /// Replies EIO if there was no reply yet; returns whether this was so.
    fn fail(&self) -> bool;
}

impl<R: Reply + Send> Expire for PendingReply<R> {
    fn is_done(&self) -> bool {
        self.0.lock().is_none()
    }

    fn fail(&self) -> bool {
        let taken = self.0.lock().take();
        taken.map(|reply| reply.fail(libc::EIO)).is_some()
    }
}

struct Waiting {
    request: Request,
    reply: Arc<dyn Expire>,
    since: Instant,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Vec<Waiting>>,
    arrived: Condvar,
}

/// The threads that store, and their watchdog.
pub struct StoreExecutor {
    shared: Arc<Shared>,
    fs: Arc<FileSystem>,
}

impl StoreExecutor {
    /// Starts the watchdog.
    pub fn new(fs: Arc<FileSystem>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (watched, watching) = (shared.clone(), fs.clone());
        let watch = move || watch(&watched, &watching);
        std::thread::Builder::new().name("zarrfs-wb-watch".to_owned()).spawn(watch)?;
        Ok(StoreExecutor { shared, fs })
    }

    /// Runs `store`, and replies with its failure or with what `send` makes of its result.
    pub fn run<R: Reply + Send + 'static, T>(
        &self,
        request: Request,
        reply: R,
        store: impl FnOnce(&FileSystem) -> FsResult<T> + Send + 'static,
        send: impl FnOnce(R, T) + Send + 'static,
    ) {
        let reply = Arc::new(PendingReply(Mutex::new(Some(reply))));
        self.shared.waiting.lock().push(Waiting { request, reply: reply.clone(), since: Instant::now() });
        self.shared.arrived.notify_one();
        let (fs, pending) = (self.fs.clone(), reply.clone());
        let run = move || {
            guard("write-back", || {
                let outcome = store(&fs);
                let Some(reply) = pending.0.lock().take() else { return };
                match outcome {
                    Ok(value) => send(reply, value),
                    Err(failure) => reply.fail(failure.errno()),
                }
            });
            pending.fail();
        };
        if let Err(error) = std::thread::Builder::new().name("store".to_owned()).spawn(run) {
            log::error!("cannot start the write-back thread: {error}");
            reply.fail();
        }
    }
}

fn watch(shared: &Shared, fs: &FileSystem) {
    let deadline = fs.options().request_deadline;
    let mut stored = fs.stored_objects();
    let mut last_news = Instant::now();
    loop {
        let mut waiting = shared.waiting.lock();
        waiting.retain(|one| !one.reply.is_done());
        if waiting.is_empty() {
            shared.arrived.wait(&mut waiting);
        }
        let stored_now = fs.stored_objects();
        if stored_now != stored {
            (stored, last_news) = (stored_now, Instant::now());
        }
        let is_overdue = |one: &Waiting| one.since.max(last_news).elapsed() >= deadline;
        let overdue: Vec<Waiting> = waiting.extract_if(.., |one| is_overdue(one)).collect();
        drop(waiting);
        for one in overdue {
            if one.reply.fail() {
                fs.note_overdue(one.request);
            }
        }
        std::thread::sleep(TICK);
    }
}
