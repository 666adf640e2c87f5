//! Permission bits of the files in the mount: never more than the store itself grants.
//!
//! A file takes owner, group and mode from its metadata document (`hierarchy` has restricted these to users that may search the
//! array's own folder), a folder from its folder. Bits for the group and for others are cleared if a folder above the store would
//! deny them the search: those folders are not part of the mount, so the kernel cannot check them. In a store without owners and
//! modes, everything belongs to the user of the mount: files have mode 0644, folders 0755, without the write bits on a read-only
//! mount.
//!
//! `uid` and `gid` replace every owner and group; the permissions stay those of the store. `umask` clears bits: of the store's
//! mode, or of 0666 and 0777 if the store has no modes. The mount's own files stay as they are.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use crate::hierarchy::Node;
use crate::mount::options::Ownership;
use crate::store::{Info, ObjectVersion, Posix, Readers};

/// A folder above the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AncestorFolder {
    gid: u32,
    mode: u32,
}

const GROUP_SEARCH: u32 = 0o010;
const OTHER_SEARCH: u32 = 0o001;

impl AncestorFolder {
    /// Returns the permission bits of a file of group `gid` that remain below this folder. A class keeps its bits only if every
    /// user in it may search the folder: members of the file's group may or may not be in the folder's group, and so may others.
    fn surviving_bits(self, gid: u32) -> u32 {
        let group_searches = self.mode & GROUP_SEARCH != 0;
        let others_search = self.mode & OTHER_SEARCH != 0;
        let mut bits = 0o7700;
        if group_searches && (others_search || self.gid == gid) {
            bits |= 0o070;
        }
        if group_searches && others_search {
            bits |= 0o007;
        }
        bits
    }
}

/// The rules for the owners and modes of all files and folders of a mount.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// Folders above the store that some users may not search.
    ancestors: Vec<AncestorFolder>,
    is_writable: bool,
    ownership: Ownership,
}

impl Permissions {
    /// Creates the rules for a store at `store_path` (canonical; `None` for a store that is not in the file system). A folder above
    /// it whose mode cannot be read counts as searchable by root only.
    pub fn new(store_path: Option<&Path>, is_writable: bool, ownership: Ownership) -> Self {
        let mut ancestors = Vec::new();
        for folder in store_path.into_iter().flat_map(|path| path.ancestors().skip(1)) {
            let ancestor = match std::fs::metadata(folder) {
                Ok(metadata) => AncestorFolder { gid: metadata.gid(), mode: metadata.mode() & 0o7777 },
                Err(_) => AncestorFolder { gid: 0, mode: 0o700 },
            };
            if ancestor.mode & (GROUP_SEARCH | OTHER_SEARCH) != GROUP_SEARCH | OTHER_SEARCH {
                ancestors.push(ancestor);
            }
        }
        Permissions { ancestors, is_writable, ownership }
    }

    /// Returns the mode of a file, which is never executable, suid or sgid.
    pub fn file_mode(&self, info: &Info) -> u16 {
        let posix = info.posix.unwrap_or_else(|| self.without_modes(Posix::default_for_object(), 0o666));
        self.reduce(&posix, posix.mode & 0o666)
    }

    /// Returns what is shown of an object without owner and mode.
    fn without_modes(&self, usual: Posix, all: u32) -> Posix {
        Posix { mode: self.ownership.umask.map_or(usual.mode, |_| all), ..usual }
    }

    /// Returns the owner and the group of a file or folder.
    pub fn owner(&self, info: &Info) -> (u32, u32) {
        let posix = info.posix.unwrap_or_else(Posix::default_for_object);
        (self.ownership.uid.unwrap_or(posix.uid), self.ownership.gid.unwrap_or(posix.gid))
    }

    /// Returns the mode of a folder.
    pub fn folder_mode(&self, info: &Info) -> u16 {
        let posix = info.posix.unwrap_or_else(|| self.without_modes(Posix::default_for_folder(), 0o777));
        // The sticky bit stays: users may remove only their own files.
        self.reduce(&posix, posix.mode & 0o1777)
    }

    /// Returns whether a user that is in these groups may write a file.
    pub fn lets_write(&self, info: &Info, uid: u32, groups: &[u32]) -> bool {
        if info.posix.is_none() || uid == 0 || uid == crate::sys::effective_ids().0 {
            return true;
        }
        let (owner, group) = self.owner(info);
        let bit = match (uid == owner, groups.contains(&group)) {
            (true, _) => 0o200,
            (false, true) => 0o020,
            (false, false) => 0o002,
        };
        self.file_mode(info) & bit != 0
    }

