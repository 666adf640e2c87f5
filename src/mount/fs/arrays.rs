//! The arrays of inodes, taken from the table of open arrays and compared with the store.
//!
//! This file uses `hierarchy` for the table. It decides what a change means for the kernel: which inode is stale, and which pages.

use std::sync::Arc;

use crate::array::Array;
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::formats::virtual_file::VirtualFile;
use crate::hierarchy::{Node, OpenArrays, Reconciled, SharedArray, View};
use crate::mount::fs::attributes::permissions::Permissions;
use crate::mount::fs::entity::Entity;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::node_cache::{CachedNode, NodeCache};
use crate::store::{Info, Readers};

/// How often a write or flush begins again because another program has made the array longer meanwhile.
const MAX_SUCCESSORS: usize = 100;

/// An array whose bytes another file shows.
pub struct ArrayInUse {
    /// The inode of the array's own file.
    pub inode: Arc<Inode>,
    /// The users that may read the array.
    pub readers: Arc<Readers>,
}

/// The open arrays of a mount with their inodes, kept in line with the store.
pub struct ServedArrays {
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    arrays: Arc<OpenArrays>,
    permissions: Arc<Permissions>,
}

impl ServedArrays {
    /// Creates the arrays of these nodes and inodes.
    pub fn new(
        nodes: Arc<NodeCache>,
        inodes: Arc<InodeTable>,
        arrays: Arc<OpenArrays>,
        permissions: Arc<Permissions>,
    ) -> Self {
        ServedArrays { nodes, inodes, arrays, permissions }
    }

    /// Brings the inode of an array in line with the store. The array may be unchanged, have grown in place, or have been replaced
    /// by another one; then the old handles get ESTALE.
    pub fn reconcile(&self, entity: &Entity, cached: &CachedNode, blocking: Blocking) -> FsResult<()> {
        let Some(inode) = self.inodes.find(entity) else { return Ok(()) };
        let Some(shared) = inode.known_array() else { return Ok(()) };
        let mark_new_size = || inode.state().page_cache_users.drops.mark_new_size();
        match self.arrays.reconcile(shared, cached.node_state(), blocking == Blocking::Yes, mark_new_size) {
            Reconciled::Current => {}
            Reconciled::Replaced => self.inodes.retire(&inode),
            Reconciled::WouldBlock => return Err(Failure::WouldBlock),
        }
        Ok(())
    }

    /// Returns the open array at a path, or a view of it, for another file that shows its bytes. Blocks on the store.
    pub fn shared_array(&self, view: Option<View>, path: &str) -> FsResult<Arc<SharedArray>> {
        let cached = self.nodes.get(path, Blocking::Yes)?;
        let entity = Entity::array(view, path);
        self.reconcile(&entity, &cached, Blocking::Yes)?;
        let inode = self.inodes.get_or_add(&entity);
        let shared = inode.state().shared.as_ref().ok_or(Failure::Errno(libc::ESTALE))?;
        if self.arrays.engine().has_former(path) {
            // What a daemon before has written to it becomes dirty again, for which its document is read. Without readers it is closed.
            shared.audience.admit(self.permissions.readers(cached.node.as_deref()));
        }
        self.arrays.open(shared, cached.node_state())?;
        Ok(shared.clone())
    }

    /// Returns whether the store has certainly no array at a path: not if that is unknown, or if there is something that cannot be read.
    pub fn is_gone(&self, path: &str) -> bool {
        let is_no_array =
            |cached: &CachedNode| matches!(cached.node.as_deref(), None | Some(Node::Group { .. }));
        self.nodes.current(path).is_ok_and(|cached| is_no_array(&cached))
    }

    /// Returns the open array at a path for another file, and admits all users that may read the node as its readers.
    pub fn array_for_readers(&self, path: &str) -> FsResult<Arc<SharedArray>> {
        let shared = self.shared_array(None, path)?;
        let cached = self.nodes.get(path, Blocking::Yes)?;
        shared.audience.admit(self.permissions.readers(cached.node.as_deref()));
        Ok(shared)
    }

