//! Targets of references and of virtual chunks: checking that they may be opened, and the stores that have them.
//!
//! Uses `directory`, `remote` and `remote_options`. The author of a reference file must not choose what this program opens:
//! local targets are beneath the reference file's folder, remote ones at its own scheme, host and bucket. The user's
//! `--allow-references` adds folders and URLs. Invariants: every path is resolved beneath the descriptor of an allowed folder,
//! and every key is in an allowed bucket. A redirect is followed only to a target that a reference could name.

pub(super) mod object;
pub(super) mod place;
pub(super) mod stores;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use self::object::refused;
use self::place::{PlaceError, TargetPlace};
use crate::error::{Error, Result};
use crate::store::directory::posix_stat;
use crate::store::pipeline::Link;
use crate::store::readers::{Audience, READ, Readers, SEARCH};
use crate::store::remote_options::RedirectRule;
use crate::store::zip::EXACT_ROOT;
use crate::store::{
    DirectoryStore, Info, MaybeClaim, RemoteOptions, StatFs, Store, StoreOptions, Wanted, ZipStore,
    without_secrets,
};

/// The most services and buckets that are open at one time.
const MAX_REMOTE_STORES: usize = 32;
/// The most archives that are open at one time.
const MAX_ARCHIVES: usize = 64;
/// The default memory for transfers.
const TRANSFER_BYTES: u64 = 64 << 20;

/// A folder whose files may be opened.
struct AllowedFolder {
    /// Its paths: as the user named it, and without links.
    paths: Vec<PathBuf>,
    store: Arc<DirectoryStore>,
    /// The folder itself.
    root: File,
}

/// A prefix of keys that may be opened.
struct AllowedPrefix {
    /// Scheme, host and bucket. A scheme alone allows everything with that scheme.
    root: String,
    key: String,
}

/// The targets that may be opened, and the stores that are open.
pub(in crate::store) struct Targets {
    /// The folder that relative targets are below.
    base: TargetPlace,
    folders: Vec<AllowedFolder>,
    prefixes: Arc<[AllowedPrefix]>,
    remote: Mutex<HashMap<String, Arc<dyn Store>>>,
    /// The archives that are open, by their URL.
    archives: Mutex<HashMap<String, Arc<ZipStore>>>,
    options: RemoteOptions,
    /// The location whose service the options describe.
    location: String,
    is_base_remote: bool,
}

/// A target that may be opened.
#[derive(Clone)]
pub(in crate::store) struct Target {
    /// The store with the target.
    pub store: Arc<dyn Store>,
    /// Its key there.
    pub key: String,
}

impl Target {
    /// Returns a name that is the same for the same object.
    pub(in crate::store) fn name(&self) -> (usize, String) {
        (Arc::as_ptr(&self.store).cast::<()>() as usize, self.key.clone())
    }
}

