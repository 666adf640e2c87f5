//! Symbolic links in a folder that several users share, when this program can read more than they can.
//!
//! Uses `readers`, `posix_stat`, `sys`. A path without links is opened in one step, which fails if there is a link. Any other
//! path is resolved name by name: each descriptor is checked before a name is looked up in it, and the descriptor that was
//! checked is the one that is used. So replacing a name in between has no effect. Rules:
//!
//! - A link leads only where its owner has access: to the folders that its text leads through, and to the file that it names.
//!   If a folder belongs to the group of the link, the link's owner counts as a member.
//! - A node that is reached through a link shows only the permissions of users who can search every folder after the link.
//! - An array's data must be open to every user who may read its document, and so must every folder after the link, and the
//!   folders below the array's own.
//! - A folder behind a link below the array's folder is changed only if every user who may write the document may change it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::entries::OPEN_PATH;
use super::guard::{Guard, PathTrace, ownership, refused};
use super::{Confinement, DirectoryStore};
use crate::store::readers::{Ownership, READ, Readers, SEARCH};
use crate::sys;

/// The most links in a path, as in the kernel.
const MAX_LINKS: usize = 40;
const OWNER_HAS_NO_ACCESS: &str = "a symbolic link in the path leads where its owner has no access (a link gives the access of its owner, or of all users)";

/// A name that is still to be looked up.
#[derive(Clone)]
struct PendingName {
    name: Vec<u8>,
    /// The index of the name in the key. The names in a link's text have the index of the link.
    index: usize,
    /// Whether the name comes from a link's text.
    is_from_link: bool,
    /// The owners of the links that contain the name, without those who have access to everything.
    link_owners: Arc<Vec<Readers>>,
}

/// A path that is being resolved.
struct GuardedWalk<'a> {
    store: &'a DirectoryStore,
    guard: &'a Guard,
    key: &'a str,
    /// The number of times that the array had been opened when the walk began.
    opens: u64,
    /// The folders from the root to the current one, which is last.
    folders: Vec<File>,
    /// The names that are still to be looked up, in reverse.
    steps: Vec<PendingName>,
    links: usize,
    trace: PathTrace,
}

impl DirectoryStore {
    /// Resolves a path as the kernel does, and rejects links that would give other users access that they do not have.
    pub(super) fn resolve_guarded(
        &self,
        key: &str,
        flags: i32,
        guard: &Guard,
    ) -> io::Result<(File, PathTrace)> {
        let opens = match guard {
            Guard::Nodes => 0,
            Guard::Array(array) => {
                if let Some(opened) = array.open_in_reached(key, flags) {
                    return Ok((opened?, PathTrace { has_link: true, ..PathTrace::default() }));
                }
                array.audience.opens()
            }
        };
        let path = CString::new(if key.is_empty() { "." } else { key })?;
        let opened = match self.confinement {
            Confinement::Walk => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
            _ => sys::open_beneath_without_links(self.root.as_fd(), &path, flags),
        };
        match opened {
            Ok(opened) => {
                if let Guard::Array(array) = guard {
                    array.check_folders_above(self.root.as_fd(), key)?;
                }
                Ok((File::from(opened), PathTrace::default()))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOSYS | libc::EPERM)) => {
                let root = File::from(sys::open_at(self.root.as_fd(), c".", OPEN_PATH | libc::O_DIRECTORY)?);
                let link_owners = Arc::new(Vec::new());
                let names = key.split('/').enumerate();
                let steps = names.map(|(index, name)| PendingName {
                    name: name.as_bytes().to_vec(),
                    index,
                    is_from_link: false,
                    link_owners: Arc::clone(&link_owners),
                });
                let mut steps: Vec<PendingName> = steps.collect();
                steps.reverse();
                let trace = PathTrace::default();
                GuardedWalk { store: self, guard, key, opens, folders: vec![root], steps, links: 0, trace }
                    .run(flags)
            }
            Err(error) => Err(error),
        }
    }

    /// Fails unless names may be changed in a folder that was reached on this path.
    pub(super) fn check_change(&self, folder: &File, trace: &PathTrace) -> io::Result<()> {
        match &self.guard {
            Some(Guard::Array(array)) if trace.has_link_below => array.check_change(folder),
            _ => Ok(()),
        }
    }
}

