//! The objects with the bytes of keys: in a manifest, in the repository's folder of chunks, or in other files.
//!
//! Uses `store/targets/`, which decides which other files may be opened. Spec: Icechunk, "Chunk files" and "Virtual chunks".
//!
//! Invariants: an object of the repository never changes, so its name and range are its version, in every snapshot and without
//! a request. An object that is missing or shorter than its manifest says is an error and never a missing chunk, and so is
//! another file that does not meet its condition.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use icechunk::format::manifest::{Checksum, SecondsSinceEpoch};

use super::repository::Snapshot;
use super::snapshot::ChunkPlace;
use super::sources::ArrayUsers;
use crate::error::{Error, Result};
use crate::store::targets::object::{
    self, InlineObject, ObjectRange, missing, narrowed, range_in_target, target_error,
};
use crate::store::targets::{Target, Targets, head_all};
use crate::store::{Info, Object, ObjectVersion, Posix, Store, VersionDigest, Wanted};

/// The folder of chunks in a repository.
const CHUNKS: &str = "chunks";

/// A request for all bytes.
pub(super) const ALL: Wanted = Wanted::Whole { at_most: u64::MAX };

/// The objects of one repository, and the means to open them.
pub(super) struct Objects {
    /// The repository's files.
    pub store: Arc<dyn Store>,
    /// The other files with chunks.
    pub targets: Targets,
    /// Owner and mode of the repository, if it is on this machine.
    pub posix: Option<Posix>,
}

/// Returns the [`Info`] of a folder.
pub(super) fn folder_info(posix: Option<Posix>, snapshot: &Snapshot) -> Info {
    let version = ObjectVersion::numbered(0);
    Info { size_bytes: 0, modified: snapshot.time, version, posix }.as_folder()
}

/// A key with what was found at it.
pub(super) struct FoundObject<'a> {
    pub key: &'a str,
    pub found: ChunkPlace,
    /// The time of the snapshot.
    pub time: Option<SystemTime>,
    /// Owner and mode of the content at the key.
    pub posix: Option<Posix>,
}

/// The result of finding a key; `None` if it is missing.
pub(super) type FindResult<'a> = Result<Option<FoundObject<'a>>>;
/// The target of a key, if it needs a request.
type MaybeTarget = Option<Result<Option<(Target, Range<u64>)>>>;

impl Objects {
    /// Returns the target with a chunk's bytes, for these users if there are others; `None` if the bytes are in a manifest.
    pub(super) fn target(
        &self,
        key: &str,
        found: &ChunkPlace,
        users: Option<&ArrayUsers>,
    ) -> Result<Option<(Target, Range<u64>)>> {
        match found {
            ChunkPlace::Inline(_) => Ok(None),
            ChunkPlace::Own { id, range } => {
                let store = Arc::clone(users.map_or(&self.store, |users| &users.files));
                Ok(Some((Target { store, key: format!("{CHUNKS}/{id}") }, range.clone())))
            }
            ChunkPlace::Virtual { url, range, .. } => {
                Ok(Some((self.targets.find(url, key, users.map(|users| &users.audience))?, range.clone())))
            }
        }
    }

    /// Opens an object for a reader that begins with these bytes. With `is_present`, another file is opened in its current
    /// version.
    pub(super) fn open(
        &self,
        place: FoundObject<'_>,
        wanted: &Wanted,
        is_present: bool,
        users: Option<&ArrayUsers>,
    ) -> Result<Box<dyn Object>> {
        let FoundObject { key, found, time, .. } = place;
        let target = self.target(key, &found, users)?;
        let (target, range) = match (&found, target) {
            (ChunkPlace::Inline(bytes), _) => {
                let version = inline_version(bytes);
                return Ok(Box::new(InlineObject::new(key, bytes.to_vec(), time).with_version(version)));
            }
            (_, Some(target)) => target,
            (_, None) => return Err(missing(key, "")),
        };
        let shown = shown(&found, &target);
        let store = target.store.as_ref();
        if is_present && matches!(found, ChunkPlace::Virtual { .. }) {
            store.forget_transfers(&target.key);
        }
        let wanted = range_in_target(wanted, Some(&range));
        let object =
            store.open_for(&target.key, &wanted).map_err(|error| target_error(key, &shown, error))?;
        let Some(object) = object else { return Err(missing(key, &shown)) };
        check(key, &found, &shown, &object.info())?;
        let part = ObjectRange::new(key, &shown, object, Some(range))?;
        Ok(match own_version(&found) {
            Some(version) => Box::new(part.with_version(version)),
            None => Box::new(part),
        })
    }