/// Splits the URL of a web server at its query.
fn without_query(url: &str) -> (&str, Option<&str>) {
    let is_web = ["http://", "https://"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    match url.split_once('?') {
        Some((bare, query)) if is_web && !query.contains('#') => (bare, Some(query)),
        _ => (url, None),
    }
}

/// Parses a target that is a member of an archive. Each archive is a target of its own, under the same rule.
fn link(url: &str, key: &str) -> Result<Option<Link>> {
    let wrong =
        |reason| Error::corrupt(key, format!("it refers to {}, which {reason}", without_secrets(url)));
    Link::parse(url).transpose().map_err(wrong)
}

/// The location of an allowed target.
enum AllowedTarget<'a> {
    Local(&'a AllowedFolder, String),
    Remote(String, String),
}

impl Targets {
    /// Returns the targets of references in the folder `base`.
    pub(in crate::store) fn new(base: &TargetPlace, options: &StoreOptions) -> Result<Self> {
        let own = match base {
            TargetPlace::Local(path) => vec![AllowedFolder::open(path, options)?],
            TargetPlace::Remote { .. } => Vec::new(),
        };
        Self::build(own, base, options)
    }

    /// Returns the targets of a repository in the folder `base`, which are not its own files.
    #[cfg(feature = "icechunk")]
    pub(in crate::store) fn for_repository(base: &TargetPlace, options: &StoreOptions) -> Result<Self> {
        Self::build(Vec::new(), base, options)
    }

    fn build(mut folders: Vec<AllowedFolder>, base: &TargetPlace, options: &StoreOptions) -> Result<Self> {
        let mut prefixes = Vec::new();
        if let TargetPlace::Remote { root, .. } = base {
            prefixes.push(AllowedPrefix { root: root.clone(), key: String::new() });
        }
        for prefix in &options.allowed_references {
            let wrong = |reason: String| Error::Usage(format!("--allow-references {reason}"));
            match allowed_place(prefix).map_err(|refusal| wrong(refusal.sentence(prefix)))? {
                TargetPlace::Local(path) => folders
                    .push(AllowedFolder::open(&path, options).map_err(|error| wrong(error.to_string()))?),
                TargetPlace::Remote { root, key } => prefixes.push(AllowedPrefix { root, key }),
            }
        }
        let prefixes: Arc<[AllowedPrefix]> = prefixes.into();
        Ok(Targets {
            base: base.clone(),
            folders,
            remote: Mutex::default(),
            archives: Mutex::default(),
            options: RemoteOptions { redirects: redirects_within(&prefixes), ..options.remote.clone() },
            prefixes,
            location: match base {
                TargetPlace::Local(_) => String::new(),
                TargetPlace::Remote { root, .. } => root.clone(),
            },
            is_base_remote: matches!(base, TargetPlace::Remote { .. }),
        })
    }

    /// Whether some target may be remote.
    pub(in crate::store) fn may_be_remote(&self) -> bool {
        self.is_base_remote || !self.prefixes.is_empty()
    }

    /// Returns the limit on memory for transfers.
    pub(in crate::store) fn transfer_limit_bytes(&self) -> u64 {
        if self.may_be_remote() { self.options.memory_bytes.unwrap_or(TRANSFER_BYTES) } else { 0 }
    }

    /// Returns the remote stores that are open.
    pub(in crate::store) fn remote_stores(&self) -> Vec<Arc<dyn Store>> {
        self.remote.lock().values().cloned().collect()
    }

    /// Returns the space of the reference file's own filesystem; a service has no size.
    pub(in crate::store) fn statfs(&self) -> Result<StatFs> {
        match self.folders.first().filter(|_| !self.is_base_remote) {
            Some(folder) => folder.store.statfs(),
            None => Ok(StatFs { block_bytes: 4096, name_max: 255, ..StatFs::default() }),
        }
    }

    /// Fails with EACCES unless the target may be opened. Opens nothing.
    pub(in crate::store) fn check(&self, url: &str, key: &str) -> Result<()> {
        if let Some(link) = link(url, key)? {
            return self.check(&link.archive, key);
        }
        self.allowed(without_query(url).0, key)
            .map(drop)
            .or_else(|error| self.literal(url).map(drop).ok_or(error))
    }

    /// Returns the file that a `file:` URL with a `%` names literally, if it may be opened.
    fn literal(&self, url: &str) -> Option<(&AllowedFolder, String)> {
        let path = TargetPlace::literal(url)?;
        self.folders.iter().find_map(|folder| Some((folder, folder.key_of(&path)?.to_str()?.to_owned())))
    }

    fn allowed(&self, url: &str, key: &str) -> Result<AllowedTarget<'_>> {
        let place = TargetPlace::parse(url, Some(&self.base)).map_err(|refusal| {
            let sentence = format!("it refers to {}", refusal.sentence(url));
            match refusal {
                PlaceError::Unsupported(_) => Error::unsupported(key, sentence),
                PlaceError::Malformed(_) => Error::corrupt(key, sentence),
            }
        })?;
        match place {
            TargetPlace::Local(path) => {
                for folder in &self.folders {
                    if let Some(inside) = folder.key_of(&path) {
                        let inside = inside
                            .to_str()
                            .ok_or_else(|| Error::corrupt(key, "the target's path is not UTF-8"))?;
                        return Ok(AllowedTarget::Local(folder, inside.to_owned()));
                    }
                }
                let prefix = path.parent().unwrap_or(&path).display().to_string();
                Err(outside(key, url, &prefix))
            }
            TargetPlace::Remote { root, key: target } => {
                if are_allowed(&self.prefixes, &root, &target) {
                    return Ok(AllowedTarget::Remote(root, target));
                }
                Err(outside(key, url, &root))
            }
        }
    }

    /// Returns the store and key of a target. With an audience, the store checks the permissions of these users.
    pub(in crate::store) fn find(
        &self,
        url: &str,
        key: &str,
        audience: Option<&Arc<Audience>>,
    ) -> Result<Target> {
        if let Some(link) = link(url, key)? {
            let archive = self.find(&link.archive, key, audience)?;
            let store = self.archive(&link.archive, &archive, key, audience.is_some())?;
            return Ok(Target { store, key: link.member });
        }
        // fsspec takes a path literally. If no file has that name, the path may be encoded, as in any other URL.
        if let Some((folder, target)) = self.literal(url) {
            let literal = folder.target(target, (url, key), audience)?;
            if !matches!(literal.store.head(&literal.key), Ok(None)) {
                return Ok(literal);
            }
        }
        let (bare, query) = without_query(url);
        match (self.allowed(bare, key)?, query) {
            (AllowedTarget::Local(folder, target), _) => folder.target(target, (url, key), audience),
            (AllowedTarget::Remote(root, target), None) => {
                Ok(Target { store: self.remote_store(&root, key, false)?, key: target })
            }
            (AllowedTarget::Remote(root, target), Some(query)) => {
                let store = self.remote_store(&root, key, true)?;
                let with_query = store.remote().and_then(|remote| remote.key_with_query(&target, query));
                let too_many = || Error::unsupported(key, "the references have too many URLs with queries");
                Ok(Target { key: with_query.ok_or_else(too_many)?, store })
            }
        }
    }

    /// Returns the archive that is a target. `is_guarded` means that the target's store checks the permissions of users.
    fn archive(&self, url: &str, target: &Target, key: &str, is_guarded: bool) -> Result<Arc<ZipStore>> {
        let failed = |error| object::target_error(key, url, error);
        let is_missing = is_guarded && target.store.open(&target.key).map_err(failed)?.is_none();
        let known = self.archives.lock().get(url).cloned();
        if let Some(archive) = known.filter(|_| !is_missing) {
            return Ok(archive);
        }
        let shown = without_secrets(url);
        let opened = ZipStore::open_object(&target.store, &target.key, EXACT_ROOT, shown).map_err(failed)?;
        let archive = Arc::new(opened.ok_or_else(|| object::missing(key, url))?);
        let mut archives = self.archives.lock();
        if archives.len() >= MAX_ARCHIVES {
            archives.clear();
        }
        archives.insert(url.to_owned(), Arc::clone(&archive));
        Ok(archive)
    }

    /// Returns the store at a host or bucket. `has_query` means that the URLs have queries, as web servers' have.
    fn remote_store(&self, root: &str, key: &str, has_query: bool) -> Result<Arc<dyn Store>> {
        let mut remote = self.remote.lock();
        let name = if has_query { format!("{root}?") } else { root.to_owned() };
        if let Some(store) = remote.get(&name) {
            return Ok(Arc::clone(store));
        }
        if remote.len() >= MAX_REMOTE_STORES {
            let reason = format!("the references lead to more than {MAX_REMOTE_STORES} hosts and buckets");
            return Err(Error::unsupported(key, reason));
        }
        let of_target = self.options.for_target(&self.location, root);
        // A signature in a query stands for the credentials of an object store.
        let options = RemoteOptions { is_web_server: has_query, ..of_target };
        let store = connect(root, &options)
            .map_err(|error| Error::store(key, "open", std::io::Error::other(error.to_string())))?;
        remote.insert(name, Arc::clone(&store));
        Ok(store)
    }
}

