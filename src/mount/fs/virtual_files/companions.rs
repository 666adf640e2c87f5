//! Companion files as the mount shows them: sidecars next to their nodes, and every format of `formats` below `__formats__/`.
//!
//! A lookup makes the file, so that its size is right, and keeps the size. The last file that was made from elements is kept for
//! the open that follows, unless it takes much of the cache. A file that cannot be made is shown empty, and its open fails. The inode of
//! a sidecar keeps the size longer than the caches keep the node, so that a listing of many nodes makes each sidecar once.
//!
//! Invariants: a file is made at most once at a time; a handle reads a snapshot; a file fits into the cache's limit; all handles of
//! an inode read the same snapshot, because they share the kernel's pages. If the file changes while handles are open, the next
//! lookup finds another inode.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Error;
use crate::formats::virtual_file::VirtualFile;
use crate::formats::{Companion, CompanionContent, CompanionPlace, Format, Role, Subject, VersionedFile};
use crate::hierarchy::{Node, OpenArrays, View};
use crate::mount::fs::entity::Entity;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::node_cache::{CachedNode, NodeCache};
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::request::RequestLog;
use crate::mount::fs::virtual_files::subjects::{Freshness, Subjects};
use crate::store::Info;

/// The companion files that have been looked up.
pub struct Companions {
    nodes: Arc<NodeCache>,
    arrays: Arc<OpenArrays>,
    inodes: Arc<InodeTable>,
    subjects: Arc<Subjects>,
    log: Arc<RequestLog>,
    /// A file that takes more memory is not kept.
    kept_limit_bytes: u64,
    slots: Mutex<CompanionSlots>,
    /// The last file that was made from elements.
    latest: Mutex<Option<Arc<VirtualFile>>>,
}

#[derive(Default)]
struct CompanionSlots {
    by_entity: HashMap<Entity, Arc<CompanionSlot>>,
    /// How many there may be before those of forgotten nodes are removed; at least [`SWEEP_AT`].
    sweep_at: usize,
}

/// One file. The lock is held while it is made.
type CompanionSlot = Mutex<Option<CompanionState>>;

/// The result of making a file.
struct CompanionState {
    /// The node that it was made from. The cache of nodes keeps the same node as long as its documents are unchanged.
    node: Weak<Node>,
    checked_at: Instant,
    /// Its own owner, mode and time, if the format has them and stat(2) was called.
    info: Option<Info>,
    outcome: Result<CompanionInfo, Error>,
}

/// A file that could be made.
struct CompanionInfo {
    size_bytes: u64,
    /// Whether it depends on the documents of other nodes.
    is_of_nodes: bool,
    /// The file, if it was made from elements.
    made: Option<MadeCompanion>,
}

struct MadeCompanion {
    companion: Box<dyn Companion>,
    version: u64,
    file: Weak<VirtualFile>,
}

/// How many files are known before those of forgotten nodes are removed.
const SWEEP_AT: usize = 4096;
/// A file is kept if it takes at most this fraction of the cache.
const KEPT_FRACTION: u64 = 4;

impl CompanionState {
    fn is_of(&self, node: &Arc<Node>) -> bool {
        std::ptr::eq(self.node.as_ptr(), Arc::as_ptr(node))
    }

    /// Returns whether the file was made from this node and compared with the store a moment ago.
    fn is_fresh(&self, revalidate: Duration, node: &Arc<Node>) -> bool {
        let is_ready = self.outcome.as_ref().is_ok_and(|info| info.made.is_none() && !info.is_of_nodes);
        self.is_of(node) && (is_ready || self.checked_at.elapsed() < revalidate)
    }

    /// Returns the file that was made from elements of this node, if it would get the same bytes again.
    fn unchanged(&self, format: &Format, subject: &Subject<'_>, node: &Arc<Node>) -> Option<&MadeCompanion> {
        let made = self.outcome.as_ref().ok()?.made.as_ref().filter(|_| self.is_of(node))?;
        let version = match format.check {
            None => made.companion.version(),
            // Other nodes decide which elements it is made from.
            Some(_) => match (format.open)(subject) {
                Ok(CompanionContent::Elements(companion)) => companion.version(),
                _ => return None,
            },
        };
        version.is_ok_and(|version| version == made.version).then_some(made)
    }

