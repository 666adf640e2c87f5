//! Stores that a document names, for documents of layers above: each target is a folder or a zip archive with a hierarchy in it.
//!
//! Uses its neighbours, `archives` and `readers`. The rule is that of references: see `mod.rs`. A target is a path in the store of an
//! allowed folder or bucket, where archives are folders (`ArchivesStore`), so that nothing outside is ever opened.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::object::narrowed;
use super::place::TargetPlace;
use super::{Target, Targets, open_remote};
use crate::error::{Error, Result};
use crate::store::directory::posix_stat;
use crate::store::remote_options::is_remote;
use crate::store::{
    ArchivesStore, Audience, Info, Object, ObjectContent, Posix, StatFs, Store, StoreOptions, Wanted, join,
    local_path, read_whole, without_secrets,
};

/// How much of a document is read to find out what it is.
const START_BYTES: usize = 256;

/// A document that names stores, and those stores.
pub struct LinkedStores {
    targets: Targets,
    /// The stores with archives as folders, by the store below.
    shown: Mutex<HashMap<usize, Arc<dyn Store>>>,
    for_others: bool,
}

/// A store that a document names: all that is below a path of another store.
#[derive(Clone)]
pub struct LinkedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The path.
    pub path: String,
}

/// The document that a location names, if it begins as the caller wants.
pub struct LinkingDocument {
    /// Its content.
    pub content: ObjectContent,
    /// The stores that it may name.
    pub stores: LinkedStores,
}

impl LinkingDocument {
    /// Opens the document at a location: a file, or a URL that ends in `.json`. Returns `None` for everything else, and if the first
    /// bytes are not what `is_wanted` wants. Failures are [`Error::Usage`].
    pub fn open(
        location: &str,
        options: &StoreOptions,
        limit_bytes: u64,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Self>> {
        let found = if is_remote(location) {
            if !location.to_ascii_lowercase().ends_with(".json") {
                return Ok(None);
            }
            remote_document(location, options, limit_bytes, is_wanted)?
        } else {
            let Some(path) = local_path(location).ok().filter(|path| path.is_file()) else { return Ok(None) };
            local_document(location, &path, limit_bytes, is_wanted)?
        };
        let Some((content, place)) = found else { return Ok(None) };
        let targets = Targets::new(&place.folder(), options)?;
        let stores = LinkedStores { targets, shown: Mutex::default(), for_others: options.for_others };
        Ok(Some(LinkingDocument { content, stores }))
    }
}

fn local_document(
    location: &str,
    path: &Path,
    limit_bytes: u64,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Option<(ObjectContent, TargetPlace)>> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    let failed = |error: std::io::Error| Error::Usage(format!("{location}: cannot be opened: {error}"));
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = std::fs::File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mut start = [0; START_BYTES];
    let length = file.read_at(&mut start, 0).map_err(failed)?;
    if !is_wanted(start.get(..length).unwrap_or_default()) {
        return Ok(None);
    }
    check_size(location, metadata.len(), limit_bytes)?;
    let mut bytes = vec![0; metadata.len() as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let mut info = posix_stat::info_for(&file, &metadata);
    info.posix = info.posix.map(|posix| Posix { file: None, ..posix });
    let place = TargetPlace::local(&std::path::absolute(path).map_err(failed)?);
    Ok(Some((ObjectContent { bytes, info }, place)))
}

fn remote_document(
    location: &str,
    options: &StoreOptions,
    limit_bytes: u64,
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Option<(ObjectContent, TargetPlace)>> {
    // Whatever cannot be opened here is reported by the store that the location may also name.
    let Ok(place) = TargetPlace::parse(location, None) else { return Ok(None) };
    let (store, key) = open_remote(&place, location, &options.remote)?;
    let Ok(Some(object)) = store.open_for(&key, &Wanted::Range(0..START_BYTES as u64)) else {
        return Ok(None);
    };
    let length = (START_BYTES as u64).min(object.size_bytes()) as usize;
    let mut start = [0; START_BYTES];
    let Some(first) = start.get_mut(..length) else { return Ok(None) };
    if object.read_exact_at(0, first).is_err() || !is_wanted(first) {
        return Ok(None);
    }
    let info = object.info();
    check_size(location, info.size_bytes, limit_bytes)?;
    let bytes = read_whole(object.as_ref() as &dyn Object, &key, limit_bytes);
    let bytes = bytes.map_err(|error| Error::Usage(format!("{}: {error}", without_secrets(location))))?;
    Ok(Some((ObjectContent { bytes, info }, place)))
}

fn check_size(location: &str, size_bytes: u64, limit_bytes: u64) -> Result<()> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    let location = without_secrets(location);
    Err(Error::Usage(format!(
        "{location}: has {size_bytes} bytes, more than the limit of {limit_bytes} for a stack"
    )))
}

impl LinkedStores {
    /// Whether some store may be remote.
    pub fn may_be_remote(&self) -> bool {
        self.targets.may_be_remote()
    }

    /// Whether this program serves users other than its own.
    pub fn are_for_others(&self) -> bool {
        self.for_others
    }

    /// Returns the limit on memory for transfers.
    pub fn transfer_limit_bytes(&self) -> u64 {
        self.targets.transfer_limit_bytes()
    }

    /// Returns the space of the document's own filesystem.
    pub fn statfs(&self) -> Result<StatFs> {
        self.targets.statfs()
    }

    /// Returns the store that a text names. An error has the key `key`.
    pub fn find(&self, text: &str, key: &str) -> Result<LinkedStore> {
        let Target { store, key: path } = self.targets.find(text, key, None)?;
        let mut shown = self.shown.lock();
        let address = Arc::as_ptr(&store).cast::<()>() as usize;
        // The store below lives as long as `targets`, so no other one has its address.
        let store = shown.entry(address).or_insert_with(|| Arc::new(ArchivesStore::new(store))).clone();
        Ok(LinkedStore { store, path })
    }

    /// Returns the store that a text names, for these readers of the array at `array` in it.
    pub fn find_for(
        &self,
        text: &str,
        array: &str,
        key: &str,
        audience: &Arc<Audience>,
    ) -> Result<LinkedStore> {
        let LinkedStore { store, path } = self.find(text, key)?;
        // Fails if some of them may not even search the allowed folder.
        drop(self.targets.find(text, key, Some(audience))?);
        let store = store.for_audience(join(&path, array).trim_matches('/'), audience).unwrap_or(store);
        Ok(LinkedStore { store, path })
    }

    /// Returns the content of a file that a text names, and its path in its store: another document that names stores. `None` if it
    /// does not begin as `is_wanted` wants.
    pub fn document(
        &self,
        text: &str,
        key: &str,
        limit_bytes: u64,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<(ObjectContent, LinkedStore)>> {
        let linked = self.find(text, key)?;
        let Some(object) = linked.store.open(&linked.path)? else { return Ok(None) };
        let length = (START_BYTES as u64).min(object.size_bytes()) as usize;
        let mut start = [0; START_BYTES];
        let Some(first) = start.get_mut(..length) else { return Ok(None) };
        object.read_exact_at(0, first)?;
        if !is_wanted(first) {
            return Ok(None);
        }
        drop(object);
        Ok(linked.store.content(&linked.path, limit_bytes)?.map(|content| (content, linked)))
    }
}

/// Returns the info of a document that leads to targets, without users who may not read all of them.
#[must_use]
pub fn info_narrowed(own: Info, targets: impl Iterator<Item = Option<Posix>>) -> Info {
    Info { posix: targets.fold(own.posix, narrowed), ..own }
}