impl GuardedWalk<'_> {
    fn run(mut self, flags: i32) -> io::Result<(File, PathTrace)> {
        loop {
            let Some(step) = self.steps.pop() else {
                // The path ends in `..` or `.`.
                let folder = self.folders.pop().ok_or(io::ErrorKind::NotFound)?;
                return Ok((self.reopened(&folder, flags)?, self.trace));
            };
            self.enter(&step)?;
            match step.name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    self.go_up()?;
                    continue;
                }
                _ => {}
            }
            let name = CString::new(step.name.clone())?;
            let Some(found) = self.find(&name, &step, flags)? else { continue };
            if !self.steps.is_empty() {
                self.folders.push(found);
                continue;
            }
            if flags & libc::O_PATH == 0 || flags & libc::O_DIRECTORY != 0 {
                let folder = self.folders.last().ok_or(io::ErrorKind::NotFound)?;
                match sys::open_at(folder.as_fd(), &name, flags | libc::O_NOFOLLOW) {
                    Ok(opened) => return self.end(File::from(opened), &step),
                    // The name has become a link.
                    Err(error) if error.raw_os_error() == Some(libc::ELOOP) && self.links < MAX_LINKS => {
                        self.links += 1;
                        self.steps.push(step);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            return self.end(found, &step);
        }
    }

    /// Checks the current folder before a name is looked up in it.
    fn enter(&mut self, step: &PendingName) -> io::Result<()> {
        let is_below = matches!(self.guard, Guard::Array(array) if step.index > array.depth);
        if !self.trace.has_link && !is_below {
            return Ok(());
        }
        let folder = self.folders.last().ok_or(io::ErrorKind::NotFound)?;
        let lends =
            |rights: &Ownership| step.link_owners.iter().all(|owner| owner.all_may(READ, SEARCH, rights));
        let is_from_link = match self.guard {
            Guard::Nodes => {
                let rights = ownership(folder)?;
                self.trace.folders.push(rights);
                lends(&rights)
            }
            Guard::Array(array) => array.check_folder(folder).map(|()| array.allows(folder, lends))??,
        };
        if is_from_link { Ok(()) } else { Err(refused(OWNER_HAS_NO_ACCESS)) }
    }

    fn go_up(&mut self) -> io::Result<()> {
        let last = self.folders.pop().ok_or(io::ErrorKind::NotFound)?;
        if self.folders.is_empty() {
            if self.store.confinement != Confinement::Plain {
                return Err(io::Error::from_raw_os_error(libc::EXDEV));
            }
            self.folders.push(File::from(sys::open_at(last.as_fd(), c"..", OPEN_PATH | libc::O_DIRECTORY)?));
        }
        Ok(())
    }

    /// Opens the file with a name in the current folder. Returns `None` for a link: its text is looked up next.
    fn find(&mut self, name: &CString, step: &PendingName, flags: i32) -> io::Result<Option<File>> {
        let folder = self.folders.last().ok_or(io::ErrorKind::NotFound)?;
        let is_last = self.steps.is_empty();
        if !is_last {
            // This also mounts filesystems that are mounted on demand.
            match sys::open_at(folder.as_fd(), name, OPEN_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY) {
                Ok(found) => return Ok(Some(File::from(found))),
                Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => {}
                Err(error) => return Err(error),
            }
        }
        let found = File::from(sys::open_at(folder.as_fd(), name, OPEN_PATH | libc::O_NOFOLLOW)?);
        let metadata = found.metadata()?;
        if !metadata.is_symlink() {
            return if is_last { Ok(Some(found)) } else { Err(io::Error::from_raw_os_error(libc::ENOTDIR)) };
        }
        if is_last && flags & libc::O_NOFOLLOW != 0 {
            return Ok(Some(found));
        }
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let text = sys::read_link(found.as_fd())?;
        if text.as_bytes().starts_with(b"/") {
            if self.store.confinement != Confinement::Plain {
                return Err(io::Error::from_raw_os_error(libc::EXDEV));
            }
            self.folders = vec![File::open("/")?];
        }
        self.trace.has_link = true;
        self.trace.has_link_below |= matches!(self.guard, Guard::Array(array) if step.index >= array.depth);
        let mut link_owners = step.link_owners.as_ref().clone();
        // Links of this program's own user, or of root, may lead anywhere.
        if ![0, sys::effective_ids().0].contains(&metadata.uid()) {
            link_owners.push(Readers::user(metadata.uid(), metadata.gid()));
        }
        let link_owners = Arc::new(link_owners);
        let names = OsStr::as_bytes(&text).split(|byte| *byte == b'/').rev();
        let index = step.index;
        self.steps.extend(names.map(|name| PendingName {
            name: name.to_vec(),
            index,
            is_from_link: true,
            link_owners: Arc::clone(&link_owners),
        }));
        Ok(None)
    }

    fn reopened(&self, folder: &File, flags: i32) -> io::Result<File> {
        sys::open_at(folder.as_fd(), c".", flags & !libc::O_NOFOLLOW).map(File::from)
    }

    /// Ends the walk at an opened file. The link's owner needs access to the file that the link itself names.
    fn end(mut self, opened: File, step: &PendingName) -> io::Result<(File, PathTrace)> {
        if !step.link_owners.is_empty() && opened.metadata()?.is_file() {
            let object = ownership(&opened)?;
            if !step.link_owners.iter().all(|owner| owner.all_may(READ, READ, &object)) {
                return Err(refused(OWNER_HAS_NO_ACCESS));
            }
        }
        if let Guard::Array(array) = self.guard
            && self.trace.has_link
            && !step.is_from_link
            && let Some(folder) = self.folders.pop()
        {
            array.remember_linked_folder(self.key, folder, self.opens);
        }
        Ok((opened, self.trace))
    }
}