    /// Returns owner, mode and time for a file of this node, if they follow from the node or were read a moment ago.
    fn info_of(&self, revalidate: Duration, node: &Arc<Node>) -> Option<Info> {
        let is_of_nodes = self.outcome.as_ref().is_ok_and(|info| info.is_of_nodes);
        self.info.filter(|_| self.is_of(node) && (!is_of_nodes || self.is_fresh(revalidate, node)))
    }

    fn shown_size(&self) -> u64 {
        self.outcome.as_ref().map_or(0, |info| info.size_bytes)
    }
}

impl Companions {
    /// Creates the companion files of a mount.
    pub fn new(parts: &MountParts, subjects: Arc<Subjects>) -> Self {
        Companions {
            nodes: parts.nodes.clone(),
            arrays: parts.arrays.clone(),
            inodes: parts.inodes.clone(),
            subjects,
            log: parts.log.clone(),
            kept_limit_bytes: parts.options.cache_limit_bytes / KEPT_FRACTION,
            slots: Mutex::default(),
            latest: Mutex::default(),
        }
    }

    fn slot(&self, entity: &Entity) -> Arc<CompanionSlot> {
        let mut slots = self.slots.lock();
        if slots.by_entity.len() >= slots.sweep_at.max(SWEEP_AT) && !slots.by_entity.contains_key(entity) {
            // A slot that is in use is kept: there is one for each file.
            slots.by_entity.retain(|entity, slot| {
                let is_known =
                    |state: &CompanionState| !entity.is_transient() && state.node.strong_count() > 0;
                Arc::strong_count(slot) > 1 || slot.lock().as_ref().is_some_and(is_known)
            });
            slots.sweep_at = 2 * slots.by_entity.len();
        }
        slots.by_entity.entry(entity.clone()).or_default().clone()
    }

    /// Returns the size of a companion file, and its owner, mode and time if they differ from those of the node's own file. Makes
    /// the file if that is needed. ENOENT if the format cannot express the node.
    pub fn stat(
        &self,
        entity: &Entity,
        format: &'static Format,
        place: CompanionPlace,
        cached: &CachedNode,
        blocking: Blocking,
    ) -> FsResult<(Option<Info>, u64)> {
        const GONE: Failure = Failure::Errno(libc::ENOENT);
        let node = expressed(format, entity.view.as_ref(), cached, &self.arrays).ok_or(GONE)?;
        let revalidate = self.nodes.revalidate(&entity.path);
        let slot = self.slot(entity);
        let mut state = match blocking {
            Blocking::Yes => slot.lock(),
            Blocking::No => slot.try_lock().ok_or(Failure::WouldBlock)?,
        };
        let known = state.as_ref().filter(|state| state.is_fresh(revalidate, node));
        if let Some(known) = known.filter(|state| state.info.is_some() == format.info.is_some()) {
            return Ok((known.info, known.shown_size()));
        }
        if blocking == Blocking::No {
            return Err(Failure::WouldBlock);
        }
        let shown = self.arrays.shown(entity.view.as_ref(), node).ok_or(GONE)?;
        let subject = self.subjects.for_entity(entity, place, node, &shown, Freshness::Recent);
        let info = match (format.info, state.as_ref().and_then(|state| state.info_of(revalidate, node))) {
            (Some(read), None) => Some(read(&subject)?),
            (_, info) => info,
        };
        match &mut *state {
            Some(state) if state.is_fresh(revalidate, node) => {}
            Some(state) if state.unchanged(format, &subject, node).is_some() => {
                state.checked_at = subject.surroundings.oldest_checked_at().unwrap_or_else(Instant::now);
            }
            state => match self.known_sidecar_size(entity, cached) {
                Some(size_bytes) => {
                    let outcome = Ok(CompanionInfo { size_bytes, is_of_nodes: false, made: None });
                    let (node, checked_at) = (Arc::downgrade(node), cached.read_at);
                    *state = Some(CompanionState { node, checked_at, info, outcome });
                }
                None => {
                    let file = self.make(format, &subject, node, state);
                    self.retire_changed(entity, file.ok().as_deref());
                    self.record_sidecar_size(entity, cached, state.as_ref());
                }
            },
        }
        let Some(state) = &mut *state else { return Ok((info, 0)) };
        state.info = info;
        Ok((info, state.shown_size()))
    }

