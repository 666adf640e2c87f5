//! The attributes of files and folders: owner, mode, time and size.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::formats::Role;
use crate::hierarchy::{Node, View};
use crate::mount::fs::arrays::ServedArrays;
use crate::mount::fs::attributes::permissions::{Permissions, daemon_owned_info};
use crate::mount::fs::attributes::{Attributes, Stat};
use crate::mount::fs::entity::{Entity, EntityKind};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Inode, InodeTable};
use crate::mount::fs::names::table::NameTable;
use crate::mount::fs::node_cache::{CachedNode, NodeCache};
use crate::mount::fs::parts::MountParts;
use crate::mount::fs::virtual_files::companion_names::CompanionNames;
use crate::mount::fs::virtual_files::companions::Companions;
use crate::mount::fs::virtual_files::generated::GeneratedFiles;
use crate::mount::fs::virtual_files::internals::InternalFiles;
use crate::mount::fs::virtual_files::sidecar_edit::Drafts;
use crate::mount::options::Options;
use crate::store::{Info, Posix, Readers, member_name};

/// The attributes of the files of a mount.
pub struct FileAttributes {
    options: Arc<Options>,
    nodes: Arc<NodeCache>,
    inodes: Arc<InodeTable>,
    served: Arc<ServedArrays>,
    permissions: Arc<Permissions>,
    names: Arc<NameTable>,
    companion_names: Arc<CompanionNames>,
    companions: Arc<Companions>,
    drafts: Arc<Drafts>,
    internal_files: Arc<InternalFiles>,
    /// The time of files that have none of their own.
    started: SystemTime,
}

impl FileAttributes {
    /// Creates the attributes of a mount that starts now.
    pub fn new(
        parts: &MountParts,
        generated: &GeneratedFiles,
        names: Arc<NameTable>,
        internal_files: Arc<InternalFiles>,
    ) -> Self {
        FileAttributes {
            options: parts.options.clone(),
            nodes: parts.nodes.clone(),
            inodes: parts.inodes.clone(),
            served: parts.served.clone(),
            permissions: parts.permissions.clone(),
            names,
            companion_names: generated.companion_names.clone(),
            companions: generated.companions.clone(),
            drafts: generated.drafts.clone(),
            internal_files,
            started: SystemTime::now(),
        }
    }

    /// Returns the attributes of an inode that is not stale.
    pub fn get_for_inode(&self, inode: &Inode, blocking: Blocking) -> FsResult<Stat> {
        let mut found = self.get(&inode.entity, blocking)?;
        if inode.is_stale() {
            return Err(Failure::Errno(libc::ESTALE));
        }
        // The handles of a file that has changed since they were opened still read the old content.
        if matches!(inode.entity.kind, EntityKind::Companion(..)) && found.attributes.inode != inode.number {
            let snapshot = inode.known_state().and_then(|state| state.snapshot.lock().upgrade());
            let snapshot = snapshot.ok_or(Failure::Errno(libc::ESTALE))?;
            (found.attributes.inode, found.attributes.size_bytes) = (inode.number, snapshot.size_bytes());
        }
        Ok(found)
    }

    /// Returns the attributes of an entity for a reply that gives the kernel its inode.
    pub fn look_up(&self, entity: &Entity, blocking: Blocking) -> FsResult<Stat> {
        let mut found = self.get(entity, blocking)?;
        let number = self.inodes.look_up(entity);
        found.attributes.inode = number;
        if let EntityKind::Companion(..) = entity.kind
            && let Some(inode) = self.inodes.get(number)
        {
            self.inodes.record_size(&inode, found.attributes.size_bytes);
        }
        Ok(found)
    }

    /// Returns the current attributes of an entity, with its current inode.
    pub fn get(&self, entity: &Entity, blocking: Blocking) -> FsResult<Stat> {
        let FileAttributes { nodes, inodes, served, names, permissions, drafts, .. } = self;
        if let EntityKind::Scratch(number) = entity.kind {
            return names.stat(number);
        }
        let cached = if entity.kind.is_report() {
            // It belongs to the mount: asking for it must not ask the store.
            Arc::new(CachedNode::absent(Instant::now()))
        } else {
            match entity.kind {
                EntityKind::Group if entity.view.is_none() => nodes.get_folder(&entity.path, blocking)?,
                _ => nodes.get(&entity.path, blocking)?,
            }
        };
        if entity.kind == EntityKind::Array {
            served.reconcile(entity, &cached, blocking)?;
        }
        let (info, mut size_bytes) = self.facts(entity, &cached, blocking)?;
        let inode = inodes.find(entity);
        if let Some(inode) = &inode
            && let EntityKind::Companion(..) = entity.kind
        {
            inodes.record_size(inode, size_bytes);
        }
        // A file that was not used is whole.
        let written_end = inode.as_ref().and_then(|inode| Some(&inode.known_state()?.written_end));
        if let Some(written_end) = written_end {
            written_end.mark_size_known();
            size_bytes = written_end.shown_size(size_bytes);
        }
        let is_growing = written_end.is_some_and(|end| end.is_growing());
        let draft = drafts.size_bytes(entity);
        let posix = info.posix.unwrap_or_else(Posix::default_for_object);
        let is_folder = entity.kind.is_folder();
        let (mode, (uid, gid)) = if entity.kind.belongs_to_mount() {
            ((posix.mode & 0o777) as u16, (posix.uid, posix.gid))
        } else {
            let mode = if is_folder { permissions.folder_mode(&info) } else { permissions.file_mode(&info) };
            (self.in_member(entity, &info, mode), permissions.owner(&info))
        };
        let attributes = Attributes {
            inode: inodes.number_of(entity),
            is_folder,
            size_bytes: draft.unwrap_or(size_bytes),
            // Views cannot be written.
            mode: if entity.view.is_some() { mode & !0o222 } else { mode },
            uid,
            gid,
            mtime: info.modified.unwrap_or(self.started),
        };
        // The size of a file that is being written changes at any time.
        let valid_for = if draft.is_some() || is_growing {
            Duration::ZERO
        } else {
            cached.valid_for(nodes.revalidate(&entity.path))
        };
        let may_change = self.options.changes_nodes() || (self.options.writable && entity.is_sidecar());
        let entry_valid_for = if may_change { Duration::ZERO } else { valid_for };
        Ok(Stat { attributes, valid_for, entry_valid_for })
    }