    /// Returns the [`Info`] of keys. Other files get one request each, and objects of the repository only if they have owners.
    pub(super) fn head_many(
        &self,
        places: Vec<FindResult<'_>>,
        users: Option<&ArrayUsers>,
    ) -> Vec<Result<Option<Info>>> {
        let target = |place: &FoundObject<'_>| match &place.found {
            ChunkPlace::Own { .. } if self.posix.is_none() => Ok(None),
            found => self.target(place.key, found, users),
        };
        let targets: Vec<_> = places.iter().map(|place| place.as_ref().ok()?.as_ref().map(&target)).collect();
        let heads = head_all(targets.iter().flatten().flatten().flatten().map(|(target, _)| target));
        let info = |(place, target): (FindResult<'_>, MaybeTarget)| {
            let (Some(place), Some(target)) = (place?, target) else { return Ok(None) };
            self.info(&place, target?.map(|(target, _)| target), &heads).map(Some)
        };
        places.into_iter().zip(targets).map(info).collect()
    }

    fn info(
        &self,
        place: &FoundObject<'_>,
        target: Option<Target>,
        heads: &HashMap<(usize, String), Result<Option<Info>>>,
    ) -> Result<Info> {
        let FoundObject { key, found, time, posix } = place;
        let own = |size_bytes, version| Info { size_bytes, modified: *time, version, posix: *posix };
        if let ChunkPlace::Inline(bytes) = found {
            return Ok(own(bytes.len() as u64, inline_version(bytes)));
        }
        let range = match found {
            ChunkPlace::Own { range, .. } | ChunkPlace::Virtual { range, .. } => range,
            ChunkPlace::Inline(_) => &(0..0),
        };
        let size_bytes = range.end - range.start;
        let Some(target) = target else {
            return Ok(own(size_bytes, own_version(found).unwrap_or(ObjectVersion::numbered(0))));
        };
        let shown = shown(found, &target);
        let info = match heads.get(&target.name()).cloned().unwrap_or(Ok(None)) {
            Ok(Some(info)) => info,
            Ok(None) => return Err(missing(key, &shown)),
            Err(error) => return Err(target_error(key, &shown, error)),
        };
        check(key, found, &shown, &info)?;
        let posix = narrowed(*posix, info.posix);
        Ok(match own_version(found) {
            Some(version) => Info { posix, ..own(size_bytes, version) },
            None => {
                let version = object::version(&info.version, range);
                Info { size_bytes, modified: info.modified, version, posix }
            }
        })
    }
}

/// Returns a version that is the same in every process, since an overlay may compare it after years.
fn inline_version(bytes: &[u8]) -> ObjectVersion {
    ObjectVersion::for_etag(&format!("inline {}", VersionDigest::fnv1a(bytes)))
}

/// Returns the version of an object of the repository: its name and range.
fn own_version(found: &ChunkPlace) -> Option<ObjectVersion> {
    match found {
        ChunkPlace::Own { id, range } => {
            Some(ObjectVersion::for_etag(&format!("{id} {}+{}", range.start, range.end - range.start)))
        }
        ChunkPlace::Inline(_) | ChunkPlace::Virtual { .. } => None,
    }
}

/// Returns a target for messages.
fn shown(found: &ChunkPlace, target: &Target) -> String {
    match found {
        ChunkPlace::Virtual { url, .. } => crate::store::without_secrets(url),
        _ => format!("{}/{}", target.store.describe(), target.key),
    }
}

/// Fails if an object is not what the manifest says.
fn check(key: &str, found: &ChunkPlace, shown: &str, info: &Info) -> Result<()> {
    let ChunkPlace::Virtual { range, condition, .. } = found else {
        let ChunkPlace::Own { range, .. } = found else { return Ok(()) };
        return check_size(key, shown, range, info.size_bytes);
    };
    check_size(key, shown, range, info.size_bytes)?;
    let is_same = match condition {
        None => true,
        Some(Checksum::ETag(tag)) => {
            let plain = |tag: &str| tag.trim_start_matches("W/").trim_matches('"').to_owned();
            info.version.etag().is_some_and(|now| plain(now) == plain(&tag.0))
        }
        Some(Checksum::LastModified(SecondsSinceEpoch(seconds))) => {
            let limit = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(*seconds) + 1);
            info.modified.is_some_and(|modified| modified < limit)
        }
    };
    if is_same {
        return Ok(());
    }
    let reason = format!("{shown} has changed since the snapshot was made");
    Err(Error::store(key, "open", io::Error::other(reason)))
}

fn check_size(key: &str, shown: &str, range: &Range<u64>, size_bytes: u64) -> Result<()> {
    if range.end <= size_bytes {
        return Ok(());
    }
    let Range { start, end } = range;
    let reason = format!("it is the bytes {start} to {end} of {shown}, which has {size_bytes}");
    Err(Error::corrupt(key, reason))
}
