//! The store below an overlay, with something that happens before one of its operations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use zarrfs::error::{Error, Result};
use zarrfs::store::DirectoryStore;

use super::other::{Other, Theirs};
use crate::support::hooked::{Hook, Hooked, Request};

/// The store below: another program comes before one of its operations, or it is not there any more from one on.
pub struct Scheduled {
    other: Arc<Other>,
    operations: AtomicUsize,
    event: Mutex<Option<(usize, Option<Theirs>)>>,
    pub is_dead: AtomicBool,
}

impl Scheduled {
    pub fn new(folder: &Path, other: Arc<Other>) -> Arc<Hooked<Self>> {
        let scheduled = Scheduled {
            other,
            operations: AtomicUsize::new(0),
            event: Mutex::new(None),
            is_dead: AtomicBool::new(false),
        };
        Hooked::new(Arc::new(DirectoryStore::open(folder, false).unwrap()), scheduled)
    }

    pub fn schedule(&self, event: Option<(usize, Option<Theirs>)>) {
        self.operations.store(0, Ordering::Relaxed);
        self.is_dead.store(false, Ordering::Relaxed);
        *self.event.lock() = event;
    }
}

impl Hook for Scheduled {
    fn before(&self, _: &Request<'_>) -> Result<()> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        let due = self.event.lock().take_if(|(at, _)| *at <= number);
        match due {
            Some((_, Some(theirs))) => self.other.act(theirs),
            Some((_, None)) => self.is_dead.store(true, Ordering::Relaxed),
            None => {}
        }
        if self.is_dead.load(Ordering::Relaxed) {
            return Err(Error::store("", "reach", std::io::Error::other("dead")));
        }
        Ok(())
    }
}
