//! An open repository: its branches, tags and snapshots, and the runtime for the crate's asynchronous functions.
//!
//! Uses the crate and `storage`. Callers wait on threads of their own; the runtime and its threads stay in this file. The
//! limits of the crate's caches for snapshots and manifests are set here and not by the repository's configuration.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt, TryStreamExt};
use icechunk::RepositoryConfig;
use icechunk::config::{CachingConfig, ManifestConfig, ManifestPreloadConfig};
use icechunk::format::SnapshotId;
use icechunk::repository::{RepositoryError, RepositoryErrorKind, VersionInfo};
use icechunk::session::Session;
use tokio::runtime::Runtime;

use super::failure::{failed, sentence};
use super::storage::Storage;
use crate::error::{Error, Result};
use crate::nearest::nearest;
use crate::store::versions::{SnapshotInfo, VersionChoice};
use crate::store::{Info, Store};

/// The number of threads that drive the crate's functions. Blocking work has threads of its own.
const RUNTIME_THREADS: usize = 2;
/// The most nodes of snapshots, and chunks of manifests, that stay in memory.
const CACHED_NODES: u64 = 200_000;
const CACHED_CHUNKS: u64 = 4_000_000;
/// The most names of branches or tags that an error sentence lists.
const MAX_NAMES_SHOWN: usize = 12;

/// A repository.
pub(super) struct Repository {
    runtime: Runtime,
    inner: icechunk::Repository,
    /// The user's name for it.
    pub location: String,
}

/// A snapshot that is open for reading.
pub(super) struct Snapshot {
    pub session: Session,
    pub time: Option<SystemTime>,
}

