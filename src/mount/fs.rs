//! The file system: which names there are and what they are, without FUSE types, so that it is tested
//! without a mount.
//!
//! Uses `hierarchy` (through [`NodeCache`]), `array` and the tables of this folder. `files.rs` opens and reads, `folders.rs`
//! lists, `generated.rs` writes the sidecars; `fuse.rs` only translates.
//!
//! Invariants: a real node wins over a generated name; an operation with [`Reach::Memory`] never touches the
//! store; an inode whose array was replaced answers ESTALE for ever.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::array::Engine;
use crate::hierarchy::{Node, Tree};
use crate::metadata::ArrayMetadata;
use crate::mount::companions::{Companions, expressed};
use crate::mount::failure::{Answer, Failure, FailureLog, Reach};
use crate::mount::handle::HandleTable;
use crate::mount::inode::{Entity, Inode, InodeTable, Kind, OpenArray};
use crate::mount::nodes::{NodeCache, Seen};
use crate::mount::options::Options;
use crate::mount::outcome::Outcome;
use crate::mount::permissions::Permissions;
use crate::mount::sidecar_edit::Drafts;
use crate::mount::stats::Stats;
use crate::store::{Info, ObjectVersion, StatFs, Store, join};

/// The folder of this mount's own files, at the root.
pub const INTERNALS: &str = "__zarrfs__";
/// The folder of companion files, at the root.
pub const FORMATS: &str = crate::formats::FOLDER;
/// The format that holds every sidecar, displaced ones too.
pub const JSON: &str = "json";
/// A group's sidecar.
pub const GROUP_SIDECAR: &str = "__group__.json";
/// Behind an array's name: its sidecar.
pub const SIDECAR_SUFFIX: &str = ".json";
/// In [`INTERNALS`]: the counters.
pub const STATS: &str = "stats";
/// In [`INTERNALS`]: what the mount runs with.
pub const CONFIG: &str = "config.json";
/// In [`INTERNALS`]: the keys of what is not in the store yet.
pub const UNSAVED: &str = "unsaved";
/// In [`INTERNALS`]: the last failures.
pub const LAST_ERROR: &str = "last_error";
/// The longest name that Linux takes, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// What stat(2) tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub inode: u64,
    /// A folder, else a regular file.
    pub is_folder: bool,
    /// Length of the file.
    pub size_bytes: u64,
    /// Permission bits, 0o777 at most.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of last change, also shown as the other times.
    pub mtime: SystemTime,
}

/// Attributes, and how long the kernel may keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What was found.
    pub attributes: Attributes,
    /// For so long.
    pub valid_for: Duration,
}

/// A mounted hierarchy.
pub struct FileSystem {
    pub(super) options: Arc<Options>,
    pub(super) nodes: NodeCache,
    pub(super) engine: Arc<Engine>,
    pub(super) inodes: InodeTable,
    pub(super) handles: HandleTable,
    pub(super) drafts: Drafts,
    pub(super) permissions: Permissions,
    pub(super) stats: Stats,
    pub(super) failures: FailureLog,
    pub(super) companions: Companions,
    /// The name of the root's file, should the root be an array.
    pub(super) root_name: String,
    pub(super) outcome: Outcome,
    /// The kernel keeps its page cache in line with writes that go past it.
    lets_writes_pass: AtomicBool,
    /// The kernel reads objects by itself.
    backs_files: AtomicBool,
    /// Nobody is served any more: the daemon is about to end.
    pub(super) is_over: AtomicBool,
    pub(super) started: SystemTime,
    /// Groups whose folders were searched for what dead writers left.
    pub(super) searched: Mutex<HashSet<Arc<str>>>,
    /// Held while an array's inode is brought in line with the store.
    reconciling: Mutex<()>,
}

