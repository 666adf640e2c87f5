//! A store of versions in memory, for tests, with the faults of a service: a branch that another program moves, lost replies
//! and requests, and a service that no longer answers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::{CommitOutcome, Transaction, Versions};
use crate::error::{Error, Result};
use crate::store::{Info, ListEntry, MemoryStore, Object, ObjectContent, Remote, StatFs, Store, Writer};

/// The versions that a transaction may give to its objects.
const VERSIONS_PER_TRANSACTION: u64 = 1 << 32;

/// A fault of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFault {
    /// Another program publishes a snapshot just before.
    BranchMoves,
    /// The snapshot is published, but the reply is lost.
    ReplyLost,
    /// As `ReplyLost`, and the service no longer answers.
    ReplyLostThenGone,
    /// The request is lost.
    RequestLost,
}

/// A published state of all objects.
struct Snapshot {
    id: String,
    message: String,
    mark: String,
    parent: Option<Arc<Snapshot>>,
    objects: MemoryStore,
}

#[derive(Default)]
struct State {
    branches: BTreeMap<String, Arc<Snapshot>>,
    transactions: u64,
    snapshots: u64,
    faults: VecDeque<CommitFault>,
    is_gone: bool,
}

/// A repository, shared by all stores that show it.
#[derive(Clone, Default)]
pub struct Repository {
    state: Arc<Mutex<State>>,
}

/// The repository, as a store that shows one snapshot.
pub struct InMemoryVersions {
    repository: Repository,
    branch: Option<String>,
    shown: RwLock<Arc<Snapshot>>,
}

struct InMemoryTransaction {
    repository: Repository,
    branch: String,
    parent: Arc<Snapshot>,
    objects: MemoryStore,
}

fn gone() -> Error {
    Error::store("", "reach the repository", io::Error::from(io::ErrorKind::NetworkUnreachable))
}

impl State {
    fn tip(&self, branch: &str) -> Result<Arc<Snapshot>> {
        if self.is_gone {
            return Err(gone());
        }
        let none = || Error::Usage(format!("there is no branch '{branch}'"));
        self.branches.get(branch).cloned().ok_or_else(none)
    }

    fn add(&mut self, branch: &str, objects: MemoryStore, (message, mark): (&str, &str)) -> String {
        self.snapshots += 1;
        let id = format!("S{}", self.snapshots);
        let parent = self.branches.get(branch).cloned();
        let (message, mark) = (message.to_owned(), mark.to_owned());
        let snapshot = Snapshot { id: id.clone(), message, mark, parent, objects };
        self.branches.insert(branch.to_owned(), Arc::new(snapshot));
        id
    }

    fn copy(&mut self, snapshot: &Snapshot) -> MemoryStore {
        self.transactions += 1;
        snapshot.objects.copy(self.transactions * VERSIONS_PER_TRANSACTION)
    }
}

impl Repository {
    /// Creates a repository whose branch `main` has these objects.
    pub fn new(objects: &[(&str, &str)]) -> Self {
        let first = MemoryStore::new();
        for (key, text) in objects {
            let _ = first.put(key, text.as_bytes());
        }
        let repository = Repository::default();
        repository.state.lock().add("main", first, ("", ""));
        repository
    }

    /// Returns a store that follows a branch.
    pub fn on_branch(&self, branch: &str) -> Result<Arc<InMemoryVersions>> {
        let shown = self.state.lock().tip(branch)?;
        let branch = Some(branch.to_owned());
        Ok(Arc::new(InMemoryVersions { repository: self.clone(), branch, shown: RwLock::new(shown) }))
    }

    /// Returns a store that always shows a branch as it is now.
    pub fn as_it_is(&self, branch: &str) -> Result<Arc<InMemoryVersions>> {
        let shown = RwLock::new(self.state.lock().tip(branch)?);
        Ok(Arc::new(InMemoryVersions { repository: self.clone(), branch: None, shown }))
    }

    /// Creates a branch at the newest snapshot of another.
    pub fn make_branch(&self, name: &str, from: &str) -> Result<()> {
        let mut state = self.state.lock();
        let tip = state.tip(from)?;
        state.branches.insert(name.to_owned(), tip);
        Ok(())
    }

