//! FUSE passthrough: the kernel itself reads arrays that are stored as exactly one object with exactly the
//! file's bytes, on read-only mounts. (Kernel documentation: FUSE Passthrough; Linux 6.9, root.)
//!
//! Invariants: all passthrough handles of one inode that are open at the same time use the same object,
//! registered once; only the thread with CAP_SYS_ADMIN registers and forgets objects, in the order of opens
//! and closes, and no other thread waits for it.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::io;
use std::sync::Arc;

use fuser::{BackingId, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;

use crate::store::Object;

/// Runs a job on the thread with CAP_SYS_ADMIN, after all earlier jobs, without waiting for it.
type Submit = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// The registered objects.
pub struct Passthrough {
    submit: Submit,
    is_permitted: bool,
    /// The objects by inode. Only the thread with CAP_SYS_ADMIN locks them.
    backings: Arc<Mutex<HashMap<u64, Backing>>>,
}

/// The registered object of an inode.
struct Backing {
    id: BackingId,
    handles: HashSet<u64>,
}

impl Passthrough {
    /// Creates an empty set of objects. `submit` runs a job on the thread with CAP_SYS_ADMIN, after all earlier jobs; `is_permitted`
    /// says whether that thread exists.
    pub fn new(is_permitted: bool, submit: Submit) -> Self {
        Passthrough { submit, is_permitted, backings: Arc::default() }
    }

    /// Returns whether objects may be registered.
    pub fn is_permitted(&self) -> bool {
        self.is_permitted
    }

    /// Replies to an open(2) with an object for the kernel to read. If the kernel does not accept it,
    /// `refused` gets the error, and the file is opened with direct I/O.
    pub fn open(
        &self,
        inode: u64,
        handle: u64,
        object: Arc<dyn Object>,
        reply: ReplyOpen,
        refused: impl FnOnce(io::Error) + Send + 'static,
    ) {
        let backings = self.backings.clone();
        (self.submit)(Box::new(move || {
            let mut backings = backings.lock();
            let backing = match backings.entry(inode) {
                Entry::Occupied(backing) => Ok(backing.into_mut()),
                Entry::Vacant(slot) => register(object.as_ref(), &reply)
                    .map(|id| slot.insert(Backing { id, handles: HashSet::new() })),
            };
            match backing {
                Ok(backing) => {
                    backing.handles.insert(handle);
                    reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &backing.id);
                }
                Err(error) => {
                    refused(error);
                    reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
                }
            }
        }));
    }

    /// Counts a passthrough handle as closed. With the last one, its object is forgotten.
    pub fn release(&self, inode: u64, handle: u64) {
        let backings = self.backings.clone();
        (self.submit)(Box::new(move || {
            if let Entry::Occupied(mut backing) = backings.lock().entry(inode) {
                backing.get_mut().handles.remove(&handle);
                if backing.get().handles.is_empty() {
                    backing.remove();
                }
            }
        }));
    }
}

fn register(object: &dyn Object, reply: &ReplyOpen) -> io::Result<BackingId> {
    let file = object.file().ok_or(io::ErrorKind::Unsupported)?;
    reply.open_backing(file)
}
