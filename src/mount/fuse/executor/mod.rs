//! The threads that may block on the store, so that session threads never do.
//!
//! A job belongs to a lane (an inode; its reads have a lane of their own). A lane runs at most
//! [`Limits::lane_threads`] jobs at once, so that the hanging store of one array leaves threads to the others. In a catalogue,
//! the lanes of one member run at most [`Limits::member_threads`] jobs, for the same reason. A
//! watchdog fails every request that has no reply by its deadline; the thread that hangs is written off and
//! another one started in its place.
//!
//! Jobs that store data (close, fsync, a synchronous write, the last release) have no lane: each has a thread of its
//! own, as long as progress is made. A store that hangs must not block its users without end: a program that exits waits for
//! its closes and cannot even be killed. The written data stays dirty and is stored later, so EIO is true as far as can be
//! known. As long as any object is stored anywhere, nothing is given up.
//!
//! This file has no FUSE types. It uses `fs` only for the description of a request, and `cancellation`, by which the work knows
//! whether its reply is still wanted.
//!
//! Invariants: every reply is taken exactly once; a lane's `offered` is the number of its entries in `ready`: the minimum of its
//! queued jobs and the jobs that it, and its member, may still start. A member's `taken` is the sum of the `running` and `offered` of
//! its lanes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

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
    /// Cancels the work after there was a reply.
    pub fn cancellation(&self) -> Cancellation {
        let reply = self.0.clone();
        Cancellation::when(move || reply.lock().is_none())
    }
}

trait Expire: Send + Sync {
    /// Fails the request if it had no reply yet, and returns whether this was so.
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

/// The limits of concurrency and time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The jobs of one lane.
    pub lane_threads: usize,
    /// The jobs of all lanes of one member of a catalogue.
    pub member_threads: usize,
    /// The threads, without those that are written off.
    pub threads: usize,
    /// All threads. If this many hang, jobs wait until their deadline.
    pub threads_in_all: usize,
    /// The time after which a request without a reply fails.
    pub deadline: Duration,
}

impl Limits {
    /// Returns the limits for a number of decoding threads.
    pub fn new(threads: usize, deadline: Duration) -> Self {
        let lane_threads = threads.max(4);
        // The files of four arrays may hang.
        let threads = 8 * lane_threads;
        Limits { lane_threads, member_threads: usize::MAX, threads, threads_in_all: threads + 256, deadline }
    }

    /// Returns the limits for a catalogue: a member that hangs keeps its own threads busy, and many may hang.
    #[must_use]
    pub fn for_members(self) -> Self {
        Limits { member_threads: 2 * self.lane_threads, threads: self.threads_in_all, ..self }
    }
}

/// The time at which a request without a reply fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// It fails after [`Limits::deadline`]. Its work knows this from [`ReplySlot::cancellation`].
    Fixed,
    /// It fails when nothing was stored for [`Limits::deadline`]. Its work goes on.
    WhileProgress,
}

/// The interval at which the watchdog looks for progress while a request depends on it.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// An idle thread ends after this long.
const IDLE_TIME: Duration = Duration::from_secs(30);

struct Job {
    work: Box<dyn FnOnce() + Send>,
    reply: Arc<dyn Expire>,
    number: u64,
}

/// The jobs of a member.
#[derive(Default)]
struct MemberLoad {
    taken: usize,
    /// Lanes with jobs that wait for the member's other jobs.
    waiting: VecDeque<u64>,
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<Job>,
    member: u64,
    running: usize,
    offered: usize,
}

/// A request of [`Deadline::WhileProgress`] without a reply.
struct StoringRequest {
    number: u64,
    since: Instant,
    request: Request,
    reply: Arc<dyn Expire>,
}

