//! The service that objects come from, with the disk cache before it, if there is one.
//!
//! Uses `object_store`, `store/disk_cache` and its neighbours. What is in the cache is used in three cases: the request names the
//! version (`if_match`), the service says that its version is the same, or the store is offline. So nothing is served that is older
//! than the request, and what a user may no longer read is not served either.
//!
//! Objects without a strong ETag are not kept. Nor are those that a web server says were changed just now: its ETag is made of the
//! time in seconds and the size, and the next change in the same second may have the same.

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
use super::replies::failure::{Failure, Reply};
use super::replies::listing::OddKeys;
use super::service::Service;
use super::transfer::{self, Fetched, Request};
use crate::error::Result;
use crate::memory::Buffer;
use crate::store::disk_cache::{self, Found, Names, NewBytes, ObjectName, Presence, Seen, Times};
use crate::store::{DiskCache, DiskCacheCounts, DiskCacheOptions, RemoteOptions, Wanted};

/// Objects of a web server that were changed more recently are not kept.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Fewer bytes are read from the disk at once: what they cost in memory is less than a file that is opened once more.
const MIN_LEFT_ON_DISK_BYTES: u64 = 64 << 10;

/// A service, and what is kept of it.
pub(super) struct Origin {
    client: Arc<dyn ObjectStore>,
    service: Service,
    cache: Option<Cached>,
}

struct Cached {
    disk: Arc<DiskCache>,
    container: String,
    is_offline: bool,
    must_keep: bool,
    /// Readers take a 403 that does not say more for a missing object.
    is_forbidden_missing: bool,
    /// The user knows that something could not be learned.
    is_warned: AtomicBool,
}

/// The answer to a request for bytes.
enum Answer<'a> {
    /// Fetched from the service.
    New(Fetched),
    /// In the cache, and as new as the request.
    Kept(&'a Cached, Found),
}

