//! The objects that have the bytes of keys: in a manifest, in the repository's folder of chunks, or in other files.
//!
//! Uses `store/targets/`, whose rules say which other files may be opened. Spec: Icechunk, "Chunk files" and "Virtual chunks".
//!
//! Invariants: an object of the repository never changes, so that its name and range are its version, in every snapshot and without a
//! request; one that is missing or shorter than its manifest says is an error, and never a missing chunk; so is another file that
//! is not what its condition says.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use icechunk::format::manifest::{Checksum, SecondsSinceEpoch};

use super::repository::Snapshot;
use super::snapshot::Found;
use super::sources::Users;
use crate::error::{Error, Result};
use crate::store::targets::object::{self, Bytes, Part, in_target, missing, narrowed, of_target};
use crate::store::targets::{Target, Targets, head_all};
use crate::store::{Info, Object, ObjectVersion, Posix, Store, VersionDigest, Wanted};

/// The folder of chunks in a repository.
const CHUNKS: &str = "chunks";

/// All bytes of what was found.
pub(super) const ALL: Wanted = Wanted::Whole { at_most: u64::MAX };

/// What opens the objects of one repository.
pub(super) struct Objects {
    /// The repository's files.
    pub store: Arc<dyn Store>,
    /// Other files.
    pub targets: Targets,
    /// Owner and mode of the repository, if it is on this machine.
    pub posix: Option<Posix>,
}

/// A folder for users.
pub(super) fn folder_info(posix: Option<Posix>, snapshot: &Snapshot) -> Info {
    let version = ObjectVersion::numbered(0);
    Info { size_bytes: 0, modified: snapshot.time, version, posix }.as_folder()
}

/// A key with what was found at it.
pub(super) struct Place<'a> {
    pub key: &'a str,
    pub found: Found,
    /// The snapshot's time.
    pub time: Option<SystemTime>,
    /// Owner and mode of what the repository has at the key.
    pub posix: Option<Posix>,
}

/// What was found at a key; `None` if it is missing.
pub(super) type FoundPlace<'a> = Result<Option<Place<'a>>>;
/// The target of what was found, if it has to be asked for.
type MaybeTarget = Option<Result<Option<(Target, Range<u64>)>>>;

impl Objects {
    /// The store of a chunk's bytes and the key there, for these users if others than this program's get them. `None` if the
    /// bytes are in a manifest.
    pub(super) fn target(
        &self,
        key: &str,
        found: &Found,
        users: Option<&Users>,
    ) -> Result<Option<(Target, Range<u64>)>> {
        match found {
            Found::Inline(_) => Ok(None),
            Found::Own { id, range } => {
                let store = Arc::clone(users.map_or(&self.store, |users| &users.files));
                Ok(Some((Target { store, key: format!("{CHUNKS}/{id}") }, range.clone())))
            }
            Found::Virtual { url, range, .. } => {
                Ok(Some((self.targets.find(url, key, users.map(|users| &users.audience))?, range.clone())))
            }
        }
    }

    /// Opens an object for a reader that begins with these bytes; the present one of another file if `is_present` says so.
    pub(super) fn open(
        &self,
        place: Place<'_>,
        wanted: &Wanted,
        is_present: bool,
        users: Option<&Users>,
    ) -> Result<Box<dyn Object>> {
        let Place { key, found, time, .. } = place;
        let target = self.target(key, &found, users)?;
        let (target, range) = match (&found, target) {
            (Found::Inline(bytes), _) => {
                let version = inline_version(bytes);
                return Ok(Box::new(Bytes::new(key, bytes.to_vec(), time).with_version(version)));
            }
            (_, Some(target)) => target,
            (_, None) => return Err(missing(key, "")),
        };
        let shown = shown(&found, &target);
        let store = target.store.as_ref();
        if is_present && matches!(found, Found::Virtual { .. }) {
            store.forget_transfers(&target.key);
        }
        let wanted = in_target(wanted, Some(&range));
        let object = store.open_for(&target.key, &wanted).map_err(|error| of_target(key, &shown, error))?;
        let Some(object) = object else { return Err(missing(key, &shown)) };
        check(key, &found, &shown, &object.info())?;
        let part = Part::new(key, &shown, object, Some(range))?;
        Ok(match own_version(&found) {
            Some(version) => Box::new(part.with_version(version)),
            None => Box::new(part),
        })
    }

    /// What is told of keys. Other files are asked for once each, and objects of the repository only where they have owners.
    pub(super) fn head_many(
        &self,
        places: Vec<FoundPlace<'_>>,
        users: Option<&Users>,
    ) -> Vec<Result<Option<Info>>> {
        let target = |place: &Place<'_>| match &place.found {
            Found::Own { .. } if self.posix.is_none() => Ok(None),
            found => self.target(place.key, found, users),
        };
        let targets: Vec<_> = places.iter().map(|place| place.as_ref().ok()?.as_ref().map(&target)).collect();
        let heads = head_all(targets.iter().flatten().flatten().flatten().map(|(target, _)| target));
        let info = |(place, target): (FoundPlace<'_>, MaybeTarget)| {
            let (Some(place), Some(target)) = (place?, target) else { return Ok(None) };
            self.info(&place, target?.map(|(target, _)| target), &heads).map(Some)
        };
        places.into_iter().zip(targets).map(info).collect()
    }

    fn info(
        &self,
        place: &Place<'_>,
        target: Option<Target>,
        heads: &HashMap<(usize, String), Result<Option<Info>>>,
    ) -> Result<Info> {
        let Place { key, found, time, posix } = place;
        let own = |size_bytes, version| Info { size_bytes, modified: *time, version, posix: *posix };
        if let Found::Inline(bytes) = found {
            return Ok(own(bytes.len() as u64, inline_version(bytes)));
        }
        let range = match found {
            Found::Own { range, .. } | Found::Virtual { range, .. } => range,
            Found::Inline(_) => &(0..0),
        };
        let size_bytes = range.end - range.start;
        let Some(target) = target else {
            return Ok(own(size_bytes, own_version(found).unwrap_or(ObjectVersion::numbered(0))));
        };
        let shown = shown(found, &target);
        let info = match heads.get(&target.name()).cloned().unwrap_or(Ok(None)) {
            Ok(Some(info)) => info,
            Ok(None) => return Err(missing(key, &shown)),
            Err(error) => return Err(of_target(key, &shown, error)),
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

/// The same in every process: an overlay compares it after years.
fn inline_version(bytes: &[u8]) -> ObjectVersion {
    ObjectVersion::for_etag(&format!("inline {}", VersionDigest::fnv1a(bytes)))
}

/// An object of the repository is its name and range.
fn own_version(found: &Found) -> Option<ObjectVersion> {
    match found {
        Found::Own { id, range } => {
            Some(ObjectVersion::for_etag(&format!("{id} {}+{}", range.start, range.end - range.start)))
        }
        Found::Inline(_) | Found::Virtual { .. } => None,
    }
}

/// A target for messages.
fn shown(found: &Found, target: &Target) -> String {
    match found {
        Found::Virtual { url, .. } => crate::store::without_secrets(url),
        _ => format!("{}/{}", target.store.describe(), target.key),
    }
}

/// Fails for an object that is not what the manifest says.
fn check(key: &str, found: &Found, shown: &str, info: &Info) -> Result<()> {
    let Found::Virtual { range, condition, .. } = found else {
        let Found::Own { range, .. } = found else { return Ok(()) };
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
