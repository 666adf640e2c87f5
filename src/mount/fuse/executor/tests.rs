//! Lanes, deadlines, hanging threads and stores, panics.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicU64, Ordering};
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
        member_threads: usize::MAX,
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
    executor.submit(Request::new(lane, "test"), Deadline::Fixed, TestReply(sender), move |slot| {
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
    let executor = Executor::new(limits(60_000), || 0, |_| {}).unwrap();
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
fn a_member_that_hangs_in_many_lanes_leaves_threads_to_the_others() {
    let of_member = |request: Request| Request { member: 1 + request.inode / 100, ..request };
    let limits = Limits { member_threads: 3, threads: 6, ..limits(60_000) };
    let executor = Executor::new(limits, || 0, |_| {}).unwrap().with_members(of_member);
    let (release, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let hanging: Vec<_> = (0..20)
        .map(|lane| {
            let gate = gate.clone();
            submit(&executor, lane, move || {
                let _ = gate.lock().recv();
                7
            })
        })
        .collect();
    let others: Vec<_> = (0..20).map(|lane| submit(&executor, 100 + lane, || 8)).collect();
    for reply in others {
        assert_eq!(reply.recv_timeout(PATIENCE).unwrap(), Ok(8));
    }
    drop(release);
    for reply in hanging {
        assert_eq!(reply.recv_timeout(PATIENCE).unwrap(), Ok(7));
    }
    while executor.pending() > 0 {
        std::thread::yield_now();
    }
    let state = executor.shared.state.lock();
    assert!(state.lanes.is_empty() && state.members.is_empty());
}

#[test]
fn a_hanging_lane_leaves_the_others_running_and_its_requests_fail_at_the_deadline() {
    let executor = Executor::new(limits(300), || 0, |_| {}).unwrap();
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
    let executor = Executor::new(limits(200), || 0, |_| {}).unwrap();
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
    let executor = Executor::new(limits(60_000), || 0, |_| {}).unwrap();
    let panicking = submit(&executor, 1, || panic!("on purpose"));
    assert_eq!(panicking.recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
    let (sender, forgotten) = channel();
    executor.submit(Request::new(1, "test"), Deadline::Fixed, TestReply(sender), |_| {});
    assert_eq!(forgotten.recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
}

#[test]
fn storing_takes_as_long_as_it_makes_progress() {
    let stored = Arc::new(AtomicU64::new(0));
    let (counted, failed) = (stored.clone(), Arc::new(AtomicU64::new(0)));
    let noted = failed.clone();
    let overdue = move |_| {
        noted.fetch_add(1, Ordering::Relaxed);
    };
    let executor = Executor::new(limits(400), move || counted.load(Ordering::Relaxed), overdue).unwrap();
    let store = |work: Box<dyn FnOnce() + Send>| {
        let (sender, receiver) = channel();
        let request = Request::new(1, "test");
        executor.submit(request, Deadline::WhileProgress, TestReply(sender), move |slot| {
            work();
            if let Some(reply) = slot.take() {
                reply.0.send(Ok(1)).unwrap();
            }
        });
        receiver
    };
    let (release, gate) = channel::<()>();
    let slow = store(Box::new(move || {
        for _ in 0..15 {
            std::thread::sleep(Duration::from_millis(100));
            stored.fetch_add(1, Ordering::Relaxed);
        }
    }));
    assert_eq!(slow.recv_timeout(PATIENCE).unwrap(), Ok(1), "though it took more than the deadline");
    let hanging = store(Box::new(move || {
        let _ = gate.recv();
    }));
    assert_eq!(hanging.recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
    assert_eq!(store(Box::new(|| panic!("on purpose"))).recv_timeout(PATIENCE).unwrap(), Err(libc::EIO));
    drop(release);
    while executor.pending() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(failed.load(Ordering::Relaxed), 1);
}