impl AllowedFolder {
    fn open(path: &Path, options: &StoreOptions) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let failed =
            |error: std::io::Error| Error::Usage(format!("{}: cannot be opened: {error}", path.display()));
        let store = DirectoryStore::open(path, options.follow_symlinks).map_err(failed)?;
        let store = Arc::new(if options.for_others { store.guarded() } else { store });
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let mut paths = vec![path.to_owned()];
        paths.extend(path.canonicalize().ok().filter(|real| real != path));
        Ok(AllowedFolder { paths, store, root })
    }

    /// Returns a file in the folder, for these users.
    fn target(
        &self,
        target: String,
        (url, key): (&str, &str),
        audience: Option<&Arc<Audience>>,
    ) -> Result<Target> {
        if let Some(audience) = audience {
            self.admit(audience, url, key)?;
        }
        let guarded = audience.and_then(|audience| self.store.for_audience("", audience));
        let store = guarded.unwrap_or_else(|| Arc::clone(&self.store) as _);
        Ok(Target { store, key: target })
    }

    /// Fails unless all these users may search the folder.
    fn admit(&self, audience: &Audience, url: &str, key: &str) -> Result<()> {
        let root = posix_stat::posix(&self.root).map_err(|error| Error::store(key, "open", error))?;
        let root = Readers::for_posix(&root);
        if audience.all(|readers| readers.all_may(READ, SEARCH, &root)) {
            return Ok(());
        }
        let sentence =
            format!("the folder of {url} is closed to some users who may read the array's document");
        Err(refused(key, sentence))
    }

    /// Returns the path of a file below the folder.
    fn key_of<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let inside = self.paths.iter().find_map(|folder| path.strip_prefix(folder).ok())?;
        (!inside.as_os_str().is_empty()).then_some(inside)
    }
}

