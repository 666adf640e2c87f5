//! A store in memory that calls a function before each put, which may wait, or write as another program does.

use crate::error::Result;
use crate::store::{
    Content, Entry, Info, MemoryStore, Object, ObjectPart, ObjectVersion, Precondition, PutOptions, StatFs,
    Store, Writer,
};

/// What is called with the objects and the key of a put.
type Hook = dyn Fn(&MemoryStore, &str) + Send + Sync;

/// A store in memory with a function that is called before each put.
pub struct HookedStore {
    pub objects: MemoryStore,
    before_put: Box<Hook>,
}

impl HookedStore {
    /// An empty store.
    pub fn new(before_put: impl Fn(&MemoryStore, &str) + Send + Sync + 'static) -> Self {
        HookedStore { objects: MemoryStore::new(), before_put: Box::new(before_put) }
    }
}

impl Writer for HookedStore {
    fn put(&self, key: &str, parts: &[ObjectPart<'_>], options: &PutOptions<'_>) -> Result<ObjectVersion> {
        (self.before_put)(&self.objects, key);
        Writer::put(&self.objects, key, parts, options)
    }

    fn delete(&self, key: &str, precondition: Precondition) -> Result<bool> {
        Writer::delete(&self.objects, key, precondition)
    }

    fn touch(&self, key: &str, version: ObjectVersion) -> Result<Option<ObjectVersion>> {
        self.objects.touch(key, version)
    }
}

impl Store for HookedStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        self.objects.open(key)
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<Content>> {
        self.objects.content(key, limit_bytes)
    }

    fn head(&self, key: &str) -> Result<Option<Info>> {
        self.objects.head(key)
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        self.objects.list(folder)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.objects.statfs()
    }

    fn describe(&self) -> String {
        self.objects.describe()
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}
