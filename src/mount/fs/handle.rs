//! Handles: what open(2) and opendir(3) return.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::array::{Array, Reader};
use crate::formats::virtual_file::{FileReader, VirtualFile};
use crate::mount::fs::arrays::ArrayInUse;
use crate::mount::fs::inode::{Entity, Inode};
use crate::mount::fs::page_cache::cache_mode::CacheMode;
use crate::mount::fs::page_cache::page_drops::OpenDrop;
use crate::mount::fs::virtual_files::sidecar_edit::Draft;
use crate::store::Readers;

/// One entry of a folder.
#[derive(Clone, Debug)]
pub struct FolderEntry {
    /// The name.
    pub name: String,
    /// What the entry stands for.
    pub entity: Entity,
    /// The inode of that.
    pub inode: u64,
}

/// The state of a handle that may write.
pub struct Writer {
    /// The array at the time of the open, needed after another array has taken its place.
    pub(super) array: Arc<Array>,
    /// How many failed write-backs fsync has reported on this handle.
    pub(super) reported: AtomicU64,
    /// The last operation was a close(2): the file is probably closed and its release on the way.
    pub(super) is_closing: AtomicBool,
    /// The file may be mapped: it is open for reading too.
    pub(super) may_map: bool,
    /// How many failed write-backs close has reported. (The first close of dd, for example, stores zeros that
    /// the codecs cannot encode.)
    pub(super) reported_by_close: AtomicU64,
}

/// An open virtual file: a snapshot taken at open, except for the bytes of arrays in it.
pub struct VirtualHandle {
    pub(super) file: Arc<VirtualFile>,
    pub(super) reader: FileReader,
    /// The arrays in it.
    pub(super) arrays: Vec<ArrayInUse>,
}

/// An open file or folder.
pub enum Handle {
    /// An array's bytes.
    Array {
        /// The array.
        inode: Arc<Inode>,
        /// The reader's position and access pattern.
        reader: Reader,
        /// Present if the handle may write.
        writer: Option<Writer>,
        /// Whether the kernel caches the data of this handle.
        cache_mode: CacheMode,
        /// The page drop that goes with the reply to the open.
        drop: OpenDrop,
        /// The users that may read the array.
        readers: Arc<Readers>,
    },
    /// A sidecar that is open for writing.
    Draft {
        /// The sidecar.
        inode: Arc<Inode>,
        /// Its text, shared by all handles that write it.
        draft: Arc<Draft>,
    },
    /// A generated file or a companion file.
    Virtual(VirtualHandle),
    /// A folder: a snapshot taken at open, with `.` and `..` first.
    Folder(Vec<FolderEntry>),
}

/// All open handles.
#[derive(Default)]
pub struct HandleTable {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl HandleTable {
    /// Adds a handle; its number is never reused.
    pub fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(handle));
        number
    }

    /// The handle with this number.
    pub fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.read().get(&number).cloned()
    }

    /// Whether the inode has another handle that may write and is not about to be closed.
    pub fn has_other_writer(&self, number: u64, inode: u64) -> bool {
        let is_writer = |handle: &Handle| match handle {
            Handle::Array { inode: of, writer: Some(writer), .. } => {
                of.number == inode && !writer.is_closing.load(Ordering::Relaxed)
            }
            _ => false,
        };
        self.open.read().iter().any(|(&other, handle)| other != number && is_writer(handle))
    }

    /// Closes a handle. A request that still uses it keeps it alive.
    pub fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.write().remove(&number)
    }

    /// The number of open handles.
    pub fn len(&self) -> usize {
        self.open.read().len()
    }

    /// Whether no handle is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
