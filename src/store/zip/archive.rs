//! The bytes of an archive: a file on this machine, or an object of another store. Uses `error` and `store/directory`.
//!
//! Invariant: all bytes are of the version that was opened. If the archive has changed since, [`Archive::look`] and reads of an
//! object fail with [`Error::Stale`].

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::store::directory::posix_stat;
use crate::store::{Info, Object, ObjectVersion, Posix, Remote, StatFs, Store, VersionDigest, Wanted};

/// How long the version of an archive behind a network counts as the current one without another request. Readers of members that
/// are in memory could otherwise not tell that the archive has changed.
const CONFIRMED_FOR: Duration = Duration::from_secs(1);

/// An archive that is open.
pub(super) struct Archive {
    /// Its path or URL, for messages.
    pub name: String,
    pub size_bytes: u64,
    source: ArchiveSource,
}

enum ArchiveSource {
    File {
        file: File,
        metadata: Metadata,
        /// The permission bits that it has for users who can reach it.
        mode_mask: u32,
    },
    Object(ArchiveObject),
}

/// An archive in another store.
struct ArchiveObject {
    store: Arc<dyn Store>,
    key: String,
    object: Box<dyn Object>,
    info: Info,
    /// When the store last said that the version is the current one.
    confirmed: Mutex<Option<Instant>>,
}

/// What is known about the archive now.
pub(super) struct ArchiveState {
    /// The info of the archive.
    pub info: Info,
    /// The metadata of its file.
    metadata: Option<Metadata>,
}

impl ArchiveState {
    /// Returns the version of the member whose header is at this offset.
    pub fn version(&self, header_start: u64, size_bytes: u64) -> ObjectVersion {
        match &self.metadata {
            Some(metadata) => posix_stat::version_with_size(metadata, size_bytes),
            None => ObjectVersion::hashed(("member", self.info.version, header_start, size_bytes)),
        }
    }
}

