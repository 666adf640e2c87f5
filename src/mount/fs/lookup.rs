//! Names: what each stands for, and its attributes.

use std::time::Duration;

use crate::formats::views::{FLAT, VIEWS};
use crate::formats::{self, FOLDER, Role};
use crate::hierarchy::{Node, View};
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::{Entity, Kind};
use crate::mount::fs::names::Found;
use crate::mount::fs::node_cache::CachedNode;
use crate::mount::fs::permissions::own_info;
use crate::mount::fs::virtual_files::companion_names;
use crate::mount::fs::virtual_files::companions::expressed;
use crate::mount::fs::virtual_files::views::{self, PlaneNames};
use crate::mount::fs::{
    Attributes, COMMIT, CONFIG, FileSystem, INTERNALS, LAST_ERROR, SLOW, STATS, Stat, UNSAVED,
};
use crate::store::{Info, Posix, join};

impl FileSystem {
    /// Looks up a name in a folder.
    pub fn lookup(&self, parent: u64, name: &str, blocking: Blocking) -> FsResult<Stat> {
        let parent = self.inode(parent)?;
        if !parent.entity.kind.is_folder() {
            return Err(Failure::Errno(libc::ENOTDIR));
        }
        let entity = self.child(&parent.entity, name, blocking)?.ok_or(Failure::Errno(libc::ENOENT))?;
        let mut found = self.stat_entity(&entity, blocking)?;
        found.attributes.inode = self.inodes.look_up(&entity);
        Ok(found)
    }

    /// As [`FileSystem::lookup`], for a thread, 0 if unknown: what it is about to create is not there.
    pub fn lookup_by(&self, parent: u64, name: &str, thread: u32, blocking: Blocking) -> FsResult<Stat> {
        if self.is_expected((parent, name), thread) {
            return Err(Failure::Errno(libc::ENOENT));
        }
        self.lookup(parent, name, blocking)
    }

    /// The kernel has forgotten an inode that lookups and listings told it of so many times.
    pub fn forget(&self, inode: u64, lookups: u64) {
        self.inodes.forget(inode, lookups);
    }