impl AllowedPrefix {
    /// Whether a key is at or below the prefix. An object that may be read with http may also be read from the same host with
    /// https.
    fn allows(&self, root: &str, key: &str) -> bool {
        let is_of_scheme = self.root.ends_with("://") && root.starts_with(&self.root);
        let is_safer = match (self.root.strip_prefix("http://"), root.strip_prefix("https://")) {
            (Some(own), Some(other)) => own.is_empty() || (own == other && !own.contains(':')),
            _ => false,
        };
        let is_root = self.root == root || is_of_scheme || is_safer;
        let rest = key.strip_prefix(&self.key);
        is_root && rest.is_some_and(|rest| self.key.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}

fn are_allowed(prefixes: &[AllowedPrefix], root: &str, key: &str) -> bool {
    prefixes.iter().any(|prefix| prefix.allows(root, key))
}

/// Returns the rule for redirects: servers may redirect to allowed targets only.
fn redirects_within(prefixes: &Arc<[AllowedPrefix]>) -> RedirectRule {
    let prefixes = Arc::clone(prefixes);
    RedirectRule::new(move |url| match TargetPlace::parse(url, None) {
        Ok(TargetPlace::Remote { root, key }) if are_allowed(&prefixes, &root, &key) => Ok(()),
        Ok(TargetPlace::Remote { root, .. }) => Err(is_outside(&root)),
        Ok(TargetPlace::Local(_)) => Err("is not at a service".to_owned()),
        Err(refusal) => Err(format!("is not followed: {}", refusal.reason())),
    })
}

/// Parses a folder or URL that the user allows.
fn allowed_place(prefix: &str) -> std::result::Result<TargetPlace, PlaceError> {
    if prefix.contains("://") || prefix.starts_with("file:") {
        return TargetPlace::parse(prefix, None);
    }
    let path = std::path::absolute(prefix).map_err(|_| PlaceError::Malformed("names no folder"))?;
    Ok(TargetPlace::local(&path))
}

/// Returns the error for a target that the user has to allow.
fn outside(key: &str, url: &str, prefix: &str) -> Error {
    refused(key, format!("{} {}", without_secrets(url), is_outside(prefix)))
}

fn is_outside(prefix: &str) -> String {
    let prefix = without_secrets(prefix);
    format!(
        "is outside the folders and buckets that these references may refer to: --allow-references {prefix} allows it"
    )
}

/// Opens the store with the object at a place, and returns it with the key.
pub(in crate::store) fn open_remote(
    place: &TargetPlace,
    location: &str,
    options: &RemoteOptions,
) -> Result<(Arc<dyn Store>, String)> {
    match place {
        TargetPlace::Remote { root, key } => Ok((connect(root, options)?, key.clone())),
        TargetPlace::Local(_) => Err(Error::Usage(format!("{location}: not the URL of a service"))),
    }
}

/// Opens the folder at a URL as a store.
pub(in crate::store) fn open_folder(location: &str, options: &RemoteOptions) -> Result<Arc<dyn Store>> {
    connect(location, options)
}

#[cfg(feature = "remote")]
fn connect(root: &str, options: &RemoteOptions) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(crate::store::RemoteStore::open(root, options)?))
}