impl Repository {
    /// Opens the repository whose files are in a store. New files get owner and mode from `like`.
    pub(super) fn open(store: Arc<dyn Store>, like: Info, location: &str) -> Result<Self> {
        let usage = |reason: String| Error::Usage(format!("{location}: {reason}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .thread_name("zarrfs-icechunk")
            .enable_all()
            .build()
            .map_err(|error| usage(format!("cannot start the threads of the repository: {error}")))?;
        let caching = CachingConfig {
            num_snapshot_nodes: Some(CACHED_NODES),
            num_chunk_refs: Some(CACHED_CHUNKS),
            num_transaction_changes: Some(0),
            num_bytes_attributes: Some(0),
            num_bytes_chunks: Some(0),
        };
        let preload = ManifestPreloadConfig { max_total_refs: Some(0), ..Default::default() };
        let manifest = ManifestConfig { preload: Some(preload), ..Default::default() };
        let config = RepositoryConfig {
            caching: Some(caching),
            manifest: Some(manifest),
            ..RepositoryConfig::default()
        };
        let storage = Arc::new(Storage::new(store, like));
        let opened = runtime.block_on(icechunk::Repository::open(storage).config(config).execute());
        let inner = opened.map_err(|error| match &error.kind {
            RepositoryErrorKind::RepositoryDoesntExist => {
                usage("no repository of Icechunk is there: check the path or URL".to_owned())
            }
            kind => usage(failed("the repository", "open", kind).to_string()),
        })?;
        Ok(Repository { runtime, inner, location: location.to_owned() })
    }

    /// Runs one of the crate's functions, and waits for it.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    fn usage(&self, reason: String) -> Error {
        Error::Usage(format!("{}: {reason}", self.location))
    }

    /// Returns the crate's form of a choice.
    fn version(&self, choice: &VersionChoice) -> Result<VersionInfo> {
        let branch = choice.branch_name().to_owned();
        if let Some(tag) = &choice.tag {
            return Ok(VersionInfo::TagRef(tag.clone()));
        }
        if let Some(id) = &choice.snapshot {
            let unknown =
                |_| self.usage(format!("'{id}' is not the ID of a snapshot: 'zarrfs log' lists them"));
            return Ok(VersionInfo::SnapshotId(SnapshotId::try_from(id.as_str()).map_err(unknown)?));
        }
        Ok(match choice.at {
            Some(at) => VersionInfo::AsOf { branch, at: DateTime::<Utc>::from(at) },
            None => VersionInfo::BranchTipRef(branch),
        })
    }

    /// Opens the snapshot that a user chooses. Every failure is a sentence for the user.
    pub(super) fn chosen(&self, choice: &VersionChoice) -> Result<Snapshot> {
        let version = self.version(choice)?;
        self.wait(self.snapshot(&version)).map_err(|error| {
            let other = || self.usage(failed("the snapshot", "open", &error.kind).to_string());
            self.not_found(choice).unwrap_or_else(other)
        })
    }

    /// Opens the newest snapshot of a branch.
    pub(super) fn newest(&self, branch: &str) -> Result<Snapshot> {
        let version = VersionInfo::BranchTipRef(branch.to_owned());
        self.wait(self.snapshot(&version))
            .map_err(|error| failed(&self.location, "find the newest snapshot of", &error.kind))
    }

    async fn snapshot(&self, version: &VersionInfo) -> std::result::Result<Snapshot, RepositoryError> {
        let session = self.inner.readonly_session(version).await?;
        let snapshot = self.inner.asset_manager().fetch_snapshot(session.snapshot_id()).await?;
        let time = snapshot.flushed_at().ok().map(SystemTime::from);
        Ok(Snapshot { session, time })
    }

    /// Returns the error for a choice that does not exist in the repository; `None` if it exists.
    fn not_found(&self, choice: &VersionChoice) -> Option<Error> {
        let (kind, wanted, names) = match (&choice.tag, &choice.snapshot) {
            (Some(tag), _) => ("tag", tag.as_str(), self.wait(self.inner.list_tags())),
            (None, Some(id)) => {
                return match self.wait(self.inner.lookup_snapshot(&SnapshotId::try_from(id.as_str()).ok()?)) {
                    Ok(_) => None,
                    Err(error) if is_file_error(&error.kind) => None,
                    Err(_) => {
                        Some(self.usage(format!("there is no snapshot '{id}': 'zarrfs log' lists them")))
                    }
                };
            }
            (None, None) => ("branch", choice.branch_name(), self.wait(self.inner.list_branches())),
        };
        let names: Vec<String> = names.ok()?.into_iter().collect();
        if names.iter().any(|name| name == wanted) {
            let at = choice.at?;
            let oldest = self.wait(self.oldest(choice.branch_name()))?;
            let is_before = DateTime::<Utc>::from(at) < oldest;
            return is_before.then(|| {
                self.usage(format!(
                    "the first snapshot of the branch '{wanted}' is of {}",
                    oldest.to_rfc3339()
                ))
            });
        }
        let near = match nearest(wanted, &names) {
            Some(near) => format!("did you mean '{near}'?"),
            None if names.is_empty() => "it has none".to_owned(),
            None => {
                let more = if names.len() > MAX_NAMES_SHOWN { ", …" } else { "" };
                format!(
                    "it has {}{more}",
                    names.into_iter().take(MAX_NAMES_SHOWN).collect::<Vec<_>>().join(", ")
                )
            }
        };
        Some(self.usage(format!("the repository has no {kind} '{wanted}': {near}")))
    }

    async fn oldest(&self, branch: &str) -> Option<DateTime<Utc>> {
        let version = VersionInfo::BranchTipRef(branch.to_owned());
        let ancestry = self.inner.ancestry(&version).await.ok()?;
        let mut oldest = None;
        let mut ancestry = std::pin::pin!(ancestry);
        while let Ok(Some(snapshot)) = ancestry.try_next().await {
            oldest = Some(snapshot.flushed_at);
        }
        oldest
    }

    /// Opens a writable session over the newest snapshot of a branch.
    pub(super) fn writable(&self, branch: &str) -> Result<Session> {
        let session = self.wait(self.inner.writable_session(branch));
        session.map_err(|error| {
            let choice = VersionChoice { branch: Some(branch.to_owned()), ..VersionChoice::default() };
            let other = || failed(&self.location, "begin a snapshot of", &error.kind);
            self.not_found(&choice).unwrap_or_else(other)
        })
    }

    /// Returns the chosen snapshot, then those before it.
    pub(super) fn log(&self, choice: &VersionChoice, limit: usize) -> Result<Vec<SnapshotInfo>> {
        let version = self.version(choice)?;
        let collect = async {
            let ancestry = self.inner.ancestry(&version).await?;
            let infos = ancestry.map_ok(|snapshot| SnapshotInfo {
                id: snapshot.id.to_string(),
                time: SystemTime::from(snapshot.flushed_at),
                message: snapshot.message,
            });
            infos.take(limit).try_collect().await
        };
        self.wait(collect).map_err(|error: RepositoryError| {
            let other = || self.usage(failed("the snapshots", "list", &error.kind).to_string());
            self.not_found(choice).unwrap_or_else(other)
        })
    }

    /// Finds the newest snapshot of a branch with this value of a property.
    pub(super) fn find_property(
        &self,
        branch: &str,
        name: &str,
        value: &str,
        among: usize,
    ) -> Result<Option<String>> {
        let version = VersionInfo::BranchTipRef(branch.to_owned());
        let search = async {
            let mut ancestry = std::pin::pin!(self.inner.ancestry(&version).await?.take(among));
            while let Some(snapshot) = ancestry.try_next().await? {
                if snapshot.metadata.get(name).and_then(serde_json::Value::as_str) == Some(value) {
                    return Ok(Some(snapshot.id.to_string()));
                }
            }
            Ok(None)
        };
        self.wait(search)
            .map_err(|error: RepositoryError| failed(&self.location, "list the snapshots of", &error.kind))
    }
}

/// Whether a failure comes from reading a file, and so does not say what is in the repository.
fn is_file_error(kind: &RepositoryErrorKind) -> bool {
    let error = failed("", "read", kind);
    let is_not_found = sentence(kind).contains("not found");
    matches!(&error, Error::Store { source, .. } if source.kind() != io::ErrorKind::Other) || !is_not_found
}