    /// Returns the users that the kernel lets read a node.
    pub fn readers(&self, node: Option<&Node>) -> Readers {
        let unreadable = daemon_owned_info(0, SystemTime::UNIX_EPOCH);
        self.readers_of(node.map_or(&unreadable, Node::info))
    }

    /// Returns the users that the kernel lets read a file.
    pub fn readers_of(&self, info: &Info) -> Readers {
        let (uid, gid) = self.owner(info);
        Readers { uid, gid, mode: self.file_mode(info).into() }
    }

    fn reduce(&self, posix: &Posix, mode: u32) -> u16 {
        let mut bits = mode;
        for ancestor in &self.ancestors {
            bits &= ancestor.surviving_bits(posix.gid);
        }
        if !self.is_writable {
            bits &= !0o222;
        }
        bits &= !self.ownership.umask.unwrap_or(0);
        (bits & 0o1777) as u16
    }
}

/// Returns the attributes of a file of the mount itself, which the user of the daemon owns.
pub fn daemon_owned_info(mode: u32, mtime: SystemTime) -> Info {
    let posix = Posix { mode, ..Posix::default_for_object() };
    Info { size_bytes: 0, modified: Some(mtime), version: ObjectVersion::numbered(0), posix: Some(posix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(gid: u32, mode: u32) -> Info {
        let posix = Posix { uid: 7, gid, mode, file: None };
        Info { posix: Some(posix), ..daemon_owned_info(0, SystemTime::UNIX_EPOCH) }
    }

    fn below(folders: &[(u32, u32)], is_writable: bool) -> Permissions {
        let ancestors = folders.iter().map(|&(gid, mode)| AncestorFolder { gid, mode }).collect();
        Permissions { ancestors, is_writable, ownership: Ownership::default() }
    }

    #[test]
    fn owners_are_replaced_and_bits_only_taken_away() {
        let of = |umask| Ownership { uid: Some(42), gid: Some(43), umask };
        let with = |ownership| Permissions { ownership, ..below(&[(2, 0o750)], true) };
        let shown = with(of(None));
        assert_eq!(shown.owner(&info(1, 0o640)), (42, 43));
        assert_eq!(
            shown.file_mode(&info(1, 0o644)),
            0o600,
            "as without the override: the file's group may not search"
        );
        assert_eq!(shown.file_mode(&info(2, 0o644)), 0o640, "the group of the folder is the file's");
        assert_eq!(shown.readers_of(&info(2, 0o644)), Readers { uid: 42, gid: 43, mode: 0o640 });
        assert_eq!(with(of(Some(0))).file_mode(&info(2, 0o600)), 0o600, "no mask adds a bit");
        assert_eq!(with(of(Some(0o27))).folder_mode(&info(2, 0o775)), 0o750);
        let bare = |umask| Permissions {
            ownership: Ownership { umask, ..Ownership::default() },
            ..below(&[], true)
        };
        let without_modes = Info { posix: None, ..info(1, 0) };
        assert_eq!(bare(None).file_mode(&without_modes), 0o644);
        assert_eq!(bare(Some(0o007)).file_mode(&without_modes), 0o660);
        assert_eq!(bare(Some(0o007)).folder_mode(&without_modes), 0o770);
    }

    #[test]
    fn files_are_never_executable_and_not_writable_when_read_only() {
        assert_eq!(below(&[], false).file_mode(&info(1, 0o6775)), 0o444);
        assert_eq!(below(&[], true).file_mode(&info(1, 0o6775)), 0o664);
        assert_eq!(below(&[], false).folder_mode(&info(1, 0o2775)), 0o555);
    }

    #[test]
    fn folders_above_the_store_restrict_access() {
        let file = info(1, 0o644);
        assert_eq!(below(&[(1, 0o700)], false).file_mode(&file), 0o400);
        assert_eq!(below(&[(1, 0o750)], false).file_mode(&file), 0o440, "the folder's group is the file's");
        assert_eq!(below(&[(2, 0o750)], false).file_mode(&file), 0o400, "another group's folder");
        assert_eq!(below(&[(2, 0o711)], false).file_mode(&file), 0o444);
        assert_eq!(below(&[(1, 0o701)], false).file_mode(&file), 0o400);
    }
}
