//! A store around another one that calls a test's own code before and after each request: to count, to fail, to let another
//! program come in between. The tests of the crate's inside use this file, too, so that it uses nothing of the others.

use std::any::Any;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::time::SystemTime;

use zarrfs::error::Result;
use zarrfs::store::{
    Info, ListEntry, Object, ObjectContent, ObjectPart, ObjectVersion, Precondition, PutOptions, Remote,
    StagedFolder, StatFs, Store, VersionDigest, Writer,
};

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Open,
    Content,
    Head,
    CreatedAt,
    List,
    Put,
    HasMark,
    Delete,
    Sync,
    Lock,
    Touch,
    Stage,
    RenameFolder,
    RemoveFolder,
    RemoveUnfinished,
}

/// One request; only a sync has other than one key.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub operation: Operation,
    pub keys: &'a [&'a str],
}

impl<'a> Request<'a> {
    /// Returns the first key; that of the store's root where there is none.
    pub fn key(&self) -> &'a str {
        self.keys.first().copied().unwrap_or_default()
    }
}

/// A test's own code.
pub trait Hook: Send + Sync {
    /// Runs before a request is carried out; an error is its reply.
    fn before(&self, _request: &Request<'_>) -> Result<()> {
        Ok(())
    }
    /// Runs when a request was carried out; `found` if it has found or changed something.
    fn after(&self, _request: &Request<'_>, _found: bool) {}
    /// Returns whether the store is shown as a remote one.
    fn is_remote(&self) -> bool {
        false
    }
}

/// A store with a hook.
pub struct Hooked<H> {
    pub store: Arc<dyn Store>,
    pub hook: H,
}

impl<H: Hook> Hooked<H> {
    pub fn new(store: Arc<dyn Store>, hook: H) -> Arc<Self> {
        Arc::new(Hooked { store, hook })
    }

    fn ask<T>(
        &self,
        operation: Operation,
        keys: &[&str],
        carry_out: impl FnOnce(&dyn Store) -> Result<T>,
        is_found: impl FnOnce(&T) -> bool,
    ) -> Result<T> {
        let request = Request { operation, keys };
        self.hook.before(&request)?;
        let outcome = carry_out(self.store.as_ref());
        self.hook.after(&request, outcome.as_ref().is_ok_and(is_found));
        outcome
    }

    fn change<T>(
        &self,
        operation: Operation,
        keys: &[&str],
        carry_out: impl FnOnce(&dyn Writer) -> Result<T>,
    ) -> Result<T> {
        self.ask(operation, keys, |store| carry_out(store.writer().unwrap()), |_| true)
    }
}

impl<H> Deref for Hooked<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.hook
    }
}

impl<H: Hook> Store for Hooked<H> {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.ask(Operation::Open, &[key], |store| store.open(key), Option::is_some)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        self.ask(Operation::Content, &[key], |store| store.content(key, limit_bytes), Option::is_some)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.ask(Operation::Head, &[key], |store| store.head(key), Option::is_some)
    }

    fn created_at(&self, key: &str) -> Result<Option<SystemTime>> {
        self.ask(Operation::CreatedAt, &[key], |store| store.created_at(key), Option::is_some)
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        self.ask(Operation::List, &[folder], |store| store.list(folder), |_| true)
    }

    fn each_name(&self, folder: &str, each: &mut dyn FnMut(ListEntry) -> ControlFlow<()>) -> Result<()> {
        self.ask(Operation::List, &[folder], |store| store.each_name(folder, each), |()| true)
    }

    fn lacks_locks(&self) -> bool {
        self.hook.is_remote() || self.store.lacks_locks()
    }

    fn statfs(&self) -> Result<StatFs> {
        self.store.statfs()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.hook.is_remote().then_some(self)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        self.store.writer().map(|_| self as _)
    }

    fn as_overlay(&self) -> Option<&dyn Any> {
        self.store.as_overlay()
    }
}

/// A batch is its requests one after the other: something may come between them.
impl<H: Hook> Remote for Hooked<H> {}

impl<H: Hook> Writer for Hooked<H> {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        self.change(Operation::Put, &[key], |writer| writer.put(key, parts, options))
    }

    fn has_mark(&self, key: &str, version: ObjectVersion, mark: VersionDigest) -> Result<bool> {
        self.change(Operation::HasMark, &[key], |writer| writer.has_mark(key, version, mark))
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        self.change(Operation::Delete, &[key], |writer| writer.delete(key, precondition))
    }

    fn sync(&self, keys: &[String], within: &str) -> Result<()> {
        let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
        let asked = if asked.is_empty() { vec![within] } else { asked };
        self.change(Operation::Sync, &asked, |writer| writer.sync(keys, within))
    }

    fn lock(&self, key: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.change(Operation::Lock, &[key], |writer| writer.lock(key))
    }

    fn check_place(&self) -> Result<()> {
        self.store.writer().unwrap().check_place()
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        self.change(Operation::Touch, &[key], |writer| writer.touch(key, version))
    }

    fn stage(&self, parent: &str, like: &Info) -> Result<Option<StagedFolder>> {
        self.change(Operation::Stage, &[parent], |writer| writer.stage(parent, like))
    }

    fn can_rename(&self, folder: &str) -> Result<bool> {
        self.store.writer().unwrap().can_rename(folder)
    }

    fn rename_folder(&self, from: &str, to: &str) -> Result<()> {
        self.change(Operation::RenameFolder, &[from], |writer| writer.rename_folder(from, to))
    }

    fn remove_folder(&self, key: &str) -> Result<bool> {
        self.change(Operation::RemoveFolder, &[key], |writer| writer.remove_folder(key))
    }

    fn remove_unfinished(&self, folder: &str) -> Result<u64> {
        self.change(Operation::RemoveUnfinished, &[folder], |writer| writer.remove_unfinished(folder))
    }
}