    /// Returns the size of a sidecar that was made of the same documents, perhaps of a node that the cache does not have any more.
    fn known_sidecar_size(&self, entity: &Entity, cached: &CachedNode) -> Option<u64> {
        let version = cached.settled_version().filter(|_| entity.is_sidecar())?;
        self.inodes.find(entity)?.known_size_of(&version)
    }

    /// Records the size of a sidecar that follows from the documents of its node alone.
    fn record_sidecar_size(&self, entity: &Entity, cached: &CachedNode, state: Option<&CompanionState>) {
        let info = state.and_then(|state| state.outcome.as_ref().ok()).filter(|info| !info.is_of_nodes);
        if entity.is_sidecar()
            && let (Some(version), Some(info)) = (cached.settled_version(), info)
        {
            self.inodes.get_or_add(entity).record_size_origin(info.size_bytes, &version);
        }
    }

    /// Returns the content of a companion file for open(2) of this inode. Blocks on the store.
    pub fn open(
        &self,
        inode: &Inode,
        format: &'static Format,
        place: CompanionPlace,
    ) -> FsResult<Arc<VirtualFile>> {
        let entity = &inode.entity;
        let cached = self.nodes.current(&entity.path)?;
        let Some(node) = expressed(format, entity.view.as_ref(), &cached, &self.arrays) else {
            return Err(Failure::Errno(libc::ESTALE));
        };
        let shown = self.arrays.shown(entity.view.as_ref(), node).ok_or(Failure::Errno(libc::ESTALE))?;
        let revalidate = self.nodes.revalidate(&entity.path);
        let slot = self.slot(entity);
        let mut state = slot.lock();
        // A daemon before may have shown it.
        let shown_size = state.as_ref().map(CompanionState::shown_size).or(inode.known_size());
        if let Some(CompanionState { outcome: Err(error), .. }) =
            state.as_ref().filter(|state| state.is_fresh(revalidate, node))
        {
            return Err(error.clone().into());
        }
        let subject = self.subjects.for_entity(entity, place, node, &shown, Freshness::Now);
        let unchanged = state.as_ref().and_then(|state| state.unchanged(format, &subject, node));
        let file = match unchanged.and_then(|made| made.file.upgrade()) {
            Some(file) => file,
            None => self.make(format, &subject, node, &mut state)?,
        };
        // A sidecar bypasses the page cache, so that it is read to its end, whatever size the kernel knows.
        if format.role == Role::Sidecar {
            return Ok(file);
        }
        if shown_size == Some(file.size_bytes()) {
            self.retire_changed(entity, Some(&file));
        } else if let Some(current) = self.inodes.find(entity) {
            self.inodes.retire(&current);
        }
        // The kernel looks the name up again, learns the new inode and size, and repeats the open.
        if self.inodes.find(entity).is_none_or(|current| current.number != inode.number) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        let mut snapshot = inode.state().snapshot.lock();
        let file = snapshot.upgrade().unwrap_or(file);
        *snapshot = Arc::downgrade(&file);
        Ok(file)
    }

