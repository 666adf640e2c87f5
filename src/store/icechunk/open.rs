//! Opening a repository that a user names: `icechunk+s3://bucket/prefix`, `icechunk+file:///path`, `icechunk+/path`.
//!
//! The location after `icechunk+` is opened as a store of files, with the same options as any other store. Every failure is
//! [`Error::Usage`], one sentence that begins with the location.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use super::objects::Objects;
use super::repository::Repository;
use super::sources::Sources;
use super::{IcechunkStore, SharedRepository, ShownSnapshot};
use crate::error::{Error, Result};
use crate::store::targets::Targets;
use crate::store::targets::place::TargetPlace;
use crate::store::versions::SnapshotInfo;
use crate::store::{DirectoryStore, Info, Posix, RemoteStore, Store, StoreOptions, is_remote, local_path};

/// Files; every repository has one of them: the list of its snapshots, or the first branch in version 1 of the format.
const FILES: [&str; 2] = ["repo", "refs/branch.main/ref.json"];

/// The files of a repository.
struct RepositoryFiles {
    store: Arc<dyn Store>,
    /// The attributes of a file of the repository, or of its folder. Size and version are not used.
    info: Info,
    /// The key of that file; `None` if the repository is not on this machine.
    owner_key: Option<&'static str>,
    place: TargetPlace,
}

impl RepositoryFiles {
    /// Opens the files. `inner` is the location after `icechunk+`.
    fn open(inner: &str, location: &str, options: &StoreOptions) -> Result<Self> {
        let usage = |reason: String| Error::Usage(format!("{location}: {reason}"));
        if is_remote(inner) {
            let place = TargetPlace::parse(inner.trim_end_matches('/'), None)
                .map_err(|refusal| Error::Usage(refusal.sentence(location)))?;
            let store = Arc::new(RemoteStore::open(inner, &options.remote)?);
            let version = crate::store::ObjectVersion::numbered(0);
            return Ok(RepositoryFiles {
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
        let place = TargetPlace::local(&std::path::absolute(&path).map_err(cannot)?);
        Ok(RepositoryFiles { store, info, owner_key: Some(owner_key), place })
    }
}

impl IcechunkStore {
    /// Opens the snapshot that the options choose. `inner` is the location after `icechunk+`.
    pub fn open(inner: &str, location: &str, options: &StoreOptions) -> Result<Self> {
        let RepositoryFiles { store, info, owner_key, place } =
            RepositoryFiles::open(inner, location, options)?;
        let repository = Repository::open(Arc::clone(&store), info, location)?;
        let snapshot = repository.chosen(&options.version)?;
        let targets = Targets::for_repository(&place, options)?;
        let posix = info.posix.map(|posix| Posix { file: None, ..posix });
        let sources =
            owner_key.map(|owner_key| Sources::new(Arc::clone(&store), owner_key, &options.version));
        let shared = SharedRepository {
            repository: Arc::new(repository),
            objects: Arc::new(Objects { store, targets, posix }),
            shown: RwLock::new(ShownSnapshot::new(snapshot)),
            sources,
            branch: options.version.followed().map(str::to_owned),
            for_others: options.for_others,
        };
        Ok(IcechunkStore { shared: Arc::new(shared), users: None })
    }
}

/// Returns the chosen snapshot, then those before it.
pub(in crate::store) fn snapshots(
    inner: &str,
    location: &str,
    options: &StoreOptions,
    limit: usize,
) -> Result<Vec<SnapshotInfo>> {
    let RepositoryFiles { store, info, .. } = RepositoryFiles::open(inner, location, options)?;
    Repository::open(store, info, location)?.log(&options.version, limit)
}