impl Origin {
    /// A service, with the disk cache that the options name; `container` tells its objects from those of others.
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
            Ok(Cached { disk, container, is_offline, must_keep, is_forbidden_missing, is_warned })
        };
        Ok(Origin { client, service, cache: remote.disk_cache.as_ref().map(cached).transpose()? })
    }

    /// The service's client, for requests that change something.
    pub(super) fn client(&self) -> &dyn ObjectStore {
        self.client.as_ref()
    }

    /// Counts of the disk cache.
    pub(super) fn disk_counts(&self) -> Option<DiskCacheCounts> {
        self.cache.as_ref().map(|cache| cache.disk.counts())
    }

    /// Ends the disk cache as a process that is killed.
    #[cfg(test)]
    pub(super) fn abandon_cache(&self) {
        self.cache.iter().for_each(|cache| cache.disk.abandon());
    }

    /// Bytes of an object.
    pub(super) async fn fetch(&self, request: &Request<'_>, stall_time: Duration) -> Reply<Fetched> {
        let fetched = self.fetch_if(request, stall_time, &|_, _| true).await?;
        fetched.ok_or_else(|| Failure::NotSupported("a reply without a body".to_owned()))
    }

    /// Bytes of an object, unless its size, ETag and time, and the number of bytes, are enough: then `None`.
    pub(super) async fn fetch_if(
        &self,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<Fetched>> {
        match self.answer(request, stall_time, is_wanted).await? {
            None => Ok(None),
            Some(Answer::New(fetched)) => Ok(Some(fetched)),
            Some(Answer::Kept(cache, found)) => self.read(cache, found, request, stall_time, is_wanted).await,
        }
    }

    /// As [`Origin::fetch_if`], but what is on the disk stays there until it is read: by the thread that needs it, and into the memory
    /// where it needs it.
    pub(super) async fn open_if(
        &self,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<FirstBytes>> {
        let fetched = match self.answer(request, stall_time, is_wanted).await? {
            None => None,
            Some(Answer::New(fetched)) => Some(fetched),
            Some(Answer::Kept(cache, found)) if stays_on_disk(&found) => {
                cache.disk.note_hit();
                let meta = object_meta(request.path, &found.meta);
                return Ok(Some(FirstBytes::on_disk(meta, &cache.disk, found)));
            }
            Some(Answer::Kept(cache, found)) => {
                self.read(cache, found, request, stall_time, is_wanted).await?
            }
        };
        Ok(fetched.map(FirstBytes::from))
    }

    /// Reads what was found in the cache, or asks the service if it is damaged.
    async fn read(
        &self,
        cache: &Cached,
        found: Found,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<Fetched>> {
        match cache.read(request.path, found).await {
            Some(fetched) => Ok(Some(fetched)),
            None if cache.is_offline => Err(Failure::Offline),
            None => self.fetch_new(cache, request, stall_time, is_wanted).await,
        }
    }

    /// What the cache has, if it is as new as the request, or else what the service says. `None` if it is not wanted.
    async fn answer(
        &self,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<Answer<'_>>> {
        let Some(cache) = &self.cache else {
            let fetched = transfer::fetch_if(self.client.as_ref(), request, stall_time, is_wanted).await?;
            return Ok(fetched.map(Answer::New));
        };
        let Some(found) = cache.find(request).await else {
            if cache.is_offline {
                return Err(cache.why_not_offline(request.path).await);
            }
            let fetched = self.fetch_new(cache, request, stall_time, is_wanted).await?;
            return Ok(fetched.map(Answer::New));
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
                Err(Failure::NotModified) => cache.confirm(request.path).await?,
                // Some services send the object all the same.
                Ok(None) if is_same.load(Ordering::Relaxed) => {}
                changed => return Ok(changed?.map(Answer::New)),
            }
        }
        let meta = object_meta(request.path, &found.meta);
        Ok(is_wanted(&meta, found.range.end - found.range.start).then_some(Answer::Kept(cache, found)))
    }

    /// Asks the service, learns what it says, and keeps it.
    async fn fetch_new(
        &self,
        cache: &Cached,
        request: &Request<'_>,
        stall_time: Duration,
        is_wanted: &impl Fn(&ObjectMeta, u64) -> bool,
    ) -> Reply<Option<Fetched>> {
        let asked = cache.disk.now();
        // Also of an object whose bytes are not wanted, or break off.
        let seen = Mutex::new(None);
        let look = |meta: &ObjectMeta, length: u64| {
            *seen.lock() = Some(meta.clone());
            is_wanted(meta, length)
        };
        let fetched = transfer::fetch_if(self.client.as_ref(), request, stall_time, &look).await;
        let seen = match (&fetched, seen.into_inner()) {
            (Err(Failure::Missing), _) => Some(Seen::Missing),
            (Err(Failure::Changed), _) => Some(Seen::Changed),
            (Err(Failure::Undisclosed(_)), _) if cache.is_forbidden_missing => Some(Seen::Changed),
            (_, Some(meta)) => Some(self.seen(&meta)),
            (_, None) => None,
        };
        let Some(seen) = seen else { return fetched };
        let learned = cache.learn(request.path, &seen, asked).await;
        match (&fetched, seen) {
            (Ok(Some(fetched)), Seen::Version(meta)) => {
                cache.disk.note_miss();
                cache.keep(request.path, meta, fetched, learned).await?;
            }
            (Ok(Some(_)), _) => {
                cache.disk.note_miss();
                cache.not_kept(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the service tells no version of it to rely on, or it changed just now",
                ))?;
            }
            (Err(Failure::Missing), _) => cache.keep_missing(request.path, learned).await?,
            _ => {}
        }
        fetched
    }

    /// What a reply says of an object.
    fn seen(&self, meta: &ObjectMeta) -> Seen {
        self.kept_meta(meta).map_or(Seen::There, Seen::Version)
    }

    /// Has the cache forget an object that is put or deleted, and that its name is missing or there. Called before the request and when
    /// its reply is here. Fails if the cache cannot: what it has would else be served offline.
    pub(super) fn outdate(&self, path: &Path, is_there: bool) -> Reply<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        cache.disk.outdate(&cache.name(path), is_there).map_err(|error| {
            let folder = cache.disk.folder().display();
            Failure::Other(
                error.kind(),
                format!(
                    "the disk cache in {folder} cannot drop what it has of it: {error}: mend that, or mount without \
                     --disk-cache"
                ),
            )
        })
    }

    /// What is kept of an object's metadata; `None` if its version cannot be told for sure.
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

    /// Size, ETag and time of an object. The reply to HEAD has no body, and so no code: where it is refused, GET says why.
    pub(super) async fn head(&self, path: &Path) -> Reply<ObjectMeta> {
        if let Some(cache) = self.cache.as_ref().filter(|cache| cache.is_offline) {
            let (disk, name) = (Arc::clone(&cache.disk), cache.name(path));
            cache.check_presence(path).await?;
            return match spawn_blocking(move || disk.meta(&name)).await.ok().flatten() {
                Some(meta) => Ok(object_meta(path, &meta)),
                None => Err(Failure::Offline),
            };
        }
        Ok(self.look(path).await?.meta)
    }

    /// What the service says of an object, without its bytes.
    pub(super) async fn look(&self, path: &Path) -> Reply<GetResult> {
        let asked = self.cache.as_ref().map_or(0, |cache| cache.disk.now());
        let ask = async |options| self.client.get_opts(path, options).await.map_err(Failure::from);
        let mut looked = ask(GetOptions { head: true, ..GetOptions::default() }).await;
        if let Err(Failure::Undisclosed(_) | Failure::Forbidden(_)) = looked {
            let range = Some(GetRange::Bounded(0..1));
            looked = ask(GetOptions { range, ..GetOptions::default() }).await;
            if let Err(Failure::OutOfRange) = looked {
                looked = ask(GetOptions::default()).await;
            }
        }
        if let Some(cache) = &self.cache {
            match &looked {
                Ok(looked) => drop(cache.learn(path, &self.seen(&looked.meta), asked).await),
                Err(Failure::Missing) => {
                    let learned = cache.learn(path, &Seen::Missing, asked).await;
                    cache.keep_missing(path, learned).await?;
                }
                Err(Failure::Undisclosed(_)) if cache.is_forbidden_missing => {
                    drop(cache.learn(path, &Seen::Changed, asked).await);
                }
                Err(_) => {}
            }
        }
        looked
    }

    /// The names directly below a path, and what is left out of them.
    pub(super) async fn list(&self, path: &Path) -> Reply<(Names, Option<OddKeys>)> {
        if let Some(cache) = self.cache.as_ref().filter(|cache| cache.is_offline) {
            return Ok((cache.listing(path).await?, None));
        }
        let asked = self.cache.as_ref().map_or(0, |cache| cache.disk.now());
        let listed = self.client.list_with_delimiter(Some(path)).await?;
        // Programs that have folders mark them by an object whose key ends with '/', in the folder itself.
        let is_below = |below: &&Path| below.as_ref().len() > path.as_ref().len();
        let name = |path: &Path| Some(path.as_ref().rsplit('/').next()?.to_owned());
        let objects = listed.objects.iter().map(|meta| &meta.location);
        let names = Names::new(
            listed.common_prefixes.iter().filter(is_below).filter_map(name).collect(),
            objects.filter(is_below).filter_map(name).collect(),
        );
        if let Some(cache) = &self.cache {
            cache.keep_listing(path, &names, asked).await?;
        }
        Ok((names, listed.extensions.get().cloned()))
    }

    /// Whether anything is below a path.
    pub(super) async fn has_any(&self, path: &Path) -> Reply<bool> {
        let is_offline = self.cache.as_ref().is_some_and(|cache| cache.is_offline);
        // Few web servers list a whole tree.
        if is_offline || self.service == Service::Http {
            let (names, _) = self.list(path).await?;
            return Ok(!names.objects.is_empty() || !names.folders.is_empty());
        }
        let first = self.client.list(Some(path)).next().await;
        Ok(first.transpose().map_err(Failure::from)?.is_some())
    }
}

