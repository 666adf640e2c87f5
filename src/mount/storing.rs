//! Requests that store (close, fsync, the last release): each runs on a thread of its own, however long it takes, and a watch
//! answers EIO for those that hang.
//!
//! A hung store must not hang its users for ever: a program that ends waits for its closes, and cannot even be killed. What was
//! written stays dirty and is tried again, so EIO is true as far as anybody can know. As long as anything gets stored
//! anywhere, nothing is given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::ReplyEmpty;
use parking_lot::{Condvar, Mutex};

use crate::mount::failure::Answer;
use crate::mount::fs::FileSystem;
use crate::mount::fuse::guard;
use crate::mount::pool::{Answerable, Request};

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(250);

/// Whoever takes it answers.
type Reply = Arc<Mutex<Option<ReplyEmpty>>>;

struct Waiting {
    request: Request,
    reply: Reply,
    since: Instant,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Vec<Waiting>>,
    arrived: Condvar,
}

/// The watch over what is being stored.
pub struct Storing {
    shared: Arc<Shared>,
    fs: Arc<FileSystem>,
}

impl Storing {
    /// Starts the watch.
    pub fn new(fs: Arc<FileSystem>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (watched, watching) = (shared.clone(), fs.clone());
        let watch = move || watch(&watched, &watching);
        std::thread::Builder::new().name("zarrfs-storing".to_owned()).spawn(watch)?;
        Ok(Storing { shared, fs })
    }

    /// Runs what stores, and answers with its outcome.
    pub fn run(
        &self,
        request: Request,
        reply: ReplyEmpty,
        store: impl FnOnce(&FileSystem) -> Answer<()> + Send + 'static,
    ) {
        let reply: Reply = Arc::new(Mutex::new(Some(reply)));
        self.shared.waiting.lock().push(Waiting { request, reply: reply.clone(), since: Instant::now() });
        self.shared.arrived.notify_one();
        let (fs, answered) = (self.fs.clone(), reply.clone());
        let run = move || {
            guard("storing", || {
                let outcome = store(&fs);
                let Some(reply) = answered.lock().take() else { return };
                match outcome {
                    Ok(()) => reply.ok(),
                    Err(failure) => reply.fail(failure.errno()),
                }
            });
            fail(&answered);
        };
        if let Err(error) = std::thread::Builder::new().name("store".to_owned()).spawn(run) {
            log::error!("cannot start a thread to store what was written: {error}");
            fail(&reply);
        }
    }
}

/// Answers EIO, unless it is answered; whether it was not.
fn fail(reply: &Reply) -> bool {
    let taken = reply.lock().take();
    taken.map(|reply| reply.fail(libc::EIO)).is_some()
}

fn watch(shared: &Shared, fs: &FileSystem) {
    let deadline = fs.options().request_deadline;
    let mut stored = fs.stored_objects();
    let mut last_news = Instant::now();
    loop {
        let mut waiting = shared.waiting.lock();
        waiting.retain(|one| one.reply.lock().is_some());
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
            if fail(&one.reply) {
                fs.note_overdue(one.request);
            }
        }
        std::thread::sleep(TICK);
    }
}
