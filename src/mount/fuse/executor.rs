//! The threads that may block on the store, so that session threads never do.
//!
//! A job belongs to a lane (an inode; its reads have a lane of their own). A lane runs at most
//! [`Limits::lane_threads`] jobs at once, so that the hanging store of one array leaves threads to the others. A
//! watchdog fails every request that has no reply by its deadline; the thread that hangs is written off and
//! another one started in its place.
//!
//! No FUSE types. Uses `fs` only for the description of a request, and `cancellation`, which tells the work whether its
//! reply is still waited for. Invariants: every reply is taken exactly
//! once; a lane's `offered` is how often the lane is in `ready`: the minimum of its queued jobs and the jobs
//! it may still start.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::cancellation::Cancellation;
use crate::mount::fs::request::Request;

/// A request that needs a reply.
pub trait Reply: Send + 'static {
    /// Replies with an errno.
    fn fail(self, errno: i32);
}

/// The reply to a request, shared with the watchdog: the first one to take it replies.
pub struct ReplySlot<R>(Arc<Mutex<Option<R>>>);

impl<R> ReplySlot<R> {
    /// The reply; `None` if the watchdog has already replied.
    pub fn take(&self) -> Option<R> {
        self.0.lock().take()
    }
}

impl<R: Send + 'static> ReplySlot<R> {
    /// Cancels the work once there was a reply.
    pub fn cancellation(&self) -> Cancellation {
        let reply = self.0.clone();
        Cancellation::when(move || reply.lock().is_none())
    }
}

trait Expire: Send + Sync {
    /// Fails the request if there was no reply yet; returns whether this was so.
    fn expire(&self) -> bool;
}

impl<R: Reply> Expire for Mutex<Option<R>> {
    fn expire(&self) -> bool {
        let reply = self.lock().take();
        reply.map(|reply| reply.fail(libc::EIO)).is_some()
    }
}

/// Runs a callback. fuser ends a thread that panics, and with the last thread the mount.
pub(super) fn guard(name: &str, callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        log::error!("{name} panicked, which is a bug; the request fails with an I/O error");
    }
}

/// Limits of concurrency and time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs of one lane.
    pub lane_threads: usize,
    /// Threads, not counting those that are written off.
    pub threads: usize,
    /// All threads; if this many hang, jobs wait until their deadline.
    pub threads_in_all: usize,
    /// A request fails without a reply after this long.
    pub deadline: Duration,
}

impl Limits {
    /// Limits for a number of decoding threads.
    pub fn new(threads: usize, deadline: Duration) -> Self {
        let lane_threads = threads.max(4);
        // Of four files all may hang.
        let threads = 8 * lane_threads;
        Limits { lane_threads, threads, threads_in_all: threads + 256, deadline }
    }
}

/// An idle thread ends after this long.
const IDLE_TIME: Duration = Duration::from_secs(30);

struct Job {
    work: Box<dyn FnOnce() + Send>,
    reply: Arc<dyn Expire>,
    number: u64,
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<Job>,
    running: usize,
    offered: usize,
}

/// A request without a reply.
struct PendingRequest {
    deadline: Instant,
    request: Request,
    is_running: bool,
    reply: Arc<dyn Expire>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<u64, Lane>,
    ready: VecDeque<u64>,
    /// By job number, which is also the order of the deadlines.
    pending: BTreeMap<u64, PendingRequest>,
    last_number: u64,
    threads: usize,
    idle: usize,
    /// Threads with a job that the watchdog failed, and that have not returned.
    written_off: usize,
    is_closed: bool,
}

impl State {
    fn offer(&mut self, key: u64, limits: &Limits) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        while lane.offered < lane.queue.len() && lane.running + lane.offered < limits.lane_threads {
            lane.offered += 1;
            self.ready.push_back(key);
        }
        if lane.queue.is_empty() && lane.running == 0 {
            self.lanes.remove(&key);
        }
    }

    fn next(&mut self) -> Option<(u64, Job)> {
        while let Some(key) = self.ready.pop_front() {
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            lane.offered -= 1;
            if let Some(job) = lane.queue.pop_front() {
                lane.running += 1;
                if let Some(pending) = self.pending.get_mut(&job.number) {
                    pending.is_running = true;
                }
                return Some((key, job));
            }
            if lane.running == 0 && lane.offered == 0 {
                self.lanes.remove(&key);
            }
        }
        None
    }

    fn finish(&mut self, key: u64, number: u64, limits: &Limits) {
        if self.pending.remove(&number).is_none() {
            self.written_off = self.written_off.saturating_sub(1);
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.running = lane.running.saturating_sub(1);
        }
        self.offer(key, limits);
    }
}

