//! The decoding threads. They take demanded tasks first, then tasks of readahead.
//!
//! Uses `sync.rs` alone. Invariant: a task never waits for another task of the queue, so the threads cannot deadlock.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::array::sync::atomic::{AtomicUsize, Ordering};
use crate::array::sync::thread::{self, JoinHandle};
use crate::array::sync::{self, Condvar, Mutex};

/// A thread joins shared work only if its share is at least this long.
const MIN_SHARE: usize = 64;

/// One piece of work for a thread.
pub type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct QueuedTasks {
    demanded: VecDeque<Task>,
    ahead: VecDeque<Task>,
    closed: bool,
}

#[derive(Default)]
struct TaskQueue {
    queue: Mutex<QueuedTasks>,
    filled: Condvar,
}

/// A fixed number of threads with two queues.
pub struct Workers {
    shared: Arc<TaskQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `threads` threads (at least 1), or fewer if the system refuses some.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(TaskQueue::default());
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

    /// Returns how many threads there are.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// Queues a task that a reader waits for.
    pub fn demand(&self, task: Task) {
        self.shared.queue.lock().demanded.push_back(task);
        self.shared.filled.notify_one();
    }

    /// Queues a task of readahead, for which no reader waits yet.
    pub fn ahead(&self, task: Task) {
        self.shared.queue.lock().ahead.push_back(task);
        self.shared.filled.notify_one();
    }

    /// Calls `run` with each number below `count`, on this thread and on idle decoding threads, until `run` breaks.
    /// Returns when no call runs any more.
    pub fn share(&self, count: usize, run: impl Fn(usize) -> ControlFlow<()> + Send + Sync + 'static) {
        let taken = AtomicUsize::new(0);
        let share =
            Arc::new(SharedWork { count, run, taken, under_way: Mutex::new(0), ended: Condvar::new() });
        // A thread that finds no number left does not join, so this thread never waits for the queue.
        for _ in 1..self.count().min(count / MIN_SHARE) {
            let share = Arc::clone(&share);
            self.demand(Box::new(move || share.work()));
        }
        share.work();
        let mut under_way = share.under_way.lock();
        while *under_way > 0 {
            share.ended.wait(&mut under_way);
        }
    }

    /// Waits until the only thread has nothing to do.
    #[cfg(test)]
    pub fn wait_until_idle(&self) {
        assert_eq!(self.count(), 1, "another thread may still work when the last task begins");
        loop {
            let (sender, ended) = std::sync::mpsc::channel::<()>();
            self.ahead(Box::new(move || drop(sender)));
            // The queue is in order, so everything before this task has ended. It may have queued more.
            let _ = ended.recv();
            let queue = self.shared.queue.lock();
            if queue.demanded.is_empty() && queue.ahead.is_empty() {
                return;
            }
        }
    }

    /// Returns how many tasks of readahead have not started.
    pub fn waiting_ahead(&self) -> usize {
        self.shared.queue.lock().ahead.len()
    }
}

/// Calls that several threads share.
struct SharedWork<F> {
    count: usize,
    run: F,
    /// The lowest number that is not taken.
    taken: AtomicUsize,
    /// How many threads take part now.
    under_way: Mutex<usize>,
    ended: Condvar,
}

impl<F: Fn(usize) -> ControlFlow<()>> SharedWork<F> {
    fn work(&self) {
        struct FinishGuard<'a>(&'a Mutex<usize>, &'a Condvar);
        impl Drop for FinishGuard<'_> {
            fn drop(&mut self) {
                *self.0.lock() -= 1;
                self.1.notify_all();
            }
        }
        *self.under_way.lock() += 1;
        let _guard = FinishGuard(&self.under_way, &self.ended);
        loop {
            let number = self.taken.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            if (self.run)(number).is_break() {
                self.taken.store(self.count, Ordering::Relaxed);
                return;
            }
        }
    }
}

fn work(shared: &TaskQueue) {
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
        // A panic in a codec library fails one request. It does not end a thread of the mount.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).is_err() {
            log::error!("a decoding task panicked; its request fails");
        }
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