impl FileSystem {
    /// Over an open store. Reads nothing yet.
    pub fn new(options: Arc<Options>, store: Arc<dyn Store>) -> Self {
        let engine = Engine::new(options.cache_limit_bytes, options.threads);
        engine.set_dirty_limit_bytes(options.dirty_limit_bytes);
        engine.set_settle(options.settle);
        if !options.direct_io {
            engine.let_readers_keep();
        }
        FileSystem {
            nodes: NodeCache::new(Tree::new(store), options.revalidate()),
            engine,
            inodes: InodeTable::default(),
            handles: HandleTable::default(),
            drafts: Drafts::default(),
            permissions: Permissions::new(options.store_path.as_deref(), options.writable),
            stats: Stats::default(),
            failures: FailureLog::default(),
            companions: Companions::default(),
            root_name: root_name(&options),
            outcome: Outcome::new(),
            lets_writes_pass: AtomicBool::new(false),
            backs_files: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            started: SystemTime::now(),
            searched: Mutex::default(),
            reconciling: Mutex::default(),
            options,
        }
    }

    /// What the mount was asked to be.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// From now on what is only written goes past the page cache, which the kernel keeps in line.
    pub fn let_writes_pass(&self) {
        self.lets_writes_pass.store(true, Ordering::Relaxed);
    }

    pub(super) fn lets_writes_pass(&self) -> bool {
        self.lets_writes_pass.load(Ordering::Relaxed)
    }

    /// From now on files are opened with the object that the kernel may read by itself, where there is one, or not.
    pub fn back_files(&self, are_backed: bool) {
        self.backs_files.store(are_backed, Ordering::Relaxed);
    }

    pub(super) fn backs_files(&self) -> bool {
        self.backs_files.load(Ordering::Relaxed)
    }

    /// How many files and folders are open.
    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    /// For how long names that are not there may be remembered.
    pub fn negative_valid_for(&self) -> Duration {
        self.options.revalidate()
    }

    /// Forgets what was read of the hierarchy (SIGHUP).
    pub fn expire(&self) {
        self.nodes.expire();
    }

    /// Finds a name in a folder.
    pub fn lookup(&self, parent: u64, name: &str, reach: Reach) -> Answer<Found> {
        let parent = self.inode(parent)?;
        if !parent.entity.kind.is_folder() {
            return Err(Failure::Errno(libc::ENOTDIR));
        }
        let entity = self.child(&parent.entity, name, reach)?.ok_or(Failure::Errno(libc::ENOENT))?;
        self.found(&entity, reach)
    }

    /// The attributes of an inode.
    pub fn attributes(&self, inode: u64, reach: Reach) -> Answer<Found> {
        let inode = self.inode(inode)?;
        let found = self.found(&inode.entity, reach)?;
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        Ok(found)
    }

    /// Room in the store's filesystem.
    pub fn room(&self) -> Answer<StatFs> {
        Ok(self.nodes.store().statfs()?)
    }

    /// An inode that may be used.
    pub(super) fn inode(&self, number: u64) -> Answer<Arc<Inode>> {
        let inode = self.inodes.get(number).ok_or(Failure::Errno(libc::ENOENT))?;
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        Ok(inode)
    }

