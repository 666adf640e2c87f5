//! Targets of references and of virtual chunks: which may be opened, and the stores that have them.
//!
//! Uses `directory`, `remote` and `remote_options`. The author of a reference file must not choose what this program
//! opens: local targets are beneath the reference file's folder, remote ones at its own scheme, host and bucket. The user's
//! `--allow-references` adds folders and URLs. Invariants: every path is resolved beneath the descriptor of an allowed folder,
//! and every key is in a bucket that is allowed; a server redirects to nothing that a reference could not name.

pub(super) mod object;
pub(super) mod place;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use self::object::refused;
use self::place::{Place, Refusal};
use crate::error::{Error, Result};
use crate::store::directory::posix_stat;
use crate::store::readers::{Audience, READ, Readers, SEARCH};
use crate::store::remote_options::RedirectRule;
use crate::store::{DirectoryStore, Info, RemoteOptions, StatFs, Store, StoreOptions, without_secrets};

/// The most services and buckets that are connected at one time.
const MAX_REMOTE_STORES: usize = 32;
/// Memory for transfers, unless the options say otherwise.
const TRANSFER_BYTES: u64 = 64 << 20;

/// A folder whose files may be opened.
struct Folder {
    /// Its names: as it was named, and without links.
    paths: Vec<PathBuf>,
    store: Arc<DirectoryStore>,
    /// The folder itself.
    root: File,
}

/// Keys that may be opened.
struct Prefix {
    /// Scheme, host and bucket; only the scheme allows all of it.
    root: String,
    key: String,
}

/// What may be opened, and what is open.
pub(in crate::store) struct Targets {
    /// Relative targets are below it.
    base: Place,
    folders: Vec<Folder>,
    prefixes: Arc<[Prefix]>,
    remote: Mutex<HashMap<String, Arc<dyn Store>>>,
    options: RemoteOptions,
    /// The place whose service the options describe.
    location: String,
    is_base_remote: bool,
}

/// A target that may be opened.
#[derive(Clone)]
pub(in crate::store) struct Target {
    /// The store that has it.
    pub store: Arc<dyn Store>,
    /// Its key there.
    pub key: String,
}

impl Target {
    /// What is the same for the same object.
    pub(in crate::store) fn name(&self) -> (usize, String) {
        (Arc::as_ptr(&self.store).cast::<()>() as usize, self.key.clone())
    }
}

/// Where an allowed target is.
enum Allowed<'a> {
    Local(&'a Folder, String),
    Remote(String, String),
}

impl Targets {
    /// The targets of references in the folder `base`.
    pub(in crate::store) fn new(base: &Place, options: &StoreOptions) -> Result<Self> {
        let own = match base {
            Place::Local(path) => vec![Folder::open(path, options)?],
            Place::Remote { .. } => Vec::new(),
        };
        Self::with(own, base, options)
    }

    /// The targets of a repository in the folder `base`, which are not its own files.
    #[cfg(feature = "icechunk")]
    pub(in crate::store) fn of_repository(base: &Place, options: &StoreOptions) -> Result<Self> {
        Self::with(Vec::new(), base, options)
    }

    fn with(mut folders: Vec<Folder>, base: &Place, options: &StoreOptions) -> Result<Self> {
        let mut prefixes = Vec::new();
        if let Place::Remote { root, .. } = base {
            prefixes.push(Prefix { root: root.clone(), key: String::new() });
        }
        for prefix in &options.allowed_references {
            let wrong = |reason: String| Error::Usage(format!("--allow-references {reason}"));
            match allowed_place(prefix).map_err(|refusal| wrong(refusal.sentence(prefix)))? {
                Place::Local(path) => {
                    folders.push(Folder::open(&path, options).map_err(|error| wrong(error.to_string()))?)
                }
                Place::Remote { root, key } => prefixes.push(Prefix { root, key }),
            }
        }
        let prefixes: Arc<[Prefix]> = prefixes.into();
        Ok(Targets {
            base: base.clone(),
            folders,
            remote: Mutex::default(),
            options: RemoteOptions { redirects: redirects_within(&prefixes), ..options.remote.clone() },
            prefixes,
            location: match base {
                Place::Local(_) => String::new(),
                Place::Remote { root, .. } => root.clone(),
            },
            is_base_remote: matches!(base, Place::Remote { .. }),
        })
    }