impl Archive {
    /// Returns the archive in a file, with at most the permission bits of `mode_mask`. Fails with `InvalidData` if it is not a regular
    /// file.
    pub fn of_file(file: File, name: String, mode_mask: u32) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
        }
        let size_bytes = metadata.len();
        Ok(Archive { name, size_bytes, source: ArchiveSource::File { file, metadata, mode_mask } })
    }

    /// Returns the archive in an object of a store. Its last bytes should be in memory.
    pub fn of_object(
        store: Arc<dyn Store>,
        key: &str,
        object: Box<dyn Object>,
        name: String,
    ) -> Result<Self> {
        let posix =
            if store.is_remote() { None } else { store.head_object(key)?.and_then(|info| info.posix) };
        let info = Info { posix: posix.map(|posix| Posix { file: None, ..posix }), ..object.info() };
        let (key, confirmed, size_bytes) =
            (key.to_owned(), Mutex::new(Some(Instant::now())), info.size_bytes);
        let source = ArchiveSource::Object(ArchiveObject { store, key, object, info, confirmed });
        Ok(Archive { name, size_bytes, source })
    }

    /// Returns what is known about the archive now, for a member. Fails with [`Error::Stale`] if it has changed since it was
    /// opened.
    pub fn look(&self, member: &str) -> Result<ArchiveState> {
        let state = self.look_at_any_version(member)?;
        let is_same = match (&self.source, &state.metadata) {
            // A change of the file's permissions or names moves no member.
            (ArchiveSource::File { metadata, .. }, Some(now)) => {
                posix_stat::version(now).digest() == posix_stat::version(metadata).digest()
            }
            (ArchiveSource::Object(archive), _) => state.info.version == archive.info.version,
            (ArchiveSource::File { .. }, None) => false,
        };
        if is_same { Ok(state) } else { Err(Error::Stale { key: member.to_owned() }) }
    }

    /// Returns what is known about the archive now. The version may be another than the one that was opened.
    pub fn look_at_any_version(&self, member: &str) -> Result<ArchiveState> {
        match &self.source {
            ArchiveSource::File { file, mode_mask, .. } => {
                let metadata = file.metadata().map_err(|error| Error::store(member, "look at", error))?;
                let info = posix_stat::info_for(file, &metadata).with_mode(|posix| posix.mode & mode_mask);
                let info = Info { posix: info.posix.map(|posix| Posix { file: None, ..posix }), ..info };
                Ok(ArchiveState { info, metadata: Some(metadata) })
            }
            ArchiveSource::Object(archive) => {
                let mut confirmed = archive.confirmed.lock();
                if archive.store.is_remote() && confirmed.is_some_and(|at| at.elapsed() < CONFIRMED_FOR) {
                    return Ok(ArchiveState { info: archive.info, metadata: None });
                }
                let asked_at = Instant::now();
                let now = archive.store.head_object(&archive.key);
                let now = now.map_err(|error| self.member_error(member, error))?;
                let info = now.ok_or_else(|| Error::Stale { key: member.to_owned() })?;
                *confirmed = (info.version == archive.info.version).then_some(asked_at);
                Ok(ArchiveState { info: Info { posix: archive.info.posix, ..info }, metadata: None })
            }
        }
    }

    /// Returns the archive as it was opened.
    pub fn opened(&self) -> ArchiveState {
        match &self.source {
            ArchiveSource::File { file, metadata, mode_mask } => {
                let info = posix_stat::info_for(file, metadata).with_mode(|posix| posix.mode & mode_mask);
                ArchiveState { info, metadata: Some(metadata.clone()) }
            }
            ArchiveSource::Object(archive) => ArchiveState { info: archive.info, metadata: None },
        }
    }

    /// Returns the digest of the version that was opened.
    pub fn opened_version(&self) -> VersionDigest {
        match &self.source {
            ArchiveSource::File { metadata, .. } => posix_stat::version(metadata).digest(),
            ArchiveSource::Object(archive) => archive.info.version.digest(),
        }
    }

    /// Whether each read is a request across a network.
    pub fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// Returns the store behind a network that has the archive, and the archive's key in it.
    pub fn remote(&self) -> Option<(&dyn Remote, &str)> {
        match &self.source {
            ArchiveSource::File { .. } => None,
            ArchiveSource::Object(archive) => Some((archive.store.remote()?, &archive.key)),
        }
    }

    /// Fills `out` from an offset in the archive.
    pub fn read_exact_at(&self, offset: u64, out: &mut [u8], member: &str) -> Result<()> {
        match &self.source {
            ArchiveSource::File { file, .. } => {
                file.read_exact_at(out, offset).map_err(|error| Error::store(member, "read", error))
            }
            ArchiveSource::Object(archive) => {
                let read = archive.object.read_exact_at(offset, out);
                read.map_err(|error| self.member_error(member, error))
            }
        }
    }

    /// Fills `out` from an offset in the archive, behind a network with one request.
    pub fn read_at_once(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let range = offset..offset.saturating_add(out.len() as u64);
        let other = |error: Error| match error {
            Error::Store { source, .. } => io::Error::new(source.kind(), source.to_string()),
            other => io::Error::other(other.to_string()),
        };
        match &self.source {
            ArchiveSource::Object(archive) if self.in_memory(&range).is_none() => {
                let opened = archive.store.open_for(&archive.key, &Wanted::Range(range)).map_err(other)?;
                let opened = opened.filter(|object| object.version() == archive.info.version);
                let changed = || io::Error::other("it was changed while it was opened");
                opened.ok_or_else(changed)?.read_exact_at(offset, out).map_err(other)
            }
            ArchiveSource::Object(archive) => archive.object.read_exact_at(offset, out).map_err(other),
            ArchiveSource::File { file, .. } => file.read_exact_at(out, offset),
        }
    }

    /// Fills each buffer from its offset in the archive, in an archive behind a network with all requests at once.
    pub fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])], member: &str) -> Result<()> {
        match &self.source {
            ArchiveSource::File { .. } => {
                ranges.iter_mut().try_for_each(|(offset, out)| self.read_exact_at(*offset, out, member))
            }
            ArchiveSource::Object(archive) => {
                archive.object.read_ranges(ranges).map_err(|error| self.member_error(member, error))
            }
        }
    }

    /// Returns the bytes of a range, if they are in memory.
    pub fn in_memory(&self, range: &Range<u64>) -> Option<&[u8]> {
        match &self.source {
            ArchiveSource::File { .. } => None,
            ArchiveSource::Object(archive) => archive.object.in_memory(range),
        }
    }

    /// Returns the free space of the filesystem that the archive is on.
    pub fn statfs(&self) -> Result<StatFs> {
        match &self.source {
            ArchiveSource::File { file, .. } => {
                posix_stat::statfs(file).map_err(|error| Error::store("", "stat", error))
            }
            ArchiveSource::Object(archive) => archive.store.statfs(),
        }
    }

    /// Converts an error of the archive to one of a member.
    fn member_error(&self, member: &str, error: Error) -> Error {
        let key = member.to_owned();
        if let (Error::Stale { .. } | Error::Changed { .. }, ArchiveSource::Object(archive)) =
            (&error, &self.source)
            && let Some(mut confirmed) = archive.confirmed.try_lock()
        {
            *confirmed = None;
        }
        match error {
            Error::Store { operation, source, .. } => Error::store(
                key,
                operation,
                io::Error::new(source.kind(), format!("{}: {source}", self.name)),
            ),
            Error::Stale { .. } | Error::Changed { .. } => Error::Stale { key },
            Error::TimedOut { .. } => Error::TimedOut { key },
            Error::Cancelled { .. } => Error::Cancelled { key },
            other => other,
        }
    }
}
