//! Making names: create (open(2) with O_CREAT), mkdir, link.

use std::sync::Arc;

use super::make::becomes;
use super::scratch::ScratchFile;
use super::{Caller, Entry};
use crate::cancellation::Cancellation;
use crate::error::Error;
use crate::formats::{FORMATS, JSON};
use crate::hierarchy::DOCUMENT_NAMES;
use crate::hierarchy::author;
use crate::metadata::ZarrFormat;
use crate::metadata::author::group_documents;
use crate::mount::fs::error::{Blocking, Failure, FsResult};
use crate::mount::fs::inode::Kind;
use crate::mount::fs::open::OpenReply;
use crate::mount::fs::{FileSystem, MAX_NAME_BYTES, Stat};
use crate::store::{is_temporary_name, join};

/// Endings of files that programs make, and that are no arrays.
const OTHER_SUFFIXES: [&str; 7] = [".h5", ".hdf5", ".nc4", ".tiff", ".zarr", ".zip", ".mat"];

impl FileSystem {
    /// Makes a file and opens it; a file that is there is opened.
    pub fn create(
        &self,
        folder: u64,
        name: &str,
        (mode, caller): (u32, Caller),
        flags: i32,
    ) -> FsResult<(Stat, OpenReply)> {
        let _changing = self.names.changing.lock();
        let group = self.group_to_change(folder)?;
        let is_expected = self.names.is_expected(caller.thread, &group, name);
        let is_exclusive = flags & libc::O_EXCL != 0;
        match self.find_name(folder, name)? {
            Some(_) if is_exclusive && !is_expected => return Err(Failure::Errno(libc::EEXIST)),
            // It is judged as an edit at its close.
            Some(entity) if is_expected && entity.is_sidecar() => {}
            Some(_) => {
                self.names.end_expected(|of, other, _, _| *of == *group && other == name);
                let found = self.lookup(folder, name, Blocking::Yes)?;
                let flags = flags & !(libc::O_CREAT | libc::O_EXCL);
                if is_expected {
                    self.close_to_others(&join(&group, name), mode, caller)?;
                }
                let opened = self.open(found.attributes.inode, flags, &Cancellation::never())?;
                return Ok((found, opened));
            }
            None => {}
        }
        if let Some(reason) = self.objection(name) {
            return self.refuse(("create", &join(&group, name)), libc::EPERM, reason);
        }
        // Of what `cp -r` and `tar` create, each name is new to them: what a declaration makes is so too.
        let thread = if is_exclusive && becomes(name).is_some() { caller.thread } else { 0 };
        let caller = self.in_group(&group, caller)?;
        let file = self.new_file((mode, Caller { thread, ..caller }));
        self.insert_file(&group, name, file.clone());
        self.open_new(&file, flags)
    }

    fn open_new(&self, file: &Arc<ScratchFile>, flags: i32) -> FsResult<(Stat, OpenReply)> {
        let entity = file.entity();
        self.inodes.look_up(&entity);
        let Kind::Scratch(number) = entity.kind else { return Err(Failure::Errno(libc::ESTALE)) };
        let stat = self.stat_scratch(number)?;
        let (handle, writes) = self.open_scratch(number, flags)?;
        Ok((stat, OpenReply::of_virtual_file(handle, writes, true)))
    }

    /// Why there can be no file of this name.
    fn objection(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(['/', '\0']) {
            return Some("this cannot be a name".to_owned());
        }
        if DOCUMENT_NAMES.contains(&name) || is_temporary_name(name) {
            let sentence = "metadata documents are not shown: write NAME.json to make the array NAME, or use the store itself";
            return Some(sentence.to_owned());
        }
        let becomes = becomes(name);
        let is_npy = name.ends_with(".npy") && becomes.is_some();
        if is_npy && !self.options.create {
            return Some("'-o create' makes arrays of .npy files".to_owned());
        }
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
    pub fn make_folder(&self, folder: u64, name: &str, (mode, caller): (u32, Caller)) -> FsResult<Stat> {
        let _changing = self.names.changing.lock();
        let group = self.group_to_change(folder)?;
        if !self.options.create {
            return Err(Failure::Errno(libc::EPERM));
        }
        let path = join(&group, name);
        if self.find_name(folder, name)?.is_some() {
            return Err(Failure::Errno(libc::EEXIST));
        }
        let made = || -> FsResult<()> {
            let caller = self.in_group(&group, caller)?;
            let place = self.new_place((&group, name), caller, (mode & 0o1777) as u16)?;
            let zarr_format = place.parent_format.unwrap_or(ZarrFormat::V3);
            let documents =
                group_documents(zarr_format, &[]).map_err(|fault| Error::Usage(fault.to_string()))?;
            Ok(author::create(self.nodes.store(), &place, documents)?)
        };
        let made = made();
        self.nodes.forget(&path);
        made.map_err(|failure| self.note_names("mkdir", &path, failure))?;
        if let Some(file) = JSON.group_file {
            self.names.expect(caller.thread, &path, file);
        }
        self.lookup(folder, name, Blocking::Yes)
    }

    /// Gives a scratch file one more name.
    pub fn link(&self, inode: u64, folder: u64, name: &str) -> FsResult<Stat> {
        let _changing = self.names.changing.lock();
        let group = self.group_to_change(folder)?;
        let Kind::Scratch(number) = self.inode(inode)?.entity.kind else {
            return Err(Failure::Errno(libc::EPERM));
        };
        if self.find_name(folder, name)?.is_some() || self.names.is_vacant(&group, name) {
            return Err(Failure::Errno(libc::EEXIST));
        }
        if becomes(name).is_some() || self.objection(name).is_some() {
            return Err(Failure::Errno(libc::EPERM));
        }
        let file = self.names.by_number(number).ok_or(Failure::Errno(libc::ENOENT))?;
        self.inodes.look_up(&file.entity());
        let before = self.names.insert(&group, name, Entry::File(file.clone()));
        self.end_entry(before);
        self.inodes.look_up(&file.entity());
        self.stat_scratch(number)
    }
}