    /// Whether any target may be remote.
    pub(in crate::store) fn may_be_remote(&self) -> bool {
        self.is_base_remote || !self.prefixes.is_empty()
    }

    /// The most memory for transfers.
    pub(in crate::store) fn transfer_limit_bytes(&self) -> u64 {
        if self.may_be_remote() { self.options.memory_bytes.unwrap_or(TRANSFER_BYTES) } else { 0 }
    }

    /// The remote stores that are open.
    pub(in crate::store) fn remote_stores(&self) -> Vec<Arc<dyn Store>> {
        self.remote.lock().values().cloned().collect()
    }

    /// Of the reference file's own file system; a service has no size.
    pub(in crate::store) fn statfs(&self) -> Result<StatFs> {
        match self.folders.first().filter(|_| !self.is_base_remote) {
            Some(folder) => folder.store.statfs(),
            None => Ok(StatFs { block_bytes: 4096, name_max: 255, ..StatFs::default() }),
        }
    }

    /// Fails with EACCES unless the target may be opened. Opens nothing.
    pub(in crate::store) fn check(&self, url: &str, key: &str) -> Result<()> {
        self.allowed(url, key).map(drop).or_else(|error| self.literal(url).map(drop).ok_or(error))
    }

    /// The file that a `file:` URL with a `%` names literally, if that file may be opened.
    fn literal(&self, url: &str) -> Option<(&Folder, String)> {
        let path = Place::literal(url)?;
        self.folders.iter().find_map(|folder| Some((folder, folder.key_of(&path)?.to_str()?.to_owned())))
    }

    fn allowed(&self, url: &str, key: &str) -> Result<Allowed<'_>> {
        let place = Place::parse(url, Some(&self.base)).map_err(|refusal| {
            let sentence = format!("it refers to {}", refusal.sentence(url));
            match refusal {
                Refusal::Unsupported(_) => Error::unsupported(key, sentence),
                Refusal::Malformed(_) => Error::corrupt(key, sentence),
            }
        })?;
        match place {
            Place::Local(path) => {
                for folder in &self.folders {
                    if let Some(inside) = folder.key_of(&path) {
                        let inside = inside
                            .to_str()
                            .ok_or_else(|| Error::corrupt(key, "the target's path is not UTF-8"))?;
                        return Ok(Allowed::Local(folder, inside.to_owned()));
                    }
                }
                let prefix = path.parent().unwrap_or(&path).display().to_string();
                Err(outside(key, url, &prefix))
            }
            Place::Remote { root, key: target } => {
                if are_allowed(&self.prefixes, &root, &target) {
                    return Ok(Allowed::Remote(root, target));
                }
                Err(outside(key, url, &root))
            }
        }
    }

    /// The store and key of a target, for these users if others than this program's get what it reads.
    pub(in crate::store) fn find(
        &self,
        url: &str,
        key: &str,
        audience: Option<&Arc<Audience>>,
    ) -> Result<Target> {
        // fsspec takes a path literally. Where no file has that name, the path may be encoded, as in any other URL.
        if let Some((folder, target)) = self.literal(url) {
            let literal = folder.target(target, (url, key), audience)?;
            if !matches!(literal.store.head(&literal.key), Ok(None)) {
                return Ok(literal);
            }
        }
        match self.allowed(url, key)? {
            Allowed::Local(folder, target) => folder.target(target, (url, key), audience),
            Allowed::Remote(root, target) => {
                Ok(Target { store: self.remote_store(&root, key)?, key: target })
            }
        }
    }

    fn remote_store(&self, root: &str, key: &str) -> Result<Arc<dyn Store>> {
        let mut remote = self.remote.lock();
        if let Some(store) = remote.get(root) {
            return Ok(Arc::clone(store));
        }
        if remote.len() >= MAX_REMOTE_STORES {
            let reason = format!("the references lead to more than {MAX_REMOTE_STORES} hosts and buckets");
            return Err(Error::unsupported(key, reason));
        }
        let options = self.options.for_target(&self.location, root);
        let store = connect(root, &options)
            .map_err(|error| Error::store(key, "open", std::io::Error::other(error.to_string())))?;
        remote.insert(root.to_owned(), Arc::clone(&store));
        Ok(store)
    }
}