impl Cached {
    fn name(&self, path: &Path) -> ObjectName {
        ObjectName { store: self.container.clone(), path: path.as_ref().to_owned() }
    }

    /// Entries with what is asked for.
    async fn find(&self, request: &Request<'_>) -> Option<Found> {
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

    /// The bytes that were found. `None` if they are damaged.
    async fn read(&self, path: &Path, found: Found) -> Option<Fetched> {
        let (meta, start) = (object_meta(path, &found.meta), found.range.start);
        let disk = Arc::clone(&self.disk);
        let bytes: Buffer = spawn_blocking(move || disk.read(&found)).await.ok().flatten()?;
        Some(Fetched { meta, start, bytes: Arc::new(bytes) })
    }

    /// Learns what a reply says of an object that was asked for at `asked`. An error means that nothing is kept of it.
    async fn learn(&self, path: &Path, seen: &Seen, asked: u64) -> io::Result<Times> {
        let (disk, name, seen) = (Arc::clone(&self.disk), self.name(path), seen.clone());
        let learned = spawn_blocking(move || disk.learn(&name, &seen, asked)).await;
        let learned = learned.map_err(io::Error::other).flatten().inspect_err(|error| self.warn(error))?;
        learned.ok_or_else(disk_cache::overtaken)
    }

    /// As [`Cached::learn`], where the service says that an object still is what the cache has.
    async fn confirm(&self, path: &Path) -> Reply<()> {
        let (disk, name) = (Arc::clone(&self.disk), self.name(path));
        blocking(move || disk.confirm(&name)).await?.inspect_err(|error| self.warn(error)).or(Ok(()))
    }

    fn warn(&self, error: &io::Error) {
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            let folder = self.disk.folder().display();
            log::warn!(
                "{folder}: the disk cache cannot be changed, and may be older than what was read: {error}: do not use it \
                 with --offline before that is mended and 'zarrfs cache clear' has run"
            );
        }
    }

