//! FUSE passthrough: the kernel itself reads arrays that are stored as exactly one object with exactly the
//! file's bytes, on read-only mounts. (Kernel documentation: FUSE Passthrough; Linux 6.9, root.)
//!
//! A registered object belongs to the session, not to the daemon. The kernel gives it a number, by which the next daemon opens more
//! handles of the same inode, and forgets the object after the last close. So a daemon that ends leaves its objects registered.
//!
//! Invariants: all passthrough handles of one inode that are open at the same time use the same object,
//! registered once; only the thread with CAP_SYS_ADMIN registers and forgets objects, in the order of opens
//! and closes, and no other thread waits for it.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use fuser::{FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;

use crate::mount::fs::FileSystem;
use crate::mount::journal::state::SessionState;
use crate::store::Object;
use crate::sys;

/// Runs a job on the thread with CAP_SYS_ADMIN, after all earlier jobs, without waiting for it.
type Submit = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// The registered objects.
pub struct Passthrough {
    submit: Submit,
    is_permitted: bool,
    /// Only the thread with CAP_SYS_ADMIN locks them after the first request.
    registered: Arc<Mutex<Registered>>,
}

/// The objects that are registered in a session.
#[derive(Default)]
struct Registered {
    /// The session's connection to the kernel.
    device: Option<OwnedFd>,
    /// The objects by inode.
    backings: HashMap<u64, Backing>,
}

/// The registered object of an inode.
struct Backing {
    /// The kernel's number.
    id: u32,
    handles: HashSet<u64>,
}

/// A file to open.
pub struct PassthroughOpen {
    /// Its inode.
    pub inode: u64,
    /// The handle.
    pub handle: u64,
    /// The number of the request.
    pub request: u64,
    /// The object that has the bytes of the file.
    pub object: Arc<dyn Object>,
}

impl Passthrough {
    /// Creates an empty set of objects. `submit` runs a job on the thread with CAP_SYS_ADMIN, after all earlier jobs; `is_permitted`
    /// says whether that thread exists.
    pub fn new(is_permitted: bool, submit: Submit) -> Self {
        Passthrough { submit, is_permitted, registered: Arc::default() }
    }

    /// Returns whether objects may be registered.
    pub fn is_permitted(&self) -> bool {
        self.is_permitted
    }

    /// Takes over the objects of a session that another daemon has begun.
    pub fn restore(&self, state: &SessionState) {
        let restored = state.backings.iter().map(|(&inode, backing)| {
            let handles = state.open.values().filter(|open| open.is_passthrough && open.inode == inode);
            (inode, Backing { id: backing.id, handles: handles.map(|open| open.handle).collect() })
        });
        self.registered.lock().backings.extend(restored);
    }

    /// Begins to use the device of the session. Must be called before the first request.
    pub fn begin(&self, fs: &Arc<FileSystem>, device: OwnedFd) {
        let mut registered = self.registered.lock();
        registered.device = Some(device);
        // The last daemon may have died after the last close.
        let unused = registered.backings.iter().filter(|(_, backing)| backing.handles.is_empty());
        let unused: Vec<u64> = unused.map(|(&inode, _)| inode).collect();
        drop(registered);
        let (fs, registered) = (fs.clone(), self.registered.clone());
        (self.submit)(Box::new(move || {
            let mut registered = registered.lock();
            unused.into_iter().for_each(|inode| registered.forget_if_unused(&fs, inode));
        }));
    }

    /// Replies to an open(2) with an object for the kernel to read. If the kernel does not accept it, the file is opened with direct I/O.
    pub fn open(&self, fs: &Arc<FileSystem>, open: PassthroughOpen, reply: ReplyOpen) {
        let (fs, registered) = (fs.clone(), self.registered.clone());
        (self.submit)(Box::new(move || registered.lock().open(&fs, open, reply)));
    }

    /// Counts a handle as closed, if it is a passthrough handle. With the last one of its inode, the object is forgotten.
    pub fn release(&self, fs: &Arc<FileSystem>, inode: u64, handle: u64) {
        let (fs, registered) = (fs.clone(), self.registered.clone());
        (self.submit)(Box::new(move || {
            let mut registered = registered.lock();
            if let Some(backing) = registered.backings.get_mut(&inode) {
                backing.handles.remove(&handle);
                registered.forget_if_unused(&fs, inode);
            }
        }));
    }
}

impl Registered {
    fn open(&mut self, fs: &FileSystem, open: PassthroughOpen, reply: ReplyOpen) {
        let PassthroughOpen { inode, handle, request, object } = open;
        match self.backing(fs, inode, object.as_ref(), &reply) {
            Ok(backing) => {
                backing.handles.insert(handle);
                // SAFETY: the object is registered in this session, by this daemon or by one before it, and stays registered while `backings`
                // has it. The value that could end that is taken apart below.
                let id = unsafe { reply.wrap_backing(backing.id) };
                reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &id);
                id.into_raw();
            }
            Err(error) => {
                log::debug!("FUSE passthrough is not available: {error}");
                fs.cache_policy().set_passthrough(false);
                fs.recovery().record_refused_backing(inode, handle, request);
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
            }
        }
    }

    /// Returns the registered object of an inode. Registers it if the inode has none.
    fn backing(
        &mut self,
        fs: &FileSystem,
        inode: u64,
        object: &dyn Object,
        reply: &ReplyOpen,
    ) -> io::Result<&mut Backing> {
        match self.backings.entry(inode) {
            Entry::Occupied(backing) => Ok(backing.into_mut()),
            Entry::Vacant(slot) => {
                let file = object.file().ok_or(io::ErrorKind::Unsupported)?;
                let id = reply.open_backing(file)?.into_raw();
                fs.recovery().record_backing(inode, id, &object.version());
                Ok(slot.insert(Backing { id, handles: HashSet::new() }))
            }
        }
    }

    /// Makes the kernel forget the object of an inode without handles.
    fn forget_if_unused(&mut self, fs: &FileSystem, inode: u64) {
        let Some(backing) = self.backings.get(&inode).filter(|backing| backing.handles.is_empty()) else {
            return;
        };
        if let Some(device) = &self.device
            && let Err(error) = sys::forget_backing(device.as_fd(), backing.id)
        {
            // It does not know the number if a daemon before died between this call and the record.
            log::debug!("the kernel cannot forget an object that it read by itself: {error}");
        }
        self.backings.remove(&inode);
        fs.recovery().record_end_of_backing(inode);
    }
}
