//! Attributes, folder entries and statfs in fuser's terms.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileHandle, FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyStatfs};

use crate::mount::fs::FileSystem;
use crate::mount::fs::attributes::{Attributes, Stat};
use crate::mount::fs::entries::Listing;
use crate::mount::fs::error::Blocking;
use crate::mount::fs::open_file::FolderEntry;
use crate::mount::fs::request::Request;
use crate::mount::fuse::adapter::{Fuse, GENERATION};
use crate::mount::fuse::executor::{Deadline, Reply};
use crate::store::StatFs;

impl Fuse {
    /// Replies to statfs(2) with the free space of the store's file system.
    pub(super) fn reply_statfs(&self, inode: INodeNo, reply: ReplyStatfs) {
        let fs = self.fs.clone();
        let request = Request::new(inode.0, "statfs");
        self.executor.submit(request, Deadline::Fixed, reply, move |slot| {
            let room = fs.statfs(inode.0);
            let Some(reply) = slot.take() else { return };
            match room {
                Ok(StatFs {
                    block_bytes,
                    blocks,
                    blocks_free,
                    blocks_available,
                    files,
                    files_free,
                    name_max,
                }) => reply.statfs(
                    blocks,
                    blocks_free,
                    blocks_available,
                    files,
                    files_free,
                    block_bytes,
                    name_max,
                    block_bytes,
                ),
                Err(failure) => reply.fail(fs.log().record_failed_request(request, &failure)),
            }
        });
    }
}

impl Fuse {
    /// Replies with the next entries of a folder.
    pub(super) fn reply_readdir(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let list = move |fs: &FileSystem, blocking| fs.opens().listing(handle.0, blocking);
        self.reply_with(
            Request::new(inode.0, "readdir"),
            reply,
            list,
            move |mut reply: ReplyDirectory, listing| {
                for (entry, next) in from_offset(&listing, offset) {
                    let is_folder = entry.entity.kind.is_folder();
                    let kind = if is_folder { FileType::Directory } else { FileType::RegularFile };
                    if reply.add(INodeNo(entry.inode), next, kind, &entry.name) {
                        break;
                    }
                }
                reply.ok();
            },
        );
    }

    /// Replies with the next entries of a folder and their attributes.
    pub(super) fn reply_readdirplus(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let fs = self.fs.clone();
        self.executor.submit(Request::new(inode.0, "readdir"), Deadline::Fixed, reply, move |slot| {
            let listing = match fs.opens().listing(handle.0, Blocking::Yes) {
                Ok(listing) => listing,
                Err(failure) => {
                    return slot.take().map_or((), |reply| reply.fail(failure.errno()));
                }
            };
            // The reply is taken last, because looking up the nodes may block.
            let found = look_ahead(&fs, &listing, offset);
            let Some(mut reply) = slot.take() else { return };
            for ((entry, next), found) in from_offset(&listing, offset).zip(found) {
                let number = fs.inode_of_entry(&entry);
                let (mut attributes, valid_for) = match found {
                    Some(found) => (file_attr(&found.attributes), found.entry_valid_for),
                    None => (unknown_entry(number, entry.entity.kind.is_folder()), Duration::ZERO),
                };
                attributes.ino = INodeNo(number);
                if reply.add(attributes.ino, next, &entry.name, &valid_for, &attributes, GENERATION) {
                    fs.inodes().forget(number, 1);
                    break;
                }
            }
            reply.ok();
        });
    }
}

/// The preferred size of reads, in bytes.
const PREFERRED_READ_BYTES: u32 = 1 << 20;

/// Returns the attributes in fuser's terms.
pub(super) fn file_attr(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.inode),
        size: attributes.size_bytes,
        blocks: attributes.size_bytes.div_ceil(512),
        atime: attributes.mtime,
        mtime: attributes.mtime,
        ctime: attributes.mtime,
        crtime: attributes.mtime,
        kind: if attributes.is_folder { FileType::Directory } else { FileType::RegularFile },
        perm: attributes.mode,
        nlink: 1,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: 0,
        blksize: PREFERRED_READ_BYTES,
        flags: 0,
    }
}

/// The number of entries that readdirplus looks up at a time: about as many as fit into its reply.
const ENTRIES_AHEAD: usize = 256;

/// Returns the entries from an offset, each with the offset of the next one.
pub(super) fn from_offset(
    listing: &Listing,
    offset: u64,
) -> impl Iterator<Item = (Cow<'_, FolderEntry>, u64)> {
    (offset..).map_while(|number| listing.entry(number).map(|entry| (entry, number + 1)))
}

/// Returns the attributes of the next entries, `None` for those at which the store fails.
pub(super) fn look_ahead(fs: &FileSystem, listing: &Listing, offset: u64) -> Vec<Option<Stat>> {
    from_offset(listing, offset)
        .take(ENTRIES_AHEAD)
        .map(|(entry, _)| fs.entry_attributes(&entry, Blocking::Yes).ok())
        .collect()
}

/// A negative entry, which has no inode.
pub(super) fn no_entry() -> FileAttr {
    unknown_entry(0, false)
}

/// Returns an entry without attributes. The kernel asks for them when it needs them.
pub(super) fn unknown_entry(inode: u64, is_folder: bool) -> FileAttr {
    let mtime = SystemTime::UNIX_EPOCH;
    file_attr(&Attributes { inode, is_folder, size_bytes: 0, mode: 0, uid: 0, gid: 0, mtime })
}
