//! Companion files as the mount shows them below `__formats__/`, found through the table in `formats`.
//!
//! A lookup makes the file, so that its size is right. The last one is kept for the open that follows, unless
//! it takes much of the cache; of the others only the size is kept. A file that cannot be made is shown
//! empty, and its open fails.
//!
//! Invariants: one file is made at most once at a time; a handle reads a snapshot; the file fits into the
//! cache's limit.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::Error;
use crate::formats::virtual_file::VirtualFile;
use crate::formats::{Companion, FORMATS, Format, Made, Subject, find};
use crate::hierarchy::Node;
use crate::metadata::ArrayMetadata;
use crate::mount::fs::JSON;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::node_cache::CachedNode;
use crate::mount::fs::virtual_files::Context;
use crate::store::{Audience, join};

/// The companion files that have been looked up.
#[derive(Default)]
pub struct Companions {
    slots: Mutex<HashMap<Entity, Arc<Slot>>>,
    /// The last file that was made.
    latest: Mutex<Option<Arc<VirtualFile>>>,
}

/// One file; locked while it is made.
type Slot = Mutex<Option<CompanionState>>;

/// The result of making a file.
struct CompanionState {
    metadata: Arc<ArrayMetadata>,
    checked_at: Instant,
    outcome: Result<CompanionInfo, Error>,
}

/// A file that could be made.
struct CompanionInfo {
    companion: Box<dyn Companion>,
    version: u64,
    size_bytes: u64,
    file: Weak<VirtualFile>,
}

/// The maximum number of files with a cached result.
const MAX_SLOTS: usize = 4096;
/// A file is kept if it takes at most this fraction of the cache.
const KEPT_FRACTION: u64 = 4;

impl Companions {
    fn slot(&self, entity: &Entity) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if slots.len() >= MAX_SLOTS && !slots.contains_key(entity) {
            slots.clear();
        }
        slots.entry(entity.clone()).or_default().clone()
    }
}

/// What a name in `__formats__/` stands for.
pub(in crate::mount::fs) fn child_of_formats(name: &str) -> Option<Entity> {
    match name {
        JSON => Some(Entity::new(Kind::JsonFolder, "")),
        _ => find(name).map(|format| Entity::new(Kind::FormatFolder(format), "")),
    }
}

/// The names in `__formats__/`.
pub(in crate::mount::fs) fn names_of_formats() -> Vec<(String, Entity)> {
    let names = FORMATS.iter().map(|format| format.name).chain([JSON]);
    names.filter_map(|name| Some((name.to_owned(), child_of_formats(name)?))).collect()
}

/// What a name in a group's folder below `__formats__/NAME/` stands for. Files win over groups of the same name.
pub(in crate::mount::fs) fn child_of_folder(
    ctx: &Context<'_>,
    format: &'static Format,
    group: &str,
    name: &str,
    blocking: Blocking,
) -> FsResult<Option<Entity>> {
    let stem = name.strip_suffix(format.suffix).filter(|stem| !stem.is_empty());
    if group.is_empty() && ctx.nodes.root_is_array(blocking)? {
        let is_file = stem == Some(ctx.root_name) && expresses(format, &*ctx.nodes.get("", blocking)?);
        return Ok(is_file.then(|| Entity::new(Kind::Companion(format), "")));
    }
    if let Some(stem) = stem {
        let path = join(group, stem);
        if expresses(format, &*ctx.nodes.get(&path, blocking)?) {
            return Ok(Some(Entity::new(Kind::Companion(format), path)));
        }
    }
    let path = join(group, name);
    let is_group = matches!(ctx.nodes.get(&path, blocking)?.node, Some(Node::Group { .. }));
    Ok(is_group.then(|| Entity::new(Kind::FormatFolder(format), path)))
}

/// The entries of such a folder.
pub(in crate::mount::fs) fn names_of_folder(
    ctx: &Context<'_>,
    format: &'static Format,
    group: &str,
) -> FsResult<Vec<(String, Entity)>> {
    if group.is_empty() && ctx.nodes.root_is_array(Blocking::Yes)? {
        let name = format!("{}{}", ctx.root_name, format.suffix);
        let file = child_of_folder(ctx, format, "", &name, Blocking::Yes)?;
        return Ok(file.map(|file| (name, file)).into_iter().collect());
    }
    let children = ctx.nodes.children(group)?;
    let (mut names, mut taken) = (Vec::new(), HashSet::new());
    for child in children.iter().filter(|child| !child.is_group) {
        let path = join(group, &child.name);
        if expresses(format, &*ctx.nodes.get(&path, Blocking::Yes)?) {
            let name = format!("{}{}", child.name, format.suffix);
            taken.insert(name.clone());
            names.push((name, Entity::new(Kind::Companion(format), path)));
        }
    }
    for child in children.iter().filter(|child| child.is_group && !taken.contains(&child.name)) {
        let path = join(group, &child.name);
        names.push((child.name.clone(), Entity::new(Kind::FormatFolder(format), path)));
    }
    Ok(names)
}