    /// What a name in a folder stands for.
    fn child(&self, parent: &Entity, name: &str, reach: Reach) -> Answer<Option<Entity>> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Ok(None);
        }
        match parent.kind {
            Kind::Group => self.child_of_group(&parent.path, name, reach),
            Kind::JsonFolder => self.child_of_json_folder(&parent.path, name, reach),
            Kind::Formats => Ok(self.child_of_formats(name)),
            Kind::FormatFolder(format) => self.child_of_format_folder(format, &parent.path, name, reach),
            Kind::Internals => Ok(match name {
                STATS => Some(Entity::new(Kind::Stats, "")),
                CONFIG => Some(Entity::new(Kind::Config, "")),
                UNSAVED => Some(Entity::new(Kind::Unsaved, "")),
                LAST_ERROR => Some(Entity::new(Kind::LastError, "")),
                _ => None,
            }),
            _ => Ok(None),
        }
    }

    fn child_of_group(&self, group: &str, name: &str, reach: Reach) -> Answer<Option<Entity>> {
        if group.is_empty() && self.root_is_array(reach)? {
            if name == self.root_name {
                return Ok(Some(Entity::new(Kind::Array, "")));
            }
            if name.strip_suffix(SIDECAR_SUFFIX) == Some(&self.root_name) {
                return Ok(Some(Entity::new(Kind::Sidecar, "")));
            }
            return Ok(root_extra(name));
        }
        let path = join(group, name);
        match &self.nodes.get(&path, reach)?.node {
            Some(Node::Group { .. }) => return Ok(Some(Entity::new(Kind::Group, path))),
            Some(Node::Array { .. } | Node::Broken { .. }) => {
                return Ok(Some(Entity::new(Kind::Array, path)));
            }
            None => {}
        }
        if name == GROUP_SIDECAR {
            return Ok(Some(Entity::new(Kind::GroupSidecar, group)));
        }
        if let Some(path) = self.array_of_sidecar(group, name, reach)? {
            return Ok(Some(Entity::new(Kind::Sidecar, path)));
        }
        Ok(if group.is_empty() { root_extra(name) } else { None })
    }

    fn child_of_json_folder(&self, group: &str, name: &str, reach: Reach) -> Answer<Option<Entity>> {
        if group.is_empty() && self.root_is_array(reach)? {
            let is_sidecar = name.strip_suffix(SIDECAR_SUFFIX) == Some(&self.root_name);
            return Ok(is_sidecar.then(|| Entity::new(Kind::JsonSidecar, "")));
        }
        if name == GROUP_SIDECAR {
            return Ok(Some(Entity::new(Kind::JsonGroupSidecar, group)));
        }
        if let Some(path) = self.array_of_sidecar(group, name, reach)? {
            return Ok(Some(Entity::new(Kind::JsonSidecar, path)));
        }
        let path = join(group, name);
        let is_group = matches!(self.nodes.get(&path, reach)?.node, Some(Node::Group { .. }));
        Ok(is_group.then(|| Entity::new(Kind::JsonFolder, path)))
    }

    /// The path of the array that `name` would be the sidecar of.
    fn array_of_sidecar(&self, group: &str, name: &str, reach: Reach) -> Answer<Option<String>> {
        let Some(stem) = name.strip_suffix(SIDECAR_SUFFIX).filter(|stem| !stem.is_empty()) else {
            return Ok(None);
        };
        let path = join(group, stem);
        let is_array = is_array(&*self.nodes.get(&path, reach)?);
        Ok(is_array.then_some(path))
    }

    pub(super) fn root_is_array(&self, reach: Reach) -> Answer<bool> {
        Ok(is_array(&*self.nodes.get("", reach)?))
    }

    /// The attributes of what an entity is now, under the inode that it has now.
    pub(super) fn found(&self, entity: &Entity, reach: Reach) -> Answer<Found> {
        let seen = self.nodes.get(&entity.path, reach)?;
        if entity.kind == Kind::Array {
            self.reconcile(entity, &seen, reach)?;
        }
        let (info, size_bytes) = self.facts(entity, &seen, reach)?;
        let draft = self.draft_size(entity);
        let mode = match entity.kind.is_folder() {
            true => self.permissions.of_folder(&info),
            false => self.permissions.of_file(&info),
        };
        let attributes = Attributes {
            inode: self.inodes.of(entity).number,
            is_folder: entity.kind.is_folder(),
            size_bytes: draft.unwrap_or(size_bytes),
            mode,
            uid: info.uid,
            gid: info.gid,
            mtime: info.mtime,
        };
        // The length of what is being written is another at the next moment.
        let valid_for =
            if draft.is_some() { Duration::ZERO } else { seen.valid_for(self.nodes.revalidate()) };
        Ok(Found { attributes, valid_for })
    }

    /// Owner, mode, time and length of an entity.
    fn facts(&self, entity: &Entity, seen: &Seen, reach: Reach) -> Answer<(Info, u64)> {
        const GONE: Failure = Failure::Errno(libc::ENOENT);
        match entity.kind {
            Kind::Group | Kind::JsonFolder | Kind::FormatFolder(_) => match &seen.node {
                Some(Node::Group { info, .. }) => Ok((*info, 0)),
                // The folder that shows an array as its only file.
                Some(Node::Array { info, .. } | Node::Broken { info, .. }) if entity.path.is_empty() => {
                    Ok((info.as_folder(), 0))
                }
                _ => Err(GONE),
            },
            Kind::Array => match &seen.node {
                Some(Node::Array { metadata, info }) => Ok((*info, flat_size(metadata).unwrap_or(0))),
                Some(Node::Broken { info, size_bytes, .. }) => Ok((*info, size_bytes.unwrap_or(0))),
                _ => Err(GONE),
            },
            Kind::Companion(format) => match (expressed(format, seen), &seen.node) {
                (Some(metadata), Some(Node::Array { info, .. })) => {
                    Ok((*info, self.companion_size(format, entity, metadata, reach)?))
                }
                _ => Err(GONE),
            },
            Kind::Sidecar | Kind::JsonSidecar if !is_array(seen) => Err(GONE),
            Kind::GroupSidecar | Kind::JsonGroupSidecar if !matches!(seen.node, Some(Node::Group { .. })) => {
                Err(GONE)
            }
            Kind::Sidecar | Kind::JsonSidecar | Kind::GroupSidecar | Kind::JsonGroupSidecar => {
                let is_mirrored = matches!(entity.kind, Kind::JsonSidecar | Kind::JsonGroupSidecar);
                let slot = if is_mirrored { &seen.mirrored_sidecar } else { &seen.sidecar };
                let file = match (slot.get(), reach) {
                    (Some(file), _) => *file,
                    (None, Reach::Memory) => return Err(Failure::NeedsStore),
                    (None, Reach::Store) => {
                        let file = self.sidecar_facts(&entity.path, seen, is_mirrored)?;
                        *slot.get_or_init(|| file)
                    }
                };
                Ok((file.info, file.size_bytes))
            }
            Kind::Internals | Kind::Formats => Ok((self.own_info(0o555), 0)),
            Kind::Stats => Ok((self.own_info(0o400), self.stats_text().len() as u64)),
            Kind::Config => Ok((self.own_info(0o444), self.config_text().len() as u64)),
            Kind::Unsaved => Ok((self.own_info(0o400), self.unsaved_text().len() as u64)),
            Kind::LastError => Ok((self.own_info(0o400), self.failures.text().len() as u64)),
        }
    }

    /// What is shown of the mount's own files: they belong to the user that runs it. What names arrays is for that user only.
    pub(super) fn own_info(&self, mode: u32) -> Info {
        let (uid, gid) = crate::sys::effective_ids();
        let version = ObjectVersion { device: 0, inode: 0, mtime_ns: 0, size_bytes: 0 };
        Info { version, uid, gid, mode, mtime: self.started }
    }

    /// Brings the inode of an array in line with what the store holds now: unchanged, grown in place, or another
    /// array, whose predecessor's handles then get ESTALE.
    pub(super) fn reconcile(&self, entity: &Entity, seen: &Seen, reach: Reach) -> Answer<()> {
        let Some(inode) = self.inodes.existing(entity) else { return Ok(()) };
        let is_news = |old: &OpenArray| match &seen.node {
            Some(Node::Array { metadata, .. }) => {
                !Arc::ptr_eq(metadata, &old.metadata) && seen.read_at > old.read_at
            }
            _ => true,
        };
        if !inode.open_array().is_some_and(|old| is_news(&old)) {
            return Ok(());
        }
        // What follows may have to wait until a flush is through.
        if reach == Reach::Memory {
            return Err(Failure::NeedsStore);
        }
        let _one_at_a_time = self.reconciling.lock();
        let Some(old) = inode.open_array().filter(|old| is_news(old)) else { return Ok(()) };
        let Some(Node::Array { metadata, .. }) = &seen.node else {
            self.inodes.retire(&inode);
            return Ok(());
        };
        let array = match (difference(&old.metadata, metadata, &self.options), &old.array) {
            // What was written to the folder that was there before does not belong into this one.
            (_, Ok(array)) if array.is_displaced() => {
                self.inodes.retire(&inode);
                return Ok(());
            }
            (Difference::None, _) => old.array.clone(),
            (Difference::Grown, Ok(array)) => array.grown(metadata.clone(), self.options.layout),
            (Difference::Grown, Err(_)) => self.build(&entity.path, metadata, &inode.audience),
            (Difference::Other, Ok(_) | Err(_)) => {
                self.inodes.retire(&inode);
                return Ok(());
            }
        };
        if array.is_err() {
            self.inodes.retire(&inode);
            return Ok(());
        }
        if array
            .as_ref()
            .is_ok_and(|array| old.array.as_ref().is_ok_and(|old| old.size_bytes() != array.size_bytes()))
        {
            inode.page_cache_users.drops.note_new_size();
        }
        let (metadata, version) = (metadata.clone(), seen.version);
        let new = OpenArray { metadata, version, read_at: seen.read_at, array };
        *inode.open_array.write() = Some(Arc::new(new));
        Ok(())
    }
}