/// Called for each request that fails at its deadline.
type Overdue = Box<dyn Fn(Request) + Send + Sync>;

struct Shared {
    limits: Limits,
    overdue: Overdue,
    state: Mutex<State>,
    work: Condvar,
}

/// The threads and their queue.
pub struct Executor {
    shared: Arc<Shared>,
}

impl Executor {
    /// Starts the watchdog, which calls `overdue` for each request that it fails; workers are started as
    /// needed.
    pub fn new(limits: Limits, overdue: impl Fn(Request) + Send + Sync + 'static) -> std::io::Result<Self> {
        let overdue: Overdue = Box::new(overdue);
        let shared = Arc::new(Shared { limits, overdue, state: Mutex::default(), work: Condvar::new() });
        let watched = Arc::downgrade(&shared);
        let watch = move || {
            while let Some(shared) = watched.upgrade() {
                if shared.state.lock().is_closed {
                    return;
                }
                let next = shared.expire_overdue(Instant::now());
                drop(shared);
                std::thread::park_timeout(next.max(Duration::from_millis(1)));
            }
        };
        std::thread::Builder::new().name("zarrfs-watchdog".into()).spawn(watch)?;
        Ok(Executor { shared })
    }

    /// Runs `work` on another thread; it replies through the slot. The request fails with EIO if the work
    /// panics, does not reply, or has not replied by the deadline.
    pub fn submit<R: Reply>(
        &self,
        request: Request,
        reply: R,
        work: impl FnOnce(&ReplySlot<R>) + Send + 'static,
    ) {
        let lane = request.lane;
        let reply = Arc::new(Mutex::new(Some(reply)));
        let slot = ReplySlot(reply.clone());
        let reply: Arc<dyn Expire> = reply;
        let shared = &self.shared;
        let mut state = shared.state.lock();
        state.last_number += 1;
        let number = state.last_number;
        let deadline = Instant::now() + shared.limits.deadline;
        state
            .pending
            .insert(number, PendingRequest { deadline, request, is_running: false, reply: reply.clone() });
        let job = Job { work: Box::new(move || work(&slot)), reply, number };
        state.lanes.entry(lane).or_default().queue.push_back(job);
        state.offer(lane, &shared.limits);
        if !state.ready.is_empty() {
            shared.start_worker(&mut state);
        }
    }

