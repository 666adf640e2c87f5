//! Opening a repository that a user names: `icechunk+s3://bucket/prefix`, `icechunk+file:///path`, `icechunk+/path`.
//!
//! What follows `icechunk+` is opened as a store of files, with the same options as any other store. Every failure is
//! [`Error::Usage`], one sentence that begins with the location.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use super::objects::Objects;
use super::repository::Repository;
use super::sources::Sources;
use super::{IcechunkStore, Shared, Shown};
use crate::error::{Error, Result};
use crate::store::targets::Targets;
use crate::store::targets::place::Place;
use crate::store::versions::SnapshotInfo;
use crate::store::{DirectoryStore, Info, Posix, RemoteStore, Store, StoreOptions, is_remote, local_path};

/// A file that every repository has: the list of its snapshots, or the first branch of the format's version 1.
const FILES: [&str; 2] = ["repo", "refs/branch.main/ref.json"];

/// The files of a repository.
struct Files {
    store: Arc<dyn Store>,
    /// Of a file of the repository, or of its folder; size and version say nothing.
    info: Info,
    /// The key of that file; `None` if the repository is not on this machine.
    owner_key: Option<&'static str>,
    place: Place,
}

impl Files {
    /// `inner` is what follows `icechunk+` in the location.
    fn open(inner: &str, location: &str, options: &StoreOptions) -> Result<Self> {
        let usage = |reason: String| Error::Usage(format!("{location}: {reason}"));
        if is_remote(inner) {
            let place = Place::parse(inner.trim_end_matches('/'), None)
                .map_err(|refusal| Error::Usage(refusal.sentence(location)))?;
            let store = Arc::new(RemoteStore::open(inner, &options.remote)?);
            let version = crate::store::ObjectVersion::numbered(0);
            return Ok(Files {
                store,
                info: Info { size_bytes: 0, modified: None, version, posix: None },
                owner_key: None,
                place,
            });
        }
        let path = local_path(inner)?;
        if options.remote.disk_cache.is_some() {
            return Err(usage(
                "is on this machine: --disk-cache is for remote stores, leave it out".to_owned(),
            ));
        }
        let cannot = |error: io::Error| usage(format!("cannot be opened: {error}"));
        if std::fs::metadata(&path).map_err(cannot)?.is_file() {
            return Err(usage("is a file; a repository is a folder".to_owned()));
        }
        let store = DirectoryStore::open(&path, options.follow_symlinks).map_err(cannot)?;
        let store: Arc<dyn Store> = Arc::new(if options.for_others { store.guarded() } else { store });
        let of_file = |file| Some((store.head_object(file).ok().flatten()?, file));
        let (info, owner_key) = match FILES.into_iter().find_map(of_file) {
            Some(found) => found,
            None => (store.head("").ok().flatten().ok_or_else(|| usage("cannot be entered".to_owned()))?, ""),
        };
        let place = Place::of_local(&std::path::absolute(&path).map_err(cannot)?);
        Ok(Files { store, info, owner_key: Some(owner_key), place })
    }
}

impl IcechunkStore {
    /// The snapshot that the options choose. `inner` is what follows `icechunk+` in the location.
    pub fn open(inner: &str, location: &str, options: &StoreOptions) -> Result<Self> {
        let Files { store, info, owner_key, place } = Files::open(inner, location, options)?;
        let repository = Repository::open(Arc::clone(&store), info, location)?;
        let snapshot = repository.chosen(&options.version)?;
        let targets = Targets::of_repository(&place, options)?;
        let posix = info.posix.map(|posix| Posix { file: None, ..posix });
        let sources =
            owner_key.map(|owner_key| Sources::new(Arc::clone(&store), owner_key, &options.version));
        let shared = Shared {
            repository: Arc::new(repository),
            objects: Arc::new(Objects { store, targets, posix }),
            shown: RwLock::new(Shown::new(snapshot)),
            sources,
            branch: options.version.followed().map(str::to_owned),
            for_others: options.for_others,
        };
        Ok(IcechunkStore { shared: Arc::new(shared), users: None })
    }
}

/// The snapshots that lead to the chosen one, which is the first.
pub(in crate::store) fn snapshots(
    inner: &str,
    location: &str,
    options: &StoreOptions,
    limit: usize,
) -> Result<Vec<SnapshotInfo>> {
    let Files { store, info, .. } = Files::open(inner, location, options)?;
    Repository::open(store, info, location)?.log(&options.version, limit)
}
