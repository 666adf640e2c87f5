//! A store in memory that calls a function before each put, which may wait, or write as another program does.

use std::sync::Arc;

use crate::error::Result;
use crate::store::MemoryStore;
use crate::test_store::{Hook, Hooked, Operation, Request};

/// What is called with the objects and the key of a put.
type BeforePut = dyn Fn(&MemoryStore, &str) + Send + Sync;

/// A store in memory with a function that is called before each put.
pub type HookedStore = Hooked<Puts>;

pub struct Puts {
    pub objects: Arc<MemoryStore>,
    before_put: Box<BeforePut>,
}

/// An empty store.
pub fn hooked(before_put: impl Fn(&MemoryStore, &str) + Send + Sync + 'static) -> Arc<HookedStore> {
    let objects = Arc::new(MemoryStore::new());
    Hooked::new(Arc::clone(&objects) as _, Puts { objects, before_put: Box::new(before_put) })
}

impl Hook for Puts {
    fn before(&self, request: &Request<'_>) -> Result<()> {
        if request.operation == Operation::Put {
            (self.before_put)(&self.objects, request.key());
        }
        Ok(())
    }
}
