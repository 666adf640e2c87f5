//! A store in memory at which another program acts between any two requests of the program that is tested, and which does not answer any
//! more after one of them, as if that program had been killed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use zarrfs::error::{Error, Result};
use zarrfs::store::MemoryStore;

use crate::support::hooked::{Hook, Hooked, Request};

/// The other program.
pub trait Program: Send {
    /// One thing that it does.
    type Act: Send;
    fn act(&mut self, act: Self::Act);
}

/// An act, and before which request it happens.
pub struct Turn<A> {
    pub before_request: u64,
    pub act: A,
}

struct Turns<P: Program> {
    other: P,
    later: VecDeque<Turn<P::Act>>,
    requests: u64,
    /// How many requests are answered.
    dies_after: Option<u64>,
}

/// What the tested program's store does before each request.
pub struct Racing<P: Program> {
    turns: Mutex<Turns<P>>,
    is_remote: AtomicBool,
}

impl<P: Program> Racing<P> {
    pub fn new(store: Arc<MemoryStore>, other: P) -> Arc<Hooked<Self>> {
        let turns = Turns { other, later: VecDeque::new(), requests: 0, dies_after: None };
        Hooked::new(store, Racing { turns: Mutex::new(turns), is_remote: AtomicBool::new(false) })
    }

    /// Begins a race: sets what will happen, in the order of the requests.
    pub fn begin(&self, later: Vec<Turn<P::Act>>, dies_after: Option<u64>, is_remote: bool) {
        let mut turns = self.turns.lock().unwrap();
        (turns.later, turns.dies_after) = (later.into(), dies_after);
        self.is_remote.store(is_remote, Ordering::SeqCst);
    }

    /// Lets the other program do the rest. The tested program is dead.
    pub fn finish(&self) {
        let mut turns = self.turns.lock().unwrap();
        while let Some(turn) = turns.later.pop_front() {
            turns.other.act(turn.act);
        }
        turns.dies_after = Some(0);
    }

    /// Looks at the other program.
    pub fn with<T>(&self, look: impl FnOnce(&mut P) -> T) -> T {
        look(&mut self.turns.lock().unwrap().other)
    }
}

impl<P: Program> Hook for Racing<P> {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        let mut turns = self.turns.lock().unwrap();
        turns.requests += 1;
        while turns.later.front().is_some_and(|turn| turn.before_request <= turns.requests) {
            let Some(turn) = turns.later.pop_front() else { break };
            turns.other.act(turn.act);
        }
        if turns.dies_after.is_some_and(|last| turns.requests > last) {
            return Err(Error::store(request.key(), "ask for", std::io::Error::from_raw_os_error(libc::EIO)));
        }
        Ok(())
    }

    fn is_remote(&self) -> bool {
        self.is_remote.load(Ordering::SeqCst)
    }
}
