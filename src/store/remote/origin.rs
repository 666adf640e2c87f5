//! The service that objects come from, and the disk cache in front of it, if there is one.
//!
//! Uses `object_store`, `store/disk_cache` and its neighbours. Bytes from the cache are used in three cases: the request names
//! the version (`if_match`), the service says that its version is the same, or the store is offline. So no reader gets anything
//! older than the request, or anything that the user may no longer read.
//!
//! Objects without a strong ETag are not cached. Objects that changed just now at a web server are not cached either: its ETag
//! consists of the time in seconds and the size, and the next change in the same second may have the same ETag.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::first_bytes::FirstBytes;
use super::replies::failure::{Reply, RequestFailure};
use super::replies::listing::OddKeys;
use super::service::Service;
use super::transfer::{self, Fetched, Request};
use crate::error::Result;
use crate::memory::Buffer;
use crate::store::disk_cache::{
    self, CachedBytes, EntryTimes, FolderNames, NewBytes, ObjectName, Observation, Presence,
};
use crate::store::{DiskCache, DiskCacheCounts, DiskCacheOptions, RemoteOptions, Wanted};

/// Objects of a web server that changed more recently than this are not cached.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Fewer bytes than this are read from the disk immediately: their memory costs less than opening the file again.
const MIN_LEFT_ON_DISK_BYTES: u64 = 64 << 10;

/// A service, and its disk cache.
pub(super) struct Origin {
    client: Arc<dyn ObjectStore>,
    service: Service,
    cache: Option<OriginCache>,
}

struct OriginCache {
    disk: Arc<DiskCache>,
    container: String,
    is_offline: bool,
    must_keep: bool,
    /// Whether a 403 that says nothing more means a missing object.
    is_forbidden_missing: bool,
    /// Whether the user was warned that something could not be recorded.
    is_warned: AtomicBool,
}

/// The source of the bytes for a request.
enum BytesSource<'a> {
    /// Bytes that were fetched from the service.
    Fetched(Fetched),
    /// Bytes in the cache that are as new as the request.
    Cached(&'a OriginCache, CachedBytes),
}

impl Origin {
    /// Returns a service with the disk cache that the options name. `container` distinguishes its objects from those of other
    /// services.
    pub(super) fn new(
        client: Arc<dyn ObjectStore>,
        service: Service,
        container: String,
        remote: &RemoteOptions,
    ) -> Result<Self> {
        let cached = |options: &DiskCacheOptions| {
            let disk = Arc::new(DiskCache::open(options)?);
            let &DiskCacheOptions { is_offline, must_keep, .. } = options;
            let is_warned = AtomicBool::new(false);
            let is_forbidden_missing = remote.is_forbidden_missing;
            Ok(OriginCache { disk, container, is_offline, must_keep, is_forbidden_missing, is_warned })
        };
        Ok(Origin { client, service, cache: remote.disk_cache.as_ref().map(cached).transpose()? })
    }

    /// Returns the service's client, for requests that change something.
    pub(super) fn client(&self) -> &dyn ObjectStore {
        self.client.as_ref()
    }

    /// Returns the counts of the disk cache.
    pub(super) fn disk_counts(&self) -> Option<DiskCacheCounts> {
        self.cache.as_ref().map(|cache| cache.disk.counts())
    }

    /// Ends the disk cache like a killed process.
    #[cfg(test)]
    pub(super) fn abandon_cache(&self) {
        self.cache.iter().for_each(|cache| cache.disk.abandon());
    }