    /// Publishes objects as another program would; `None` deletes one.
    pub fn change(&self, branch: &str, objects: &[(&str, Option<&str>)]) -> Result<()> {
        let mut state = self.state.lock();
        let tip = state.tip(branch)?;
        let changed = state.copy(&tip);
        for (key, text) in objects {
            match text {
                Some(text) => changed.put(key, text.as_bytes())?,
                None => drop(changed.delete(key)),
            }
        }
        state.add(branch, changed, ("another program's", ""));
        Ok(())
    }

    /// Injects these faults into the next commits.
    pub fn inject(&self, faults: impl IntoIterator<Item = CommitFault>) {
        self.state.lock().faults.extend(faults);
    }

    /// Sets whether the service no longer answers.
    pub fn set_gone(&self, is_gone: bool) {
        self.state.lock().is_gone = is_gone;
    }

    /// Returns the messages of a branch, newest first.
    pub fn messages(&self, branch: &str) -> Vec<String> {
        let mut next = self.state.lock().branches.get(branch).cloned();
        let mut messages = Vec::new();
        while let Some(snapshot) = &next {
            messages.push(snapshot.message.clone());
            next = snapshot.parent.clone();
        }
        messages
    }

    /// Returns the text of an object in a branch's newest snapshot.
    pub fn text(&self, branch: &str, key: &str) -> Option<String> {
        let tip = self.state.lock().branches.get(branch).cloned()?;
        let bytes = tip.objects.get(key, 1 << 20).ok()??;
        String::from_utf8(bytes).ok()
    }
}

impl Versions for InMemoryVersions {
    fn branch(&self) -> Option<&str> {
        self.branch.as_deref()
    }

    fn snapshot(&self) -> String {
        self.shown.read().id.clone()
    }

    fn begin(&self, branch: &str) -> Result<Box<dyn Transaction>> {
        let mut state = self.repository.state.lock();
        let parent = state.tip(branch)?;
        let objects = state.copy(&parent);
        let (repository, branch) = (self.repository.clone(), branch.to_owned());
        Ok(Box::new(InMemoryTransaction { repository, branch, parent, objects }))
    }

    fn find_mark(&self, branch: &str, mark: &str) -> Result<Option<String>> {
        let mut next = Some(self.repository.state.lock().tip(branch)?);
        while let Some(snapshot) = &next {
            if snapshot.mark == mark {
                return Ok(Some(snapshot.id.clone()));
            }
            next = snapshot.parent.clone();
        }
        Ok(None)
    }

    fn follow(&self, branch: &str) -> Result<()> {
        let tip = self.repository.state.lock().tip(branch)?;
        *self.shown.write() = tip;
        Ok(())
    }
}

impl Transaction for InMemoryTransaction {
    fn commit(self: Box<Self>, message: &str, mark: &str) -> Result<CommitOutcome> {
        let mut state = self.repository.state.lock();
        let fault = state.faults.pop_front();
        if fault == Some(CommitFault::RequestLost) {
            return Err(gone());
        }
        let tip = state.tip(&self.branch)?;
        if fault == Some(CommitFault::BranchMoves) {
            let same = state.copy(&tip);
            state.add(&self.branch, same, ("in between", ""));
            return Ok(CommitOutcome::BranchMoved);
        }
        if !Arc::ptr_eq(&tip, &self.parent) {
            return Ok(CommitOutcome::BranchMoved);
        }
        let id = state.add(&self.branch, self.objects, (message, mark));
        match fault {
            Some(CommitFault::ReplyLost) => Err(gone()),
            Some(CommitFault::ReplyLostThenGone) => {
                state.is_gone = true;
                Err(gone())
            }
            _ => Ok(CommitOutcome::Snapshot(id)),
        }
    }
}

impl Remote for InMemoryVersions {}

impl Store for InMemoryVersions {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.shown.read().objects.open(key)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.shown.read().objects.content(key, limit_bytes)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.shown.read().objects.head(key)
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        self.shown.read().objects.list(folder)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.shown.read().objects.statfs()
    }

    fn describe(&self) -> String {
        "versions in memory".to_owned()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn versions(&self) -> Option<&dyn Versions> {
        Some(self)
    }
}

impl Remote for InMemoryTransaction {}

impl Store for InMemoryTransaction {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.objects.open(key)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.objects.content(key, limit_bytes)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.objects.head(key)
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        self.objects.list(folder)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.objects.statfs()
    }

    fn describe(&self) -> String {
        "a transaction in memory".to_owned()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(&self.objects)
    }
}
