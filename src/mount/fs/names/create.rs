//! Making names: create (open(2) with O_CREAT), mkdir and link.

use crate::error::Error;
use crate::formats::{FORMATS, JSON};
use crate::hierarchy::DOCUMENT_NAMES;
use crate::hierarchy::author;
use crate::metadata::ZarrFormat;
use crate::metadata::author::group_documents;
use crate::mount::fs::attributes::Stat;
use crate::mount::fs::entity::EntityKind;
use crate::mount::fs::entries::MAX_NAME_BYTES;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::names::changes::NameChanges;
use crate::mount::fs::names::make::promoted_kind;
use crate::mount::fs::names::node_name::NodeName;
use crate::mount::fs::names::open::ScratchHandle;
use crate::mount::fs::names::scratch::{Caller, ScratchFile};
use crate::mount::fs::names::table::ChangingNames;
use crate::mount::fs::open_file::Opened;
use crate::store::{is_temporary_name, join};

/// Endings of files in other formats, which a mount does not make.
const OTHER_SUFFIXES: [&str; 7] = [".h5", ".hdf5", ".nc4", ".tiff", ".zarr", ".zip", ".mat"];

/// The file that create(2) found or made.
pub enum CreatedFile {
    /// A file that existed. The caller opens it before it drops the lock.
    Existing {
        /// Its attributes.
        stat: Stat,
        /// Keeps names from changing.
        lock: ChangingNames,
    },
    /// A new scratch file.
    New {
        /// Its attributes.
        stat: Stat,
        /// The file.
        opened: Opened<ScratchHandle>,
    },
}

impl NameChanges {
    /// Makes a file. If there is one already, the caller opens it.
    pub fn create(
        &self,
        folder: u64,
        name: &str,
        mode: u32,
        flags: i32,
        caller: Caller,
    ) -> FsResult<CreatedFile> {
        let (group, lock) = self.lock_group(folder)?;
        let is_expected = self.table.is_expected(caller.thread, &group, name);
        let is_exclusive = flags & libc::O_EXCL != 0;
        match self.find_name(folder, name)? {
            Some(_) if is_exclusive && !is_expected => return Err(Failure::Errno(libc::EEXIST)),
            // The sidecar came with the node that this thread has made. The new file hides it, and its close is an edit of it.
            Some(entity) if is_expected && entity.is_sidecar() => {}
            Some(entity) => {
                self.table.end_expected(|of, other, _, _| of == &*group && other == name);
                let stat = self.attributes.look_up(&entity, Blocking::Yes)?;
                if is_expected {
                    self.permissions.restrict_mode(&join(&group, name), mode, caller)?;
                }
                return Ok(CreatedFile::Existing { stat, lock });
            }
            None => {}
        }
        if let Some(reason) = self.objection(name) {
            return self.log.refuse_name("create", &join(&group, name), libc::EPERM, reason);
        }
        // `cp -r` and `tar` create each name with O_EXCL. If this file declares an array, the array's name must be free for them, too.
        let thread = if is_exclusive && promoted_kind(name).is_some() { caller.thread } else { 0 };
        let caller = self.permissions.with_group_of(&group, caller)?;
        let file = self.table.new_file(mode, Caller { thread, ..caller });
        self.table.insert_file(&group, name, file.clone());
        self.open_new(&file, flags)
    }

    fn open_new(&self, file: &ScratchFile, flags: i32) -> FsResult<CreatedFile> {
        self.inodes.look_up(&file.entity());
        let stat = self.table.stat(file.number())?;
        let opened = self.scratch_files.open(file.number(), flags)?;
        Ok(CreatedFile::New { stat, opened })
    }

    /// Returns why there can be no scratch file of this name, if there cannot.
    pub(super) fn objection(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(['/', '\0']) {
            return Some("this cannot be a name".to_owned());
        }
        if DOCUMENT_NAMES.contains(&name) || is_temporary_name(name) {
            let sentence = "metadata documents are not shown: write NAME.json to make the array NAME, or use the store itself";
            return Some(sentence.to_owned());
        }
        let is_npy = name.ends_with(".npy") && promoted_kind(name).is_some();
        if is_npy && !self.options.create {
            return Some("'-o create' makes arrays of .npy files".to_owned());
        }
        // Such a file would be gone at the end of the mount, although the program that made it took it for stored.
        let suffixes = FORMATS.iter().filter(|format| **format != JSON).map(|format| format.suffix);
        let suffix =
            suffixes.chain(OTHER_SUFFIXES).find(|suffix| name.ends_with(suffix) && name.len() > suffix.len());
        match suffix {
            Some(suffix) if !is_npy && !name.starts_with('.') => Some(format!(
                "a mount makes no '{suffix}' files: its arrays are raw bytes that NAME.json declares, or NAME.npy"
            )),
            _ => None,
        }
    }

    /// Makes a group.
    pub fn make_folder(&self, folder: u64, name: &str, mode: u32, caller: Caller) -> FsResult<Stat> {
        let (group, _changing) = self.lock_group(folder)?;
        if !self.options.create || !self.nodes.admits_create(&group) {
            return Err(Failure::Errno(libc::EPERM));
        }
        let path = join(&group, name);
        match self.find_name(folder, name)? {
            // A daemon that has died has made it for this request.
            Some(made) if made.kind == EntityKind::Group && self.intents.has_begun(caller.request) => {
                return self.attributes.look_up(&made, Blocking::Yes);
            }
            Some(_) => return Err(Failure::Errno(libc::EEXIST)),
            None => {}
        }
        let made = self.make_group(&group, name, mode, caller);
        self.nodes.forget(&path);
        made.map_err(|failure| self.log.record_failed_name("mkdir", &path, failure))?;
        if let Some(file) = JSON.group_file {
            self.table.expect(caller.thread, &path, file);
        }
        let entity = self.find_name(folder, name)?.ok_or(Failure::Errno(libc::ENOENT))?;
        self.attributes.look_up(&entity, Blocking::Yes)
    }

    fn make_group(&self, group: &str, name: &str, mode: u32, caller: Caller) -> FsResult<()> {
        let caller = self.permissions.with_group_of(group, caller)?;
        let place = self.permissions.new_place(NodeName { group, name }, caller, (mode & 0o1777) as u16)?;
        let zarr_format = place.parent_format.unwrap_or(ZarrFormat::V3);
        let documents = group_documents(zarr_format, &[]).map_err(|fault| Error::Usage(fault.to_string()))?;
        self.intents.begin(caller.request);
        Ok(author::create(&self.nodes.store_at(group), &place, documents)?)
    }

    /// Gives a scratch file one more name.
    pub fn link(&self, inode: u64, folder: u64, name: &str) -> FsResult<Stat> {
        let (group, _changing) = self.lock_group(folder)?;
        let EntityKind::Scratch(number) = self.inodes.live(inode)?.entity.kind else {
            return Err(Failure::Errno(libc::EPERM));
        };
        if self.find_name(folder, name)?.is_some() || self.table.is_vacant(&group, name) {
            return Err(Failure::Errno(libc::EEXIST));
        }
        if promoted_kind(name).is_some() || self.objection(name).is_some() {
            return Err(Failure::Errno(libc::EPERM));
        }
        let file = self.table.by_number(number).ok_or(Failure::Errno(libc::ENOENT))?;
        if !self.is_one_member(&file.place().0, &group) {
            return Err(Failure::Errno(libc::EXDEV));
        }
        self.table.link_file(&group, name, file.clone());
        self.inodes.look_up(&file.entity());
        self.table.stat(number)
    }
}