    /// Keeps what was fetched. Fails only if it must be kept and cannot.
    async fn keep(
        &self,
        path: &Path,
        meta: disk_cache::ObjectMeta,
        fetched: &Fetched,
        learned: io::Result<Times>,
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

    /// As [`Cached::keep`], for the names directly below a path.
    async fn keep_listing(&self, path: &Path, names: &Names, asked: u64) -> Reply<()> {
        let (disk, name, names) = (Arc::clone(&self.disk), self.name(path), names.clone());
        let kept = blocking(move || disk.keep_listing(&name, names, asked)).await?;
        kept.or_else(|error| self.not_kept(error))
    }

    /// As [`Cached::keep`], for an object that is not there.
    async fn keep_missing(&self, path: &Path, learned: io::Result<Times>) -> Reply<()> {
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

    /// Something is not kept, which is an error if it must be.
    fn not_kept(&self, error: io::Error) -> Reply<()> {
        if self.must_keep {
            Err(Failure::Other(error.kind(), format!("the disk cache cannot keep it: {error}")))
        } else {
            Ok(())
        }
    }

    async fn presence(&self, path: &Path) -> Presence {
        let (disk, name) = (Arc::clone(&self.disk), self.name(path));
        blocking(move || disk.presence(&name)).await.unwrap_or(Presence::Unknown)
    }

    /// Fails unless what is kept of an object is as new as all that is known of it.
    async fn check_presence(&self, path: &Path) -> Reply<()> {
        match self.presence(path).await {
            Presence::There => Ok(()),
            Presence::Missing => Err(Failure::Missing),
            Presence::Unknown => Err(Failure::Offline),
        }
    }

    /// Why an object that the cache does not have is not served offline.
    async fn why_not_offline(&self, path: &Path) -> Failure {
        self.check_presence(path).await.err().unwrap_or(Failure::Offline)
    }

    async fn listing(&self, path: &Path) -> Reply<Names> {
        let (disk, name) = (Arc::clone(&self.disk), self.name(path));
        blocking(move || disk.listing(&name)).await?.ok_or(Failure::Offline)
    }
}

/// Runs what waits for the disk on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Reply<T> {
    let ended = |error| Failure::Other(io::ErrorKind::Other, format!("the disk cache: {error}"));
    spawn_blocking(work).await.map_err(ended)
}

/// Whether what was found is left on the disk until it is read.
fn stays_on_disk(found: &Found) -> bool {
    found.is_one_entry() && found.range.end - found.range.start >= MIN_LEFT_ON_DISK_BYTES
}

/// As `object_store` says it.
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