impl Companions {
    /// The size of a companion file of an array; makes the file if needed.
    pub(in crate::mount::fs) fn size(
        &self,
        ctx: &Context<'_>,
        format: &'static Format,
        entity: &Entity,
        metadata: &Arc<ArrayMetadata>,
        blocking: Blocking,
    ) -> FsResult<u64> {
        let slot = self.slot(entity);
        let mut state = match blocking {
            Blocking::Yes => slot.lock(),
            Blocking::No => slot.try_lock().ok_or(Failure::WouldBlock)?,
        };
        if !is_fresh(ctx, &state, metadata) {
            if blocking == Blocking::No {
                return Err(Failure::WouldBlock);
            }
            let is_same = is_unchanged(&state, metadata);
            match &mut *state {
                Some(state) if is_same => state.checked_at = Instant::now(),
                state => drop(self.make(ctx, format, entity, metadata, state)),
            }
        }
        Ok(shown_size(&state))
    }

    /// The content of a companion file for open(2). Blocks on the store.
    pub(in crate::mount::fs) fn open(
        &self,
        ctx: &Context<'_>,
        entity: &Entity,
        format: &'static Format,
    ) -> FsResult<Arc<VirtualFile>> {
        let cached = ctx.nodes.current(&entity.path)?;
        let Some(metadata) = expressed(format, &cached) else { return Err(Failure::Errno(libc::ESTALE)) };
        let slot = self.slot(entity);
        let mut state = slot.lock();
        let size_before = state.as_ref().map(|_| shown_size(&state));
        let still_there = match &*state {
            Some(CompanionState { outcome: Err(error), .. }) if is_fresh(ctx, &state, metadata) => {
                return Err(error.clone().into());
            }
            Some(CompanionState { outcome: Ok(info), .. }) if is_unchanged(&state, metadata) => {
                info.file.upgrade()
            }
            _ => None,
        };
        let file = match still_there {
            Some(file) => file,
            None => self.make(ctx, format, entity, metadata, &mut state)?,
        };
        // As with arrays: the kernel looks the name up again, learns the new size, and repeats the open.
        if size_before.is_some_and(|size| size != file.size_bytes()) {
            return Err(Failure::Errno(libc::ESTALE));
        }
        Ok(file)
    }

    fn make(
        &self,
        ctx: &Context<'_>,
        format: &'static Format,
        entity: &Entity,
        metadata: &Arc<ArrayMetadata>,
        state: &mut Option<CompanionState>,
    ) -> Result<Arc<VirtualFile>, Error> {
        // Frees its memory for the new file.
        *self.latest.lock() = None;
        let path = &entity.path;
        let audience: Arc<Audience> = Arc::default();
        let cached = ctx.nodes.get(path, Blocking::Yes).map_err(|failure| failure.into_error(path))?;
        audience.admit(ctx.permissions.readers(&cached));
        let store = ctx.arrays.store_for(path, &audience);
        let open_array = |path: &str| ctx.shared_array(path).map_err(|failure| failure.into_error(path));
        let subject = Subject { engine: ctx.engine, store: &store, path, metadata, open_array: &open_array };
        let made = (format.open)(&subject).and_then(|companion| Ok((companion.make()?, companion)));
        let (file, outcome) = match made {
            Ok((Made { version, file }, companion)) => {
                let (size_bytes, file) = (file.size_bytes(), Arc::new(file));
                if file.reserved_bytes() <= ctx.options.cache_limit_bytes / KEPT_FRACTION {
                    *self.latest.lock() = Some(file.clone());
                }
                let info = CompanionInfo { companion, version, size_bytes, file: Arc::downgrade(&file) };
                (Ok(file), Ok(info))
            }
            Err(error) => (Err(error.clone()), Err(error)),
        };
        *state = match &outcome {
            // A failure of the store is temporary.
            Err(Error::Store { .. } | Error::TimedOut { .. }) => None,
            _ => Some(CompanionState { metadata: metadata.clone(), checked_at: Instant::now(), outcome }),
        };
        file
    }
}

/// Whether the result is of this array and was compared with the store a moment ago.
fn is_fresh(ctx: &Context<'_>, state: &Option<CompanionState>, metadata: &Arc<ArrayMetadata>) -> bool {
    state.as_ref().is_some_and(|state| {
        Arc::ptr_eq(&state.metadata, metadata) && state.checked_at.elapsed() < ctx.nodes.revalidate()
    })
}

/// Whether making the file again would give the same bytes.
fn is_unchanged(state: &Option<CompanionState>, metadata: &Arc<ArrayMetadata>) -> bool {
    match state {
        Some(CompanionState { metadata: of, outcome: Ok(info), .. }) if Arc::ptr_eq(of, metadata) => {
            info.companion.version().is_ok_and(|version| version == info.version)
        }
        _ => false,
    }
}

fn shown_size(state: &Option<CompanionState>) -> u64 {
    state.as_ref().and_then(|state| state.outcome.as_ref().ok()).map_or(0, |info| info.size_bytes)
}

/// The metadata of an array, if the format can express it.
pub(in crate::mount::fs) fn expressed<'a>(
    format: &Format,
    cached: &'a CachedNode,
) -> Option<&'a Arc<ArrayMetadata>> {
    match &cached.node {
        Some(Node::Array { metadata, .. }) => Some(metadata).filter(|metadata| (format.expresses)(metadata)),
        _ => None,
    }
}

fn expresses(format: &Format, cached: &CachedNode) -> bool {
    expressed(format, cached).is_some()
}