    /// What a name in a folder stands for.
    pub(super) fn child(&self, parent: &Entity, name: &str, blocking: Blocking) -> FsResult<Option<Entity>> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Ok(None);
        }
        match parent.kind {
            Kind::Group => self.child_of_group(&parent.path, name, blocking),
            Kind::Formats => {
                Ok(formats::find(name).map(|format| Entity::new(Kind::FormatFolder(format), "")))
            }
            Kind::FormatFolder(format) => {
                let group = (parent.view, &*parent.path);
                companion_names::child_of_folder(&self.context(), format, group, name, blocking)
            }
            Kind::Views(format) => Ok(views::child_of_views(format, name)),
            Kind::PlanesFolder(_) => {
                let planes = PlaneNames::of(&self.context(), parent, blocking)?;
                Ok(planes.and_then(|planes| planes.find(name)))
            }
            Kind::Internals => Ok(match name {
                STATS => Some(Entity::new(Kind::Stats, "")),
                CONFIG => Some(Entity::new(Kind::Config, "")),
                UNSAVED => Some(Entity::new(Kind::DirtyReport, "")),
                LAST_ERROR => Some(Entity::new(Kind::LastError, "")),
                SLOW => Some(Entity::new(Kind::SlowRequests, "")),
                COMMIT if self.takes_commits() => Some(Entity::new(Kind::Commit, "")),
                _ => None,
            }),
            _ => Ok(None),
        }
    }

    fn child_of_group(&self, group: &str, name: &str, blocking: Blocking) -> FsResult<Option<Entity>> {
        let ctx = self.context();
        if ctx.is_root_array(group, blocking)? {
            if name == self.root_name {
                return Ok(Some(Entity::new(Kind::Array, "")));
            }
        } else {
            let path = join(group, name);
            match self.nodes.get(&path, blocking)?.node.as_deref() {
                Some(Node::Group { .. }) => return Ok(Some(Entity::new(Kind::Group, path))),
                Some(Node::Array { .. } | Node::Broken { .. }) => {
                    return Ok(Some(Entity::new(Kind::Array, path)));
                }
                None => {}
            }
        }
        match self.names.find(group, name) {
            Some(Found::File(entity)) => return Ok(Some(entity)),
            Some(Found::Vacant) => return Ok(None),
            None => {}
        }
        let generated = companion_names::file_beside(&ctx, group, name, blocking)?;
        Ok(generated.or_else(|| if group.is_empty() { root_extra(name) } else { None }))
    }

    /// The current attributes of an entity, under its current inode.
    pub(super) fn stat_entity(&self, entity: &Entity, blocking: Blocking) -> FsResult<Stat> {
        if let Kind::Scratch(number) = entity.kind {
            return self.stat_scratch(number);
        }
        let cached = self.nodes.get(&entity.path, blocking)?;
        if entity.kind == Kind::Array {
            self.context().reconcile(entity, &cached, blocking)?;
        }
        let (info, mut size_bytes) = self.facts(entity, &cached, blocking)?;
        let inode = self.inodes.existing(entity);
        if let Some(inode) = &inode {
            inode.written_end.note_told();
            size_bytes = inode.written_end.shown_size(size_bytes);
        }
        let is_growing = inode.is_some_and(|inode| inode.written_end.is_growing());
        let draft = self.drafts.size_bytes(&self.inodes, entity);
        let posix = info.posix.unwrap_or_else(Posix::of_object);
        let (mode, (uid, gid)) = match entity.kind.is_folder() {
            _ if entity.kind.is_of_mount() => ((posix.mode & 0o777) as u16, (posix.uid, posix.gid)),
            true => (self.permissions.of_folder(&info), self.permissions.owner(&info)),
            false => (self.permissions.of_file(&info), self.permissions.owner(&info)),
        };
        let attributes = Attributes {
            inode: self.inodes.number_of(entity),
            is_folder: entity.kind.is_folder(),
            size_bytes: draft.unwrap_or(size_bytes),
            // Nothing is written through a view.
            mode: if entity.view.is_some() { mode & !0o222 } else { mode },
            uid,
            gid,
            mtime: info.modified.unwrap_or(self.started),
        };
        // The size of a file that is being written changes at any time.
        let valid_for = if draft.is_some() || is_growing {
            Duration::ZERO
        } else {
            cached.valid_for(self.nodes.revalidate())
        };
        Ok(Stat { attributes, valid_for, entry_valid_for: self.entry_valid_for(entity, valid_for) })
    }

    /// The mode that a node has in the store, where folders above it may be closed, so that less is shown.
    pub(super) fn stored_mode(&self, entity: &Entity) -> FsResult<Option<u32>> {
        let cached = self.nodes.get(&entity.path, Blocking::Yes)?;
        let (info, _) = self.facts(entity, &cached, Blocking::Yes)?;
        let bits = if entity.kind.is_folder() { 0o1777 } else { 0o666 };
        Ok(info.posix.map(|posix| posix.mode & bits))
    }

    /// The attributes of an array's file: its time moves when another program is seen to have changed chunks.
    fn as_new_as_chunks(&self, entity: &Entity, node: &Node, info: Info) -> Info {
        let open = self.arrays.current(self.context().array_view(entity, node), &entity.path);
        let changed_at = open.and_then(|open| open.array.as_ref().ok()?.changed_at());
        Info { modified: info.modified.max(changed_at), ..info }
    }

    /// Owner, mode, time and size of an entity.
    fn facts(&self, entity: &Entity, cached: &CachedNode, blocking: Blocking) -> FsResult<(Info, u64)> {
        const GONE: Failure = Failure::Errno(libc::ENOENT);
        match entity.kind {
            Kind::Group | Kind::FormatFolder(_) => match cached.node.as_deref() {
                Some(Node::Group { info, .. }) => Ok((*info, 0)),
                // The root folder of a store that is a single array.
                Some(Node::Array { info, .. } | Node::Broken { info, .. }) if entity.path.is_empty() => {
                    Ok((info.as_folder(), 0))
                }
                _ => Err(GONE),
            },
            Kind::Array => match cached.node.as_deref() {
                Some(node @ Node::Array { metadata, info }) => {
                    Ok((self.as_new_as_chunks(entity, node, *info), metadata.flat_size().unwrap_or(0)))
                }
                Some(Node::Broken { info, size_bytes, .. }) => Ok((*info, size_bytes.unwrap_or(0))),
                _ => Err(GONE),
            },
            Kind::Companion(format, place) => {
                let node = expressed((format, entity.view), cached, &self.arrays).ok_or(GONE)?;
                let file = (format, place);
                let (info, size) = self.companions.stat(&self.context(), entity, file, node, blocking)?;
                let info = match (info, format.role) {
                    (Some(info), Role::Sidecar) => info,
                    (info, _) => self.as_new_as_chunks(entity, node, info.unwrap_or(*node.info())),
                };
                Ok((info, size))
            }
            Kind::PlanesFolder(format) => match (entity.view, cached.node.as_deref()) {
                (Some(View::Planes(axis)), Some(node)) => {
                    let ctx = self.context();
                    views::planes_of(&ctx, format, axis, &entity.path, cached).ok_or(GONE)?;
                    Ok((node.info().as_folder(), 0))
                }
                _ => Err(GONE),
            },
            Kind::Scratch(_) => Err(GONE),
            Kind::Internals | Kind::Formats | Kind::Views(_) => Ok((own_info(0o555, self.started), 0)),
            Kind::Stats
            | Kind::Config
            | Kind::DirtyReport
            | Kind::LastError
            | Kind::SlowRequests
            | Kind::Commit => {
                let mode = match entity.kind {
                    Kind::Config => 0o444,
                    Kind::Commit => 0o600,
                    // Files that name arrays are readable by the user of the daemon only.
                    _ => 0o400,
                };
                let text = self.own_text(entity.kind).unwrap_or_default();
                Ok((own_info(mode, self.started), text.len() as u64))
            }
        }
    }
}

/// Names that the root resolves but does not list.
fn root_extra(name: &str) -> Option<Entity> {
    match name {
        INTERNALS => Some(Entity::new(Kind::Internals, "")),
        FOLDER => Some(Entity::new(Kind::Formats, "")),
        VIEWS => Some(Entity::new(Kind::Views(FLAT), "")),
        _ => None,
    }
}