/// A request of [`Deadline::Fixed`] without a reply.
struct PendingRequest {
    deadline: Instant,
    request: Request,
    is_running: bool,
    reply: Arc<dyn Expire>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<u64, Lane>,
    members: HashMap<u64, MemberLoad>,
    ready: VecDeque<u64>,
    /// The requests by job number, which is also the order of the deadlines.
    pending: BTreeMap<u64, PendingRequest>,
    storing: Vec<StoringRequest>,
    /// The progress at the watchdog's last look, and when it had changed.
    progress: Option<(u64, Instant)>,
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
            let load = self.members.entry(lane.member).or_default();
            if load.taken >= limits.member_threads {
                if !load.waiting.contains(&key) {
                    load.waiting.push_back(key);
                }
                break;
            }
            load.taken += 1;
            lane.offered += 1;
            self.ready.push_back(key);
        }
        if lane.queue.is_empty() && lane.running == 0 {
            self.lanes.remove(&key);
        }
    }

    /// Ends a job of a member, or an offer without a job. Offers the jobs of a lane that waited for that.
    fn give_back(&mut self, member: u64, limits: &Limits) {
        if let Some(load) = self.members.get_mut(&member) {
            load.taken = load.taken.saturating_sub(1);
        }
        while let Some(load) = self.members.get_mut(&member) {
            if load.taken >= limits.member_threads {
                return;
            }
            let Some(lane) = load.waiting.pop_front() else {
                if load.taken == 0 {
                    self.members.remove(&member);
                }
                return;
            };
            // If the lane has as many jobs as it may have, the next one gets the thread.
            self.offer(lane, limits);
        }
    }

    fn next(&mut self, limits: &Limits) -> Option<(u64, Job)> {
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
            let member = lane.member;
            if lane.running == 0 && lane.offered == 0 {
                self.lanes.remove(&key);
            }
            self.give_back(member, limits);
        }
        None
    }

    fn finish(&mut self, key: u64, number: u64, limits: &Limits) {
        if self.pending.remove(&number).is_none() {
            self.written_off = self.written_off.saturating_sub(1);
        }
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        lane.running = lane.running.saturating_sub(1);
        let member = lane.member;
        self.give_back(member, limits);
        self.offer(key, limits);
    }
}

/// Requests that fail at their deadline, with their replies.
type Overdue = Vec<(Request, Arc<dyn Expire>)>;

struct Shared {
    limits: Limits,
    /// A number that changes with every object that is stored.
    progress: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The function that is called for each request that fails at its deadline.
    note_overdue: Box<dyn Fn(Request) + Send + Sync>,
    state: Mutex<State>,
    work: Condvar,
    /// Wakes the watchdog before the next deadline.
    watch: Condvar,
}

/// The threads and their queue.
pub struct Executor {
    shared: Arc<Shared>,
    /// In a catalogue, returns a request with its member.
    in_member: Option<Box<dyn Fn(Request) -> Request + Send + Sync>>,
}

impl Executor {
    /// Starts the watchdog, which calls `note_overdue` for each request that it fails; `progress` gives a number that
    /// changes with every object that is stored. Workers are started as needed.
    pub fn new(
        limits: Limits,
        progress: impl Fn() -> u64 + Send + Sync + 'static,
        note_overdue: impl Fn(Request) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            limits,
            progress: Box::new(progress),
            note_overdue: Box::new(note_overdue),
            state: Mutex::default(),
            work: Condvar::new(),
            watch: Condvar::new(),
        });
        let watching = shared.clone();
        std::thread::Builder::new().name("zarrfs-watchdog".into()).spawn(move || watching.run_watchdog())?;
        Ok(Executor { shared, in_member: None })
    }

    /// Makes the lanes of each member of a catalogue share a limit. `in_member` returns a request with its member.
    #[must_use]
    pub fn with_members(mut self, in_member: impl Fn(Request) -> Request + Send + Sync + 'static) -> Self {
        self.in_member = Some(Box::new(in_member));
        self
    }

    /// Runs `work` on another thread; it replies through the slot. The request fails with EIO if the work
    /// panics, does not reply, or has not replied by the deadline.
    pub fn submit<R: Reply>(
        &self,
        request: Request,
        deadline: Deadline,
        reply: R,
        work: impl FnOnce(&ReplySlot<R>) + Send + 'static,
    ) {
        let request = self.in_member.as_ref().map_or(request, |in_member| in_member(request));
        let reply = Arc::new(Mutex::new(Some(reply)));
        let slot = ReplySlot(reply.clone());
        let work = Box::new(move || work(&slot));
        match deadline {
            Deadline::Fixed => self.shared.enqueue(request, reply, work),
            Deadline::WhileProgress => self.shared.run_alone(request, reply, work),
        }
    }

    /// Returns the number of requests without a reply.
    pub fn pending(&self) -> usize {
        let state = self.shared.state.lock();
        state.pending.len() + state.storing.len()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_all();
        self.shared.watch.notify_all();
    }
}