    /// The number of requests without a reply.
    pub fn pending(&self) -> usize {
        self.shared.state.lock().pending.len()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    /// Wakes an idle worker, or starts one if the limits allow.
    fn start_worker(self: &Arc<Self>, state: &mut State) {
        // Each idle worker takes one job when it wakes, including those that were woken and are not running
        // yet.
        if state.ready.len() <= state.idle {
            self.work.notify_one();
            return;
        }
        let active = state.threads.saturating_sub(state.written_off);
        if active >= self.limits.threads || state.threads >= self.limits.threads_in_all {
            return;
        }
        let shared = self.clone();
        let spawned =
            std::thread::Builder::new().name("zarrfs-worker".into()).spawn(move || shared.run_worker());
        match spawned {
            Ok(_) => state.threads += 1,
            Err(error) => log::error!("cannot start a worker thread: {error}"),
        }
    }

    fn run_worker(&self) {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                break;
            }
            let Some((key, job)) = state.next() else {
                state.idle += 1;
                let timed_out = self.work.wait_for(&mut state, IDLE_TIME).timed_out();
                state.idle -= 1;
                if timed_out && state.ready.is_empty() {
                    break;
                }
                continue;
            };
            drop(state);
            if catch_unwind(AssertUnwindSafe(job.work)).is_err() {
                log::error!("a request panicked, which is a bug; the request fails with an I/O error");
            }
            job.reply.expire();
            state = self.state.lock();
            state.finish(key, job.number, &self.limits);
            let active = state.threads.saturating_sub(state.written_off);
            if active > self.limits.threads {
                // A thread that was written off returned after another one had taken its place.
                if !state.ready.is_empty() {
                    self.work.notify_one();
                }
                break;
            }
        }
        state.threads -= 1;
    }

    /// Fails overdue requests; returns the time until the next deadline.
    fn expire_overdue(self: &Arc<Self>, now: Instant) -> Duration {
        let mut overdue = Vec::new();
        let mut state = self.state.lock();
        let next = loop {
            let Some(first) = state.pending.first_entry() else { break self.limits.deadline };
            if first.get().deadline > now {
                break first.get().deadline.duration_since(now);
            }
            let (number, pending) = first.remove_entry();
            if pending.is_running {
                state.written_off += 1;
            } else if let Some(lane) = state.lanes.get_mut(&pending.request.lane) {
                lane.queue.retain(|job| job.number != number);
            }
            overdue.push((pending.request, pending.reply));
        };
        for _ in 0..state.ready.len().min(overdue.len()) {
            self.start_worker(&mut state);
        }
        drop(state);
        for (request, reply) in overdue {
            if reply.expire() {
                (self.overdue)(request);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    struct TestReply(Sender<Result<u32, i32>>);

    impl Reply for TestReply {
        fn fail(self, errno: i32) {
            self.0.send(Err(errno)).unwrap();
        }
    }

    fn limits(deadline_ms: u64) -> Limits {
        Limits {
            lane_threads: 2,
            threads: 4,
            threads_in_all: 6,
            deadline: Duration::from_millis(deadline_ms),
        }
    }

    fn submit(
        executor: &Executor,
        lane: u64,
        work: impl FnOnce() -> u32 + Send + 'static,
    ) -> Receiver<Result<u32, i32>> {
        let (sender, receiver) = channel();
        executor.submit(Request::new(lane, "test"), TestReply(sender), move |slot| {
            let value = work();
            if let Some(reply) = slot.take() {
                reply.0.send(Ok(value)).unwrap();
            }
        });
        receiver
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn all_jobs_are_answered() {
        let executor = Executor::new(limits(60_000), |_| {}).unwrap();
        let replies: Vec<_> = (0..200).map(|n| submit(&executor, u64::from(n % 7), move || n)).collect();
        for (n, reply) in replies.into_iter().enumerate() {
            assert_eq!(reply.recv_timeout(PATIENCE).unwrap(), Ok(n as u32));
        }
        while executor.pending() > 0 {
            std::thread::yield_now();
        }
        assert!(executor.shared.state.lock().lanes.is_empty());
        assert!(executor.shared.state.lock().threads <= 4);
    }

    #[test]
    fn a_hanging_lane_leaves_the_others_running_and_its_requests_fail_at_the_deadline() {
        let executor = Executor::new(limits(300), |_| {}).unwrap();
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let hanging: Vec<_> = (0..20)
            .map(|_| {
                let gate = gate.clone();
                submit(&executor, 1, move || {
                    let _ = gate.lock().recv();
                    1
                })
            })
            .collect();
        for round in 0..5 {
            assert_eq!(submit(&executor, 2, move || round).recv_timeout(PATIENCE).unwrap(), Ok(round));
        }
        for reply in hanging {
            assert_eq!(reply.recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
        }
        drop(release);
        let after = submit(&executor, 1, || 7);
        assert_eq!(after.recv_timeout(PATIENCE).unwrap(), Ok(7), "the lane works again when its store does");
    }

    #[test]
    fn hanging_threads_are_replaced() {
        let executor = Executor::new(limits(200), |_| {}).unwrap();
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let hang = |lane| {
            let gate = gate.clone();
            submit(&executor, lane, move || {
                let _ = gate.lock().recv();
                1
            })
        };
        let replies: Vec<_> = [1, 1, 2, 2].map(hang).into_iter().collect();
        for reply in replies {
            assert_eq!(reply.recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
        }
        assert_eq!(submit(&executor, 3, || 5).recv_timeout(PATIENCE).unwrap(), Ok(5));
        drop(release);
    }

    #[test]
    fn a_panic_and_a_forgotten_reply_are_io_errors() {
        let executor = Executor::new(limits(60_000), |_| {}).unwrap();
        let panicking = submit(&executor, 1, || panic!("on purpose"));
        assert_eq!(panicking.recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
        let (sender, forgotten) = channel();
        executor.submit(Request::new(1, "test"), TestReply(sender), |_| {});
        assert_eq!(forgotten.recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
    }
}