    /// Returns the mode of a folder. That of a member of a catalogue admits only users with permission to search the folders above its store:
    /// those are not part of the mount, so the kernel cannot check them.
    fn in_member(&self, entity: &Entity, info: &Info, mode: u16) -> u16 {
        let catalogue = self.nodes.store().catalogue().filter(|_| entity.kind.is_folder());
        let (Some(catalogue), Some(posix)) = (catalogue, info.posix) else { return mode };
        let name = member_name(&entity.path).filter(|name| *name == &*entity.path);
        let Some(name) = name else { return mode };
        let narrowed = catalogue.root_mode(name, Readers { mode: mode.into(), ..Readers::for_posix(&posix) });
        mode & narrowed as u16
    }

    /// Returns the mode that a node has in the store. The mount may show fewer bits, because of the folders above the store.
    pub fn stored_mode(&self, entity: &Entity) -> FsResult<Option<u32>> {
        let cached = self.nodes.get(&entity.path, Blocking::Yes)?;
        let (info, _) = self.facts(entity, &cached, Blocking::Yes)?;
        let bits = if entity.kind.is_folder() { 0o1777 } else { 0o666 };
        Ok(info.posix.map(|posix| posix.mode & bits))
    }

    /// Returns owner, mode, time and size of an entity.
    fn facts(&self, entity: &Entity, cached: &CachedNode, blocking: Blocking) -> FsResult<(Info, u64)> {
        const GONE: Failure = Failure::Errno(libc::ENOENT);
        let FileAttributes { served, companion_names, companions, internal_files, .. } = self;
        match entity.kind {
            EntityKind::Group | EntityKind::FormatFolder(_) => match cached.node.as_deref() {
                Some(Node::Group { info, .. }) => Ok((*info, 0)),
                // The root folder of a store that is a single array.
                Some(Node::Array { info, .. } | Node::Broken { info, .. }) if entity.path.is_empty() => {
                    Ok((info.as_folder(), 0))
                }
                _ => Err(GONE),
            },
            EntityKind::Array => match cached.node.as_deref() {
                Some(node @ Node::Array { metadata, info }) => {
                    let info = served.with_time_of_chunks(entity, node, *info);
                    Ok((info, metadata.flat_size().unwrap_or(0)))
                }
                Some(Node::Broken { info, size_bytes, .. }) => Ok((*info, size_bytes.unwrap_or(0))),
                _ => Err(GONE),
            },
            EntityKind::Companion(format, place) => {
                let (info, size) = companions.stat(entity, format, place, cached, blocking)?;
                let node = cached.node.as_deref().ok_or(GONE)?;
                let info = match (info, format.role) {
                    (Some(info), Role::Sidecar) => info,
                    (info, _) => served.with_time_of_chunks(entity, node, info.unwrap_or(*node.info())),
                };
                Ok((info, size))
            }
            EntityKind::PlanesFolder(format) => match (&entity.view, cached.node.as_deref()) {
                (Some(View::Planes(axis)), Some(node)) => {
                    let planes = companion_names.planes();
                    planes.folder_for_array(format, *axis, &entity.path, cached).ok_or(GONE)?;
                    Ok((node.info().as_folder(), 0))
                }
                _ => Err(GONE),
            },
            EntityKind::Scratch(_) => Err(GONE),
            EntityKind::Internals | EntityKind::Formats | EntityKind::Views(_) => {
                Ok((daemon_owned_info(0o555, self.started), 0))
            }
            EntityKind::Stats
            | EntityKind::Config
            | EntityKind::DirtyReport
            | EntityKind::LastError
            | EntityKind::SlowRequests
            | EntityKind::Commit => {
                let group = internal_files.stats_group().filter(|_| entity.kind == EntityKind::Stats);
                let mode = match entity.kind {
                    EntityKind::Config => 0o444,
                    // A group that may read it gets no names.
                    EntityKind::Stats if group.is_some() => 0o440,
                    EntityKind::Commit => 0o600,
                    // These files name arrays, which other users may not be allowed to list.
                    _ => 0o400,
                };
                let text = internal_files.text(entity.kind).unwrap_or_default();
                let mut info = daemon_owned_info(mode, self.started);
                if let (Some(group), Some(posix)) = (group, info.posix.as_mut()) {
                    posix.gid = group;
                }
                Ok((info, text.len() as u64))
            }
        }
    }
}