impl Shared {
    /// Queues a job in its lane.
    fn enqueue(self: &Arc<Self>, request: Request, reply: Arc<dyn Expire>, work: Box<dyn FnOnce() + Send>) {
        let lane = request.lane;
        let mut state = self.state.lock();
        state.last_number += 1;
        let number = state.last_number;
        let deadline = Instant::now() + self.limits.deadline;
        let pending = PendingRequest { deadline, request, is_running: false, reply: reply.clone() };
        state.pending.insert(number, pending);
        let job = Job { work, reply, number };
        let lane_of_job = state.lanes.entry(lane).or_default();
        lane_of_job.member = request.member;
        lane_of_job.queue.push_back(job);
        state.offer(lane, &self.limits);
        if !state.ready.is_empty() {
            self.start_worker(&mut state);
        }
    }

    /// Runs a job that stores data on a thread of its own.
    fn run_alone(self: &Arc<Self>, request: Request, reply: Arc<dyn Expire>, work: Box<dyn FnOnce() + Send>) {
        let (now, progress) = (Instant::now(), (self.progress)());
        let mut state = self.state.lock();
        state.last_number += 1;
        let number = state.last_number;
        if state.storing.is_empty() {
            state.progress = Some((progress, now));
            self.watch.notify_one();
        }
        state.storing.push(StoringRequest { number, since: now, request, reply: reply.clone() });
        drop(state);
        let (shared, unsent) = (self.clone(), reply.clone());
        let run = move || {
            run_job(work, reply.as_ref());
            shared.state.lock().storing.retain(|one| one.number != number);
        };
        if let Err(error) = std::thread::Builder::new().name("store".to_owned()).spawn(run) {
            log::error!("cannot start the write-back thread: {error}");
            unsent.expire();
            self.state.lock().storing.retain(|one| one.number != number);
        }
    }

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
            let Some((key, job)) = state.next(&self.limits) else {
                state.idle += 1;
                let timed_out = self.work.wait_for(&mut state, IDLE_TIME).timed_out();
                state.idle -= 1;
                if timed_out && state.ready.is_empty() {
                    break;
                }
                continue;
            };
            drop(state);
            run_job(job.work, job.reply.as_ref());
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

    fn run_watchdog(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.is_closed {
            if !state.storing.is_empty() {
                let progress = MutexGuard::unlocked(&mut state, || (self.progress)());
                if state.progress.is_none_or(|(before, _)| before != progress) {
                    state.progress = Some((progress, Instant::now()));
                }
            }
            let (overdue, next) = self.take_overdue(&mut state, Instant::now());
            if overdue.is_empty() {
                self.watch.wait_for(&mut state, next);
                continue;
            }
            MutexGuard::unlocked(&mut state, || {
                for (request, reply) in overdue {
                    if reply.expire() {
                        (self.note_overdue)(request);
                    }
                }
            });
        }
    }

    /// Returns the requests that are overdue, and the time until the watchdog must look again. A request that comes meanwhile is due
    /// later, so it need not wake the watchdog.
    fn take_overdue(self: &Arc<Self>, state: &mut State, now: Instant) -> (Overdue, Duration) {
        let mut overdue = Overdue::new();
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
            self.start_worker(state);
        }
        let progressed_at = state.progress.map(|(_, at)| at);
        let is_stalled = |one: &mut StoringRequest| {
            let since = progressed_at.map_or(one.since, |at| at.max(one.since));
            now.saturating_duration_since(since) >= self.limits.deadline
        };
        let stalled = state.storing.extract_if(.., is_stalled);
        overdue.extend(stalled.map(|one| (one.request, one.reply)));
        let next = if state.storing.is_empty() { next } else { next.min(PROGRESS_INTERVAL) };
        (overdue, next)
    }
}

/// Runs a job, and fails its request if there was no reply.
fn run_job(work: Box<dyn FnOnce() + Send>, reply: &dyn Expire) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        log::error!("a request panicked, which is a bug; the request fails with an I/O error");
    }
    reply.expire();
}