    /// Compares the array of open handles with the store, once in `revalidate`: the missing chunks of an array that was removed or
    /// replaced must not be read as fill value.
    pub fn recheck(&self, inode: &Inode) -> FsResult<()> {
        let Some(shared) = &inode.state().shared else { return Ok(()) };
        if !shared.is_check_due(self.nodes.revalidate(&inode.entity.path)) {
            return Ok(());
        }
        let Some(open) = shared.current() else { return Ok(()) };
        if self.nodes.version(&inode.entity.path)? != open.version {
            let cached = self.nodes.current(&inode.entity.path)?;
            self.reconcile(&inode.entity, &cached, Blocking::Yes)?;
        }
        Ok(())
    }

    /// Runs a write or flush on the current array, and again as long as the array has grown meanwhile.
    pub fn run_on_current<T>(
        &self,
        inode: &Inode,
        opened: &Arc<Array>,
        run: impl Fn(&Array) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let current = || inode.array().unwrap_or_else(|_| opened.clone());
        let mut array = current();
        for _ in 0..MAX_SUCCESSORS {
            let outcome = run(&array);
            if !matches!(outcome, Err(Error::Stale { .. })) {
                return outcome;
            }
            if let Ok(cached) = self.nodes.current(&inode.entity.path) {
                let _ = self.reconcile(&inode.entity, &cached, Blocking::Yes);
            }
            // This process may be making it longer. What is looked up of the store need not show that yet.
            self.arrays.wait_for_replacement(&inode.entity.path);
            let now = current();
            if Arc::ptr_eq(&array, &now) {
                return outcome;
            }
            array = now;
        }
        run(&array)
    }

    /// Prepares the arrays of a virtual file for open(2). Fails with ESTALE if one of them was replaced.
    pub fn use_arrays(&self, file: &VirtualFile, cancellation: &Cancellation) -> FsResult<Vec<ArrayInUse>> {
        let mut used: Vec<ArrayInUse> = Vec::new();
        for shared in file.arrays() {
            let inode = self.inodes.get_or_add(&Entity::array(shared.view.clone(), shared.path.clone()));
            if used.iter().any(|array| Arc::ptr_eq(&array.inode, &inode)) {
                continue;
            }
            let cached = self.nodes.current(&shared.path)?;
            self.reconcile(&inode.entity, &cached, Blocking::Yes)?;
            if shared.is_stale() {
                return Err(Failure::Errno(libc::ESTALE));
            }
            let readers = shared.audience.admit(self.permissions.readers(cached.node.as_deref()));
            self.flush_viewed_array(shared)?;
            drop(inode.revalidate(shared, &*inode.array()?, cancellation)?);
            used.push(ArrayInUse { inode, readers });
        }
        Ok(used)
    }

    /// Stores what was written to the array of a view, because views read the store.
    fn flush_viewed_array(&self, shared: &SharedArray) -> FsResult<()> {
        if shared.view.is_some() && self.arrays.engine().has_former(&shared.path) {
            // A daemon before has not stored all of it.
            self.shared_array(None, &shared.path).map_err(|failure| failure.into_error(&shared.path))?;
        }
        if shared.view.is_some()
            && let Some(open) = self.arrays.current(None, &shared.path)
            && let Ok(array) = &open.array
        {
            array.writer().flush()?;
        }
        Ok(())
    }

    /// Returns the attributes of an array's file. Its time moves when another program is seen to have changed chunks.
    pub fn with_time_of_chunks(&self, entity: &Entity, node: &Node, info: Info) -> Info {
        let open = self.arrays.current(self.array_view(entity, node), &entity.path);
        let changed_at = open.and_then(|open| open.array.as_ref().ok()?.changed_at());
        Info { modified: info.modified.max(changed_at), ..info }
    }

    /// Returns the view of the open array that has the bytes of an entity.
    fn array_view(&self, entity: &Entity, node: &Node) -> Option<View> {
        let Node::Array { metadata, .. } = node else { return entity.view.clone() };
        entity.view.as_ref()?.of_array(metadata.shape.len(), self.arrays.layout())
    }
}

/// Returns the size of an array in stat(2); `None` if it is unknown.
pub fn shown_size(cached: &CachedNode) -> Option<u64> {
    match cached.node.as_deref() {
        Some(Node::Array { metadata, .. }) => metadata.flat_size(),
        Some(Node::Broken { size_bytes, .. }) => *size_bytes,
        Some(Node::Group { .. }) | None => None,
    }
}
