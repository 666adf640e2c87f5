//! Files that the kernel reads by itself: arrays that are stored as exactly one object with exactly the file's bytes, on mounts
//! that nobody writes through. (Kernel documentation: FUSE Passthrough; Linux 6.9, root.)
//!
//! Invariants: all files of one inode that the kernel has open so at the same time have the same object, registered once; only the
//! thread that may mount registers and forgets objects.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use fuser::{BackingId, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;

use crate::mount::privileges::{CAP_SYS_ADMIN, Mounter, has_capability};
use crate::store::Object;

/// The objects that the kernel reads.
pub struct Passthrough {
    mounter: Arc<Mounter>,
    backed: Mutex<HashMap<u64, Backed>>,
}

/// The object of an inode.
struct Backed {
    id: BackingId,
    handles: HashSet<u64>,
}

impl Passthrough {
    /// None yet.
    pub fn new(mounter: Arc<Mounter>) -> Self {
        Passthrough { mounter, backed: Mutex::default() }
    }

    /// Whether the mounting thread may register objects.
    pub fn is_permitted(&self) -> bool {
        self.mounter.run(|| has_capability(CAP_SYS_ADMIN)).unwrap_or(false)
    }

    /// Answers an open(2) with an object for the kernel to read. Where the kernel does not take it, that is an error, and reads
    /// come here, past the page cache.
    pub fn answer(
        &self,
        inode: u64,
        handle: u64,
        object: Arc<dyn Object>,
        reply: ReplyOpen,
    ) -> io::Result<()> {
        let mut backed = self.backed.lock();
        let reply = match backed.contains_key(&inode) {
            true => reply,
            false => {
                let register = move || {
                    let registered = match object.file() {
                        Some(file) => reply.open_backing(file),
                        None => Err(io::ErrorKind::Unsupported.into()),
                    };
                    (reply, registered)
                };
                let (reply, registered) = self.mounter.run(register).map_err(io::Error::other)?;
                match registered {
                    Ok(id) => drop(backed.insert(inode, Backed { id, handles: HashSet::new() })),
                    Err(error) => {
                        reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
                        return Err(error);
                    }
                }
                reply
            }
        };
        if let Some(known) = backed.get_mut(&inode) {
            known.handles.insert(handle);
            reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &known.id);
        }
        Ok(())
    }

    /// A file was closed; with the last one its object is forgotten.
    pub fn release(&self, inode: u64, handle: u64) {
        let mut backed = self.backed.lock();
        let Some(known) = backed.get_mut(&inode) else { return };
        known.handles.remove(&handle);
        if known.handles.is_empty()
            && let Some(known) = backed.remove(&inode)
        {
            let _ = self.mounter.run(move || drop(known.id));
        }
    }
}
