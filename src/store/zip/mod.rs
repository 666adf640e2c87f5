//! A zip archive as a read-only store: a key is the name of a member. Members are stored or deflated, and zip64 is supported.
//! Format: PKWARE's APPNOTE 6.3. Uses `error` and its neighbours in `store`.
//!
//! The archive is a file, or an object of another store, and stays where it is. Its central directory is read once, so the store
//! is the archive as it was then: if the archive changes later, opening a member fails with [`Error::Stale`]. Stored members are
//! read by range from the archive. Deflated members can only be read from their start: a read of the whole inflates into the
//! reader's buffer, and a read of a part inflates the member once and keeps it as long as the object is open. Members that are
//! read in full are checked against the archive's CRC-32.
//!
//! An archive made from within a store has the store's names. One made from the store's parent has them below one folder, and
//! then that folder is the root. Of several members with the same name the last one counts, since that is how writers replace a
//! member. Members whose names cannot be keys (absolute, with `..`, too long) are left out and logged. Opening an encrypted
//! member, one of another method or a link is an error.

mod archive;
pub mod archives;
mod member;
mod members;
mod remote;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use self::archive::{Archive, ArchiveState};
use self::member::ZipObject;
use self::members::{END_BYTES, MemberData, Members, ZipMember, below};
use super::{
    Info, ListEntry, Object, ObjectContent, Remote, StatFs, Store, VersionDigest, Wanted, check_key,
    is_any_below, names_below, read_content,
};
use crate::error::{Error, Result};

/// The root of an archive with exactly the names that it has, even if they are all below one folder.
pub(super) const EXACT_ROOT: &str = ".";

/// A zip archive.
pub struct ZipStore {
    archive: Arc<Archive>,
    /// The location, as it is shown.
    location: String,
    /// The folder in the archive that is the root of the store, as the user named it.
    root: String,
    members: Members,
}

impl ZipStore {
    /// Opens the archive at `path`. Fails with `InvalidData` if it is not a zip archive.
    pub fn open(path: &Path) -> io::Result<Self> {
        let shown = path.display().to_string();
        Self::open_below(path, "", shown)
    }

    /// Opens a folder in the archive at `path`; `""` is the archive itself.
    pub(super) fn open_below(path: &Path, root: &str, location: String) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
        Self::new(Archive::of_file(file, path.display().to_string(), u32::MAX)?, root, location)
    }

    /// Opens a folder in an archive in another store. Returns `None` if there is no such object. Fails with `InvalidData` if it is
    /// not a zip archive.
    pub(super) fn open_object(
        store: &Arc<dyn Store>,
        key: &str,
        root: &str,
        location: String,
    ) -> Result<Option<Self>> {
        let opened = match store.remote() {
            Some(remote) => {
                remote.forget_transfers(key);
                remote.open_for(key, &Wanted::Last(END_BYTES))?
            }
            None => store.open(key)?,
        };
        let Some(object) = opened else { return Ok(None) };
        let failed = |error: io::Error| Error::store(key, "open the zip archive", error);
        let name = location.clone();
        let archive = match object.file().map(File::try_clone).transpose().map_err(failed)? {
            Some(file) => {
                // Users who cannot reach the file, behind a link, have no permission there.
                let posix = store.head_object(key)?.and_then(|info| info.posix);
                Archive::of_file(file, name, posix.map_or(0o700, |posix| posix.mode)).map_err(failed)?
            }
            None => Archive::of_object(Arc::clone(store), key, object, name)?,
        };
        Self::new(archive, root, location).map(Some).map_err(failed)
    }

    fn new(archive: Archive, root: &str, location: String) -> io::Result<Self> {
        let all = members::read(&archive)?;
        let members = if root == EXACT_ROOT { all } else { below(all, root) };
        if members.is_empty() && !["", EXACT_ROOT].contains(&root) {
            let reason = format!("the archive has no folder '{root}'");
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        Ok(ZipStore { archive: Arc::new(archive), location, root: root.to_owned(), members })
    }

    /// Whether there is an object at a key, without a request.
    pub(super) fn has_object(&self, key: &str) -> bool {
        matches!(self.members.get(key), Some(ZipMember::Data(_) | ZipMember::Refused(_)))
    }

    fn data(&self, key: &str) -> Result<Option<&MemberData>> {
        check_key(key, "open")?;
        match self.members.get(key) {
            None | Some(ZipMember::Folder) => Ok(None),
            Some(ZipMember::Refused(reason)) => Err(Error::unsupported(key, *reason)),
            Some(ZipMember::Data(data)) => Ok(Some(data)),
        }
    }

    /// Opens a member of the current version.
    fn open_member(&self, key: &str, wanted: &Wanted) -> Result<Option<ZipObject>> {
        let Some(data) = self.data(key)? else { return Ok(None) };
        let state = self.archive.look(key)?;
        ZipObject::open(&self.archive, &state, (key, data), wanted).map(Some)
    }

    /// Returns the info of a member or a folder in this state of the archive.
    fn info(&self, key: &str, state: &ArchiveState) -> Option<Info> {
        let member = |header_start, size_bytes| {
            let version = state.version(header_start, size_bytes);
            Info { size_bytes, version, ..state.info }
        };
        let folder = || member(0, 0).as_folder();
        match self.members.get(key) {
            Some(ZipMember::Data(data)) => Some(member(data.header_start, data.size_bytes)),
            Some(ZipMember::Refused(_)) => Some(member(0, 0)),
            Some(ZipMember::Folder) => Some(folder()),
            None if key.is_empty() || is_any_below(&self.members, key) => Some(folder()),
            None => None,
        }
    }
}

/// What a reader of a whole member needs.
const WHOLE: Wanted = Wanted::Whole { at_most: u64::MAX };

impl Store for ZipStore {
    fn open(&self, key: &str) -> Result<Option<Box<dyn Object>>> {
        Ok(self.open_member(key, &WHOLE)?.map(|object| Box::new(object) as Box<dyn Object>))
    }

    fn content(&self, key: &str, limit_bytes: u64) -> Result<Option<ObjectContent>> {
        match self.open_member(key, &WHOLE)? {
            Some(object) => read_content(&object, key, limit_bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the owner, mode and time of the archive for every member.
    fn head(&self, key: &str) -> Result<Option<Info>> {
        check_key(key, "look at")?;
        Ok(self.info(key, &self.archive.look_at_any_version(key)?))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.archive.is_remote().then_some(self)
    }

    fn list(&self, folder: &str) -> Result<Vec<ListEntry>> {
        check_key(folder, "list")?;
        Ok(names_below(&self.members, folder, |member| matches!(member, ZipMember::Folder)))
    }

    fn statfs(&self) -> Result<StatFs> {
        self.archive.statfs()
    }

    fn describe(&self) -> String {
        self.location.clone()
    }

    fn identity(&self) -> Result<Option<String>> {
        let digest = self.archive.opened_version();
        Ok(Some(match self.root.as_str() {
            "" => format!("archive {digest}"),
            root => format!("archive {digest} {}", VersionDigest::fnv1a(root)),
        }))
    }
}

#[cfg(test)]
mod tests;
