//! The decoding threads: demanded units first, then what is decoded ahead.
//!
//! Uses `sync.rs` alone. Invariant: a task never waits for another task of the queue, so that the
//! threads cannot lock each other out.

use std::collections::VecDeque;
use std::sync::Arc;

use super::sync::atomic::{AtomicUsize, Ordering};
use super::sync::thread::{self, JoinHandle};
use super::sync::{self, Condvar, Mutex};

/// Work for a thread.
pub type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    demanded: VecDeque<Task>,
    ahead: VecDeque<Task>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    /// Tasks that wait or run.
    unfinished: AtomicUsize,
}

/// A fixed number of threads with two queues.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `threads` threads (at least 1). Fewer, if the system gives no more.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = (0..threads.max(1))
            .filter_map(|number| {
                let shared = Arc::clone(&shared);
                match sync::spawn(format!("decode-{number}"), move || work(&shared)) {
                    Ok(handle) => Some(handle),
                    Err(error) => {
                        log::warn!("cannot start decoding thread {number}: {error}");
                        None
                    }
                }
            })
            .collect();
        Workers { shared, threads }
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Queues work that a reader waits for.
    pub fn demand(&self, task: Task) {
        self.shared.unfinished.fetch_add(1, Ordering::Relaxed);
        self.shared.queue.lock().demanded.push_back(task);
        self.shared.filled.notify_one();
    }

    /// Queues work that nobody waits for yet.
    pub fn ahead(&self, task: Task) {
        self.shared.unfinished.fetch_add(1, Ordering::Relaxed);
        self.shared.queue.lock().ahead.push_back(task);
        self.shared.filled.notify_one();
    }

    /// Whether no task waits or runs.
    pub fn are_idle(&self) -> bool {
        self.shared.unfinished.load(Ordering::Relaxed) == 0
    }

    /// Tasks of the second queue that have not begun.
    pub fn waiting_ahead(&self) -> usize {
        self.shared.queue.lock().ahead.len()
    }
}

fn work(shared: &Shared) {
    loop {
        let task = {
            let mut queue = shared.queue.lock();
            loop {
                if let Some(task) = queue.demanded.pop_front() {
                    break task;
                }
                if let Some(task) = queue.ahead.pop_front() {
                    break task;
                }
                if queue.closed {
                    return;
                }
                shared.filled.wait(&mut queue);
            }
        };
        // A panic in a codec library costs its reader an error, not the mount a thread.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).is_err() {
            log::error!("a decoding task panicked; the request that needed it fails");
        }
        shared.unfinished.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            queue.ahead.clear();
        }
        self.shared.filled.notify_all();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