    /// Makes the content anew for a handle from before a restart of the daemon. ESTALE where its bytes are not those that the
    /// handle has read. Blocks on the store.
    pub fn reopen(
        &self,
        inode: &Inode,
        format: &'static Format,
        place: CompanionPlace,
        fingerprint: u64,
    ) -> FsResult<Arc<VirtualFile>> {
        let stale = Failure::Errno(libc::ESTALE);
        let mut snapshot = inode.state().snapshot.lock();
        if let Some(file) = snapshot.upgrade() {
            return if file.fingerprint() == fingerprint { Ok(file) } else { Err(stale) };
        }
        let entity = &inode.entity;
        let cached = self.nodes.current(&entity.path)?;
        let node =
            expressed(format, entity.view.as_ref(), &cached, &self.arrays).ok_or_else(|| stale.clone())?;
        let shown = self.arrays.shown(entity.view.as_ref(), node).ok_or_else(|| stale.clone())?;
        let subject = self.subjects.for_entity(entity, place, node, &shown, Freshness::Now);
        let file = self.make(format, &subject, node, &mut self.slot(entity).lock())?;
        if file.fingerprint() != fingerprint {
            return Err(stale);
        }
        if format.role != Role::Sidecar {
            *snapshot = Arc::downgrade(&file);
        }
        Ok(file)
    }

    fn make(
        &self,
        format: &Format,
        subject: &Subject<'_>,
        node: &Arc<Node>,
        state: &mut Option<CompanionState>,
    ) -> Result<Arc<VirtualFile>, Error> {
        self.log.metrics().record_companion();
        let revalidate = self.nodes.revalidate(subject.path);
        let info = state.take().and_then(|state| state.info_of(revalidate, node));
        let made = (format.open)(subject).and_then(|content| match content {
            CompanionContent::Ready(file) => Ok((Arc::new(file), false, None)),
            CompanionContent::OfNodes(file) => Ok((Arc::new(file), true, None)),
            CompanionContent::Elements(companion) => {
                // The new file gets its memory.
                *self.latest.lock() = None;
                let VersionedFile { version, file } = companion.make()?;
                let file = Arc::new(file);
                if file.reserved_bytes() <= self.kept_limit_bytes {
                    *self.latest.lock() = Some(file.clone());
                }
                let made = MadeCompanion { companion, version, file: Arc::downgrade(&file) };
                Ok((file, format.check.is_some(), Some(made)))
            }
        });
        let (file, outcome) = match made {
            Ok((file, is_of_nodes, made)) => {
                let size_bytes = file.size_bytes();
                (Ok(file), Ok(CompanionInfo { size_bytes, is_of_nodes, made }))
            }
            Err(error) => (Err(error.clone()), Err(error)),
        };
        // A failure of the store is temporary.
        if !matches!(outcome, Err(Error::Store { .. } | Error::TimedOut { .. })) {
            // The delays of the nodes around and of this file must not add up.
            let checked_at = subject.surroundings.oldest_checked_at().unwrap_or_else(Instant::now);
            *state = Some(CompanionState { node: Arc::downgrade(node), checked_at, info, outcome });
        }
        file
    }

    /// Hides the inode of a file from lookups if its handles read another content.
    fn retire_changed(&self, entity: &Entity, file: Option<&VirtualFile>) {
        let Some(inode) = self.inodes.find(entity) else { return };
        let snapshot = inode.known_state().and_then(|state| state.snapshot.lock().upgrade());
        let Some(snapshot) = snapshot else { return };
        if !file.is_some_and(|file| file.has_same_segments(&snapshot)) {
            self.inodes.retire(&inode);
        }
    }
}

/// Returns the node, if the format can express it or the view of it.
pub fn expressed<'a>(
    format: &Format,
    view: Option<&View>,
    cached: &'a CachedNode,
    arrays: &OpenArrays,
) -> Option<&'a Arc<Node>> {
    let own = arrays.layout();
    let layout = view.map_or(own, |view| view.layout(own));
    let expresses =
        |node: &Arc<Node>| arrays.shown(view, node).is_some_and(|shown| (format.expresses)(&shown, layout));
    cached.node.as_ref().filter(|node| expresses(node))
}
