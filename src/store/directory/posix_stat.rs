//! The [`Info`] of a file, from stat(2) and its POSIX access control list. Uses `sys`.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use crate::store::object::version::FileVersion;
use crate::store::{FileId, Info, ObjectVersion, Posix, Readers, StatFs};
use crate::sys;

/// Returns the version of a file from its metadata.
pub fn version(metadata: &Metadata) -> ObjectVersion {
    version_with_size(metadata, metadata.size())
}

/// Returns the version of a part of a file, which has this size.
pub fn version_with_size(metadata: &Metadata, size_bytes: u64) -> ObjectVersion {
    ObjectVersion::for_file(FileVersion {
        device: metadata.dev(),
        inode: metadata.ino(),
        size_bytes,
        seconds: metadata.mtime(),
        nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or_default(),
        changed: metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec()),
    })
}

/// Returns the identity of a file from its metadata.
pub fn file_id(metadata: &Metadata) -> FileId {
    FileId { device: metadata.dev(), inode: metadata.ino() }
}

/// Returns owner and permissions of an open file or folder. `file` may be an O_PATH descriptor.
pub fn posix(file: &File) -> io::Result<Posix> {
    Ok(posix_for(file, &file.metadata()?))
}

/// Returns owner and permissions of an open file or folder with this metadata.
pub fn posix_for(file: &File, metadata: &Metadata) -> Posix {
    let mode = restrict_by_acl(file, metadata.mode() & 0o7777);
    Posix { uid: metadata.uid(), gid: metadata.gid(), mode, file: Some(file_id(metadata)) }
}

/// Returns the [`Info`] of an open file or folder with this metadata. `file` may be an O_PATH descriptor.
pub fn info_for(file: &File, metadata: &Metadata) -> Info {
    Info {
        size_bytes: metadata.size(),
        modified: metadata.modified().ok(),
        version: version(metadata),
        posix: Some(posix_for(file, metadata)),
    }
}

/// Returns owner, group and permission bits of a file. The access control list is not read: that would cost a call for every
/// chunk.
pub fn ownership(metadata: &Metadata) -> Readers {
    Readers { uid: metadata.uid(), gid: metadata.gid(), mode: metadata.mode() & 0o7777 }
}

/// Returns the metadata of an open file or folder.
pub fn metadata(file: &impl AsFd) -> io::Result<Metadata> {
    File::from(file.as_fd().try_clone_to_owned()?).metadata()
}

/// Returns the space of the filesystem that an open file or folder is on.
pub fn statfs(file: &impl AsFd) -> io::Result<StatFs> {
    let room = sys::statvfs(file.as_fd())?;
    Ok(StatFs {
        block_bytes: u32::try_from(room.f_frsize).unwrap_or(4096),
        blocks: room.f_blocks,
        blocks_free: room.f_bfree,
        blocks_available: room.f_bavail,
        files: room.f_files,
        files_free: room.f_ffree,
        name_max: u32::try_from(room.f_namemax).unwrap_or(255),
    })
}

/// Restricts the mode by the access control list. If there is a list, the group bits of stat(2) are its mask and say nothing
/// about the group. A list that cannot be read grants the group nothing.
fn restrict_by_acl(file: &File, mode: u32) -> u32 {
    // A list has 4 bytes of header and 8 per entry; this holds more entries than ext4 or xfs store inline.
    let mut buffer = [0; 4 + 8 * 512];
    match sys::extended_attribute(file.as_fd(), c"system.posix_acl_access", &mut buffer) {
        Ok(None) => mode,
        Ok(Some(length)) => match buffer.get(..length).and_then(|list| mode_under_acl(mode, list)) {
            Some(mode) => mode,
            None => mode & !0o077,
        },
        Err(error) => {
            log::debug!(
                "cannot read an access control list, so group and others get no permissions: {error}"
            );
            mode & !0o077
        }
    }
}