impl Folder {
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
        Ok(Folder { paths, store, root })
    }

    /// A file in it, for these users.
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

    /// Fails unless all these users may enter it.
    fn admit(&self, audience: &Audience, url: &str, key: &str) -> Result<()> {
        let root = posix_stat::posix(&self.root).map_err(|error| Error::store(key, "open", error))?;
        let root = Readers::for_posix(&root);
        if audience.all(|readers| readers.all_may(READ, SEARCH, &root)) {
            return Ok(());
        }
        let sentence =
            format!("the folder of {url} is closed to some users that may read the array's document");
        Err(refused(key, sentence))
    }

    /// The path of a file below it.
    fn key_of<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let inside = self.paths.iter().find_map(|folder| path.strip_prefix(folder).ok())?;
        (!inside.as_os_str().is_empty()).then_some(inside)
    }
}

impl Prefix {
    /// Whether a key is at or below the prefix. What may be read with http may be read from the same host with https.
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

fn are_allowed(prefixes: &[Prefix], root: &str, key: &str) -> bool {
    prefixes.iter().any(|prefix| prefix.allows(root, key))
}

/// The servers of targets may redirect to what targets may be.
fn redirects_within(prefixes: &Arc<[Prefix]>) -> RedirectRule {
    let prefixes = Arc::clone(prefixes);
    RedirectRule::new(move |url| match Place::parse(url, None) {
        Ok(Place::Remote { root, key }) if are_allowed(&prefixes, &root, &key) => Ok(()),
        Ok(Place::Remote { root, .. }) => Err(is_outside(&root)),
        Ok(Place::Local(_)) => Err("is not at a service".to_owned()),
        Err(refusal) => Err(format!("is not followed: {}", refusal.reason())),
    })
}

/// The place that the user allows.
fn allowed_place(prefix: &str) -> std::result::Result<Place, Refusal> {
    if prefix.contains("://") || prefix.starts_with("file:") {
        return Place::parse(prefix, None);
    }
    let path = std::path::absolute(prefix).map_err(|_| Refusal::Malformed("names no folder"))?;
    Ok(Place::of_local(&path))
}

/// A target that the user has to allow.
fn outside(key: &str, url: &str, prefix: &str) -> Error {
    refused(key, format!("{} {}", without_secrets(url), is_outside(prefix)))
}

fn is_outside(prefix: &str) -> String {
    let prefix = without_secrets(prefix);
    format!("is outside of what these references may refer to: --allow-references {prefix} allows it")
}

/// The store with the object at a place, and its key.
pub(in crate::store) fn open_remote(
    place: &Place,
    location: &str,
    options: &RemoteOptions,
) -> Result<(Arc<dyn Store>, String)> {
    match place {
        Place::Remote { root, key } => Ok((connect(root, options)?, key.clone())),
        Place::Local(_) => Err(Error::Usage(format!("{location}: not the URL of a service"))),
    }
}

/// The folder at a URL as a store.
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

/// What is told of targets: each is asked for once, those of one store together.
pub(in crate::store) fn head_all<'a>(
    targets: impl Iterator<Item = &'a Target>,
) -> HashMap<(usize, String), Result<Option<Info>>> {
    let mut stores: HashMap<usize, (Arc<dyn Store>, Vec<String>)> = HashMap::new();
    for target in targets {
        let (store, key) = target.name();
        // A guarded folder is another store for each target.
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