    /// Whether no work on the disk cache is under way.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        // Each piece of work has a reference.
        self.cache.as_ref().is_none_or(|cache| Arc::strong_count(&cache.disk) == 1)
    }

    /// Waits until no entry of the disk cache waits to be written.
    #[cfg(test)]
    pub(super) fn wait_until_written(&self) {
        self.cache.iter().for_each(|cache| cache.disk.wait_until_written());
    }

    /// Fetches bytes of an object.
    pub(super) async fn fetch(&self, request: &Request<'_>, stall_time: Duration) -> Reply<Fetched> {
        let fetched = self.fetch_if(request, stall_time, &|_, _| true).await?;
        fetched.ok_or_else(|| RequestFailure::NotSupported("a reply without a body".to_owned()))
    }

    /// Fetches bytes of an object. Returns `None` if `is_wanted` rejects its size, ETag and time and the number of bytes.
    pub(super) async fn fetch_if(
        &self,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<Fetched>> {
        match self.answer(request, stall_time, is_wanted).await? {
            None => Ok(None),
            Some(BytesSource::Fetched(fetched)) => Ok(Some(fetched)),
            Some(BytesSource::Cached(cache, found)) => {
                self.read(cache, found, request, stall_time, is_wanted).await
            }
        }
    }

    /// Fetches bytes as [`Origin::fetch_if`] does, but leaves bytes on the disk until they are read: by the thread that needs
    /// them, into the memory where it needs them.
    pub(super) async fn open_if(
        &self,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<FirstBytes>> {
        let fetched = match self.answer(request, stall_time, is_wanted).await? {
            None => None,
            Some(BytesSource::Fetched(fetched)) => Some(fetched),
            Some(BytesSource::Cached(cache, found)) if stays_on_disk(&found) => {
                cache.disk.count_hit();
                let meta = object_meta(request.path, &found.meta);
                return Ok(Some(FirstBytes::on_disk(meta, &cache.disk, found)));
            }
            Some(BytesSource::Cached(cache, found)) => {
                self.read(cache, found, request, stall_time, is_wanted).await?
            }
        };
        Ok(fetched.map(FirstBytes::from))
    }

    /// Reads bytes that were found in the cache, or fetches them if they are damaged.
    async fn read(
        &self,
        cache: &OriginCache,
        found: CachedBytes,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<Fetched>> {
        match cache.read(request.path, found).await {
            Some(fetched) => Ok(Some(fetched)),
            None if cache.is_offline => Err(RequestFailure::Offline),
            None => self.fetch_new(cache, request, stall_time, is_wanted).await,
        }
    }

    /// Returns bytes from the cache if they are as new as the request, otherwise from the service; `None` if they are not
    /// wanted.
    async fn answer(
        &self,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<BytesSource<'_>>> {
        let Some(cache) = &self.cache else {
            let fetched = transfer::fetch_if(self.client.as_ref(), request, stall_time, is_wanted).await?;
            return Ok(fetched.map(BytesSource::Fetched));
        };
        let Some(found) = cache.find(request).await else {
            if cache.is_offline {
                return Err(cache.why_not_offline(request.path).await);
            }
            let fetched = self.fetch_new(cache, request, stall_time, is_wanted).await?;
            return Ok(fetched.map(BytesSource::Fetched));
        };
        if cache.is_offline {
            cache.check_presence(request.path).await?;
        } else if request.if_match.is_none() {
            let is_same = AtomicBool::new(false);
            let is_new = |meta: &ObjectMeta, length: u64| {
                let is_known = meta.e_tag.as_ref() == Some(&found.meta.e_tag);
                is_same.store(is_known, Ordering::Relaxed);
                !is_known && is_wanted(meta, length)
            };
            let conditional = Request { if_none_match: Some(&found.meta.e_tag), ..request.clone() };
            match self.fetch_new(cache, &conditional, stall_time, &is_new).await {
                Err(RequestFailure::NotModified) => cache.confirm(request.path).await?,
                // Some services send the object anyway.
                Ok(None) if is_same.load(Ordering::Relaxed) => {}
                changed => return Ok(changed?.map(BytesSource::Fetched)),
            }
        }
        let meta = object_meta(request.path, &found.meta);
        Ok(is_wanted(&meta, found.range.end - found.range.start).then_some(BytesSource::Cached(cache, found)))
    }

    /// Sends the request to the service, records what the reply says, and caches its bytes.
    async fn fetch_new(
        &self,
        cache: &OriginCache,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<Fetched>> {
        let asked = cache.disk.now();
        // The reply counts also if the bytes are not wanted or break off.
        let seen = Mutex::new(None);
        let look = |meta: &ObjectMeta, length: u64| {
            *seen.lock() = Some(meta.clone());
            is_wanted(meta, length)
        };
        let fetched = transfer::fetch_if(self.client.as_ref(), request, stall_time, &look).await;
        let seen = match (&fetched, seen.into_inner()) {
            (Err(RequestFailure::Missing), _) => Some(Observation::Missing),
            (Err(RequestFailure::Changed), _) => Some(Observation::Changed),
            (Err(RequestFailure::Undisclosed(_)), _) if cache.is_forbidden_missing => {
                Some(Observation::Changed)
            }
            (_, Some(meta)) => Some(self.seen(&meta)),
            (_, None) => None,
        };
        let Some(seen) = seen else { return fetched };
        let learned = cache.learn(request.path, &seen, asked).await;
        match (&fetched, seen) {
            (Ok(Some(fetched)), Observation::Version(meta)) => {
                cache.disk.count_miss();
                cache.keep(request.path, meta, fetched, learned).await?;
            }
            (Ok(Some(_)), _) => {
                cache.disk.count_miss();
                cache.not_kept(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the service gives no reliable version, or the object changed just now",
                ))?;
            }
            (Err(RequestFailure::Missing), _) => cache.keep_missing(request.path, learned).await?,
            _ => {}
        }
        fetched
    }

    /// Returns what a reply says about an object.
    fn seen(&self, meta: &ObjectMeta) -> Observation {
        self.kept_meta(meta).map_or(Observation::There, Observation::Version)
    }

    /// Makes the cache forget an object that is put or deleted, and whether its name exists. It is called before the request
    /// and after its reply. Fails if the cache cannot forget: it would otherwise serve the old object offline.
    pub(super) fn outdate(&self, path: &Path, is_there: bool) -> Reply<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        cache.disk.outdate(&cache.name(path), is_there).map_err(|error| {
            let folder = cache.disk.folder().display();
            RequestFailure::Other(
                error.kind(),
                format!(
                    "the disk cache in {folder} cannot drop its copy: {error}: repair that, or mount without --disk-cache"
                ),
            )
        })
    }

    /// Returns the metadata to cache with an object; `None` if its version is not certain.
    fn kept_meta(&self, meta: &ObjectMeta) -> Option<disk_cache::ObjectMeta> {
        let e_tag = meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"))?;
        let modified = SystemTime::from(meta.last_modified);
        if self.service == Service::Http && modified.elapsed().map_or(true, |age| age < SETTLED_AFTER) {
            return None;
        }
        let modified_micros = meta.last_modified.timestamp_micros();
        Some(disk_cache::ObjectMeta {
            e_tag,
            version: meta.version.clone(),
            size_bytes: meta.size,
            modified_micros,
        })
    }

    /// Returns size, ETag and time of an object. The reply to HEAD has no body, and so no code: if HEAD is refused, GET says
    /// why.
    pub(super) async fn head(&self, path: &Path) -> Reply<ObjectMeta> {
        if let Some(cache) = self.cache.as_ref().filter(|cache| cache.is_offline) {
            let (disk, name) = (Arc::clone(&cache.disk), cache.name(path));
            cache.check_presence(path).await?;
            return match spawn_blocking(move || disk.meta(&name)).await.ok().flatten() {
                Some(meta) => Ok(object_meta(path, &meta)),
                None => Err(RequestFailure::Offline),
            };
        }
        Ok(self.look(path).await?.meta)
    }

    /// Asks the service about an object, without its bytes.
    pub(super) async fn look(&self, path: &Path) -> Reply<GetResult> {
        let asked = self.cache.as_ref().map_or(0, |cache| cache.disk.now());
        let ask = async |options| self.client.get_opts(path, options).await.map_err(RequestFailure::from);
        let mut looked = ask(GetOptions { head: true, ..GetOptions::default() }).await;
        if let Err(RequestFailure::Undisclosed(_) | RequestFailure::Forbidden(_)) = looked {
            let range = Some(GetRange::Bounded(0..1));
            looked = ask(GetOptions { range, ..GetOptions::default() }).await;
            if let Err(RequestFailure::OutOfRange) = looked {
                looked = ask(GetOptions::default()).await;
            }
        }
        if let Some(cache) = &self.cache {
            match &looked {
                Ok(looked) => drop(cache.learn(path, &self.seen(&looked.meta), asked).await),
                Err(RequestFailure::Missing) => {
                    let learned = cache.learn(path, &Observation::Missing, asked).await;
                    cache.keep_missing(path, learned).await?;
                }
                Err(RequestFailure::Undisclosed(_)) if cache.is_forbidden_missing => {
                    drop(cache.learn(path, &Observation::Changed, asked).await);
                }
                Err(_) => {}
            }
        }
        looked
    }

    /// Lists the names directly below a path, with the keys that are left out.
    pub(super) async fn list(&self, path: &Path) -> Reply<(FolderNames, Option<OddKeys>)> {
        if let Some(cache) = self.cache.as_ref().filter(|cache| cache.is_offline) {
            return Ok((cache.listing(path).await?, None));
        }
        let asked = self.cache.as_ref().map_or(0, |cache| cache.disk.now());
        let listed = self.client.list_with_delimiter(Some(path)).await?;
        // Programs with folders mark them with an object in the folder itself. Its key ends with '/'.
        let is_below = |below: &&Path| below.as_ref().len() > path.as_ref().len();
        let name = |path: &Path| Some(path.as_ref().rsplit('/').next()?.to_owned());
        let objects = listed.objects.iter().map(|meta| &meta.location);
        let names = FolderNames::new(
            listed.common_prefixes.iter().filter(is_below).filter_map(name).collect(),
            objects.filter(is_below).filter_map(name).collect(),
        );
        if let Some(cache) = &self.cache {
            cache.keep_listing(path, &names, asked).await?;
        }
        Ok((names, listed.extensions.get().cloned()))
    }

    /// Whether there is anything below a path.
    pub(super) async fn has_any(&self, path: &Path) -> Reply<bool> {
        let is_offline = self.cache.as_ref().is_some_and(|cache| cache.is_offline);
        // Few web servers list a whole tree.
        if is_offline || self.service == Service::Http {
            let (names, _) = self.list(path).await?;
            return Ok(!names.objects.is_empty() || !names.folders.is_empty());
        }
        let first = self.client.list(Some(path)).next().await;
        Ok(first.transpose().map_err(RequestFailure::from)?.is_some())
    }
}

impl OriginCache {
    fn name(&self, path: &Path) -> ObjectName {
        ObjectName { store: self.container.clone(), path: path.as_ref().to_owned() }
    }

    /// Finds entries with the requested bytes.
    async fn find(&self, request: &Request<'_>) -> Option<CachedBytes> {
        let wanted = match &request.range {
            None => Wanted::Whole { at_most: u64::MAX },
            Some(GetRange::Bounded(range)) => Wanted::Range(range.clone()),
            Some(GetRange::Suffix(bytes)) => Wanted::Last(*bytes),
            Some(GetRange::Offset(_)) => return None,
        };
        let (disk, name) = (Arc::clone(&self.disk), self.name(request.path));
        let tag = request.if_match.map(str::to_owned);
        let found = spawn_blocking(move || disk.find(&name, &wanted, tag.as_deref())).await.ok().flatten()?;
        (found.range.end - found.range.start <= request.limit_bytes).then_some(found)
    }

    /// Reads the bytes that were found; `None` if they are damaged.
    async fn read(&self, path: &Path, found: CachedBytes) -> Option<Fetched> {
        let (meta, start) = (object_meta(path, &found.meta), found.range.start);
        let disk = Arc::clone(&self.disk);
        let bytes: Buffer = spawn_blocking(move || disk.read(&found)).await.ok().flatten()?;
        Some(Fetched { meta, start, bytes: Arc::new(bytes) })
    }

    /// Records what the reply to a request from the time `asked` says about an object. After an error nothing of it is cached.
    async fn learn(&self, path: &Path, seen: &Observation, asked: u64) -> io::Result<EntryTimes> {
        let (disk, name, seen) = (Arc::clone(&self.disk), self.name(path), seen.clone());
        let learned = spawn_blocking(move || disk.learn(&name, &seen, asked)).await;
        let learned = learned.map_err(io::Error::other).flatten().inspect_err(|error| self.warn(error))?;
        learned.ok_or_else(disk_cache::overtaken)
    }

    /// Records that, as the service says, an object is still what the cache has.
    async fn confirm(&self, path: &Path) -> Reply<()> {
        let (disk, name) = (Arc::clone(&self.disk), self.name(path));
        blocking(move || disk.confirm(&name)).await?.inspect_err(|error| self.warn(error)).or(Ok(()))
    }

    fn warn(&self, error: &io::Error) {
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            let folder = self.disk.folder().display();
            log::warn!(
                "{folder}: the disk cache cannot be changed, and may be older than the bytes that were read: {error}: do not \
                 use it with --offline before this is repaired and 'zarrfs cache clear' has run"
            );
        }
    }

    /// Caches fetched bytes. Fails only if they must be cached and cannot be.
    async fn keep(
        &self,
        path: &Path,
        meta: disk_cache::ObjectMeta,
        fetched: &Fetched,
        learned: io::Result<EntryTimes>,
    ) -> Reply<()> {
        let times = match learned {
            Ok(times) => times,
            Err(error) => return self.not_kept(error),
        };
        let (object, start, bytes) = (self.name(path), fetched.start, Arc::clone(&fetched.bytes));
        let (disk, new) = (Arc::clone(&self.disk), NewBytes { object, meta, start, bytes });
        if !self.must_keep {
            disk.keep(new, times);
            return Ok(());
        }
        blocking(move || disk.keep_now(new, times)).await?.or_else(|error| self.not_kept(error))
    }

    /// Caches the names directly below a path, as [`OriginCache::keep`] does bytes.
    async fn keep_listing(&self, path: &Path, names: &FolderNames, asked: u64) -> Reply<()> {
        let (disk, name, names) = (Arc::clone(&self.disk), self.name(path), names.clone());
        let kept = blocking(move || disk.keep_listing(&name, names, asked)).await?;
        kept.or_else(|error| self.not_kept(error))
    }

    /// Caches that an object is missing, as [`OriginCache::keep`] does bytes.
    async fn keep_missing(&self, path: &Path, learned: io::Result<EntryTimes>) -> Reply<()> {
        let times = match learned {
            Ok(times) => times,
            Err(error) => return self.not_kept(error),
        };
        let (disk, name) = (Arc::clone(&self.disk), self.name(path));
        if !self.must_keep {
            disk.keep_missing(name, times);
            return Ok(());
        }
        blocking(move || disk.keep_missing_now(name, times)).await?.or_else(|error| self.not_kept(error))
    }

    /// Returns an error if everything must be cached, because something is not.
    fn not_kept(&self, error: io::Error) -> Reply<()> {
        if self.must_keep {
            Err(RequestFailure::Other(error.kind(), format!("the disk cache cannot keep it: {error}")))
        } else {
            Ok(())
        }
    }

    async fn presence(&self, path: &Path) -> Presence {
        let (disk, name) = (Arc::clone(&self.disk), self.name(path));
        blocking(move || disk.presence(&name)).await.unwrap_or(Presence::Unknown)
    }

    /// Fails unless the cached bytes of an object are as new as all that is known about it.
    async fn check_presence(&self, path: &Path) -> Reply<()> {
        match self.presence(path).await {
            Presence::There => Ok(()),
            Presence::Missing => Err(RequestFailure::Missing),
            Presence::Unknown => Err(RequestFailure::Offline),
        }
    }

    /// Returns why an object that is not in the cache is not served offline.
    async fn why_not_offline(&self, path: &Path) -> RequestFailure {
        self.check_presence(path).await.err().unwrap_or(RequestFailure::Offline)
    }

    async fn listing(&self, path: &Path) -> Reply<FolderNames> {
        let (disk, name) = (Arc::clone(&self.disk), self.name(path));
        blocking(move || disk.listing(&name)).await?.ok_or(RequestFailure::Offline)
    }
}

/// Runs work that waits for the disk on a thread for blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Reply<T> {
    let ended = |error| RequestFailure::Other(io::ErrorKind::Other, format!("the disk cache: {error}"));
    spawn_blocking(work).await.map_err(ended)
}

/// Whether bytes that were found stay on the disk until they are read.
fn stays_on_disk(found: &CachedBytes) -> bool {
    found.is_one_entry() && found.range.end - found.range.start >= MIN_LEFT_ON_DISK_BYTES
}

/// Converts metadata to the form of `object_store`.
fn object_meta(path: &Path, meta: &disk_cache::ObjectMeta) -> ObjectMeta {
    let since = Duration::from_micros(u64::try_from(meta.modified_micros).unwrap_or(0));
    ObjectMeta {
        location: path.clone(),
        last_modified: (SystemTime::UNIX_EPOCH + since).into(),
        size: meta.size_bytes,
        e_tag: Some(meta.e_tag.clone()),
        version: meta.version.clone(),
    }
}