/// How the metadata of an array differs from what its handles were opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// Not in what is served.
    None,
    /// Longer along the slowest axis of the file: all that was there is where it was.
    Grown,
    /// Another array.
    Other,
}

fn difference(old: &ArrayMetadata, new: &ArrayMetadata, options: &Options) -> Difference {
    if !old.is_stored_as(new) || old.shape.len() != new.shape.len() {
        return Difference::Other;
    }
    if old.shape == new.shape {
        return Difference::None;
    }
    let slowest = match options.layout.order {
        crate::array::Order::C => 0,
        crate::array::Order::F => old.shape.len().saturating_sub(1),
    };
    let mut axes = old.shape.iter().zip(&new.shape).enumerate();
    let has_grown =
        axes.all(|(axis, (before, after))| before == after || (axis == slowest && before < after));
    if has_grown { Difference::Grown } else { Difference::Other }
}

/// Bytes of an array's flat file; `None` where its elements have no fixed size.
pub fn flat_size(metadata: &ArrayMetadata) -> Option<u64> {
    let item = u64::try_from(metadata.data_type.item_size()?).ok()?;
    metadata.shape.iter().try_fold(item, |bytes, &length| bytes.checked_mul(length))
}

/// Whether a node is shown as a file.
pub(super) fn is_array(seen: &Seen) -> bool {
    matches!(seen.node, Some(Node::Array { .. } | Node::Broken { .. }))
}

/// What the root answers to without listing it.
fn root_extra(name: &str) -> Option<Entity> {
    match name {
        INTERNALS => Some(Entity::new(Kind::Internals, "")),
        FORMATS => Some(Entity::new(Kind::Formats, "")),
        _ => None,
    }
}

/// The name of a root that is an array: the store's, without `.zip` and `.zarr`.
fn root_name(options: &Options) -> String {
    let of_path = options.store_path.as_deref().and_then(|path| path.file_name()).and_then(|n| n.to_str());
    let of_source = options.source.trim_end_matches('/').rsplit('/').next();
    let name = of_path.or(of_source).unwrap_or_default();
    let name = name.strip_suffix(".zip").unwrap_or(name);
    let name = name.strip_suffix(".zarr").unwrap_or(name);
    match name {
        "" | "." | ".." => "array".to_owned(),
        name => name.to_owned(),
    }
}

/// The parent of a path; the root is its own.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
