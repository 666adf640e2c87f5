//! Permission bits of what the mount shows: never more than the store itself would grant.
//!
//! A file takes owner, group and mode from its metadata document (which `hierarchy` has cut to those who may search the
//! array's own folder), a folder from its folder. Bits for group and others are cleared where a folder above
//! the store would not let them search: those folders are not there in the mount to refuse anybody.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::store::Info;

/// A folder above the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    gid: u32,
    mode: u32,
}

const GROUP_SEARCH: u32 = 0o010;
const OTHER_SEARCH: u32 = 0o001;

impl Passage {
    /// The bits of a file of group `gid` that survive behind this folder. Everyone in a class must be let
    /// through: the group's members may be in the folder's group or not, others likewise.
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

/// What holds for every file and folder of a mount.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// Folders above the store that do not let everyone search.
    passages: Vec<Passage>,
    is_writable: bool,
}

impl Permissions {
    /// For a store at `store_path` (canonical; `None` for one that is not in the filesystem). A folder above it
    /// that cannot be looked at counts as one that lets nobody but owners through.
    pub fn new(store_path: Option<&Path>, is_writable: bool) -> Self {
        let mut passages = Vec::new();
        for folder in store_path.into_iter().flat_map(|path| path.ancestors().skip(1)) {
            let passage = match std::fs::metadata(folder) {
                Ok(metadata) => Passage { gid: metadata.gid(), mode: metadata.mode() & 0o7777 },
                Err(_) => Passage { gid: 0, mode: 0o700 },
            };
            if passage.mode & (GROUP_SEARCH | OTHER_SEARCH) != GROUP_SEARCH | OTHER_SEARCH {
                passages.push(passage);
            }
        }
        Permissions { passages, is_writable }
    }

    /// The bits of a file: never executable, suid or sgid.
    pub fn of_file(&self, info: &Info) -> u16 {
        self.reduce(info, info.mode & 0o666)
    }

    /// The bits of a folder.
    pub fn of_folder(&self, info: &Info) -> u16 {
        self.reduce(info, info.mode & 0o777)
    }

    fn reduce(&self, info: &Info, mode: u32) -> u16 {
        let mut bits = mode;
        for passage in &self.passages {
            bits &= passage.surviving_bits(info.gid);
        }
        if !self.is_writable {
            bits &= !0o222;
        }
        (bits & 0o777) as u16
    }
}

/// What a file may show that is made of two documents: owned as the first, no more readable than either. Who
/// owns only one of them, or is only in one's group, counts for the other as everybody else.
pub fn intersect_documents(first: &Info, second: &Info) -> Info {
    let others = second.mode & 0o007;
    let of_owner = if first.uid == second.uid { second.mode & 0o700 } else { others << 6 };
    let of_group = if first.gid == second.gid { second.mode & 0o070 } else { others << 3 };
    let mode = first.mode & (of_owner | of_group | others);
    let mtime = first.mtime.max(second.mtime);
    Info { mode, mtime, ..*first }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::ObjectVersion;

    fn info(gid: u32, mode: u32) -> Info {
        let version = ObjectVersion { device: 0, inode: 0, mtime_ns: 0, size_bytes: 0 };
        Info { version, uid: 7, gid, mode, mtime: SystemTime::UNIX_EPOCH }
    }

    fn behind(folders: &[(u32, u32)], is_writable: bool) -> Permissions {
        let passages = folders.iter().map(|&(gid, mode)| Passage { gid, mode }).collect();
        Permissions { passages, is_writable }
    }

    #[test]
    fn files_are_never_executable_and_not_writable_when_read_only() {
        assert_eq!(behind(&[], false).of_file(&info(1, 0o6775)), 0o444);
        assert_eq!(behind(&[], true).of_file(&info(1, 0o6775)), 0o664);
        assert_eq!(behind(&[], false).of_folder(&info(1, 0o2775)), 0o555);
    }

    #[test]
    fn folders_above_the_store_hide_from_those_who_cannot_search_them() {
        let file = info(1, 0o644);
        assert_eq!(behind(&[(1, 0o700)], false).of_file(&file), 0o400);
        assert_eq!(behind(&[(1, 0o750)], false).of_file(&file), 0o440, "the folder's group is the file's");
        assert_eq!(behind(&[(2, 0o750)], false).of_file(&file), 0o400, "another group's folder");
        assert_eq!(behind(&[(2, 0o711)], false).of_file(&file), 0o444);
        assert_eq!(behind(&[(1, 0o701)], false).of_file(&file), 0o400);
    }

    #[test]
    fn a_sidecar_of_two_documents_shows_no_more_than_either() {
        let both =
            |a: (u32, u32), b: (u32, u32)| intersect_documents(&info(a.0, a.1), &info(b.0, b.1)).mode & 0o777;
        assert_eq!(both((1, 0o644), (1, 0o600)), 0o600);
        assert_eq!(both((1, 0o644), (1, 0o640)), 0o640);
        assert_eq!(both((1, 0o644), (2, 0o640)), 0o600, "group 1 reads the second as others do");
        assert_eq!(both((1, 0o644), (2, 0o644)), 0o644);
    }
}
