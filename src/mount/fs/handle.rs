//! Handles: what open(2) and opendir(3) gave out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::array::Reader;
use crate::formats::Made;
use crate::mount::fs::inode::{Entity, Inode};
use crate::mount::fs::page_cache::cache_mode::CacheMode;
use crate::mount::fs::page_cache::page_drops::OpenDrop;
use crate::mount::fs::virtual_files::sidecar_edit::Draft;
use crate::mount::fs::write::Writer;
use crate::store::Readers;

/// One name in a folder.
#[derive(Clone, Debug)]
pub struct FolderEntry {
    /// The name.
    pub name: String,
    /// What it stands for.
    pub entity: Entity,
    /// Its inode.
    pub inode: u64,
}

/// What a handle reads.
pub enum Handle {
    /// An array's bytes.
    Array {
        /// The array.
        inode: Arc<Inode>,
        /// How it goes through the array.
        reader: Reader,
        /// Present where the handle may write.
        writer: Option<Writer>,
        /// Whether the kernel caches what it reads and writes.
        cache_mode: CacheMode,
        /// What the kernel dropped when it was opened.
        drop: OpenDrop,
        /// Who may have it.
        readers: Arc<Readers>,
    },
    /// A sidecar that is written.
    Draft {
        /// The sidecar.
        inode: Arc<Inode>,
        /// Its text, shared with its other writers.
        draft: Arc<Draft>,
    },
    /// A generated file, as it was when opened.
    Generated(Vec<u8>),
    /// A companion file, as it was when opened.
    Companion(Arc<Made>),
    /// A folder, as it was when opened: `.` and `..` first.
    Folder(Vec<FolderEntry>),
}

/// All open handles.
#[derive(Default)]
pub struct HandleTable {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl HandleTable {
    /// Adds one; its number is never reused.
    pub fn add(&self, handle: Handle) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(handle));
        number
    }

    /// One that is open.
    pub fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.read().get(&number).cloned()
    }

    /// Whether an inode has another handle that may write and is not about to be closed.
    pub fn has_other_writer(&self, number: u64, inode: u64) -> bool {
        let is_writer = |handle: &Handle| match handle {
            Handle::Array { inode: of, writer: Some(writer), .. } => {
                of.number == inode && !writer.is_closing.load(Ordering::Relaxed)
            }
            _ => false,
        };
        self.open.read().iter().any(|(&other, handle)| other != number && is_writer(handle))
    }

    /// Closes one. A request that still uses it keeps it alive.
    pub fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.write().remove(&number)
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.read().len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
