//! A store in memory at which another program acts between any two requests of the program that is tested, and which does not answer any
//! more after one of them, as if that program had been killed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use zarrfs::error::{Error, Result};
use zarrfs::store::{
    Content, Entry, Info, MemoryStore, Object, ObjectPart, ObjectVersion, Precondition, PutOptions, StatFs,
    Store, Writer,
};

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

/// The store as the tested program sees it.
pub struct RacingStore<P: Program> {
    store: Arc<MemoryStore>,
    turns: Mutex<Turns<P>>,
    is_remote: AtomicBool,
}

impl<P: Program> RacingStore<P> {
    pub fn new(store: Arc<MemoryStore>, other: P) -> Arc<Self> {
        let turns = Turns { other, later: VecDeque::new(), requests: 0, dies_after: None };
        Arc::new(RacingStore { store, turns: Mutex::new(turns), is_remote: AtomicBool::new(false) })
    }

    /// What will happen, in the order of the requests.
    pub fn begin(&self, later: Vec<Turn<P::Act>>, dies_after: Option<u64>, is_remote: bool) {
        let mut turns = self.turns.lock().unwrap();
        (turns.later, turns.dies_after) = (later.into(), dies_after);
        self.is_remote.store(is_remote, Ordering::SeqCst);
    }

    /// The other program does the rest, and the tested program is dead.
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

    fn turn(&self, key: &str) -> Result<()> {
        let mut turns = self.turns.lock().unwrap();
        turns.requests += 1;
        while turns.later.front().is_some_and(|turn| turn.before_request <= turns.requests) {
            let Some(turn) = turns.later.pop_front() else { break };
            turns.other.act(turn.act);
        }
        if turns.dies_after.is_some_and(|last| turns.requests > last) {
            return Err(Error::store(key, "ask for", std::io::Error::from_raw_os_error(libc::EIO)));
        }
        Ok(())
    }

    fn inner(&self) -> &dyn Writer {
        self.store.writer().unwrap()
    }
}

impl<P: Program> Writer for RacingStore<P> {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        self.turn(key)?;
        self.inner().put(key, parts, options)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        self.turn(key)?;
        self.inner().delete(key, precondition)
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        self.turn(key)?;
        self.inner().touch(key, version)
    }
}

impl<P: Program> Store for RacingStore<P> {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.turn(key)?;
        self.store.open(key)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<Content>> {
        self.turn(key)?;
        self.store.content(key, limit_bytes)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.turn(key)?;
        self.store.head(key)
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        self.turn(folder)?;
        self.store.list(folder)
    }

    fn is_remote(&self) -> bool {
        self.is_remote.load(Ordering::SeqCst)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.store.statfs()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}