/// Returns permission bits that grant no user more than the list does: the group gets `group_obj & mask`. Nine bits cannot
/// express what a named user or group is denied, so the group and other classes get no more than the named entries leave to
/// every user of that class. Returns `None` for an invalid list.
fn mode_under_acl(mode: u32, list: &[u8]) -> Option<u32> {
    const VERSION: [u8; 4] = 2_u32.to_le_bytes();
    const USER: u16 = 0x02;
    const GROUP_OBJ: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    let (version, entries) = list.split_first_chunk::<4>()?;
    if *version != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let (mut group_obj, mut mask) = (None, 0o7);
    let (mut every_user, mut every_group) = (None, None);
    for entry in entries.chunks_exact(8) {
        let [tag_low, tag_high, permissions, ..] = *entry else { return None };
        let permissions = u32::from(permissions & 0o7);
        match u16::from_le_bytes([tag_low, tag_high]) {
            USER => every_user = Some(every_user.unwrap_or(0o7) & permissions),
            GROUP => every_group = Some(every_group.unwrap_or(0o7) & permissions),
            GROUP_OBJ => group_obj = Some(permissions),
            MASK => mask = permissions,
            _ => {}
        }
    }
    let users = every_user.map_or(0o7, |permissions| permissions & mask);
    let groups = every_group.map_or(0o7, |permissions| permissions & mask);
    let group = group_obj? & mask & users;
    let other = mode & 0o7 & users & groups;
    Some((mode & !0o077) | (group << 3) | other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn list(entries: &[(u16, u8)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend([*permissions, 0]);
            bytes.extend(1000_u32.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn group_bits_are_group_obj_and_mask() {
        // user::rw- user:1000:rw- group::r-- mask::rw- other::---, which stat(2) shows as 0660.
        let bytes = list(&[(1, 6), (2, 6), (4, 4), (0x10, 6), (0x20, 0)]);
        assert_eq!(mode_under_acl(0o660, &bytes), Some(0o640));
        // The mask cuts the group.
        let bytes = list(&[(1, 6), (2, 6), (4, 6), (0x10, 4), (0x20, 4)]);
        assert_eq!(mode_under_acl(0o644, &bytes), Some(0o644));
        let bytes = list(&[(1, 6), (2, 6), (4, 6), (0x10, 0), (0x20, 4)]);
        assert_eq!(mode_under_acl(0o604, &bytes), Some(0o600));
    }

    #[test]
    fn a_denied_user_gets_nothing_as_group_or_other() {
        // user:1000:--- would be let in by the bits of group or other.
        let bytes = list(&[(1, 6), (2, 0), (4, 4), (0x10, 4), (0x20, 4)]);
        assert_eq!(mode_under_acl(0o644, &bytes), Some(0o600));
        // group:1000:--- would be let in by the bits of other. The owning group keeps its bits.
        let bytes = list(&[(1, 6), (4, 4), (8, 0), (0x10, 4), (0x20, 4)]);
        assert_eq!(mode_under_acl(0o644, &bytes), Some(0o640));
    }

    #[test]
    fn an_invalid_list_is_none() {
        assert_eq!(mode_under_acl(0o644, &[]), None);
        assert_eq!(mode_under_acl(0o644, &[2, 0, 0, 0, 1]), None);
        assert_eq!(mode_under_acl(0o644, &[3, 0, 0, 0]), None);
        assert_eq!(mode_under_acl(0o644, &list(&[(1, 6)])), None);
    }

    #[test]
    fn an_ordinary_file_keeps_its_bits() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(posix(&file).unwrap().mode, file.metadata().unwrap().mode() & 0o7777);
    }

    #[test]
    fn the_list_of_a_file_counts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // user::rw- group::r-- mask::rw- other::---, and user 1000 may write. Only that entry has an id.
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in [(1, 6, -1), (2, 6, 1000), (4, 4, -1), (0x10, 6, -1), (0x20, 0, -1)] {
            bytes.extend(u16::to_le_bytes(tag));
            bytes.extend(u16::to_le_bytes(permissions));
            bytes.extend(i32::to_le_bytes(id));
        }
        match sys::set_extended_attribute(file.as_file().as_fd(), c"system.posix_acl_access", &bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                eprintln!("SKIPPED: the filesystem of temporary files has no access control lists");
                return;
            }
            other => other.unwrap(),
        }
        assert_eq!(file.as_file().metadata().unwrap().mode() & 0o7777, 0o660);
        assert_eq!(posix(file.as_file()).unwrap().mode, 0o640);
        let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
        let looked_at = sys::open_at(file.as_file().as_fd(), &path, libc::O_PATH).unwrap();
        assert_eq!(posix(&File::from(looked_at)).unwrap().mode, 0o640);
    }
}