#[cfg(not(feature = "remote"))]
fn connect(root: &str, _options: &RemoteOptions) -> Result<Arc<dyn Store>> {
    Err(Error::Usage(format!(
        "{root}: this build has no remote stores: it was made without the cargo feature 'remote'"
    )))
}

/// Calls [`Store::head_object`] once for each target, for those of one store together.
pub(in crate::store) fn head_all<'a>(
    targets: impl Iterator<Item = &'a Target>,
) -> HashMap<(usize, String), Result<Option<Info>>> {
    let mut stores: HashMap<usize, (Arc<dyn Store>, Vec<String>)> = HashMap::new();
    for target in targets {
        let (store, key) = target.name();
        // A guarded folder is a different store for each target.
        let (_, keys) = stores.entry(store).or_insert_with(|| (Arc::clone(&target.store), Vec::new()));
        keys.push(key);
    }
    let mut heads = HashMap::new();
    for (name, (store, mut keys)) in stores {
        keys.sort_unstable();
        keys.dedup();
        let infos = store.head_many(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        heads.extend(keys.into_iter().map(|key| (name, key)).zip(infos));
    }
    heads
}

/// The requests to one store of targets, with the places of their claims.
struct TargetBatch {
    store: Arc<dyn Store>,
    places: Vec<usize>,
    requests: Vec<(String, Wanted)>,
}

/// Starts to transfer bytes of targets, and returns the claims in order. Each store gets one request, so that near ranges of one
/// object are transferred together. Bytes without a remote target get no claim.
pub(in crate::store) fn will_need(wanted: impl Iterator<Item = Option<(Target, Wanted)>>) -> Vec<MaybeClaim> {
    let mut claims = Vec::new();
    let mut batches: HashMap<usize, TargetBatch> = HashMap::new();
    for (place, wanted) in wanted.enumerate() {
        claims.push(None);
        let Some((target, wanted)) = wanted else { continue };
        let (name, key) = target.name();
        let new = || TargetBatch { store: target.store, places: Vec::new(), requests: Vec::new() };
        let batch = batches.entry(name).or_insert_with(new);
        batch.places.push(place);
        batch.requests.push((key, wanted));
    }
    for batch in batches.into_values() {
        let Some(remote) = batch.store.remote() else { continue };
        for (place, claim) in batch.places.into_iter().zip(remote.will_need(&batch.requests)) {
            if let Some(slot) = claims.get_mut(place) {
                *slot = claim;
            }
        }
    }
    claims
}
